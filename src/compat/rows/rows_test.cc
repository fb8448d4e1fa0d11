#include "compat/rows/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "attention/columns.h"
#include "builtin/project_backends.h"
#include "compat/rows/peer_tables.h"

namespace fovea {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const BackendInfo& row(std::string_view name, std::string_view version = "") {
  for (const auto& entry : project_backends().entries())
    if (entry.info->name == name && entry.info->version == version) return *entry.info;
  ADD_FAILURE() << "no row " << name << " " << version;
  return *project_backends().entries().front().info;
}

std::vector<std::string> texts(const std::vector<Reason>& reasons) {
  std::vector<std::string> out;
  for (const Reason& reason : reasons)
    out.push_back(reason.text);
  return out;
}

TEST(Rows, EveryNameOfTheEnumHasARowButCustom) {
  std::set<std::string_view> registered;
  for (const auto& entry : project_backends().entries())
    registered.insert(entry.info->name);
  std::set<std::string_view> named;
#define FOVEA_NAME(name) named.insert(#name);
  FOVEA_ATTENTION_BACKENDS(FOVEA_NAME)
#undef FOVEA_NAME
  EXPECT_EQ(named.erase("CUSTOM"), 1u);
  EXPECT_EQ(registered, named);
}

TEST(Rows, AreWhole) {
  for (const BackendInfo* info : document_rows()) {
    const Capability& c = info->capability;
    if (info->absent.empty()) {
      EXPECT_TRUE(c.unstated.empty()) << info->label();
      EXPECT_NE(info->documented, nullptr) << info->label();
      EXPECT_EQ(c.device, DeviceKind::cuda) << info->label();
    }
    EXPECT_FALSE(info->description.empty()) << info->label();
    EXPECT_FALSE(c.dtypes.empty() || c.kv_dtypes.empty() || c.types.empty() || c.phases.empty())
        << info->label();
    EXPECT_TRUE(c.page_sizes.has(c.preferred_page_size)) << info->label();
    EXPECT_EQ(c.head_dims.empty(), c.v_head_dims.empty()) << info->label();
    EXPECT_EQ(c.phases.has(Phase::prefill), info->prefill_partner.empty()) << info->label();
    EXPECT_TRUE(c.device == DeviceKind::cuda || c.min_compute_capability == 0) << info->label();
  }
}

TEST(Rows, SiblingsAndPartnersAreRowsThatFit) {
  for (const BackendInfo* info : document_rows()) {
    if (!info->mla_sibling.empty()) {
      const auto* sibling = project_backends().find(info->mla_sibling);
      ASSERT_NE(sibling, nullptr) << info->mla_sibling;
      EXPECT_EQ(sibling->info->name, info->mla_sibling);
      EXPECT_TRUE(sibling->info->capability.features.has(Feature::mla));
      EXPECT_FALSE(info->capability.features.has(Feature::mla));
    }
    if (!info->prefill_partner.empty()) {
      const auto* partner = project_backends().find(info->prefill_partner);
      ASSERT_NE(partner, nullptr) << info->prefill_partner;
      EXPECT_TRUE(partner->info->capability.phases.has(Phase::prefill));
    }
  }
}

TEST(Rows, AFamilyNameIsARow) {
  const std::pair<const char*, const char*> aliases[] = {
      {"fa", "FLASH_ATTN"},
      {"fa2", "FLASH_ATTN"},
      {"fa3", "FLASH_ATTN"},
      {"fa4", "FLASH_ATTN"},
      {"flashinfer", "FLASHINFER"},
      {"fi", "FLASHINFER"},
      {"trtllm", "TRTLLM_MHA"},
      {"trtllm_mha", "TRTLLM_MHA"},
      {"trtllm_mla", "TRTLLM_MLA"},
      {"triton", "TRITON_ATTN"},
      {"torch_native", "TORCH_NATIVE"},
      {"torch_sdpa", "TORCH_NATIVE"},
      {"TORCH_SDPA", "TORCH_NATIVE"},
      {"sdpa", "TORCH_NATIVE"},
      {"flex_attention", "FLEX_ATTENTION"},
      {"flex", "FLEX_ATTENTION"},
      {"flashmla", "FLASHMLA"},
      {"cutlass_mla", "CUTLASS_MLA"},
      {"dsa", "FLASHMLA_SPARSE"},
      {"nsa", "FLASHMLA_SPARSE"},
      {"dsv4", "FLASHMLA_SPARSE_DSV4"},
      {"compressed", "FLASHMLA_SPARSE_DSV4"},
      {"aiter", "ROCM_AITER_FA"},
      {"wave", "WAVE"},
      {"ascend", "ASCEND"},
      {"intel_amx", "CPU_ATTN"},
      {"cpu", "CPU_ATTN"},
      {"intel_xpu", "INTEL_XPU"},
      {"tokenspeed_mla", "TOKENSPEED_MLA"},
      {"cutedsl_mla", "CUTEDSL_MLA"},
      {"hpc_ops", "HPC_ATTN"},
      {"dual_chunk_flash_attn", "DUAL_CHUNK_FLASH_ATTN"},
      {"minicpm_flashattn", "MINICPM_FLASHATTN"},
      {"minicpm_flashinfer", "MINICPM_FLASHINFER"},
  };
  for (const auto& [alias, name] : aliases) {
    const auto* entry = project_backends().find(alias);
    ASSERT_NE(entry, nullptr) << alias;
    EXPECT_EQ(entry->info->name, name) << alias;
  }
  EXPECT_EQ(project_backends().find("fa3")->info->version, "FA3");
  EXPECT_EQ(project_backends().find("CUSTOM"), nullptr);
}

TEST(Rows, VersionsOfOneNameDifferInDeviceOrKernel) {
  EXPECT_EQ(row("FLASH_ATTN", "FA3").capability.min_compute_capability, 90);
  EXPECT_EQ(row("FLASHINFER", "TRTLLM").capability.min_compute_capability, 100);
  EXPECT_EQ(row("TRITON_ATTN", "ROCm").capability.device, DeviceKind::rocm);
  EXPECT_FALSE(row("FLASH_ATTN", "FA2").documented->features.has(Feature::sink));
  EXPECT_TRUE(row("FLASH_ATTN", "FA3").documented->features.has(Feature::sink));
}

TEST(Rows, Version3IsForComputeCapability90AndAllThatVersion2DoesButAlibi) {
  const Capability &second = row("FLASH_ATTN", "FA2").capability,
                   &third = row("FLASH_ATTN", "FA3").capability;
  EXPECT_EQ(third.min_compute_capability, 90);
  EXPECT_EQ(third.max_compute_capability, 90);
  EXPECT_TRUE(second.features.has(Feature::alibi));
  EXPECT_EQ(third.features, second.features.without({Feature::alibi}));
  EXPECT_EQ(third.kv_dtypes, second.kv_dtypes);
}

TEST(Rows, WhatTheDocumentDoesNotSayIsUnstated) {
  const Capability& flex = row("FLEX_ATTENTION").capability;
  EXPECT_TRUE(flex.unstated.has(Feature::softcap));
  EXPECT_FALSE(flex.unstated.has(Feature::sink)) << "vLLM's table has the column";
  const Capability& wave = row("WAVE").capability;
  EXPECT_TRUE(wave.unstated.has(Feature::sink)) << "SGLang's has not";
  EXPECT_FALSE(wave.unstated.has(Feature::window));
  EXPECT_TRUE(row("FLASH_ATTN", "FA4").capability.unstated.has(Feature::softcap));
  EXPECT_FALSE(row("FLASH_ATTN", "FA4").capability.unstated.has(Feature::batch_invariance))
      << "batch invariance takes FA2";
  for (const char* name : {"CPU_ATTN", "TORCH_NATIVE"})
    EXPECT_TRUE(row(name).capability.unstated.empty()) << name;
}

TEST(Rows, BuiltBackendsKeepTheirDocumentsRow) {
  ASSERT_NE(row("CPU_ATTN").documented, nullptr);
  EXPECT_FALSE(row("CPU_ATTN").documented->features.has(Feature::sink));
  EXPECT_TRUE(row("CPU_ATTN").capability.features.has(Feature::sink));
  ASSERT_NE(row("TORCH_NATIVE").documented, nullptr);
  EXPECT_FALSE(row("TORCH_NATIVE").documented->features.has(Feature::native_page));
}

TEST(Rows, WhatTheOthersTakeBeyondVllmsTableLeavesItsRow) {
  const std::tuple<const char*, const char*, IntSet> rows[] = {
      {"FLASH_ATTN", "FA2", IntSet::multiples_of(16)},
      {"FLASH_ATTN", "FA3", IntSet::multiples_of(16)},
      {"FLASHINFER", "Native", IntSet{16, 32, 64}}};
  for (const auto& [name, version, pages] : rows) {
    const BackendInfo& info = row(name, version);
    ASSERT_NE(info.documented, nullptr) << info.label();
    EXPECT_EQ(info.documented->page_sizes, pages) << info.label();
    EXPECT_TRUE(info.capability.page_sizes.has(1)) << info.label();
    EXPECT_EQ(info.capability.preferred_page_size, 16) << info.label();
  }
  EXPECT_EQ(row("FLASHINFER", "Native").documented->max_compute_capability, 99);
  EXPECT_EQ(row("FLASHINFER", "TRTLLM").documented, nullptr);
}

AttentionSpec spec_of(int head_dim, bool mla) {
  AttentionSpec spec;
  spec.num_heads = 16;
  spec.num_kv_heads = mla ? 1 : 8;
  spec.head_dim = head_dim;
  spec.v_head_dim = mla ? 512 : head_dim;
  spec.scale = 0.1f;
  spec.dtype = DType::bf16;
  spec.use_mla = mla;
  return spec;
}

std::vector<std::string> combination(const BackendInfo& info, const AttentionSpec& spec, const char* device) {
  const auto reason = info.supports_combination(spec, *parse_device(device));
  return reason ? std::vector{reason->text} : std::vector<std::string>{};
}

TEST(Rows, CombinationsInVllmsWords) {
  const BackendInfo& fa4 = row("FLASH_ATTN", "FA4");
  EXPECT_THAT(combination(fa4, spec_of(128, false), "sm100"), IsEmpty());
  EXPECT_THAT(combination(fa4, spec_of(192, false), "sm100"), IsEmpty());
  EXPECT_THAT(combination(fa4, spec_of(256, false), "sm100"), Contains(::testing::HasSubstr("up to 128")));
  EXPECT_THAT(combination(fa4, spec_of(256, false), "sm120"), IsEmpty());

  AttentionSpec deepseek = spec_of(576, true);
  EXPECT_THAT(combination(row("FLASHINFER_MLA"), deepseek, "sm100"), IsEmpty()) << "not known";
  deepseek.mla_nope_head_dim = 128;
  deepseek.mla_rope_head_dim = 64;
  deepseek.mla_v_head_dim = 128;
  EXPECT_THAT(combination(row("FLASHINFER_MLA"), deepseek, "sm100"), IsEmpty());
  EXPECT_THAT(combination(row("FLASH_ATTN_MLA"), deepseek, "sm90"), IsEmpty());
  EXPECT_THAT(combination(row("FLASH_ATTN_MLA"), deepseek, "sm80"),
              ElementsAre("FlashAttention MLA not supported on this device"));
  EXPECT_THAT(combination(row("FLASHMLA_SPARSE"), deepseek, "sm120"),
              ElementsAre("FlashMLA Sparse is only supported on Hopper and Blackwell DC devices."));
  deepseek.mla_nope_head_dim = 96;
  EXPECT_THAT(combination(row("FLASHINFER_MLA"), deepseek, "sm100"),
              ElementsAre("FlashInfer MLA kernel requires qk_nope_head_dim in [64, 128, 192], but got 96"));
}

TEST(Rows, CombinationsThatTheSm80KernelsLack) {
  const BackendInfo& fa2 = row("FLASH_ATTN", "FA2");
  AttentionSpec spec = spec_of(512, false);
  EXPECT_THAT(combination(fa2, spec, "sm80"), IsEmpty());
  spec.kv_dtype = KvCacheDType::bfloat16;
  EXPECT_THAT(combination(fa2, spec, "sm80"), IsEmpty());
  spec.kv_dtype = KvCacheDType::float16;
  EXPECT_THAT(combination(fa2, spec, "sm80"),
              ElementsAre("a KV cache of float16 beside queries of bfloat16 not supported"));
  spec.kv_dtype = KvCacheDType::float32;  // refused by the table only
  EXPECT_THAT(combination(fa2, spec, "sm80"), IsEmpty());
  const std::pair<KvCacheDType, const char*> eight_bit[] = {
      {KvCacheDType::fp8_e4m3, "fp8_e4m3"},
      {KvCacheDType::fp8_e5m2, "fp8_e5m2"},
      {KvCacheDType::int8_per_token_head, "int8_per_token_head"}};
  for (const auto& [dtype, name] : eight_bit)
    for (const int size : {72, 264, 512}) {
      spec = spec_of(size, false);
      spec.kv_dtype = dtype;
      EXPECT_THAT(
          combination(fa2, spec, "sm80"),
          ElementsAre("a KV cache of " + std::string(name) + " with a head size of " + std::to_string(size) +
                      " not supported: 8-bit kernels take multiples of 16 up to 256"));
      spec = spec_of(256, false);
      spec.kv_dtype = dtype;
      EXPECT_THAT(combination(fa2, spec, "sm80"), IsEmpty());
    }
}

TEST(MlaPrefillRows, FourRowsWithTheirDimsAndSwitches) {
  std::vector<std::string_view> names;
  for (const auto& entry : project_backends().mla_prefill())
    names.push_back(entry.info->name);
  EXPECT_THAT(names, ElementsAre("TRTLLM_RAGGED", "FLASHINFER", "CUDNN", "FLASH_ATTN"));
  AttentionSpec spec = spec_of(576, true);
  spec.mla_nope_head_dim = 128;
  spec.mla_rope_head_dim = 64;
  spec.mla_v_head_dim = 256;
  for (const MlaPrefillRow& r : mla_prefill_rows()) {
    const bool r1 = r.notes == "DeepSeek R1 dims only";
    EXPECT_EQ(r.info.supports_combination != nullptr, r1) << r.title;
    if (!r1) continue;
    EXPECT_THAT(
        combination(r.info, spec, "sm100"),
        ElementsAre("DeepSeek R1 dims only (qk_nope_head_dim 128, qk_rope_head_dim 64, v_head_dim 128), "
                    "but got 128, 64, 256"));
    AttentionSpec deepseek = spec;
    deepseek.mla_v_head_dim = 128;
    EXPECT_THAT(combination(r.info, deepseek, "sm100"), IsEmpty());
  }
}

TEST(Rows, WhatIsUnstatedIsToldOfAndTheKernelsAbsenceIsTheLast) {
  AttentionSpec spec = spec_of(128, false);
  spec.page_size = 16;
  spec.softcap = 50;
  spec.mask.chunk = 8192;
  spec.mask.window_left = 127;
  const auto against = [&](const BackendInfo& info, const char* device) {
    return texts(validate(info, spec, *parse_device(device), Phase::decode));
  };
  const std::string absent =
      "not in this build: its Blackwell kernels (compute capability 10.x and later) are not written yet";
  const std::string window = "sliding window: not documented",
                    chunk = "chunked-local attention: not documented", cap = "logit soft cap: not documented";
  EXPECT_THAT(against(row("FLASH_ATTN", "FA4"), "sm100"), ElementsAre(window, chunk, cap, absent));
  spec.mask.spans = true;
  EXPECT_THAT(
      against(row("FLASH_ATTN", "FA4"), "sm100"),
      ElementsAre("partial multimodal token full attention not supported", window, chunk, cap, absent));
  EXPECT_THAT(against(row("FLEX_ATTENTION"), "sm90"),
              ElementsAre(window, chunk, cap, "not in this build: its CUDA kernels are not written yet"));
  EXPECT_THAT(against(row("TRITON_ATTN"), "sm90"), IsEmpty());
  for (const char* device : {"npu", "cpu"})
    EXPECT_EQ(validate(row("ASCEND"), spec_of(576, true), *parse_device(device), Phase::decode).front().text,
              device == std::string("npu") ? "not in this build: it has no kernels for Ascend NPUs"
                                           : "compute capability not supported")
        << "one backend for MLA and the others";
}

TEST(Rows, ARowRefusesTheWrongDeviceForItsComputeCapability) {
  EXPECT_THAT(texts(validate(row("TRTLLM_MHA"), spec_of(128, false), *parse_device("sm90"), Phase::decode)),
              Contains("compute capability not supported"));
}

TEST(PeerTables, RowsHaveACellForEachColumnAndNameOurBackends) {
  std::set<std::string_view> ids;
  for (const PeerTable& table : peer_tables()) {
    EXPECT_TRUE(ids.insert(table.id).second) << table.id;
    EXPECT_EQ(&peer_table(table.id), &table);
    for (const PeerRow& r : table.rows) {
      EXPECT_EQ(r.cells.size(), table.columns.size()) << table.id << " " << r.title;
      if (r.backend.empty()) continue;
      const auto* entry = project_backends().find(r.backend);
      ASSERT_NE(entry, nullptr) << r.backend;
      EXPECT_EQ(entry->info->name, r.backend);
      if (!r.version.empty()) row(r.backend, r.version);
    }
  }
}

TEST(PeerTables, OurRowsHaveWhatSglangTicks) {
  const std::pair<std::string_view, Feature> columns[] = {{"Page Size > 1", Feature::native_page},
                                                          {"Spec top-k = 1", Feature::verify},
                                                          {"Spec top-k > 1", Feature::tree_mask},
                                                          {"Sliding Window", Feature::window}};
  const PeerTable& table = peer_table("sglang_mha");
  for (const PeerRow& r : table.rows) {
    const Capability& c = row(r.backend, r.version).capability;
    for (size_t i = 0; i < table.columns.size(); ++i)
      for (const auto& [title, feature] : columns)
        EXPECT_TRUE(table.columns[i] != title || r.cells[i] != "yes" || c.features.has(feature))
            << r.title << " " << title;
  }
}

}  // namespace
}  // namespace fovea
