#pragma once
// Small registries for tests of the selection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention.h"
#include "fovea/attention_backend.h"

namespace fovea {

inline AttentionSpec llama_spec() {
  AttentionSpec spec;
  spec.num_heads = 8;
  spec.num_kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 64;
  spec.scale = 0.125f;
  return spec;
}

/// Llama 3.1 8B's.
inline AttentionSpec llama_8b_spec() {
  AttentionSpec spec;
  spec.num_heads = 32;
  spec.num_kv_heads = 8;
  spec.head_dim = spec.v_head_dim = 128;
  spec.scale = 0.088f;
  spec.dtype = DType::bf16;
  return spec;
}

inline AttentionSpec window_spec() {
  AttentionSpec spec = llama_spec();
  spec.mask.window_left = 127;
  return spec;
}

inline AttentionSpec encoder_spec() {
  AttentionSpec spec = llama_spec();
  spec.type = AttentionType::encoder;
  spec.mask.causal = false;
  return spec;
}

/// DeepSeek-V3's.
inline AttentionSpec mla_spec() {
  AttentionSpec spec;
  spec.num_heads = 128;
  spec.num_kv_heads = 1;
  spec.head_dim = 576;
  spec.v_head_dim = 512;
  spec.mla_nope_head_dim = 128;
  spec.mla_rope_head_dim = 64;
  spec.mla_v_head_dim = 128;
  spec.scale = 0.1f;
  spec.dtype = DType::bf16;
  spec.use_mla = true;
  return spec;
}

inline DeviceInfo cuda(int compute_capability) {
  return {DeviceKind::cuda, compute_capability, ""};
}

/// Supports llama_spec() on a CPU, and no feature.
constexpr Capability plain_capability() {
  Capability c;
  c.dtypes = {DType::f32, DType::bf16};
  c.kv_dtypes = {KvCacheDType::auto_, KvCacheDType::float32, KvCacheDType::bfloat16};
  c.page_sizes = IntSet::range(1, 1024);
  c.head_dims = c.v_head_dims = IntSet::range(16, 256, 8);
  c.types = {AttentionType::decoder};
  c.phases = {Phase::prefill, Phase::decode};
  return c;
}

inline BackendInfo backend_named(std::string_view name, Capability c,
                                 std::vector<std::string_view> aliases = {}) {
  BackendInfo info;
  info.name = name;
  info.aliases = std::move(aliases);
  info.capability = c;
  return info;
}

/// A registry that owns its rows.
class TestRegistry {
 public:
  BackendInfo& add(BackendInfo info) {
    rows_.push_back(std::move(info));
    BackendInfo& row = rows_.back();
    registry_.add(row, factory(row));
    return row;
  }
  BackendInfo& add_mla_prefill(BackendInfo info) {
    rows_.push_back(std::move(info));
    BackendInfo& row = rows_.back();
    registry_.add_mla_prefill(row, factory(row));
    return row;
  }
  const BackendRegistry& get() const { return registry_; }

 private:
  static BackendRegistry::Factory factory(const BackendInfo& info) {
    if (!info.absent.empty()) return nullptr;
    return [] { return std::unique_ptr<AttentionBackend>(); };
  }
  std::deque<BackendInfo> rows_;
  BackendRegistry registry_;
};

class SelectTest : public ::testing::Test {
 protected:
  Result<Selection> choose(const AttentionConfig& config, std::vector<AttentionSpec> specs = {llama_spec()}) {
    return select(config, specs, device, registry.get());
  }
  Selection considered(const AttentionConfig& config, std::vector<AttentionSpec> specs = {llama_spec()}) {
    auto s = consider(config, specs, device, registry.get());
    EXPECT_TRUE(s.ok()) << s.error().message;
    return s.ok() ? *std::move(s) : Selection{};
  }
  std::string refusal(const AttentionConfig& config, std::vector<AttentionSpec> specs = {llama_spec()}) {
    const auto s = choose(config, std::move(specs));
    return s ? "accepted" : s.error().message;
  }
  /// Labels "PREFILL,DECODE" of the kind, or the error message.
  std::string chosen(const AttentionConfig& config, std::vector<AttentionSpec> specs = {llama_spec()},
                     size_t kind = 0) {
    const auto s = choose(config, std::move(specs));
    if (!s) return s.error().message;
    return s->kinds[kind].prefill.backend->label() + "," + s->kinds[kind].decode.backend->label();
  }
  /// As chosen(), for the backends that would be chosen if they were built.
  std::string chosen_if_built(const AttentionConfig& config, std::vector<AttentionSpec> specs) {
    const Selection s = considered(config, std::move(specs));
    const auto label = [](const PhaseSelection& p) {
      if (p.backend != nullptr) return p.backend->label();
      return p.if_built == nullptr ? std::string("none") : p.if_built->label();
    };
    return s.kinds.empty() ? "" : label(s.kinds[0].prefill) + "," + label(s.kinds[0].decode);
  }

  TestRegistry registry;
  DeviceInfo device;
};

/// FAST_ATTN (pages of 32, no feature), PLAIN (window, sink, non-causal, encoders), DECODER (decodes, pages
/// of 64), GPU_ATTN (sm_90, absent).
class CpuSelectTest : public SelectTest {
 protected:
  CpuSelectTest() {
    Capability c = plain_capability();
    c.page_sizes = IntSet::range(32, 1024, 32);
    c.preferred_page_size = 32;
    fast = &registry.add(backend_named("FAST_ATTN", c, {"fast", "fa"}));
    c = plain_capability();
    c.features = {Feature::window, Feature::sink, Feature::non_causal};
    c.types = {AttentionType::decoder, AttentionType::encoder};
    plain = &registry.add(backend_named("PLAIN", c, {"torch_plain"}));
    c = plain_capability();
    c.phases = {Phase::decode};
    c.page_sizes = {64};
    c.preferred_page_size = 64;
    decoder = &registry.add(backend_named("DECODER", c));
    c = plain_capability();
    c.device = DeviceKind::cuda;
    c.min_compute_capability = 90;
    BackendInfo info = backend_named("GPU_ATTN", c, {"gpu"});
    info.absent = "its CUDA kernels are not written yet";
    gpu = &registry.add(info);
  }
  BackendInfo *fast, *plain, *decoder, *gpu;
};

/// vLLM's names in miniature, all built: FLASH_ATTN FA2, FA3 and FA4; FLASHINFER Native, TRTLLM and XQA;
/// FLASH_ATTN_MLA, FLASHINFER_MLA and TRTLLM_MLA, which only decodes; the four MLA prefills.
class CudaSelectTest : public SelectTest {
 protected:
  CudaSelectTest() {
    add("FLASHINFER", "Native", 80, 99, "FLASHINFER_MLA").aliases = {"flashinfer", "fi"};
    add("FLASHINFER", "TRTLLM", 100, 109, "FLASHINFER_MLA");
    BackendInfo& xqa = add("FLASHINFER", "XQA", 90, 90, "FLASHINFER_MLA");
    xqa.capability.phases = {Phase::decode};
    xqa.prefill_partner = "FLASHINFER";
    BackendInfo& fa2 = add("FLASH_ATTN", "FA2", 80, 0, "FLASH_ATTN_MLA");
    fa2.aliases = {"fa", "fa2"};
    fa2.capability.features.insert(Feature::alibi);
    add("FLASH_ATTN", "FA3", 90, 99, "FLASH_ATTN_MLA").aliases = {"fa3"};
    add("FLASH_ATTN", "FA4", 100, 0, "FLASH_ATTN_MLA").aliases = {"fa4"};
    add("FLASH_ATTN_MLA", "", 90, 99);
    add("FLASHINFER_MLA", "", 100, 109).capability.page_sizes = {32, 64};
    BackendInfo& trtllm = add("TRTLLM_MLA", "", 100, 109);
    trtllm.aliases = {"trtllm_mla"};
    trtllm.prefill_partner = "FLASHINFER_MLA";
    trtllm.capability.phases = {Phase::decode};
    trtllm.capability.page_sizes = {32, 64};
    trtllm.capability.preferred_page_size = 64;
    add_prefill("TRTLLM_RAGGED", "", 100, 109).capability.head_dims = {192};
    add_prefill("FLASHINFER", "", 100, 109);
    add_prefill("CUDNN", "", 100, 109);
    add_prefill("FLASH_ATTN", "FA2", 80, 0);
    add_prefill("FLASH_ATTN", "FA3", 90, 99);
    device = cuda(90);
  }

  static Capability capability(std::string_view name, int min, int max) {
    Capability c = plain_capability();
    c.page_sizes = IntSet::multiples_of(16);
    c.head_dims = c.v_head_dims = IntSet::any();
    c.device = DeviceKind::cuda;
    c.min_compute_capability = min;
    c.max_compute_capability = max;
    if (name.ends_with("MLA")) c.features = {Feature::mla};
    return c;
  }
  BackendInfo& add(std::string_view name, std::string_view version, int min, int max,
                   std::string_view mla_sibling = {}) {
    BackendInfo info = backend_named(name, capability(name, min, max));
    info.version = version;
    info.mla_sibling = mla_sibling;
    return registry.add(std::move(info));
  }
  BackendInfo& add_prefill(std::string_view name, std::string_view version, int min, int max) {
    BackendInfo info = backend_named(name, capability(name, min, max));
    info.version = version;
    info.capability.phases = {Phase::prefill};
    return registry.add_mla_prefill(std::move(info));
  }
};

}  // namespace fovea
