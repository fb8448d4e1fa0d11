// Selection and plan() accept the same specs on a device, over the whole grid of specs, including devices
// that this machine does not have.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "backends/cuda/cuda_attention.h"
#include "backends/cuda/device_kernel.h"
#include "backends/cuda/step_layout.h"
#include "builtin/project_backends.h"
#include "fovea/attention.h"

namespace fovea::cuda {
namespace {

struct TestedDevice {
  const char* name;
  int every = 1;  ///< of the grid's specs, each n-th: an earlier device has the same kernels and memory
};
constexpr TestedDevice kDevices[] = {{"sm75"}, {"sm80"},  {"sm86"},     {"sm87", 5}, {"sm89", 5},
                                     {"sm90"}, {"sm100"}, {"sm103", 5}, {"sm120"},   {"sm121", 5}};
constexpr int kGqaRatios[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64, 128};
/// A single sequence, a few, and as many as on a large server.
constexpr AttentionLimits kLimits[] = {
    {1, 1, 2048, 2048}, {16, 512, 65536, 8192}, {512, 16384, 1 << 22, 1 << 17}};

struct Mask {
  const char* name;
  void (*set)(AttentionSpec&);
};
constexpr Mask kMasks[] = {
    {"causal", [](AttentionSpec&) {}},
    {"full", [](AttentionSpec& s) { s.mask.causal = false; }},
    {"window", [](AttentionSpec& s) { s.mask.window_left = 127; }},
    {"window with sink tokens", [](AttentionSpec& s) { s.mask.window_left = 127, s.mask.sink_tokens = 4; }},
    {"chunk", [](AttentionSpec& s) { s.mask.chunk = 64; }},
    {"spans", [](AttentionSpec& s) { s.mask.spans = true; }},
    {"packed", [](AttentionSpec& s) { s.mask.causal = false, s.mask.packed = true; }},
    {"tree", [](AttentionSpec& s) { s.mask.tree = true; }},
    {"soft cap", [](AttentionSpec& s) { s.softcap = 30; }},
    {"ALiBi", [](AttentionSpec& s) { s.has_alibi = true; }},
    {"negative scale", [](AttentionSpec& s) { s.scale = -0.1f; }},
};

using HeadDims = std::vector<std::pair<int, int>>;

/// Head sizes of K and V: multiples of 8 up to 512, and pairs used by models.
HeadDims all_head_dims() {
  HeadDims out;
  for (int d = 8; d <= 512; d += 8)
    out.emplace_back(d, d);
  for (const auto& pair : {std::pair{192, 128}, {128, 192}, {96, 64}, {576, 512}, {64, 512}})
    out.push_back(pair);
  return out;
}
/// One or two head sizes for each compiled size.
const HeadDims kSomeHeadDims = {{64, 64},   {72, 72},   {96, 96},   {128, 128}, {192, 128},
                                {192, 192}, {256, 256}, {264, 264}, {512, 512}};

struct Row {
  const BackendInfo* info;
  std::string label;
  FamilyOf families;
};

/// Rows with CUDA kernels. FLASHINFER has further rows for each value of flashinfer_use_tensor_cores, which
/// selection does not distinguish.
std::vector<Row> rows() {
  std::vector<Row> out;
  for (const auto& entry : project_backends().entries()) {
    const BackendInfo& info = *entry.info;
    if (info.capability.device != DeviceKind::cuda || !info.absent.empty()) continue;
    out.push_back({&info, info.label(), family_of(info)});
    if (info.name != "FLASHINFER") continue;
    out.push_back({&info, info.label() + " with tensor cores", family_of(info, true)});
    out.push_back({&info, info.label() + " with CUDA cores", family_of(info, false)});
  }
  return out;
}

/// The error of the host part of a plan, as in CudaAttention::make_plan(); "" = none.
std::string plan_error(const Row& row, const AttentionSpec& spec, const AttentionLimits& limits,
                       const DeviceInfo& device, Phase phase) {
  const auto bytes = cuda_workspace_bytes(*row.info, row.families, spec, limits);
  if (!bytes) return bytes.error().message;
  for (const KernelUse use : {KernelUse::decode, KernelUse::extend, KernelUse::extend_small}) {
    if ((use == KernelUse::decode) != (phase == Phase::decode)) continue;
    const auto kernel = kernel_on_device(*row.info, row.families, spec, use, limits, device);
    if (!kernel) return kernel.error().message;
    if (kernel->kernel.shared_bytes > fovea::shared_bytes_of(device.compute_capability))
      return "more shared memory than the device has";
    const auto layout = step_layout(spec, *kernel, limits);
    if (!layout) return layout.error().message;
    if (layout->bytes > *bytes) return "more workspace than workspace_bytes() returned";
  }
  return {};
}

struct Counts {
  int accepted = 0, refused = 0, accepted_then_refused = 0, refused_then_accepted = 0, by_memory = 0;
};

class Grid {
 public:
  /// Compares selection and plan() for one row, spec and device.
  void add(const Row& row, const AttentionSpec& spec, const DeviceInfo& device, const char* mask) {
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      const auto reasons = validate(*row.info, spec, device, phase);
      std::string error;
      for (const AttentionLimits& limits : kLimits)
        if (error.empty()) error = plan_error(row, spec, limits, device, phase);
      ++(reasons.empty() ? counts.accepted : counts.refused);
      if (reasons.empty() == error.empty()) {
        if (!reasons.empty() && reasons.front().text.find("shared memory") != std::string::npos)
          ++counts.by_memory;
        continue;
      }
      ++(reasons.empty() ? counts.accepted_then_refused : counts.refused_then_accepted);
      ADD_FAILURE() << row.label << " on " << describe(device) << ", " << to_string(phase) << ", "
                    << to_string(spec.dtype) << " with " << to_string(spec.kv_dtype) << ", head sizes "
                    << spec.head_dim << " and " << spec.v_head_dim << ", " << spec.num_heads << " heads, "
                    << mask << ": selection says '" << (reasons.empty() ? "yes" : reasons.front().text)
                    << "', plan() '" << (error.empty() ? "yes" : error) << "'";
    }
  }
  Counts counts;
};

constexpr KvCacheDType kKvDTypes[] = {KvCacheDType::auto_,
                                      KvCacheDType::float32,
                                      KvCacheDType::float16,
                                      KvCacheDType::bfloat16,
                                      KvCacheDType::fp8_e4m3,
                                      KvCacheDType::fp8_e5m2,
                                      KvCacheDType::int8_per_token_head,
                                      KvCacheDType::nvfp4};

/// Every mask, head size and type with one and with four query heads per KV head; every ratio with every mask
/// at some sizes.
template <class F>
void for_each_spec(F&& f) {
  const HeadDims every = all_head_dims();
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32})
    for (const KvCacheDType kv : kKvDTypes)
      for (const Mask& mask : kMasks)
        for (const int ratio : kGqaRatios)
          for (const auto& [d, dv] : ratio == 1 || ratio == 4 ? every : kSomeHeadDims) {
            AttentionSpec spec;
            spec.num_kv_heads = 2;
            spec.num_heads = 2 * ratio;
            spec.head_dim = d;
            spec.v_head_dim = dv;
            spec.scale = 0.1f;
            spec.dtype = dtype;
            spec.kv_dtype = kv;
            spec.page_size = 16;
            mask.set(spec);
            f(spec, mask.name);
          }
}

class CudaDeviceGrid : public ::testing::TestWithParam<TestedDevice> {};

TEST_P(CudaDeviceGrid, SelectionAcceptsWhatPlanTakes) {
  const DeviceInfo device = *parse_device(GetParam().name);
  Grid grid;
  int64_t number = 0;
  for (const Row& row : rows())
    for_each_spec([&](const AttentionSpec& spec, const char* mask) {
      if (++number % GetParam().every == 0) grid.add(row, spec, device, mask);
    });
  const Counts& c = grid.counts;
  std::printf(
      "%s: %d accepted, %d refused (%d for shared memory), %d accepted but refused by plan(), %d "
      "refused but taken by plan()\n",
      GetParam().name, c.accepted, c.refused, c.by_memory, c.accepted_then_refused, c.refused_then_accepted);
  EXPECT_EQ(c.accepted_then_refused + c.refused_then_accepted, 0);
  EXPECT_EQ(c.by_memory, 0) << "a smaller kernel is missing";
  EXPECT_EQ(c.accepted > 0, device.compute_capability >= 80);
}

INSTANTIATE_TEST_SUITE_P(Devices, CudaDeviceGrid, ::testing::ValuesIn(kDevices),
                         [](const auto& device) { return std::string(device.param.name); });

}  // namespace
}  // namespace fovea::cuda
