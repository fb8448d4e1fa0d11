#include "compat/rows/rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "compat/rows/peer_tables.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const BackendInfo& row(std::string_view name, std::string_view version = "") {
  for (const BackendInfo* info : document_rows())
    if (info->name == name && info->version == version) return *info;
  ADD_FAILURE() << "no row " << name << " " << version;
  return *document_rows().front();
}

std::vector<std::string> texts(const std::vector<Reason>& reasons) {
  std::vector<std::string> out;
  for (const Reason& reason : reasons)
    out.push_back(reason.text);
  return out;
}

TEST(Rows, AreWholeAndWithoutKernels) {
  for (const BackendInfo* info : document_rows()) {
    const Capability& c = info->capability;
    EXPECT_FALSE(info->absent.empty()) << info->label() << ": kernels are builtin's matter";
    EXPECT_EQ(info->documented, nullptr) << info->label();
    EXPECT_TRUE(info->families.empty()) << info->label();
    EXPECT_FALSE(info->description.empty()) << info->label();
    EXPECT_FALSE(c.dtypes.empty() || c.kv_dtypes.empty() || c.types.empty() || c.phases.empty())
        << info->label();
    EXPECT_TRUE(c.page_sizes.has(c.preferred_page_size)) << info->label();
    EXPECT_EQ(c.head_dims.empty(), c.v_head_dims.empty()) << info->label();
    EXPECT_EQ(c.phases.has(Phase::prefill), info->prefill_partner.empty()) << info->label();
    EXPECT_TRUE(c.device == DeviceKind::cuda || c.min_compute_capability == 0) << info->label();
  }
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

TEST(MlaPrefillRows, FourRowsWithTheirDimsAndSwitches) {
  std::vector<std::string_view> names;
  for (const MlaPrefillRow& r : mla_prefill_rows())
    names.push_back(r.info.name);
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

TEST(PeerTables, RowsHaveACellForEachColumn) {
  std::set<std::string_view> ids;
  for (const PeerTable& table : peer_tables()) {
    EXPECT_TRUE(ids.insert(table.id).second) << table.id;
    EXPECT_EQ(&peer_table(table.id), &table);
    for (const PeerRow& r : table.rows)
      EXPECT_EQ(r.cells.size(), table.columns.size()) << table.id << " " << r.title;
  }
}

}  // namespace
}  // namespace fovea
