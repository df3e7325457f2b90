// SPDX-License-Identifier: Apache-2.0
#include "bench/paper/drifting_scores.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/rng.h"

namespace routerelay {
namespace {

// Streams of one seed. The policy's probes count layers in the top 12 bits of theirs: these would be layers above 3000.
constexpr uint64_t kDataStream = uint64_t{0xDA7A} << 48;
constexpr uint64_t kCheapStream = uint64_t{0xC4EA} << 48;

void add_normals(Philox& random, float sd, std::vector<float>& to) {
  for (float& x : to) x += sd * static_cast<float>(random.normal());
}

// costly + noise of the standard deviation that makes the wanted correlation.
std::vector<float> noisy(const std::vector<float>& costly, double sd, double correlation, Philox& random) {
  std::vector<float> out = costly;
  add_normals(random, static_cast<float>(sd * std::sqrt(1 / (correlation * correlation) - 1)), out);
  return out;
}

class Accumulating : public DriftingScores {
 public:
  Accumulating(const Shape& shape, double drift, uint64_t seed)
      : drift_(drift), data_(seed, kDataStream), noise_(seed, kCheapStream) {
    costly_.assign(static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.blocks), 0.0f);
  }

  void next_layer() override {
    const double step = variance_ == 0 ? kFirst : drift_;
    add_normals(data_, static_cast<float>(step), costly_);
    variance_ += step * step;
  }
  std::vector<float> cheap(double correlation) override {
    return noisy(costly_, std::sqrt(variance_), correlation, noise_);
  }

 private:
  static constexpr double kFirst = 0.54;  // fits the published reroute rates at all three drifts
  double drift_;
  double variance_ = 0;
  Philox data_, noise_;
};

constexpr int kDim = 64;       // of the paper's queries and keys
constexpr int kCheapDim = 16;  // a quarter of the work, as sub 8x8 is of sampled with 4 queries

class Products : public DriftingScores {
 public:
  Products(const Shape& shape, double drift, uint64_t seed)
      : shape_(shape), drift_(static_cast<float>(drift)), data_(seed, kDataStream) {
    keys_.assign(static_cast<size_t>(shape.blocks) * kDim, 0.0f);
    add_normals(data_, 1, keys_);
    for (int b = 0; b < shape.blocks; ++b) normalise(&keys_[at(b)]);
    queries_.assign(static_cast<size_t>(shape.rows) * kDim, 0.0f);
    add_normals(data_, 1, queries_);
    for (int r = 0; r < shape.rows; ++r) aim(&queries_[at(r)]);
    costly_.resize(static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.blocks));
  }

  void next_layer() override {
    if (started_) {
      add_normals(data_, drift_, queries_);
      add_normals(data_, drift_, keys_);
    }
    started_ = true;
    products(kDim, costly_);
  }
  std::vector<float> cheap(double) override {
    std::vector<float> out(costly_.size());
    products(kCheapDim, out);
    return out;
  }

 private:
  static size_t at(int i) { return static_cast<size_t>(i) * kDim; }
  static void normalise(float* x) {
    double square = 0;
    for (int d = 0; d < kDim; ++d) square += static_cast<double>(x[d]) * x[d];
    for (int d = 0; d < kDim; ++d) x[d] = static_cast<float>(x[d] / std::sqrt(square));
  }
  // A direction of its own, bent towards 12 distinct keys. Unit length before the keys are added: without it the
  // reroute rate of experiment 2 is 43 %, not 37 %.
  void aim(float* query) {
    constexpr int kPreferred = 12;
    constexpr float kPull = 0.3f;
    normalise(query);
    std::vector<int> chosen;
    while (chosen.size() < kPreferred) {
      const int key = static_cast<int>(data_.below(static_cast<uint32_t>(shape_.blocks)));
      if (std::find(chosen.begin(), chosen.end(), key) == chosen.end()) chosen.push_back(key);
    }
    for (int key : chosen)
      for (int d = 0; d < kDim; ++d) query[d] += kPull * keys_[at(key) + static_cast<size_t>(d)];
    normalise(query);
  }
  void products(int dims, std::vector<float>& out) const {
    size_t next = 0;
    for (int r = 0; r < shape_.rows; ++r) {
      for (int b = 0; b < shape_.blocks; ++b) {
        float sum = 0;
        for (int d = 0; d < dims; ++d)
          sum += queries_[at(r) + static_cast<size_t>(d)] * keys_[at(b) + static_cast<size_t>(d)];
        out[next++] = sum;
      }
    }
  }

  Shape shape_;
  float drift_;
  Philox data_;
  bool started_ = false;
  std::vector<float> keys_, queries_;  // [blocks, 64], [rows, 64] f32
};

class Fitted : public DriftingScores {
 public:
  Fitted(const Shape& shape, const FittedDrift& drift, uint64_t seed)
      : shape_(shape), drift_(drift), data_(seed, kDataStream), noise_(seed, kCheapStream) {
    const size_t pairs = static_cast<size_t>(shape.rows) * static_cast<size_t>(shape.blocks);
    constant_.assign(pairs, 0.0f);
    wandering_.assign(pairs, 0.0f);
    costly_.resize(pairs);
    add_normals(data_, 1, constant_);
    add_normals(data_, 1, wandering_);
  }

  void next_layer() override {
    const bool first = scale_ == 0;
    if (!first) {
      const auto keep = static_cast<float>(drift_.keep);
      for (float& w : wandering_) w *= keep;
      add_normals(data_, std::sqrt(1 - keep * keep), wandering_);
    }
    const auto a = static_cast<float>(std::sqrt(drift_.constant)),
               b = static_cast<float>(std::sqrt(drift_.wandering));
    for (size_t i = 0; i < costly_.size(); ++i) costly_[i] = a * constant_[i] + b * wandering_[i];
    add_normals(data_, static_cast<float>(std::sqrt(drift_.fresh)), costly_);
    if (first) scale_ = static_cast<float>(scale_for_mass(0.95));
    for (float& s : costly_) s *= scale_;
  }
  std::vector<float> cheap(double correlation) override {
    return noisy(costly_, scale_, correlation, noise_);
  }

 private:
  // Bisection: the share of mass in the top k grows with the scale.
  double scale_for_mass(double wanted) const {
    std::vector<float> sorted = costly_;
    for (int r = 0; r < shape_.rows; ++r) {
      const auto row = sorted.begin() + static_cast<std::ptrdiff_t>(r) * shape_.blocks;
      std::sort(row, row + shape_.blocks, std::greater<>());
    }
    double low = 0, high = 50;
    for (int step = 0; step < 40; ++step) {
      const double middle = (low + high) / 2;
      (mean_top_mass(sorted, middle) < wanted ? low : high) = middle;
    }
    return high;
  }
  double mean_top_mass(const std::vector<float>& sorted, double scale) const {
    double sum = 0;
    for (int r = 0; r < shape_.rows; ++r) {
      const float* row = &sorted[static_cast<size_t>(r) * static_cast<size_t>(shape_.blocks)];
      double top = 0, all = 0;
      for (int b = 0; b < shape_.blocks; ++b) {
        const double e = std::exp(scale * (row[b] - row[0]));
        all += e;
        if (b < shape_.k) top += e;
      }
      sum += top / all;
    }
    return sum / shape_.rows;
  }

  Shape shape_;
  FittedDrift drift_;
  Philox data_, noise_;
  float scale_ = 0;
  std::vector<float> constant_, wandering_;  // [rows, blocks] f32, standard normal
};

}  // namespace

std::unique_ptr<DriftingScores> accumulating_scores(const Shape& shape, double drift, uint64_t seed) {
  return std::make_unique<Accumulating>(shape, drift, seed);
}
std::unique_ptr<DriftingScores> product_scores(const Shape& shape, double drift, uint64_t seed) {
  return std::make_unique<Products>(shape, drift, seed);
}
std::unique_ptr<DriftingScores> fitted_scores(const Shape& shape, const FittedDrift& drift, uint64_t seed) {
  return std::make_unique<Fitted>(shape, drift, seed);
}

}  // namespace routerelay
