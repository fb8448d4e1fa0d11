#pragma once
// Text to token ids and back, from a Hugging Face tokenizer.json.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea {

struct EncodeOptions {
  bool add_special_tokens = true;    ///< the post-processor's BOS / EOS
  bool parse_special_tokens = true;  ///< special tokens written in the text become their ids
  /// encode() returns all ids of a text with at most this many, else a prefix with more than this many.
  size_t most_ids = SIZE_MAX;
};

class Tokenizer {
 public:
  /// Reads DIR/tokenizer.json and, where present, tokenizer_config.json and special_tokens_map.json. Without
  /// a tokenizer.json, vocab.txt (BERT) or vocab.json with merges.txt (GPT-2) are read, depending on
  /// tokenizer_class.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& dir);
  /// From the text of tokenizer.json, tokenizer_config.json and special_tokens_map.json ("" = none).
  static Result<std::unique_ptr<Tokenizer>> parse(std::string_view tokenizer_json,
                                                  std::string_view tokenizer_config_json,
                                                  std::string_view special_tokens_map_json = {});
  ~Tokenizer();

  /// Invalid UTF-8 is replaced by U+FFFD first. Errors: a pattern exceeds its match limits, or a normalizer
  /// makes the text too long.
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// Lower bound on the ids that encode() gives for `text`, without the special ones around it, from its
  /// length alone. 0 where the tokenizer's stages allow no bound (some drop unknown characters).
  size_t least_ids(std::string_view text) const;
  /// Whole text of ids, invalid UTF-8 as U+FFFD; unknown ids decode to "".
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = true) const;
  /// The raw bytes that one id stands for in the middle of a text (special tokens: their text).
  std::string_view token_bytes(int32_t id) const;

  /// One past the largest id.
  int vocab_size() const;
  std::optional<int32_t> token_to_id(std::string_view token) const;
  /// The vocabulary's own spelling of an id (byte-level alphabet); empty when unknown.
  std::string_view id_to_token(int32_t id) const;
  bool is_special(int32_t id) const;

  std::optional<int32_t> bos_token_id() const;
  std::optional<int32_t> eos_token_id() const;
  /// Text of the special token that tokenizer_config.json names ("bos_token", "eos_token", ...); "" = none.
  std::string_view special_token(std::string_view name) const;

  /// Streaming detokenizer: text of ids pushed one by one, in whole UTF-8 characters. The concatenated output
  /// is decode() of all ids.
  class Stream {
   public:
    /// `context`: ids that precede the stream. They give no output but decide how the text continues (only
    /// the first word of a text has no blank in front in a SentencePiece vocabulary). A character that they
    /// leave incomplete is not completed.
    explicit Stream(const Tokenizer& tokenizer, bool skip_special_tokens = true,
                    std::span<const int32_t> context = {});
    ~Stream();
    Stream(Stream&&) noexcept;
    Stream& operator=(Stream&&) noexcept;
    /// Appends the text that `id` adds and later ids can't change.
    void push(int32_t id, std::string& out);
    /// Flushes what was held back; an incomplete character becomes U+FFFD. Ends the stream.
    void finish(std::string& out);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  Tokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea
