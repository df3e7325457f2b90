// SPDX-License-Identifier: Apache-2.0
#include "cli/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace routerelay::cli {
namespace {

std::string or_dash(double value, std::string text) {
  return std::isnan(value) ? "-" : std::move(text);
}

}  // namespace

std::string Table::line(const std::vector<std::string>& cells, const std::vector<size_t>& widths) const {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    const bool left = std::find(left_.begin(), left_.end(), i) != left_.end();
    if (i > 0) out += "  ";
    out += left ? fmt::format("{:<{}}", cells[i], widths[i]) : fmt::format("{:>{}}", cells[i], widths[i]);
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out;
}

std::string Table::text(const Style& style) const {
  std::vector<size_t> widths;
  for (const std::string& cell : header_) widths.push_back(cell.size());
  for (const auto& row : rows_)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string out = line(header_, widths);
  if (style.bold) out = "\x1b[1m" + out + "\x1b[0m";
  out += "\n";
  for (const auto& row : rows_) out += line(row, widths) + "\n";
  return out;
}

std::string percent(double share) {
  return or_dash(share, fmt::format("{:.1f} %", share * 100));
}
std::string decimals(double value, int digits) {
  return or_dash(value, fmt::format("{:.{}f}", value, digits));
}
std::string times(double factor) {
  return or_dash(factor, fmt::format("{:.2f}x", factor));
}
std::string scientific(double value) {
  return or_dash(value, fmt::format("{:.1e}", value));
}
std::string bytes_text(double bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

}  // namespace routerelay::cli
