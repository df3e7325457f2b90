// SPDX-License-Identifier: Apache-2.0
#include "cli/row_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/replay.h"
#include "core/convert.h"
#include "core/policy/forced.h"
#include "core/rows.h"
#include "core/stages.h"
#include "reference/reference.h"
#include "reference/scorer.h"

namespace routerelay::cli {
namespace {

Rows rows_of(const TraceLayer& layer, int64_t q_offset, const Options& options) {
  const Sequence whole{0, layer.q.tokens, 0, layer.k.tokens, q_offset};
  return make_rows({&whole, 1}, options.q_block, options.k_block);
}

Status check_args(const TraceLayer& layer, const RowStudyArgs& args, int64_t n_rows) {
  if (n_rows == 0) return {Code::kInvalidArgument, "the trace holds no queries"};
  if (args.head < 0 || args.head >= layer.q.heads)
    return {Code::kInvalidArgument,
            fmt::format("head is {}; layer {} has 0 to {}", args.head, args.layer, layer.q.heads - 1)};
  if (args.row < -1 || args.row >= n_rows)
    return {Code::kInvalidArgument, fmt::format("row is {}; the trace has 0 to {}", args.row, n_rows - 1)};
  return {};
}

// softmax(scale q.k) of every query of the row in f64, summed to blocks, mean over the queries.
std::vector<double> true_mass(const TraceLayer& layer, const Row& row, int head, float given_scale,
                              int k_block) {
  const double scale = given_scale > 0 ? given_scale : 1 / std::sqrt(static_cast<double>(layer.q.head_dim));
  const int64_t kv_head = head / (layer.q.heads / layer.k.heads), head_dim = layer.q.head_dim;
  std::vector<double> mass(static_cast<size_t>(row.visible_blocks), 0),
      logit(static_cast<size_t>(row.visible_keys));
  std::vector<float> q(static_cast<size_t>(head_dim));
  for (int32_t i = 0; i < row.q_count; ++i) {
    const std::byte* query = layer.q.at(row.q_begin + i, head);
    for (int64_t c = 0; c < head_dim; ++c) q[static_cast<size_t>(c)] = load_f32(query, layer.q.dtype, c);
    const int64_t keys = row.keys_of(i);
    double best = -INFINITY, total = 0;
    for (int64_t j = 0; j < keys; ++j) {
      const std::byte* key = layer.k.at(j, kv_head);
      float dot = 0;
      for (int64_t c = 0; c < head_dim; ++c)
        dot += q[static_cast<size_t>(c)] * load_f32(key, layer.k.dtype, c);
      logit[static_cast<size_t>(j)] = scale * dot;
      best = std::max(best, scale * dot);
    }
    for (int64_t j = 0; j < keys; ++j) total += std::exp(logit[static_cast<size_t>(j)] - best);
    for (int64_t j = 0; j < keys; ++j)
      mass[static_cast<size_t>(j / k_block)] +=
          std::exp(logit[static_cast<size_t>(j)] - best) / total / row.q_count;
  }
  return mass;
}

// What the router says of every visible block, whatever relay let it score. The reference is asked: it is the
// definition, and one row costs it nothing.
Result<std::vector<float>> estimates(const TraceLayer& layer, const Rows& rows, int64_t row, int head,
                                     float scale, const Options& options) {
  ThreadPool pool(1);
  Workspace workspace;
  Exec exec{.pool = pool, .workspace = workspace, .abort = {}};
  const SummaryNeeds needs = SummaryNeeds::of(options);
  Summary summary;
  summary.resize(needs, rows.n_blocks, layer.k.heads, layer.k.head_dim, options.k_block);
  if (needs.any()) RR_TRY(reference::stages().summarize({layer.k, layer.v, rows, needs, summary}, exec));
  const float resolved = scale > 0 ? scale : 1 / std::sqrt(static_cast<float>(layer.q.head_dim));
  reference::Scorer scorer(layer.q, layer.k, rows, summary, options.router, resolved);
  std::vector<int32_t> ids(static_cast<size_t>(rows.rows[static_cast<size_t>(row)].visible_blocks));
  std::iota(ids.begin(), ids.end(), 0);
  std::vector<float> score(ids.size()), rescue(ids.size());
  const ScoreRequest request{head, ids, score.data(), rescue.data()};
  scorer.score(0, row, static_cast<int>(head / (layer.q.heads / layer.k.heads)), {&request, 1});
  return score;
}

void rank(std::vector<BlockStudy>& blocks, const Forced& forced) {
  std::vector<BlockStudy*> competing;
  for (BlockStudy& b : blocks)
    if (!forced.holds(b.block)) competing.push_back(&b);
  std::stable_sort(competing.begin(), competing.end(),
                   [](const BlockStudy* a, const BlockStudy* b) { return a->estimate > b->estimate; });
  int next = 1;
  for (BlockStudy* b : competing) b->rank = next++;
}

Why why_picked(int32_t block, const Forced& forced, const Row& row) {
  if (block < forced.sink) return Why::kSink;
  if (block >= row.diagonal) return forced.holds(block) ? Why::kDiagonal : Why::kScore;
  return forced.holds(block) ? Why::kLocal : Why::kScore;
}

std::vector<int32_t> route_of(const Pass& pass, int64_t list) {
  const auto offsets = pass.row_offsets();
  if (list + 1 >= static_cast<int64_t>(offsets.size())) return {};  // a dense layer, or one with fewer heads
  const auto ids = pass.picked();
  return {ids.begin() + offsets[static_cast<size_t>(list)],
          ids.begin() + offsets[static_cast<size_t>(list) + 1]};
}

// The row's route in the layer, and in the routed layer before it.
struct RowRoutes {
  std::vector<int32_t> now, before;
};

// Fills what the pass knows of the row.
Result<RowRoutes> replay_to_layer(Engine& engine, const Trace& trace, const Options& options, int target,
                                  int64_t list, RowStudy& study) {
  Result<Pass> pass = Pass::begin(engine, options);
  if (!pass.ok()) return pass.status();
  RowRoutes routes;
  std::vector<float> out;
  for (const TraceLayer& l : trace.layers()) {
    if (l.layer > target) break;
    out.resize(static_cast<size_t>(l.q.tokens * l.q.heads * l.q.head_dim));
    const MutableTensor view =
        contiguous(static_cast<void*>(out.data()), DType::kF32, l.q.tokens, l.q.heads, l.q.head_dim);
    RR_TRY(pass->layer(
        {.q = l.q, .k = l.k, .v = l.v, .out = view, .scale = trace.info().scale, .layer = l.layer}));
    if (l.layer < target) {
      std::vector<int32_t> route = route_of(pass.value(), list);
      if (route.empty()) continue;
      routes.before = std::move(route);
      study.layer_before = l.layer;
    } else {
      routes.now = route_of(pass.value(), list);
    }
  }
  study.relayed = pass->report().layers.back().relayed;
  const auto causes = pass->causes();
  study.cause = causes.empty() ? Cause::kDense : causes[static_cast<size_t>(list)];
  study.dense = study.cause == Cause::kDense;
  return routes;
}

}  // namespace

const char* name_of(Why why) {
  switch (why) {
    case Why::kNotPicked:
      return "not picked";
    case Why::kSink:
      return "sink";
    case Why::kLocal:
      return "local";
    case Why::kDiagonal:
      return "diagonal";
    case Why::kScore:
      return "score";
    case Why::kDense:
      return "dense";
  }
  return "";
}

Result<RowStudy> study_row(Engine& engine, const Trace& trace, const Options& options,
                           const RowStudyArgs& args) {
  const Result<std::vector<int>> known = choose_layers(trace, {args.layer});
  if (!known.ok()) return known.status();
  const TraceLayer& layer = *trace.find(args.layer);
  const Rows rows = rows_of(layer, trace.info().q_offset, options);
  RR_TRY(check_args(layer, args, rows.size()));
  RowStudy study;
  study.row = args.row < 0 ? rows.size() - 1 : args.row;
  study.n_rows = rows.size();
  const Row& row = rows.rows[static_cast<size_t>(study.row)];
  study.position = row.position;
  study.q_count = row.q_count;
  study.visible_keys = row.visible_keys;

  const Result<RowRoutes> routes =
      replay_to_layer(engine, trace, options, args.layer, args.head * rows.size() + study.row, study);
  if (!routes.ok()) return routes.status();
  const Result<std::vector<float>> score =
      estimates(layer, rows, study.row, args.head, trace.info().scale, options);
  if (!score.ok()) return score.status();
  const std::vector<double> mass = true_mass(layer, row, args.head, trace.info().scale, options.k_block);
  const Forced forced = Forced::of(row, options);
  const auto holds = [](const std::vector<int32_t>& ids, int32_t block) {
    return std::binary_search(ids.begin(), ids.end(), block);
  };
  for (int32_t b = 0; b < row.visible_blocks; ++b) {
    const auto i = static_cast<size_t>(b);
    const Why why = study.dense                    ? Why::kDense
                    : holds(routes.value().now, b) ? why_picked(b, forced, row)
                                                   : Why::kNotPicked;
    study.blocks.push_back({b, why, 0, score.value()[i], mass[i], holds(routes.value().before, b)});
  }
  rank(study.blocks, forced);
  return study;
}

}  // namespace routerelay::cli
