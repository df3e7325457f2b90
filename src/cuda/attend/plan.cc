// SPDX-License-Identifier: Apache-2.0
// The door of attend on CUDA.
#include "cuda/attend/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <numbers>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/rows.h"
#include "cuda/attend/order.h"
#include "cuda/attend/work.h"

namespace routerelay::cuda {
namespace {

constexpr AttendConfig kConfigs[] = {
#define RR_ATTEND_CONFIG(arch, dtype, kv_dtype, head_dim, q_block, k_block, heads_per_tile) \
  {Arch::arch, dtypes::dtype, dtypes::kv_dtype, head_dim, q_block, k_block, heads_per_tile},
#include "cuda/attend/configs.def"
#undef RR_ATTEND_CONFIG
};

// Other architectures' kernels are faster ones for what sm80's, which all devices run, compute too.
constexpr bool is_general(const AttendConfig& c) {
  return c.arch == Arch::sm80;
}
constexpr bool is_listed(const AttendConfig& config) {
  return std::ranges::find(kConfigs, config) != std::end(kConfigs);
}
constexpr bool has_general(AttendConfig config) {
  config.arch = Arch::sm80;
  config.heads_per_tile = 1;
  return is_listed(config);
}
static_assert(std::ranges::all_of(kConfigs, [](const auto& c) { return is_quantised(c) || has_general(c); }));

constexpr int64_t kMaxHeads = 1 << 16;          // as on the CPU: more are a mistake
constexpr int64_t kMaxWork = int64_t{1} << 30;  // the kernel's 32-bit index goes a few items beyond the last
constexpr int64_t kAlign = 16;                  // bytes: the copy engine's grain
constexpr int64_t kMaxStrideBytes = (int64_t{1} << 40) - kAlign;

template <class... T>
Status invalid(fmt::format_string<T...> text, T&&... args) {
  return {Code::kInvalidArgument, "attend: " + fmt::format(text, std::forward<T>(args)...)};
}

// On the device, a misaligned access would end the process's use of it.
Status check_aligned(std::string_view name, const void* pointer, int64_t bytes) {
  if (reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(bytes) == 0) return {};
  return invalid("{} is not aligned to {} bytes; move it", name, bytes);
}

Status check_stride(std::string_view name, int64_t elements, const Tensor& t) {
  const int64_t bytes = std::max(bytes_of(t.dtype, 1), int64_t{1}),  // q8_0, which comes no further, has none
      step = kAlign / bytes, most = kMaxStrideBytes / bytes;
  if (elements >= t.head_dim && elements <= most && elements % step == 0) return {};
  return invalid("{} is {}; legal: multiples of {} from head_dim ({}) to {}", name, elements, step,
                 t.head_dim, most);
}

Status check_tensor(const char* name, const Tensor& t) {
  if (t.data == nullptr) return invalid("{}.data is null; give device memory", name);
  if (t.tokens < 1 || t.tokens > kMaxTokens)
    return invalid("{}.tokens is {}; legal: 1 to {}", name, t.tokens, kMaxTokens);
  if (t.heads < 1 || t.heads > kMaxHeads)
    return invalid("{}.heads is {}; legal: 1 to {}", name, t.heads, kMaxHeads);
  RR_TRY(check_aligned(fmt::format("{}.data", name), t.data, kAlign));
  if (t.tokens > 1) RR_TRY(check_stride(fmt::format("{}.token_stride", name), t.token_stride, t));
  if (t.heads > 1) RR_TRY(check_stride(fmt::format("{}.head_stride", name), t.head_stride, t));
  return {};
}

Status check_dtypes(const AttendArgs& a) {
  const bool quantised = a.k.dtype == DType::kE4M3;
  if (a.q.dtype == DType::kE4M3)
    return invalid("q.dtype is e4m3; legal: bf16, f16; only k and v may be e4m3");
  if (a.k.dtype != a.q.dtype && !quantised)
    return invalid("k.dtype is {}, q's is {}; they must be equal, or k's e4m3", dtype_name(a.k.dtype),
                   dtype_name(a.q.dtype));
  if (a.v.dtype != a.k.dtype)
    return invalid("v.dtype is {}, k's is {}; they must be equal", dtype_name(a.v.dtype),
                   dtype_name(a.k.dtype));
  if (a.out.dtype != a.q.dtype)
    return invalid("out.dtype is {}, q's is {}; they must be equal", dtype_name(a.out.dtype),
                   dtype_name(a.q.dtype));
  for (const auto& [name, scale] : {std::pair{"k_scale", a.k_scale}, {"v_scale", a.v_scale}}) {
    if (scale != nullptr && !quantised)
      return invalid("{} is given and k.dtype is {}; legal with e4m3 only", name, dtype_name(a.k.dtype));
    RR_TRY(check_aligned(name, scale, alignof(float)));
  }
  return {};
}

Status check_shapes(const AttendArgs& a) {
  RR_TRY(check_tensor("q", a.q));
  RR_TRY(check_tensor("k", a.k));
  RR_TRY(check_tensor("v", a.v));
  RR_TRY(check_tensor("out", a.out));
  for (const auto& [name, t] : {std::pair<const char*, Tensor>{"k", a.k}, {"v", a.v}, {"out", a.out}}) {
    if (t.head_dim != a.q.head_dim)
      return invalid("{}.head_dim is {}, q's is {}; they must be equal", name, t.head_dim, a.q.head_dim);
  }
  RR_TRY(check_dtypes(a));
  if (a.v.tokens != a.k.tokens || a.v.heads != a.k.heads)
    return invalid("v is [{}, {}], k is [{}, {}]; tokens and heads must be equal", a.v.tokens, a.v.heads,
                   a.k.tokens, a.k.heads);
  if (a.out.tokens != a.q.tokens || a.out.heads != a.q.heads)
    return invalid("out is [{}, {}], q is [{}, {}]; tokens and heads must be equal", a.out.tokens,
                   a.out.heads, a.q.tokens, a.q.heads);
  if (a.q.heads % a.k.heads != 0)
    return invalid("q.heads is {}, k.heads is {}; legal: a multiple", a.q.heads, a.k.heads);
  if ((a.routes.row_offsets == nullptr) != (a.routes.picked == nullptr))
    return invalid(
        "one of routes.row_offsets and routes.picked is null; give both, or neither to visit every block");
  if (a.routes.heads < 0 || (a.routes.heads != 0 && a.q.heads % a.routes.heads != 0))
    return invalid("routes.heads is {}, q.heads is {}; legal: a divisor, or 0 for every query head",
                   a.routes.heads, a.q.heads);
  RR_TRY(check_aligned("lse_log2", a.lse_log2, alignof(float)));
  RR_TRY(check_aligned("routes.row_offsets", a.routes.row_offsets, alignof(int64_t)));
  RR_TRY(check_aligned("routes.picked", a.routes.picked, alignof(int32_t)));
  if (a.scale != 0 && !(a.scale >= 1e-37F && a.scale <= 1e38F))
    return invalid("scale is {}; legal: 1e-37 to 1e38, or 0 for 1 / sqrt(head_dim)", a.scale);
  return {};
}

// What lies between pages of k or v, which must not share memory with each other, or with heads.
Status check_page_stride(const char* name, const Tensor& t, const PageTable& p, int64_t& stride) {
  stride = p.page_stride != 0 ? p.page_stride : p.page_size * t.token_stride;
  if (t.tokens == p.page_size) return {};
  RR_TRY(check_stride("pages.page_stride", stride, t));
  const int64_t least = (p.page_size - 1) * t.token_stride + t.head_dim;
  if (stride < least)
    return invalid("pages.page_stride is {}; legal: {} and more, what a page of {} spans", stride, least,
                   name);
  if (t.heads > 1 && stride == t.head_stride)
    return invalid("pages.page_stride is {}{}, and so is {}.head_stride; give what lies between pages",
                   stride, p.page_stride == 0 ? " (page_size times token_stride)" : "", name);
  return {};
}

Status check_pages(const AttendArgs& a, AttendPlan& plan) {
  const PageTable& p = a.pages;
  if (p.table == nullptr) {
    if (p.max_pages == 0 && p.page_size == 0 && p.page_stride == 0) return {};
    return invalid(
        "pages.table is null, max_pages {}, page_size {}, page_stride {}; give the table, or nothing",
        p.max_pages, p.page_size, p.page_stride);
  }
  RR_TRY(check_aligned("pages.table", p.table, alignof(int32_t)));
  if (p.page_size < 16 || p.page_size > 256 || !std::has_single_bit(static_cast<uint32_t>(p.page_size)))
    return invalid("pages.page_size is {}; legal: 16, 32, 64, 128, 256", p.page_size);
  if (p.max_pages < 1 || p.max_pages > kMaxTokens / p.page_size)
    return invalid("pages.max_pages is {}; legal: 1 to {}", p.max_pages, kMaxTokens / p.page_size);
  if (a.k.tokens % p.page_size != 0)
    return invalid("k.tokens is {}; legal: whole pages of {}", a.k.tokens, p.page_size);
  RR_TRY(check_page_stride("k", a.k, p, plan.k_page_stride));
  return check_page_stride("v", a.v, p, plan.v_page_stride);
}

Status check_batch(const AttendArgs& a, AttendPlan& plan) {
  if (a.n_sequences < 1 || a.n_sequences > kMaxSequences)
    return invalid("n_sequences is {}; legal: 1 to {}", a.n_sequences, kMaxSequences);
  RR_TRY(check_aligned("sequences", a.sequences, alignof(Sequence)));
  if (a.n_rows < 1) return invalid("n_rows is {}; give the rows of all sequences", a.n_rows);
  plan.n_rows = a.n_rows;
  return {};
}

Status check_sequence(const AttendArgs& a, AttendPlan& plan) {
  // C leaves the count of no sequences at 0.
  if (a.n_sequences != 0 && a.n_sequences != 1)
    return invalid("n_sequences is {} and sequences is null; give their array", a.n_sequences);
  Sequence& s = plan.sequence = a.sequence;
  const bool paged = a.pages.table != nullptr;
  const int64_t k_tokens = paged ? a.pages.max_pages * a.pages.page_size : a.k.tokens;
  if (paged) s.k_begin = 0;
  if (s.q_begin == 0 && s.q_len == 0 && s.k_begin == 0 && s.k_len == 0 && s.q_offset == 0) {
    if (paged) return invalid("keys are paged and sequence is not given; its k_len says how many they are");
    s.q_len = a.q.tokens;
    s.k_len = a.k.tokens;
    s.q_offset = a.causal ? a.k.tokens - a.q.tokens : 0;
    if (s.q_offset < 0)
      return invalid("q has {} tokens, k {}; the default sequence ends where its keys end: give `sequence`",
                     a.q.tokens, a.k.tokens);
  }
  if (s.q_begin < 0 || s.q_len < 1 || s.q_len > a.q.tokens || s.q_begin > a.q.tokens - s.q_len)
    return invalid("sequence.q_begin is {}, q_len {}; legal: inside the {} tokens of q", s.q_begin, s.q_len,
                   a.q.tokens);
  if (s.k_begin < 0 || s.k_len < 0 || s.k_len > k_tokens || s.k_begin > k_tokens - s.k_len)
    return invalid("sequence.k_begin is {}, k_len {}; legal: inside the {} tokens of {}", s.k_begin, s.k_len,
                   k_tokens, paged ? "its pages" : "k");
  if (s.q_offset < 0) return invalid("sequence.q_offset is {}; legal: 0 and more", s.q_offset);
  s.q_offset = std::min(s.q_offset, s.k_len);  // from there on, every query sees every key
  plan.n_rows = ceil_div(s.q_len, a.q_block);
  return {};
}

// The values of one axis in the configurations of some kind, which are every combination of them.
template <class Kind, class ValueOf>
std::string legal(const Kind& kind, const ValueOf& value_of) {
  std::vector<std::string> values;
  for (const AttendConfig& c : kConfigs | std::views::filter(kind)) {
    const std::string value = fmt::format("{}", value_of(c));
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  return fmt::format("{}", fmt::join(values, ", "));
}

Status choose(const AttendArgs& a, AttendConfig& config) {
  const bool quantised = a.k.dtype == DType::kE4M3;
  const auto kind = [&](const AttendConfig& c) { return quantised ? is_quantised(c) : is_general(c); };
  const int head_dim = std::in_range<int>(a.q.head_dim) ? static_cast<int>(a.q.head_dim) : 0;
  for (const AttendConfig& c : kConfigs | std::views::filter(kind)) {
    if (c == AttendConfig{c.arch, a.q.dtype, a.k.dtype, head_dim, a.q_block, a.k_block}) {
      config = c;
      return {};
    }
  }
  return {
      Code::kUnsupported,
      fmt::format("attend: dtype {}{}, head_dim {}, rows of {} queries and blocks of {} keys are not in this "
                  "build; it has {}{}, head_dim {}, rows of {} and blocks of {}",
                  dtype_name(a.q.dtype), quantised ? " with e4m3 keys" : "", a.q.head_dim, a.q_block,
                  a.k_block, legal(kind, [](const auto& c) { return dtype_name(c.dtype); }),
                  quantised ? " with e4m3 keys" : "", legal(kind, [](const auto& c) { return c.head_dim; }),
                  legal(kind, [](const auto& c) { return c.q_block; }),
                  legal(kind, [](const auto& c) { return c.k_block; }))};
}

}  // namespace

std::span<const AttendConfig> attend_configs() {
  return kConfigs;
}

AttendConfig config_for(const AttendPlan& plan, Arch arch, bool shares_tiles) {
  AttendConfig config = plan.config;
  config.arch = arch;
  AttendConfig shared = config;
  shared.heads_per_tile = 2;
  return shares_tiles && plan.may_share_tiles && is_listed(shared) ? shared : config;
}

Result<AttendPlan> plan_attend(const AttendArgs& args) {
  AttendPlan plan;
  RR_TRY(check_shapes(args));
  RR_TRY(choose(args, plan.config));
  RR_TRY(check_pages(args, plan));
  RR_TRY(args.sequences == nullptr ? check_sequence(args, plan) : check_batch(args, plan));
  if (plan.n_rows > kMaxWork / args.q.heads)
    return invalid("{} rows of {} heads are more than {}", plan.n_rows, args.q.heads, kMaxWork);
  plan.n_work = plan.n_rows * args.q.heads;
  const int64_t heads_per_list = args.routes.heads == 0 ? 1 : args.q.heads / args.routes.heads;
  plan.may_share_tiles =
      args.q.heads / args.k.heads % 2 == 0 && (args.routes.picked == nullptr || heads_per_list % 2 == 0);
  const float scale = args.scale != 0 ? args.scale : 1 / std::sqrt(static_cast<float>(args.q.head_dim));
  plan.scale_log2 = scale * std::numbers::log2e_v<float>;
  plan.work_bytes = (kMaxFirst + plan.n_work) * static_cast<int64_t>(sizeof(Work));
  plan.workspace_bytes =
      ceil_div(plan.work_bytes + int64_t{sizeof(WorkCounts)}, kWorkspaceAlign) * kWorkspaceAlign;
  return plan;
}

Result<int64_t> attend_workspace_bytes(const AttendArgs& args) {
  const Result<AttendPlan> plan = plan_attend(args);
  if (!plan.ok()) return plan.status();
  return plan.value().workspace_bytes;
}

}  // namespace routerelay::cuda
