// SPDX-License-Identifier: Apache-2.0
// What a call's mask lets each row see. Looked at on every call: hosts overwrite and shift cache cells without
// notice, so nothing of an earlier call may be believed.
#pragma once

#include <cstdint>
#include <optional>

namespace routerelay {
struct Exec;
}

namespace routerelay::ggml {

inline constexpr uint16_t kHalfZero = 0x0000, kHalfMinusInf = 0xfc00;

// One stream of the mask: [rows, n_keys] f16.
struct MaskView {
  const uint16_t* data = nullptr;
  int64_t rows = 0;
  int64_t n_keys = 0;
  int64_t row_stride = 0;  // elements
};

// A plain causal chunk: row r sees exactly the keys [begin, begin + first_visible + r). In a cache that several prompts
// share, what lies before `begin` and after is another's.
struct CausalChunk {
  int64_t begin = 0;
  int64_t first_visible = 0;  // keys that row 0 sees, at least 1
  int64_t last_visible = 0;   // keys that the last row sees
};

// Reads values only until one is out of place: a visible key is exactly 0, a hidden one exactly -inf. Any other mask is
// the engine's to read, and so is every mask once the caller wishes to stop.
std::optional<CausalChunk> causal_chunk(const MaskView& mask, Exec& exec);

}  // namespace routerelay::ggml
