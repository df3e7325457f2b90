// SPDX-License-Identifier: Apache-2.0
// Random attention nodes in a real ggml for a number of seconds: each computed by the plug-in, found through
// GGML_BACKEND_PATH, and by the host's CPU back end, and compared. Prints counts as lines of `name value`.
//
//     soak ISA SEED SECONDS [--sparse] [--only NUMBER]
//
// ISA is the plug-in's; --sparse: its preset is, and long causal calls are not for comparing. Exits 1 at the first
// difference.
#include <chrono>
#include <map>
#include <optional>
#include <string_view>

#include "case.h"
#include "compare.h"
#include "masks.h"
#include "need.h"
#include "node.h"

namespace routerelay::soak {
namespace {

constexpr int64_t kDenseBelow = 2048;       // keys: what sparse presets leave dense
constexpr int kHostThreads = 1;             // of what is compared with: more would spin, on busy cores
constexpr uint64_t kCasesPerInstance = 50;  // then a new one, as hosts make them for a new context

struct Arguments {
  Isa isa = Isa::kScalar;
  uint64_t seed = 0;
  double seconds = 0;
  bool sparse = false;
  std::optional<uint64_t> only;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  need(argc >= 4, "arguments: ISA SEED SECONDS [--sparse] [--only NUMBER]");
  const std::map<std::string_view, Isa> isas = {{"scalar", Isa::kScalar},
                                                {"avx2", Isa::kAvx2},
                                                {"avx512", Isa::kAvx512},
                                                {"avx512bf16", Isa::kAvx512Bf16},
                                                {"amx", Isa::kAmxBf16}};
  const auto isa = isas.find(argv[1]);
  need(isa != isas.end(), "ISA is one of scalar, avx2, avx512, avx512bf16, amx");
  a.isa = isa->second;
  a.seed = std::strtoull(argv[2], nullptr, 10);
  a.seconds = std::strtod(argv[3], nullptr);
  for (int i = 4; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--sparse")
      a.sparse = true;
    else if (std::string_view(argv[i]) == "--only" && i + 1 < argc)
      a.only = std::strtoull(argv[++i], nullptr, 10);
    else
      need(false, "options: --sparse, --only NUMBER");
  }
  return a;
}

ggml_backend_dev_t device(enum ggml_backend_dev_type type) {
  ggml_backend_dev_t found = ggml_backend_dev_by_type(type);
  need(found != nullptr,
       type == GGML_BACKEND_DEVICE_TYPE_CPU ? "no CPU device" : "the plug-in is not in use");
  return found;
}

class Instance {
 public:
  explicit Instance(enum ggml_backend_dev_type type)
      : device_(device(type)), backend_(ggml_backend_dev_init(device_, nullptr)) {
    need(backend_ != nullptr, "a device gives no back end");
    set_threads_ = reinterpret_cast<ggml_backend_set_n_threads_t>(ggml_backend_reg_get_proc_address(
        ggml_backend_dev_backend_reg(device_), "ggml_backend_set_n_threads"));
  }
  ~Instance() { ggml_backend_free(backend_); }
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  ggml_backend_t get() const { return backend_; }
  bool supports(const ggml_tensor* node) const { return ggml_backend_dev_supports_op(device_, node); }
  void compute(const Nodes::Graph& graph, int threads) {
    set_threads_(backend_, threads);
    need(ggml_backend_graph_compute(backend_, graph.graph) == GGML_STATUS_SUCCESS, "a back end failed");
  }

 private:
  ggml_backend_dev_t device_;
  ggml_backend_t backend_;
  ggml_backend_set_n_threads_t set_threads_;
};

enum class Fate : uint8_t { kDeclined, kDelegated, kTaken };

// The rule of docs/llama.md, in the words of a case.
Fate fate_of(const Case& c, const Nodes& nodes) {
  if (c.kv == DType::kF32 || c.mask_heads > 1) return Fate::kDeclined;
  const bool gaps_between_streams = c.q_layout == Layout::kContiguous && c.q_heads > 1;
  if (c.streams > 1 && (gaps_between_streams || !nodes.streams_agree())) return Fate::kDeclined;
  return c.mask == MaskKind::kFinite ? Fate::kDelegated : Fate::kTaken;
}

class Soak {
 public:
  explicit Soak(const Arguments& args) : args_(args), cpu_(GGML_BACKEND_DEVICE_TYPE_CPU) {}

  // What failed, in words, or "".
  std::string run(uint64_t number) {
    const Case c = draw(args_.seed, number);
    if (plug_in_ == nullptr || number % kCasesPerInstance == 0)
      plug_in_ = std::make_unique<Instance>(GGML_BACKEND_DEVICE_TYPE_ACCEL);
    const Masks masks(c);
    if (args_.sparse && c.keys >= kDenseBelow && masks.causal()) return "";
    Nodes nodes(c, masks, cpu_.get());
    const Fate fate = fate_of(c, nodes);
    ++counts_[fate == Fate::kDeclined ? "declined" : fate == Fate::kTaken ? "taken" : "delegated"];
    const bool claimed = plug_in_->supports(nodes.ours.out);
    if (claimed != (fate != Fate::kDeclined)) return to_text(c) + ": " + (claimed ? "claimed" : "declined");
    if (!claimed) return "";
    plug_in_->compute(nodes.ours, c.threads);
    // The host's sums of a single row depend on its threads.
    cpu_.compute(nodes.same, fate == Fate::kDelegated ? c.threads : kHostThreads);
    const Comparison comparison(c, masks, nodes);
    Distance distance;
    if (fate == Fate::kDelegated) {
      distance = comparison.delegated();
    } else {
      cpu_.compute(nodes.wide, kHostThreads);
      distance = comparison.computed(args_.isa);
      Distance& worst = worst_[dtype_name(c.kv)];
      worst.largest = std::fmax(worst.largest, distance.largest);
      worst.nmse_wide = std::fmax(worst.nmse_wide, distance.nmse_wide);
      worst.nmse_same = std::fmax(worst.nmse_same, distance.nmse_same);
      ++counts_[std::string("taken_") + dtype_name(c.kv)];
      ++counts_[std::string("taken_") + kMaskNames[static_cast<size_t>(c.mask)]];
    }
    return distance.failure.empty() ? "" : to_text(c) + ": " + distance.failure;
  }

  void print() const {
    for (const auto& [name, n] : counts_) std::printf("%s %ld\n", name.c_str(), n);
    for (const auto& [dtype, worst] : worst_) {
      std::printf("worst_%s %.3g\n", dtype.c_str(), worst.largest);
      std::printf("worst_nmse_wide_%s %.3g\n", dtype.c_str(), worst.nmse_wide);
      std::printf("worst_nmse_same_%s %.3g\n", dtype.c_str(), worst.nmse_same);
    }
  }

 private:
  Arguments args_;
  Instance cpu_;
  std::unique_ptr<Instance> plug_in_;
  std::map<std::string, long> counts_;
  std::map<std::string, Distance> worst_;  // per dtype, of what is allowed
};

int run(const Arguments& args) {
  ggml_backend_load_all();
  Soak soak(args);
  std::string failure;
  uint64_t number = args.only.value_or(0);
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  do {
    failure = soak.run(number++);
  } while (failure.empty() && !args.only && seconds() < args.seconds);
  soak.print();
  if (failure.empty()) return 0;
  std::printf("failed %lu\nfailure %s\n", static_cast<unsigned long>(number - 1), failure.c_str());
  return 1;
}

}  // namespace
}  // namespace routerelay::soak

int main(int argc, char** argv) {
  return routerelay::soak::run(routerelay::soak::parse(argc, argv));
}
