#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "text/json_value.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr size_t kMaxPatternBytes = size_t{64} << 10;
// One step of a pre-tokenizer pattern backtracks at most once per character of a whitespace run, so 10 M
// steps cover runs of that many bytes; what needs more is a pattern that explodes.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;  // interpreter only
constexpr size_t kJitStackBytes = 8 << 20;

// White_Space of Unicode, which is what Oniguruma's \s means; PCRE2's own \s also has U+180E.
constexpr std::string_view kSpaces =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Oniguruma pattern -> PCRE2 pattern.
Result<std::string> translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  size_t class_start = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') {
        out.append(in_class ? "" : "[").append(kSpaces).append(in_class ? "" : "]");
      } else if (next == 'S' && !in_class) {
        out.append("[^").append(kSpaces).append("]");
      } else {
        out.append(1, c).append(1, next);
      }
      continue;
    }
    if (in_class && c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&') {
      return unsupported("class intersection (&&) is not supported");
    }
    if (!in_class && c == '[') {
      in_class = true;
      class_start = i + 1 < pattern.size() && pattern[i + 1] == '^' ? i + 2 : i + 1;
    } else if (in_class && c == ']' && i != class_start) {
      in_class = false;
    }
    out += c;
  }
  return out;
}

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

// Per-thread memory of a match: one pair of offsets, limits and the stack of compiled code.
struct Scratch {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{32} << 10, kJitStackBytes, nullptr);

  Scratch() {
    if (!context) return;
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKiB);
    if (stack) pcre2_jit_stack_assign(context, nullptr, stack);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

}  // namespace

struct Regex::Impl {
  pcre2_code* code = nullptr;
  std::string pattern;  // as error messages show it

  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() { pcre2_code_free(code); }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return invalid("the pattern has " + std::to_string(pattern.size()) + " bytes; at most " +
                   std::to_string(kMaxPatternBytes) + " are allowed");
  }
  FOVEA_TRY(translated, translate(pattern));
  auto impl = std::make_shared<Impl>();
  impl->pattern = Json(to_valid_utf8(pattern)).describe();
  int code = 0;
  PCRE2_SIZE offset = 0;
  impl->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code,
                             &offset, nullptr);
  if (!impl->code) {
    return invalid("the pattern does not compile: " + message_of(code) + " at byte " +
                   std::to_string(offset));
  }
  pcre2_jit_compile(impl->code, PCRE2_JIT_COMPLETE);  // where it fails, pcre2_match interprets
  return Regex(std::move(impl));
}

Status Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  static thread_local Scratch scratch;
  if (!scratch.data || !scratch.context)
    return Error{ErrorCode::out_of_memory, "no memory to match a pattern"};
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.data);
  size_t start = 0;
  size_t last_end = static_cast<size_t>(-1);
  while (start <= text.size()) {
    const int rc = pcre2_match(impl_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK, scratch.data,
                               scratch.context);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return invalid("pattern " + impl_->pattern + " gave up on the text: " + message_of(rc));
    // \K can move the reported start anywhere; such patterns are not meant for splitting.
    if (bounds[0] > bounds[1] || bounds[0] < start) {
      return unsupported("pattern " + impl_->pattern + " moves the start of its match (\\K)");
    }
    const Span match{bounds[0], bounds[1]};
    if (match.size() > 0 || match.begin != last_end) {
      matches.push_back(match);
      last_end = match.end;
      start = match.end;
    }
    if (match.size() == 0) {
      if (match.end >= text.size()) break;
      start = match.end + decode_utf8(text.substr(match.end)).length;
    }
  }
  return {};
}

}  // namespace fovea::text
