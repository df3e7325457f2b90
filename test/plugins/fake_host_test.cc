// SPDX-License-Identifier: Apache-2.0
// The plug-in inside a fake host: handshake, device, calls taken and calls delegated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <immintrin.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "attention_node.h"
#include "core/cpu_features.h"
#include "fake_ggml.h"
#include "handshake.h"
#include "host.h"
#include "routerelay/plugin.h"

namespace routerelay::ggml {
namespace {

using testing::HasSubstr;

// --- The adapter alone, against hosts bent in one place each.

class Handshake : public testing::Test {
 protected:
  ~Handshake() override { fake() = {}; }
  static Status greet() {
    Result<Host> host = find_host(fake_code(), false);
    if (!host.ok()) return host.status();
    return shake_hands(host.value(), reinterpret_cast<const void*>(&greet));
  }
};

TEST_F(Handshake, FindsFunctionsNumbersAndApi) {
  const Result<Host> host = find_host(fake_code(), false);
  ASSERT_TRUE(host.ok()) << host.status().message();
  EXPECT_EQ(host.value().api, kFakeApi);
  EXPECT_EQ(host.value().version, kFakeVersion);
  EXPECT_EQ(host.value().op.flash_attn_ext, kFakeFlashAttention);
  EXPECT_TRUE(host.value().op.is_free(2));
  EXPECT_FALSE(host.value().op.is_free(kFakeMulMat));
  EXPECT_TRUE(greet().ok());
}

TEST_F(Handshake, RefusesUntestedVersionsUnlessAllowed) {
  for (const char* version : {"0.9.11", "0.9.11-dev", "0.17.0", "0.20.2", "0.21.0", "0.26.0", "0.27.1-dev"})
    EXPECT_TRUE(check_version(version, false).ok()) << version;
  for (const char* version : {"0.9.1", "0.9.12", "0.9.110", "0.16.9", "0.2", "0.20", "0.28.0", "0.200.1",
                              "1.26.0", "", "nonsense"}) {
    EXPECT_THAT(check_version(version, false).message(), HasSubstr("accepted: 0.9.11 and 0.17 to 0.27;"))
        << version;
    EXPECT_TRUE(check_version(version, true).ok());
  }
  fake().version = "0.99.0";
  EXPECT_THAT(find_host(fake_code(), false).status().message(), HasSubstr("0.99.0"));
}

TEST_F(Handshake, TellsApiAndLayoutByTheSymbols) {
  const auto told = [](bool has_2d_copies, bool has_alloc_n) {
    const Abi abi = abi_of(has_2d_copies, has_alloc_n).value();
    return std::pair(abi.api, abi.layout.bytes);
  };
  EXPECT_EQ(told(false, false), std::pair(2, sizeof(BackendBefore010)));
  EXPECT_EQ(told(true, false), std::pair(2, sizeof(BackendSince010)));
  EXPECT_EQ(told(true, true), std::pair(3, sizeof(BackendSince010)));
  EXPECT_FALSE(abi_of(false, true).ok());
}

TEST_F(Handshake, NoticesEveryLayoutButTheOwn) {
  Host host = find_host(fake_code(), false).value();
  for (const BackendLayout& layout : {kBackendBefore010, kBackendSince010}) {
    host.layout = layout;
    const Status status = shake_hands(host, reinterpret_cast<const void*>(&greet));
    EXPECT_EQ(status.ok(), layout.bytes == sizeof(FakeBackend));
    if (!status.ok()) {
      EXPECT_THAT(status.message(), HasSubstr("has another layout: backend."));
    }
  }
}

TEST_F(Handshake, NamesTheMemberThatMoved) {
  fake().bend = Bend::kTensorSources;
  EXPECT_THAT(greet().message(), HasSubstr("node.src[0]"));
  fake().bend = Bend::kTensorStrides;
  EXPECT_THAT(greet().message(), HasSubstr("k.nb[1] is 144, expected 432"));
  fake().bend = Bend::kBackendDevice;
  EXPECT_THAT(greet().message(), HasSubstr("backend.device"));
}

TEST_F(Handshake, NamesWhatIsMissing) {
  fake().bend = Bend::kNoCpu;
  EXPECT_THAT(greet().message(), HasSubstr("no CPU device yet"));
  fake().bend = Bend::kNoFlashAttention;
  EXPECT_THAT(greet().message(), HasSubstr("no operation FLASH_ATTN_EXT"));
}

// --- The shared object, as a host loads it.

class Plugin : public testing::Test {
 protected:
  // The nodes are smaller than what the plug-in claims when nobody says.
  static void SetUpTestSuite() { ::setenv("ROUTERELAY_MIN_KV", "0", 0); }
  void SetUp() override {
    registry_ = fake_load(RR_PLUGIN_PATH).registry;
    ASSERT_NE(registry_, nullptr);
    device_ = registry_->table.get_device(registry_, 0);
    backend_ = device_->table.init_backend(device_, nullptr);
    ASSERT_NE(backend_, nullptr);
    set_threads_(2);
    fake().graphs_computed = 0;
  }
  void TearDown() override {
    if (backend_ != nullptr) functions().free(backend_);
  }
  const FakeBackend& functions() { return *reinterpret_cast<FakeBackend*>(backend_); }
  void set_threads_(int n) {
    void* f = registry_->table.get_proc_address(registry_, "ggml_backend_set_n_threads");
    reinterpret_cast<void (*)(Backend*, int)>(f)(backend_, n);
  }
  int32_t compute(AttentionNode& a) {
    HostTensor reshape{};
    reshape.op = 2;
    Graph graph{{&a.node, &reshape}};
    return functions().graph_compute(backend_, &graph);
  }
  // The largest difference to the fake's own float64 attention.
  static float error(AttentionNode& a) {
    const std::vector<float> ours = a.out();
    a.forget_out();
    Graph graph{{&a.node}};
    Backend* cpu = reinterpret_cast<Backend*>(1);  // the fake's CPU backend reads nothing of itself
    ggml_backend_graph_compute(cpu, &graph);
    float worst = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      if (!(std::abs(ours[i] - a.out()[i]) <= worst)) worst = std::abs(ours[i] - a.out()[i]);
    }
    return worst;
  }

  Registry* registry_ = nullptr;
  Device* device_ = nullptr;
  Backend* backend_ = nullptr;
};

// bf16 keeps 8 bits of probabilities and values: 2^-8 of values that are at most about 4.
constexpr float kBf16Error = 4.0f / 256;

TEST_F(Plugin, IsAnAcceleratorOnTheHostsBuffers) {
  EXPECT_EQ(registry_->api_version, kFakeApi);
  EXPECT_EQ(registry_->table.get_device_count(registry_), 1u);
  EXPECT_EQ(registry_->table.get_device(registry_, 1), nullptr);
  EXPECT_STREQ(device_->table.get_name(device_), "RouteRelay");
  EXPECT_EQ(device_->table.get_type(device_), kDeviceAccel);
  DeviceProps props{};
  props.caps[4] = true;  // not ours to write
  device_->table.get_props(device_, &props);
  EXPECT_EQ(props.type, kDeviceAccel);
  EXPECT_EQ(props.memory_total, 0u);
  EXPECT_TRUE(props.caps[4]);
  EXPECT_EQ(device_->table.get_buffer_type(device_), ggml_backend_cpu_buffer_type());
  EXPECT_TRUE(device_->table.supports_buft(device_, ggml_backend_cpu_buffer_type()));
  EXPECT_FALSE(device_->table.supports_buft(device_, nullptr));
  EXPECT_EQ(device_->table.offload_op, nullptr);
  EXPECT_EQ(functions().graph_optimize, nullptr);
  EXPECT_EQ(functions().device, device_);
}

TEST_F(Plugin, LoadingAgainGivesTheSameEntry) {
  EXPECT_EQ(fake_load(RR_PLUGIN_PATH).registry, registry_);
  EXPECT_EQ(fake_load(RR_PLUGIN_PATH).score, 1);
}

TEST_F(Plugin, ClaimsPromptAttentionAndShapesOnly) {
  AttentionNode prompt({}), decode({.rows = 1});
  HostTensor view{}, product{};
  view.op = 3;
  product.op = kFakeMulMat;
  EXPECT_TRUE(device_->table.supports_op(device_, &prompt.node));
  EXPECT_FALSE(device_->table.supports_op(device_, &decode.node));
  EXPECT_TRUE(device_->table.supports_op(device_, &view));
  EXPECT_FALSE(device_->table.supports_op(device_, &product));
}

TEST_F(Plugin, TakesCausalChunks) {
  for (const NodeShape& shape :
       {NodeShape{}, NodeShape{.rows = 77, .position = 130},
        NodeShape{.q_heads = 9, .kv_heads = 3, .streams = 2, .position = 64, .layer = 5},
        NodeShape{.dim = 128, .position = 192, .layer = 6},
        NodeShape{.position = 130, .kv_dtype = DType::kBF16},
        NodeShape{.rows = 77, .streams = 2, .position = 130, .kv_dtype = DType::kQ8_0},
        NodeShape{.dim = 96, .position = 64, .kv_dtype = DType::kQ8_0}}) {
    AttentionNode a(shape);
    ASSERT_EQ(compute(a), kStatusSuccess);
    EXPECT_EQ(fake().graphs_computed, 0);
    EXPECT_LT(error(a), kBf16Error);
    fake().graphs_computed = 0;
  }
}

TEST_F(Plugin, TakesAnyMaskOfZeroAndMinusInfinity) {
  AttentionNode window({.position = 128}), slots({.rows = 96, .position = 128}), padded({.position = 128}),
      streams({.streams = 2, .position = 64}), second_slot({.position = 128});
  for (int64_t row = 0; row < 64; ++row)
    for (int64_t key = 0; key <= row; ++key) window.mask_at(row, key) = kHalfMinusInf;
  for (int64_t row = 0; row < 64; ++row)
    for (int64_t key = 0; key < 77; ++key) second_slot.mask_at(row, key) = kHalfMinusInf;
  for (int64_t row = 0; row < 96; ++row)
    for (int64_t key = 0; key < 256; ++key)
      slots.mask_at(row, key) = key % 3 == row % 3 ? kHalfZero : kHalfMinusInf;
  for (int64_t key = 0; key < 256; ++key) padded.mask_at(63, key) = kHalfMinusInf;
  streams.mask_at(9, 3, 1) = kHalfMinusInf;
  for (AttentionNode* a : {&window, &slots, &padded, &streams, &second_slot}) {
    ASSERT_EQ(compute(*a), kStatusSuccess);
    EXPECT_EQ(fake().graphs_computed, 0);
    EXPECT_LT(error(*a), kBf16Error);
    fake().graphs_computed = 0;
  }
}

TEST_F(Plugin, DelegatesOtherValues) {
  AttentionNode first({.position = 128}), last({.position = 128});
  first.mask_at(0, 0) = f32_to_f16(-1.5f);
  last.mask_at(5, 5) = kHalfMinusInf;
  last.mask_at(63, 5) = f32_to_f16(0.5f);
  int delegated = 0;
  for (AttentionNode* a : {&first, &last}) {
    fake().graphs_computed = delegated;
    set_threads_(3);
    ASSERT_EQ(compute(*a), kStatusSuccess);
    EXPECT_EQ(fake().graphs_computed, ++delegated);
    EXPECT_EQ(fake().cpu_threads, 3);
    EXPECT_EQ(error(*a), 0.0f);
  }
}

TEST_F(Plugin, NodesWithoutTheComputeFlagAreLeftAlone) {
  AttentionNode a({});
  a.node.flags = 0;
  ASSERT_EQ(compute(a), kStatusSuccess);
  EXPECT_TRUE(std::isnan(a.out()[0]));
}

TEST_F(Plugin, AbortIsHonouredAndForgotten) {
  void* f = registry_->table.get_proc_address(registry_, "ggml_backend_set_abort_callback");
  const auto set_abort = reinterpret_cast<void (*)(Backend*, bool (*)(void*), void*)>(f);
  AttentionNode a({});
  set_abort(
      backend_, [](void*) { return true; }, nullptr);
  EXPECT_EQ(compute(a), kStatusAborted);
  EXPECT_EQ(fake().graphs_computed, 0);
  set_abort(backend_, nullptr, nullptr);
  EXPECT_EQ(compute(a), kStatusSuccess);
  EXPECT_LT(error(a), kBf16Error);
}

TEST_F(Plugin, LeavesTheRoundingModeAsFound) {
  constexpr unsigned kMasked = 0x1f80, kUpwards = 0x4000, kFlushToZero = 0x8000, kDenormalsAreZero = 0x40,
                     kSticky = 0x3f;
  constexpr unsigned kHosts = kMasked | kUpwards | kFlushToZero | kDenormalsAreZero;
  AttentionNode a({});
  const unsigned before = _mm_getcsr();
  _mm_setcsr(kHosts);
  const int status = compute(a);
  const unsigned after = _mm_getcsr();
  _mm_setcsr(before);
  EXPECT_EQ(status, kStatusSuccess);
  EXPECT_EQ(after & ~kSticky, kHosts);
  EXPECT_LT(error(a), kBf16Error);
}

// ggml configures a thread's tiles once, and would die at its next tile instruction.
TEST_F(Plugin, LeavesTheTileConfigurationAsFound) {
  if (!isa_available(Isa::kAmxBf16)) GTEST_SKIP() << "this machine has no AMX";
  struct alignas(64) Config : std::array<uint8_t, 64> {};
  Config hosts{}, after{};
  hosts[0] = 1;    // palette
  hosts[16] = 32;  // tile 0: bytes a row
  hosts[48] = 8;   // rows
  AttentionNode a({});
  __asm__ volatile("ldtilecfg %0" : : "m"(hosts));
  const int status = compute(a);
  __asm__ volatile("sttilecfg %0\n\ttilerelease" : "=m"(after));
  EXPECT_EQ(status, kStatusSuccess);
  EXPECT_EQ(after, hosts);
  EXPECT_LT(error(a), kBf16Error);
}

TEST_F(Plugin, ReportsWhenAsked) {
  const auto report =
      reinterpret_cast<rr_plugin_report_fn>(registry_->table.get_proc_address(registry_, RR_PLUGIN_REPORT));
  const auto read = [&] {
    std::string text(report(nullptr, 0), '?');
    EXPECT_EQ(report(text.data(), text.size()), text.size()) << "cut by one: no room for the zero";
    EXPECT_EQ(text.back(), '\0');
    text.resize(text.size() + 1);
    EXPECT_EQ(report(text.data(), text.size()), text.size() - 1);
    return nlohmann::json::parse(text.c_str());
  };
  AttentionNode a({});
  ASSERT_EQ(compute(a), kStatusSuccess);
  const int64_t calls = read()["calls"];
  EXPECT_EQ(read()["preset"].get<std::string>().find("exact"), 0U);
  ASSERT_EQ(compute(a), kStatusSuccess);
  EXPECT_EQ(read()["calls"], calls + 1);
}

TEST_F(Plugin, TakesAnotherPresetBetweenMicroBatches) {
  const auto use =
      reinterpret_cast<rr_plugin_use_fn>(registry_->table.get_proc_address(registry_, RR_PLUGIN_USE));
  const auto routed = [&] {
    // Small blocks of a long context, so that a sparse preset leaves some out.
    AttentionNode a({.rows = 64, .keys = 1024, .cells = 1024, .position = 960});
    EXPECT_EQ(compute(a), kStatusSuccess);
    return error(a);
  };
  char error_text[256] = "?";
  EXPECT_LT(routed(), kBf16Error);
  ASSERT_EQ(
      use("balanced", "dense_below=0;selection.least=1;selection.p=0.1;selection.floor=0", error_text, 256),
      0);
  EXPECT_STREQ(error_text, "");
  EXPECT_GT(routed(), kBf16Error);
  EXPECT_EQ(use("turbo", nullptr, error_text, 256), 1);
  EXPECT_THAT(error_text, HasSubstr("preset is 'turbo'; legal: exact, careful, balanced, fast"));
  EXPECT_EQ(use(nullptr, nullptr, nullptr, 0), 1);
  EXPECT_EQ(use("balanced", "relay.wide=many", error_text, 8), 1);
  EXPECT_EQ(std::strlen(error_text), 7u);
  EXPECT_GT(routed(), kBf16Error) << "what is refused changes nothing";
  ASSERT_EQ(use("exact", nullptr, error_text, 256), 0);
  EXPECT_LT(routed(), kBf16Error);
}

TEST_F(Plugin, UnknownProcAddressIsNull) {
  EXPECT_EQ(registry_->table.get_proc_address(registry_, "ggml_backend_split_buffer_type"), nullptr);
}

}  // namespace
}  // namespace routerelay::ggml
