// SPDX-License-Identifier: Apache-2.0
// How far the plug-in's result may lie from those of the host's CPU back end, and whether it does.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "case.h"
#include "masks.h"
#include "node.h"
#include "support/tolerance.h"

namespace routerelay::soak {

// What was found, as parts of what is allowed.
struct Distance {
  double largest = 0;    // of an element, to the node over the same keys and values in f32
  double nmse_wide = 0;  // normalised mean squared error, to that node
  double nmse_same = 0;  // to the very same node
  std::string failure;   // the first, in words
};

struct Allowed {
  double largest = 0, nmse_wide = 0, nmse_same = 0;
};

// Logits that spread wider have errors in proportion. To the f32 node: both sum in f32, and the table for the float64
// softmax has room for two. Weights in bf16 are off by up to 2^-8 and move a row that one key decides by as much of its
// values: more than that table, made for rows of many, allows. To the same node: what ggml's own test allows a back
// end; the host rounds queries over q8_0 keys to 8 bits.
inline Allowed allowed_of(const Case& c, Isa isa) {
  constexpr double kLargestValue = 4.5;  // of the table that values are drawn from
  const double spread = std::fmax(1, c.sharpness),
               same = c.kv == DType::kQ8_0 ? 5e-4 * spread * spread : 5e-4;
  const support::Products products = support::products_of(isa, c.kv);
  if (products != support::Products::kF32) return {0x1p-8 * kLargestValue, 0x1p-16, same};
  return {support::tolerance_of(DType::kF32, products).out * spread, 1e-10 * spread * spread, same};
}

class Comparison {
 public:
  Comparison(const Case& c, const Masks& masks, const Nodes& nodes) : c_(c), masks_(masks), nodes_(nodes) {}

  // The host computed it for us: its very bits.
  Distance delegated() const {
    Distance d;
    for (int64_t i = 0; i < elements(); ++i)
      if (std::memcmp(nodes_.ours.data() + i, nodes_.same.data() + i, sizeof(float)) != 0 &&
          d.failure.empty())
        d.failure = "delegated, and not the host's bits: " + at(i, nodes_.same.data()[i]);
    return d;
  }

  Distance computed(Isa isa) const {
    const Allowed allowed = allowed_of(c_, isa);
    Distance d;
    Squares to_wide, to_same;
    const float *ours = nodes_.ours.data(), *same = nodes_.same.data(), *wide = nodes_.wide.data();
    for (int64_t s = 0, i = 0; s < c_.streams; ++s)
      for (int64_t row = 0; row < c_.rows; ++row) {
        const bool empty = masks_.sees_nothing(s, row);
        for (const int64_t end = i + c_.q_heads * c_.dim; i < end; ++i) {
          if (empty && ours[i] != same[i]) fail(d, "a row that sees nothing: " + at(i, same[i]));
          const double off = std::fabs(static_cast<double>(ours[i]) - wide[i]);
          if (!(off <= allowed.largest)) fail(d, "off by " + std::to_string(off) + ": " + at(i, wide[i]));
          d.largest = std::fmax(d.largest, off / allowed.largest);
          to_wide.add(ours[i], wide[i]);
          to_same.add(ours[i], same[i]);
        }
      }
    d.nmse_wide = to_wide.nmse() / allowed.nmse_wide;
    d.nmse_same = to_same.nmse() / allowed.nmse_same;
    if (!(d.nmse_wide <= 1 && d.nmse_same <= 1))
      fail(d, "NMSE to the f32 and the same node, of what is allowed: " + std::to_string(d.nmse_wide) + ", " +
                  std::to_string(d.nmse_same));
    if (!nodes_.ours.guards_intact()) fail(d, "bytes beside the result were written");
    return d;
  }

 private:
  struct Squares {
    double error = 0, size = 0;

    void add(double x, double host) {
      error += (x - host) * (x - host);
      size += host * host;
    }
    double nmse() const { return error == 0 ? 0 : error / size; }
  };
  static void fail(Distance& d, const std::string& what) {
    if (d.failure.empty()) d.failure = what;
  }
  int64_t elements() const { return ggml_nelements(nodes_.ours.out); }
  std::string at(int64_t i, float host) const {
    const int64_t row = i / c_.dim / c_.q_heads;
    return "stream " + std::to_string(row / c_.rows) + " row " + std::to_string(row % c_.rows) + " head " +
           std::to_string(i / c_.dim % c_.q_heads) + " element " + std::to_string(i % c_.dim) + " is " +
           std::to_string(nodes_.ours.data()[i]) + ", the host's " + std::to_string(host);
  }

  const Case& c_;
  const Masks& masks_;
  const Nodes& nodes_;
};

}  // namespace routerelay::soak
