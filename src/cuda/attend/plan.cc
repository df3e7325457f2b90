// SPDX-License-Identifier: Apache-2.0
// The door of attend on CUDA.
#include "cuda/attend/plan.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <numbers>
#include <string>

#include "core/rows.h"
#include "cuda/attend/order.h"
#include "cuda/attend/work.h"

namespace routerelay::cuda {
namespace {

constexpr AttendConfig kConfigs[] = {
#define RR_ATTEND_CONFIG(arch, dtype, head_dim, q_block, k_block) \
  {Arch::arch, dtypes::dtype, head_dim, q_block, k_block},
#include "cuda/attend/configs.def"
#undef RR_ATTEND_CONFIG
};

// Token coordinates are 32-bit in the copy engine, and half of that range marks what is outside of every tensor.
constexpr int64_t kMaxTokens = int64_t{1} << 30;
constexpr int64_t kAlign = 16;  // bytes: the copy engine's grain

template <class... T>
Status invalid(fmt::format_string<T...> text, T&&... args) {
  return {Code::kInvalidArgument, "attend: " + fmt::format(text, std::forward<T>(args)...)};
}

Status check_tensor(const char* name, const Tensor& t) {
  if (t.data == nullptr) return invalid("{}.data is null; give device memory", name);
  if (t.tokens < 1 || t.tokens > kMaxTokens)
    return invalid("{}.tokens is {}; legal: 1 to {}", name, t.tokens, kMaxTokens);
  if (t.heads < 1) return invalid("{}.heads is {}; legal: 1 and more", name, t.heads);
  if (reinterpret_cast<uintptr_t>(t.data) % kAlign != 0)
    return invalid("{}.data is not aligned to {} bytes; move it", name, kAlign);
  const auto stride = [&](const char* axis, int64_t elements, int64_t count) -> Status {
    if (count > 1 && (elements < t.head_dim || elements * 2 % kAlign != 0))
      return invalid("{}.{} is {}; legal: multiples of {} from head_dim ({}) on", name, axis, elements,
                     kAlign / 2, t.head_dim);
    return {};
  };
  RR_TRY(stride("token_stride", t.token_stride, t.tokens));
  return stride("head_stride", t.head_stride, t.heads);
}

Status check_shapes(const AttendArgs& a) {
  RR_TRY(check_tensor("q", a.q));
  RR_TRY(check_tensor("k", a.k));
  RR_TRY(check_tensor("v", a.v));
  RR_TRY(check_tensor("out", a.out));
  for (const auto& [name, t] : {std::pair<const char*, Tensor>{"k", a.k}, {"v", a.v}, {"out", a.out}}) {
    if (t.head_dim != a.q.head_dim)
      return invalid("{}.head_dim is {}, q's is {}; they must be equal", name, t.head_dim, a.q.head_dim);
    if (t.dtype != a.q.dtype)
      return invalid("{}.dtype is {}, q's is {}; they must be equal", name, dtype_name(t.dtype),
                     dtype_name(a.q.dtype));
  }
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
  if (a.scale != 0 && !(a.scale >= 1e-37F && a.scale <= 1e38F))
    return invalid("scale is {}; legal: 1e-37 to 1e38, or 0 for 1 / sqrt(head_dim)", a.scale);
  return {};
}

Status check_sequences(const AttendArgs& a, AttendPlan& plan) {
  if (a.sequences != nullptr) {
    if (a.n_sequences < 1 || a.n_sequences > kMaxSequences)
      return invalid("n_sequences is {}; legal: 1 to {}", a.n_sequences, kMaxSequences);
    if (a.n_rows < 1) return invalid("n_rows is {}; give the rows of all sequences", a.n_rows);
    plan.n_rows = a.n_rows;
    return {};
  }
  Sequence& s = plan.sequence = a.sequence;
  if (s.q_begin == 0 && s.q_len == 0 && s.k_begin == 0 && s.k_len == 0 && s.q_offset == 0) {
    s.q_len = a.q.tokens;
    s.k_len = a.k.tokens;
    s.q_offset = a.k.tokens - a.q.tokens;
    if (a.causal && s.q_offset < 0)
      return invalid("q has {} tokens, k {}; the default sequence ends where its keys end: give `sequence`",
                     a.q.tokens, a.k.tokens);
  }
  if (s.q_begin < 0 || s.q_len < 1 || s.q_begin + s.q_len > a.q.tokens)
    return invalid("sequence.q_begin is {}, q_len {}; legal: inside the {} tokens of q", s.q_begin, s.q_len,
                   a.q.tokens);
  if (s.k_begin < 0 || s.k_len < 0 || s.k_begin + s.k_len > a.k.tokens)
    return invalid("sequence.k_begin is {}, k_len {}; legal: inside the {} tokens of k", s.k_begin, s.k_len,
                   a.k.tokens);
  if (s.q_offset < 0) return invalid("sequence.q_offset is {}; legal: 0 and more", s.q_offset);
  plan.n_rows = ceil_div(s.q_len, a.q_block);
  return {};
}

std::string legal_configs() {
  std::string text;
  for (const AttendConfig& c : kConfigs)
    text += fmt::format("{}{} {} {} x {}", text.empty() ? "" : ", ", dtype_name(c.dtype), c.head_dim,
                        c.q_block, c.k_block);
  return text;
}

Status choose(const AttendArgs& a, AttendConfig& config) {
  for (const AttendConfig& c : kConfigs) {
    if (c == AttendConfig{c.arch, a.q.dtype, static_cast<int>(a.q.head_dim), a.q_block, a.k_block}) {
      config = c;
      return {};
    }
  }
  return {
      Code::kUnsupported,
      fmt::format(
          "attend: dtype {}, head_dim {}, rows of {} queries and blocks of {} keys are not in this build; "
          "it has {}",
          dtype_name(a.q.dtype), a.q.head_dim, a.q_block, a.k_block, legal_configs())};
}

}  // namespace

std::span<const AttendConfig> attend_configs() {
  return kConfigs;
}

Result<AttendPlan> plan_attend(const AttendArgs& args) {
  AttendPlan plan;
  RR_TRY(check_shapes(args));
  RR_TRY(choose(args, plan.config));
  RR_TRY(check_sequences(args, plan));
  plan.n_work = plan.n_rows * args.q.heads;
  if (plan.n_work > INT32_MAX)
    return invalid("{} rows of {} heads are more than {}", plan.n_rows, args.q.heads, INT32_MAX);
  const float scale = args.scale != 0 ? args.scale : 1 / std::sqrt(static_cast<float>(args.q.head_dim));
  plan.scale_log2 = scale * std::numbers::log2e_v<float>;
  plan.work_bytes = plan.n_work * static_cast<int64_t>(sizeof(Work));
  plan.workspace_bytes = ceil_div(plan.work_bytes + int64_t{sizeof(int32_t)}, 256) * 256;
  return plan;
}

Result<int64_t> attend_workspace_bytes(const AttendArgs& args) {
  const Result<AttendPlan> plan = plan_attend(args);
  if (!plan.ok()) return plan.status();
  return plan.value().workspace_bytes;
}

}  // namespace routerelay::cuda
