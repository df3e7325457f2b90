// SPDX-License-Identifier: Apache-2.0
#include "core/policy/relay_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/policy/units.h"

namespace routerelay {
namespace {

struct Counters {
  int64_t scored = 0, screened = 0;
};

// The state of one relay call; one instance, used by all threads.
class RelayRows {
 public:
  RelayRows(const RelayArgs& args, int threads)
      : args_(args),
        units_(args.q, args.k, args.rows, args.options.heads),
        builder_(units_.q_heads * units_.n_rows, threads),
        scratch_(static_cast<size_t>(threads)),
        counters_(static_cast<size_t>(threads)) {
    args.proposal.kind.assign(static_cast<size_t>(units_.q_heads * units_.n_rows), Kind::kDense);
    args.proposal.cause.assign(args.proposal.kind.size(), Cause::kNone);
    args.proposal.rescored.assign(args.proposal.kind.size(), 0);
  }

  Status run(RowScorer& costly, RowScorer& cheap, Exec& exec) {
    const Relay mode = args_.options.relay.mode;
    RowScorer& scorer = mode == Relay::kScreen ? cheap : costly;
    if (rescores(mode) && !everything_anew()) {
      RR_TRY(for_each_item(scorer, units_, exec, [&](int thread, int kv_head, int64_t row, int64_t end) {
        propose(scorer, thread, kv_head, row, end);
      }));
    } else {  // nothing to score: no keys are packed for it
      RR_TRY(exec.for_each(units_.kv_heads * units_.n_rows, [&](int thread, int64_t i) {
        const int64_t row = i % units_.n_rows;
        propose(scorer, thread, static_cast<int>(i / units_.n_rows), row, row + 1);
      }));
    }
    args_.proposal.candidates = builder_.finish();
    for (const Counters& c : counters_) {
      args_.report.scored_blocks += c.scored;
      args_.report.screened_blocks += c.screened;
    }
    return {};
  }

 private:
  static bool rescores(Relay mode) {
    return mode == Relay::kStrict || mode == Relay::kMass || mode == Relay::kScreen;
  }
  bool everything_anew() const {
    const RelayOptions& r = args_.options.relay;
    const bool anchor =
        r.mode == Relay::kScreen && r.anchor_every > 0 && args_.routed_layer % r.anchor_every == 0;
    return r.mode == Relay::kOff || args_.ledger.empty || args_.score_all || anchor;
  }

  // Rows [first, end) of a KV head.
  void propose(RowScorer& scorer, int thread, int kv_head, int64_t first, int64_t end) {
    PolicyScratch& s = scratch_[static_cast<size_t>(thread)];
    s.n_units = 0;
    for (int64_t row = first; row < end; ++row)
      for (int unit = 0; unit < units_.per_kv_head(); ++unit) propose_unit(thread, kv_head, unit, row, s);
    if (s.n_units == 0) return;
    const bool screens = args_.options.relay.mode == Relay::kScreen;
    score_units(scorer, thread, kv_head, units_, screens ? Router::kSub : router(), s);
    for (size_t i = 0; i < s.n_units; ++i) {
      if (screens) {
        screen(thread, kv_head, s.units[i], s);
      } else {
        compare(thread, kv_head, s.units[i]);
      }
    }
  }

  void propose_unit(int thread, int kv_head, int unit, int64_t row, PolicyScratch& s) {
    const Row& r = args_.rows.rows[static_cast<size_t>(row)];
    if (r.dense) {
      say(kv_head, unit, row, Kind::kDense, Cause::kDense);
    } else if (everything_anew() || r.anew) {
      const bool first = args_.options.relay.mode == Relay::kOff || args_.ledger.empty;
      say(kv_head, unit, row, Kind::kAll, first ? Cause::kFirst : Cause::kAnchor);
    } else {
      consult(thread, kv_head, unit, row, s);
    }
  }

  // A row with a ledger: decides at once, or adds to `s` what must be scored first.
  void consult(int thread, int kv_head, int unit, int64_t row, PolicyScratch& s) {
    const Row& r = args_.rows.rows[static_cast<size_t>(row)];
    const RelayOptions& relay = args_.options.relay;
    const auto list = static_cast<size_t>(units_.list(units_.first_head(kv_head, unit), row));
    const bool old = args_.ledger.age[list] + 1 >= relay.horizon;
    switch (relay.mode) {
      case Relay::kOff:
        break;  // everything_anew
      case Relay::kFixed:
        say(kv_head, unit, row, old ? Kind::kAll : Kind::kKeep, old ? Cause::kAge : Cause::kNone);
        break;
      case Relay::kCertify:
        say(kv_head, unit, row, Kind::kCertify, Cause::kNone);
        break;
      case Relay::kRepair:
        if (old) {
          say(kv_head, unit, row, Kind::kAll, Cause::kAge);
        } else if (gather(list, r, is_softmax(router()), s, s.ids); too_short(r, s.ids)) {
          say(kv_head, unit, row, Kind::kAll, Cause::kShort);
        } else {
          say(kv_head, unit, row, Kind::kCandidates, Cause::kNone);
          set_candidates(thread, kv_head, unit, row, s.ids);
        }
        break;
      case Relay::kMass:
        if (old) {
          say(kv_head, unit, row, Kind::kAll, Cause::kAge);
          break;
        }
        [[fallthrough]];
      case Relay::kStrict: {
        UnitScores& u = s.add(row, unit);
        gather(list, r, false, s, u.ids);
        if (too_short(r, u.ids)) {
          --s.n_units;
          say(kv_head, unit, row, Kind::kAll, Cause::kShort);
        }
        break;
      }
      case Relay::kScreen: {
        UnitScores& u = s.add(row, unit);
        u.ids.resize(static_cast<size_t>(r.visible_blocks));
        std::iota(u.ids.begin(), u.ids.end(), 0);
        break;
      }
    }
  }

  // Marks route, near and probes of the ledger, and the forced blocks or none of them.
  void mark_known(size_t list, const Row& r, bool with_forced, std::vector<uint8_t>& marks) const {
    const Forced forced = Forced::of(r, args_.options);
    marks.assign(static_cast<size_t>(r.visible_blocks), 0);
    for (const BlockLists* from : {&args_.ledger.route, &args_.ledger.near, &args_.ledger.probes}) {
      if (from->size() == 0) continue;
      for (int32_t b : (*from)[static_cast<int64_t>(list)]) marks[static_cast<size_t>(b)] = 1;
    }
    const uint8_t mark = with_forced ? 1 : 0;
    std::fill_n(marks.begin(), forced.sink, mark);
    std::fill(marks.begin() + forced.local, marks.end(), mark);
  }
  // The marked blocks, ascending.
  static void list_marked(const std::vector<uint8_t>& marks, std::vector<int32_t>& ids) {
    ids.resize(marks.size() + 1);
    int32_t* end = ids.data();
    for (size_t b = 0; b < marks.size(); ++b) {  // without a branch: nobody foresees the marks
      *end = static_cast<int32_t>(b);
      end += marks[b];
    }
    ids.resize(static_cast<size_t>(end - ids.data()));
  }
  void gather(size_t list, const Row& r, bool with_forced, PolicyScratch& s,
              std::vector<int32_t>& ids) const {
    mark_known(list, r, with_forced, s.marks);
    list_marked(s.marks, ids);
  }
  // Rescoring w blocks cannot pay where full scoring means at most 2 w.
  static bool too_short(const Row& r, const std::vector<int32_t>& ids) {
    return r.visible_blocks <= 2 * static_cast<int64_t>(ids.size());
  }

  // strict and mass: does a challenger beat the route at this layer?
  void compare(int thread, int kv_head, const UnitScores& u) {
    counters_[static_cast<size_t>(thread)].scored +=
        static_cast<int64_t>(u.ids.size()) * units_.heads_per_unit;
    const int64_t first_list = units_.list(units_.first_head(kv_head, u.unit), u.row);
    for (int h = 0; h < units_.heads_per_unit; ++h)
      args_.proposal.rescored[static_cast<size_t>(first_list + h * units_.n_rows)] =
          static_cast<int32_t>(u.ids.size());
    const auto route = args_.ledger.route[first_list];
    constexpr float kInf = std::numeric_limits<float>::infinity();
    float alpha = kInf, beta = -kInf;
    for (size_t i = 0; i < u.ids.size(); ++i) {
      const bool in_route = std::binary_search(route.begin(), route.end(), u.ids[i]);
      if (in_route) {
        alpha = std::min(alpha, u.score[i]);
      } else {
        beta = std::max(beta, u.score[i]);
      }
    }
    bool keep = static_cast<double>(alpha) > static_cast<double>(beta) + args_.options.relay.gamma;
    if (args_.options.relay.mode == Relay::kMass) {
      const float shift = std::max(alpha, beta);  // keeps exp finite where it matters: near the cut
      double held = 0, challenging = 0;
      for (size_t i = 0; i < u.ids.size(); ++i) {
        const double e =
            is_softmax(router()) ? u.score[i] : std::exp(static_cast<double>(u.score[i]) - shift);
        const bool in_route = std::binary_search(route.begin(), route.end(), u.ids[i]);
        if (in_route) {
          held += e;
        } else if (u.score[i] >= alpha) {
          challenging += e;
        }
      }
      keep = challenging <= args_.options.relay.delta * held;
    }
    say(kv_head, u.unit, u.row, keep ? Kind::kKeep : Kind::kAll, keep ? Cause::kNone : Cause::kFired);
  }

  // screen: the cheap router's best at this layer, beside what earlier layers knew.
  void screen(int thread, int kv_head, const UnitScores& u, PolicyScratch& s) {
    const int64_t row = u.row;
    const Row& r = args_.rows.rows[static_cast<size_t>(row)];
    counters_[static_cast<size_t>(thread)].screened +=
        static_cast<int64_t>(u.ids.size()) * units_.heads_per_unit;
    const double asked = args_.options.relay.wide * floor_count(r, args_.options.selection);
    const auto wide = static_cast<int32_t>(std::lround(std::min<double>(asked, r.visible_blocks)));
    const auto list = static_cast<size_t>(units_.list(units_.first_head(kv_head, u.unit), row));
    mark_known(list, r, true, s.marks);
    mark_best(u.ids, u.score, wide, s.select.ranking, s.marks);
    list_marked(s.marks, s.ids);
    say(kv_head, u.unit, row, Kind::kCandidates, Cause::kNone);
    set_candidates(thread, kv_head, u.unit, row, s.ids);
  }

  void say(int kv_head, int unit, int64_t row, Kind kind, Cause cause) {
    for (int h = 0; h < units_.heads_per_unit; ++h) {
      const auto list = static_cast<size_t>(units_.list(units_.first_head(kv_head, unit) + h, row));
      args_.proposal.kind[list] = kind;
      args_.proposal.cause[list] = cause;
    }
  }
  void set_candidates(int thread, int kv_head, int unit, int64_t row, const std::vector<int32_t>& ids) {
    for (int h = 0; h < units_.heads_per_unit; ++h)
      builder_.set(units_.list(units_.first_head(kv_head, unit) + h, row), thread, ids);
  }
  Router router() const { return args_.options.router.kind; }

  const RelayArgs& args_;
  Units units_;
  ListBuilder builder_;
  std::vector<PolicyScratch> scratch_;
  std::vector<Counters> counters_;
};

}  // namespace

Status relay_rows(const RelayArgs& args, RowScorer& costly, RowScorer& cheap, Exec& exec) {
  return RelayRows(args, exec.threads()).run(costly, cheap, exec);
}

}  // namespace routerelay
