// SPDX-License-Identifier: Apache-2.0
// The engine and a Pass: begin a pass per forward pass or prefill chunk, hand it the layers in order.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "routerelay/options.hpp"
#include "routerelay/report.hpp"
#include "routerelay/status.hpp"
#include "routerelay/tensor.hpp"

namespace routerelay {

enum class Isa : uint8_t { kScalar, kAvx2, kAvx512, kAvx512Bf16, kAmxBf16 };
const char* name_of(Isa isa);  // scalar, avx2, avx512, avx512bf16, amx
Result<Isa> isa_from(std::string_view name);
// What this machine can run, slowest first; AMX only after the kernel has granted its tiles.
const std::vector<Isa>& available_isas();

// Threads that belong to the caller: runs fn(0) .. fn(n - 1) at the same time, fn(0) on the calling thread, and
// returns when all have. It may leave out any but fn(0).
using Team = std::function<void(int n, const std::function<void(int)>& fn)>;

struct EngineOptions {
  std::string backend = "";  // "cpu" (default) or "reference"; ROUTERELAY_BACKEND when empty
  std::string isa = "";      // a name of `available_isas`; ROUTERELAY_ISA, then the best, when empty
  int threads = 0;           // 0: all cores
  Team team = {};            // empty: the engine starts threads of its own
  bool environment = true;   // false: ROUTERELAY_* variables are not looked at
};

// Owns the threads and the workspace. One Pass runs at a time per engine; several engines may coexist.
class Engine {
 public:
  static Result<Engine> create(const EngineOptions& options = {});
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  const char* backend() const;
  Isa isa() const;
  int threads() const;
  // From the next layer on. kInvalidArgument unless 1 <= threads.
  Status set_threads(int threads);
  // Polled between work items; true stops the layer with kAborted, its output unspecified.
  void set_abort(std::function<bool()> abort);

 private:
  friend class Pass;
  friend struct EngineAccess;  // of this library's own plug-ins
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Hides keys that a Sequence shows: sliding windows, several prompts in one cache. f16 as llama.cpp keeps it, 0 for a
// key that the query sees and -inf for one that it does not; other values are refused before anything is computed.
struct Mask {
  const uint16_t* data = nullptr;  // [q_len, k_len] of its sequence
  int64_t row_stride = 0;          // elements from one query to the next
};

struct LayerArgs {
  Tensor q;                             // [q_tokens, q_heads, head_dim] f32, bf16 or f16
  Tensor k;                             // [k_tokens, kv_heads, head_dim], also q8_0; kv_heads divides q_heads
  Tensor v;                             // as k, same dtype
  MutableTensor out;                    // as q, f32, bf16 or f16; must not overlap q, k, v
  float* lse_log2 = nullptr;            // [q_heads, q_tokens] f32, log2 of the softmax denominator; optional
  std::span<const Sequence> sequences;  // empty: one sequence, its queries at the end of its keys
  std::span<const Mask> masks;  // one per sequence, or empty; a masked layer is dense: every block shown
  float scale = 0;              // of q.k; 0 means 1/sqrt(head_dim)
  int layer = -1;  // index in the model; -1 unknown (routes, but neither relays nor counts as dense layer)
};

// One forward pass or one prefill chunk. Layers come in order; the ledger lives as long as the Pass.
class Pass {
 public:
  struct Args {
    bool final_chunk = false;  // the prompt's last, shorter chunk: every row dense
  };
  // The engine must outlive the pass. kInvalidArgument for illegal options.
  static Result<Pass> begin(Engine& engine, const Options& options, Args args);
  static Result<Pass> begin(Engine& engine, const Options& options) { return begin(engine, options, Args{}); }
  Pass(Pass&&) noexcept;
  Pass& operator=(Pass&&) noexcept;
  ~Pass();

  // Computes one layer. On an error the output is untouched, except kAborted and kOutOfMemory.
  Status layer(const LayerArgs& args);
  const Report& report() const;
  // Routes of the last layer as (row_offsets, picked): row index = q_head * n_rows + row.
  // Empty when the layer was dense.
  std::span<const int64_t> row_offsets() const;
  std::span<const int32_t> picked() const;
  // Why each of these rows was scored in full; kNone where the ledger's route or candidates were enough.
  std::span<const Cause> causes() const;

 private:
  struct Impl;
  explicit Pass(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace routerelay
