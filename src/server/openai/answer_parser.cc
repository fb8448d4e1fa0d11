#include "server/openai/answer_parser.h"

#include <algorithm>
#include <array>
#include <utility>

#include "server/openai/answer_tags.h"
#include "server/openai/python_literal.h"

namespace fovea::openai {
namespace {

constexpr std::string_view kPythonTag = "<|python_tag|>", kPythonStart = "<|python_start|>",
                           kPythonEnd = "<|python_end|>";

enum class Verdict : uint8_t { no, maybe, yes };

/// Whether a text begins with an object whose first member names a tool.
Verdict begins_call(std::string_view text) {
  const auto skip = [&] { text.remove_prefix(std::min(text.find_first_not_of(kAnswerSpace), text.size())); };
  skip();
  if (text.empty()) return Verdict::maybe;
  if (text[0] != '{') return Verdict::no;
  text.remove_prefix(1);
  skip();
  for (const std::string_view key : {"\"name\"", "\"type\"", "\"parameters\"", "\"arguments\""}) {
    if (text.starts_with(key)) return Verdict::yes;
    if (key.starts_with(text)) return Verdict::maybe;
  }
  return Verdict::no;
}

}  // namespace

void AnswerDelta::add(Kind kind, std::string_view text) {
  if (text.empty()) return;
  (kind == Kind::content ? content : reasoning) += text;
  if (order.empty() || order.back().kind != kind)
    order.push_back({kind, text.size()});
  else
    order.back().size += text.size();
}

void AnswerDelta::add_call(CallDelta call) {
  calls.push_back(std::move(call));
  order.push_back({Kind::call, 0});
}

void AnswerDelta::add_arguments(int index, std::string_view text) {
  if (order.empty() || order.back().kind != Kind::call || calls.back().index != index)
    add_call({index, false, "", "", ""});
  calls.back().arguments += text;
}

AnswerParser::AnswerParser(AnswerFormat format, std::function<std::string()> new_id)
    : format_(std::move(format)), new_id_(std::move(new_id)) {
  if (format_.thinking && !format_.think_end.empty()) mode_ = Mode::reasoning;
}

std::unique_ptr<AnswerParser> reasoning_parser(const AnswerFormat& format) {
  const bool harmony = format.tools == ToolFormat::harmony;
  if (!harmony && format.think_end.empty()) return nullptr;
  AnswerFormat only;
  only.tools = harmony ? ToolFormat::harmony : ToolFormat::none;
  only.think_begin = format.think_begin;
  only.think_end = format.think_end;
  only.thinking = format.thinking;
  return std::make_unique<AnswerParser>(std::move(only), [] { return std::string("id"); });
}

void AnswerParser::push(std::string_view text, AnswerDelta& out) {
  buffer_ += text;
  while (step(false, out)) {
  }
}

void AnswerParser::finish(AnswerDelta& out) {
  while (step(true, out)) {
  }
  if (mode_ == Mode::content && calls_ == 0) out.add(AnswerDelta::Kind::content, blanks_);
  blanks_.clear();
}

/// False when nothing more can be done with what is there.
bool AnswerParser::step(bool last, AnswerDelta& out) {
  switch (mode_) {
    case Mode::start: return step_start(last, out);
    case Mode::reasoning: {
      std::string text;
      const std::array<std::string_view, 1> tags{format_.think_end};
      const size_t before = buffer_.size();
      const bool ended = take_until(tags, last, text);
      for (const char c : text) {
        if (is_answer_space(c)) {
          if (any_content_) blanks_ += c;  // leading and trailing white space is no part of it
          continue;
        }
        any_content_ = true;
        out.add(AnswerDelta::Kind::reasoning, blanks_ + c);
        blanks_.clear();
      }
      if (ended) {
        blanks_.clear();
        any_content_ = false;
        format_.think_begin.clear();
        format_.thinking = true;  // white space after the reasoning is dropped
        mode_ = Mode::start;
      }
      return ended || buffer_.size() != before;
    }
    case Mode::content: return step_content(last, out);
    case Mode::between: return step_between(last, out);
    case Mode::header: return step_header(out);
    case Mode::object: return step_object(out);
    case Mode::arguments: return step_arguments(out);
    case Mode::loose: return step_loose(last, out);
    case Mode::call_end: {
      const Tags& tags = tags_of(format_.tools);
      std::vector<std::string_view> ends{tags.call_end};
      ends.insert(ends.end(), tags.open.begin(), tags.open.end());
      size_t which = 0;
      if (!take_until(ends, last, held_, &which)) {
        if (!last) return false;
        // The model has left the end tag out: what follows the call is text.
        std::string_view text = without_space(held_);
        if (text.starts_with("```")) text = without_space(text.substr(3));
        add_content(text, out);
        held_.clear();
        return false;
      }
      held_.clear();
      mode_ = which == 0 ? Mode::between : tags.after_call;
      return true;
    }
    case Mode::function: return step_function(out);
    case Mode::parameter: return step_parameter();
    case Mode::value: return step_value(last, out);
    case Mode::python: return step_python(last, out);
    case Mode::channel: return step_channel(last, out);
    case Mode::message: return step_message(last, out);
    case Mode::rest: buffer_.clear(); return false;
  }
  return false;
}

bool AnswerParser::take_until(std::span<const std::string_view> tags, bool last, std::string& text,
                              size_t* which) {
  for (size_t at = 0; at < buffer_.size(); ++at) {
    const std::string_view rest = std::string_view(buffer_).substr(at);
    bool may = false;
    for (size_t i = 0; i < tags.size(); ++i) {
      if (tags[i].empty()) continue;
      if (rest.starts_with(tags[i])) {
        text += buffer_.substr(0, at);
        buffer_.erase(0, at + tags[i].size());
        if (which) *which = i;
        return true;
      }
      may |= tags[i].starts_with(rest);
    }
    if (may && !last) {
      text += buffer_.substr(0, at);
      buffer_.erase(0, at);
      return false;
    }
  }
  text += buffer_;
  buffer_.clear();
  return false;
}

bool AnswerParser::begins_with(std::string_view tag, bool& may) const {
  if (tag.empty()) return false;
  if (buffer_.starts_with(tag)) return true;
  may |= tag.starts_with(buffer_);
  return false;
}

void AnswerParser::skip_space() {
  buffer_.erase(0, std::min(buffer_.find_first_not_of(kAnswerSpace), buffer_.size()));
}

/// What the answer, or its part after the reasoning, begins with.
bool AnswerParser::step_start(bool last, AnswerDelta& out) {
  if (format_.tools == ToolFormat::harmony) {
    mode_ = Mode::channel;
    return true;
  }
  if (format_.tools == ToolFormat::json_named) {
    begin_call(format_.named, "", out);
    mode_ = Mode::arguments;
    return true;
  }
  const size_t space = std::min(buffer_.find_first_not_of(kAnswerSpace), buffer_.size());
  if (space == buffer_.size() && !last) return false;
  if (format_.thinking) {
    buffer_.erase(0, space);
    format_.thinking = false;
    return true;
  }
  const std::string_view rest = std::string_view(buffer_).substr(space);
  if (!format_.think_begin.empty() && rest.starts_with(format_.think_begin)) {
    buffer_.erase(0, space + format_.think_begin.size());
    mode_ = Mode::reasoning;
    return true;
  }
  if (!format_.think_begin.empty() && !last && format_.think_begin.starts_with(rest)) return false;
  if (format_.tools == ToolFormat::json_array) {
    in_list_ = true;
    mode_ = Mode::between;
    return true;
  }
  if (format_.tools == ToolFormat::llama3_json) {
    std::string_view call = rest;
    if (!last && (kPythonTag.starts_with(call) || kPythonStart.starts_with(call))) return false;
    for (const std::string_view mark : {kPythonTag, kPythonStart})
      if (call.starts_with(mark)) call.remove_prefix(mark.size());
    const Verdict verdict = begins_call(call);
    if (verdict == Verdict::maybe && !last) return false;
    if (verdict == Verdict::yes) {
      buffer_.erase(0, buffer_.size() - call.size());
      mode_ = Mode::object;
      return true;
    }
  }
  if (format_.tools == ToolFormat::pythonic) {
    std::string_view list = rest;
    if (!last && kPythonStart.starts_with(list)) return false;
    if (list.starts_with(kPythonStart)) list.remove_prefix(kPythonStart.size());
    const auto verdict = python_call_begins(list);
    if (!verdict && !last) return false;
    if (verdict.value_or(false)) {
      in_list_ = true;
      buffer_.erase(0, buffer_.size() - list.size() + 1);
      mode_ = Mode::python;
      return true;
    }
  }
  mode_ = Mode::content;
  return true;
}

void AnswerParser::add_content(std::string_view text, AnswerDelta& out) {
  const bool holds = format_.tools != ToolFormat::none;
  for (const char c : text) {
    if (holds && is_answer_space(c)) {
      blanks_ += c;
      continue;
    }
    out.add(AnswerDelta::Kind::content, blanks_ + c);
    blanks_.clear();
  }
}

bool AnswerParser::step_content(bool last, AnswerDelta& out) {
  const Tags& tags = tags_of(format_.tools);
  std::string text;
  size_t which = 0;
  const size_t before = buffer_.size();
  const bool opened = take_until(tags.open, last, text, &which);
  add_content(text, out);
  if (!opened) return buffer_.size() != before && !buffer_.empty();
  opened_ = std::exchange(blanks_, "") + std::string(tags.open[which]);
  // Where calls have a tag of their own, the section comes first, unless the model leaves it out.
  mode_ = tags.call.empty() || tags.open[which] == tags.call ? tags.after_call : Mode::between;
  in_list_ = false;
  return true;
}

/// Before, between and after the calls of a section.
bool AnswerParser::step_between(bool last, AnswerDelta& out) {
  const Tags& tags = tags_of(format_.tools);
  skip_space();
  if (buffer_.empty()) return false;
  if (in_list_ || format_.tools == ToolFormat::llama3_json) {
    const char c = buffer_[0];
    bool mark = false;
    if (format_.tools == ToolFormat::llama3_json && begins_with(kPythonEnd, mark)) {
      buffer_.erase(0, kPythonEnd.size());
      mode_ = Mode::content;
    } else if (mark && !last) {
      return false;
    } else if (c == '{') {
      mode_ = Mode::object;
    } else if (c == ',' || c == '[' || (c == ';' && !in_list_)) {
      buffer_.erase(0, 1);
    } else if (c == ']' && in_list_) {
      buffer_.erase(0, 1);
      in_list_ = false;
      mode_ = format_.tools == ToolFormat::json_array ? Mode::rest : Mode::content;
    } else {
      mode_ = format_.tools == ToolFormat::json_array ? Mode::rest : Mode::content;
    }
    return true;
  }
  bool may = false;
  if (begins_with(tags.section_end, may)) {
    buffer_.erase(0, tags.section_end.size());
    mode_ = Mode::content;
    return true;
  }
  if (begins_with(tags.call, may)) {
    opened_ = tags.call;
    buffer_.erase(0, tags.call.size());
    mode_ = tags.after_call;
    return true;
  }
  for (const std::string_view open : tags.open)
    if (begins_with(open, may)) {
      mode_ = Mode::content;
      return true;
    }
  if (may && !last) return false;
  if (format_.tools == ToolFormat::deepseek_v32 && buffer_.starts_with("</｜DSML｜")) {
    const size_t end = buffer_.find('>');
    if (end == std::string::npos) return false;
    buffer_.erase(0, end + 1);
  }
  mode_ = Mode::content;
  (void)out;
  return true;
}

void AnswerParser::not_a_call(AnswerDelta& out) {
  add_content(opened_ + std::exchange(held_, ""), out);
  opened_.clear();
  end_call(out);
  recipient_.clear();
  mode_ = Mode::content;
}

void AnswerParser::begin_call(std::string name, std::string id, AnswerDelta& out) {
  dropping_ = format_.one_call && calls_ > 0;
  begun_ = true;
  held_.clear();
  any_parameter_ = false;
  name_ = name;
  if (dropping_) return;
  if (id.empty()) id = new_id_();
  out.add_call({calls_++, true, std::move(id), std::move(name), ""});
}

void AnswerParser::add_arguments(std::string_view text, AnswerDelta& out) {
  if (dropping_ || text.empty()) return;
  out.add_arguments(calls_ - 1, text);
}

void AnswerParser::end_call(AnswerDelta&) {
  begun_ = false;
  depth_ = 0;
  in_string_ = escaped_ = started_ = false;
  raw_.clear();
  name_.clear();
  key_.clear();
  member_ = 0;
}

}  // namespace fovea::openai
