#pragma once
// Embeddings: a text becomes one vector, pooled from the hidden states of an encoder (BERT, RoBERTa, ...);
// and scores of pairs of texts, by an encoder with a classification head (a cross-encoder, a reranker).
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention.h"
#include "fovea/dtype.h"
#include "fovea/load_progress.h"
#include "fovea/result.h"

namespace fovea {

/// How a text's hidden states become one vector: their mean, the first token's, or the last token's.
enum class Pooling : uint8_t { mean, cls, last };
std::string_view to_string(Pooling pooling);
/// "mean", "cls" (also "first") or "last" (also "lasttoken", "last-token"), in any letter case.
std::optional<Pooling> parse_pooling(std::string_view name);

struct EmbedConfig {
  std::string model;       ///< a directory in Hugging Face format, or a hub id found in the local cache
  DeviceInfo device = {};  ///< as in EngineConfig
  int device_index = 0;    ///< likewise
  std::optional<DType> dtype;
  AttentionConfig attention;
  /// As EngineConfig::registry; must outlive the embedder.
  const BackendRegistry* registry = nullptr;
  std::vector<std::string> backend_libraries;  ///< as in EngineConfig
  /// nullopt = as in the model's sentence-transformers files (modules.json, 1_Pooling/config.json), mean if
  /// they do not specify it.
  std::optional<Pooling> pooling;
  /// Whether vectors are divided by their length. nullopt = whether modules.json has a Normalize module.
  std::optional<bool> normalize;
  std::optional<int> max_seq_len;  ///< tokens of a text, the special ones included; at most the model's
  int max_batched_tokens = 512;    ///< tokens of one forward pass; a longer text has its own pass
  int threads = 0;                 ///< 0 = one per usable CPU
  uint64_t seed = 0;               ///< of dummy weights
  bool dummy_weights = false;
  LoadProgress load_progress;  ///< of the weights; may be null
};

/// The resolved configuration, for display and logs.
struct EmbedInfo {
  std::string model_dir, architecture;
  DType dtype = DType::f32;
  int64_t weight_bytes = 0;
  int dimensions = 0;  ///< of an embedding
  int max_seq_len = 0, vocab_size = 0, threads = 0;
  Pooling pooling = Pooling::mean;
  bool normalize = false;
  /// Outputs of the model's classification head; 0 = it has none. Pairs are scored by heads with one.
  int labels = 0;
  std::string pooling_why, max_seq_len_why;  ///< their sources, one line each
  Selection selection;
};

/// Two texts as one input of an encoder.
struct TextPair {
  std::vector<int32_t> ids;
  std::vector<int32_t> types;  ///< the segment of each id; empty = all 0
};

class Embedder {
 public:
  virtual ~Embedder() = default;

  /// Selects the backend first, then reads the weights. Models whose sentence-transformers files need modules
  /// that this program lacks (Dense, ...) are refused by name.
  static Result<std::unique_ptr<Embedder>> create(const EmbedConfig& config);

  virtual const EmbedInfo& info() const = 0;

  /// A text's ids with the special tokens. Longer than info().max_seq_len: an error, or, with `truncate`, the
  /// text's last tokens are dropped (never the special ones). On that error, *too_long receives a lower bound
  /// of the text's number of tokens.
  virtual Result<std::vector<int32_t>> tokenize(std::string_view text, bool truncate,
                                                size_t* too_long = nullptr) const = 0;

  /// Whether embed() would accept these ids: at least one, at most info().max_seq_len, all in the vocabulary.
  virtual Status check(std::span<const int32_t> ids) const = 0;

  /// One vector [info().dimensions] for each input, in order; its bits do not depend on the other inputs.
  /// Concurrent calls are serialised.
  virtual Result<std::vector<std::vector<float>>> embed(std::span<const std::vector<int32_t>> inputs) = 0;

  /// Two texts with the tokenizer's special tokens for pairs. Longer than info().max_seq_len: as tokenize();
  /// with `truncate` the longer text loses its last tokens first.
  virtual Result<TextPair> tokenize_pair(std::string_view first, std::string_view second, bool truncate,
                                         size_t* too_long = nullptr) const = 0;

  /// One score for each pair, in order; its bits do not depend on the other pairs. It is the sigmoid of the
  /// head's output, or that output where the model's files say so. Needs info().labels == 1. Concurrent calls
  /// are serialised.
  virtual Result<std::vector<float>> score(std::span<const TextPair> pairs) = 0;
};

}  // namespace fovea
