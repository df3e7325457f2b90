// SPDX-License-Identifier: Apache-2.0
// The same layer as examples/attend.cc, through the C ABI.
#include <routerelay/routerelay.h>
#include <stdio.h>
#include <stdlib.h>

enum { kTokens = 4096, kHeads = 8, kKvHeads = 2, kHeadDim = 64 };

static rr_tensor f32(float* data, const int64_t* shape) {
  return (rr_tensor){.data = data,
                     .device_type = RR_DEVICE_CPU,
                     .ndim = 3,
                     .dtype_code = RR_FLOAT,
                     .dtype_bits = 32,
                     .dtype_lanes = 1,
                     .shape = shape};
}

int main(void) {
  const int64_t q_shape[] = {kTokens, kHeads, kHeadDim}, kv_shape[] = {kTokens, kKvHeads, kHeadDim};
  float* q = calloc(2 * kTokens * (kHeads + kKvHeads) * kHeadDim, sizeof(float));
  if (q == NULL) return 1;
  float *out = q + kTokens * kHeads * kHeadDim, *k = out + kTokens * kHeads * kHeadDim;
  float* v = k + kTokens * kKvHeads * kHeadDim;
  const rr_tensor tq = f32(q, q_shape), tk = f32(k, kv_shape), tv = f32(v, kv_shape), to = f32(out, q_shape);
  const rr_layer_args layer = {.struct_size = sizeof layer,
                               .q = &tq,
                               .k = &tk,
                               .v = &tv,
                               .out = &to,
                               .layer = 2};  // its index: 0 and 1 are dense, later ones relay to each other

  rr_engine* engine = NULL;
  rr_options* options = NULL;
  rr_pass* pass = NULL;
  const char* report = NULL;
  const int ok = rr_engine_create(NULL, &engine) == RR_OK &&
                 rr_options_create("balanced", &options) == RR_OK &&
                 rr_pass_begin(engine, options, NULL, &pass) == RR_OK &&
                 rr_pass_layer(pass, &layer) == RR_OK && rr_pass_report_json(pass, &report) == RR_OK;
  puts(ok ? report : rr_last_error());
  rr_pass_end(pass);
  rr_options_destroy(options);
  rr_engine_destroy(engine);
  free(q);
  return ok ? 0 : 1;
}
