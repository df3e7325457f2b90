// SPDX-License-Identifier: Apache-2.0
// The ABI's frozen layouts, and every way to call it wrongly: each answers with a code and a golden sentence.
#include <pthread.h>
#include <stddef.h>

#include "check.h"

#define OFFSET(type, field, at) _Static_assert(offsetof(type, field) == (at), #type "." #field " moved")
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "sizeof " #type " changed")

// DLPack's DLTensor, so that one may be passed as the other.
OFFSET(rr_tensor, data, 0);
OFFSET(rr_tensor, device_type, 8);
OFFSET(rr_tensor, device_id, 12);
OFFSET(rr_tensor, ndim, 16);
OFFSET(rr_tensor, dtype_code, 20);
OFFSET(rr_tensor, dtype_bits, 21);
OFFSET(rr_tensor, dtype_lanes, 22);
OFFSET(rr_tensor, shape, 24);
OFFSET(rr_tensor, strides, 32);
OFFSET(rr_tensor, byte_offset, 40);
SIZE(rr_tensor, 48);

OFFSET(rr_engine_args, struct_size, 0);
OFFSET(rr_engine_args, flags, 4);
OFFSET(rr_engine_args, backend, 8);
OFFSET(rr_engine_args, isa, 16);
OFFSET(rr_engine_args, threads, 24);
SIZE(rr_engine_args, 32);

OFFSET(rr_engine_info, struct_size, 0);
OFFSET(rr_engine_info, flags, 4);
OFFSET(rr_engine_info, backend, 8);
OFFSET(rr_engine_info, isa, 16);
OFFSET(rr_engine_info, threads, 24);
SIZE(rr_engine_info, 32);

OFFSET(rr_pass_args, struct_size, 0);
OFFSET(rr_pass_args, flags, 4);
SIZE(rr_pass_args, 8);

OFFSET(rr_sequence, q_begin, 0);
OFFSET(rr_sequence, q_len, 8);
OFFSET(rr_sequence, k_begin, 16);
OFFSET(rr_sequence, k_len, 24);
OFFSET(rr_sequence, q_offset, 32);
SIZE(rr_sequence, 40);

OFFSET(rr_layer_args, struct_size, 0);
OFFSET(rr_layer_args, flags, 4);
OFFSET(rr_layer_args, q, 8);
OFFSET(rr_layer_args, k, 16);
OFFSET(rr_layer_args, v, 24);
OFFSET(rr_layer_args, out, 32);
OFFSET(rr_layer_args, lse_log2, 40);
OFFSET(rr_layer_args, sequences, 48);
OFFSET(rr_layer_args, n_sequences, 56);
OFFSET(rr_layer_args, scale, 64);
OFFSET(rr_layer_args, layer, 68);
SIZE(rr_layer_args, 72);

OFFSET(rr_routes, struct_size, 0);
OFFSET(rr_routes, flags, 4);
OFFSET(rr_routes, row_offsets, 8);
OFFSET(rr_routes, n_row_offsets, 16);
OFFSET(rr_routes, picked, 24);
OFFSET(rr_routes, n_picked, 32);
SIZE(rr_routes, 40);

_Static_assert(RR_OK == 0 && RR_INVALID_ARGUMENT == 1 && RR_UNSUPPORTED == 2 && RR_OUT_OF_MEMORY == 3 &&
                   RR_DEVICE_ERROR == 4 && RR_INTERNAL == 5 && RR_ABORTED == 6,
               "status codes are frozen");

static void check_versions(void) {
  CHECK(rr_abi_version() == (RR_ABI_MAJOR << 16 | RR_ABI_MINOR));
  CHECK(strcmp(rr_version(), RR_EXPECTED_VERSION) == 0);
}

static void check_engine(void) {
  rr_engine* engine = (rr_engine*)1;
  rr_engine_args args = {0};
  CHECK_FAILS(rr_engine_create(NULL, NULL), RR_INVALID_ARGUMENT,
              "engine_create: engine is null; give a valid one");
  CHECK_FAILS(rr_engine_create(&args, &engine), RR_INVALID_ARGUMENT,
              "engine_create: args.struct_size is 0; set it to sizeof(*args), 32 here");
  CHECK(engine == NULL);
  args.struct_size = sizeof args;
  args.flags = 4;
  CHECK_FAILS(rr_engine_create(&args, &engine), RR_INVALID_ARGUMENT,
              "engine_create: args.flags is 0x4; this version knows 0x0");
  args.flags = 0;
  args.backend = "gpu";
  CHECK_FAILS(rr_engine_create(&args, &engine), RR_INVALID_ARGUMENT,
              "engine: backend is 'gpu'; legal: cpu, reference");
  args.backend = NULL;
  args.isa = "sse9";
  CHECK(rr_engine_create(&args, &engine) == RR_INVALID_ARGUMENT);
  args.isa = NULL;
  args.threads = -3;
  CHECK_FAILS(rr_engine_create(&args, &engine), RR_INVALID_ARGUMENT,
              "engine: threads is -3; legal: 1 to 4096, or 0 for all cores");

  CHECK_OK(rr_engine_create(NULL, &engine));
  CHECK_FAILS(rr_engine_set_threads(engine, 0), RR_INVALID_ARGUMENT,
              "engine: threads is 0; legal: 1 to 4096");
  CHECK_FAILS(rr_engine_set_threads(NULL, 1), RR_INVALID_ARGUMENT,
              "engine_set_threads: engine is null; give a valid one");
  CHECK_FAILS(rr_engine_set_abort(NULL, NULL, NULL), RR_INVALID_ARGUMENT,
              "engine_set_abort: engine is null; give a valid one");
  rr_engine_info info = {0};
  CHECK_FAILS(rr_engine_get_info(engine, &info), RR_INVALID_ARGUMENT,
              "engine_get_info: info.struct_size is 0; set it to sizeof(*info), 32 here");
  CHECK_FAILS(rr_engine_get_info(engine, NULL), RR_INVALID_ARGUMENT,
              "engine_get_info: info is null; give a valid one");
  rr_engine_destroy(engine);
  rr_engine_destroy(NULL);
}

static void check_options(void) {
  rr_options* options = (rr_options*)1;
  CHECK_FAILS(rr_options_create("quick", &options), RR_INVALID_ARGUMENT,
              "options: preset is 'quick'; legal: exact, careful, balanced, fast");
  CHECK(options == NULL);
  CHECK_FAILS(rr_options_create(NULL, &options), RR_INVALID_ARGUMENT,
              "options_create: preset is null; give a valid one");
  CHECK_FAILS(rr_options_create("fast", NULL), RR_INVALID_ARGUMENT,
              "options_create: options is null; give a valid one");
  CHECK_OK(rr_options_create("balanced", &options));
  CHECK_FAILS(rr_options_set(options, "router", "oracle"), RR_INVALID_ARGUMENT,
              "options: router is 'oracle'; legal: centroid, sub, sampled, antidiag, box, ball");
  CHECK_FAILS(rr_options_set(options, "router.samples", "4x"), RR_INVALID_ARGUMENT,
              "options: router.samples is '4x'; legal: a whole number that fits");
  CHECK_FAILS(rr_options_set(options, NULL, "1"), RR_INVALID_ARGUMENT,
              "options_set: key is null; give a valid one");
  CHECK(rr_options_set(options, "colour", "red") == RR_INVALID_ARGUMENT);
  CHECK(strstr(rr_last_error(), "options: key is 'colour'; legal: dense, router, router.samples,") ==
        rr_last_error());
  CHECK_OK(rr_options_set(options, "selection.floor", "1.5"));

  rr_engine* engine = NULL;
  rr_pass* pass = (rr_pass*)1;
  CHECK_OK(rr_engine_create(NULL, &engine));
  CHECK_FAILS(rr_pass_begin(engine, options, NULL, &pass), RR_INVALID_ARGUMENT,
              "options: selection.floor is 1.5; legal: 0 to 1");
  CHECK(pass == NULL);
  CHECK_FAILS(rr_pass_begin(NULL, NULL, NULL, &pass), RR_INVALID_ARGUMENT,
              "pass_begin: engine is null; give a valid one");
  CHECK_FAILS(rr_pass_begin(engine, NULL, NULL, NULL), RR_INVALID_ARGUMENT,
              "pass_begin: pass is null; give a valid one");
  rr_engine_destroy(engine);
  rr_options_destroy(options);
  rr_options_destroy(NULL);
}

enum { kTokens = 2, kHeads = 2, kDim = 64 };

static void check_layer(void) {
  static float q[kTokens * kHeads * kDim], k[kTokens * kHeads * kDim], v[kTokens * kHeads * kDim];
  static float out[kTokens * kHeads * kDim];
  const int64_t shape[3] = {kTokens, kHeads, kDim}, wide[3] = {kTokens, kHeads, 100},
                negative[3] = {-1, kHeads, kDim}, endless[3] = {kTokens, INT64_MAX, kDim};
  const int64_t strides[3] = {kHeads * kDim, kDim, 2};
  const rr_tensor good = f32_tensor(q, shape);
  rr_tensor tq = good, tk = f32_tensor(k, shape), tv = f32_tensor(v, shape), to = f32_tensor(out, shape);
  rr_layer_args args = {0};
  rr_engine* engine = NULL;
  rr_pass* pass = NULL;
  CHECK_OK(rr_engine_create(NULL, &engine));
  CHECK_OK(rr_pass_begin(engine, NULL, NULL, &pass));

  CHECK_FAILS(rr_pass_layer(NULL, &args), RR_INVALID_ARGUMENT, "pass_layer: pass is null; give a valid one");
  CHECK_FAILS(rr_pass_layer(pass, NULL), RR_INVALID_ARGUMENT, "pass_layer: args is null; give a valid one");
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "pass_layer: args.struct_size is 0; set it to sizeof(*args), 72 here");
  args.struct_size = sizeof args;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT, "layer: q is null; give a valid one");
  args.q = &tq;
  args.k = &tk;
  args.v = &tv;
  args.out = &to;
  for (size_t i = 0; i < kTokens * kHeads * kDim; ++i) out[i] = -7;

  tq.ndim = 4;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "layer: q.ndim is 4; legal: 3 (tokens, heads, head_dim)");
  tq = good, tq.device_type = 2;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "layer: q.device_type is 2; legal: 1 (host memory)");
  tq = good, tq.dtype_bits = 64;
  CHECK_FAILS(
      rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
      "layer: q.dtype is code 2, 64 bits, 1 lanes; legal: (2, 32, 1), (2, 16, 1), (4, 16, 1), and for k "
      "and v (128, 8, 1)");
  tq = good, tq.dtype_code = RR_Q8_0, tq.dtype_bits = 8;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "layer: q.dtype is q8_0; legal: f32, bf16, f16; only k and v may be q8_0");
  tq = good, tq.shape = NULL;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "layer: q.shape is null; give its three sizes");
  tq = good, tq.shape = wide;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "layer: q.head_dim is 100; legal: 64, 80, 96, 128, 256; pad the heads");
  tq = good, tq.shape = negative;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "layer: q.tokens is -1; legal: 0 to 4294967296");
  tq = good, tq.shape = endless;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "layer: q.heads is 9223372036854775807; legal: 1 to 65536");
  tq = good, tq.strides = strides;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT, "layer: q.strides[2] is 2; legal: 1");
  tq = good, tq.data = NULL;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT, "layer: q.data is null with 2 tokens");
  tq = good;
  args.out = &tq;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
              "layer: out overlaps q, k or v in memory; give it a buffer of its own");
  args.out = &to;
  args.n_sequences = -1;
  CHECK_FAILS(
      rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT,
      "layer: n_sequences is -1 and sequences is null; legal: 0 with null, or a count with its array");
  const rr_sequence beyond = {0, kTokens, 0, kTokens + 1, 0};
  args.n_sequences = 1;
  args.sequences = &beyond;
  CHECK_FAILS(rr_pass_layer(pass, &args), RR_INVALID_ARGUMENT, "layer: sequences[0] ends at key 3; k has 2");
  for (size_t i = 0; i < kTokens * kHeads * kDim; ++i) CHECK(out[i] == -7);

  args.n_sequences = 0;
  args.sequences = NULL;
  CHECK_OK(rr_pass_layer(pass, &args));
  CHECK(out[0] == 0);

  const char* json = NULL;
  rr_routes routes = {0};
  CHECK_FAILS(rr_pass_report_json(NULL, &json), RR_INVALID_ARGUMENT,
              "pass_report_json: pass is null; give a valid one");
  CHECK_FAILS(rr_pass_routes(NULL, &routes), RR_INVALID_ARGUMENT,
              "pass_routes: pass is null; give a valid one");
  CHECK_FAILS(rr_pass_routes(pass, &routes), RR_INVALID_ARGUMENT,
              "pass_routes: routes.struct_size is 0; set it to sizeof(*routes), 40 here");
  rr_pass_end(pass);
  rr_pass_end(NULL);
  rr_engine_destroy(engine);
}

static void* fail_in_thread(void* unused) {
  (void)unused;
  CHECK(strcmp(rr_last_error(), "") == 0);
  rr_options* options = NULL;
  CHECK(rr_options_create("quick", &options) == RR_INVALID_ARGUMENT);
  return NULL;
}

static void check_error_is_per_thread(void) {
  CHECK(rr_engine_create(NULL, NULL) == RR_INVALID_ARGUMENT);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fail_in_thread, NULL) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(strcmp(rr_last_error(), "engine_create: engine is null; give a valid one") == 0);
}

int main(void) {
  check_versions();
  check_engine();
  check_options();
  check_layer();
  check_error_is_per_thread();
  return failures != 0;
}
