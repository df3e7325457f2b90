// SPDX-License-Identifier: Apache-2.0
#include "bench/paper/run_cases.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <span>
#include <thread>

namespace routerelay::paper {
namespace {

using RoutesOfLayer = std::vector<std::vector<int32_t>>;

int64_t common(std::span<const int32_t> a, std::span<const int32_t> b) {
  int64_t count = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) ++count;
    const bool advance_a = a[i] <= b[j], advance_b = b[j] <= a[i];
    i += advance_a;
    j += advance_b;
  }
  return count;
}

double exp_sum(std::span<const float> scores, std::span<const int32_t> ids, float shift) {
  double sum = 0;
  for (int32_t id : ids) sum += std::exp(static_cast<double>(scores[static_cast<size_t>(id)]) - shift);
  return sum;
}

// Compares every row's route of the last layer with the truth.
void tally(const Case& c, const std::vector<float>& scores, const RoutesOfLayer& truth, const RelayedRun& run,
           Outcome& out) {
  for (int r = 0; r < c.shape.rows; ++r) {
    const auto& best = truth[static_cast<size_t>(r)];
    const auto route = run.route(r);
    out.ids += static_cast<double>(common(route, best)) / c.shape.k;
    ++out.counted_rows;
    if (!c.has_mass) continue;
    const auto blocks = static_cast<size_t>(c.shape.blocks);
    const std::span<const float> row(&scores[static_cast<size_t>(r) * blocks], blocks);
    const float shift = row[static_cast<size_t>(best.front())];
    out.mass += exp_sum(row, route, shift) / exp_sum(row, best, shift);
  }
}

double overlap(const std::vector<RoutesOfLayer>& layers, int lag, int k) {
  double sum = 0;
  int64_t rows = 0;
  for (size_t l = 0; l + static_cast<size_t>(lag) < layers.size(); ++l) {
    for (size_t r = 0; r < layers[l].size(); ++r) {
      sum += static_cast<double>(common(layers[l][r], layers[l + static_cast<size_t>(lag)][r])) / k;
      ++rows;
    }
  }
  return sum / static_cast<double>(rows);
}

// One repetition: all policies see the same scores.
Result<CaseOutcome> run_repetition(const Case& c, uint64_t seed) {
  const std::unique_ptr<DriftingScores> scores = c.scores(seed);
  std::vector<std::unique_ptr<RelayedRun>> runs;
  for (const Variant& v : c.variants) runs.push_back(std::make_unique<RelayedRun>(c.shape, v.relay, seed));
  CaseOutcome out{std::vector<Outcome>(c.variants.size()), {}};
  std::vector<RoutesOfLayer> true_layers;  // for the overlaps
  for (int layer = 0; layer < c.shape.layers; ++layer) {
    scores->next_layer();
    RoutesOfLayer truth = true_routes(c.shape, scores->costly());
    for (size_t v = 0; v < runs.size(); ++v) {
      std::vector<float> cheap;
      if (c.variants[v].relay.mode == Relay::kScreen) {
        cheap = scores->cheap(c.variants[v].cheap);
        const RoutesOfLayer guess = true_routes(c.shape, cheap);
        for (size_t r = 0; r < guess.size(); ++r)
          out.variants[v].cheap_ids += static_cast<double>(common(guess[r], truth[r])) / c.shape.k;
        out.variants[v].screened_rows += c.shape.rows;
      }
      RR_TRY(runs[v]->layer(scores->costly(), cheap));
      if (layer >= c.first_counted_layer) tally(c, scores->costly(), truth, *runs[v], out.variants[v]);
    }
    true_layers.push_back(std::move(truth));
  }
  for (size_t v = 0; v < runs.size(); ++v) out.variants[v].counts = runs[v]->counts();
  for (const auto& [lag, expected] : c.overlaps) out.overlaps.push_back(overlap(true_layers, lag, c.shape.k));
  return out;
}

constexpr uint64_t kFirstSeed = 1000;

struct Task {
  size_t of_case = 0;
  uint64_t seed = 0;
};

// Longest first, so that no thread is left with a long one at the end.
std::vector<Task> tasks_of(const std::vector<Case>& cases) {
  std::vector<Task> tasks;
  for (size_t i = 0; i < cases.size(); ++i)
    for (int r = 0; r < cases[i].repetitions; ++r)
      tasks.push_back({i, kFirstSeed + static_cast<uint64_t>(r)});
  const auto work = [&](const Task& t) {
    const Case& c = cases[t.of_case];
    return static_cast<double>(c.shape.layers) * c.shape.rows * c.shape.blocks *
           static_cast<double>(c.variants.size());
  };
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const Task& a, const Task& b) { return work(a) > work(b); });
  return tasks;
}

double ratio(double a, double b) {
  return b > 0 ? a / b : 0;
}

}  // namespace

Outcome& Outcome::operator+=(const Outcome& o) {
  counts += o.counts;
  counted_rows += o.counted_rows;
  ids += o.ids;
  mass += o.mass;
  cheap_ids += o.cheap_ids;
  screened_rows += o.screened_rows;
  return *this;
}
double Outcome::rerouted() const {
  return ratio(static_cast<double>(counts.rerouted), static_cast<double>(counts.rows));
}
double Outcome::recall() const {
  return ratio(ids, static_cast<double>(counted_rows));
}
double Outcome::mass_recall() const {
  return ratio(mass, static_cast<double>(counted_rows));
}
double Outcome::pairs() const {
  return ratio(static_cast<double>(counts.pairs), static_cast<double>(counts.all_pairs));
}
double Outcome::screened() const {
  return ratio(static_cast<double>(counts.screened), static_cast<double>(counts.all_pairs));
}
double Outcome::cheap_recall() const {
  return ratio(cheap_ids, static_cast<double>(screened_rows));
}
double Outcome::survivors() const {
  return ratio(static_cast<double>(counts.survivors), static_cast<double>(counts.certified_rows));
}

std::vector<std::vector<int32_t>> true_routes(const Shape& shape, const std::vector<float>& scores) {
  std::vector<std::vector<int32_t>> out;
  std::vector<int32_t> ids(static_cast<size_t>(shape.blocks));
  for (int r = 0; r < shape.rows; ++r) {
    const float* row = &scores[static_cast<size_t>(r) * ids.size()];
    std::iota(ids.begin(), ids.end(), 0);
    std::nth_element(ids.begin(), ids.begin() + shape.k, ids.end(),
                     [row](int32_t a, int32_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
    out.emplace_back(ids.begin(), ids.begin() + shape.k);
    std::sort(out.back().begin(), out.back().end());
  }
  return out;
}

Result<std::vector<CaseOutcome>> run_cases(const std::vector<Case>& cases, const RunArgs& args) {
  const std::vector<Task> tasks = tasks_of(cases);
  std::vector<CaseOutcome> done(tasks.size());
  std::vector<Status> status(tasks.size());
  std::atomic<int64_t> finished{0};
  ThreadPool pool(args.threads > 0 ? args.threads
                                   : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  Workspace workspace;
  Exec exec{pool, Isa::kScalar, workspace, args.abort};
  RR_TRY(exec.for_each(static_cast<int64_t>(tasks.size()), [&](int thread, int64_t i) {
    const auto at = static_cast<size_t>(i);
    const Case& c = cases[tasks[at].of_case];
    // The callback belongs to the caller and need not be thread-safe: only the calling thread reports.
    if (thread == 0 && args.progress)
      args.progress(c.experiment == 0 ? "fitted drift" : "experiment " + std::to_string(c.experiment),
                    static_cast<double>(finished) / static_cast<double>(tasks.size()));
    Result<CaseOutcome> result = run_repetition(c, tasks[at].seed);
    status[at] = result.status();
    if (result.ok()) done[at] = std::move(result).value();
    ++finished;
  }));
  if (args.progress) args.progress("all experiments", 1);
  // Merged in the order of the tasks, whichever ended first: sums of doubles keep their bits.
  std::vector<CaseOutcome> out(cases.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    RR_TRY(status[i]);
    CaseOutcome& to = out[tasks[i].of_case];
    to.variants.resize(done[i].variants.size());
    to.overlaps.resize(done[i].overlaps.size());
    for (size_t v = 0; v < to.variants.size(); ++v) to.variants[v] += done[i].variants[v];
    for (size_t l = 0; l < to.overlaps.size(); ++l) to.overlaps[l] += done[i].overlaps[l];
  }
  for (size_t i = 0; i < out.size(); ++i)
    for (double& o : out[i].overlaps) o /= cases[i].repetitions;
  return out;
}

}  // namespace routerelay::paper
