#include "cli/engine_stats.h"

#include <algorithm>
#include <cstdio>

namespace fovea::cli {
namespace {

template <class... Values>
void line(std::string& text, const char* format, Values... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, values...);
  text += buffer;
  text += '\n';
}

long long number(int64_t value) {
  return static_cast<long long>(value);
}

}  // namespace

std::string describe_stats(const EngineStats& s) {
  std::string text;
  const double busy = std::max(s.busy_seconds, 1e-9);
  line(text, "steps: %lld in %.2f s; %lld prefill and %lld decode tokens, %.1f tokens/s", number(s.steps),
       busy, number(s.prefill_tokens), number(s.decode_tokens),
       static_cast<double>(s.prefill_tokens + s.decode_tokens) / busy);
  line(text,
       "pages: %lld, of them %lld cached and %lld free; %lld preemptions; %lld of %lld prompt tokens cached",
       number(s.pages_total), number(s.pages_cached), number(s.pages_free), number(s.preemptions),
       number(s.prefix_hits), number(s.prefix_queries));
  if (s.token_gap_max > 0)
    line(text, "time to the next token: p50 %.2f ms, p99 %.2f ms, longest %.2f ms", s.token_gap_p50 * 1e3,
         s.token_gap_p99 * 1e3, s.token_gap_max * 1e3);
  if (const SpeculativeCounts& c = s.speculative; c.drafts > 0) {
    line(text, "drafts: %lld of %lld tokens accepted, mean acceptance length %.2f", number(c.accepted_tokens),
         number(c.draft_tokens), c.mean_acceptance_length());
    text += "accepted by place:";
    for (const int64_t accepted : c.accepted_by_position)
      text += " " + std::to_string(accepted);
    text += " of " + std::to_string(c.drafts) + " drafts\n";
  }
  if (s.prefill_step_seconds > 0) {
    const double rate = static_cast<double>(s.prefill_step_tokens) / s.prefill_step_seconds;
    line(text,
         "stall bound: a step has at most %d rows: %.1f ms at the measured prefill rate of %.1f tokens/s",
         s.max_step_tokens, s.max_step_tokens / rate * 1e3, rate);
  }
  return text;
}

}  // namespace fovea::cli
