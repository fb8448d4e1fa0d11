#include "conformance/run.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "backends/torch_native/torch_native.h"
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

namespace {

/// Where a layer writes, with poison inside and around.
class Target {
 public:
  Target(const AttentionSpec& spec, int64_t rows, int row_padding)
      : dtype_(spec.dtype),
        rows_(rows),
        heads_(spec.num_heads),
        width_(heads_ * spec.v_head_dim),
        padding_(row_padding),
        row_bytes_(static_cast<size_t>(width_ + padding_) * size_of(dtype_)),
        lse_row_(static_cast<size_t>(heads_) * sizeof(float)),
        o_(poisoned((rows + 2 * kGuardRows) * row_bytes_)),
        lse_(poisoned((rows + 2 * kGuardRows) * lse_row_)) {}

  void put_into(AttentionArgs& args, bool want_lse) {
    args.out = o_.data() + kGuardRows * row_bytes_;
    args.out_row_stride = width_ + padding_;
    args.lse = want_lse ? reinterpret_cast<float*>(lse_.data() + kGuardRows * lse_row_) : nullptr;
  }

  Output read(bool want_lse) const {
    Output out;
    if (!guarded(o_, row_bytes_)) out.error = "wrote outside the output's rows";
    if (!guarded(lse_, lse_row_)) out.error = "wrote outside the LSE's rows";
    out.o.reserve(static_cast<size_t>(rows_ * width_));
    for (int64_t row = 0; row < rows_; ++row) {
      const std::byte* data = o_.data() + (row + kGuardRows) * row_bytes_;
      for (int64_t e = 0; e < width_; ++e)
        out.o.push_back(get(data, dtype_, e));
      if (!is_poison(data + width_ * size_of(dtype_), padding_ * size_of(dtype_)))
        out.error = "wrote between the output's rows";
    }
    const std::byte* lse = lse_.data() + kGuardRows * lse_row_;
    if (want_lse) {
      out.lse.resize(static_cast<size_t>(rows_ * heads_));
      if (rows_ > 0) std::memcpy(out.lse.data(), lse, rows_ * lse_row_);
    } else if (!is_poison(lse, rows_ * lse_row_)) {
      out.error = "wrote an LSE that was not wanted";
    }
    return out;
  }

 private:
  bool guarded(const AlignedArray<std::byte>& array, size_t row_bytes) const {
    return is_poison(array.data(), kGuardRows * row_bytes) &&
           is_poison(array.data() + (rows_ + kGuardRows) * row_bytes, kGuardRows * row_bytes);
  }

  DType dtype_;
  int64_t rows_, heads_, width_;
  int padding_;
  size_t row_bytes_, lse_row_;
  AlignedArray<std::byte> o_, lse_;
};

}  // namespace

Output run(AttentionBackend& backend, const Problem& problem, const Layout& layout, ThreadPool& pool,
           bool want_lse) {
  const Problem* const layers[] = {&problem};
  return run_layers(backend, layers, layout, pool, want_lse).front();
}

std::vector<Output> run_layers(AttentionBackend& backend, std::span<const Problem* const> layers,
                               const Layout& layout, ThreadPool& pool, bool want_lse) {
  AttentionSpec spec = layers.front()->spec;
  spec.kv_x_packed = layout.kv == KvLayout::x_packed;
  const Batch batch(*layers.front(), layout);
  Stream stream(pool);
  want_lse = want_lse && backend.info().capability.features.has(Feature::lse);
  const auto failed = [&](std::string error) {
    Output none;
    none.error = std::move(error);
    return std::vector<Output>(layers.size(), none);
  };

  constexpr size_t kGuardBytes = 256;
  const Result<size_t> bytes = backend.workspace_bytes(spec, batch.limits());
  if (!bytes) return failed("workspace_bytes: " + bytes.error().message);
  AlignedArray<std::byte> workspace = poisoned(*bytes + kGuardBytes);
  auto plan = backend.plan(spec, batch.limits(), batch.meta(), {workspace.data(), *bytes}, stream);
  if (!plan) return failed("plan: " + plan.error().message);

  std::vector<Output> outputs;
  for (const Problem* layer : layers) {
    AttentionArgs args = batch.args();
    std::optional<Batch> other;  // for its queries
    if (layer != layers.front()) {
      other.emplace(*layer, layout);
      args.q = other->args().q;
    }
    Target target(spec, batch.meta().num_tokens(), layout.row_padding);
    target.put_into(args, want_lse);
    const Status status = layer->phase == Phase::decode ? backend.forward_decode(**plan, args, stream)
                                                        : backend.forward_extend(**plan, args, stream);
    if (!status.ok()) return failed("forward: " + status.error().message);
    outputs.push_back(target.read(want_lse));
    if (!is_poison(workspace.data() + *bytes, kGuardBytes)) outputs.back().error = "wrote past the workspace";
  }
  return outputs;
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

std::vector<Isa> isas_of(const BackendInfo& backend) {
  if (backend.name == "TORCH_NATIVE") return {detect_isa()};  // plain loops
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (isa <= detect_isa()) isas.push_back(isa);
  return isas;
}

void each_isa(const BackendInfo& backend, const std::function<void()>& fn) {
  for (const Isa isa : isas_of(backend)) {
    set_isa(isa);
    fn();
  }
}

std::vector<const BackendRegistry::Entry*> cpu_backends() {
  std::vector<const BackendRegistry::Entry*> out;
  for (const auto& entry : builtin_backends().entries())
    if (entry.create && entry.info->capability.device == DeviceKind::cpu) out.push_back(&entry);
  return out;
}

}  // namespace fovea::conformance
