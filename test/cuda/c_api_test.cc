// SPDX-License-Identifier: Apache-2.0
// The C ABI of attend on CUDA: its frozen layout, and every way to call it wrongly. No device is touched.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <thread>

#include "routerelay/routerelay_cuda.h"

namespace {

#define RR_AT(field, at) static_assert(offsetof(rr_cuda_attend_args, field) == (at), #field " moved")
RR_AT(struct_size, 0);
RR_AT(flags, 4);
RR_AT(q, 8);
RR_AT(k, 16);
RR_AT(v, 24);
RR_AT(out, 32);
RR_AT(lse_log2, 40);
RR_AT(sequences, 48);
RR_AT(n_sequences, 56);
RR_AT(n_rows, 64);
RR_AT(row_offsets, 72);
RR_AT(picked, 80);
RR_AT(q_block, 88);
RR_AT(k_block, 92);
RR_AT(scale, 96);
RR_AT(list_heads, 104);
RR_AT(page_table, 112);
RR_AT(max_pages, 120);
RR_AT(page_stride, 128);
RR_AT(page_size, 136);
RR_AT(k_scale, 144);
RR_AT(v_scale, 152);
static_assert(sizeof(rr_cuda_attend_args) == 160);
#undef RR_AT
static_assert(RR_DEVICE_CUDA == 2 && RR_CUDA_CAUSAL == 1 && RR_E4M3 == 10);

class CudaCApi : public testing::Test {
 protected:
  CudaCApi() {
    args.struct_size = sizeof args;
    args.flags = RR_CUDA_CAUSAL;
    args.q = &q, args.k = &k, args.v = &v, args.out = &out;
  }

  static rr_tensor tensor(const int64_t* shape) {
    rr_tensor t{};
    t.data = reinterpret_cast<void*>(0x1000);  // judged, never followed
    t.device_type = RR_DEVICE_CUDA;
    t.ndim = 3;
    t.dtype_code = RR_BFLOAT, t.dtype_bits = 16, t.dtype_lanes = 1;
    t.shape = shape;
    return t;
  }

  void expect_refused(const std::string& message, rr_status code = RR_INVALID_ARGUMENT) {
    int64_t bytes = -7;
    EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), code);
    EXPECT_EQ(rr_cuda_last_error(), message);
    EXPECT_EQ(bytes, -7) << "an error writes nothing";
    EXPECT_EQ(rr_cuda_attend(&args, nullptr, 0, nullptr), code);
    EXPECT_EQ(rr_cuda_last_error(), message);
  }

  const int64_t q_shape[3] = {300, 8, 128}, k_shape[3] = {1000, 2, 128};
  rr_tensor q = tensor(q_shape), k = tensor(k_shape), v = tensor(k_shape), out = tensor(q_shape);
  rr_cuda_attend_args args{};
};

TEST_F(CudaCApi, SaysItsVersion) {
  EXPECT_STREQ(rr_cuda_version(), RR_VERSION);
}

TEST_F(CudaCApi, GivesTheWorkspaceAndClearsTheError) {
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(nullptr, &bytes), RR_INVALID_ARGUMENT);
  EXPECT_STREQ(rr_cuda_last_error(), "attend: args is null; give them");
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
  EXPECT_STREQ(rr_cuda_last_error(), "");
  EXPECT_EQ(bytes, 50432);
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, nullptr), RR_INVALID_ARGUMENT);
  EXPECT_STREQ(rr_cuda_last_error(), "attend: bytes is null; give its address");
}

TEST_F(CudaCApi, NamesTheWorkspaceThatItNeeds) {
  EXPECT_EQ(rr_cuda_attend(&args, nullptr, 0, nullptr), RR_INVALID_ARGUMENT);
  EXPECT_STREQ(rr_cuda_last_error(), "attend: workspace_bytes is 0; this call needs 50432");
  EXPECT_EQ(rr_cuda_attend(nullptr, nullptr, 0, nullptr), RR_INVALID_ARGUMENT);
  EXPECT_STREQ(rr_cuda_last_error(), "attend: args is null; give them");
}

TEST_F(CudaCApi, StructSizeAndFlags) {
  args.struct_size = 7;
  expect_refused("attend: args.struct_size is 7; set it to sizeof(*args), 160 here");
  args.struct_size = sizeof args;
  args.flags = 3;
  expect_refused("attend: args.flags is 0x3; this version knows 0x1");
}

// An older caller's struct ends before `scale`: what lies behind it is not read.
TEST_F(CudaCApi, ReadsNoMoreThanTheCallerHas) {
  args.scale = -1;
  args.struct_size = offsetof(rr_cuda_attend_args, scale);
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
  args.struct_size = sizeof args;
  expect_refused("attend: scale is -1; legal: 1e-37 to 1e38, or 0 for 1 / sqrt(head_dim)");
}

TEST_F(CudaCApi, ANewerCallersStructIsLonger) {
  struct {
    rr_cuda_attend_args known;
    int64_t later;
  } longer{args, 5};
  longer.known.struct_size = sizeof longer;
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&longer.known, &bytes), RR_OK) << rr_cuda_last_error();
}

TEST_F(CudaCApi, Tensors) {
  const rr_tensor good = q;
  args.q = nullptr;
  expect_refused("attend: q is null; give a tensor");
  args.q = &q, args.out = nullptr;
  expect_refused("attend: out is null; give a tensor");
  args.out = &out;
  q.device_type = RR_DEVICE_CPU;
  expect_refused("attend: q.device_type is 1; legal: 2 (CUDA)");
  q = good, q.ndim = 4;
  expect_refused("attend: q.ndim is 4; legal: 3 (tokens, heads, head_dim)");
  q = good, q.shape = nullptr;
  expect_refused("attend: q.shape is null; give its three sizes");
  q = good, q.dtype_bits = 32;
  expect_refused(
      "attend: q.dtype is code 4, 32 bits, 1 lanes; legal: (2, 16, 1), (4, 16, 1), for k and v also (10, 8, "
      "1)");
  q = good, q.dtype_code = RR_Q8_0;
  expect_refused(
      "attend: q.dtype is code 128, 16 bits, 1 lanes; legal: (2, 16, 1), (4, 16, 1), for k and v also (10, "
      "8, 1)");
  q = good, q.dtype_lanes = 2;
  expect_refused(
      "attend: q.dtype is code 4, 16 bits, 2 lanes; legal: (2, 16, 1), (4, 16, 1), for k and v also (10, 8, "
      "1)");
  const int64_t strides[3] = {1024, 128, 2};
  q = good, q.strides = strides;
  expect_refused("attend: q.strides[2] is 2; legal: 1");
  q = good, q.data = nullptr;
  q.byte_offset = 16;  // of nothing is still nothing
  expect_refused("attend: q.data is null; give device memory");
  const int64_t endless[3] = {300, INT64_MAX, 128};
  q = good, q.shape = endless;
  expect_refused("attend: q.heads is 9223372036854775807; legal: 1 to 65536");
  q = good, q.byte_offset = 8;
  expect_refused("attend: q.data is not aligned to 16 bytes; move it");
}

TEST_F(CudaCApi, StridesAndByteOffset) {
  const int64_t head_major[3] = {128, 300 * 128, 1}, odd[3] = {129, 300 * 128, 1};
  q.strides = head_major;
  q.data = reinterpret_cast<void*>(0x1008), q.byte_offset = 8;
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
  q.strides = odd;
  expect_refused("attend: q.token_stride is 129; legal: multiples of 8 from head_dim (128) to 549755813880");
}

TEST_F(CudaCApi, Dtypes) {
  for (rr_tensor* t : {&q, &k, &v, &out}) t->dtype_code = RR_FLOAT;
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
  out.dtype_code = RR_BFLOAT;
  expect_refused("attend: out.dtype is bf16, q's is f16; they must be equal");
}

TEST_F(CudaCApi, E4M3) {
  const auto make_e4m3 = [](rr_tensor& t) { t.dtype_code = RR_E4M3, t.dtype_bits = 8; };
  make_e4m3(k), make_e4m3(v);
  args.k_scale = args.v_scale = reinterpret_cast<const float*>(0x1000);
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
  v.dtype_bits = 16;
  expect_refused(
      "attend: v.dtype is code 10, 16 bits, 1 lanes; legal: (2, 16, 1), (4, 16, 1), for k and v also (10, 8, "
      "1)");
  make_e4m3(v), make_e4m3(q);
  expect_refused("attend: q.dtype is e4m3; legal: bf16, f16; only k and v may be e4m3");
}

TEST_F(CudaCApi, Scales) {
  args.k_scale = reinterpret_cast<const float*>(0x1000);
  expect_refused("attend: k_scale is given and k.dtype is bf16; legal with e4m3 only");
  args.struct_size = offsetof(rr_cuda_attend_args, k_scale);  // of a caller who does not know of it
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
  args.struct_size = sizeof args;
  args.k_scale = nullptr, args.v_scale = reinterpret_cast<const float*>(0x1000);
  expect_refused("attend: v_scale is given and k.dtype is bf16; legal with e4m3 only");
}

TEST_F(CudaCApi, BlocksAndSequences) {
  args.q_block = 128, args.k_block = 32;
  expect_refused(
      "attend: dtype bf16, head_dim 128, rows of 128 queries and blocks of 32 keys are not in this build; it "
      "has bf16, f16, head_dim 64, 128, 256, rows of 64, 128 and blocks of 64, 128",
      RR_UNSUPPORTED);
  args.k_block = 0;
  args.n_sequences = 2;
  expect_refused("attend: n_sequences is 2 and sequences is null; give their array");
  args.sequences = reinterpret_cast<const rr_sequence*>(0x1000);
  expect_refused("attend: n_rows is 0; give the rows of all sequences");
  args.n_rows = 4;
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
  EXPECT_EQ(bytes, 50944);  // 4 rows of 8 heads, 48 bytes each, and a counter
  args.picked = reinterpret_cast<const int32_t*>(0x1000);
  expect_refused(
      "attend: one of routes.row_offsets and routes.picked is null; give both, or neither to visit every "
      "block");
}

TEST_F(CudaCApi, ListHeads) {
  args.list_heads = 3;
  expect_refused("attend: routes.heads is 3, q.heads is 8; legal: a divisor, or 0 for every query head");
  args.struct_size = offsetof(rr_cuda_attend_args, list_heads);  // of a caller who does not know of it
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
}

TEST_F(CudaCApi, Pages) {
  const int64_t pages_shape[3] = {16 * 64, 2, 128};
  k = tensor(pages_shape), v = tensor(pages_shape);
  args.page_size = 64;
  expect_refused(
      "attend: pages.table is null, max_pages 0, page_size 64, page_stride 0; give the table, or nothing");
  args.page_table = reinterpret_cast<const int32_t*>(0x1000);
  expect_refused("attend: pages.max_pages is 0; legal: 1 to 16777216");
  args.max_pages = 16;
  expect_refused("attend: keys are paged and sequence is not given; its k_len says how many they are");
  args.sequences = reinterpret_cast<const rr_sequence*>(0x1000), args.n_sequences = 1, args.n_rows = 3;
  args.page_stride = 12;
  expect_refused(
      "attend: pages.page_stride is 12; legal: multiples of 8 from head_dim (128) to 549755813880");
  args.page_stride = 2 * 64 * 128;
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
}

// Without the causal flag there may be more queries than keys.
TEST_F(CudaCApi, CausalIsAFlag) {
  const int64_t short_shape[3] = {10, 2, 128};
  k = tensor(short_shape), v = tensor(short_shape);
  expect_refused(
      "attend: q has 300 tokens, k 10; the default sequence ends where its keys end: give `sequence`");
  args.flags = 0;
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(&args, &bytes), RR_OK) << rr_cuda_last_error();
}

TEST_F(CudaCApi, ErrorsArePerThread) {
  int64_t bytes = 0;
  EXPECT_EQ(rr_cuda_attend_workspace_bytes(nullptr, &bytes), RR_INVALID_ARGUMENT);
  std::thread([] { EXPECT_STREQ(rr_cuda_last_error(), ""); }).join();
  EXPECT_STREQ(rr_cuda_last_error(), "attend: args is null; give them");
}

}  // namespace
