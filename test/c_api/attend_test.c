// SPDX-License-Identifier: Apache-2.0
// Real layers through the C ABI, against a softmax in double that shares no code with the library.
#include <math.h>
#include <stdlib.h>

#include "check.h"

enum { kHeads = 4, kKvHeads = 2, kDim = 64 };

// A generator of our own: the values must not depend on the C library.
static float next_value(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / 8388608.0f - 1.0f;
}

// Three arrays of q_len, k_len and k_len tokens with `gap` unused elements after every token, and two outputs.
typedef struct layer {
  int64_t q_shape[3], k_shape[3], q_strides[3], k_strides[3];
  float *q, *k, *v, *out, *lse_log2;
  rr_tensor tq, tk, tv, to;
  rr_layer_args args;
} layer;

static float* random_values(int64_t n, uint32_t* state) {
  float* values = malloc((size_t)n * sizeof(float));
  for (int64_t i = 0; i < n; ++i) values[i] = next_value(state);
  return values;
}

static layer* make_layer(int64_t q_len, int64_t k_len, int64_t gap) {
  layer* l = calloc(1, sizeof *l);
  uint32_t state = 7;
  const int64_t q_row = kHeads * kDim + gap, k_row = kKvHeads * kDim + gap;
  *l = (layer){.q_shape = {q_len, kHeads, kDim},
               .k_shape = {k_len, kKvHeads, kDim},
               .q_strides = {q_row, kDim, 1},
               .k_strides = {k_row, kDim, 1}};
  l->q = random_values(q_len * q_row, &state);
  l->k = random_values(k_len * k_row, &state);
  l->v = random_values(k_len * k_row, &state);
  l->out = random_values(q_len * kHeads * kDim, &state);
  l->lse_log2 = random_values(q_len * kHeads, &state);
  l->tq = f32_tensor(l->q, l->q_shape);
  l->tk = f32_tensor(l->k, l->k_shape);
  l->tv = f32_tensor(l->v, l->k_shape);
  l->to = f32_tensor(l->out, l->q_shape);
  l->tq.strides = l->q_strides;
  l->tk.strides = l->tv.strides = l->k_strides;
  l->args = (rr_layer_args){.struct_size = sizeof(rr_layer_args),
                            .q = &l->tq,
                            .k = &l->tk,
                            .v = &l->tv,
                            .out = &l->to,
                            .lse_log2 = l->lse_log2};
  return l;
}

static void free_layer(layer* l) {
  free(l->q);
  free(l->k);
  free(l->v);
  free(l->out);
  free(l->lse_log2);
  free(l);
}

// Largest difference from the softmax of one sequence, over outputs and lse.
static double error_of(const layer* l, rr_sequence s, double scale) {
  double worst = 0;
  const int64_t q_tokens = l->q_shape[0];
  double* weights = malloc((size_t)s.k_len * sizeof(double));
  for (int64_t i = 0; i < s.q_len; ++i)
    for (int64_t h = 0; h < kHeads; ++h) {
      const int64_t kv_head = h / (kHeads / kKvHeads);
      const float* q = l->q + (s.q_begin + i) * l->q_strides[0] + h * kDim;
      const int64_t visible = s.q_offset + i + 1 < s.k_len ? s.q_offset + i + 1 : s.k_len;
      double sum = 0;
      for (int64_t j = 0; j < visible; ++j) {
        const float* k = l->k + (s.k_begin + j) * l->k_strides[0] + kv_head * kDim;
        double dot = 0;
        for (int d = 0; d < kDim; ++d) dot += (double)q[d] * k[d];
        sum += weights[j] = exp(dot * scale);
      }
      for (int d = 0; d < kDim; ++d) {
        double want = 0;
        for (int64_t j = 0; j < visible; ++j)
          want += weights[j] / sum * l->v[(s.k_begin + j) * l->k_strides[0] + kv_head * kDim + d];
        worst = fmax(worst, fabs(want - l->out[((s.q_begin + i) * kHeads + h) * kDim + d]));
      }
      worst = fmax(worst, fabs(log2(sum) - l->lse_log2[h * q_tokens + s.q_begin + i]));
    }
  free(weights);
  return worst;
}

// f32 throughout: a few hundred additions of values below 1.
static const double kTolerance = 2e-5;

static void check_one_sequence(rr_engine* engine) {
  layer* l = make_layer(70, 200, 5);
  rr_pass* pass = NULL;
  CHECK_OK(rr_pass_begin(engine, NULL, NULL, &pass));
  CHECK_OK(rr_pass_layer(pass, &l->args));
  CHECK(error_of(l, (rr_sequence){0, 70, 0, 200, 130}, 0.125) < kTolerance);

  // A caller of an older version, whose struct ended before lse_log2.
  l->args.struct_size = offsetof(rr_layer_args, lse_log2);
  l->args.scale = 99;
  l->lse_log2[0] = 42;
  CHECK_OK(rr_pass_layer(pass, &l->args));
  CHECK(l->lse_log2[0] == 42);

  const char* json = NULL;
  CHECK_OK(rr_pass_report_json(pass, &json));
  CHECK(json != NULL && strstr(json, "\"exact\"") != NULL);
  rr_routes routes = {.struct_size = sizeof routes};
  CHECK_OK(rr_pass_routes(pass, &routes));
  CHECK(routes.row_offsets == NULL && routes.n_row_offsets == 0 && routes.picked == NULL &&
        routes.n_picked == 0);
  rr_pass_end(pass);
  free_layer(l);
}

static void check_batch(rr_engine* engine) {
  layer* l = make_layer(75, 160, 0);
  const rr_sequence batch[] = {{0, 10, 0, 30, 20}, {10, 65, 30, 130, 65}};
  rr_pass* pass = NULL;
  l->args.sequences = batch;
  l->args.n_sequences = 2;
  l->args.scale = 0.25f;
  l->tq.data = l->q - 1;  // the same values by way of byte_offset
  l->tq.byte_offset = sizeof(float);
  CHECK_OK(rr_pass_begin(engine, NULL, NULL, &pass));
  CHECK_OK(rr_pass_layer(pass, &l->args));
  CHECK(error_of(l, batch[0], 0.25) < kTolerance);
  CHECK(error_of(l, batch[1], 0.25) < kTolerance);
  rr_pass_end(pass);
  free_layer(l);
}

static void check_routes(rr_engine* engine) {
  enum { kTokens = 1300, kRows = (kTokens + 63) / 64 };
  layer* l = make_layer(kTokens, kTokens, 0);
  rr_options* options = NULL;
  rr_pass* pass = NULL;
  CHECK_OK(rr_options_create("balanced", &options));
  CHECK_OK(rr_options_set(options, "dense_below", "128"));
  CHECK_OK(rr_options_set(options, "selection.cap", "0.3"));
  CHECK_OK(rr_pass_begin(engine, options, NULL, &pass));
  rr_options_destroy(options);  // copied
  l->args.flags = RR_LAYER_KNOWN;
  l->args.layer = 5;
  CHECK_OK(rr_pass_layer(pass, &l->args));
  CHECK_FAILS(rr_pass_layer(pass, &l->args), RR_INVALID_ARGUMENT,
              "layer: layer is 5 after 5; layers come in order, a new pass begins anew");

  rr_routes routes = {.struct_size = sizeof routes};
  CHECK_OK(rr_pass_routes(pass, &routes));
  CHECK(routes.n_row_offsets == kHeads * kRows + 1);
  CHECK(routes.row_offsets[routes.n_row_offsets - 1] == routes.n_picked);
  CHECK(routes.n_picked < kHeads * kRows * (kRows + 1) / 2);
  for (int64_t i = 0; i < kHeads * kRows; ++i) {
    const int64_t begin = routes.row_offsets[i], end = routes.row_offsets[i + 1];
    CHECK(begin < end && routes.picked[begin] == 0 && routes.picked[end - 1] == i % kRows);
    for (int64_t j = begin + 1; j < end; ++j) CHECK(routes.picked[j - 1] < routes.picked[j]);
  }
  const char* json = NULL;
  CHECK_OK(rr_pass_report_json(pass, &json));
  CHECK(strstr(json, "\"balanced dense_below=128 selection.cap=0.3\"") != NULL);
  rr_pass_end(pass);
  free_layer(l);
}

// Values below 1 as q8_0 blocks of one scale, 2^-7; the values become what the blocks say.
static unsigned char* quantise(float* values, int64_t n) {
  unsigned char* blocks = malloc((size_t)(n / 32 * 34));
  for (int64_t i = 0; i < n; ++i) {
    unsigned char* block = blocks + i / 32 * 34;
    const int steps = (int)(values[i] * 127);
    block[0] = 0x00;
    block[1] = 0x20;
    block[2 + i % 32] = (unsigned char)(signed char)steps;
    values[i] = (float)steps / 128;
  }
  return blocks;
}

static void check_q8(rr_engine* engine) {
  layer* l = make_layer(70, 200, 32);
  const int64_t n = 200 * l->k_strides[0];
  unsigned char *k = quantise(l->k, n), *v = quantise(l->v, n);
  rr_pass* pass = NULL;
  l->tk.data = k;
  l->tv.data = v;
  l->tk.dtype_code = l->tv.dtype_code = RR_Q8_0;
  l->tk.dtype_bits = l->tv.dtype_bits = 8;
  CHECK_OK(rr_pass_begin(engine, NULL, NULL, &pass));
  CHECK_OK(rr_pass_layer(pass, &l->args));
  // On AMX weights are bf16: 2^-9 of values below 1, shared by two keys at the least.
  CHECK(error_of(l, (rr_sequence){0, 70, 0, 200, 130}, 0.125) < 4e-3);
  l->k_strides[0] += 16;
  CHECK_FAILS(rr_pass_layer(pass, &l->args), RR_INVALID_ARGUMENT,
              "layer: k strides are 176 (token) and 64 (head); legal for q8_0: multiples of 32 elements");
  rr_pass_end(pass);
  free(k);
  free(v);
  free_layer(l);
}

static int always(void* calls) {
  ++*(int*)calls;
  return 1;
}

static void check_abort_and_lifetime(rr_engine* engine) {
  layer* l = make_layer(70, 70, 0);
  int calls = 0;
  rr_pass* pass = NULL;
  const rr_pass_args final_chunk = {.struct_size = sizeof final_chunk, .flags = RR_PASS_FINAL_CHUNK};
  CHECK_OK(rr_pass_begin(engine, NULL, &final_chunk, &pass));
  CHECK_OK(rr_engine_set_threads(engine, 1));  // `calls` is not atomic
  CHECK_OK(rr_engine_set_abort(engine, always, &calls));
  CHECK(rr_pass_layer(pass, &l->args) == RR_ABORTED);
  CHECK(strcmp(rr_last_error(), "") != 0 && calls > 0);
  CHECK_OK(rr_engine_set_abort(engine, NULL, NULL));
  rr_engine_destroy(engine);
  CHECK_OK(rr_pass_layer(pass, &l->args));
  CHECK(error_of(l, (rr_sequence){0, 70, 0, 70, 0}, 0.125) < kTolerance);
  rr_pass_end(pass);
  free_layer(l);
}

int main(void) {
  rr_engine* engine = NULL;
  const rr_engine_args args = {.struct_size = sizeof args, .threads = 2};
  rr_engine_info info = {.struct_size = sizeof info};
  CHECK_OK(rr_engine_create(&args, &engine));
  CHECK_OK(rr_engine_get_info(engine, &info));
  CHECK(info.threads == 2 && strcmp(info.backend, "cpu") == 0 && info.isa[0] != 0);
  check_one_sequence(engine);
  check_batch(engine);
  check_routes(engine);
  check_q8(engine);
  check_abort_and_lifetime(engine);
  return failures != 0;
}
