#include "fovea/flex_attention.h"

#include <algorithm>
#include <climits>
#include <cmath>
#include <string>

#include "attention/batch_check.h"
#include "base/aligned.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "device/stream.h"
#include "flex/bind.h"
#include "flex/cpu_attention.h"
#include "flex/gpu_attention.h"
#include "flex/program.h"

namespace fovea {
namespace {

constexpr int kMaxHeadDim = 1 << 16;

flex::Type type_of(FlexElement element) {
  switch (element) {
    case FlexElement::boolean: return flex::Type::boolean;
    case FlexElement::integer: return flex::Type::integer;
    case FlexElement::real: return flex::Type::real;
  }
  return flex::Type::integer;
}

std::string describe(flex::Type element, int dims) {
  return std::string(to_string(element)) + " with " + std::to_string(dims) +
         (dims == 1 ? " dimension" : " dimensions");
}

Status check_flex_spec(const AttentionSpec& spec, const KvView& kv) {
  FOVEA_RETURN_IF_ERROR(check_spec(spec));
  if (spec.mask != MaskSpec{.causal = false} || spec.softcap != 0 || spec.has_alibi || spec.has_sink ||
      spec.use_mla || spec.use_sparse || spec.linear != LinearAttention::none)
    return invalid(
        "flex_attention takes a spec without causal mask, windows, other masks, soft cap, ALiBi, sinks, MLA: "
        "write them as the program's mask and score (and set mask.causal = false)");
  if (spec.head_dim > kMaxHeadDim || spec.v_head_dim > kMaxHeadDim)
    return invalid("flex_attention takes head sizes up to " + std::to_string(kMaxHeadDim));
  const bool stored = kv.dtype == KvCacheDType::float32 || kv.dtype == KvCacheDType::float16 ||
                      kv.dtype == KvCacheDType::bfloat16;
  if (!stored || kv.form != KvForm::strided)
    return unsupported(
        "flex_attention reads keys of float32, float16 and bfloat16 whose elements are contiguous, not " +
        std::string(to_string(kv.dtype)) + (stored ? " x-packed" : ""));
  return {};
}

/// The most that a step may have: what it has.
AttentionLimits limits_of(const BatchMeta& meta) {
  AttentionLimits limits;
  limits.max_seqs = std::max(meta.num_seqs(), 1);
  limits.max_tokens = INT_MAX;
  limits.max_kv_tokens = INT64_MAX;
  limits.max_kv_len = INT_MAX;
  return limits;
}

}  // namespace

Result<FlexProgram> FlexProgram::parse(std::string_view mask, std::string_view score,
                                       std::span<const FlexBuffer> buffers) {
  std::vector<flex::BufferType> types;
  for (const FlexBuffer& buffer : buffers)
    types.push_back({std::string(buffer.name), type_of(buffer.element), buffer.dims});
  FOVEA_TRY(program, flex::make_program(mask, score, std::move(types)));
  return FlexProgram(std::make_shared<const flex::Program>(std::move(program)));
}

uint64_t FlexProgram::hash() const {
  return program_->hash();
}

namespace flex {

Result<std::vector<Buffer>> bind(const Program& program, std::span<const FlexBuffer> given) {
  std::vector<Buffer> bound;
  for (const BufferType& type : program.buffers) {
    const std::string quoted = "buffer '" + type.name + "'";
    const auto found = std::ranges::find(given, std::string_view(type.name), &FlexBuffer::name);
    if (found == given.end()) return invalid(quoted + " is not given; the program was parsed with it");
    const FlexBuffer& b = *found;
    if (type_of(b.element) != type.element || b.dims != type.dims)
      return invalid(quoted + " is " + describe(type_of(b.element), b.dims) +
                     "; the program was parsed with " + describe(type.element, type.dims));
    if (b.columns < 1 || b.rows < 1 || (b.dims == 1 && b.rows != 1))
      return invalid(quoted + " has the shape [" + (b.dims == 2 ? std::to_string(b.rows) + ", " : "") +
                     std::to_string(b.columns) + "]; every dimension must be 1 or more");
    if (b.data == nullptr) return invalid(quoted + " is null");
    const int64_t stride = b.row_stride != 0 ? b.row_stride : b.columns;
    if (stride < 0) return invalid(quoted + " has a negative stride");
    bound.push_back({b.data, b.rows, b.columns, stride});
  }
  return bound;
}

}  // namespace flex

Status flex_attention(const FlexProgram& program, std::span<const FlexBuffer> buffers,
                      const AttentionSpec& spec, const BatchMeta& meta, const AttentionArgs& args,
                      Stream& stream, FlexBlocks* blocks) {
  FOVEA_RETURN_IF_ERROR(check_flex_spec(spec, args.kv));
  FOVEA_TRY(bound, flex::bind(program.program(), buffers));
  FOVEA_RETURN_IF_ERROR(check_batch(spec, limits_of(meta), meta, args.kv.page_size));
  if (meta.num_tokens() == 0) return {};
  FOVEA_RETURN_IF_ERROR(check_args(args, spec, args.kv.page_size));
  if (!stream.on_cpu()) {
    FOVEA_TRY(step, flex::GpuAttention::plan(program.program(), bound, spec, meta, args, stream));
    if (blocks != nullptr) *blocks = step->blocks();
    return step->run();
  }
  const int slots = std::min(stream.pool().size(), flex::CpuAttention::kMaxSlots);
  AlignedArray<std::byte> scratch(flex::CpuAttention::scratch_bytes(program.program(), spec, slots));
  const flex::CpuAttention step(program.program(), bound, spec, meta);
  step.run(bound, args, stream.pool(), scratch, blocks);
  return {};
}

}  // namespace fovea
