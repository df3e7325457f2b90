// SPDX-License-Identifier: Apache-2.0
// The predicates behind the assertions between stages: each accepts what is whole and notices what can break.
#include "core/invariants.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

namespace routerelay {
namespace {

constexpr int64_t kHeads = 2;

// Two sequences: rows of 1, 2 and 3 visible blocks, the last one dense, and one of 1 block.
Rows example_rows() {
  const std::vector<Sequence> sequences = {{0, 192, 0, 192, 0}, {192, 10, 192, 10, 0}};
  Rows rows = make_rows(sequences, 64, 64);
  rows.rows[2].dense = true;
  return rows;
}

BlockLists lists_of(const std::vector<std::vector<int32_t>>& per_row) {
  ListBuilder builder(kHeads * static_cast<int64_t>(per_row.size()), 1);
  for (int64_t i = 0; i < kHeads * static_cast<int64_t>(per_row.size()); ++i)
    builder.set(i, 0, per_row[static_cast<size_t>(i) % per_row.size()]);
  return builder.finish();
}

template <class T>
void notices(const T& good, const Rows& rows, const std::function<void(T&)>& spoil) {
  T bad = good;
  spoil(bad);
  EXPECT_FALSE(holds(bad, rows, kHeads));
}

TEST(Invariants, OfRows) {
  const Rows good = example_rows();
  ASSERT_EQ(good.size(), 4);
  EXPECT_TRUE(holds(good));
  const auto notices_row = [&](size_t i, const std::function<void(Row&)>& spoil) {
    Rows bad = good;
    spoil(bad.rows[i]);
    EXPECT_FALSE(holds(bad));
  };
  notices_row(0, [](Row& r) { r.q_count = 0; });
  notices_row(0, [](Row& r) { r.q_count = 65; });
  notices_row(1, [](Row& r) { r.q_begin = 65; });
  notices_row(1, [](Row& r) { r.diagonal = 2; });
  notices_row(2, [](Row& r) { r.visible_keys = 193; });
  notices_row(2, [](Row& r) { r.visible_blocks = 2; });
  notices_row(2, [](Row& r) { r.sequence = 2; });
  notices_row(3, [](Row& r) { r.first_block = 2; });
}

TEST(Invariants, OfSummaries) {
  const Rows rows = example_rows();
  const SummaryNeeds needs{.mean = true, .sub_means = true, .radius = true};
  Summary good;
  good.resize(needs, rows.n_blocks, 1, 64, rows.k_block);
  EXPECT_TRUE(holds(good, needs, rows));
  Summary bad = good;
  bad.radius.pop_back();
  EXPECT_FALSE(holds(bad, needs, rows));
  bad = good;
  bad.box_min.push_back(0);
  EXPECT_FALSE(holds(bad, needs, rows));
  EXPECT_FALSE(holds(good, {.mean = true, .radius = true}, rows));
}

TEST(Invariants, OfProposals) {
  const Rows rows = example_rows();
  Proposal good;
  for (int64_t h = 0; h < kHeads; ++h)
    good.kind.insert(good.kind.end(), {Kind::kAll, Kind::kCandidates, Kind::kDense, Kind::kKeep});
  good.cause.assign(good.kind.size(), Cause::kNone);
  good.candidates = lists_of({{}, {0, 1}, {}, {}});
  EXPECT_TRUE(holds(good, rows, kHeads));
  notices<Proposal>(good, rows, [](Proposal& p) { p.kind.pop_back(); });
  notices<Proposal>(good, rows, [](Proposal& p) { p.cause.clear(); });
  notices<Proposal>(good, rows, [](Proposal& p) { p.rescored.push_back(1); });
  notices<Proposal>(good, rows, [](Proposal& p) { p.kind[2] = Kind::kAll; });    // the row is dense
  notices<Proposal>(good, rows, [](Proposal& p) { p.kind[0] = Kind::kDense; });  // the row is not
  notices<Proposal>(good, rows, [](Proposal& p) { p.kind[1] = Kind::kKeep; });   // what are they for?
  notices<Proposal>(good, rows, [](Proposal& p) { p.candidates.ids[1] = 2; });   // not visible
  notices<Proposal>(good, rows, [](Proposal& p) { p.candidates.ids = {1, 0, 0, 1}; });
}

TEST(Invariants, OfLedgers) {
  const Rows rows = example_rows();
  Ledger good;
  good.empty = false;
  good.route = lists_of({{0}, {1}, {0, 1, 2}, {0}});
  good.near = lists_of({{}, {0}, {}, {}});
  good.probes = lists_of({{}, {}, {}, {}});
  good.age.assign(8, 0);
  good.scored.assign(8, 0);
  good.swaps.assign(8, 0);
  EXPECT_TRUE(holds(good, rows, kHeads));
  notices<Ledger>(good, rows, [](Ledger& l) { l.empty = true; });
  notices<Ledger>(good, rows, [](Ledger& l) { l.age.pop_back(); });
  notices<Ledger>(good, rows, [](Ledger& l) { l.near.clear(); });
  notices<Ledger>(good, rows, [](Ledger& l) {
    l.route = lists_of({{0}, {2}, {0, 1, 2}, {0}});
  });  // not visible
  notices<Ledger>(good, rows, [](Ledger& l) {
    l.route = lists_of({{0}, {1}, {0, 2}, {0}});
  });  // dense, a hole
  notices<Ledger>(good, rows, [](Ledger& l) {
    l.near = lists_of({{}, {1}, {}, {}});
  });  // in the route already
  notices<Ledger>(good, rows, [](Ledger& l) { l.probes = lists_of({{}, {0}, {}, {}}); });  // near already
}

TEST(Invariants, AListAscendsBelowItsEnd) {
  const auto ascends = [](std::vector<int32_t> ids, int64_t n) { return ascends_below(ids, n); };
  EXPECT_TRUE(ascends({}, 0));
  EXPECT_TRUE(ascends({0, 1, 7}, 8));
  EXPECT_FALSE(ascends({0, 1, 8}, 8));
  EXPECT_FALSE(ascends({-1, 1}, 8));
  EXPECT_FALSE(ascends({1, 1}, 8));
  EXPECT_FALSE(ascends({2, 1}, 8));
}

}  // namespace
}  // namespace routerelay
