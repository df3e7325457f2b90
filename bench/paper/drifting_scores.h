// SPDX-License-Identifier: Apache-2.0
// Synthetic router scores [rows, blocks] that drift from layer to layer, as the papers and real models have them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace routerelay {

struct Shape {
  int layers = 0;
  int rows = 0;
  int blocks = 0;
  int k = 0;  // blocks in a route
};

// Correlation of the simulated cheap router's scores with the costly ones over a row's blocks. How good a cheap
// router really is only a trace can say; these three make its own top-k share 60, 72 and 45 % with the costly one's
// at k = N_k / 16, the range that adjacent layers of real models span.
inline constexpr double kCheapMiddle = 0.8734, kCheapGood = 0.9395, kCheapPoor = 0.741;

class DriftingScores {
 public:
  virtual ~DriftingScores() = default;
  // Called `layers` times; the first call makes layer 0.
  virtual void next_layer() = 0;

  const std::vector<float>& costly() const { return costly_; }  // [rows, blocks] f32
  // What a cheaper router would say of the same pairs, drawn anew at every layer.
  virtual std::vector<float> cheap(double correlation) = 0;

 protected:
  std::vector<float> costly_;
};

// Experiment 1: persistent preferences N(0, .54^2) plus Gaussian noise of `drift` that accumulates over layers.
std::unique_ptr<DriftingScores> accumulating_scores(const Shape& shape, double drift, uint64_t seed);

// Experiments 2 and 3: products of unit queries and keys, 64 wide, whose entries all drift. The cheap router sees the
// first 16 of the 64 dimensions, a quarter of the work: these vectors have no order along which to pool. Its
// `correlation` argument is not used.
std::unique_ptr<DriftingScores> product_scores(const Shape& shape, double drift, uint64_t seed);

// A score model whose overlap of top-k sets between layers follows that of trained models: a part that stays, a part
// that wanders (autoregressive with factor `keep`) and a part of each layer's own; weights are variances, sum 1.
struct FittedDrift {
  double constant = 0;
  double wandering = 0;
  double fresh = 0;
  double keep = 0;
};
// Scores are logits: scaled so that at layer 0 a row's own top k hold 95 % of its softmax mass, on average.
std::unique_ptr<DriftingScores> fitted_scores(const Shape& shape, const FittedDrift& drift, uint64_t seed);

}  // namespace routerelay
