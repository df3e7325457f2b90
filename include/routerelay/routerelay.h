// SPDX-License-Identifier: Apache-2.0
// The C ABI (C11): make an engine, begin a pass per forward pass or prefill chunk, hand it the layers in order.
//
// Layouts and names are frozen within a major version; fields and functions are only added, at the end and never
// into padding.
// Structs that are passed begin with struct_size and flags: set struct_size to sizeof of the struct, leave the
// rest zero for the defaults. The library reads (or fills) the smaller of the two sizes.
// Every call answers with an rr_status; rr_last_error says in words what came, what is legal and what to do.
// No call prints, aborts, exits or lets an exception through. A null handle or pointer is RR_INVALID_ARGUMENT,
// except where a comment gives it a meaning.
#ifndef ROUTERELAY_ROUTERELAY_H
#define ROUTERELAY_ROUTERELAY_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define RR_API __attribute__((visibility("default")))
#else
#define RR_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RR_ABI_MAJOR 1
#define RR_ABI_MINOR 1

// The library's RR_ABI_MAJOR << 16 | RR_ABI_MINOR. Usable when the major is the header's and the minor no less.
RR_API uint32_t rr_abi_version(void);
// The release, "0.1.0": not the ABI's number.
RR_API const char* rr_version(void);

typedef enum rr_status {
  RR_OK = 0,
  RR_INVALID_ARGUMENT = 1,  // the caller is wrong
  RR_UNSUPPORTED = 2,       // right, but not to be had here: an instruction set, a device
  RR_OUT_OF_MEMORY = 3,
  RR_DEVICE_ERROR = 4,  // the world failed: threads, files, devices
  RR_INTERNAL = 5,      // the library is wrong; please report
  RR_ABORTED = 6        // the poll of rr_engine_set_abort asked for it
} rr_status;

// Why this thread's last call failed; "" when it did not. Valid until this thread's next call.
RR_API const char* rr_last_error(void);

// A borrowed, strided array in host memory. Layout and codes are DLPack's: a DLTensor* may be passed as one.
typedef struct rr_tensor {
  void* data;
  int32_t device_type;     // RR_DEVICE_CPU
  int32_t device_id;       // 0
  int32_t ndim;            // 3: [tokens, heads, head_dim]
  uint8_t dtype_code;      // RR_FLOAT or RR_BFLOAT; k and v also RR_Q8_0
  uint8_t dtype_bits;      // RR_FLOAT: 32 or 16; RR_BFLOAT: 16; RR_Q8_0: 8
  uint16_t dtype_lanes;    // 1
  const int64_t* shape;    // [ndim]
  const int64_t* strides;  // [ndim] in elements, the last one 1; null: contiguous
  uint64_t byte_offset;    // from data to element 0
} rr_tensor;

#define RR_DEVICE_CPU 1
#define RR_FLOAT 2
#define RR_BFLOAT 4
// Since 1.1, and no code of DLPack's: ggml's q8_0, blocks of 32 elements along head_dim in 34 bytes: an f16 scale, then
// 32 int8, little endian; an element is scale * int8. head_dim and strides, in elements, are multiples of 32.
#define RR_Q8_0 128

// --- engine: threads, instruction set, workspace. One pass runs at a time on it; several engines may coexist.

typedef struct rr_engine rr_engine;

typedef struct rr_engine_args {
  uint32_t struct_size;
  uint32_t flags;       // 0
  const char* backend;  // "cpu" or "reference"; null: ROUTERELAY_BACKEND, else cpu
  const char* isa;  // "scalar", "avx2", "avx512", "avx512bf16", "amx"; null: ROUTERELAY_ISA, else the best
  int32_t threads;  // 0: all cores
} rr_engine_args;

typedef struct rr_engine_info {
  uint32_t struct_size;
  uint32_t flags;
  const char* backend;  // static text
  const char* isa;      // static text
  int32_t threads;
} rr_engine_info;

// args null: all defaults. *engine is null after an error.
RR_API rr_status rr_engine_create(const rr_engine_args* args, rr_engine** engine);
// Null is fine. Passes that still live keep what they need.
RR_API void rr_engine_destroy(rr_engine* engine);
// What was chosen: fill in info->struct_size first.
RR_API rr_status rr_engine_get_info(const rr_engine* engine, rr_engine_info* info);
// From the next layer on.
RR_API rr_status rr_engine_set_threads(rr_engine* engine, int32_t threads);
// `poll` is called between work items, from any thread of the engine; non-zero stops the layer with RR_ABORTED, its
// output unspecified. Null: no polling.
RR_API rr_status rr_engine_set_abort(rr_engine* engine, int (*poll)(void* user), void* user);

// --- options: a preset, and single fields by name.

typedef struct rr_options rr_options;

// preset: "exact", "careful", "balanced", "fast".
RR_API rr_status rr_options_create(const char* preset, rr_options** options);
RR_API void rr_options_destroy(rr_options* options);
// ("router", "sampled"), ("selection.floor", "0.1"), ("never_relay", "5,9"): a field of options.hpp by its path,
// enumerations by the name of their group. An unknown key is answered with the list of legal ones.
RR_API rr_status rr_options_set(rr_options* options, const char* key, const char* value);

// --- pass: one forward pass or one prefill chunk.

typedef struct rr_pass rr_pass;

#define RR_PASS_FINAL_CHUNK 1u  // the prompt's last, shorter chunk: every row sees every block

typedef struct rr_pass_args {
  uint32_t struct_size;
  uint32_t flags;  // RR_PASS_FINAL_CHUNK
} rr_pass_args;

// One sequence of a ragged batch. Query i sits at position q_offset + i and sees keys 0 .. q_offset + i.
typedef struct rr_sequence {
  int64_t q_begin;  // first query token in q and out
  int64_t q_len;
  int64_t k_begin;  // first key token in k and v
  int64_t k_len;
  int64_t q_offset;
} rr_sequence;

#define RR_LAYER_KNOWN \
  1u  // `layer` is given; otherwise the layer routes but neither relays nor counts as dense

typedef struct rr_layer_args {
  uint32_t struct_size;
  uint32_t flags;                // RR_LAYER_KNOWN
  const rr_tensor* q;            // [q_tokens, q_heads, head_dim]
  const rr_tensor* k;            // [k_tokens, kv_heads, head_dim]; kv_heads divides q_heads
  const rr_tensor* v;            // as k, same dtype
  const rr_tensor* out;          // as q, any dtype; its data is written and must not overlap q, k, v
  float* lse_log2;               // [q_heads, q_tokens], log2 of the softmax denominator; null: not wanted
  const rr_sequence* sequences;  // [n_sequences], by q_begin; null: one, its queries at the end of its keys
  int64_t n_sequences;
  float scale;    // of q.k; 0: 1/sqrt(head_dim)
  int32_t layer;  // index in the model, rising within a pass
} rr_layer_args;

// Blocks that each row of the last layer attended to: row i = q_head * n_rows + row has
// picked[row_offsets[i]] .. picked[row_offsets[i + 1] - 1], ascending. Both are null after a dense layer.
typedef struct rr_routes {
  uint32_t struct_size;
  uint32_t flags;
  const int64_t* row_offsets;
  int64_t n_row_offsets;
  const int32_t* picked;
  int64_t n_picked;
} rr_routes;

// options null: exact. args null: defaults. Copies the options. *pass is null after an error.
RR_API rr_status rr_pass_begin(rr_engine* engine, const rr_options* options, const rr_pass_args* args,
                               rr_pass** pass);
// On an error the output is untouched, except after RR_ABORTED and RR_OUT_OF_MEMORY.
RR_API rr_status rr_pass_layer(rr_pass* pass, const rr_layer_args* args);
// What was skipped, layer by layer. The text is the pass's, valid until its next call.
RR_API rr_status rr_pass_report_json(rr_pass* pass, const char** json);
// Fill in routes->struct_size first. The arrays are the pass's, valid until its next layer.
RR_API rr_status rr_pass_routes(const rr_pass* pass, rr_routes* routes);
// Null is fine.
RR_API void rr_pass_end(rr_pass* pass);

#ifdef __cplusplus
}
#endif

#endif
