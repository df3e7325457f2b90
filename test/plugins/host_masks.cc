// SPDX-License-Identifier: Apache-2.0
// Preloaded into test-backend-ops: its attention masks become such as llama.cpp sends, of 0 and -inf only.
//
// The tool fills masks with random finite numbers, which no model sends without ALiBi and which the plug-in hands
// back; so every case would be the host's. It names the mask "m" and fills it by ggml_backend_tensor_set, before it
// copies the graph for the back end that it compares with. The copy comes by here too, and passes as it is.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>
#include <vector>

#include "layout.h"
#include "mask.h"

namespace {

using routerelay::ggml::HostTensor;
using routerelay::ggml::kHalfMinusInf;
using routerelay::ggml::kHalfZero;

constexpr uint16_t kHalfSign = 0x8000;
constexpr int64_t kWindow =
    100;                      // keys of a sliding window: across blocks of 64, and shorter than most caches
constexpr int64_t kRun = 37;  // cells that one of two prompts got at a time: no boundary is a block's

struct Place {
  int64_t row, key, rows, keys, last;  // `last`: the last key that a causal row sees
  uint16_t drawn;                      // what the tool put there
};

// The kinds, in turns from mask to mask. Another function is another kind.
constexpr std::array<bool (*)(const Place&), 5> kKinds = {
    [](const Place& p) { return p.key <= p.last; },                              // one prompt's chunk
    [](const Place& p) { return p.key <= p.last && p.key > p.last - kWindow; },  // a sliding window
    [](const Place& p) {                                                         // two prompts in one cache
      return p.key <= p.last && p.key / kRun % 2 == (2 * p.row < p.rows ? 0 : 1);
    },
    [](const Place& p) { return (p.drawn & kHalfSign) == 0; },  // anything, and the tool's hidden rectangles
    // The same with every eleventh row hidden, as padding rows are.
    [](const Place& p) { return (p.drawn & kHalfSign) == 0 && p.row % 11 != 10; },
};

void fill(std::vector<uint16_t>& halves, int64_t keys, int64_t rows) {
  static std::atomic<size_t> n_masks{0};
  const auto shows = kKinds[n_masks.fetch_add(1) % kKinds.size()];
  for (size_t i = 0; i < halves.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t key = at % keys, row = at / keys % rows;
    const int64_t last = std::max<int64_t>(0, keys - rows + row);
    halves[i] = shows({row, key, rows, keys, last, halves[i]}) ? kHalfZero : kHalfMinusInf;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void ggml_backend_tensor_set(HostTensor* tensor,
                                                                               const void* data,
                                                                               size_t offset, size_t bytes) {
  using Set = void (*)(HostTensor*, const void*, size_t, size_t);
  static const auto host_set = reinterpret_cast<Set>(dlsym(RTLD_NEXT, "ggml_backend_tensor_set"));
  const bool is_mask = tensor->type == routerelay::ggml::kTypeF16 && std::string_view(tensor->name) == "m";
  if (!is_mask) return host_set(tensor, data, offset, bytes);
  std::vector<uint16_t> halves(bytes / sizeof(uint16_t));
  std::memcpy(halves.data(), data, bytes);
  const auto is_host_value = [](uint16_t half) { return half == kHalfZero || half == kHalfMinusInf; };
  if (std::all_of(halves.begin(), halves.end(), is_host_value)) return host_set(tensor, data, offset, bytes);
  fill(halves, tensor->ne[0], tensor->ne[1]);
  host_set(tensor, halves.data(), offset, bytes);
}
