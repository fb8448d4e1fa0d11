#pragma once
// The masks and scores of AttentionSpec as expressions.
#include <string>
#include <vector>

#include "flex/program.h"
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/result.h"

namespace fovea {

/// Causal, windows, chunks and spans as a mask; empty = every key is seen. Spans read the buffers of
/// span_ranges().
std::string mask_expression(const MaskSpec& mask);
/// Soft cap and ALiBi (buffer "slopes") as a score; empty = unchanged.
std::string score_expression(const AttentionSpec& spec);

/// Buffers of the two, in this order: "slopes" with ALiBi; "first_row", "span_first", "span_last" with spans.
Result<flex::Program> attention_program(const AttentionSpec& spec);

/// For each row of a step the keys that it sees because a span contains its position: [first, last], last <
/// first = none. Spans that contain one position make one range. `first_row` [B] is the first row of each
/// sequence.
struct SpanRanges {
  std::vector<int32_t> first_row, first, last;
};
SpanRanges span_ranges(const BatchMeta& meta);

}  // namespace fovea
