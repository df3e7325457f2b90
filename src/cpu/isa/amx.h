// SPDX-License-Identifier: Apache-2.0
// The AMX instructions that the tile needs, as inline assembly: GCC 12's own intrinsics do not tell the compiler
// which memory they read, so that it may move stores to a tile's rows behind the load.
#pragma once

#include <cstdint>

namespace routerelay::cpu {
namespace {

// 16 rows of 64 bytes from p, rows stride_bytes apart.
template <int kTile>
inline void amx_load(const void* p, int64_t stride_bytes) {
  __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(p), "r"(stride_bytes) : "memory");
}

// The same, leaving L1 to what is used again sooner: the T1 hint.
template <int kTile>
inline void amx_load_from_l2(const void* p, int64_t stride_bytes) {
  __asm__ volatile("tileloaddt1 (%1,%2,1), %%tmm%c0" : : "i"(kTile), "r"(p), "r"(stride_bytes) : "memory");
}

template <int kTile>
inline void amx_store(void* p, int64_t stride_bytes) {
  __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(kTile), "r"(p), "r"(stride_bytes) : "memory");
}

template <int kTile>
inline void amx_zero() {
  __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
}

// kC [16][16] f32 += kA [16][32] bf16 * kB [16][16][2] bf16.
template <int kC, int kA, int kB>
inline void amx_dot() {
  __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
}

// The 64 bytes of LDTILECFG: every tile 16 rows of 64 bytes.
struct alignas(64) AmxConfig {
  uint8_t palette = 0;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(AmxConfig) == 64);

// Holds our configuration and puts the caller's back: a host that configured its tiles once per thread (ggml does)
// would die with SIGILL at its next tile instruction otherwise. Tile data is the callee's to lose by the ABI.
class AmxSession {
 public:
  AmxSession() {
    __asm__ volatile("sttilecfg %0" : "=m"(saved_) : : "memory");
    AmxConfig ours{.palette = 1};
    for (int i = 0; i < 8; ++i) {
      ours.rows[i] = 16;
      ours.row_bytes[i] = 64;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(ours) : "memory");
  }
  ~AmxSession() {
    // Palette 0 is the state of a thread that uses no tiles; releasing also spares the kernel 8 KiB per switch.
    if (saved_.palette == 0)
      __asm__ volatile("tilerelease" : : : "memory");
    else
      __asm__ volatile("ldtilecfg %0" : : "m"(saved_) : "memory");
  }
  AmxSession(const AmxSession&) = delete;
  AmxSession& operator=(const AmxSession&) = delete;

 private:
  AmxConfig saved_;
};

}  // namespace
}  // namespace routerelay::cpu
