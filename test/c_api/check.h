// SPDX-License-Identifier: Apache-2.0
// What the C tests share: checks that count failures, and tensors over plain arrays.
#ifndef ROUTERELAY_TEST_CHECK_H
#define ROUTERELAY_TEST_CHECK_H

#include <routerelay/routerelay.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

#define CHECK(what)                                              \
  do {                                                           \
    if (!(what)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
      ++failures;                                                \
    }                                                            \
  } while (0)

#define CHECK_OK(call)                                                                                \
  do {                                                                                                \
    const rr_status got_status = (call);                                                              \
    if (got_status != RR_OK || strcmp(rr_last_error(), "") != 0) {                                    \
      fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, got_status, rr_last_error()); \
      ++failures;                                                                                     \
    }                                                                                                 \
  } while (0)

// The golden text is the whole message.
#define CHECK_FAILS(call, status, message)                                                            \
  do {                                                                                                \
    const rr_status got_status = (call);                                                              \
    if (got_status != (status) || strcmp(rr_last_error(), message) != 0) {                            \
      fprintf(stderr, "%s:%d: %s: %d\n  got  %s\n  want %s\n", __FILE__, __LINE__, #call, got_status, \
              rr_last_error(), message);                                                              \
      ++failures;                                                                                     \
    }                                                                                                 \
  } while (0)

static inline rr_tensor f32_tensor(void* data, const int64_t shape[3]) {
  rr_tensor t = {0};
  t.data = data;
  t.device_type = RR_DEVICE_CPU;
  t.ndim = 3;
  t.dtype_code = RR_FLOAT;
  t.dtype_bits = 32;
  t.dtype_lanes = 1;
  t.shape = shape;
  return t;
}

#endif
