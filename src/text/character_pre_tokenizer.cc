// Pre-tokenizers that look at one character at a time: Digits, Punctuation, WhitespaceSplit,
// CharDelimiterSplit, Whitespace and BertPreTokenizer.
#include "fovea/result.h"
#include "text/pre_tokenizer.h"
#include "text/split_pre_tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// Every character of a class is a match by itself.
template <class IsMatch>
class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(IsMatch is_match, SplitBehavior behavior) : is_match_(is_match), behavior_(behavior) {}

  Status apply(Pieces& pieces) const override {
    std::vector<Span> out;
    out.reserve(pieces.spans.size());
    for (const Span& piece : pieces.spans) {
      SegmentJoiner joiner(behavior_, out);
      size_t begin = piece.begin;  // of the characters outside the class
      for (size_t pos = piece.begin; pos < piece.end;) {
        const Utf8Char c = decode_utf8(std::string_view(pieces.text).substr(pos, piece.end - pos));
        const size_t next = pos + c.length;
        if (is_match_(c.code_point)) {
          joiner.add({begin, pos}, false);
          joiner.add({pos, next}, true);
          begin = next;
        }
        pos = next;
      }
      joiner.add({begin, piece.end}, false);
    }
    pieces.spans = std::move(out);
    return {};
  }
  bool keeps_all() const override { return behavior_ != SplitBehavior::removed; }

 private:
  IsMatch is_match_;
  SplitBehavior behavior_;
};

template <class IsMatch>
std::unique_ptr<PreTokenizer> character_split(IsMatch is_match, SplitBehavior behavior) {
  return std::make_unique<CharacterSplit<IsMatch>>(is_match, behavior);
}

// Runs of word characters and runs of what is neither a word character nor white space: \w+|[^\w\s]+
class WordSplit final : public PreTokenizer {
 public:
  Status apply(Pieces& pieces) const override {
    enum class Kind { space, word, other };
    std::vector<Span> out;
    for (const Span& piece : pieces.spans) {
      Kind previous = Kind::space;
      for (size_t pos = piece.begin; pos < piece.end;) {
        const Utf8Char c = decode_utf8(std::string_view(pieces.text).substr(pos, piece.end - pos));
        const Kind kind = is_word(c.code_point)          ? Kind::word
                          : is_white_space(c.code_point) ? Kind::space
                                                         : Kind::other;
        if (kind != Kind::space && kind == previous) {
          out.back().end = pos + c.length;
        } else if (kind != Kind::space) {
          out.push_back({pos, pos + c.length});
        }
        previous = kind;
        pos += c.length;
      }
    }
    pieces.spans = std::move(out);
    return {};
  }
};

// Removes white space, then makes every punctuation character a piece.
class BertSplit final : public PreTokenizer {
 public:
  Status apply(Pieces& pieces) const override {
    FOVEA_RETURN_IF_ERROR(spaces_->apply(pieces));
    return punctuation_->apply(pieces);
  }

 private:
  std::unique_ptr<PreTokenizer> spaces_ = character_split(is_white_space, SplitBehavior::removed);
  std::unique_ptr<PreTokenizer> punctuation_ = character_split(is_punctuation, SplitBehavior::isolated);
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> parse_digits(const Json& spec) {
  FOVEA_TRY(individual, bool_field(spec, "tokenizer.json: Digits", "individual_digits", false));
  return character_split(is_numeric, individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
}

Result<std::unique_ptr<PreTokenizer>> parse_punctuation(const Json& spec) {
  FOVEA_TRY(behavior, parse_split_behavior(spec, "tokenizer.json: Punctuation", SplitBehavior::isolated));
  return character_split(is_punctuation, behavior);
}

Result<std::unique_ptr<PreTokenizer>> parse_char_delimiter(const Json& spec) {
  FOVEA_TRY(text, string_field(spec, "tokenizer.json: CharDelimiterSplit", "delimiter", ""));
  if (count_code_points(text) != 1) {
    return invalid("tokenizer.json: CharDelimiterSplit.delimiter is " + Json(text).describe() +
                   "; one character is needed");
  }
  const uint32_t delimiter = decode_utf8(text).code_point;
  return character_split([delimiter](uint32_t c) { return c == delimiter; }, SplitBehavior::removed);
}

std::unique_ptr<PreTokenizer> make_whitespace_split() {
  return character_split(is_white_space, SplitBehavior::removed);
}

std::unique_ptr<PreTokenizer> make_word_split() {
  return std::make_unique<WordSplit>();
}

std::unique_ptr<PreTokenizer> make_bert_split() {
  return std::make_unique<BertSplit>();
}

}  // namespace fovea::text
