// SPDX-License-Identifier: Apache-2.0
// The masks of a case: [mask_streams, mask_heads, mask_rows, keys] f16, and who sees whom in it.
#pragma once

#include <cstdint>
#include <vector>

#include "case.h"

namespace routerelay::soak {

inline constexpr uint16_t kZero = 0x0000, kMinusZero = 0x8000, kMinusInf = 0xfc00;

// One plane of a mask, drawn row by row: show() is handed to a rule that knows rows and keys.
class MaskPlane {
 public:
  MaskPlane(const Case& c, MaskKind kind, Philox& random, uint16_t* values)
      : c_(c), kind_(kind), random_(random), values_(values) {
    std::fill_n(values, c.mask_rows * c.keys, kMinusInf);
    position_ = c.keys > c.rows ? random.below(static_cast<uint32_t>(c.keys - c.rows + 1)) : 0;
  }

  void fill() {
    switch (kind_) {
      case MaskKind::kCausal:
        return show([&](int64_t r, int64_t k) { return k <= position_ + r; });
      case MaskKind::kPadded:
        return fill_padded();
      case MaskKind::kWindow: {
        const int64_t window = up_to(random_, c_.keys);
        return show([&](int64_t r, int64_t k) { return k <= position_ + r && k > position_ + r - window; });
      }
      case MaskKind::kSlots:
        return fill_slots();
      case MaskKind::kEverything:
        return show([](int64_t, int64_t) { return true; });
      case MaskKind::kHoles:
        return fill_holes();
      case MaskKind::kRandom: {
        const double share = pick(random_, std::array{0.002, 0.05, 0.5, 0.95, 0.998});
        return show([&](int64_t, int64_t) { return random_.uniform() < share; });
      }
      case MaskKind::kRuns:
        return fill_runs();
      case MaskKind::kFinite:
        return fill_finite();
    }
  }

 private:
  template <class Fn>
  void show(const Fn& shown) {
    for (int64_t r = 0; r < c_.rows; ++r)
      for (int64_t k = 0; k < c_.keys; ++k)
        if (shown(r, k)) at(r, k) = c_.signed_zeros && once_in(random_, 8) ? kMinusZero : kZero;
  }
  uint16_t& at(int64_t row, int64_t key) { return values_[row * c_.keys + key]; }

  void fill_padded() {
    const int64_t cells = std::max<int64_t>(1, c_.keys - random_.below(256));
    const int64_t real_rows = 1 + random_.below(static_cast<uint32_t>(c_.rows));
    show([&](int64_t r, int64_t k) { return r < real_rows && k < cells && k <= position_ + r; });
  }
  void fill_holes() {
    std::vector<uint8_t> hidden(static_cast<size_t>(c_.rows));
    const uint32_t one_in = pick(random_, std::array{1u, 2u, 70u});
    for (auto& row : hidden) row = once_in(random_, one_in);
    show([&](int64_t r, int64_t k) { return hidden[static_cast<size_t>(r)] == 0 && k <= position_ + r; });
  }
  // Cells taken by turns, in runs or in any order; some are empty. A prompt's cells and rows count its tokens.
  void fill_slots() {
    const uint32_t prompts = 1 + random_.below(5), cell_run = static_cast<uint32_t>(up_to(random_, 200)),
                   row_run = static_cast<uint32_t>(up_to(random_, 200));
    const bool permuted = once_in(random_, 2);
    std::vector<int64_t> cells_of(prompts, 0), cell_position(static_cast<size_t>(c_.keys)),
        rows_of(prompts, 0);
    std::vector<uint32_t> cell_prompt(cell_position.size());
    uint32_t prompt = 0;
    for (size_t k = 0; k < cell_position.size(); ++k) {
      if (once_in(random_, cell_run)) prompt = random_.below(prompts + 1);  // the last one is of no row
      cell_prompt[k] = prompt;
      cell_position[k] = prompt < prompts ? cells_of[prompt]++ : 0;
    }
    if (permuted)
      for (size_t k = cell_position.size() - 1; k > 0; --k) {
        const size_t other = random_.below(static_cast<uint32_t>(k + 1));
        std::swap(cell_prompt[k], cell_prompt[other]);
        std::swap(cell_position[k], cell_position[other]);
      }
    std::vector<int64_t> row_position(static_cast<size_t>(c_.rows));
    std::vector<uint32_t> row_prompt(row_position.size());
    prompt = 0;
    for (size_t r = 0; r < row_position.size(); ++r) {
      if (once_in(random_, row_run)) prompt = random_.below(prompts);
      row_prompt[r] = prompt;
      row_position[r] = rows_of[prompt]++;
    }
    // The rows are a prompt's last tokens.
    show([&](int64_t r, int64_t k) {
      const auto row = static_cast<size_t>(r), cell = static_cast<size_t>(k);
      const uint32_t p = row_prompt[row];
      return cell_prompt[cell] == p && cell_position[cell] <= row_position[row] + cells_of[p] - rows_of[p];
    });
  }
  void fill_runs() {
    const auto run = static_cast<uint32_t>(up_to(random_, 300));
    bool shown = once_in(random_, 2);
    show([&](int64_t, int64_t) {
      if (once_in(random_, run)) shown = once_in(random_, 2);
      return shown;
    });
  }
  void fill_finite() {
    show([&](int64_t r, int64_t k) { return k <= position_ + r; });
    at(random_.below(static_cast<uint32_t>(c_.rows)), 0) = 0xbc00;  // -1
    if (once_in(random_, 2)) return;
    for (int64_t r = 0; r < c_.rows; ++r)
      for (int64_t k = 0; k <= std::min(position_ + r, c_.keys - 1); ++k)
        at(r, k) = static_cast<uint16_t>(0xb000 + random_.below(0x1400));  // -0.125 .. -4
  }

  const Case& c_;
  MaskKind kind_;
  Philox& random_;
  uint16_t* values_;
  int64_t position_ = 0;  // of the first row
};

class Masks {
 public:
  explicit Masks(const Case& c)
      : c_(c), values(static_cast<size_t>(c.mask_streams * c.mask_heads * plane())) {
    Philox random = c.random(1);
    for (int64_t p = 0; p < c.mask_streams * c.mask_heads; ++p) {
      const bool any = c.mixed && p > 0;
      const auto other = static_cast<MaskKind>(random.below(static_cast<uint32_t>(MaskKind::kFinite)));
      MaskPlane(c, any ? other : c.mask, random, values.data() + p * plane()).fill();
    }
  }
  bool sees(int64_t stream, int64_t row, int64_t key) const {
    const int64_t plane_of_stream = stream % c_.mask_streams * c_.mask_heads;
    return values[static_cast<size_t>(plane_of_stream * plane() + row * c_.keys + key)] != kMinusInf;
  }
  bool sees_nothing(int64_t stream, int64_t row) const {
    for (int64_t key = 0; key < c_.keys; ++key)
      if (sees(stream, row, key)) return false;
    return true;
  }
  bool is_seen(int64_t stream, int64_t key) const {
    for (int64_t row = 0; row < c_.rows; ++row)
      if (sees(stream, row, key)) return true;
    return false;
  }
  // Whether every row sees one key more than the row before, from the first key on: what a sparse preset may route.
  bool causal() const {
    for (int64_t s = 0; s < c_.mask_streams; ++s) {
      int64_t first = 0;
      while (first < c_.keys && sees(s, 0, first)) ++first;
      for (int64_t r = 0; r < c_.rows; ++r)
        for (int64_t k = 0; k < c_.keys; ++k)
          if (sees(s, r, k) != (k < first + r)) return false;
    }
    return true;
  }

 private:
  int64_t plane() const { return c_.mask_rows * c_.keys; }
  const Case& c_;

 public:
  std::vector<uint16_t> values;
};

}  // namespace routerelay::soak
