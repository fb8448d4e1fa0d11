#include "server/snapshot_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <string_view>

namespace fovea::server {
namespace {

/// Appends the members of one object; keys are literals that need no escapes.
class Writer {
 public:
  template <std::integral T>
  Writer& add(std::string_view key, T value) {
    begin(key);
    if constexpr (std::same_as<T, bool>)
      text_ += value ? "true" : "false";
    else
      text_ += std::to_string(value);
    return *this;
  }
  Writer& add(std::string_view key, double value) {
    std::array<char, 32> digits;
    begin(key);
    text_.append(digits.data(), std::to_chars(digits.begin(), digits.end(), value).ptr);
    return *this;
  }
  Writer& add(std::string_view key, std::string_view word) {
    begin(key);
    text_.append(1, '"').append(word).append(1, '"');
    return *this;
  }
  template <std::invocable<Writer&> Members>
  Writer& object(std::string_view key, const Members& members) {
    begin(key);
    Writer inner(text_);
    members(inner);
    inner.end();
    return *this;
  }
  /// A list of objects.
  template <class Items, class Members>
  Writer& list(std::string_view key, const Items& items, const Members& members) {
    begin(key);
    text_ += '[';
    bool first = true;
    for (const auto& item : items) {
      if (!first) text_ += ',';
      first = false;
      Writer inner(text_);
      members(inner, item);
      inner.end();
    }
    text_ += ']';
    return *this;
  }

  explicit Writer(std::string& text) : text_(text) { text_ += '{'; }
  void end() { text_ += '}'; }

 private:
  void begin(std::string_view key) {
    if (text_.back() != '{') text_ += ',';
    text_.append(1, '"').append(key).append("\":");
  }
  std::string& text_;
};

std::string_view name_of(EngineSnapshot::State state) {
  switch (state) {
    case EngineSnapshot::State::waiting: return "waiting";
    case EngineSnapshot::State::prefill: return "prefill";
    case EngineSnapshot::State::decode: return "decode";
  }
  return "?";
}

void add_sequence(Writer& out, const EngineSnapshot::Sequence& s) {
  out.add("id", s.id).add("index", s.index).add("state", name_of(s.state));
  out.add("prompt_tokens", s.prompt_tokens).add("computed_tokens", s.computed_tokens);
  out.add("generated_tokens", s.generated_tokens).add("cached_tokens", s.cached_tokens);
  out.add("pages", s.pages).add("shared_pages", s.shared_pages).add("preemptions", s.preemptions);
}

void add_step(Writer& out, const EngineSnapshot::Step& s) {
  out.add("seconds", s.seconds).add("attention_seconds", s.attention_seconds);
  out.add("plan_seconds", s.plan_seconds).add("prefill_rows", s.prefill_rows);
  out.add("decode_rows", s.decode_rows);
}

}  // namespace

std::string snapshot_json(const EngineSnapshot& s, std::chrono::steady_clock::time_point now) {
  std::string text;
  Writer out(text);
  out.add("age_seconds", std::max(0.0, std::chrono::duration<double>(now - s.made).count()));
  out.add("steps_total", s.steps_total).add("generated_tokens", s.generated_tokens);
  out.object("drafts", [&](Writer& drafts) {
    drafts.add("steps", s.speculative.drafts).add("draft_tokens", s.speculative.draft_tokens);
    drafts.add("accepted_tokens", s.speculative.accepted_tokens);
  });
  out.add("page_size", s.page_size);
  out.object("pages", [&](Writer& pages) {
    pages.add("total", s.pages_total).add("free", s.pages_free);
    pages.add("cached", s.pages_cached).add("in_use", s.pages_in_use);
  });
  out.add("running", s.running).add("waiting", s.waiting);
  out.list("sequences", s.sequences, add_sequence);
  out.object("prefixes", [&](Writer& prefixes) {
    prefixes.add("nodes", s.prefix_nodes).add("pages", s.prefix_pages);
    prefixes.add("locked_pages", s.prefix_locked_pages).add("complete", s.prefixes_complete);
    prefixes.list("longest", s.prefixes, [](Writer& path, const EngineSnapshot::Prefix& prefix) {
      path.add("tokens", prefix.tokens).add("pages", prefix.pages).add("locked", prefix.locked);
    });
  });
  out.list("steps", s.steps, add_step);
  out.end();
  return text;
}

}  // namespace fovea::server
