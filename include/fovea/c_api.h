/* The C ABI of Fovea's attention: for engines in any language. Header and library match when
 * fovea_abi_version() is FOVEA_ABI_VERSION; structs begin with their size, so that fields may be added.
 *
 * Tensors are DLPack's DLTensor, field for field: a DLTensor* may be cast to a fovea_tensor*. On a CUDA
 * device all of them are in its memory, and calls queue work on the given stream and return without waiting,
 * except where noted. On the CPU calls are synchronous. An object is used by one thread at a time.
 *
 * Index tensors (offsets, lengths, tables, slots) are int32 or int64. Those of a step have any strides;
 * others are contiguous, except that the rows of a page table may have any stride. LSE is natural log, fp32.
 * A row that sees no key has O = 0, LSE = -inf.
 */
#ifndef FOVEA_C_API_H_
#define FOVEA_C_API_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FOVEA_API __attribute__((visibility("default")))
#else
#define FOVEA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FOVEA_ABI_VERSION 3

typedef enum fovea_status {
  FOVEA_OK = 0,
  FOVEA_INVALID_ARGUMENT = 1,
  FOVEA_NOT_FOUND = 2,
  FOVEA_UNSUPPORTED = 3,
  FOVEA_OUT_OF_MEMORY = 4,
  FOVEA_IO = 5,
  FOVEA_CANCELLED = 6,
  FOVEA_INTERNAL = 7
} fovea_status;

/* The message of this thread's last call that did not return FOVEA_OK, in one line: what was given, what is
 * allowed and what to change. Valid until the thread's next call; never null. */
FOVEA_API const char* fovea_last_error(void);

FOVEA_API uint32_t fovea_abi_version(void);
FOVEA_API const char* fovea_version(void); /* "0.1.0" */
FOVEA_API int fovea_cuda_built(void);      /* whether the library has CUDA code */

/* DLPack's DLDeviceType, DLDataTypeCode, DLDevice, DLDataType and DLTensor. */
enum { FOVEA_CPU = 1, FOVEA_CUDA = 2, FOVEA_CUDA_HOST = 3 };
enum {
  FOVEA_INT = 0,
  FOVEA_UINT = 1,
  FOVEA_FLOAT = 2,
  FOVEA_BFLOAT = 4,
  FOVEA_BOOL = 6,
  FOVEA_FLOAT8_E4M3FN = 10,
  FOVEA_FLOAT8_E5M2 = 12
};
typedef struct fovea_device {
  int32_t type;
  int32_t id;
} fovea_device;
typedef struct fovea_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} fovea_dtype;
typedef struct fovea_tensor {
  void* data;
  fovea_device device;
  int32_t ndim;
  fovea_dtype dtype;
  int64_t* shape;
  int64_t* strides; /* in elements; null = contiguous */
  uint64_t byte_offset;
} fovea_tensor;

/* Loads a shared library with an attention backend (fovea/backend_abi.h, unstable): objects created
 * afterwards may select it, by name or automatically after the built-in ones. It stays loaded until the
 * process ends. */
FOVEA_API fovea_status fovea_load_backend(const char* file);

/* All built-in and loaded backends, in the format of `fovea backends --json`. *json is valid as long as the
 * library is loaded. */
FOVEA_API fovea_status fovea_backends_json(const char** json);

/* What a layer needs. fovea_attention_spec_init() sets the defaults, given here in brackets, of the fields up
 * to kv_shuffle; a program that sets later ones zeroes them first and sets `size` to
 * sizeof(fovea_attention_spec) after the call. */
typedef struct fovea_attention_spec {
  uint32_t size;
  int32_t num_heads, num_kv_heads;   /* query heads, a multiple of kv heads */
  int32_t head_dim;                  /* of Q and K */
  int32_t v_head_dim;                /* of V and O [0 = head_dim] */
  float scale;                       /* multiplies q.k [0 = head_dim^-0.5] */
  float softcap;                     /* cap * tanh(s / cap) [0 = off] */
  fovea_dtype dtype;                 /* of Q and O: float 32, float 16, bfloat 16 */
  const char* kv_dtype;              /* as --kv-cache-dtype takes it; null = "auto" = dtype */
  int32_t page_size;                 /* tokens per page; 1 for keys in one ragged tensor [16] */
  int32_t causal;                    /* bottom-right aligned [1] */
  int32_t window_left, window_right; /* inclusive; -1 = unbounded [-1] */
  int32_t chunk, sink_tokens;        /* [0 = off] */
  int32_t spans, packed_mask, tree;  /* the step has these arrays [0] */
  int32_t has_sink, lse_includes_sink, has_alibi;
  int32_t kv_x_packed; /* K [pages, Hkv, D / x, page size, x] with x = 16 bytes, V [pages, Hkv, Dv, page size]
                          [0] */
  int32_t encoder;     /* bidirectional, keys are the step's own [0] */
  int32_t per_head_scales; /* fp8 caches have k_scales and v_scales [Hkv] in device memory [0] */
  int32_t kv_shuffle;      /* K as with kv_x_packed, V [pages, Hkv, page size / x, Dv, x] [0] */
  /* Latent attention (MLA), absorbed: num_kv_heads is 1, head_dim that of a record (576), v_head_dim that of
   * its latent (512), which is V; `scale` must be given: it is that of the heads before absorption. kv_dtype
   * may be "fp8_ds_mla" [0] */
  int32_t mla;
  int32_t sparse_topk; /* with mla: rows see the keys that fovea_layer.chosen lists, at most this number [0 =
                          all] */
} fovea_attention_spec;
FOVEA_API void fovea_attention_spec_init(fovea_attention_spec* spec);

/* What kernels, and the splits of keys between them, are chosen for; a row's bits depend on the choice.
 * LIMITS: steps as large as the limits, so that other limits may select other kernels. MANY and FEW:
 * independent of the limits, so that a row has the same bits under all that admit its step; FEW uses kernels
 * that decode one or a few sequences faster than many. */
enum { FOVEA_TUNE_FOR_LIMITS = 0, FOVEA_TUNE_FOR_MANY = 1, FOVEA_TUNE_FOR_FEW = 2 };

/* Upper bounds that hold for every step. Nothing is allocated later. */
typedef struct fovea_limits {
  uint32_t size;
  int32_t max_seqs;
  int32_t max_tokens;    /* query rows of one step */
  int64_t max_kv_tokens; /* keys of all sequences of one step */
  int32_t max_kv_len;    /* keys of one sequence */
  int32_t unused;        /* padding of earlier headers: not read */
  int32_t tune_for;      /* FOVEA_TUNE_FOR_LIMITS, _MANY or _FEW [0] */
} fovea_limits;

typedef struct fovea_attention fovea_attention;

enum { FOVEA_PREFILL = 0, FOVEA_DECODE = 1 };
/* Flags. CHECK_PAGES: the first run after a plan checks every page id of the step, and waits for the result;
 * an id outside the cache is an error. CPU runs always check. */
enum { FOVEA_CHECK_PAGES = 1 };

/* Selects and creates backends for `spec` (`backend` as for --attention-backend; null = "auto").
 * *workspace_bytes (may be null) receives the workspace size for fovea_attention_plan(), in bytes. */
FOVEA_API fovea_status fovea_attention_create(const fovea_attention_spec* spec, const fovea_limits* limits,
                                              const char* backend, fovea_device device, uint32_t flags,
                                              size_t* workspace_bytes, fovea_attention** out);
FOVEA_API void fovea_attention_destroy(fovea_attention* attention);
/* The name of the phase's backend, and why it was chosen; both valid until the object is destroyed. */
FOVEA_API const char* fovea_attention_backend(const fovea_attention* attention, int32_t phase);
FOVEA_API const char* fovea_attention_explain(const fovea_attention* attention);

/* One step. Null = absent. */
typedef struct fovea_step {
  uint32_t size;
  int32_t phase;                      /* FOVEA_PREFILL or FOVEA_DECODE: selects the kernels of the runs */
  int32_t num_tokens;                 /* Tq = q_offsets[B], which the host can't read on a GPU */
  const fovea_tensor* q_offsets;      /* [B + 1], from 0 */
  const fovea_tensor* kv_lens;        /* [B], new tokens included */
  const fovea_tensor* page_table;     /* [B, pages]; or kv_indptr and kv_indices */
  const fovea_tensor* kv_indptr;      /* [B + 1] */
  const fovea_tensor* kv_indices;     /* [nnz]; null with kv_indptr: keys are rows of a ragged tensor */
  const fovea_tensor* spans;          /* [n, 2] int32 first and last position, inclusive */
  const fovea_tensor* span_offsets;   /* [B + 1] */
  const fovea_tensor* packed_mask;    /* uint8; sequence b: bit i * n_k + j, from byte packed_offsets[b] */
  const fovea_tensor* packed_offsets; /* [B + 1] int64, bytes */
  const fovea_tensor* tree_bias;      /* [n, n] fp32 */
  int32_t past_kv_ready; /* 1: all keys and values except the last n_q of each sequence are already in every
                         layer's cache; kernels may read them while work queued before a run is in flight */
  int32_t unused;        /* padding of earlier headers: not read */
  int64_t num_pages; /* pages of every layer's cache, or rows of ragged keys; 0 = not given. When given, the
                        plan checks the ids of all pages that the step reads. On a GPU this does not wait: the
                        rows of a sequence with an invalid id are NaN (see fovea_attention_run) */
} fovea_step;

/* Called once per step. Keeps references to the tensors' memory and to `workspace` (uint8, contiguous; null =
 * the object allocates its own at the first plan). `stream` is a cudaStream_t; null = the default stream. May
 * be captured in a CUDA graph together with the runs. */
FOVEA_API fovea_status fovea_attention_plan(fovea_attention* attention, const fovea_step* step,
                                            const fovea_tensor* workspace, void* stream);
/* Waits for the stream, then reports errors that only the device can see: lengths beyond the limits, page ids
 * outside a cache of `num_pages` pages (-1 = ids are not checked). */
FOVEA_API fovea_status fovea_attention_check(fovea_attention* attention, int64_t num_pages, void* stream);

/* Steps captured once and replayed: prepare with the largest step (kernels of the following runs serve all
 * steps with at most as many sequences and rows, in the same arrays), capture the runs, then update before
 * each replay. */
FOVEA_API fovea_status fovea_attention_prepare_capture(fovea_attention* attention, const fovea_step* step,
                                                       const fovea_tensor* workspace, void* stream);
FOVEA_API fovea_status fovea_attention_update_capture(fovea_attention* attention, const fovea_step* step,
                                                      void* stream);

/* One layer's tensors. */
typedef struct fovea_layer {
  uint32_t size;
  const fovea_tensor* q;     /* [Tq, Hq, D], or [B, S, Hq, D] of B S = Tq rows; any strides but the last */
  const fovea_tensor* k;     /* [pages, page, Hkv, D] with any strides but the last (HND is a stride); or
                                ragged [rows, Hkv, D]; x-packed [pages, Hkv, D / x, page, x] */
  const fovea_tensor* v;     /* [pages, page, Hkv, Dv]; [rows, Hkv, Dv]; x-packed [pages, Hkv, Dv, page] */
  const fovea_tensor* out;   /* [Tq, Hq, Dv], or [B, S, Hq, Dv], likewise; elements must not overlap */
  const fovea_tensor* lse;   /* [Tq, Hq] fp32, or null */
  const fovea_tensor* sinks; /* [Hq] fp32 */
  const fovea_tensor* alibi_slopes; /* [Hq] fp32 */
  float k_scale, v_scale;           /* a stored element q represents q * scale; 0 = 1 */
  /* [pages, page, Hkv] for int8_per_token_head. For per_head_scales [Hkv], on the CPU also [pages, page, Hkv]
   * ([rows, Hkv] of ragged keys) of any strides: 0 between slots where a page has one scale. */
  const fovea_tensor* k_scales;
  const fovea_tensor* v_scales;
  /* With mla, `k` is [pages, page, D] or [pages, page, 1, D], of fp8_ds_mla bytes (656 for 512 + 64) in place
   * of D, and v and v_scales are null. With sparse_topk: [Tq, sparse_topk] int32 positions of keys in the
   * row's sequence, none twice; -1 = none. On the CPU others outside of the sequence are refused, on a GPU
   * they are none. The causal mask does not apply to them. */
  const fovea_tensor* chosen;
} fovea_layer;
/* Called once per layer. Does not allocate. On a GPU the rows of out and lse are NaN for invalid sequences:
 * those whose length is negative, exceeds max_kv_len or does not fit in its row of the page table, and with
 * num_pages those with a page id outside the cache. The other rows are correct. With q_offsets that do not
 * begin with 0 or that decrease, or with more keys in total than max_kv_tokens, all rows are NaN.
 * fovea_attention_check() reports the cause. */
FOVEA_API fovea_status fovea_attention_run(fovea_attention* attention, const fovea_layer* layer,
                                           void* stream);

/* Appends new rows to the cache, after the model's Q/K norm and RoPE. q, k and v have one dtype. */
typedef struct fovea_append_args {
  uint32_t size;
  const fovea_tensor* q;       /* [T, Hq, D], or null: only K and V */
  const fovea_tensor* q_out;   /* [T, Hq, D] normalised and rotated; may be q */
  const fovea_tensor* k;       /* [T, Hkv, D], or null with v: only Q */
  const fovea_tensor* v;       /* [T, Hkv, Dv] */
  const fovea_tensor* k_cache; /* as fovea_layer has them; written */
  const fovea_tensor* v_cache;
  const char* kv_dtype; /* null = auto = the dtype of the cache tensors */
  float k_scale, v_scale;
  const fovea_tensor* k_scales; /* written, for int8_per_token_head */
  const fovea_tensor* v_scales;
  /* Destination of the rows: slots [T] = page * page_size + offset, below 0 = not stored; if slots is null,
   * row i of sequence b (rows from q_offsets[b]) goes to position kv_lens[b] - n_q + i by its page table. */
  const fovea_tensor* slots;
  const fovea_tensor* q_offsets;
  const fovea_tensor* kv_lens; /* new tokens included */
  const fovea_tensor* page_table;
  const fovea_tensor* q_norm; /* [D] fp32 RMS norm weights per head, or null */
  const fovea_tensor* k_norm;
  float norm_eps;
  const fovea_tensor* cos; /* [positions, rotary_dim / 2] fp32, or null: no rotation */
  const fovea_tensor* sin;
  /* [T]; null = row t for token t if slots is given, else the position given for slots = null. */
  const fovea_tensor* positions;
  int32_t interleaved; /* pairs (2 t, 2 t + 1), else (t, t + rotary_dim / 2) */
} fovea_append_args;
FOVEA_API fovea_status fovea_append(const fovea_append_args* args, void* stream);

/* Copies whole pages of one layer: page from[i] to page to[i]; no page may be in both lists. Any tensors
 * [pages, ...] whose pages are dense blocks: caches in each layout, and scales. */
FOVEA_API fovea_status fovea_copy_pages(const fovea_tensor* k_cache, const fovea_tensor* v_cache,
                                        const fovea_tensor* from, const fovea_tensor* to, void* stream);
/* Gathers rows of the cache by slots [T] into k [T, Hkv, D] and v [T, Hkv, Dv], dequantised; a slot below 0
 * gives zeros. Not for int8_per_token_head. */
FOVEA_API fovea_status fovea_gather(const fovea_tensor* k_cache, const fovea_tensor* v_cache, float k_scale,
                                    float v_scale, const fovea_tensor* slots, const fovea_tensor* k,
                                    const fovea_tensor* v, void* stream);

/* Merges attention over disjoint sets of keys: o [parts, T, Hq, Dv], lse [parts, T, Hq] fp32 into out
 * [T, Hq, Dv] and out_lse [T, Hq] (or null). */
FOVEA_API fovea_status fovea_merge_states(const fovea_tensor* o, const fovea_tensor* lse,
                                          const fovea_tensor* out, const fovea_tensor* out_lse, void* stream);
/* As fovea_merge_states, for two results with o [T, Hq, Dv] and lse [T, Hq]. */
FOVEA_API fovea_status fovea_merge_state(const fovea_tensor* o_a, const fovea_tensor* lse_a,
                                         const fovea_tensor* o_b, const fovea_tensor* lse_b,
                                         const fovea_tensor* out, const fovea_tensor* out_lse, void* stream);

/* Attention without softmax; fovea/linear_attention.h has the formulas and what the bits depend on. The
 * sequences of a batch lie one after another: sequence b has the rows [offsets[b], offsets[b + 1]), offsets
 * [B + 1] from 0. Index tensors are int32, on the CPU also int64; null = absent. */

/* FOVEA_CHUNKED: tensor cores over chunks of 64 rows. FOVEA_RECURRENT: row by row in fp32, for decode and for
 * shapes without a chunked kernel. On the CPU both are the latter. */
enum { FOVEA_CHUNKED = 0, FOVEA_RECURRENT = 1 };

typedef struct fovea_linear_args {
  uint32_t size;
  int32_t form;                /* [FOVEA_CHUNKED] */
  int32_t max_len;             /* no sequence has more rows; 0 = T */
  float scale;                 /* 0 = 1 for lightning attention, Dk^-0.5 for the gated delta rule */
  const fovea_tensor* q;       /* [T, Hk, Dk] float32, float16 or bfloat16; the last dimension dense */
  const fovea_tensor* k;       /* [T, Hk, Dk] */
  const fovea_tensor* v;       /* [T, H, Dv]; Hk = H for lightning attention, else H is a multiple of it */
  const fovea_tensor* out;     /* [T, H, Dv] */
  const fovea_tensor* offsets; /* [B + 1] */
  const fovea_tensor* initial_state; /* [slots, H, Dk, Dv] fp32; null = zeros */
  const fovea_tensor* final_state;   /* the same shape, written; may be initial_state; null = not kept */
  const fovea_tensor* initial_slots; /* [B]: below 0 = zeros; null = b */
  const fovea_tensor* final_slots;   /* [B]: distinct, below 0 = not kept; null = b */
  const fovea_tensor* log_decay;     /* lightning attention: [H] fp32, at most 0 */
  const fovea_tensor* g;    /* gated delta rule: [T, H] fp32, log of the decay, at most 0; null = 0 */
  const fovea_tensor* beta; /* likewise [T, H] fp32; null = 1 */
  int32_t normalize_qk;     /* likewise: q and k are first multiplied by rsqrt(sum x^2 + 1e-6) over Dk */
} fovea_linear_args;
/* S_t = exp(log_decay) S_{t-1} + k_t v_t^T; out_t = scale S_t^T q_t. */
FOVEA_API fovea_status fovea_lightning_attention(const fovea_linear_args* args, void* stream);
/* S = exp(g_t) S_{t-1}; S_t = S + k_t (beta_t (v_t - S^T k_t))^T; out_t = scale S_t^T q_t. */
FOVEA_API fovea_status fovea_gated_delta_rule(const fovea_linear_args* args, void* stream);

/* out_i = sum over visible j of silu(alpha q_i.k_j + bias_ij) / max_seq_len v_j. */
typedef struct fovea_hstu_args {
  uint32_t size;
  int32_t max_seq_len;            /* N: the divisor; no sequence is longer */
  float alpha;                    /* 0 = Dk^-0.5 */
  int32_t contextual;             /* tokens in front of each sequence that see all but the targets */
  int32_t max_attn_len, min_full; /* 0 = unbounded, none */
  const fovea_tensor* q;          /* [Tq, H, Dk] float32, float16 or bfloat16; the last dimension dense */
  const fovea_tensor* k;          /* [T, H, Dk] */
  const fovea_tensor* v;          /* [T, H, Dv] */
  const fovea_tensor* out;        /* [Tq, H, Dv] */
  const fovea_tensor* offsets;    /* [B + 1], of k and v */
  const fovea_tensor*
      q_offsets; /* [B + 1]: the queries are the last rows of each sequence; null = all rows */
  const fovea_tensor* num_targets;   /* [B] */
  const fovea_tensor* position_bias; /* [2 N - 1] fp32: of j - i + N - 1 */
  const fovea_tensor* time_bias;     /* [buckets + 1] fp32 */
  const fovea_tensor* time_bounds;   /* [buckets] int64, ascending: bucket(x) = how many are <= x */
  const fovea_tensor* times;         /* [T] int64 */
} fovea_hstu_args;
FOVEA_API fovea_status fovea_hstu_attention(const fovea_hstu_args* args, void* stream);
/* time_bounds for bucket(x) = floor(log(max(x, 1)) / 0.301), clamped to `buckets`. */
FOVEA_API fovea_status fovea_hstu_time_bounds(int32_t buckets, int64_t* bounds);

/* Attention whose mask and score are expressions (docs/flex-attention.md has the language). */
typedef struct fovea_flex_buffer {
  const char* name;
  const fovea_tensor* tensor; /* [n] or [n, m]: int32, float32, or uint8 as booleans; rows of any stride. On
                                 the CPU also int64, whose values must fit 32 bits */
} fovea_flex_buffer;
typedef struct fovea_flex_args {
  uint32_t size;
  int32_t num_buffers;
  const fovea_flex_buffer* buffers;
  const char* mask;      /* a bool; null or empty = every key is seen */
  const char* score;     /* a number; null or empty = s */
  float scale;           /* multiplies q.k; 0 = D^-0.5 */
  const fovea_tensor* q; /* [B, Sq, Hq, D] float32, float16 or bfloat16, or [Tq, Hq, D] with q_offsets; any
                            strides but the last */
  const fovea_tensor*
      k; /* [B, Sk, Hkv, D]; [T, Hkv, D] with kv_offsets; [pages, page, Hkv, D] with kv_lens */
  const fovea_tensor* v;   /* likewise, of Dv */
  const fovea_tensor* out; /* as q, of Dv */
  const fovea_tensor* lse; /* [B, Sq, Hq] or [Tq, Hq] fp32, or null */
  const fovea_tensor*
      q_offsets; /* [B + 1] from 0; this and the next three are in host memory, also for a GPU */
  const fovea_tensor* kv_offsets; /* [B + 1] from 0 */
  const fovea_tensor* kv_lens;    /* [B]; with page_table instead of kv_offsets */
  const fovea_tensor* page_table; /* [B, n] */
  int64_t* blocks; /* [3], or null: receives how many blocks of rows and 128 keys the mask leaves empty,
                      partial and full */
} fovea_flex_args;
FOVEA_API fovea_status fovea_flex_attention(const fovea_flex_args* args, void* stream);

#ifdef __cplusplus
}
#endif
#endif
