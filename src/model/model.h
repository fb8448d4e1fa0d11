#pragma once
// A loaded decoder: token ids in, logits of chosen rows out. Families implement it from shared layers.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/stream.h"
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/load_progress.h"
#include "kv/kv_cache.h"
#include "model/config.h"
#include "model/kv_scales.h"
#include "ops/lora.h"
#include "ops/lora_slots.h"
#include "tensor/tensor.h"

namespace fovea {

class Ops;
class PhasedAttention;
struct LinearWeight;

/// The attention of one planned step; the model calls it once for each of its attentions. Hides the backends.
class StepAttention {
 public:
  virtual ~StepAttention() = default;
  /// `index` into attention_specs(). q [T, Hq, D] and out [T, Hq, Dv] of the step's rows, fp32 unless the
  /// spec differs. Errors: the backend's; the step has no result then.
  virtual Status forward(int index, const AttentionArgs& args, Stream& stream) = 0;
  /// Latent attention with MlaConfig::expanded_keys: the rows that forward() leaves out, which are the step's
  /// last; the model attends to each block in turn. Null = none.
  virtual PhasedAttention* expanded(int /*index*/) { return nullptr; }
};

/// One step's rows, all sequences concatenated; T = token_ids.size().
struct ForwardInput {
  std::span<const int32_t> token_ids;   ///< [T]
  std::span<const int32_t> positions;   ///< [T] absolute, for RoPE
  std::span<const int64_t> slots;       ///< [T] slot of each row's K and V
  std::span<const int32_t> logit_rows;  ///< rows in [0, T) whose logits are wanted, strictly ascending
  StepAttention* attention = nullptr;
  KvCache* kv = nullptr;
  const BatchMeta* batch = nullptr;  ///< the rows' sequences; needed by sparse attention
  const float* states = nullptr;     ///< draft heads: [T, states_width], to continue
  int64_t states_width = 0;
  float* hidden = nullptr;          ///< receives keep_hidden()'s: [states][T, or R of heads, hidden]
  const LoraBatch* lora = nullptr;  ///< null = all rows without adapter; only with allow_lora()
};

/// ForwardInput for forward_tensors(): the arrays are on the model's device, with the same integer types.
struct StepTensors {
  Tensor token_ids, positions, slots;    ///< [T]
  Tensor logit_rows;                     ///< [R]
  StepAttention* attention = nullptr;    ///< on that device
  KvCache* kv = nullptr;                 ///< likewise
  const BatchMeta* batch = nullptr;      ///< likewise
  Tensor states = {};                    ///< f32 [T, width]; empty = no draft head
  std::vector<Tensor> hidden = {};       ///< f32 [T, or R of heads, hidden] of each kept
  const LoraBatch* lora = nullptr;       ///< as ForwardInput::lora; only on the CPU
  const LoraStep* lora_slots = nullptr;  ///< elsewhere; null = all rows without adapter
};

/// Whole inputs of an encoder, all sequences concatenated; never chunked, because every row sees all rows of
/// its sequence. T = rows after the embedding (tokens, or frames after Whisper's convolutions).
struct EncodeInput {
  std::span<const int32_t> token_ids;    ///< [T]; empty for audio
  std::span<const int32_t> token_types;  ///< [T] BERT's segments; empty = all 0
  std::span<const float> features;       ///< audio: log-mel [frames of all sequences, mel_bins]
  std::span<const int32_t> offsets;      ///< [B + 1] rows; sequence b owns [b], [b + 1)
  StepAttention* attention = nullptr;
  /// Encoder-decoder: [T] slot of each row's cross keys and values, in every decoder layer.
  std::span<const int64_t> cross_slots;
  KvCache* kv = nullptr;
  float* hidden = nullptr;  ///< encoder-only: receives [T, hidden], in host memory
};

struct ModelLoadOptions {
  std::string dir;
  std::optional<DType> dtype;  ///< nullopt = the checkpoint's ("auto")
  bool dummy_weights = false;  ///< random weights from the config alone
  uint64_t seed = 0;           ///< of dummy weights
  LoadProgress progress = {};
  /// The weights are checked and described, and place() reads them, straight to its device; until then the
  /// model can only tell sizes. Only for devices whose operations have a packed_format().
  bool deferred = false;
};

/// For place().
struct PlaceOptions {
  ThreadPool* pool =
      nullptr;  ///< threads that read deferred weights, and round them; null = the caller alone
  LoadProgress progress = {};  ///< of deferred weights; called by one thread at a time
};

/// The attention specs of `config`, indexed as in StepAttention, available before any weight is read; dtype,
/// kv_dtype and page_size are left to the caller, since they follow from the device and the cache. A
/// decoder or encoder has one per layer; an encoder-decoder model has the decoder layers' self attentions,
/// then their cross attentions, then the encoder layers'. Equal specs share one plan.
std::vector<AttentionSpec> attention_specs(const ModelConfig& config);

class Model {
 public:
  virtual ~Model() = default;

  /// Reads the weights from `options.dir`, or generates random ones. Names, types and shapes are checked
  /// against `config` before anything is allocated; every error names the file and tensor and what to change.
  static Result<std::unique_ptr<Model>> load(const ModelConfig& config, const ModelLoadOptions& options,
                                             Stream& stream);

  virtual const ModelConfig& config() const = 0;
  virtual int64_t weight_bytes() const = 0;
  /// Bytes of weights read per generated token (by a decode step at batch size 1).
  virtual int64_t weight_bytes_per_token() const = 0;

  /// Hidden states that forward() hands out (ForwardInput::hidden), ascending: id i < num_layers is the
  /// residual stream on entering layer i, num_layers the one after the last layer, num_layers + 1 that after
  /// the final norm. Call it before reserve(). Logits keep their bits. Errors: this model has none.
  virtual Status keep_hidden(std::vector<int> ids);
  /// The embedding and the LM head as its operations read them, for a draft head that shares them; null if
  /// the model has none. They live as long as the model.
  virtual const LinearWeight* embedding_weight() const { return nullptr; }
  virtual const LinearWeight* head_weight() const { return nullptr; }

  /// Steps may have adapters within these limits. Call it before activation_bytes() and reserve(). Errors:
  /// the model's layers can't have them.
  virtual Status allow_lora(const LoraLimits& limits);

  /// Allocates activations for this many rows, once; forward() allocates nothing else. Returns their bytes.
  virtual int64_t reserve(int max_tokens, int max_logit_rows) = 0;

  /// logits [logit_rows.size(), vocab_size] fp32; includes the ids that pad the vocabulary. Errors: those of
  /// input.attention. Some rows may be in the cache then, and the logits are undefined.
  virtual Status forward(const ForwardInput& input, float* logits, Stream& stream) = 0;

  /// Moves the weights to the device of `ops`, which must outlive the model. Call it before reserve(); then
  /// forward_tensors() replaces forward(). Errors: the model runs on the CPU only, or the device's operations
  /// do not support its weights, with all reasons. Throws std::bad_alloc.
  virtual Status place(Ops& ops, Stream& stream, const PlaceOptions& options);
  Status place(Ops& ops, Stream& stream);
  /// The memory that place(), and then reserve(), take on the device of `ops`, exactly, each in one
  /// allocation; only with operations that have a packed_format(). Nothing is allocated or read. After
  /// place(), with the same `ops`, what it has taken.
  virtual int64_t placed_bytes(Ops& ops) const;
  virtual int64_t activation_bytes(Ops& ops, int max_tokens, int max_logit_rows) const;
  /// Queues one step on the model's device and reads no tensor on the host. logits f32 [R, vocab_size].
  virtual Status forward_tensors(const StepTensors& step, const Tensor& logits, Stream& stream);

  /// Encoders and encoder-decoder models only; an encoder also after place(), with input.attention on its
  /// device: it waits for the hidden states. `input.offsets.back()` rows at most reserve()'s max_tokens or
  /// config().encoder's max_position, whichever is more. Errors as in forward().
  virtual Status encode(const EncodeInput& input, Stream& stream);

  /// The checkpoint's scales; none with dummy weights.
  const KvScales& kv_scales() const { return kv_scales_; }

 private:
  KvScales kv_scales_;
};

}  // namespace fovea
