// SPDX-License-Identifier: Apache-2.0
#include "core/cpu_features.h"

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace routerelay {
namespace {

constexpr std::array<const char*, 5> kNames = {"scalar", "avx2", "avx512", "avx512bf16", "amx"};

struct Leaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};
Leaf cpuid(unsigned leaf, unsigned sub) {
  Leaf r;
  if (!__get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}
constexpr bool bit(unsigned word, int i) {
  return (word >> i) & 1u;
}

bool made_by_intel() {
  const Leaf r = cpuid(0, 0);
  return r.b == signature_INTEL_ebx && r.c == signature_INTEL_ecx && r.d == signature_INTEL_edx;
}

// State components that the kernel saves for us: without them the registers may not be touched.
uint64_t enabled_state() {
  if (!bit(cpuid(1, 0).c, 27)) return 0;  // OSXSAVE
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
}

// Linux hands AMX tile data out per process, on request.
bool request_amx_tiles() {
  constexpr int kArchReqXcompPerm = 0x1023, kXfeatureXtiledata = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtiledata) == 0;
}

std::vector<Isa> detect() {
  std::vector<Isa> found = {Isa::kScalar};
  const Leaf one = cpuid(1, 0), seven = cpuid(7, 0), seven1 = cpuid(7, 1);
  const uint64_t state = enabled_state();
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
  const bool tiles = (state & 0x60000) == 0x60000;  // TILECFG and TILEDATA
  const bool avx2 = ymm && bit(seven.b, 5) && bit(one.c, 12) /* FMA */ && bit(one.c, 29) /* F16C */;
  if (!avx2) return found;
  found.push_back(Isa::kAvx2);
  const bool avx512 =
      zmm && bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) && bit(seven.b, 31);  // F DQ BW VL
  if (!avx512) return found;
  found.push_back(Isa::kAvx512);
  if (!bit(seven1.a, 5)) return found;  // AVX512_BF16
  found.push_back(Isa::kAvx512Bf16);
  if (tiles && bit(seven.d, 24) && bit(seven.d, 22) && request_amx_tiles()) found.push_back(Isa::kAmxBf16);
  return found;
}

}  // namespace

const char* name_of(Isa isa) {
  return kNames[static_cast<size_t>(isa)];
}

Result<Isa> isa_from(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Isa>(i);
  return Status(Code::kInvalidArgument,
                fmt::format("engine: isa is '{}'; legal: {}", name, fmt::join(kNames, ", ")));
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> found = detect();
  return found;
}

// The widest, but for one case: Intel's cores run VDPBF16PS at half the rate of f32 FMA (77 against 155 GFLOP/s on
// one of Sapphire Rapids, `routerelay bench peak`); on AMD's Zen 4 it is 1.7 times as fast.
Isa best_isa() {
  const Isa widest = available_isas().back();
  return widest == Isa::kAvx512Bf16 && made_by_intel() ? Isa::kAvx512 : widest;
}

const char* why_best_isa() {
  return best_isa() == available_isas().back()
             ? "the best of them"
             : "faster than avx512bf16, which Intel's cores run at half the rate";
}

bool isa_available(Isa isa) {
  const auto& all = available_isas();
  return std::find(all.begin(), all.end(), isa) != all.end();
}

}  // namespace routerelay
