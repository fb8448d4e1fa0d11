#include "conformance/run.h"

#include <algorithm>
#include <cstring>

#include "backends/torch_native/torch_native.h"
#include "base/cpu_features.h"
#include "base/float16.h"
#include "device/stream.h"

namespace fovea::conformance {
namespace {

constexpr uint8_t kPoison = 0xa5;  // as floats: about -3e-16, never a result of ours
constexpr int kGuardRows = 2;

float get(const std::byte* data, DType dtype, int64_t index) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data + index * 2, 2);
  return dtype == DType::f16 ? fp16_to_float(bits) : bf16_to_float(bits);
}

AlignedArray<std::byte> poisoned(size_t bytes) {
  AlignedArray<std::byte> a(bytes);
  std::memset(a.data(), kPoison, bytes);
  return a;
}

bool is_poison(const std::byte* first, size_t bytes) {
  return std::all_of(first, first + bytes, [](std::byte b) { return b == std::byte{kPoison}; });
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace

bool Output::operator==(const Output& other) const {
  return error == other.error && same_bits(o, other.o) && same_bits(lse, other.lse);
}

Output run(AttentionBackend& backend, const Problem& problem, const Layout& layout, ThreadPool& pool) {
  AttentionSpec spec = problem.spec;
  spec.kv_x_packed = layout.kv == KvLayout::x_packed;
  const Batch batch(problem, layout);
  Stream stream(pool);
  Output out;

  constexpr size_t kGuardBytes = 256;
  const Result<size_t> bytes = backend.workspace_bytes(spec, batch.limits());
  if (!bytes) return out.error = "workspace_bytes: " + bytes.error().message, out;
  AlignedArray<std::byte> workspace = poisoned(*bytes + kGuardBytes);

  const int64_t rows = batch.meta().num_tokens();
  const int64_t width = int64_t{spec.num_heads} * spec.v_head_dim;
  const size_t row_bytes = static_cast<size_t>(width + layout.row_padding) * size_of(spec.dtype);
  AlignedArray<std::byte> o = poisoned((rows + 2 * kGuardRows) * row_bytes);
  const size_t lse_row = static_cast<size_t>(spec.num_heads) * sizeof(float);
  AlignedArray<std::byte> lse = poisoned((rows + 2 * kGuardRows) * lse_row);

  AttentionArgs args = batch.args();
  args.out = o.data() + kGuardRows * row_bytes;
  args.out_row_stride = width + layout.row_padding;
  args.lse = reinterpret_cast<float*>(lse.data() + kGuardRows * lse_row);

  auto plan = backend.plan(spec, batch.limits(), batch.meta(), {workspace.data(), *bytes}, stream);
  if (!plan) return out.error = "plan: " + plan.error().message, out;
  if (problem.phase == Phase::decode)
    backend.forward_decode(**plan, args, stream);
  else
    backend.forward_extend(**plan, args, stream);

  if (!is_poison(workspace.data() + *bytes, kGuardBytes)) out.error = "wrote past the workspace";
  if (!is_poison(o.data(), kGuardRows * row_bytes) ||
      !is_poison(o.data() + (rows + kGuardRows) * row_bytes, kGuardRows * row_bytes))
    out.error = "wrote outside the output's rows";
  if (!is_poison(lse.data(), kGuardRows * lse_row) ||
      !is_poison(lse.data() + (rows + kGuardRows) * lse_row, kGuardRows * lse_row))
    out.error = "wrote outside the LSE's rows";
  for (int64_t row = 0; row < rows; ++row) {
    const std::byte* data = o.data() + (row + kGuardRows) * row_bytes;
    for (int64_t e = 0; e < width; ++e)
      out.o.push_back(get(data, spec.dtype, e));
    if (!is_poison(data + width * size_of(spec.dtype), layout.row_padding * size_of(spec.dtype)))
      out.error = "wrote between the output's rows";
  }
  out.lse.assign(args.lse, args.lse + rows * spec.num_heads);
  return out;
}

Output reference(const Problem& problem, ThreadPool& pool) {
  Problem exact = problem;
  exact.spec.dtype = DType::f32;
  exact.spec.kv_dtype = KvCacheDType::float32;
  exact.spec.fp64_accumulate = true;
  exact.spec.page_size = 16;
  Layout plain;
  plain.poison_invisible = false;
  return run(*make_torch_native(), exact, plain, pool);
}

std::string conform(AttentionBackend& backend, const Problem& problem, const Layout& layout,
                    ThreadPool& pool) {
  const std::string failure =
      judge(problem, run(backend, problem, layout, pool), reference(problem, pool), naive(problem));
  if (failure.empty()) return {};
  return std::string(backend.info().name) + ": " + failure + "in " + problem.describe();
}

void each_isa(const BackendInfo& backend, const std::function<void()>& fn) {
  if (backend.name == "TORCH_NATIVE") return fn();  // plain loops
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (set_isa(isa)) fn();
}

std::vector<const BackendRegistry::Entry*> cpu_backends() {
  std::vector<const BackendRegistry::Entry*> out;
  for (const auto& entry : builtin_backends().entries())
    if (entry.create && entry.info->capability.device == DeviceKind::cpu) out.push_back(&entry);
  return out;
}

}  // namespace fovea::conformance
