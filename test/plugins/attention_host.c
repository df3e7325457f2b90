// SPDX-License-Identifier: Apache-2.0
// A small ggml program, compiled against a real ggml's own headers and libraries: it loads its back ends as
// llama.cpp does, computes one causal attention node on the CPU and through the scheduler, and prints as lines of
// `name value` who took the node and how far the two results lie apart.
//
//     attention_host env         ggml_backend_load_all, which reads GGML_BACKEND_PATH
//     attention_host PLUGIN.so   ggml_backend_load
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <math.h>
#include <routerelay/plugin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kDim = 64, kQHeads = 6, kKvHeads = 3, kRows = 128, kKeys = 768, kGraphNodes = 16, kThreads = 2 };
enum { kPosition = kKeys - kRows };  // of the first row: each row sees one key more than the row before

static void need(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "attention_host: %s\n", what);
  exit(1);
}

// In [-1, 1), the same on every machine.
static float next_random(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) / (1 << 23) - 1.0f;
}

static void fill(struct ggml_tensor* t, uint32_t seed) {
  for (int64_t i = 0; i < ggml_nelements(t); ++i) {
    const float x = 3 * next_random(&seed);
    if (t->type == GGML_TYPE_F32)
      ((float*)t->data)[i] = x;
    else
      ((ggml_fp16_t*)t->data)[i] = ggml_fp32_to_fp16(x);
  }
}

struct inputs {
  struct ggml_tensor *q, *k, *v, *mask;  // tokens by heads by dim, as llama.cpp's cache holds them
};

static void fill_causal(struct ggml_tensor* mask) {
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t key = 0; key < kKeys; ++key)
      ((ggml_fp16_t*)mask->data)[row * kKeys + key] =
          ggml_fp32_to_fp16(key <= kPosition + row ? 0.0f : -INFINITY);
}

// The first row may then see no key.
static void hide_first_row(struct ggml_tensor* mask) {
  for (int64_t key = 0; key < kKeys; ++key) ((ggml_fp16_t*)mask->data)[key] = ggml_fp32_to_fp16(-INFINITY);
}

static struct inputs make_inputs(struct ggml_context* context, ggml_backend_t cpu) {
  struct inputs in = {ggml_new_tensor_3d(context, GGML_TYPE_F32, kDim, kQHeads, kRows),
                      ggml_new_tensor_3d(context, GGML_TYPE_F16, kDim, kKvHeads, kKeys),
                      ggml_new_tensor_3d(context, GGML_TYPE_F16, kDim, kKvHeads, kKeys),
                      ggml_new_tensor_2d(context, GGML_TYPE_F16, kKeys, kRows)};
  ggml_set_name(in.k, "cache_k_l0");
  need(ggml_backend_alloc_ctx_tensors(context, cpu) != NULL, "no memory for the inputs");
  fill(in.q, 1);
  fill(in.k, 2);
  fill(in.v, 3);
  fill_causal(in.mask);
  return in;
}

// Attention, and something after it that only the host's CPU back end takes.
struct built {
  struct ggml_cgraph* graph;
  struct ggml_tensor *attention, *out;
};

static struct built build(struct ggml_context* context, const struct inputs* in) {
  struct built b;
  b.attention = ggml_flash_attn_ext(
      context, ggml_permute(context, in->q, 0, 2, 1, 3), ggml_permute(context, in->k, 0, 2, 1, 3),
      ggml_permute(context, in->v, 0, 2, 1, 3), in->mask, 1 / sqrtf(kDim), 0, 0);
  ggml_flash_attn_ext_set_prec(b.attention, GGML_PREC_F32);
  b.out = ggml_scale(context, b.attention, 2);
  b.graph = ggml_new_graph_custom(context, kGraphNodes, false);
  ggml_build_forward_expand(b.graph, b.out);
  return b;
}

static struct ggml_context* new_context(void) {
  const struct ggml_init_params params = {
      ggml_tensor_overhead() * kGraphNodes + ggml_graph_overhead_custom(kGraphNodes, false), NULL, true};
  return ggml_init(params);
}

static void set_threads(ggml_backend_t backend) {
  const ggml_backend_reg_t registry = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend));
  const ggml_backend_set_n_threads_t set =
      (ggml_backend_set_n_threads_t)ggml_backend_reg_get_proc_address(registry, "ggml_backend_set_n_threads");
  if (set != NULL) set(backend, kThreads);
}

// Every accelerator before the CPU, as llama.cpp orders them.
static int all_backends(ggml_backend_t* backends) {
  int n = 0;
  const enum ggml_backend_dev_type order[] = {GGML_BACKEND_DEVICE_TYPE_ACCEL, GGML_BACKEND_DEVICE_TYPE_CPU};
  for (int kind = 0; kind < 2; ++kind)
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i)
      if (ggml_backend_dev_type(ggml_backend_dev_get(i)) == order[kind] && n < 4) {
        backends[n] = ggml_backend_dev_init(ggml_backend_dev_get(i), NULL);
        need(backends[n] != NULL, "a device gives no back end");
        set_threads(backends[n++]);
      }
  return n;
}

static void print_distance(const float* a, const float* b) {
  double worst = 0, error = 0, size = 0;
  for (int i = 0; i < kDim * kQHeads * kRows; ++i) {
    const double difference = fabs((double)a[i] - b[i]);
    if (!(difference <= worst)) worst = difference;
    error += difference * difference;
    size += (double)b[i] * b[i];
  }
  printf("largest_difference %.9g\nnmse %.9g\n", worst, error / size);
}

// Both results lie in `alone.out` and `split.out` afterwards.
static void compute(ggml_backend_t cpu, const struct built* alone, ggml_backend_sched_t scheduler,
                    const struct built* split) {
  need(ggml_backend_graph_compute(cpu, alone->graph) == GGML_STATUS_SUCCESS, "the CPU back end failed");
  need(ggml_backend_sched_graph_compute(scheduler, split->graph) == GGML_STATUS_SUCCESS,
       "the scheduler failed");
}

// What the plug-in says of itself, where it is loaded.
static void print_report(void) {
  static char text[1 << 16];
  const ggml_backend_reg_t registry = ggml_backend_reg_by_name("RouteRelay");
  if (registry == NULL) return;
  const rr_plugin_report_fn report =
      (rr_plugin_report_fn)ggml_backend_reg_get_proc_address(registry, RR_PLUGIN_REPORT);
  need(report != NULL && report(text, sizeof text) < sizeof text, "no report");
  printf("report %s", text);  // ends its line itself
}

int main(int argc, char** argv) {
  need(argc == 2, "one argument: env, or the path of a plug-in");
  const int by_variable = strcmp(argv[1], "env") == 0;
  if (by_variable)
    ggml_backend_load_all();
  else
    printf("loaded %d\n", ggml_backend_load(argv[1]) != NULL);

  ggml_backend_t backends[4];
  const int n = all_backends(backends);
  need(n > 0, "no CPU device");
  ggml_backend_t cpu = backends[n - 1];
  struct ggml_context *data = new_context(), *one = new_context(), *two = new_context();
  const struct inputs in = make_inputs(data, cpu);

  const struct built alone = build(one, &in);
  ggml_gallocr_t memory = ggml_gallocr_new(ggml_backend_get_default_buffer_type(cpu));
  need(ggml_gallocr_alloc_graph(memory, alone.graph), "no memory for the graph");
  printf("version %s\nflash_attn_ext %d\nbackends %d\n", ggml_version(), GGML_OP_FLASH_ATTN_EXT, n);

  const struct built split = build(two, &in);
  ggml_backend_sched_t scheduler = ggml_backend_sched_new(backends, NULL, n, kGraphNodes, false, true);
  need(ggml_backend_sched_alloc_graph(scheduler, split.graph), "the scheduler has no memory");
  printf("attention_on %s\nscale_on %s\n",
         ggml_backend_name(ggml_backend_sched_get_tensor_backend(scheduler, split.attention)),
         ggml_backend_name(ggml_backend_sched_get_tensor_backend(scheduler, split.out)));
  compute(cpu, &alone, scheduler, &split);
  print_distance(split.out->data, alone.out->data);
  hide_first_row(in.mask);
  compute(cpu, &alone, scheduler, &split);
  printf("empty_row_of_cpu %g\nempty_row %g\n", (double)((const float*)alone.out->data)[0],
         (double)((const float*)split.out->data)[0]);
  print_report();

  ggml_backend_sched_free(scheduler);
  ggml_gallocr_free(memory);
  for (int i = 0; i < n; ++i) ggml_backend_free(backends[i]);
  ggml_free(one);
  ggml_free(two);
  ggml_free(data);
  return 0;
}
