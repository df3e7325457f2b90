// SPDX-License-Identifier: Apache-2.0
// Rows of cells as aligned columns: the first left, numbers right.
#pragma once

#include <string>
#include <vector>

namespace routerelay::cli {

struct Style {
  bool bold = false;  // headers; off when piped or NO_COLOR is set
};

class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}

  // As many cells as the header has.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Column `column` is text and stands left; the first always does.
  void align_left(size_t column) { left_.push_back(column); }
  bool empty() const { return rows_.empty(); }
  std::string text(const Style& style) const;

 private:
  std::string line(const std::vector<std::string>& cells, const std::vector<size_t>& widths) const;

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> left_ = {0};
};

// Numbers as tables show them; "-" for NaN.
std::string percent(double share);               // 7.1 %
std::string decimals(double value, int digits);  // 3.14
std::string times(double factor);                // 2.31x
std::string scientific(double value);            // 1.2e-03
std::string bytes_text(double bytes);            // 12.5 MiB

}  // namespace routerelay::cli
