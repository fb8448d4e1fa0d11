#include "backends/flex_attention/mask_program.h"

#include <algorithm>
#include <charconv>

namespace fovea {
namespace {

/// A query row's absolute position.
constexpr const char* kPosition = "(q + klen - qlen)";

std::string number(float x) {
  char text[40];
  const auto [end, failed] = std::to_chars(text, text + sizeof text, x, std::chars_format::scientific);
  (void)failed;  // 40 characters are enough for any float
  return {text, end};
}

}  // namespace

std::string mask_expression(const MaskSpec& mask) {
  const std::string p = kPosition;
  std::string all;
  const auto also = [&all](const std::string& condition) { all += (all.empty() ? "" : " && ") + condition; };
  if (mask.causal) also("k <= " + p);
  if (mask.window_right >= 0) also("k - " + p + " <= " + std::to_string(mask.window_right));
  if (mask.window_left >= 0) {
    const std::string left = p + " - k <= " + std::to_string(mask.window_left);
    also(mask.sink_tokens > 0 ? "(" + left + " || k < " + std::to_string(mask.sink_tokens) + ")" : left);
  }
  if (mask.chunk > 0) {
    const std::string chunk = " // " + std::to_string(mask.chunk);
    also("k" + chunk + " == " + p + chunk);
  }
  if (mask.spans && !all.empty())
    all = "(" + all + ") || (k >= span_first[first_row[b] + q] && k <= span_last[first_row[b] + q])";
  return all;
}

std::string score_expression(const AttentionSpec& spec) {
  std::string s = "s";
  if (spec.softcap > 0) s = number(spec.softcap) + " * tanh(s / " + number(spec.softcap) + ")";
  if (spec.has_alibi) s += std::string(" - slopes[h] * abs(") + kPosition + " - k)";
  return s == "s" ? "" : s;
}

Result<flex::Program> attention_program(const AttentionSpec& spec) {
  std::vector<flex::BufferType> buffers;
  if (spec.has_alibi) buffers.push_back({"slopes", flex::Type::real, 1});
  if (spec.mask.spans)
    for (const char* name : {"first_row", "span_first", "span_last"})
      buffers.push_back({name, flex::Type::integer, 1});
  return flex::make_program(mask_expression(spec.mask), score_expression(spec), std::move(buffers));
}

SpanRanges span_ranges(const BatchMeta& meta) {
  SpanRanges ranges;
  const auto rows = static_cast<size_t>(std::max(meta.num_tokens(), 1));  // a buffer has an element or more
  ranges.first.assign(rows, 0);
  ranges.last.assign(rows, -1);
  for (size_t b = 0; b < meta.kv_lens.size(); ++b) {
    const int32_t first_row = meta.q_offsets[b], n_q = meta.q_offsets[b + 1] - first_row;
    ranges.first_row.push_back(first_row);
    const int64_t shift = int64_t{meta.kv_lens[b]} - n_q;
    for (const Span& span :
         meta.spans.subspan(static_cast<size_t>(meta.span_offsets[b]),
                            static_cast<size_t>(meta.span_offsets[b + 1] - meta.span_offsets[b]))) {
      const int64_t from = std::max<int64_t>(span.first - shift, 0),
                    to = std::min<int64_t>(span.last - shift, n_q - 1);
      for (int64_t row = from; row <= to; ++row) {
        int32_t& first = ranges.first[static_cast<size_t>(first_row + row)];
        int32_t& last = ranges.last[static_cast<size_t>(first_row + row)];
        first = last < first ? span.first : std::min(first, span.first);
        last = std::max(last, span.last);
      }
    }
  }
  if (ranges.first_row.empty()) ranges.first_row.push_back(0);
  return ranges;
}

}  // namespace fovea
