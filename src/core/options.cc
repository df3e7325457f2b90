// SPDX-License-Identifier: Apache-2.0
#include "routerelay/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace routerelay {
namespace {

constexpr std::array kRouters = {"centroid", "sub", "sampled", "antidiag", "box", "ball"};
constexpr std::array kSelections = {"top_k", "threshold", "top_p"};
constexpr std::array kRelays = {"off", "fixed", "strict", "mass", "repair", "certify", "screen"};
constexpr std::array kHeads = {"same", "group"};
constexpr std::array kPresets = {"exact", "careful", "balanced", "fast"};

template <class Enum, size_t N>
Result<Enum> from_name(const char* what, const std::array<const char*, N>& names, std::string_view name) {
  for (size_t i = 0; i < N; ++i)
    if (name == names[i]) return static_cast<Enum>(i);
  return Status(Code::kInvalidArgument,
                fmt::format("options: {} is '{}'; legal: {}", what, name, fmt::join(names, ", ")));
}

template <class T>
Status in_range(const char* what, T value, T low, T high) {
  if (value >= low && value <= high) return {};  // false for NaN
  return {Code::kInvalidArgument, fmt::format("options: {} is {}; legal: {} to {}", what, value, low, high)};
}

template <class Enum, size_t N>
Status known(const char* what, Enum value, const std::array<const char*, N>& names) {
  if (static_cast<size_t>(value) < N) return {};
  return {Code::kInvalidArgument, fmt::format("options: {} is number {}; legal: {}", what,
                                              static_cast<int>(value), fmt::join(names, ", "))};
}

Status block_size(const char* what, int value) {
  if (value == 64 || value == 128) return {};
  return {Code::kInvalidArgument, fmt::format("options: {} is {}; legal: 64, 128", what, value)};
}

Status divides(const char* what, int value, int block) {
  if (value >= 1 && value <= block && block % value == 0) return {};
  return {Code::kInvalidArgument,
          fmt::format("options: {} is {}; must divide the block of {}", what, value, block)};
}

Status check_router(const Options& o) {
  RR_TRY(known("router.kind", o.router.kind, kRouters));
  RR_TRY(in_range("router.samples", o.router.samples, 1, o.q_block));
  RR_TRY(in_range("router.candidate_samples", o.router.candidate_samples, 0, o.q_block));
  RR_TRY(divides("router.sub_q", o.router.sub_q, o.q_block));
  RR_TRY(divides("router.sub_k", o.router.sub_k, o.k_block));
  RR_TRY(divides("router.stride", o.router.stride, std::min(o.q_block, o.k_block)));
  return in_range("router.stride", o.router.stride, 1, 32);
}

Status check_selection(const SelectionOptions& s) {
  RR_TRY(known("selection.kind", s.kind, kSelections));
  RR_TRY(in_range("selection.k", s.k, 0, 1 << 20));
  RR_TRY(in_range("selection.floor", s.floor, 0.0, 1.0));
  RR_TRY(in_range("selection.least", s.least, 0, 1 << 20));
  RR_TRY(in_range("selection.p", s.p, 0.0, 1.0));
  RR_TRY(in_range("selection.cap", s.cap, 0.0, 1.0));
  RR_TRY(in_range("selection.threshold", s.threshold, 0.0, 1.0));
  return in_range("selection.rescue_threshold", s.rescue_threshold, 0.0, 1.0);
}

Status check_relay(const Options& o) {
  const RelayOptions& r = o.relay;
  constexpr double kFar = 1e30;
  RR_TRY(known("relay.mode", r.mode, kRelays));
  RR_TRY(in_range("relay.horizon", r.horizon, 1, 255));
  RR_TRY(in_range("relay.gamma", r.gamma, 0.0, kFar));
  RR_TRY(in_range("relay.delta", r.delta, 0.0, kFar));
  RR_TRY(in_range("relay.near_blocks", r.near_blocks, -1, 1 << 20));
  RR_TRY(in_range("relay.probes", r.probes, -1, 1 << 20));
  RR_TRY(in_range("relay.max_swaps", r.max_swaps, -1, 1 << 30));
  RR_TRY(in_range("relay.wide", r.wide, 0.0, 1e6));
  RR_TRY(in_range("relay.near", r.near, 0.0, 1e6));
  RR_TRY(in_range("relay.anchor_every", r.anchor_every, 0, 1 << 20));
  if (r.mode == Relay::kCertify && o.selection.kind != Selection::kTopK)
    return {Code::kInvalidArgument,
            fmt::format("options: relay.mode is certify with selection.kind {}; its cut holds only for top_k",
                        name_of(o.selection.kind))};
  return {};
}

}  // namespace

const char* name_of(Router router) {
  return kRouters[static_cast<size_t>(router)];
}
const char* name_of(Selection selection) {
  return kSelections[static_cast<size_t>(selection)];
}
const char* name_of(Relay relay) {
  return kRelays[static_cast<size_t>(relay)];
}
const char* name_of(Heads heads) {
  return kHeads[static_cast<size_t>(heads)];
}
Result<Router> router_from(std::string_view name) {
  return from_name<Router>("router", kRouters, name);
}
Result<Selection> selection_from(std::string_view name) {
  return from_name<Selection>("selection", kSelections, name);
}
Result<Relay> relay_from(std::string_view name) {
  return from_name<Relay>("relay", kRelays, name);
}
Result<Heads> heads_from(std::string_view name) {
  return from_name<Heads>("heads", kHeads, name);
}

Result<Options> Options::from_preset(std::string_view name) {
  if (std::find(kPresets.begin(), kPresets.end(), name) == kPresets.end())
    return Status(Code::kInvalidArgument,
                  fmt::format("options: preset is '{}'; legal: {}", name, fmt::join(kPresets, ", ")));
  Options o;
  o.preset = name;
  o.dense = name == "exact";
  if (o.dense) return o;
  o.local_blocks = 1;
  o.router.candidate_samples = 16;  // docs/decision/2026-11-30-haystacks.md: what fewer do not see
  o.selection.least =
      10;  // docs/decision/2026-11-29-presets.md: a bare share of a short context loses its end
  if (name == "fast") {
    o.selection.floor = 0.03;
    o.selection.least = 6;
    o.selection.cap = 0.25;
    return o;
  }
  o.router.samples = 8;  // these four: the page of haystacks again
  o.selection.p = 0.95;
  o.selection.cap = 0.6;
  o.relay.wide = 6;
  if (name == "careful") {
    o.selection.least = 4;
    o.relay.mode = Relay::kOff;
  }
  return o;
}

Status Options::check() const {
  RR_TRY(block_size("q_block", q_block));
  RR_TRY(block_size("k_block", k_block));
  RR_TRY(check_router(*this));
  RR_TRY(check_selection(selection));
  RR_TRY(check_relay(*this));
  RR_TRY(known("heads", heads, kHeads));
  RR_TRY(in_range("sink_blocks", sink_blocks, 0, 1 << 20));
  RR_TRY(in_range("local_blocks", local_blocks, 0, 1 << 20));
  RR_TRY(in_range("dense_layers", dense_layers, 0, 1 << 20));
  RR_TRY(in_range("dense_below", dense_below, int64_t{0}, int64_t{1} << 40));
  return in_range("audit_every", audit_every, 0, 1 << 30);
}

}  // namespace routerelay
