// SPDX-License-Identifier: Apache-2.0
// Why attention is left to the host: one list for supports_op, which declines, for compute, which delegates, and for
// the report. docs/llama.md has it as a table, which ./dev lint compares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace routerelay::ggml {

enum class Reason : uint8_t {
  kNone,        // it is not: claimed, or taken
  kFewRows,     // decode, or fewer rows than ROUTERELAY_MIN_ROWS
  kFewKeys,     // fewer keys than ROUTERELAY_MIN_KV
  kTypes,       // not f32 queries and output with keys and values both f16, bf16 or q8_0
  kHeadDim,     // not 64, 80, 96, 128 or 256, 80 in q8_0, or different for keys and values
  kHeads,       // the query heads are no multiple of the KV heads
  kStrides,     // heads or streams that no [tokens, heads, head_dim] view describes
  kNoMask,      // or one that is not contiguous f16
  kAlibi,       // max_bias
  kSoftcap,     // logit softcap
  kSinks,       // attention sinks
  kParams,      // a scale, a precision or a parameter that this build does not know
  kMaskValues,  // values other than 0 and -inf
  kEngine,      // the engine refused or failed; its message is in the report
};
inline constexpr size_t kReasons = 14;

inline constexpr std::array<const char*, kReasons> kReasonNames = {
    "none",    "few_rows", "few_keys", "types", "head_dim", "heads",       "strides",
    "no_mask", "alibi",    "softcap",  "sinks", "params",   "mask_values", "engine"};

inline const char* name_of(Reason reason) {
  return kReasonNames[static_cast<size_t>(reason)];
}

}  // namespace routerelay::ggml
