/* EXAMPLE_ATTN: an attention backend outside of Fovea, in C11, that needs only fovea/backend_abi.h.
 *
 * It is simple rather than fast: each pair of a query row and a head is a task of its own, which walks its
 * visible keys in ascending order with an online softmax in double. No sum crosses a task and none depends on
 * pages, so that a row's bits depend on its own query and keys alone: all levels of invariance are claimed.
 */
#include <fovea/backend_abi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- What it can do. `fovea conformance` proves each of these, and that everything else is refused. */

#define MAX_HEAD_DIM 256 /* rows of Q and K are on a thread's stack */

static const fovea_backend_int_set page_sizes = {
    .size = sizeof(fovea_backend_int_set), .first = 1, .last = 1024, .step = 1};
static const fovea_backend_int_set head_dims = {
    .size = sizeof(fovea_backend_int_set), .first = 8, .last = MAX_HEAD_DIM, .step = 8};
static const char* const aliases[] = {"example"};
static const char* const families[] = {"example"};

static const fovea_backend_table table = {
    .size = sizeof(fovea_backend_table),
    .name = "EXAMPLE_ATTN",
    .description = "The example of a backend outside of Fovea: a task for each row and head, in double",
    .num_aliases = 1,
    .aliases = aliases,
    .num_families = 1,
    .families = families,
    .dtypes = FOVEA_BACKEND_BIT(FOVEA_BACKEND_F32) | FOVEA_BACKEND_BIT(FOVEA_BACKEND_F16) |
              FOVEA_BACKEND_BIT(FOVEA_BACKEND_BF16),
    .kv_dtypes = FOVEA_BACKEND_BIT(FOVEA_BACKEND_KV_F32) | FOVEA_BACKEND_BIT(FOVEA_BACKEND_KV_F16) |
                 FOVEA_BACKEND_BIT(FOVEA_BACKEND_KV_BF16),
    .types = FOVEA_BACKEND_BIT(FOVEA_BACKEND_DECODER),
    .phases = FOVEA_BACKEND_BIT(FOVEA_BACKEND_PREFILL) | FOVEA_BACKEND_BIT(FOVEA_BACKEND_DECODE),
    .features = FOVEA_BACKEND_WINDOW | FOVEA_BACKEND_SOFTCAP | FOVEA_BACKEND_NON_CAUSAL |
                FOVEA_BACKEND_VERIFY | FOVEA_BACKEND_LSE | FOVEA_BACKEND_NATIVE_PAGE |
                FOVEA_BACKEND_KV_SHARING,
    .invariance = FOVEA_BACKEND_INVARIANT_RUN | FOVEA_BACKEND_INVARIANT_BATCH |
                  FOVEA_BACKEND_INVARIANT_PAGE_SIZE | FOVEA_BACKEND_INVARIANT_CHUNKING |
                  FOVEA_BACKEND_INVARIANT_THREADS,
    .page_sizes = &page_sizes,
    .head_dims = &head_dims,
    .v_head_dims = &head_dims,
    .preferred_page_size = 16,
    .device = FOVEA_BACKEND_CPU,
    .graph = FOVEA_BACKEND_GRAPH_NEVER,
};

/* ---- A step's schedule. */

typedef struct plan {
  fovea_backend_spec spec;
  fovea_backend_batch batch; /* Fovea keeps the arrays until destroy_plan() */
  const int32_t* sequence;   /* [Tq] of each query row, in the workspace */
  int ran;
} plan;

static int32_t fail(const fovea_backend_error* error, int32_t status, const char* line) {
  snprintf(error->text, error->capacity, "%s", line);
  return status;
}

static int32_t create(void** instance, const fovea_backend_error* error) {
  (void)error;
  *instance = NULL; /* nothing to keep from one plan to the next */
  return FOVEA_BACKEND_OK;
}

static void destroy(void* instance) {
  (void)instance;
}

static int32_t workspace_bytes(void* instance, const fovea_backend_spec* spec,
                               const fovea_backend_limits* limits, uint64_t* bytes,
                               const fovea_backend_error* error) {
  (void)instance, (void)spec, (void)error;
  *bytes = (uint64_t)limits->max_tokens * sizeof(int32_t);
  return FOVEA_BACKEND_OK;
}

static int32_t make_plan(void* instance, const fovea_backend_spec* spec, const fovea_backend_limits* limits,
                         const fovea_backend_batch* batch, void* workspace, uint64_t bytes,
                         const fovea_backend_stream* stream, void** out, const fovea_backend_error* error) {
  (void)instance, (void)limits, (void)bytes, (void)stream;
  plan* p = calloc(1, sizeof *p);
  if (p == NULL) return fail(error, FOVEA_BACKEND_OUT_OF_MEMORY, "no memory for a plan");
  p->spec = *spec;
  p->batch = *batch;
  int32_t* sequence = workspace;
  for (int32_t b = 0; b < batch->num_seqs; ++b)
    for (int32_t row = batch->q_offsets[b]; row < batch->q_offsets[b + 1]; ++row)
      sequence[row] = b;
  p->sequence = sequence;
  *out = p;
  return FOVEA_BACKEND_OK;
}

static void destroy_plan(void* instance, void* p) {
  (void)instance;
  free(p);
}

/* ---- Elements. */

__extension__ typedef _Float16 fp16; /* gcc and clang extension */

/* The numbers of FOVEA_BACKEND_F32, F16 and BF16 are those of FOVEA_BACKEND_KV_F32, KV_F16 and KV_BF16. */
static void load(const void* data, int64_t first, int32_t dtype, int32_t n, float* out) {
  for (int32_t i = 0; i < n; ++i) {
    if (dtype == FOVEA_BACKEND_F32) {
      out[i] = ((const float*)data)[first + i];
    } else if (dtype == FOVEA_BACKEND_F16) {
      out[i] = (float)((const fp16*)data)[first + i];
    } else {
      const uint32_t bits = (uint32_t)((const uint16_t*)data)[first + i] << 16;
      memcpy(&out[i], &bits, sizeof bits);
    }
  }
}

static void store(void* data, int64_t at, int32_t dtype, float value) {
  if (dtype == FOVEA_BACKEND_F32) {
    ((float*)data)[at] = value;
  } else if (dtype == FOVEA_BACKEND_F16) {
    ((fp16*)data)[at] = (fp16)value;
  } else {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t half = 0x7fff + ((bits >> 16) & 1); /* to nearest, ties to even */
    ((uint16_t*)data)[at] = (uint16_t)(isnan(value) ? 0x7fc0 : (bits + half) >> 16);
  }
}

/* ---- Attention. */

typedef struct layer {
  const plan* plan;
  const fovea_backend_args* args;
} layer;

/* The keys [first, last] that the query at absolute position p sees, of n_k; none when last < first. */
typedef struct keys {
  int64_t first, last;
} keys;

static keys visible_keys(const fovea_backend_spec* spec, int64_t p, int64_t n_k) {
  keys k = {0, n_k - 1};
  if (spec->causal && p < k.last) k.last = p;
  if (spec->window_left >= 0 && p - spec->window_left > k.first) k.first = p - spec->window_left;
  if (spec->window_right >= 0 && p + spec->window_right < k.last) k.last = p + spec->window_right;
  return k;
}

/* The page of slot j / page_size of sequence b. */
static int64_t page_of(const plan* p, int32_t b, int64_t j) {
  const int64_t page = j / p->spec.page_size;
  return p->batch.kv_indptr != NULL ? p->batch.kv_indices[p->batch.kv_indptr[b] + page]
                                    : p->batch.page_table[b * p->batch.page_table_stride + page];
}

/* Where a query row begins: rows may lie in blocks. */
static int64_t row_offset(int64_t row, int64_t stride, int32_t block_rows, int64_t block_stride) {
  return block_rows == 0 ? row * stride : row / block_rows * block_stride + row % block_rows * stride;
}

/* One query row with one head: O = sum of softmax(scale * q.k) * v over its visible keys. */
static void attend(void* data, int64_t index, int32_t thread) {
  (void)thread;
  const plan* p = ((const layer*)data)->plan;
  const fovea_backend_args* a = ((const layer*)data)->args;
  const fovea_backend_spec* s = &p->spec;
  const int32_t row = (int32_t)(index / s->num_heads), head = (int32_t)(index % s->num_heads);
  const int32_t kv_head = head / (s->num_heads / s->num_kv_heads);
  const int32_t b = p->sequence[row];
  const int64_t n_k = p->batch.kv_lens[b], n_q = p->batch.q_offsets[b + 1] - p->batch.q_offsets[b];
  const int64_t position = row - p->batch.q_offsets[b] + n_k - n_q; /* causal masks end at the last key */

  float q[MAX_HEAD_DIM], x[MAX_HEAD_DIM];
  double o[MAX_HEAD_DIM] = {0}, max = -INFINITY, sum = 0;
  load(a->q, row_offset(row, a->q_row_stride, a->q_block_rows, a->q_block_stride) + head * a->q_head_stride,
       s->dtype, s->head_dim, q);
  const keys k = visible_keys(s, position, n_k);
  for (int64_t j = k.first; j <= k.last; ++j) {
    const int64_t page = page_of(p, b, j), slot = j % s->page_size;
    load(a->k, page * a->k_page_stride + kv_head * a->k_head_stride + slot * a->k_slot_stride, s->kv_dtype,
         s->head_dim, x);
    double score = 0;
    for (int32_t d = 0; d < s->head_dim; ++d)
      score += (double)q[d] * x[d];
    score *= (double)s->scale * a->k_scale;
    if (s->softcap > 0) score = s->softcap * tanh(score / s->softcap);
    if (score == -INFINITY) continue;
    if (score > max) { /* the sums so far are relative to the old maximum */
      const double rescale = exp(max - score);
      sum *= rescale;
      for (int32_t d = 0; d < s->v_head_dim; ++d)
        o[d] *= rescale;
      max = score;
    }
    const double weight = exp(score - max);
    sum += weight;
    load(a->v, page * a->v_page_stride + kv_head * a->v_head_stride + slot * a->v_slot_stride, s->kv_dtype,
         s->v_head_dim, x);
    for (int32_t d = 0; d < s->v_head_dim; ++d)
      o[d] += weight * x[d];
  }
  const int none = sum == 0; /* no visible key: then O = 0 and LSE = -inf */
  const int64_t out =
      row_offset(row, a->out_row_stride, a->out_block_rows, a->out_block_stride) + head * a->out_head_stride;
  for (int32_t d = 0; d < s->v_head_dim; ++d)
    store(a->out, out + d, s->dtype, none ? 0.0f : (float)(o[d] / sum * a->v_scale));
  if (a->lse != NULL) a->lse[(int64_t)row * s->num_heads + head] = (float)(none ? -INFINITY : max + log(sum));
}

static int32_t forward(void* instance, const void* of, const fovea_backend_args* args, int32_t phase,
                       const fovea_backend_stream* stream, const fovea_backend_error* error) {
  (void)instance, (void)phase, (void)error; /* rows are independent: prefill and decode are the same */
  plan* p = (plan*)of;
  layer l = {p, args};
  stream->parallel_for(stream->team, (int64_t)p->batch.num_tokens * p->spec.num_heads, attend, &l);
  p->ran = 1;
  return FOVEA_BACKEND_OK;
}

static const fovea_backend_kernel kernels[] = {
    [FOVEA_BACKEND_PREFILL] = {.size = sizeof(fovea_backend_kernel),
                               .family = "example",
                               .instance = "prefill"},
    [FOVEA_BACKEND_DECODE] = {.size = sizeof(fovea_backend_kernel),
                              .family = "example",
                              .instance = "decode"},
};

static void launched(void* instance, const void* of,
                     void (*emit)(void* data, const fovea_backend_kernel* kernel), void* data) {
  (void)instance;
  const plan* p = of;
  if (p->ran) emit(data, &kernels[p->batch.phase]);
}

static void all_kernels(void* instance, const fovea_backend_device* device,
                        void (*emit)(void* data, const fovea_backend_kernel* kernel), void* data) {
  (void)instance, (void)device;
  emit(data, &kernels[FOVEA_BACKEND_PREFILL]);
  emit(data, &kernels[FOVEA_BACKEND_DECODE]);
}

/* ---- The entry. */

static const fovea_backend backend = {
    .size = sizeof(fovea_backend),
    .table = &table,
    .create = create,
    .destroy = destroy,
    .workspace_bytes = workspace_bytes,
    .plan = make_plan,
    .destroy_plan = destroy_plan,
    .forward = forward,
    .launched = launched,
    .kernels = all_kernels,
};

int32_t fovea_backend_v1(const fovea_backend_host* host, const fovea_backend** out,
                         const fovea_backend_error* error) {
  (void)host, (void)error;
  *out = &backend;
  return FOVEA_BACKEND_OK;
}
