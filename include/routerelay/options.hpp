// SPDX-License-Identifier: Apache-2.0
// What a Pass does: the router, the selection, the relay mode, and the presets that name good sets of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "routerelay/status.hpp"

namespace routerelay {

// How (row, block) gets a score. docs/stage/route.md has the formulas.
enum class Router : uint8_t { kCentroid, kSub, kSampled, kAntidiag, kBox, kBall };
// How scores become a route.
enum class Selection : uint8_t { kTopK, kThreshold, kTopP };
// What a layer takes over from the routed layer before it.
enum class Relay : uint8_t { kOff, kFixed, kStrict, kMass, kRepair, kCertify, kScreen };
// One route per query head, or one per KV head with scores summed over its query heads.
enum class Heads : uint8_t { kSame, kGroup };

const char* name_of(Router router);
const char* name_of(Selection selection);
const char* name_of(Relay relay);
const char* name_of(Heads heads);
Result<Router> router_from(std::string_view name);
Result<Selection> selection_from(std::string_view name);
Result<Relay> relay_from(std::string_view name);
Result<Heads> heads_from(std::string_view name);

struct RouterOptions {
  Router kind = Router::kSampled;
  int samples = 4;            // sampled: query tokens per row
  int candidate_samples = 0;  // sampled: where screen left candidates, doubled up to so many while that pays
  int sub_q = 8;              // sub: queries per mean
  int sub_k = 8;              // sub: keys per mean; divides the key block
  int stride = 8;             // antidiag: tokens per group; divides both blocks
};

struct SelectionOptions {
  Selection kind = Selection::kTopP;
  int k = 0;                // top_k: blocks per row; 0 takes the floor's count
  double floor = 0.05;      // c = max(least, round(floor * visible)) blocks at least, forced ones included
  int least = 4;            // what the floor never falls below: short contexts need more than a share
  double p = 0.9;           // top_p: estimated mass to reach
  double cap = 0.5;         // at most this share of the visible blocks, forced ones not counted
  double threshold = 0.22;  // threshold: share of the row's best estimate
  double rescue_threshold = 0.18;  // the same for ball's rescue scores (RBS-Attention)
};

struct RelayOptions {
  Relay mode = Relay::kScreen;
  int horizon = 8;            // fixed, mass, repair: a row is scored in full at this age
  double gamma = 0;           // strict: margin that the route must keep, in raw scores
  double delta = 0.05;        // mass: challengers' share of the route's mass that fires
  int near_blocks = -1;       // challengers kept (m); -1 = the mode's default
  int probes = -1;            // random challengers (r); -1 = the mode's default
  int max_swaps = -1;         // repair: more swaps than this since the last full row force one; -1 = default
  bool probe_forces = false;  // repair: a probe that reaches the route forces a full row
  double wide = 2;            // screen: candidates by the cheap router, times c
  double near = 1;            // screen: blocks remembered below the cut, times c
  int anchor_every = 0;       // screen: score everything every so many routed layers; 0 = only the first
  bool auto_off = true;  // stop relaying a sequence when it scored over 80 % of full routing twice running
  uint64_t seed = 0;     // of the random probes
};

struct Options {
  std::string preset = "exact";
  bool dense = true;  // every block of every row; nothing below matters then
  RouterOptions router;
  SelectionOptions selection;
  RelayOptions relay;
  Heads heads = Heads::kSame;
  int q_block = 64;              // queries per row: 64 or 128
  int k_block = 64;              // keys per block: 64 or 128
  int sink_blocks = 1;           // forced at the start of the sequence
  int local_blocks = 0;          // forced before the diagonal
  bool force_diagonal = true;    // off only for synthetic score matrices, which have no diagonal
  int dense_layers = 2;          // layers 0 .. dense_layers - 1 see every block
  std::vector<int> never_relay;  // further layers whose rows are all scored in full
  int64_t dense_below = 2048;    // a row whose last query sees fewer keys is dense
  int audit_every = 0;           // every so many rows are also scored and attended in full; 0 = never

  // exact, careful, balanced, fast. kInvalidArgument names the preset and the legal ones.
  static Result<Options> from_preset(std::string_view name);
  // One field by name: set("router", "sampled"), set("selection.floor", "0.1"), set("never_relay", "5,9").
  // `preset` then says so: "balanced selection.floor=0.1". kInvalidArgument for an unknown key, a value that
  // is none, and a key of routing while `dense` is set. What the value means together with others: `check`.
  Status set(std::string_view key, std::string_view value);
  // Several: "selection.floor=0.1;relay.wide=4".
  Status set_all(std::string_view text);
  // kInvalidArgument with the field, its value and what is legal.
  Status check() const;
};

}  // namespace routerelay
