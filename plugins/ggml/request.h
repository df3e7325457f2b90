// SPDX-License-Identifier: Apache-2.0
// One attention node of the host in the engine's words: views of its tensors and one Sequence per stream.
#pragma once

#include <vector>

#include "core/exec.h"
#include "layout.h"
#include "routerelay/engine.hpp"

namespace routerelay::ggml {

struct Request {
  Tensor q, k, v;
  MutableTensor out;
  std::vector<Sequence> sequences;
  std::vector<Mask> masks;  // one per stream, or none where every stream is a plain causal chunk
  float scale = 0;
  int layer = -1;
  int64_t rows = 0;  // query tokens per stream

  LayerArgs args() const {
    return {.q = q,
            .k = k,
            .v = v,
            .out = out,
            .sequences = sequences,
            .masks = masks,
            .scale = scale,
            .layer = layer};
  }
};

// Of a node that why_declined has passed. Reads its mask, on the engine's threads.
Request request_of(const HostTensor& node, Exec& exec);

// The layer index in the name of the cache that `keys` is a view of ("cache_k_l<index>"), or -1.
int layer_of(const HostTensor& keys);

}  // namespace routerelay::ggml
