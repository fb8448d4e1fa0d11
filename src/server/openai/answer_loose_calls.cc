// AnswerParser: arguments that are nearly JSON, as Gemma writes them: keys are bare, and strings are between
// marks of their own, without escapes. Strings in quotes, and Python's constants, are taken too.
#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "fovea/result.h"
#include "server/openai/answer_tags.h"
#include "server/openai/json_writer.h"
#include "text/json_value.h"
#include "text/utf8.h"

namespace fovea::openai {
namespace {

std::string json_text(std::string_view text) {
  std::string out;
  append_string(out, text);
  return out;
}

std::string bare_value(std::string_view text) {
  if (text == "True") return "true";
  if (text == "False") return "false";
  if (text == "None") return "null";
  return text::parse_json(std::string(text), "value") ? std::string(text) : json_text(text);
}

/// A string between quotes, as JSON; `text` is without them.
std::string of_quotes(const std::string& text, char quote) {
  if (quote == '"' && text::parse_json('"' + text + '"', "string")) return '"' + text + '"';
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == quote || text[i + 1] == '\\')) ++i;
    plain += text[i];
  }
  return json_text(plain);
}

}  // namespace

/// Begins a string, if one begins here. `waits`: that depends on text to come.
bool AnswerParser::loose_open(std::string_view quote, bool last, bool& waits) {
  bool may = false;
  if (begins_with(quote, may)) {
    string_end_ = quote;
    buffer_.erase(0, quote.size());
  } else if (buffer_[0] == '"' || buffer_[0] == '\'') {
    string_end_ = buffer_[0];
    buffer_.erase(0, 1);
  } else {
    waits = may && !last;
    return false;
  }
  raw_.clear();
  escaped_ = false;
  return true;
}

/// The separator, and what begins an element: of an array its value, of an object its key.
void AnswerParser::loose_value(std::string_view json, AnswerDelta& out) {
  const bool key = loose_ == Loose::key;
  if (!open_brackets_.empty() && (key || open_brackets_.back() == '[' || open_brackets_.back() == 'A')) {
    char& bracket = open_brackets_.back();
    if (bracket == 'A' || bracket == 'O') add_arguments(", ", out);
    bracket = bracket == '{' || bracket == 'O' ? 'O' : 'A';
  }
  add_arguments(json, out);
}

void AnswerParser::loose_close(AnswerDelta& out) {
  const char bracket = open_brackets_.back();
  open_brackets_.pop_back();
  add_arguments(bracket == '{' || bracket == 'O' ? "}" : "]", out);
  loose_ = Loose::after;
}

bool AnswerParser::step_loose_string(bool last, AnswerDelta& out) {
  const auto begin = [&] {
    if (!std::exchange(begun_value_, true)) loose_value("\"", out);
  };
  const auto end = [&] {
    begun_value_ = false;
    string_end_.clear();
    loose_ = loose_ == Loose::key ? Loose::colon : Loose::after;
  };
  if (string_end_.size() == 1) {
    for (size_t i = 0; i < buffer_.size(); ++i) {
      const char c = buffer_[i];
      if (!escaped_ && c == string_end_[0]) {
        buffer_.erase(0, i + 1);
        loose_value(of_quotes(raw_, c), out);
        raw_.clear();
        end();
        return true;
      }
      escaped_ = !escaped_ && c == '\\';
      raw_ += c;
    }
    buffer_.clear();
    return false;
  }
  std::string text;
  const std::string mark = string_end_;
  const std::array<std::string_view, 1> ends{mark};
  const size_t before = buffer_.size();
  const bool ended = take_until(ends, last, text);
  raw_ += text;
  std::string ready;
  raw_.erase(0, text::append_complete_utf8(raw_, ready));
  if (ended) ready += std::exchange(raw_, "");
  if (!ready.empty() || ended) begin();
  if (!ready.empty()) {
    const std::string json = json_text(ready);
    add_arguments(std::string_view(json).substr(1, json.size() - 2), out);
  }
  if (ended) {
    add_arguments("\"", out);
    end();
  }
  return ended || (buffer_.size() != before && !buffer_.empty());
}

bool AnswerParser::step_loose(bool last, AnswerDelta& out) {
  if (!string_end_.empty()) return step_loose_string(last, out);
  skip_space();
  if (buffer_.empty()) return false;
  const Tags& tags = tags_of(format_.tools);
  const std::string_view quote = format_.tools == ToolFormat::gemma ? "<|\"|>" : "<escape>";
  const auto in_object = [&] {
    return !open_brackets_.empty() && (open_brackets_.back() == '{' || open_brackets_.back() == 'O');
  };
  // A bracket closes, also where a value is missing.
  const auto close = [&] {
    if (loose_ == Loose::colon) add_arguments(": null", out);
    if (loose_ == Loose::value && in_object()) add_arguments("null", out);
    loose_close(out);
  };
  bool may = false;
  const auto after_bracket = [&] {
    if (!open_brackets_.empty()) return true;
    end_call(out);
    mode_ = Mode::call_end;
    return true;
  };
  if (begins_with(tags.call_end, may)) {
    while (!open_brackets_.empty())
      close();
    return after_bracket();
  }
  if (may && !last) return false;
  const char c = buffer_[0];
  const auto take = [&] { buffer_.erase(0, 1); };
  if ((c == '}' || c == ']') && !open_brackets_.empty()) {
    take();
    close();
    return after_bracket();
  }
  if (loose_ == Loose::colon) {
    if (c == ':') take();
    add_arguments(": ", out);
    loose_ = Loose::value;
    return true;
  }
  if (c == ',' || loose_ == Loose::after) {
    take();
    if (c != ',') return true;  // nothing that belongs here
    if (loose_ == Loose::value && in_object()) add_arguments("null", out);
    loose_ = in_object() ? Loose::key : Loose::value;
    return true;
  }
  bool waits = false;
  if (loose_open(quote, last, waits)) return true;
  if (waits) return false;
  if (loose_ == Loose::value && (c == '{' || c == '[')) {
    take();
    loose_value(c == '{' ? "{" : "[", out);
    open_brackets_ += c;
    loose_ = c == '{' ? Loose::key : Loose::value;
    return true;
  }
  // A bare word, up to what ends it.
  const size_t end = buffer_.find_first_of(loose_ == Loose::key ? ":,}<" : ",}]<", 1);
  if (end == std::string::npos && !last) return false;
  const std::string word(without_space(std::string_view(buffer_).substr(0, end)));
  if (end == std::string::npos) return false;  // cut off: it may be part of a longer one
  buffer_.erase(0, end);
  if (loose_ == Loose::key) {
    loose_value(json_text(word), out);
    loose_ = Loose::colon;
  } else {
    loose_value(bare_value(word), out);
    loose_ = Loose::after;
  }
  return true;
}

}  // namespace fovea::openai
