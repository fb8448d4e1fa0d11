/* The ABI of attention backends that are built outside of Fovea. UNSTABLE: it will change until Fovea's
 * engine itself runs on a GPU. Each change gets a new version number, and Fovea loads only libraries with its
 * own number.
 *
 * A backend is a shared library that exports one C function, fovea_backend_v1 (declared at the end), and is
 * loaded by --backend-library FILE, EngineConfig::backend_libraries, fovea_load_backend() or
 * fovea.load_backend(). It stays loaded until the process ends. See examples/backend.
 *
 * Structs. Every struct begins with its size. The callee reads a field only where the caller's struct has it:
 * FOVEA_BACKEND_HAS(args, sinks). Fovea's structs have all fields of the header that it was built with. In
 * the library's structs Fovea treats missing fields as zero, and refuses unknown fields unless they are zero.
 * Pointer arguments are valid during the call, except where a plan keeps them.
 *
 * Errors. A function that can fail returns a fovea_backend_status and, when that is not FOVEA_BACKEND_OK,
 * writes one line into error->text (zero-terminated, error->capacity bytes): what was given, what is allowed,
 * what to change. No C++ exception may leave a function or a task of parallel_for.
 *
 * Threads. An instance and its plans are used by one thread at a time; different instances may run
 * concurrently.
 *
 * Checks. Before each call Fovea checks what all backends would check: that the table claims what the spec
 * requires, that the limits and the step's arrays agree with one another (on a GPU only their sizes: the
 * arrays are in its memory), that the workspace is large enough and 64-byte aligned, that every array which
 * the spec needs is present. On a CPU it also checks page ids if the step has num_pages. A step without rows
 * never reaches a backend.
 *
 * `fovea conformance --backend NAME --backend-library FILE` proves each claim of the table. */
#ifndef FOVEA_BACKEND_ABI_H_
#define FOVEA_BACKEND_ABI_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FOVEA_BACKEND_EXPORT __attribute__((visibility("default")))
#else
#define FOVEA_BACKEND_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FOVEA_BACKEND_ABI 1

/* Whether the struct at `pointer` has `field`, according to its size. */
#define FOVEA_BACKEND_HAS(pointer, field) \
  ((pointer)->size >=                     \
   (size_t)((const char*)&(pointer)->field - (const char*)(pointer)) + sizeof((pointer)->field))

/* A set of enumerators: FOVEA_BACKEND_BIT(FOVEA_BACKEND_F32) | FOVEA_BACKEND_BIT(FOVEA_BACKEND_F16). */
#define FOVEA_BACKEND_BIT(enumerator) (UINT64_C(1) << (enumerator))

typedef enum fovea_backend_status {
  FOVEA_BACKEND_OK = 0,
  FOVEA_BACKEND_INVALID_ARGUMENT = 1,
  FOVEA_BACKEND_UNSUPPORTED = 2,
  FOVEA_BACKEND_OUT_OF_MEMORY = 3,
  FOVEA_BACKEND_INTERNAL = 4
} fovea_backend_status;

typedef struct fovea_backend_error {
  uint32_t size;
  uint32_t capacity; /* bytes of text, at least 256 */
  char* text;
} fovea_backend_error;

/* Element types of Q and O. */
enum { FOVEA_BACKEND_F32 = 0, FOVEA_BACKEND_F16 = 1, FOVEA_BACKEND_BF16 = 2 };
/* Element types of stored K and V. int8 has a scale for each token and KV head. */
enum {
  FOVEA_BACKEND_KV_F32 = 0,
  FOVEA_BACKEND_KV_F16 = 1,
  FOVEA_BACKEND_KV_BF16 = 2,
  FOVEA_BACKEND_KV_FP8_E4M3 = 3,
  FOVEA_BACKEND_KV_FP8_E5M2 = 4,
  FOVEA_BACKEND_KV_INT8_PER_TOKEN_HEAD = 5
};
enum { FOVEA_BACKEND_CPU = 0, FOVEA_BACKEND_CUDA = 1 };
enum { FOVEA_BACKEND_PREFILL = 0, FOVEA_BACKEND_DECODE = 1 };
/* Attention types. */
enum {
  FOVEA_BACKEND_DECODER = 0,
  FOVEA_BACKEND_ENCODER = 1,
  FOVEA_BACKEND_ENCODER_ONLY = 2,
  FOVEA_BACKEND_ENCODER_DECODER = 3
};
/* Which batches a captured graph may hold. */
enum {
  FOVEA_BACKEND_GRAPH_NEVER = 0,
  FOVEA_BACKEND_GRAPH_UNIFORM_SINGLE_TOKEN_DECODE = 1,
  FOVEA_BACKEND_GRAPH_UNIFORM_BATCH = 2,
  FOVEA_BACKEND_GRAPH_ALWAYS = 3
};

/* Features: columns of the capability matrix with a yes or no value. */
#define FOVEA_BACKEND_WINDOW FOVEA_BACKEND_BIT(0)      /* sliding window */
#define FOVEA_BACKEND_CHUNK FOVEA_BACKEND_BIT(1)       /* chunked-local attention */
#define FOVEA_BACKEND_SOFTCAP FOVEA_BACKEND_BIT(2)     /* logit soft cap */
#define FOVEA_BACKEND_SINK FOVEA_BACKEND_BIT(3)        /* learned sink logits */
#define FOVEA_BACKEND_SINK_TOKENS FOVEA_BACKEND_BIT(4) /* the first keys stay visible (StreamingLLM) */
#define FOVEA_BACKEND_ALIBI FOVEA_BACKEND_BIT(5)
#define FOVEA_BACKEND_SPANS FOVEA_BACKEND_BIT(6)       /* bidirectional multimodal spans */
#define FOVEA_BACKEND_PACKED_MASK FOVEA_BACKEND_BIT(7) /* a bit for each pair of query and key */
#define FOVEA_BACKEND_VERIFY FOVEA_BACKEND_BIT(8)      /* verification of one chain of drafts */
#define FOVEA_BACKEND_TREE_MASK FOVEA_BACKEND_BIT(9)   /* verification of a tree of drafts */
#define FOVEA_BACKEND_NON_CAUSAL FOVEA_BACKEND_BIT(10) /* for a decoder */
#define FOVEA_BACKEND_MLA FOVEA_BACKEND_BIT(11)        /* for MLA models only */
#define FOVEA_BACKEND_SPARSE FOVEA_BACKEND_BIT(12)     /* for sparse attention only */
#define FOVEA_BACKEND_CHUNKED_PREFIX FOVEA_BACKEND_BIT(13)
#define FOVEA_BACKEND_DCP FOVEA_BACKEND_BIT(14)
#define FOVEA_BACKEND_NON_CAUSAL_DCP FOVEA_BACKEND_BIT(15)
#define FOVEA_BACKEND_PCP FOVEA_BACKEND_BIT(16)
#define FOVEA_BACKEND_LSE FOVEA_BACKEND_BIT(17)         /* returns the log-sum-exp when asked */
#define FOVEA_BACKEND_NATIVE_PAGE FOVEA_BACKEND_BIT(18) /* reads pages of more than one token */
#define FOVEA_BACKEND_KV_X_PACKED FOVEA_BACKEND_BIT(19) /* reads FOVEA_BACKEND_FORM_X_PACKED */
#define FOVEA_BACKEND_KV_SHARING FOVEA_BACKEND_BIT(20)  /* a layer reads K and V of another layer */
#define FOVEA_BACKEND_KV_CONNECTOR FOVEA_BACKEND_BIT(21)
#define FOVEA_BACKEND_PER_HEAD_SCALES FOVEA_BACKEND_BIT(22)
#define FOVEA_BACKEND_OUTPUT_QUANT FOVEA_BACKEND_BIT(23)
#define FOVEA_BACKEND_ADAPTIVE_VERIFICATION FOVEA_BACKEND_BIT(24)
#define FOVEA_BACKEND_FP64_ACCUMULATE FOVEA_BACKEND_BIT(25)
#define FOVEA_BACKEND_KV_SHUFFLE FOVEA_BACKEND_BIT(26) /* reads FOVEA_BACKEND_FORM_SHUFFLE */

/* Levels of invariance: what a sequence's bits do not depend on. */
#define FOVEA_BACKEND_INVARIANT_RUN FOVEA_BACKEND_BIT(0)
#define FOVEA_BACKEND_INVARIANT_BATCH FOVEA_BACKEND_BIT(1)     /* the other sequences of the step */
#define FOVEA_BACKEND_INVARIANT_PAGE_SIZE FOVEA_BACKEND_BIT(2) /* and the layout of pages */
#define FOVEA_BACKEND_INVARIANT_CHUNKING FOVEA_BACKEND_BIT(3)  /* how a prompt is cut into steps */
#define FOVEA_BACKEND_INVARIANT_THREADS FOVEA_BACKEND_BIT(4)
#define FOVEA_BACKEND_INVARIANT_PREFILL_CHUNKS FOVEA_BACKEND_BIT(5) /* its cut into prefill steps */

/* Positive integers: first, first + step, ..., last, and the listed ones. last < first = no range; last =
 * INT32_MAX = unbounded. */
typedef struct fovea_backend_int_set {
  uint32_t size;
  int32_t first, last, step;
  uint32_t num_listed; /* at most 12 */
  int32_t listed[12];
} fovea_backend_int_set;

/* The capability table: what the kernels support now, not what is planned. Selection, refusals, the matrix
 * and conformance read it. The table and all that it points to must not change while the library is loaded.
 */
typedef struct fovea_backend_table {
  uint32_t size;
  uint32_t num_aliases, num_families;
  const char* name;            /* A to Z, 0 to 9 and _; at most 64 characters; unique among backends */
  const char* description;     /* one line, at most 200 bytes of UTF-8 */
  const char* const* aliases;  /* other names: a to z, 0 to 9 and _; null = none */
  const char* const* families; /* kernel families whose capabilities the table claims; null = any */
  const char* prefill_partner; /* for a backend that only decodes: the backend for prefill; null = none */
  uint64_t dtypes, kv_dtypes;  /* sets of FOVEA_BACKEND_F32 ..., of FOVEA_BACKEND_KV_F32 ... */
  uint64_t types, phases;      /* sets of FOVEA_BACKEND_DECODER ..., of FOVEA_BACKEND_PREFILL ... */
  uint64_t features, invariance;
  const fovea_backend_int_set* page_sizes; /* tokens per page */
  const fovea_backend_int_set* head_dims;  /* of Q and K */
  const fovea_backend_int_set* v_head_dims;
  const fovea_backend_int_set* gqa_ratios;                /* query heads per KV head; null = any */
  int32_t preferred_page_size;                            /* one of page_sizes */
  int32_t device;                                         /* FOVEA_BACKEND_CPU or FOVEA_BACKEND_CUDA */
  int32_t graph;                                          /* FOVEA_BACKEND_GRAPH_NEVER on a CPU */
  int32_t min_compute_capability, max_compute_capability; /* 10 * major + minor; 0 = no bound */
} fovea_backend_table;

/* What one attention layer needs. Query row i of a sequence with n_q rows and n_k keys is at position
 * p = i + n_k - n_q. It sees key j where every test that is set holds; spans add the keys of each span that
 * contains both p and j; packed_mask replaces all tests except the spans. The score is scale * q.k, then the
 * soft cap, then - slope * |p - j| (ALiBi), then the tree bias; a key whose score is -inf is masked.
 * O = sum softmax(score) * v, with exp(sinks[h]) added to the denominator where has_sink; LSE is the natural
 * log of the denominator, without the sink unless lse_includes_sink. */
typedef struct fovea_backend_spec {
  uint32_t size;
  int32_t num_heads, num_kv_heads;   /* query heads, a multiple of KV heads; head h reads KV head h / ratio */
  int32_t head_dim, v_head_dim;      /* of Q and K, of V and O */
  float scale;                       /* multiplies q.k */
  float softcap;                     /* cap * tanh(s / cap); 0 = off */
  int32_t dtype, kv_dtype;           /* of Q and O, of stored K and V */
  int32_t type;                      /* FOVEA_BACKEND_DECODER, ... */
  int32_t page_size;                 /* tokens per page, 1 or more */
  int32_t causal;                    /* j <= p */
  int32_t window_left, window_right; /* p - j <= left, j - p <= right; -1 = unbounded */
  int32_t chunk;                     /* j / chunk == p / chunk; 0 = off */
  int32_t sink_tokens;               /* keys j < sink_tokens stay visible outside the window; 0 = off */
  int32_t spans, packed_mask, tree;  /* 1: the step has these arrays */
  int32_t has_sink, lse_includes_sink, has_alibi;
  int32_t kv_x_packed; /* 1: the cache has FOVEA_BACKEND_FORM_X_PACKED */
  int32_t kv_shuffle;  /* 1: the cache has FOVEA_BACKEND_FORM_SHUFFLE */
  int32_t use_mla, use_sparse, fp64_accumulate;
  int32_t mla_nope_head_dim, mla_rope_head_dim, mla_v_head_dim; /* of MLA prefill */
  uint64_t needs;                                               /* features needed beyond the fields above */
} fovea_backend_spec;

/* What kernels, and the splits of keys between them, are chosen for: steps as large as the limits; or many or
 * few sequences independently of the limits, so that a row has the same bits under all limits that admit its
 * step. */
enum {
  FOVEA_BACKEND_TUNE_FOR_LIMITS = 0,
  FOVEA_BACKEND_TUNE_FOR_MANY_SEQUENCES = 1,
  FOVEA_BACKEND_TUNE_FOR_FEW_SEQUENCES = 2
};

/* Upper bounds of every step. */
typedef struct fovea_backend_limits {
  uint32_t size;
  int32_t max_seqs;
  int32_t max_tokens;    /* query rows of one step */
  int32_t max_kv_len;    /* keys of one sequence */
  int64_t max_kv_tokens; /* keys of one step */
  int32_t tune_for;      /* FOVEA_BACKEND_TUNE_FOR_LIMITS, ... */
} fovea_backend_limits;

typedef struct fovea_backend_span {
  int32_t first, last; /* absolute positions, inclusive */
} fovea_backend_span;

/* A step of B sequences with Tq query rows in one tensor. Arrays are in device memory and stay valid until
 * the plan is destroyed; null = absent. */
typedef struct fovea_backend_batch {
  uint32_t size;
  int32_t phase;                /* of the forward that will follow */
  int32_t num_seqs, num_tokens; /* B and Tq, both 1 or more */
  const int32_t* q_offsets;     /* [B + 1] from 0; sequence b has the rows [q_offsets[b], q_offsets[b + 1]) */
  const int32_t* kv_lens;       /* [B] keys, the new tokens included */
  const int32_t* page_table;    /* [B, page_table_stride]; entries past a sequence's pages are garbage */
  int64_t page_table_stride;
  /* Instead of page_table: sequence b has the pages kv_indices[kv_indptr[b], kv_indptr[b + 1]). On a GPU with
   * pages of one token and without kv_indices: the rows [kv_indptr[b], ...) of one tensor. */
  const int32_t* kv_indptr;
  const int32_t* kv_indices;
  const fovea_backend_span* spans; /* sequence b's at [span_offsets[b], span_offsets[b + 1]) */
  const int32_t* span_offsets;     /* [B + 1] */
  const uint8_t* packed_mask;      /* bit i * n_k + j of sequence b from byte packed_offsets[b] on */
  const int64_t* packed_offsets;   /* [B + 1] */
  const float* tree_bias;          /* [tree_size, tree_size], added for keys n_k - n_q + c, c < tree_size */
  /* Entries of page_table and of kv_indices, spans, and bytes of packed_mask. */
  int64_t page_table_entries, num_kv_indices, num_spans, packed_bytes;
  int64_t num_pages; /* of the cache; 0 = not given, and page ids are trusted */
  int32_t tree_size;
  int32_t past_kv_ready; /* 1: all keys except the last n_q of each sequence are in the cache before plan() */
} fovea_backend_batch;

/* How the elements of a page are laid out. */
enum {
  FOVEA_BACKEND_FORM_STRIDED = 0,  /* D elements of K, and Dv of V, are contiguous */
  FOVEA_BACKEND_FORM_X_PACKED = 1, /* x = 16 / bytes of an element: x elements of K are contiguous */
  FOVEA_BACKEND_FORM_SHUFFLE = 2   /* likewise, and x slots of V are contiguous */
};

/* One layer's tensors; strides in elements. Head h of row t of Q begins at
 *   t / q_block_rows * q_block_stride + t % q_block_rows * q_row_stride + h * q_head_stride
 * with D contiguous elements, and O likewise with Dv. The element (page, kv head, slot, d) of K is
 *   k[page * k_page_stride + head * k_head_stride + slot * k_slot_stride + d]
 * and that of V likewise; X_PACKED: K has d / x * k_chunk_stride + d % x instead of d, V has d *
 * v_dim_stride; SHUFFLE: as X_PACKED, and V has slot / x * v_chunk_stride + slot % x * v_slot_stride. A
 * stored element e represents e * k_scale * k_scales[page * scale_page_stride + head * scale_head_stride +
 * slot * scale_slot_stride], without the last factor where k_scales is null; V likewise. Slots past a
 * sequence's last token hold garbage. */
typedef struct fovea_backend_args {
  uint32_t size;
  int32_t kv_form;
  int32_t q_block_rows, out_block_rows; /* 0 = all rows are one block */
  const void* q;                        /* [Tq, Hq, D] */
  int64_t q_row_stride, q_head_stride, q_block_stride;
  void* out; /* [Tq, Hq, Dv] */
  int64_t out_row_stride, out_head_stride, out_block_stride;
  float* lse; /* [Tq, Hq] natural log; null = not written */
  const void *k, *v;
  int64_t num_pages; /* pages in k and v; 0 = not known */
  int64_t k_page_stride, k_head_stride, k_slot_stride, k_chunk_stride;
  int64_t v_page_stride, v_head_stride, v_slot_stride, v_dim_stride, v_chunk_stride;
  float k_scale, v_scale;
  const float *k_scales, *v_scales;
  int64_t scale_page_stride, scale_head_stride, scale_slot_stride;
  const float* sinks;        /* [Hq] */
  const float* alibi_slopes; /* [Hq] */
} fovea_backend_args;

/* Where work runs. On a CPU calls are synchronous, and parallel_for distributes tasks over Fovea's threads:
 * it calls task(data, index, thread) for each index in [0, tasks), assigned in ascending order, with thread
 * in [0, num_threads) and at most one task on a thread at a time, and returns when all are done. A nested
 * call inside a task runs its tasks serially. On CUDA calls queue work on cuda_stream (a cudaStream_t) of
 * device cuda_device, which is current, and do not wait. */
typedef struct fovea_backend_stream {
  uint32_t size;
  int32_t device; /* FOVEA_BACKEND_CPU or FOVEA_BACKEND_CUDA */
  int32_t num_threads;
  int32_t cuda_device;
  void* cuda_stream;
  void* team;
  void (*parallel_for)(void* team, int64_t tasks, void (*task)(void* data, int64_t index, int32_t thread),
                       void* data);
} fovea_backend_stream;

/* A device for which backends are selected; it need not be present. */
typedef struct fovea_backend_device {
  uint32_t size;
  int32_t kind;               /* FOVEA_BACKEND_CPU or FOVEA_BACKEND_CUDA */
  int32_t compute_capability; /* 10 * major + minor */
  int32_t shared_bytes;       /* maximum shared memory per block; INT32_MAX = no specific device */
} fovea_backend_device;

/* A compiled kernel, by name. */
typedef struct fovea_backend_kernel {
  uint32_t size;
  /* The keys of sequences with at most split_rows query rows are split at multiples of split_keys, and the
   * partial results are combined; 0 = never split. */
  int32_t split_keys, split_rows;
  const char* family;   /* kernels that share an implementation: "example" */
  const char* instance; /* the instantiation within the family: "decode bfloat16" */
} fovea_backend_kernel;

typedef struct fovea_backend {
  uint32_t size;
  const fovea_backend_table* table;

  /* Creates an object that plans and runs; *instance is passed to the other functions. */
  int32_t (*create)(void** instance, const fovea_backend_error* error);
  void (*destroy)(void* instance);

  /* Bytes of device memory that suffice for any step within `limits`: a pure function of `spec` and `limits`.
   */
  int32_t (*workspace_bytes)(void* instance, const fovea_backend_spec* spec,
                             const fovea_backend_limits* limits, uint64_t* bytes,
                             const fovea_backend_error* error);

  /* Called once per step. *plan is the step's schedule; it may keep pointers to the batch's arrays and the
   * workspace, but not to the structs. On a GPU the schedule is computed on the device, from the contents of
   * the arrays at that time, and the call does not wait. A sequence whose length exceeds the limits or its
   * row of the page table gets NaN in its rows of O and LSE, the other rows are correct, and check_plan()
   * reports the error. */
  int32_t (*plan)(void* instance, const fovea_backend_spec* spec, const fovea_backend_limits* limits,
                  const fovea_backend_batch* batch, void* workspace, uint64_t workspace_bytes,
                  const fovea_backend_stream* stream, void** plan, const fovea_backend_error* error);
  void (*destroy_plan)(void* instance, void* plan);

  /* Called once per layer; `phase` is that of the plan's batch. Does not allocate or wait. A row that sees no
   * key has O = 0 and LSE = -inf. */
  int32_t (*forward)(void* instance, const void* plan, const fovea_backend_args* args, int32_t phase,
                     const fovea_backend_stream* stream, const fovea_backend_error* error);

  /* The functions below are optional and may be null. */

  /* Whether a combination of features that the table allows individually is supported: FOVEA_BACKEND_OK, or
   * FOVEA_BACKEND_UNSUPPORTED with the reason in `reason` and the flag that removes it in `fix` (empty:
   * another backend). Called concurrently by several threads, without an instance; spec->page_size is 0 until
   * one is chosen. */
  int32_t (*supports)(const fovea_backend_spec* spec, const fovea_backend_device* device,
                      const fovea_backend_error* reason, const fovea_backend_error* fix);

  /* Reports errors of a plan that only the device can see: lengths beyond the limits, and page ids outside of
   * [0, num_pages) where num_pages is not -1. Waits for the stream. */
  int32_t (*check_plan)(void* instance, const void* plan, int64_t num_pages,
                        const fovea_backend_stream* stream, const fovea_backend_error* error);

  /* Graphs; all three are required unless table->graph is FOVEA_BACKEND_GRAPH_NEVER. graph_workspace_bytes:
   * bytes of workspace for captured kernels. plan_for_capture: a plan whose forwards may be captured, valid
   * for every step of at most `batch`'s size. plan_for_replay: queues the schedule of another step into the
   * plan before a replay. */
  int32_t (*graph_workspace_bytes)(void* instance, const fovea_backend_spec* spec,
                                   const fovea_backend_limits* limits, uint64_t* bytes,
                                   const fovea_backend_error* error);
  int32_t (*plan_for_capture)(void* instance, const fovea_backend_spec* spec,
                              const fovea_backend_limits* limits, const fovea_backend_batch* batch,
                              void* workspace, uint64_t workspace_bytes, const fovea_backend_stream* stream,
                              void** plan, const fovea_backend_error* error);
  int32_t (*plan_for_replay)(void* instance, void* plan, const fovea_backend_batch* batch,
                             const fovea_backend_stream* stream, const fovea_backend_error* error);

  /* Calls emit(data, kernel) for each attention kernel that the plan's forwards have launched so far.
   * Conformance counts a case for these kernels. */
  void (*launched)(void* instance, const void* plan,
                   void (*emit)(void* data, const fovea_backend_kernel* kernel), void* data);

  /* Calls emit(data, kernel) for each kernel of the table's own families that some spec, step and limits
   * within the table reach on `device` (split_keys and split_rows are ignored). Conformance fails if one of
   * them never ran. */
  void (*kernels)(void* instance, const fovea_backend_device* device,
                  void (*emit)(void* data, const fovea_backend_kernel* kernel), void* data);
} fovea_backend;

/* Information from Fovea to the library. */
typedef struct fovea_backend_host {
  uint32_t size;
  uint32_t abi;        /* FOVEA_BACKEND_ABI of Fovea */
  const char* version; /* "0.1.0" */
} fovea_backend_host;

/* The one function that a library exports. *backend must not change while the library is loaded. */
FOVEA_BACKEND_EXPORT int32_t fovea_backend_v1(const fovea_backend_host* host, const fovea_backend** backend,
                                              const fovea_backend_error* error);

#ifdef __cplusplus
}
#endif

#endif
