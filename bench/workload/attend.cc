// SPDX-License-Identifier: Apache-2.0
// bench attend: GFLOP/s of the attend stage, dense and over random routes, beside the ISA's peak and our own dense
// speed, all measured in turns in one process. What is timed is checked first.
#include "cpu/attend/attend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "core/convert.h"
#include "core/rng.h"
#include "cpu/attend/plan.h"
#include "workload/peak.h"
#include "workload/workload.h"

namespace routerelay {
namespace {

constexpr int kBlock = 64;

struct Case {
  int64_t keys = 0;
  double density = 1;
};

// A causal prompt of `keys` tokens; its last `queries` tokens ask.
struct Problem {
  Problem(const Case& c, int64_t queries, DType type, int64_t head_dim, const BenchArgs& args)
      : density(c.density), dtype(type), q_dtype(type == DType::kQ8_0 ? DType::kF32 : type) {
    sequence = {0, queries, 0, c.keys, c.keys - queries};
    rows = make_rows({&sequence, 1}, kBlock, kBlock);
    fill(q_bytes, q_dtype, queries * args.q_heads * head_dim, 0);
    fill(k_bytes, dtype, c.keys * args.kv_heads * head_dim, 1);
    fill(v_bytes, dtype, c.keys * args.kv_heads * head_dim, 2);
    out_bytes.resize(q_bytes.size());
    q = contiguous(q_bytes.data(), q_dtype, queries, args.q_heads, head_dim);
    k = contiguous(k_bytes.data(), dtype, c.keys, args.kv_heads, head_dim);
    v = contiguous(v_bytes.data(), dtype, c.keys, args.kv_heads, head_dim);
    out = contiguous(static_cast<void*>(out_bytes.data()), q_dtype, queries, args.q_heads, head_dim);
    scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
    make_routes(args.q_heads);
  }

  // Dense: exact causal pairs. Sparse: visited blocks count whole, the diagonal one too. 4 head_dim per pair: a
  // multiply-add for q.k and one for p.v.
  double flops() const {
    double pairs = 0;
    for (const Row& row : rows.rows)
      for (int32_t i = 0; routes.full && i < row.q_count; ++i) pairs += static_cast<double>(row.keys_of(i));
    pairs *= static_cast<double>(q.heads);
    if (!routes.full) pairs = static_cast<double>(routes.lists.ids.size()) * kBlock * kBlock;
    return 4 * static_cast<double>(q.head_dim) * pairs;
  }

  Status run(Exec& exec) const { return cpu::attend({q, k, v, rows, routes, scale, out, nullptr}, exec); }

  // Some queries of the last run against float64; the rest of a row is the same code.
  Status check(Isa isa) const {
    Philox random(2, 0);
    for (int sample = 0; sample < 16; ++sample) {
      const auto row = static_cast<int64_t>(random.below(static_cast<uint32_t>(rows.size())));
      const auto head = static_cast<int64_t>(random.below(static_cast<uint32_t>(q.heads)));
      const auto i = static_cast<int32_t>(random.below(static_cast<uint32_t>(rows.rows[row].q_count)));
      const double error = error_of(row, head, i);
      // Of values of size 1, stored in dtype: an output of 2 to 4 may be 2^-7 off in bf16 alone. On AMX q8_0's weights
      // are bf16.
      const double allowed = dtype == DType::kF32 ? 1e-5 : dtype == DType::kBF16 ? 2e-2 : 4e-3;
      if (!(error <= allowed))
        return {Code::kInternal,
                fmt::format(
                    "bench attend: isa {}, {}, head_dim {}, {} keys: output is off by {:.4g}, allowed {:.2g}",
                    name_of(isa), dtype_name(dtype), q.head_dim, k.tokens, error, allowed)};
    }
    return {};
  }

  double density;
  DType dtype, q_dtype;  // of keys and values; of queries and results
  Sequence sequence;
  Rows rows;
  Routes routes;
  Tensor q, k, v;
  MutableTensor out;
  float scale;

 private:
  // n uniform numbers of variance 1.
  static void fill(std::vector<std::byte>& bytes, DType dtype, int64_t n, uint64_t stream) {
    bytes.resize(static_cast<size_t>(bytes_of(dtype, n)));
    Philox random(1, stream);
    const auto next = [&] { return static_cast<float>(random.uniform() * 3.46 - 1.73); };
    for (int64_t i = 0; i < n && dtype != DType::kQ8_0; ++i) store_f32(bytes.data(), dtype, i, next());
    for (int64_t i = 0; i < n && dtype == DType::kQ8_0; i += kQ8Elements) {
      float block[kQ8Elements];
      for (float& x : block) x = next();
      store_q8_0(bytes.data() + bytes_of(dtype, i), block);
    }
  }

  // The diagonal, and of the blocks before it a random choice of the wished density.
  void make_routes(int q_heads) {
    routes.full = density >= 1;
    if (routes.full) return;
    Philox random(3, 0);
    routes.lists.offsets.push_back(0);
    for (int h = 0; h < q_heads; ++h)
      for (const Row& row : rows.rows) {
        int32_t wanted = std::max(1, static_cast<int32_t>(std::lround(density * row.visible_blocks))) - 1;
        // Selection sampling: each of the left blocks with the chance that fills the wish exactly.
        for (int32_t b = 0; b < row.diagonal && wanted > 0; ++b)
          if (random.below(static_cast<uint32_t>(row.diagonal - b)) < static_cast<uint32_t>(wanted)) {
            routes.lists.ids.push_back(b);
            --wanted;
          }
        routes.lists.ids.push_back(row.diagonal);
        routes.lists.offsets.push_back(static_cast<int64_t>(routes.lists.ids.size()));
      }
  }

  double error_of(int64_t row_idx, int64_t head, int32_t i) const {
    const Row& row = rows.rows[static_cast<size_t>(row_idx)];
    const int64_t kv_head = head / (q.heads / k.heads);
    std::vector<double> sum(static_cast<size_t>(q.head_dim), 0);
    double total = 0;
    const auto visit = [&](int64_t block) {
      for (int64_t j = block * kBlock; j < std::min((block + 1) * kBlock, row.keys_of(i)); ++j) {
        double dot = 0;
        for (int64_t d = 0; d < q.head_dim; ++d)
          dot += static_cast<double>(load_f32(q.at(row.q_begin + i, head), q_dtype, d)) *
                 load_f32(k.at(j, kv_head), dtype, d);
        const double weight = std::exp(dot * scale);  // logits stay below 10 here: no maximum is needed
        total += weight;
        for (int64_t d = 0; d < q.head_dim; ++d)
          sum[static_cast<size_t>(d)] += weight * load_f32(v.at(j, kv_head), dtype, d);
      }
    };
    if (routes.full)
      for (int64_t b = 0; b < row.visible_blocks; ++b) visit(b);
    else
      for (const int32_t b : routes.lists[head * rows.size() + row_idx]) visit(b);
    double worst = 0;
    for (int64_t d = 0; d < q.head_dim; ++d)
      worst = std::max(worst, std::fabs(sum[static_cast<size_t>(d)] / total -
                                        load_f32(out.at(row.q_begin + i, head), q_dtype, d)));
    return worst;
  }

  std::vector<std::byte> q_bytes, k_bytes, v_bytes, out_bytes;
};

// The configured grid, or dense 8K beside one tenth of 32K.
std::vector<Case> cases_of(const BenchArgs& args) {
  if (args.keys.empty() && args.densities.empty()) return {{8192, 1}, {32768, 0.1}};
  std::vector<Case> cases;
  const std::vector<int64_t> keys = args.keys.empty() ? std::vector<int64_t>{8192} : args.keys;
  std::vector<double> densities = args.densities.empty() ? std::vector<double>{1} : args.densities;
  std::sort(densities.begin(), densities.end(),
            std::greater<>());  // dense first: others are compared with it
  for (const int64_t n : keys)
    for (const double density : densities) cases.push_back({n, density});
  return cases;
}

// As many of the last queries as the time allows: the scalar ISA would spend a minute on a whole prompt.
int64_t queries_for(const Case& c, int64_t head_dim, const BenchArgs& args, double peak_gflops) {
  const double budget = args.seconds * peak_gflops * 1e9;
  int64_t queries = c.keys;
  const auto flops = [&] {
    return 4.0 * static_cast<double>(head_dim * args.q_heads * queries) *
           static_cast<double>(c.keys - queries / 2) * c.density;
  };
  while (queries > 4 * kBlock && flops() > budget) queries /= 2;
  return queries;
}

struct Measured {
  Problem problem;
  double best_seconds = 1e300;
};

double time_once(const Problem& problem, Exec& exec, Status& status) {
  const auto start = std::chrono::steady_clock::now();
  status = problem.run(exec);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// One (isa, dtype, head_dim): peak and every case in turns, the best of each.
Status measure(Isa isa, DType dtype, int64_t head_dim, const BenchArgs& args, std::vector<Record>& records) {
  ThreadPool pool(bench::threads_from(args.threads));
  Workspace workspace;
  Exec exec{pool, isa, workspace, {}};
  const Isa arithmetic = cpu::isa_for(isa, dtype);
  double peak = bench::measure_peak_gflops(pool, arithmetic, 0.05);
  std::vector<Measured> cases;
  for (const Case& c : cases_of(args))
    cases.push_back({Problem(c, queries_for(c, head_dim, args, peak), dtype, head_dim, args)});
  for (Measured& m : cases) {
    RR_TRY(m.problem.run(exec));
    RR_TRY(m.problem.check(isa));
  }
  const auto start = std::chrono::steady_clock::now();
  const double budget = args.seconds * static_cast<double>(cases.size());
  for (int round = 0;
       round < 3 || std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < budget;
       ++round) {
    peak = std::max(peak, bench::measure_peak_gflops(pool, arithmetic, 0.05));
    for (Measured& m : cases) {
      Status status;
      m.best_seconds = std::min(m.best_seconds, time_once(m.problem, exec, status));
      RR_TRY(status);
    }
  }
  double dense = 0;
  for (const Measured& m : cases) {
    const double gflops = m.problem.flops() / m.best_seconds * 1e-9;
    if (m.problem.routes.full) dense = gflops;
    const nlohmann::json params = {
        {"isa", name_of(isa)},        {"dtype", dtype_name(dtype)},   {"head_dim", head_dim},
        {"keys", m.problem.k.tokens}, {"density", m.problem.density}, {"queries", m.problem.q.tokens},
        {"q_heads", args.q_heads},    {"kv_heads", args.kv_heads},    {"threads", pool.threads()}};
    records.push_back({"gflops", gflops, "GFLOP/s", params});
    if (peak > 0) records.push_back({"share_of_peak", gflops / peak, "", params});
    if (!m.problem.routes.full && dense > 0)
      records.push_back({"share_of_dense", gflops / dense, "", params});
  }
  return {};
}

Status check_args(const BenchArgs& args) {
  if (args.q_heads < 1 || args.kv_heads < 1 || args.q_heads % args.kv_heads != 0)
    return {Code::kInvalidArgument,
            fmt::format("bench attend: q_heads is {}, kv_heads {}; kv_heads must divide q_heads",
                        args.q_heads, args.kv_heads)};
  for (const int64_t keys : args.keys)
    if (keys < 1 || keys > (int64_t{1} << 24))
      return {Code::kInvalidArgument, fmt::format("bench attend: keys is {}; legal: 1 to 2^24", keys)};
  for (const double density : args.densities)
    if (!(density > 0 && density <= 1))
      return {Code::kInvalidArgument,
              fmt::format("bench attend: density is {}; legal: above 0, at most 1", density)};
  return {};
}

}  // namespace

Result<std::vector<Record>> bench_attend(const BenchArgs& args) {
  if (Status status = check_args(args); !status.ok()) return status;
  const auto isas = bench::isas_from(args.isas);
  if (!isas.ok()) return isas.status();
  const auto dtypes = bench::dtypes_from(args.dtypes);
  if (!dtypes.ok()) return dtypes.status();
  const std::vector<int64_t> head_dims =
      args.head_dims.empty() ? std::vector<int64_t>{64, 128} : args.head_dims;
  const auto total = static_cast<double>(isas.value().size() * dtypes.value().size() * head_dims.size());
  std::vector<Record> records;
  int done = 0;
  for (const Isa isa : isas.value())
    for (const DType dtype : dtypes.value())
      for (const int64_t head_dim : head_dims) {
        if (Status status = cpu::supports(isa, head_dim); !status.ok()) return status;
        if (head_dim % block_elements(dtype) != 0)
          return Status(Code::kInvalidArgument,
                        fmt::format("bench attend: head_dim is {}; legal for {}: multiples of {}", head_dim,
                                    dtype_name(dtype), block_elements(dtype)));
        if (args.progress)
          args.progress(fmt::format("{} {} {}", name_of(isa), dtype_name(dtype), head_dim), done / total);
        if (Status status = measure(isa, dtype, head_dim, args, records); !status.ok()) return status;
        ++done;
      }
  return records;
}

}  // namespace routerelay
