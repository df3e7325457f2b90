// SPDX-License-Identifier: Apache-2.0
// What TraceWriter writes, Trace reads: bits, metadata, micro-batches, strides; and a failed write leaves nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "routerelay/trace.hpp"
#include "support/status.h"
#include "trace/files.h"

namespace routerelay {
namespace {

using support::bytes_of;
using support::Rows16;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TraceRoundTrip : public ::testing::Test {
 protected:
  TraceWriter writer(TraceInfo info = {}) {
    auto made = TraceWriter::create(path, std::move(info));
    EXPECT_TRUE(made.ok()) << made.status().message();
    return std::move(made).value();
  }
  Trace reopen() {
    auto opened = Trace::open(path);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }
  support::TempFolder folder;
  std::string path = folder.file("a.safetensors");
};

TEST_F(TraceRoundTrip, KeepsBitsShapesAndMetadata) {
  const Rows16 q(DType::kF32, 5, 6, 8, 1), k(DType::kBF16, 9, 2, 8, 1000), v(DType::kBF16, 9, 2, 8, 2000);
  auto w = writer({.model = "a \"model\" \xc3\xa9", .scale = 0.1f, .extra = {{"text", "notes"}}});
  RR_ASSERT_OK(w.add_layer(7, q.view, k.view, v.view));
  RR_ASSERT_OK(w.add_layer(3, q.view, v.view, k.view));
  RR_ASSERT_OK(w.finish());
  const Trace trace = reopen();
  EXPECT_EQ(trace.info().model, "a \"model\" \xc3\xa9");
  EXPECT_EQ(trace.info().scale, 0.1f);
  EXPECT_EQ(trace.info().q_offset, 4);
  EXPECT_THAT(trace.info().extra, ElementsAre(std::pair("text", "notes")));
  ASSERT_EQ(trace.layers().size(), 2u);
  EXPECT_EQ(trace.layers()[0].layer, 3);
  const TraceLayer* l = trace.find(7);
  ASSERT_TRUE(l);
  EXPECT_EQ(l->q.dtype, DType::kF32);
  EXPECT_EQ(l->k.tokens, 9);
  EXPECT_EQ(l->q.heads, 6);
  EXPECT_EQ(l->v.head_dim, 8);
  EXPECT_EQ(bytes_of(l->q), q.bytes());
  EXPECT_EQ(bytes_of(l->k), k.bytes());
  EXPECT_EQ(bytes_of(l->v), v.bytes());
  EXPECT_EQ(bytes_of(trace.find(3)->k), v.bytes());
  EXPECT_FALSE(trace.find(4));
  EXPECT_THAT(folder.names(), ElementsAre("a.safetensors"));
}

TEST_F(TraceRoundTrip, JoinsMicroBatchesOfInterleavedLayers) {
  const int64_t tokens = 11, heads = 2, dim = 4;
  const Rows16 whole(DType::kF16, tokens, heads, dim, 0);
  const auto rows = [&](int64_t from, int64_t count) {
    Tensor t = whole.view;
    t.data = t.at(from, 0);
    t.tokens = count;
    return t;
  };
  auto w = writer();
  int64_t at = 0;
  for (int64_t count : {4, 1, 6}) {
    for (int layer : {0, 1}) {
      const Tensor t = rows(at, count);
      RR_ASSERT_OK(w.add_rows(layer, t, t, t, at));
    }
    at += count;
    EXPECT_EQ(w.rows(1), at);
  }
  RR_ASSERT_OK(w.finish());
  const Trace trace = reopen();
  for (const TraceLayer& l : trace.layers())
    for (const Tensor* t : {&l.q, &l.k, &l.v}) EXPECT_EQ(bytes_of(*t), whole.bytes());
}

TEST_F(TraceRoundTrip, FirstRowsMayBringACachedPrefix) {
  const Rows16 q(DType::kF16, 2, 1, 4, 0), k(DType::kF16, 7, 1, 4, 0), more(DType::kF16, 3, 1, 4, 0);
  auto w = writer();
  RR_ASSERT_OK(w.add_rows(0, q.view, k.view, k.view, 5));
  RR_ASSERT_OK(w.add_rows(0, more.view, more.view, more.view, 7));
  RR_ASSERT_OK(w.finish());
  const Trace trace = reopen();
  EXPECT_EQ(trace.info().q_offset, 5);
  EXPECT_EQ(trace.layers()[0].q.tokens, 5);
  EXPECT_EQ(trace.layers()[0].k.tokens, 10);
}

TEST_F(TraceRoundTrip, PacksStridedRows) {
  const Rows16 rows(DType::kF16, 6, 3, 4, 0);
  Tensor head_major = rows.view;  // the same words read as [3 heads, 6 tokens, 4]
  head_major.token_stride = 4;
  head_major.head_stride = 24;
  auto w = writer();
  RR_ASSERT_OK(w.add_layer(0, head_major, rows.view, rows.view));
  RR_ASSERT_OK(w.finish());
  const Trace trace = reopen();
  const Tensor q = trace.layers()[0].q;
  for (int64_t token = 0; token < 6; ++token)
    for (int64_t head = 0; head < 3; ++head)
      EXPECT_EQ(std::memcmp(q.at(token, head), head_major.at(token, head), 8), 0);
}

TEST_F(TraceRoundTrip, WritesMoreThanOneBuffer) {
  const Rows16 rows(DType::kF16, 700, 16, 128, 0);  // 2.7 MiB a tensor
  auto w = writer();
  RR_ASSERT_OK(w.add_layer(0, rows.view, rows.view, rows.view));
  RR_ASSERT_OK(w.finish());
  EXPECT_EQ(bytes_of(reopen().layers()[0].v), rows.bytes());
}

TEST_F(TraceRoundTrip, CopiesWhatTheFileDoesNotAlign) {
  // One f16 head of 3 before the next layer's f32 query puts that on an address of 2 mod 4.
  const Rows16 half(DType::kF16, 1, 1, 3, 0), full(DType::kF32, 1, 1, 3, 5);
  auto w = writer();
  RR_ASSERT_OK(w.add_layer(0, half.view, half.view, half.view));
  RR_ASSERT_OK(w.add_layer(1, full.view, half.view, half.view));
  RR_ASSERT_OK(w.finish());
  const Trace trace = reopen();
  const Tensor q = trace.find(1)->q;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(q.data) % 4, 0u);
  EXPECT_EQ(bytes_of(q), full.bytes());
}

TEST_F(TraceRoundTrip, EmptyPromptIsATrace) {
  const Rows16 none(DType::kF32, 0, 2, 64, 0);
  auto w = writer();
  RR_ASSERT_OK(w.add_layer(0, none.view, none.view, none.view));
  RR_ASSERT_OK(w.finish());
  EXPECT_EQ(reopen().layers()[0].q.tokens, 0);
}

TEST_F(TraceRoundTrip, RefusesRowsThatDoNotFit) {
  const Rows16 q(DType::kF16, 4, 2, 8, 0), other(DType::kBF16, 4, 2, 8, 0), three(DType::kF16, 4, 3, 8, 0),
      narrow(DType::kF16, 4, 2, 4, 0);
  auto w = writer();
  RR_ASSERT_OK(w.add_rows(0, q.view, q.view, q.view, 0));
  const auto message = [&](int layer, const Tensor& a, const Tensor& b, const Tensor& c, int64_t position) {
    const Status s = w.add_rows(layer, a, b, c, position);
    EXPECT_EQ(s.code(), Code::kInvalidArgument);
    return s.message();
  };
  EXPECT_EQ(message(-1, q.view, q.view, q.view, 0), "trace: layer -1: legal: 0..65535");
  EXPECT_THAT(message(0, q.view, q.view, q.view, 0),
              HasSubstr("4 queries from position 0, and 4 keys behind the 4"));
  EXPECT_THAT(message(0, q.view, q.view, q.view, -1), HasSubstr("position is -1; legal: from 0"));
  EXPECT_THAT(message(0, q.view, q.view, q.view, std::numeric_limits<int64_t>::max()),
              HasSubstr("4 queries from position 9223372036854775807"));
  EXPECT_EQ(message(0, other.view, other.view, other.view, 4),
            "trace: layer 0: q rows are bf16 of 2 heads of 8, before f16 of 2 of 8");
  EXPECT_THAT(message(1, q.view, q.view, other.view, 0), HasSubstr("k and v differ in shape or dtype"));
  EXPECT_THAT(message(1, three.view, q.view, q.view, 0), HasSubstr("q has 3 heads of 8, k 2 of 8"));
  EXPECT_THAT(message(1, narrow.view, q.view, q.view, 0), HasSubstr("q has 2 heads of 4, k 2 of 8"));
  Tensor blocks = q.view;
  blocks.dtype = DType::kQ8_0;
  EXPECT_EQ(message(1, q.view, blocks, blocks, 0),
            "trace: layer 1: k is q8_0; a trace holds f32, bf16 or f16: convert it");
  Tensor null = q.view;
  null.data = nullptr;
  EXPECT_EQ(message(1, null, q.view, q.view, 0), "trace: layer 1: q.data is null");
  Tensor negative = q.view;
  negative.tokens = -4;
  EXPECT_THAT(message(1, negative, q.view, q.view, 0), HasSubstr("q is [-4, 2, 8]"));
  Tensor endless = q.view;
  endless.tokens = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(w.add_layer(1, negative, endless, endless).message(), HasSubstr("for -4 queries"));
  EXPECT_EQ(w.add_layer(0, q.view, q.view, q.view).message(), "trace: layer 0: added twice");
  EXPECT_EQ(w.rows(0), 4);
  EXPECT_EQ(w.rows(1), 0);
}

TEST_F(TraceRoundTrip, FinishRefusesUnevenLayers) {
  const Rows16 four(DType::kF16, 4, 1, 8, 0), two(DType::kF16, 2, 1, 8, 0);
  auto w = writer();
  EXPECT_EQ(w.finish().message(), "trace: no layer was added");
  RR_ASSERT_OK(w.add_layer(0, four.view, four.view, four.view));
  RR_ASSERT_OK(w.add_layer(5, two.view, two.view, two.view));
  EXPECT_EQ(w.finish().message(),
            "trace: layer 5: 2 queries from position 0, layer 0 has 4 from 0; expected the same");
  EXPECT_THAT(folder.names(), IsEmpty());
  RR_ASSERT_OK(w.add_rows(5, two.view, two.view, two.view, 2));
  RR_ASSERT_OK(w.finish());
  EXPECT_THAT(w.finish().message(), HasSubstr("finished before"));
  EXPECT_THAT(w.add_rows(5, two.view, two.view, two.view, 4).message(), HasSubstr("finished before"));
}

TEST_F(TraceRoundTrip, WithoutFinishTheOldFileStays) {
  support::write_bytes(path, "old");
  const Rows16 rows(DType::kF16, 4, 1, 8, 0);
  {
    auto w = writer();
    RR_ASSERT_OK(w.add_layer(0, rows.view, rows.view, rows.view));
    EXPECT_THAT(folder.names(), ElementsAre("a.safetensors"));
  }
  EXPECT_EQ(support::read_bytes(path), "old");
  auto w = writer();
  RR_ASSERT_OK(w.add_layer(0, rows.view, rows.view, rows.view));
  RR_ASSERT_OK(w.finish());
  EXPECT_EQ(reopen().layers().size(), 1u);
}

TEST_F(TraceRoundTrip, FailsWhereItCannotWrite) {
  const auto missing = TraceWriter::create(folder.file("no/such/a.safetensors"), {});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), Code::kDeviceError);
  EXPECT_THAT(missing.status().message(), HasSubstr("No such file or directory"));
  const auto device = TraceWriter::create("/dev/null", {});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().message(), "trace: /dev/null exists and is not a regular file");
  const auto reserved = TraceWriter::create(path, {.extra = {{"scale", "1"}}});
  ASSERT_FALSE(reserved.ok());
  EXPECT_EQ(reserved.status().message(), "trace: extra metadata \"scale\" is a name of the format");
  const auto scale = TraceWriter::create(path, {.scale = -1});
  ASSERT_FALSE(scale.ok());
  EXPECT_EQ(scale.status().message(), "trace: scale is -1; legal: finite, from 0");
}

TEST_F(TraceRoundTrip, AFolderInTheWayLeavesNothing) {
  const Rows16 rows(DType::kF16, 4, 1, 8, 0);
  auto w = writer();
  RR_ASSERT_OK(w.add_layer(0, rows.view, rows.view, rows.view));
  ASSERT_EQ(::mkdir(path.c_str(), 0777), 0);
  const Status status = w.finish();
  EXPECT_EQ(status.code(), Code::kDeviceError);
  EXPECT_THAT(status.message(), HasSubstr("rename"));
  EXPECT_THAT(folder.names(), ElementsAre("a.safetensors"));
}

}  // namespace
}  // namespace routerelay
