/* Paged attention from C: two sequences decode one token each on the CPU.
 *   cc examples/c/decode.c $(pkg-config --cflags --libs fovea) -o decode
 */
#include <fovea/c_api.h>
#include <stdint.h>
#include <stdio.h>

enum { HEADS = 8, KV_HEADS = 2, D = 64, PAGE = 16, PAGES = 4, SEQS = 2 };

static float q[SEQS * HEADS * D], out[SEQS * HEADS * D], new_k[SEQS * KV_HEADS * D], new_v[SEQS * KV_HEADS * D];
static float k_cache[PAGES * PAGE * KV_HEADS * D], v_cache[PAGES * PAGE * KV_HEADS * D];

static fovea_tensor tensor(void* data, uint8_t code, int32_t ndim, int64_t* shape) {
  const fovea_tensor t = {data, {FOVEA_CPU, 0}, ndim, {code, 32, 1}, shape, NULL, 0};
  return t;
}

static int failed(fovea_status status) {
  if (status != FOVEA_OK) fprintf(stderr, "%s\n", fovea_last_error());
  return status != FOVEA_OK;
}

int main(void) {
  /* A layer, and the limits of a step. */
  fovea_attention_spec spec;
  fovea_attention_spec_init(&spec);
  spec.num_heads = HEADS, spec.num_kv_heads = KV_HEADS, spec.head_dim = D, spec.page_size = PAGE;
  spec.dtype.code = FOVEA_FLOAT, spec.dtype.bits = 32, spec.dtype.lanes = 1;
  const fovea_limits limits = {.size = sizeof(limits), .max_seqs = SEQS, .max_tokens = 64,
                               .max_kv_tokens = PAGES * PAGE, .max_kv_len = PAGES * PAGE};
  const fovea_device cpu = {FOVEA_CPU, 0};
  fovea_attention* attention = NULL;
  if (failed(fovea_attention_create(&spec, &limits, NULL, cpu, 0, NULL, &attention))) return 1;
  printf("decode: %s\n", fovea_attention_backend(attention, FOVEA_DECODE));

  /* Sequence 0 has 17 keys on pages 2 and 0, sequence 1 has 5 on page 3; the last of each is new. */
  int32_t offsets[] = {0, 1, 2}, lens[] = {17, 5}, pages[] = {2, 0, 3, 3};
  fovea_tensor q_offsets = tensor(offsets, FOVEA_INT, 1, (int64_t[]){SEQS + 1});
  fovea_tensor kv_lens = tensor(lens, FOVEA_INT, 1, (int64_t[]){SEQS});
  fovea_tensor page_table = tensor(pages, FOVEA_INT, 2, (int64_t[]){SEQS, 2});
  int64_t q_shape[] = {SEQS, HEADS, D}, kv_shape[] = {SEQS, KV_HEADS, D}, cache_shape[] = {PAGES, PAGE, KV_HEADS, D};
  fovea_tensor q_rows = tensor(q, FOVEA_FLOAT, 3, q_shape), out_rows = tensor(out, FOVEA_FLOAT, 3, q_shape);
  fovea_tensor k_rows = tensor(new_k, FOVEA_FLOAT, 3, kv_shape), v_rows = tensor(new_v, FOVEA_FLOAT, 3, kv_shape);
  fovea_tensor k_pages = tensor(k_cache, FOVEA_FLOAT, 4, cache_shape);
  fovea_tensor v_pages = tensor(v_cache, FOVEA_FLOAT, 4, cache_shape);
  for (int i = 0; i < SEQS * KV_HEADS * D; ++i) new_v[i] = 1.0f;

  /* Per step: its plan. Per layer: append the new rows to the cache, then attention. */
  fovea_step step = {.size = sizeof(step), .phase = FOVEA_DECODE, .num_tokens = SEQS};
  step.q_offsets = &q_offsets, step.kv_lens = &kv_lens, step.page_table = &page_table;
  fovea_append_args append = {.size = sizeof(append), .k = &k_rows, .v = &v_rows};
  append.k_cache = &k_pages, append.v_cache = &v_pages;
  append.q_offsets = &q_offsets, append.kv_lens = &kv_lens, append.page_table = &page_table;
  fovea_layer layer = {.size = sizeof(layer), .q = &q_rows, .k = &k_pages, .v = &v_pages, .out = &out_rows};
  if (failed(fovea_attention_plan(attention, &step, NULL, NULL)) || failed(fovea_append(&append, NULL)) ||
      failed(fovea_attention_run(attention, &layer, NULL)))
    return 1;

  /* All keys are zero: each row is the mean of its values, of which only the new one is not zero. */
  for (int b = 0; b < SEQS; ++b)
    printf("sequence %d attends to %.0f keys\n", b, (double)(1.0f / out[b * HEADS * D]));
  fovea_attention_destroy(attention);
  return 0;
}
