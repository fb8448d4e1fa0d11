#include "builtin/cuda_rows.h"

#include <algorithm>
#include <string>

#include "attention/mla_prefill.h"
#include "attention/row.h"
#include "backends/cuda/device_kernel.h"
#include "backends/cuda/kernel_choice.h"

namespace fovea {
namespace {

using namespace rows;

constexpr int kMaxHeadDim = 512;
constexpr int kMaxEightBitHeadDim = 256;

/// 16-bit caches are read only with queries of the same type (the table refuses 32-bit queries).
bool is_another_type(KvCacheDType stored, DType dtype) {
  return size_of(stored) == 2 && stored != resolve(KvCacheDType::auto_, dtype);
}

/// Capability of src/kernels/cuda/sm80.
Capability sm80_capability() {
  Capability c;
  c.dtypes = kHalf;
  c.kv_dtypes = kKvHalf | kFp8s | KvDtypes{KvCacheDType::int8_per_token_head};
  c.page_sizes = IntSet::any();
  c.preferred_page_size = 16;
  c.head_dims = IntSet::range(8, kMaxHeadDim, 8);
  c.v_head_dims = c.head_dims;
  c.types = kAllTypes;
  c.features = {Feature::window,      Feature::chunk,      Feature::softcap,        Feature::sink,
                Feature::sink_tokens, Feature::alibi,      Feature::spans,          Feature::packed_mask,
                Feature::verify,      Feature::tree_mask,  Feature::non_causal,     Feature::lse,
                Feature::native_page, Feature::kv_sharing, Feature::per_head_scales};
  c.phases = kBothPhases;
  // Not chunking: decode splits keys and prefill, with split_prefill off, does not.
  c.invariance = {Invariance::run, Invariance::batch, Invariance::page_size, Invariance::prefill_chunks};
  c.graph = GraphSupport::always;
  c.device = DeviceKind::cuda;
  c.min_compute_capability = 80;
  return c;
}

/// Capability of src/kernels/cuda/sm90, with sm80 kernels for what sm90 lacks: everything that selects
/// FlashAttention 3 on compute capability 9.0. sm90 alone reads x-packed pages. No ALiBi, which selects
/// version 2 (default_flash_version).
Capability sm90_capability() {
  Capability c = sm80_capability();
  c.features = c.features.without({Feature::alibi});
  c.features.insert(Feature::kv_x_packed);
  c.features.insert(Feature::kv_shuffle);
  c.min_compute_capability = c.max_compute_capability = 90;
  return c;
}

/// Capability of src/kernels/cuda/portable: that of sm80, and more dtypes, head sizes and layouts.
Capability portable_capability() {
  Capability c = sm80_capability();
  c.dtypes = kFloats;
  c.kv_dtypes.insert(KvCacheDType::float32);
  c.head_dims = c.v_head_dims = IntSet::range(1, kMaxHeadDim);
  c.features.insert(Feature::kv_x_packed);
  c.features.insert(Feature::kv_shuffle);
  return c;
}

/// Capability of src/kernels/cuda/mla by mma.sync: the absorbed form of DeepSeek's sizes and of MiniCPM3's.
Capability mla_capability() {
  Capability c;
  c.dtypes = kHalf;
  c.kv_dtypes = kKvHalf | kE4m3;
  c.page_sizes = IntSet::any();
  c.preferred_page_size = 16;
  c.head_dims = {288, 576};
  c.v_head_dims = {256, 512};
  c.types = kDecoder;
  c.features = {Feature::mla, Feature::verify,      Feature::non_causal,
                Feature::lse, Feature::native_page, Feature::kv_sharing};
  c.phases = kBothPhases;
  c.invariance = {Invariance::run, Invariance::batch, Invariance::page_size, Invariance::prefill_chunks};
  c.graph = GraphSupport::always;
  c.device = DeviceKind::cuda;
  c.min_compute_capability = 80;
  return c;
}

/// The pages that FlashInfer's own has.
Capability flashinfer_mla_capability() {
  Capability c = mla_capability();
  c.page_sizes = {32, 64};
  c.preferred_page_size = 64;
  return c;
}

/// With Hopper's instructions, and those of mla_capability() for what they lack.
Capability flash_attn_mla_capability() {
  Capability c = mla_capability();
  c.page_sizes = IntSet::multiples_of(16);
  c.head_dims = {576};
  c.v_head_dims = {512};
  c.min_compute_capability = c.max_compute_capability = 90;
  return c;
}

Capability flashmla_capability() {
  Capability c = flash_attn_mla_capability();
  c.page_sizes = {64};
  c.preferred_page_size = 64;
  return c;
}

/// Over lists of keys; also over records of fp8_ds_mla.
constexpr FeatureSet kSparseMla = {Feature::mla, Feature::sparse,      Feature::verify,
                                   Feature::lse, Feature::native_page, Feature::kv_sharing};

Capability flashmla_sparse_capability() {
  Capability c = flashmla_capability();
  c.dtypes = kBf16;
  c.kv_dtypes = kKvBf16 | KvDtypes{KvCacheDType::fp8_ds_mla};
  c.features = kSparseMla;
  return c;
}

/// The same by mma.sync.
Capability flashinfer_mla_sparse_capability() {
  Capability c = flashinfer_mla_capability();
  c.kv_dtypes = kKvHalf | KvDtypes{KvCacheDType::fp8_ds_mla};
  c.head_dims = {576};
  c.v_head_dims = {512};
  c.features = kSparseMla;
  return c;
}

/// Combinations that all MLA kernels lack.
std::optional<Reason> check_mla_types(const AttentionSpec& spec, const DeviceInfo&) {
  const KvCacheDType stored = resolve(spec.kv_dtype, spec.dtype);
  if (!is_another_type(stored, spec.dtype)) return {};
  return Reason{"a KV cache of " + std::string(to_string(stored)) + " beside queries of " +
                    std::string(to_string(spec.dtype)) + " not supported",
                "--kv-cache-dtype auto: the queries' type"};
}

/// The same for rows over lists of keys and with queries in float16.
std::optional<Reason> check_sparse_mla(const AttentionSpec& spec, const DeviceInfo& device) {
  if (spec.kv_dtype != KvCacheDType::fp8_ds_mla || spec.dtype == DType::bf16)
    return check_mla_types(spec, device);
  return Reason{"a KV cache of fp8_ds_mla beside queries of " + std::string(to_string(spec.dtype)) +
                    " not supported: its records have bfloat16",
                "--dtype bfloat16, or --kv-cache-dtype auto: the queries' type"};
}

/// check_mla_types() for rows with two sizes of records.
std::optional<Reason> check_mla(const AttentionSpec& spec, const DeviceInfo& device) {
  // Sizes that no record has are the columns' matter.
  const bool known =
      (spec.head_dim == 576 || spec.head_dim == 288) && (spec.v_head_dim == 512 || spec.v_head_dim == 256);
  if (known && spec.head_dim / 9 * 8 != spec.v_head_dim)
    return Reason{"records of " + std::to_string(spec.head_dim) + " elements with values of " +
                      std::to_string(spec.v_head_dim) + " not supported: 576 with 512 and 288 with 256 are",
                  {}};
  return check_mla_types(spec, device);
}

/// Combinations that the sm80 kernels lack, with what to change.
std::optional<Reason> check_sm80(const AttentionSpec& spec, const DeviceInfo&) {
  const KvCacheDType stored = resolve(spec.kv_dtype, spec.dtype);
  const std::string name(to_string(stored));
  if (is_another_type(stored, spec.dtype))
    return Reason{"a KV cache of " + name + " beside queries of " + std::string(to_string(spec.dtype)) +
                      " not supported",
                  "--kv-cache-dtype auto: the queries' type"};
  if (size_of(stored) != 1) return {};
  for (const int size : {spec.head_dim, spec.v_head_dim})
    if (size % 16 != 0 || size > kMaxEightBitHeadDim)
      return Reason{"a KV cache of " + name + " with a head size of " + std::to_string(size) +
                        " not supported: 8-bit kernels take multiples of 16 up to " +
                        std::to_string(kMaxEightBitHeadDim),
                    "--kv-cache-dtype auto: the queries' type"};
  return {};
}

/// BackendInfo::check_kernels: the check of plan() (cuda::kernel_on_device) for limits of few and of many
/// sequences.
std::optional<Reason> check_cuda_kernels(const BackendInfo& info, const AttentionSpec& spec,
                                         const DeviceInfo& device, Phase phase) {
  auto needed = cuda::check_device_kernels(info, spec, device, phase);
  if (!needed) return {};
  if (cuda::is_x_packed(spec)) return Reason{std::move(*needed), {}};
  return Reason{std::move(*needed),
                spec.use_mla ? "--attention-backend TRITON_MLA: its kernels need at most 99 KiB a block"
                             : "--attention-backend TRITON_ATTN: its kernels need at most 99 KiB a block"};
}

std::optional<KernelFamily> cuda_kernel_family(const BackendInfo& info, const AttentionSpec& spec,
                                               Phase phase) {
  auto [family, why] = cuda::explain_family(info, spec, phase);
  if (why.empty()) return std::nullopt;
  return KernelFamily{to_string(family), std::move(why)};
}

/// The same for heads that are not absorbed. Sizes that a model does not state are not checked.
std::optional<Reason> check_mla_prefill_kernels(const BackendInfo& info, const AttentionSpec& spec,
                                                const DeviceInfo& device, Phase phase) {
  if (spec.mla_nope_head_dim == 0) return {};
  auto needed = cuda::check_device_kernels(info, unabsorbed_spec(spec), device, phase);
  if (!needed) return {};
  return Reason{std::move(*needed), {}};
}

std::optional<KernelFamily> mla_prefill_kernel_family(const BackendInfo& info, const AttentionSpec& spec,
                                                      Phase phase) {
  if (spec.mla_nope_head_dim == 0) return {};
  return cuda_kernel_family(info, unabsorbed_spec(spec), phase);
}

/// The project's kernels for one row of a document.
struct Kernels {
  std::string_view name, version;
  std::vector<std::string_view> families;  ///< BackendInfo::families
  Capability (*capability)();
  std::optional<Reason> (*supports_combination)(const AttentionSpec&, const DeviceInfo&);
};

const Kernels* kernels_of(const BackendInfo& document) {
  static const std::vector<Kernels> all = {
      {"FLASHINFER", "Native", {"sm80", "simt"}, sm80_capability, check_sm80},
      {"FLASH_ATTN", "FA2", {"sm80"}, sm80_capability, check_sm80},
      {"FLASH_ATTN", "FA3", {"sm90"}, sm90_capability, check_sm80},
      {"FLASH_ATTN_DIFFKV", "", {"sm80"}, sm80_capability, check_sm80},
      {"TREE_ATTN", "", {"sm80"}, sm80_capability, check_sm80},
      {"TRITON_ATTN", "", {"portable"}, portable_capability, nullptr},
      {"TRITON_MLA", "", {"mla_sm80"}, mla_capability, check_mla},
      {"FLASHINFER_MLA", "", {"mla_sm80"}, flashinfer_mla_capability, check_mla},
      {"FLASH_ATTN_MLA", "", {"mla_sm90"}, flash_attn_mla_capability, check_mla_types},
      {"FLASHMLA", "", {"mla_sm90"}, flashmla_capability, check_mla_types},
      {"FLASHMLA_SPARSE", "", {"mla_sparse_sm90"}, flashmla_sparse_capability, nullptr},
      {"FLASHINFER_MLA_SPARSE", "", {"mla_sparse_sm80"}, flashinfer_mla_sparse_capability, check_sparse_mla},
  };
  const auto found = std::ranges::find_if(all, [&document](const Kernels& kernels) {
    return kernels.name == document.name && kernels.version == document.version;
  });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

std::optional<BackendInfo> cuda_row(const BackendInfo& document) {
  const Kernels* kernels = kernels_of(document);
  if (kernels == nullptr) return {};
  BackendInfo row = document;
  row.documented = &document.capability;
  row.capability = kernels->capability();
  row.absent = {};
  row.families = kernels->families;
  row.supports_combination = kernels->supports_combination;
  row.check_kernels = check_cuda_kernels;
  row.kernel_family = cuda_kernel_family;
  return row;
}

std::optional<BackendInfo> cuda_mla_prefill_row(const BackendInfo& document, const BackendInfo& backend) {
  if (document.name != "FLASH_ATTN" || backend.name != document.name || !backend.absent.empty()) return {};
  BackendInfo row = document;
  row.version = backend.version;
  row.documented = &document.capability;
  row.capability.min_compute_capability = backend.capability.min_compute_capability;
  row.capability.max_compute_capability = backend.capability.max_compute_capability;
  row.capability.invariance = backend.capability.invariance;
  row.capability.graph = backend.capability.graph;
  row.capability.unstated = {};
  row.absent = {};
  row.families = backend.families;
  row.check_kernels = check_mla_prefill_kernels;
  row.kernel_family = mla_prefill_kernel_family;
  return row;
}

}  // namespace fovea
