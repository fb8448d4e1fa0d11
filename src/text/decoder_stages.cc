#include <algorithm>
#include <optional>

#include "text/token_decoder.h"
#include "text/utf8.h"
#include "text/vocabulary.h"

namespace fovea::text {

const std::vector<CleanUpRule> kTextCleanUp = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

namespace {

// The WordPiece decoder has its own rules, applied to one token at a time.
const std::vector<CleanUpRule> kWordPieceCleanUp = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},    {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
};

std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(pattern); at != text.npos; at = text.find(pattern, done)) {
    out.append(text, done, at - done).append(content);
    done = at + pattern.size();
  }
  return out.append(text, done);
}

// A stage that can be cloned; Self is the derived type. A private constructor with Self as a friend, as
// against a wrong Self, would lock out PieceStage.
template <class Self>
class Copyable : public DecoderStage {  // NOLINT(bugprone-crtp-constructor-accessibility)
 public:
  std::unique_ptr<DecoderStage> clone() const final {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }
};

// Stages that need a whole piece.
template <class Self>
class PieceStage : public Copyable<Self> {  // NOLINT(bugprone-crtp-constructor-accessibility)
 public:
  void part(std::string_view text) final { piece_ += text; }
  void end_piece() final {
    static_cast<Self*>(this)->piece(piece_);
    piece_.clear();
  }

 private:
  std::string piece_;
};

class Utf8Stage final : public Copyable<Utf8Stage> {
 public:
  void part(std::string_view text) override {
    pending_ += text;
    std::string complete;
    pending_.erase(0, append_complete_utf8(pending_, complete));
    if (!complete.empty()) next_->part(complete);
  }
  void end_piece() override {}
  void finish() override {
    if (!pending_.empty()) next_->part(kReplacementUtf8);
    pending_.clear();
    next_->end_piece();
    next_->finish();
  }
  void drop_unfinished() override {
    pending_.clear();
    next_->drop_unfinished();
  }
  std::string middle(std::string piece) const override { return piece; }

 private:
  std::string pending_;  // an incomplete character, at most 3 bytes
};

class FuseStage final : public Copyable<FuseStage> {
 public:
  void part(std::string_view text) override { next_->part(text); }
  void end_piece() override {}
  void finish() override {
    next_->end_piece();
    next_->finish();
  }
  std::string middle(std::string piece) const override { return piece; }
};

class JoinStage final : public Copyable<JoinStage> {
 public:
  void part(std::string_view text) override {
    start_piece();
    next_->part(text);
  }
  void end_piece() override {
    start_piece();
    next_->end_piece();
    started_ = false;
  }
  std::string middle(std::string piece) const override { return " " + piece; }

 private:
  void start_piece() {
    if (!started_ && !first_) next_->part(" ");
    started_ = true;
    first_ = false;
  }
  bool first_ = true, started_ = false;
};

// A run of byte tokens is decoded as UTF-8; each other byte becomes one U+FFFD. Characters are emitted as
// soon as they are complete.
class ByteFallbackStage final : public PieceStage<ByteFallbackStage> {
 public:
  void piece(std::string_view token) {
    if (const auto byte = byte_of_token(token)) {
      pending_.push_back(static_cast<char>(*byte));
      emit_characters(false);
      return;
    }
    emit_characters(true);
    next_->part(token);
    next_->end_piece();
  }
  void finish() override {
    emit_characters(true);
    next_->finish();
  }
  void drop_unfinished() override {
    pending_.clear();
    next_->drop_unfinished();
  }
  std::string middle(std::string piece) const override {
    const auto byte = byte_of_token(piece);
    return byte ? std::string(1, static_cast<char>(*byte)) : piece;
  }

 private:
  void emit_characters(bool all) {
    size_t used = 0;
    while (used < pending_.size()) {
      const std::string_view rest = std::string_view(pending_).substr(used);
      const Utf8Char c = decode_utf8(rest);
      if (c.status == Utf8Status::incomplete && !all) break;
      const bool good = c.status == Utf8Status::complete;
      next_->part(good ? rest.substr(0, c.length) : kReplacementUtf8);
      next_->end_piece();
      used += good ? c.length : 1;
    }
    pending_.erase(0, used);
  }

  std::string pending_;  // at most 3 bytes between calls
};

class MetaspaceStage final : public Copyable<MetaspaceStage> {
 public:
  MetaspaceStage(std::string mark, bool drop_first) : mark_(std::move(mark)), drop_(drop_first) {}
  void part(std::string_view text) override {
    const std::string out = replace_all(text, mark_, drop_ ? "" : " ");
    if (!out.empty()) next_->part(out);
  }
  void end_piece() override {
    drop_ = false;
    next_->end_piece();
  }
  std::string middle(std::string piece) const override { return replace_all(piece, mark_, " "); }

 private:
  std::string mark_;
  bool drop_;  // in the first piece
};

class WordPieceStage final : public PieceStage<WordPieceStage> {
 public:
  WordPieceStage(std::string prefix, bool clean_up) : prefix_(std::move(prefix)), clean_up_(clean_up) {}
  void piece(const std::string& token) {
    next_->part(first_ ? cleaned(token) : middle(token));
    next_->end_piece();
    first_ = false;
  }
  std::string middle(std::string piece) const override {
    return cleaned(piece.starts_with(prefix_) ? piece.substr(prefix_.size()) : " " + piece);
  }

 private:
  std::string cleaned(std::string text) const {
    if (clean_up_) {
      for (const CleanUpRule& rule : kWordPieceCleanUp)
        text = replace_all(text, rule.pattern, rule.content);
    }
    return text;
  }
  std::string prefix_;
  bool clean_up_, first_ = true;
};

// The suffix ends a word: a blank follows, except at the end of the text. So a token is held from its first
// suffix on until the next token arrives.
class BpeSuffixStage final : public PieceStage<BpeSuffixStage> {
 public:
  explicit BpeSuffixStage(std::string suffix) : suffix_(std::move(suffix)) {}
  void piece(const std::string& token) {
    release(" ");
    held_ = token;
    const size_t at = token.find(suffix_);
    next_->part(std::string_view(token).substr(0, at));
    held_.erase(0, at);
    open_ = true;
  }
  void finish() override {
    release("");
    next_->finish();
  }
  std::string middle(std::string piece) const override { return replace_all(piece, suffix_, " "); }

 private:
  void release(std::string_view blank) {
    if (!open_) return;
    next_->part(replace_all(held_, suffix_, blank));
    next_->end_piece();
    open_ = false;
  }
  std::string suffix_, held_;
  bool open_ = false;
};

class StripStage final : public Copyable<StripStage> {
 public:
  StripStage(std::string character, size_t start, size_t stop, bool whole_text)
      : character_(std::move(character)), start_(start), stop_(stop), whole_text_(whole_text), left_(start) {}
  void part(std::string_view text) override {
    while (left_ > 0 && text.starts_with(character_)) {
      text.remove_prefix(character_.size());
      --left_;
    }
    if (text.empty()) return;
    left_ = 0;
    // Trailing copies are held until it is known whether the piece ends with them.
    size_t trailing = 0;
    if (stop_ > 0) {
      while (text.ends_with(character_)) {
        text.remove_suffix(character_.size());
        ++trailing;
      }
    }
    if (!text.empty()) {
      release(held_);
      next_->part(text);
    }
    held_ += trailing;
  }
  void end_piece() override {
    release(held_ > stop_ ? held_ - stop_ : 0);
    left_ = start_;
    next_->end_piece();
  }
  std::string middle(std::string piece) const override {
    if (whole_text_) return piece;
    std::string_view text = piece;
    for (size_t i = 0; i < start_ && text.starts_with(character_); ++i)
      text.remove_prefix(character_.size());
    for (size_t i = 0; i < stop_ && text.ends_with(character_); ++i)
      text.remove_suffix(character_.size());
    return std::string(text);
  }

 private:
  void release(size_t count) {
    for (size_t i = 0; i < count; ++i)
      next_->part(character_);
    held_ = 0;
  }
  std::string character_;
  size_t start_, stop_;
  bool whole_text_;
  size_t left_;      // copies that may still be stripped from the front of this piece
  size_t held_ = 0;  // copies at its end so far, held back
};

class ReplaceStage final : public Copyable<ReplaceStage> {
 public:
  ReplaceStage(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void part(std::string_view text) override {
    held_ += text;
    std::string out;
    size_t done = 0;
    for (size_t at = held_.find(pattern_); at != held_.npos; at = held_.find(pattern_, done)) {
      out.append(held_, done, at - done).append(content_);
      done = at + pattern_.size();
    }
    // The longest end that the next part could extend to a match.
    const std::string_view rest = std::string_view(held_).substr(done);
    size_t keep = std::min(rest.size(), pattern_.size() - 1);
    while (!pattern_.starts_with(rest.substr(rest.size() - keep)))
      --keep;
    out += rest.substr(0, rest.size() - keep);
    held_.erase(0, held_.size() - keep);
    if (!out.empty()) next_->part(out);
  }
  void end_piece() override {
    if (!held_.empty()) next_->part(held_);
    held_.clear();
    next_->end_piece();
  }
  std::string middle(std::string piece) const override { return replace_all(piece, pattern_, content_); }

 private:
  std::string pattern_, content_, held_;
};

}  // namespace

std::unique_ptr<DecoderStage> make_utf8_stage() {
  return std::make_unique<Utf8Stage>();
}
std::unique_ptr<DecoderStage> make_fuse_stage() {
  return std::make_unique<FuseStage>();
}
std::unique_ptr<DecoderStage> make_join_stage() {
  return std::make_unique<JoinStage>();
}
std::unique_ptr<DecoderStage> make_byte_fallback_stage() {
  return std::make_unique<ByteFallbackStage>();
}
std::unique_ptr<DecoderStage> make_metaspace_stage(std::string mark, bool drop_first) {
  return std::make_unique<MetaspaceStage>(std::move(mark), drop_first);
}
std::unique_ptr<DecoderStage> make_word_piece_stage(std::string prefix, bool clean_up) {
  return std::make_unique<WordPieceStage>(std::move(prefix), clean_up);
}
std::unique_ptr<DecoderStage> make_bpe_suffix_stage(std::string suffix) {
  return std::make_unique<BpeSuffixStage>(std::move(suffix));
}
std::unique_ptr<DecoderStage> make_strip_stage(std::string character, size_t start, size_t stop,
                                               bool whole_text) {
  return std::make_unique<StripStage>(std::move(character), start, stop, whole_text);
}
std::unique_ptr<DecoderStage> make_replace_stage(std::string pattern, std::string content) {
  return std::make_unique<ReplaceStage>(std::move(pattern), std::move(content));
}

}  // namespace fovea::text
