#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <string>

#include "fovea/result.h"
#include "text/json_value.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr size_t kMaxPatternBytes = size_t{64} << 10;
// One step of a pre-tokenizer pattern backtracks at most once per character of a whitespace run, so 10 M
// steps cover runs of that many bytes; a pattern that needs more has runaway backtracking.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;  // interpreter only
constexpr size_t kJitStackBytes = 8 << 20;

// White_Space of Unicode, which is what Oniguruma's \s means; PCRE2's own \s also has U+180E.
constexpr std::string_view kSpaces =
    R"(\t-\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// \w of Oniguruma: alphabetic characters (the circled letters are symbols), marks, Nd, Pc. PCRE2's lacks
// marks.
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24b6}-\x{24e9})";
constexpr std::string_view kHexDigits = "0-9A-Fa-f";

// The members of a class escape that means something else in PCRE2, or "".
std::string_view class_members(char letter) {
  switch (letter) {
    case 's':
    case 'S': return kSpaces;
    case 'w':
    case 'W': return kWord;
    case 'h':
    case 'H': return kHexDigits;
    default: return "";
  }
}

// Oniguruma pattern -> PCRE2 pattern.
Result<std::string> translate(std::string_view pattern) {
  std::string out;
  int depth = 0;  // of brackets: 0 is outside a class
  size_t class_start = 0;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const std::string_view rest = pattern.substr(i);
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      const std::string_view members = class_members(next);
      const bool negated = next >= 'A' && next <= 'Z';
      if (members.empty() || (negated && depth > 0 && next == 'S')) {
        out.append(1, c).append(1, next);
      } else if (depth > 0 && negated) {
        return unsupported(std::string("\\") + next + " inside a class is not supported");
      } else {
        out.append(depth > 0 ? "" : negated ? "[^" : "[").append(members).append(depth > 0 ? "" : "]");
      }
      continue;
    }
    if (depth > 0 && rest.starts_with("&&")) return unsupported("class intersection (&&) is not supported");
    if (depth > 0 && rest.starts_with("[:")) {
      const size_t end = std::min(rest.find(":]"), rest.size() - 2);
      out += rest.substr(0, end + 2);
      i += end + 1;
      continue;
    }
    if (c == '[') {
      if (rest.starts_with("[^") && depth > 0)
        return unsupported("a negated class inside a class is not supported");
      class_start = i + (rest.starts_with("[^") ? 2 : 1);
      if (++depth > 1) continue;  // a class inside a class is a union
    } else if (depth > 0 && c == ']' && i != class_start) {
      if (--depth > 0) continue;
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
    if (rc < 0) return invalid("matching pattern " + impl_->pattern + " failed: " + message_of(rc));
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
