/* The header compiled as C11, and the results of append, prefill, decode, gather, copy and merge on the CPU
 * against the definition in double. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fovea/c_api.h"

enum { HQ = 4, HKV = 2, D = 16, DV = 24, PAGE = 4, PAGES = 12, SEQS = 3 };

static int failures = 0;

static void check(fovea_status status, const char* what) {
  if (status == FOVEA_OK) return;
  printf("%s: %d %s\n", what, (int)status, fovea_last_error());
  ++failures;
}

static void expect(int ok, const char* what) {
  if (ok) return;
  printf("wrong: %s\n", what);
  ++failures;
}

static float random_value(void) {
  static uint32_t state = 12345;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f;
}

/* A tensor with memory for its shape. */
typedef struct array {
  fovea_tensor tensor;
  int64_t shape[4];
  void* data;
} array;

static array* make(int ndim, const int64_t* shape, uint8_t code, uint8_t bits) {
  array* a = calloc(1, sizeof(array));
  size_t count = 1;
  if (a == NULL) exit(3);
  for (int i = 0; i < ndim; ++i) {
    a->shape[i] = shape[i];
    count *= (size_t)shape[i];
  }
  a->data = malloc(count * bits / 8u + 1);
  if (a->data == NULL) exit(3);
  memset(a->data, 0xff, count * bits / 8u); /* NaN, or -1 */
  a->tensor.data = a->data;
  a->tensor.device.type = FOVEA_CPU;
  a->tensor.ndim = ndim;
  a->tensor.dtype.code = code;
  a->tensor.dtype.bits = bits;
  a->tensor.dtype.lanes = 1;
  a->tensor.shape = a->shape;
  return a;
}
#define SHAPE(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define FLOATS(...) make(SHAPE(__VA_ARGS__), FOVEA_FLOAT, 32)
#define INTS(...) make(SHAPE(__VA_ARGS__), FOVEA_INT, 32)
#define LONGS(...) make(SHAPE(__VA_ARGS__), FOVEA_INT, 64)

static void drop(array* a) {
  free(a->data);
  free(a);
}

static size_t count_of(const array* a) {
  size_t count = 1;
  for (int i = 0; i < a->tensor.ndim; ++i) count *= (size_t)a->shape[i];
  return count;
}

static float* floats(array* a) { return a->data; }

static void fill(array* a) {
  for (size_t i = 0; i < count_of(a); ++i) floats(a)[i] = random_value();
}

static void put_ints(array* a, const int* values) {
  for (size_t i = 0; i < count_of(a); ++i) {
    if (a->tensor.dtype.bits == 32)
      ((int32_t*)a->data)[i] = values[i];
    else
      ((int64_t*)a->data)[i] = values[i];
  }
}

/* Every key and value that was appended, by (sequence, position). */
static float all_k[SEQS][64][HKV * D], all_v[SEQS][64][HKV * DV];

/* Row `row` of sequence `seq`, which has n_k keys, from key `first` to `last`, by the definition. */
static double naive(const float* q, int seq, int head, int first, int last, double* out) {
  double scores[64], most = -INFINITY, sum = 0;
  for (int j = first; j < last; ++j) {
    double dot = 0;
    for (int d = 0; d < D; ++d) dot += (double)q[head * D + d] * all_k[seq][j][head / (HQ / HKV) * D + d];
    scores[j] = dot / sqrt((double)D);
    if (scores[j] > most) most = scores[j];
  }
  for (int d = 0; d < DV; ++d) out[d] = 0;
  for (int j = first; j < last; ++j) sum += exp(scores[j] - most);
  for (int j = first; j < last; ++j)
    for (int d = 0; d < DV; ++d)
      out[d] += exp(scores[j] - most) / sum * all_v[seq][j][head / (HQ / HKV) * DV + d];
  return most + log(sum);
}

static void expect_rows(array* q, array* out, array* lse, const int* n_q, const int* n_k, const char* what) {
  double o[DV], worst = 0;
  int row = 0;
  for (int b = 0; b < SEQS; ++b)
    for (int i = 0; i < n_q[b]; ++i, ++row)
      for (int h = 0; h < HQ; ++h) {
        const double l = naive(floats(q) + row * HQ * D, b, h, 0, n_k[b] - n_q[b] + i + 1, o);
        for (int d = 0; d < DV; ++d) {
          const double e = fabs(o[d] - (double)floats(out)[(row * HQ + h) * DV + d]);
          if (!(e <= worst)) worst = e;
        }
        if (!(fabs(l - (double)floats(lse)[row * HQ + h]) < 1e-5)) worst = 1;
      }
  printf("%s: largest error %.2g\n", what, worst);
  expect(worst < 1e-5, what);
}

/* New rows of a step into the cache by their sequences, and the step's attention. */
static void step(fovea_attention* attention, array* k_cache, array* v_cache, array* table, int phase,
                 const int* n_q, const int* n_k, const char* what) {
  int tokens = 0, offsets[SEQS + 1] = {0};
  for (int b = 0; b < SEQS; ++b) offsets[b + 1] = tokens += n_q[b];
  array *q = FLOATS(tokens, HQ, D), *k = FLOATS(tokens, HKV, D), *v = FLOATS(tokens, HKV, DV);
  array *out = FLOATS(tokens, HQ, DV), *lse = FLOATS(tokens, HQ), *lens = LONGS(SEQS), *starts = INTS(SEQS + 1);
  fill(q), fill(k), fill(v);
  put_ints(lens, n_k), put_ints(starts, offsets);
  for (int b = 0, row = 0; b < SEQS; ++b)
    for (int i = 0; i < n_q[b]; ++i, ++row) {
      memcpy(all_k[b][n_k[b] - n_q[b] + i], floats(k) + row * HKV * D, sizeof(all_k[0][0]));
      memcpy(all_v[b][n_k[b] - n_q[b] + i], floats(v) + row * HKV * DV, sizeof(all_v[0][0]));
    }

  fovea_append_args append = {0};
  append.size = sizeof(append);
  append.k = &k->tensor, append.v = &v->tensor;
  append.k_cache = &k_cache->tensor, append.v_cache = &v_cache->tensor;
  append.q_offsets = &starts->tensor, append.kv_lens = &lens->tensor, append.page_table = &table->tensor;
  check(fovea_append(&append, NULL), "append");

  fovea_step s = {0};
  s.size = sizeof(s);
  s.phase = phase;
  s.num_tokens = tokens;
  s.q_offsets = &starts->tensor, s.kv_lens = &lens->tensor, s.page_table = &table->tensor;
  check(fovea_attention_plan(attention, &s, NULL, NULL), "plan");
  fovea_layer layer = {0};
  layer.size = sizeof(layer);
  layer.q = &q->tensor, layer.out = &out->tensor, layer.lse = &lse->tensor;
  layer.k = &k_cache->tensor, layer.v = &v_cache->tensor;
  check(fovea_attention_run(attention, &layer, NULL), "run");
  check(fovea_attention_check(attention, PAGES, NULL), "check");
  expect_rows(q, out, lse, n_q, n_k, what);
  drop(q), drop(k), drop(v), drop(out), drop(lse), drop(lens), drop(starts);
}

/* Merging two halves of the keys of sequence 0 gives the result over all of them. */
static void merge(void) {
  array *q = FLOATS(1, HQ, D), *o = FLOATS(2, 1, HQ, DV), *lse = FLOATS(2, 1, HQ);
  array *out = FLOATS(1, HQ, DV), *out_lse = FLOATS(1, HQ);
  double part[DV], worst = 0;
  fill(q);
  for (int h = 0; h < HQ; ++h)
    for (int p = 0; p < 2; ++p) {
      floats(lse)[p * HQ + h] = (float)naive(floats(q), 0, h, p == 0 ? 0 : 5, p == 0 ? 5 : 9, part);
      for (int d = 0; d < DV; ++d) floats(o)[(p * HQ + h) * DV + d] = (float)part[d];
    }
  check(fovea_merge_states(&o->tensor, &lse->tensor, &out->tensor, &out_lse->tensor, NULL), "merge_states");
  for (int h = 0; h < HQ; ++h) {
    const double l = naive(floats(q), 0, h, 0, 9, part);
    worst = fmax(worst, fabs(l - (double)floats(out_lse)[h]));
    for (int d = 0; d < DV; ++d) worst = fmax(worst, fabs(part[d] - (double)floats(out)[h * DV + d]));
  }
  printf("merge: largest error %.2g\n", worst);
  expect(worst < 1e-5, "merge");
  /* The same by two tensors: parts of the one above. */
  array* again = FLOATS(1, HQ, DV);
  fovea_tensor o_a = again->tensor, o_b = again->tensor, lse_a = out_lse->tensor, lse_b = out_lse->tensor;
  o_a.data = o->data;
  o_b.data = o->data, o_b.byte_offset = HQ * DV * sizeof(float);
  lse_a.data = lse->data;
  lse_b.data = lse->data, lse_b.byte_offset = HQ * sizeof(float);
  check(fovea_merge_state(&o_a, &lse_a, &o_b, &lse_b, &again->tensor, NULL, NULL), "merge_state");
  expect(memcmp(again->data, out->data, HQ * DV * sizeof(float)) == 0, "merge_state differs from merge_states");
  drop(q), drop(o), drop(lse), drop(out), drop(out_lse), drop(again);
}

/* The last page of sequence 0 copied, and rows read back from the copy. */
static void copy_and_gather(array* k_cache, array* v_cache) {
  array *from = INTS(1), *to = LONGS(1), *slots = INTS(2), *k = FLOATS(2, HKV, D), *v = FLOATS(2, HKV, DV);
  put_ints(from, (int[]){7}), put_ints(to, (int[]){11});
  check(fovea_copy_pages(&k_cache->tensor, &v_cache->tensor, &from->tensor, &to->tensor, NULL), "copy_pages");
  put_ints(slots, (int[]){11 * PAGE + 1, -1});
  check(fovea_gather(&k_cache->tensor, &v_cache->tensor, 0, 0, &slots->tensor, &k->tensor, &v->tensor, NULL),
        "gather");
  expect(memcmp(k->data, all_k[0][5], sizeof(all_k[0][5])) == 0, "gathered K");
  expect(memcmp(v->data, all_v[0][5], sizeof(all_v[0][5])) == 0, "gathered V");
  for (int i = 0; i < HKV * DV; ++i) expect(floats(v)[HKV * DV + i] == 0.0f, "a slot below 0");
  drop(from), drop(to), drop(slots), drop(k), drop(v);
}

int main(void) {
  expect(fovea_abi_version() == FOVEA_ABI_VERSION, "ABI version");
  expect(strcmp(fovea_last_error(), "") == 0, "an error before any call");
  const char* json = NULL;
  check(fovea_backends_json(&json), "backends_json");
  expect(json != NULL && strstr(json, "\"CPU_ATTN\"") != NULL, "backends_json");
  expect(fovea_load_backend(NULL) == FOVEA_INVALID_ARGUMENT, "load_backend of null");
  expect(fovea_load_backend("/no/such.so") == FOVEA_NOT_FOUND, "load_backend of a file that is not there");
  expect(strstr(fovea_last_error(), "backend library /no/such.so: there is no such file") != NULL, "its reason");

  fovea_attention_spec spec;
  fovea_attention_spec_init(&spec);
  spec.num_heads = HQ, spec.num_kv_heads = HKV, spec.head_dim = D, spec.v_head_dim = DV;
  spec.dtype.code = FOVEA_FLOAT, spec.dtype.bits = 32, spec.dtype.lanes = 1;
  spec.page_size = PAGE;
  fovea_limits limits = {.size = sizeof(limits), .max_seqs = SEQS, .max_tokens = 32, .max_kv_tokens = 64, .max_kv_len = 32};
  const fovea_device cpu = {FOVEA_CPU, 0};
  const char* backends[] = {NULL, "CPU_ATTN", "torch_native", "CPU_ATTN,TORCH_NATIVE"};
  for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); ++i) {
    fovea_attention* attention = NULL;
    size_t bytes = 0;
    check(fovea_attention_create(&spec, &limits, backends[i], cpu, 0, &bytes, &attention), "create");
    if (attention == NULL) return 1;
    printf("%s %s: %zu bytes\n%s", fovea_attention_backend(attention, FOVEA_PREFILL),
           fovea_attention_backend(attention, FOVEA_DECODE), bytes, fovea_attention_explain(attention));
    array *k_cache = FLOATS(PAGES, PAGE, HKV, D), *v_cache = FLOATS(PAGES, PAGE, HKV, DV);
    /* Rows of a table four wide, of which three are the step's. */
    array* table = INTS(SEQS, 3);
    int64_t strides[2] = {4, 1};
    free(table->data);
    table->data = malloc(SEQS * 4 * sizeof(int32_t));
    if (table->data == NULL) return 3;
    const int32_t pages[SEQS][4] = {{3, 7, 0, -9}, {10, 999, -1, -9}, {5, 2, 8, -9}};
    memcpy(table->data, pages, sizeof(pages));
    table->tensor.data = table->data;
    table->tensor.strides = strides;
    step(attention, k_cache, v_cache, table, FOVEA_PREFILL, (int[]){7, 1, 3}, (int[]){7, 1, 3}, "prefill");
    step(attention, k_cache, v_cache, table, FOVEA_PREFILL, (int[]){0, 0, 7}, (int[]){7, 1, 10}, "cached prefill");
    step(attention, k_cache, v_cache, table, FOVEA_DECODE, (int[]){1, 1, 1}, (int[]){8, 2, 11}, "decode");
    step(attention, k_cache, v_cache, table, FOVEA_DECODE, (int[]){1, 0, 1}, (int[]){9, 2, 12}, "decode of two");
    copy_and_gather(k_cache, v_cache);
    drop(k_cache), drop(v_cache), drop(table);
    fovea_attention_destroy(attention);
  }
  merge();
  fovea_attention* none = NULL;
  expect(fovea_attention_create(&spec, &limits, "FLASH_ATN", cpu, 0, NULL, &none) == FOVEA_INVALID_ARGUMENT ||
             strstr(fovea_last_error(), "FLASH_ATN") != NULL,
         "an unknown backend");
  expect(none == NULL, "an object after an error");
  printf("%s\n", fovea_last_error());
  fovea_attention_destroy(NULL);
  return failures == 0 ? 0 : 1;
}
