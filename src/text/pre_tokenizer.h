#pragma once
// Stage 3 of tokenizing: cuts normalized text into the pieces that the model may not merge across.
#include <memory>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"
#include "text/json_value.h"
#include "text/span.h"

namespace fovea::text {

/// A text and the pieces it is cut into, in order; bytes outside the pieces were removed.
struct Pieces {
  std::string text;
  std::vector<Span> spans;
  bool at_start = false;  ///< `text` starts where the whole input starts

  bool first_is_at_start() const { return at_start && !spans.empty() && spans.front().begin == 0; }
};

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual Status apply(Pieces& pieces) const = 0;
  /// Number of ByteLevel stages inside; a second one would encode the output of the first again.
  virtual int byte_level_stages() const { return 0; }
  /// Whether every byte of a text is in one of its pieces.
  virtual bool keeps_all() const { return false; }
};

/// From tokenizer.json's "pre_tokenizer"; null returns nullptr: the whole text is one piece.
Result<std::unique_ptr<PreTokenizer>> parse_pre_tokenizer(const Json* spec);

// byte_level_pre_tokenizer.cc, split_pre_tokenizer.cc, metaspace_pre_tokenizer.cc
Result<std::unique_ptr<PreTokenizer>> parse_byte_level(const Json& spec);
Result<std::unique_ptr<PreTokenizer>> parse_split(const Json& spec);
Result<std::unique_ptr<PreTokenizer>> parse_metaspace(const Json& spec);

// character_pre_tokenizer.cc
Result<std::unique_ptr<PreTokenizer>> parse_digits(const Json& spec);
Result<std::unique_ptr<PreTokenizer>> parse_punctuation(const Json& spec);
Result<std::unique_ptr<PreTokenizer>> parse_char_delimiter(const Json& spec);
std::unique_ptr<PreTokenizer> make_whitespace_split();  ///< WhitespaceSplit
std::unique_ptr<PreTokenizer> make_word_split();        ///< Whitespace: \w+|[^\w\s]+
std::unique_ptr<PreTokenizer> make_bert_split();        ///< BertPreTokenizer

}  // namespace fovea::text
