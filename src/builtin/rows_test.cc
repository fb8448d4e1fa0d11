// The registry's rows, made from the rows of the documents (compat/rows): names, the project's own kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "builtin/cuda_rows.h"
#include "builtin/project_backends.h"
#include "compat/rows/peer_tables.h"
#include "compat/rows/rows.h"
#include "fovea/attention.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const BackendInfo& row(std::string_view name, std::string_view version = "") {
  for (const auto& entry : project_backends().entries())
    if (entry.info->name == name && entry.info->version == version) return *entry.info;
  ADD_FAILURE() << "no row " << name << " " << version;
  return *project_backends().entries().front().info;
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

TEST(Rows, EachSetOfCudaKernelsHasItsDocumentsRow) {
  std::vector<std::string> labels;
  for (const BackendInfo* document : document_rows())
    if (cuda_row(*document)) labels.push_back(document->label());
  EXPECT_THAT(labels,
              ElementsAre("FLASHINFER (Native)", "FLASH_ATTN (FA2)", "FLASH_ATTN (FA3)", "FLASH_ATTN_DIFFKV",
                          "TREE_ATTN", "TRITON_ATTN", "FLASHINFER_MLA", "FLASHMLA", "FLASH_ATTN_MLA",
                          "TRITON_MLA", "FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"));
}

TEST(Rows, OnlyCudaKernelsReplaceTheDocumentsRow) {
  for (const BackendInfo* document : document_rows()) {
    const BackendInfo& registered = row(document->name, document->version);
    if (cuda_row(*document)) {
      EXPECT_TRUE(registered.absent.empty()) << document->label();
      EXPECT_EQ(registered.documented, &document->capability) << document->label();
      EXPECT_TRUE(registered.capability.unstated.empty()) << document->label();
      EXPECT_EQ(registered.capability.device, DeviceKind::cuda) << document->label();
      EXPECT_FALSE(registered.families.empty()) << document->label();
      EXPECT_EQ(registered.description, document->description);
    } else {
      EXPECT_EQ(&registered, document) << document->label();
    }
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

TEST(Rows, Version3IsForComputeCapability90AndAllThatVersion2DoesButAlibiAndPackedPages) {
  const Capability &second = row("FLASH_ATTN", "FA2").capability,
                   &third = row("FLASH_ATTN", "FA3").capability;
  EXPECT_EQ(third.min_compute_capability, 90);
  EXPECT_EQ(third.max_compute_capability, 90);
  EXPECT_TRUE(second.features.has(Feature::alibi));
  FeatureSet wanted = second.features.without({Feature::alibi});
  wanted.insert(Feature::kv_x_packed);
  wanted.insert(Feature::kv_shuffle);
  EXPECT_EQ(third.features, wanted);
  EXPECT_EQ(third.kv_dtypes, second.kv_dtypes);
}

TEST(Rows, BuiltBackendsKeepTheirDocumentsRow) {
  ASSERT_NE(row("CPU_ATTN").documented, nullptr);
  EXPECT_FALSE(row("CPU_ATTN").documented->features.has(Feature::sink));
  EXPECT_TRUE(row("CPU_ATTN").capability.features.has(Feature::sink));
  ASSERT_NE(row("TORCH_NATIVE").documented, nullptr);
  EXPECT_FALSE(row("TORCH_NATIVE").documented->features.has(Feature::native_page));
  for (const char* name : {"CPU_ATTN", "TORCH_NATIVE"})
    EXPECT_TRUE(row(name).capability.unstated.empty()) << name;
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

AttentionSpec spec_of(int head_dim) {
  AttentionSpec spec;
  spec.num_heads = 16;
  spec.num_kv_heads = 8;
  spec.head_dim = head_dim;
  spec.v_head_dim = head_dim;
  spec.scale = 0.1f;
  spec.dtype = DType::bf16;
  return spec;
}

std::vector<std::string> combination(const BackendInfo& info, const AttentionSpec& spec, const char* device) {
  const auto reason = info.supports_combination(spec, *parse_device(device));
  return reason ? std::vector{reason->text} : std::vector<std::string>{};
}

TEST(Rows, CombinationsThatTheSm80KernelsLack) {
  const BackendInfo& fa2 = row("FLASH_ATTN", "FA2");
  AttentionSpec spec = spec_of(512);
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
      spec = spec_of(size);
      spec.kv_dtype = dtype;
      EXPECT_THAT(
          combination(fa2, spec, "sm80"),
          ElementsAre("a KV cache of " + std::string(name) + " with a head size of " + std::to_string(size) +
                      " not supported: 8-bit kernels take multiples of 16 up to 256"));
      spec = spec_of(256);
      spec.kv_dtype = dtype;
      EXPECT_THAT(combination(fa2, spec, "sm80"), IsEmpty());
    }
}

TEST(Rows, TheProjectsKernelsLeaveNothingUnstated) {
  AttentionSpec spec = spec_of(128);
  spec.page_size = 16;
  spec.softcap = 50;
  spec.mask.chunk = 8192;
  spec.mask.window_left = 127;
  spec.mask.spans = true;
  EXPECT_THAT(validate(row("TRITON_ATTN"), spec, *parse_device("sm90"), Phase::decode), IsEmpty());
}

TEST(PeerTables, NameOurBackends) {
  for (const PeerTable& table : peer_tables())
    for (const PeerRow& r : table.rows) {
      if (r.backend.empty()) continue;
      const auto* entry = project_backends().find(r.backend);
      ASSERT_NE(entry, nullptr) << r.backend;
      EXPECT_EQ(entry->info->name, r.backend);
      if (!r.version.empty()) row(r.backend, r.version);
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
