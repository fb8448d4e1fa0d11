#pragma once
// Decoding: token spellings to text, one token at a time.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/json_value.h"

namespace fovea::text {

/// One stage of a decoder chain. Input and output are sequences of pieces (at first the tokens), delivered in
/// parts of whole characters. A stage forwards at once what later input can't change.
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  virtual std::unique_ptr<DecoderStage> clone() const = 0;
  virtual void part(std::string_view text) = 0;
  virtual void end_piece() = 0;
  /// End of the sequence: flushes what was held back.
  virtual void finish() { next_->finish(); }
  /// Discards the bytes of an incomplete character.
  virtual void drop_unfinished() { next_->drop_unfinished(); }
  /// The form of a piece that neither starts nor ends the sequence.
  virtual std::string middle(std::string piece) const = 0;

  void set_next(DecoderStage* next) { next_ = next; }

 protected:
  DecoderStage* next_ = nullptr;
};

/// The decoder of a tokenizer; immutable, shared by all runs.
class TokenDecoder {
 public:
  /// tokenizer.json's "decoder"; null puts a blank between tokens. `clean_up` adds tokenizer_config.json's
  /// clean_up_tokenization_spaces: no blank before punctuation and English contractions.
  static Result<TokenDecoder> parse(const Json* spec, bool clean_up);

  /// Whether tokens spell bytes in the byte-level alphabet, not text.
  bool is_byte_level() const { return byte_level_; }

  /// Bytes that a token stands for in the middle of a text. `is_added`: an added token, which spells its own
  /// text even in a byte-level vocabulary.
  std::string token_bytes(std::string_view token, bool is_added) const;

  /// Decodes one sequence.
  class Run {
   public:
    explicit Run(const TokenDecoder& decoder);
    /// Appends to `out` the whole characters that `token` adds and that no later token can change.
    void push(std::string_view token, bool is_added, std::string& out);
    void finish(std::string& out);
    /// Discards the bytes of an incomplete character that push() holds.
    void drop_unfinished() { stages_.front()->drop_unfinished(); }

   private:
    class Output;
    bool byte_level_;
    std::vector<std::unique_ptr<DecoderStage>> stages_;  // the last one is an Output
  };

 private:
  Status add(const Json& spec);
  Status add_stage(const Json& spec, const std::string& type);

  bool byte_level_ = false;
  bool whole_text_ = false;  // the stages so far fuse all pieces
  size_t growth_ = 1;        // largest growth factor of a text by the Replace stages so far
  std::vector<std::unique_ptr<DecoderStage>> stages_;
};

// decoder_stages.cc. Each returns a stage without a successor.
std::unique_ptr<DecoderStage> make_utf8_stage();  ///< raw bytes, ill-formed ones as U+FFFD, to one piece
std::unique_ptr<DecoderStage> make_fuse_stage();
std::unique_ptr<DecoderStage> make_join_stage();           ///< blanks between pieces
std::unique_ptr<DecoderStage> make_byte_fallback_stage();  ///< tokens <0xNN> to characters
/// Every `mark` becomes a blank, or nothing in the first piece if `drop_first`.
std::unique_ptr<DecoderStage> make_metaspace_stage(std::string mark, bool drop_first);
std::unique_ptr<DecoderStage> make_word_piece_stage(std::string prefix, bool clean_up);
std::unique_ptr<DecoderStage> make_bpe_suffix_stage(std::string suffix);
/// Strips up to `start` and `stop` copies of `character` from the ends of each piece; `whole_text`: there is
/// only one piece.
std::unique_ptr<DecoderStage> make_strip_stage(std::string character, size_t start, size_t stop,
                                               bool whole_text);
std::unique_ptr<DecoderStage> make_replace_stage(std::string pattern, std::string content);

/// The pairs of clean_up_tokenization_spaces, in the order in which they are replaced.
struct CleanUpRule {
  std::string_view pattern, content;
};
extern const std::vector<CleanUpRule> kTextCleanUp;

}  // namespace fovea::text
