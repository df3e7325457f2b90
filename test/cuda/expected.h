// SPDX-License-Identifier: Apache-2.0
// What attend on the GPU must answer and how far it may be off, worked out query by query in float64. The bounds follow
// from the kernel's roundings, so that a lost or doubled key shows even where a thousand others hide it.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <thread>
#include <vector>

#include "support/exact.h"
#include "support/problem.h"

namespace routerelay::cuda {

// A kernel multiplies 16-bit inputs exactly, sums in f32, rounds probabilities and the output to the inputs' dtype;
// beside e4m3 values probabilities are f16.
class Expected {
 public:
  // `e4m3`: of keys in it, which queries meet in two e4m3 parts.
  Expected(const support::Problem& p, const Routes& routes, bool e4m3 = false)
      : exact_(support::unfilled(p)),
        error_(exact_),
        out_unit_(p.q.view.dtype == DType::kBF16 ? 0x1p-8 : 0x1p-11),
        weight_unit_(e4m3 ? 0x1p-11 : out_unit_) {
    if (p.q.view.dtype == DType::kF16) smallest_out_ = 0x1p-25;
    if (p.q.view.dtype == DType::kF16 || e4m3) smallest_weight_ = 0x1p-33;
    if (e4m3) {
      // The parts have four bits each. Sums keep 13 bits of themselves or of their largest term, four times in a row
      // where they are large: twice the worst of 200,000 that were imitated on a CPU.
      split_error_ = p.q.view.dtype == DType::kF16 ? 0x1p-9 : 0;
      sum_error_ = 0x1p-8;
    }
    const support::ExactInput in(p);
    const auto queries = support::exact_queries(p);
    std::atomic<size_t> next = 0;
    std::vector<double> squares(queries.size());  // summed in order: the same figure every time
    const auto work = [&] {
      for (size_t i; (i = next++) < queries.size();)
        squares[i] = fill(in, support::exact_keys(p, routes, queries[i]),
                          p.sequences[queries[i].sequence].q_begin + queries[i].i, queries[i].head);
    };
    std::vector<std::thread> threads;
    for (unsigned t = 1; t < std::thread::hardware_concurrency(); ++t) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    for (const double square : squares) mean_square_ += square / static_cast<double>(queries.size());
  }

  // Every query of every sequence within its bound, the typical error as large as roundings make it, and all else
  // still NaN.
  void compare(const support::Problem& p, bool with_lse = true) const {
    Tally out, lse;
    for (int64_t t = 0; t < exact_.q_tokens; ++t)
      for (int64_t h = 0; h < exact_.q_heads; ++h) {
        const auto at = static_cast<size_t>(h * exact_.q_tokens + t);
        const double nan = std::numeric_limits<double>::quiet_NaN();
        lse.add(p.lse_log2[at], with_lse ? exact_.lse_log2[at] : nan, error_.lse_log2[at], t, h, 0);
        for (int64_t c = 0; c < exact_.head_dim; ++c)
          out.add(p.out.get(t, h, c), exact_.out_at(t, h, c), error_.out_at(t, h, c), t, h, c);
      }
    EXPECT_EQ(out.failures, 0) << "out " << out.first;
    EXPECT_EQ(lse.failures, 0) << "lse_log2 " << lse.first;
    EXPECT_TRUE(p.out.guards_intact()) << "bytes between out's rows were written";
    // Twice: few roundings are less even than many.
    EXPECT_LE(std::sqrt(out.squares / std::fmax(1, out.count)), 2 * std::sqrt(mean_square_))
        << "out, root mean square";
  }

 private:
  struct Tally {
    int64_t failures = 0;
    double count = 0, squares = 0;
    std::string first;

    void add(double got, double want, double bound, int64_t token, int64_t head, int64_t c) {
      if (std::isfinite(want)) {
        ++count;
        squares += (got - want) * (got - want);
        if (std::fabs(got - want) <= bound) return;
      } else if (std::isnan(want) ? std::isnan(got) : got == want) {
        return;
      }
      if (++failures > 1) return;
      first = fmt::format("of token {}, head {}, element {} is {}, not {} within {}", token, head, c, got,
                          want, bound);
    }
  };

  // One query of one head; returns the mean square that its output's errors should have.
  double fill(const support::ExactInput& in, const std::vector<int64_t>& keys, int64_t token, int64_t head) {
    support::exact_query(in, keys, token, head, exact_);
    const auto dim = static_cast<size_t>(exact_.head_dim);
    double* const bound = error_.out.data() + static_cast<size_t>(token * exact_.q_heads + head) * dim;
    double& lse_bound = error_.lse_log2[static_cast<size_t>(head * exact_.q_tokens + token)];
    const double* const q = in.q.at(token, head);
    const double* const out = exact_.out.data() + (bound - error_.out.data());
    const double lse = exact_.lse_at(token, head), bits = in.scale * std::numbers::log2e;
    // Running sums of products and of probabilities: sixteen keys a time, cut to f32.
    const double sums = 0x1p-23 * (16 + static_cast<double>(keys.size()) / 16);
    std::vector<double> size(dim),
        square(dim);  // of what rounding p v may add: at most, and typically squared
    double top = 0, of_weights = 0;
    for (size_t c = 0; c < dim; ++c) bound[c] = 0;
    lse_bound = 0;
    if (keys.empty()) return 0;
    std::vector<double> score(keys.size()), wrong(keys.size());
    for (size_t i = 0; i < keys.size(); ++i) {
      const double* const k = in.k.at(keys[i], head / in.group);
      double sum = 0, mass = 0, squares = 0;
      for (size_t c = 0; c < dim; ++c) {
        const double term = q[c] * k[c];
        sum += term, mass += std::fabs(term), squares += term * term;
      }
      score[i] = sum * bits;
      // Tensor cores cut each term to 2^-24 of the largest among its sixteen and the sum so far.
      wrong[i] = bits * (mass * (static_cast<double>(dim) * 0x1p-24 + split_error_) +
                         std::sqrt(squares) * sum_error_);
      top = i == 0 ? score[0] : std::fmax(top, score[i]);
    }
    const double total = std::exp2(lse - top);
    for (size_t i = 0; i < keys.size(); ++i) {
      const double* const v = in.v.at(keys[i], head / in.group);
      const double p = std::exp2(score[i] - lse), moved = p == 0 ? 0 : p * wrong[i] * std::numbers::ln2;
      const double rounded = std::fmax(p * weight_unit_, smallest_weight_ / total);
      const double typical = rounded * rounded / 3 + moved * moved + p * sums * p * sums;
      of_weights += moved;
      for (size_t c = 0; c < dim; ++c) {
        size[c] += (rounded + moved + p * sums) * std::fabs(v[c]);
        square[c] += typical * v[c] * v[c];
      }
    }
    double mean = 0;
    for (size_t c = 0; c < dim; ++c) {
      const double all = std::fabs(out[c]), last = all * out_unit_ + smallest_out_;
      bound[c] = size[c] + all * (of_weights + sums) + last;
      mean += (square[c] + all * of_weights * all * of_weights + last * last / 3) / static_cast<double>(dim);
    }
    lse_bound =
        of_weights * std::numbers::log2e + sums * std::numbers::log2e + (std::fabs(lse) + 16) * 0x1p-23;
    return std::isfinite(mean) ? mean : 0;
  }

  support::Exact exact_, error_;
  double split_error_ = 0, sum_error_ = 0;
  double out_unit_, weight_unit_;  // half a last place of 1, in their dtypes
  // f16 ends early. Probabilities are taken relative to 2^-8 of the largest one or less, in steps of 2^-24.
  double smallest_weight_ = 0, smallest_out_ = 0;
  double mean_square_ = 0;
};

}  // namespace routerelay::cuda
