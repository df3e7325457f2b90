// SPDX-License-Identifier: Apache-2.0
#include "core/policy/route_rows.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "core/policy/units.h"
#include "core/rng.h"

namespace routerelay {
namespace {

struct Counters {
  int64_t scored = 0, swaps = 0, survivors = 0, kept = 0;
  std::array<int64_t, kCauses> rows_by_cause{};
};

constexpr int kMaxAge = 255, kMaxSwaps = 65535;

bool contains(std::span<const int32_t> ascending, int32_t id) {
  return std::binary_search(ascending.begin(), ascending.end(), id);
}

// The state of one route call; one instance, used by all threads.
class RouteRows {
 public:
  RouteRows(const RouteArgs& args, int threads)
      : args_(args),
        units_(args.q, args.k, args.rows, args.options.heads),
        routes_(n_lists(), threads),
        near_(n_lists(), threads),
        probes_(n_lists(), threads),
        scratch_(static_cast<size_t>(threads)),
        counters_(static_cast<size_t>(threads)) {
    args.next.age.assign(static_cast<size_t>(n_lists()), 0);
    args.next.swaps.assign(static_cast<size_t>(n_lists()), 0);
    args.next.scored = args.proposal.rescored;
    args.next.scored.resize(static_cast<size_t>(n_lists()), 0);
  }

  Status run(RowScorer& costly, Exec& exec) {
    if (scores_anything()) {
      RR_TRY(for_each_item(costly, units_, exec, [&](int thread, int kv_head, int64_t row, int64_t end) {
        route(costly, thread, kv_head, row, end);
      }));
    } else {  // no keys are packed for it
      RR_TRY(exec.for_each(units_.kv_heads * units_.n_rows, [&](int thread, int64_t i) {
        const int64_t row = i % units_.n_rows;
        route(costly, thread, static_cast<int>(i / units_.n_rows), row, row + 1);
      }));
    }
    args_.next.route = routes_.finish();
    args_.next.near = near_.finish();
    args_.next.probes = probes_.finish();
    args_.next.empty = false;
    for (const Counters& c : counters_) {
      args_.report.scored_blocks += c.scored;
      args_.report.swaps += c.swaps;
      args_.report.survivors += c.survivors;
      args_.report.kept_rows += c.kept;
      for (size_t i = 0; i < kCauses; ++i) args_.report.rows_by_cause[i] += c.rows_by_cause[i];
    }
    return {};
  }

 private:
  bool scores_anything() const {
    const auto& kinds = args_.proposal.kind;
    return std::any_of(kinds.begin(), kinds.end(),
                       [](Kind kind) { return kind != Kind::kDense && kind != Kind::kKeep; });
  }

  // Rows [first, end) of a KV head: every unit of them is settled here, once.
  void route(RowScorer& costly, int thread, int kv_head, int64_t first, int64_t end) {
    PolicyScratch& s = scratch_[static_cast<size_t>(thread)];
    s.n_units = 0;
    for (int64_t row = first; row < end; ++row)
      for (int unit = 0; unit < units_.per_kv_head(); ++unit) begin_unit(thread, kv_head, unit, row, s);
    if (s.n_units == 0) return;
    score(costly, thread, kv_head, s);
    s.again.clear();
    for (size_t i = 0; i < s.n_units; ++i) settle(thread, kv_head, s.units[i], s);
    if (s.again.empty()) return;
    // These rows have paid for the rescoring, and now pay in full.
    s.n_units = 0;
    for (const Again& a : s.again) all_blocks(a.row, s.add(a.row, a.unit).ids);
    score(costly, thread, kv_head, s);
    for (size_t i = 0; i < s.n_units; ++i) settle_full(thread, kv_head, s.units[i], s, s.again[i].cause);
  }

  // Settles what needs no score, and adds to `s` what does.
  void begin_unit(int thread, int kv_head, int unit, int64_t row, PolicyScratch& s) {
    const int64_t list = first_list(kv_head, unit, row);
    switch (args_.proposal.kind[static_cast<size_t>(list)]) {
      case Kind::kDense: {
        all_blocks(row, s.ids);
        write(thread, kv_head, unit, row, {s.ids, {}, {}, 0, 0, Cause::kDense});
        break;
      }
      case Kind::kKeep:
        keep(thread, kv_head, unit, row);
        break;
      case Kind::kAll:
      case Kind::kCertify:
        all_blocks(row, s.add(row, unit).ids);
        break;
      case Kind::kCandidates: {
        const auto ids = args_.proposal.candidates[list];
        UnitScores& u = s.add(row, unit);
        u.ids.assign(ids.begin(), ids.end());
        u.samples = candidate_samples(row, ids.size());
        break;
      }
    }
  }

  // More queries speak for fewer blocks: twice as many as often as all products stay within the whole row's.
  int candidate_samples(int64_t row, size_t n_ids) const {
    const RouterOptions& router = args_.options.router;
    if (args_.options.relay.mode == Relay::kRepair)
      return router.samples;  // the row may have to pay in full as well
    const auto whole = static_cast<size_t>(router.samples) * static_cast<size_t>(row_of(row).visible_blocks);
    int samples = router.samples;
    while (samples * 2 <= router.candidate_samples && static_cast<size_t>(samples) * 2 * n_ids <= whole)
      samples *= 2;
    return samples;
  }

  void score(RowScorer& costly, int thread, int kv_head, PolicyScratch& s) {
    score_units(costly, thread, kv_head, units_, args_.options.router.kind, s);
    for (size_t i = 0; i < s.n_units; ++i) {
      const UnitScores& u = s.units[i];
      const int64_t list = first_list(kv_head, u.unit, u.row);
      for (int h = 0; h < units_.heads_per_unit; ++h)
        args_.next.scored[static_cast<size_t>(list + h * units_.n_rows)] +=
            static_cast<int32_t>(u.ids.size());
      counters_[static_cast<size_t>(thread)].scored +=
          static_cast<int64_t>(u.ids.size()) * units_.heads_per_unit;
    }
  }

  void settle(int thread, int kv_head, UnitScores& u, PolicyScratch& s) {
    const int64_t row = u.row;
    const int64_t list = first_list(kv_head, u.unit, row);
    const Kind kind = args_.proposal.kind[static_cast<size_t>(list)];
    if (kind != Kind::kCandidates) {
      if (kind == Kind::kCertify) drop_uncertified(thread, list, u, s);
      settle_full(thread, kv_head, u, s, args_.proposal.cause[static_cast<size_t>(list)]);
      return;
    }
    select(u, s);
    const Forced forced = Forced::of(row_of(row), args_.options);
    std::span<const int32_t> old_route = args_.ledger.route[list];  // from the first id that can still be met
    int swaps = 0;
    bool by_probe = false;
    for (int32_t id : s.selected.route) {
      while (!old_route.empty() && old_route.front() < id) old_route = old_route.subspan(1);
      if (forced.holds(id) || (!old_route.empty() && old_route.front() == id)) continue;
      ++swaps;
      by_probe |= args_.ledger.probes.size() > 0 && contains(args_.ledger.probes[list], id);
    }
    counters_[static_cast<size_t>(thread)].swaps += static_cast<int64_t>(swaps) * units_.heads_per_unit;
    const int since_full = std::min(args_.ledger.swaps[static_cast<size_t>(list)] + swaps, kMaxSwaps);
    if (const Cause cause = refresh_cause(since_full, by_probe, s.selected); cause != Cause::kNone) {
      s.again.push_back({row, u.unit, cause});
      return;
    }
    const int age = std::min(args_.ledger.age[static_cast<size_t>(list)] + 1, kMaxAge);
    draw_probes(kv_head, u.unit, row, s);
    write(thread, kv_head, u.unit, row,
          {s.selected.route, s.selected.near, s.ids, age, since_full, Cause::kNone});
  }

  void settle_full(int thread, int kv_head, const UnitScores& u, PolicyScratch& s, Cause cause) {
    const int64_t row = u.row;
    select(u, s);
    draw_probes(kv_head, u.unit, row, s);
    write(thread, kv_head, u.unit, row, {s.selected.route, s.selected.near, s.ids, 0, 0, cause});
  }

  void select(const UnitScores& u, PolicyScratch& s) const {
    select_blocks(row_of(u.row), args_.options, {u.ids, u.score, u.rescue}, s.select, s.selected);
  }

  // repair only: what makes a re-ranked row be scored in full after all.
  Cause refresh_cause(int swaps_since_full, bool by_probe, const Selected& selected) const {
    const RelayOptions& r = args_.options.relay;
    if (r.mode != Relay::kRepair) return Cause::kNone;
    if (r.probe_forces && by_probe) return Cause::kProbe;
    constexpr int kNever = std::numeric_limits<int>::max();
    const bool wide_enough = challengers_of(r, selected.competitors, 0).near >= selected.competitors;
    const int limit = r.max_swaps >= 0 ? r.max_swaps : wide_enough ? kNever : 4;
    return swaps_since_full > limit ? Cause::kSwaps : Cause::kNone;
  }

  // certify: the k-th largest current score among the k remembered and their challengers bounds the true k-th
  // from below, so only blocks at or above it can enter. The remembered ones stay in view as challengers.
  void drop_uncertified(int thread, int64_t list, UnitScores& u, PolicyScratch& s) {
    const auto route = args_.ledger.route[list];
    const auto near = args_.ledger.near[list];
    std::vector<float>& known = s.select.weight;
    known.clear();
    const auto remembered = [&](int32_t id) { return contains(route, id) || contains(near, id); };
    for (size_t i = 0; i < u.ids.size(); ++i)
      if (remembered(u.ids[i])) known.push_back(u.score[i]);
    const size_t k = route.size();
    if (k == 0 || known.size() < k) return;
    for (float& x : known)
      if (!(x == x)) x = -std::numeric_limits<float>::infinity();
    std::nth_element(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(k - 1), known.end(),
                     std::greater<>());
    const float cut = known[k - 1];
    const auto survivors = static_cast<size_t>(
        std::count_if(u.score.begin(), u.score.end(), [cut](float x) { return x >= cut; }));
    counters_[static_cast<size_t>(thread)].survivors +=
        static_cast<int64_t>(survivors) * units_.heads_per_unit;
    if (survivors > 4 * k) return;  // too many for the detour to pay
    size_t kept = 0;
    for (size_t i = 0; i < u.ids.size(); ++i) {
      if (!(u.score[i] >= cut) && !remembered(u.ids[i])) continue;
      u.ids[kept] = u.ids[i];
      u.score[kept] = u.score[i];
      if (!u.rescue.empty()) u.rescue[kept] = u.rescue[i];
      ++kept;
    }
    u.ids.resize(kept);
    u.score.resize(kept);
    if (!u.rescue.empty()) u.rescue.resize(kept);
  }

  // Random challengers from the omitted blocks into s.ids, without replacement. The draw depends on the seed,
  // layer, head and position alone: batch mates and their order change nothing.
  void draw_probes(int kv_head, int unit, int64_t row, PolicyScratch& s) const {
    s.ids.clear();
    const Row& r = row_of(row);
    const int32_t c = floor_count(r, args_.options.selection);
    const int32_t wanted = challengers_of(args_.options.relay, s.selected.competitors, c).probes;
    if (wanted == 0) return;
    for (int32_t b = 0; b < r.visible_blocks; ++b)
      if (!contains(s.selected.route, b) && !contains(s.selected.near, b)) s.ids.push_back(b);
    const uint64_t stream = static_cast<uint64_t>(r.position) |
                            static_cast<uint64_t>(units_.first_head(kv_head, unit)) << 36 |
                            static_cast<uint64_t>(args_.layer + 1) << 52;
    Philox random(args_.options.relay.seed, stream);
    const size_t drawn = std::min(s.ids.size(), static_cast<size_t>(wanted));
    for (size_t i = 0; i < drawn; ++i)
      std::swap(s.ids[i], s.ids[i + random.below(static_cast<uint32_t>(s.ids.size() - i))]);
    s.ids.resize(drawn);
    std::sort(s.ids.begin(), s.ids.end());
  }

  void all_blocks(int64_t row, std::vector<int32_t>& ids) const {
    ids.resize(static_cast<size_t>(row_of(row).visible_blocks));
    std::iota(ids.begin(), ids.end(), 0);
  }

  // A row's new ledger entry.
  struct Entry {
    std::span<const int32_t> route, near, probes;
    int age = 0;
    int swaps = 0;
    Cause cause = Cause::kNone;
  };

  void keep(int thread, int kv_head, int unit, int64_t row) {
    const auto list = static_cast<size_t>(first_list(kv_head, unit, row));
    const Ledger& old = args_.ledger;
    const auto at = [&](const BlockLists& lists) {
      return lists.size() > 0 ? lists[static_cast<int64_t>(list)] : std::span<const int32_t>{};
    };
    counters_[static_cast<size_t>(thread)].kept += units_.heads_per_unit;
    write(thread, kv_head, unit, row,
          {at(old.route), at(old.near), at(old.probes), std::min(old.age[list] + 1, kMaxAge), old.swaps[list],
           Cause::kNone});
  }

  void write(int thread, int kv_head, int unit, int64_t row, const Entry& entry) {
    for (int h = 0; h < units_.heads_per_unit; ++h) {
      const int64_t list = first_list(kv_head, unit, row) + h * units_.n_rows;
      routes_.set(list, thread, entry.route);
      near_.set(list, thread, entry.near);
      probes_.set(list, thread, entry.probes);
      args_.next.age[static_cast<size_t>(list)] = static_cast<uint8_t>(entry.age);
      args_.next.swaps[static_cast<size_t>(list)] = static_cast<uint16_t>(entry.swaps);
    }
    counters_[static_cast<size_t>(thread)].rows_by_cause[static_cast<size_t>(entry.cause)] +=
        units_.heads_per_unit;
  }

  int64_t n_lists() const { return units_.q_heads * units_.n_rows; }
  int64_t first_list(int kv_head, int unit, int64_t row) const {
    return units_.list(units_.first_head(kv_head, unit), row);
  }
  const Row& row_of(int64_t row) const { return args_.rows.rows[static_cast<size_t>(row)]; }

  const RouteArgs& args_;
  Units units_;
  ListBuilder routes_, near_, probes_;
  std::vector<PolicyScratch> scratch_;
  std::vector<Counters> counters_;
};

}  // namespace

Status route_rows(const RouteArgs& args, RowScorer& costly, Exec& exec) {
  return RouteRows(args, exec.threads()).run(costly, exec);
}

}  // namespace routerelay
