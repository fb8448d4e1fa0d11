#include "attention/columns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "builtin/project_backends.h"

namespace fovea {
namespace {

using ::testing::UnorderedElementsAre;

const Column& column(std::string_view id) {
  for (const Column& c : columns())
    if (c.id == id) return c;
  ADD_FAILURE() << "no column " << id;
  return columns().front();
}

std::map<std::string, bool> claims(const Capability& c) {
  std::map<std::string, bool> out;
  for (const Cell& cell : cells(c))
    out[cell.id()] = cell.claimed;
  return out;
}

/// Cells that `change` makes claimed or unclaimed.
std::vector<std::string> changed_by(const Capability& before,
                                    const std::function<void(Capability&)>& change) {
  Capability after = before;
  change(after);
  std::vector<std::string> out;
  const auto was = claims(before);
  for (const auto& [id, claimed] : claims(after)) {
    const auto cell = was.find(id);  // with MLA there is one more head size
    if ((cell != was.end() && cell->second) != claimed) out.push_back(id);
  }
  return out;
}

TEST(Columns, IdsAreUniqueAndEveryColumnHasText) {
  std::set<std::string_view> ids, titles;
  for (const Column& c : columns()) {
    EXPECT_TRUE(ids.insert(c.id).second) << c.id;
    EXPECT_TRUE(titles.insert(c.title).second) << c.title;
    EXPECT_FALSE(c.description.empty()) << c.id;
    EXPECT_FALSE(cell_text({}, c).empty()) << c.id;
  }
}

TEST(Columns, EveryFeatureIsOneOrIsSpokenForByAList) {
  for (unsigned i = 0; i < static_cast<unsigned>(Feature::count_); ++i) {
    const auto feature = static_cast<Feature>(i);
    if (feature == Feature::batch_invariance) continue;  // Capability::invariance claims it
    const std::string cell = feature == Feature::kv_x_packed  ? "kv_layouts=x_packed"
                             : feature == Feature::kv_shuffle ? "kv_layouts=shuffle"
                                                              : std::string(to_string(feature)) + "=yes";
    EXPECT_THAT(changed_by({}, [&](Capability& c) { c.features.insert(feature); }),
                UnorderedElementsAre(cell));
  }
}

TEST(Columns, CellsAreUniqueAndInTheColumnsOrder) {
  std::set<std::string> ids;
  std::vector<std::string_view> order;
  for (const Cell& cell : cells({})) {
    EXPECT_TRUE(ids.insert(cell.id()).second) << cell.id();
    if (order.empty() || order.back() != cell.column) order.push_back(cell.column);
  }
  ASSERT_EQ(order.size(), columns().size());
  for (size_t i = 0; i < order.size(); ++i)
    EXPECT_EQ(order[i], columns()[i].id);
}

TEST(Columns, OneValueOfASetIsOneCell) {
  for (DType d : {DType::f32, DType::f16, DType::bf16})
    EXPECT_THAT(changed_by({}, [&](Capability& c) { c.dtypes.insert(d); }),
                UnorderedElementsAre("dtypes=" + std::string(to_string(d))));
  for (unsigned i = 0; i < static_cast<unsigned>(KvCacheDType::count_); ++i) {
    const auto d = static_cast<KvCacheDType>(i);
    EXPECT_THAT(changed_by({}, [&](Capability& c) { c.kv_dtypes.insert(d); }),
                UnorderedElementsAre("kv_dtypes=" + std::string(to_string(d))));
  }
  for (AttentionType t : {AttentionType::decoder, AttentionType::encoder, AttentionType::encoder_only,
                          AttentionType::encoder_decoder})
    EXPECT_THAT(changed_by({}, [&](Capability& c) { c.types.insert(t); }),
                UnorderedElementsAre("types=" + std::string(to_string(t))));
  for (Phase p : {Phase::prefill, Phase::decode})
    EXPECT_THAT(changed_by({}, [&](Capability& c) { c.phases.insert(p); }),
                UnorderedElementsAre("phases=" + std::string(to_string(p))));
  for (unsigned i = 0; i < static_cast<unsigned>(Invariance::count_); ++i) {
    const auto level = static_cast<Invariance>(i);
    EXPECT_THAT(changed_by({}, [&](Capability& c) { c.invariance.insert(level); }),
                UnorderedElementsAre("invariance=" + std::string(to_string(level))));
  }
}

TEST(Columns, OneNumberIsOneCell) {
  Capability none;
  none.gqa_ratios = {};
  for (int v : {1, 7, 16, 544, 1024, 2048})
    EXPECT_THAT(changed_by(none, [&](Capability& c) { c.page_sizes = {v}; }),
                UnorderedElementsAre("page_sizes=" + std::to_string(v)));
  for (int v : {8, 33, 64, 72, 576, 577})
    EXPECT_THAT(changed_by(none, [&](Capability& c) { c.head_dims = {v}; }),
                UnorderedElementsAre("head_dims=" + std::to_string(v)));
  for (int v : {8, 33, 64, 72, 512})
    EXPECT_THAT(changed_by(none, [&](Capability& c) { c.v_head_dims = {v}; }),
                UnorderedElementsAre("v_head_dims=" + std::to_string(v)));
  for (int v : {1, 3, 16, 71, 128})
    EXPECT_THAT(changed_by(none, [&](Capability& c) { c.gqa_ratios = {v}; }),
                UnorderedElementsAre("gqa_ratios=" + std::to_string(v)));
}

TEST(Columns, TheUniverseHoldsClaimedAndUnclaimedValuesOfBuiltBackends) {
  for (const auto& entry : project_backends().entries()) {
    if (!entry.info->absent.empty()) continue;
    std::map<std::string_view, std::pair<int, int>> counts;
    for (const Cell& cell : cells(entry.info->capability)) {
      EXPECT_TRUE(cell.stated) << entry.info->name << " " << cell.id();
      (cell.claimed ? counts[cell.column].first : counts[cell.column].second) += 1;
    }
    // Kernels of MLA are for the sizes of MLA models.
    const bool mla = entry.info->capability.features.has(Feature::mla);
    for (const char* id : {"kv_dtypes", "head_dims", "v_head_dims", "page_sizes"})
      EXPECT_GE(counts[id].first, mla ? 1 : 4) << entry.info->name << " " << id;
    for (const char* id : {"kv_dtypes", "head_dims", "v_head_dims"})
      EXPECT_GT(counts[id].second, 0) << entry.info->name << " " << id;
  }
}

/// Whether `c` claims a cell; nullopt for columns covered by other tests.
std::optional<bool> stated_by(const Capability& c, const Cell& cell) {
  const int number = std::atoi(cell.value.c_str());
  if (cell.column == "page_sizes") return c.page_sizes.has(number);
  if (cell.column == "head_dims") return c.head_dims.has(number);
  if (cell.column == "v_head_dims") return c.v_head_dims.has(number);
  if (cell.column == "gqa_ratios") return c.gqa_ratios.has(number);
  if (cell.column == "kv_dtypes") return c.kv_dtypes.has(*parse_kv_cache_dtype(cell.value));
  if (cell.column == "sink") return c.features.has(Feature::sink);
  if (cell.column == "device") return to_string(c.device) == cell.value;
  return std::nullopt;
}

TEST(Columns, ClaimedAgreesWithTheCapability) {
  for (const auto& entry : project_backends().entries())
    for (const Cell& cell : cells(entry.info->capability)) {
      const std::string where = std::string(entry.info->name) + " " + cell.id();
      const auto expected = stated_by(entry.info->capability, cell);
      EXPECT_TRUE(!expected || *expected == cell.claimed) << where;
      EXPECT_TRUE(cell.stated || !cell.claimed) << where;
    }
}

TEST(Columns, AGraphLevelHoldsTheOnesBelow) {
  Capability c;
  c.graph = GraphSupport::uniform_batch;
  EXPECT_TRUE(claims(c)["graph=UNIFORM_SINGLE_TOKEN_DECODE"]);
  EXPECT_TRUE(claims(c)["graph=UNIFORM_BATCH"]);
  EXPECT_FALSE(claims(c)["graph=ALWAYS"]);
  EXPECT_EQ(cell_text(c, column("graph")), "UNIFORM_BATCH");
}

TEST(Columns, WhatIsNotStatedIsNeitherClaimedNorRefused) {
  Capability c;
  c.unstated = {Feature::window, Feature::kv_x_packed, Feature::batch_invariance};
  for (const Cell& cell : cells(c))
    EXPECT_EQ(cell.stated,
              cell.column != "window" && cell.column != "kv_layouts" && cell.column != "invariance");
  for (const char* id : {"window", "kv_layouts", "invariance"})
    EXPECT_EQ(cell_text(c, column(id)), "-");
  EXPECT_EQ(cell_text(c, column("sink")), "no");
  c.features = {Feature::window};
  EXPECT_EQ(cell_text(c, column("window")), "yes");
}

TEST(Columns, TextIsTheDocuments) {
  Capability c;
  c.dtypes = {DType::f32, DType::f16, DType::bf16};
  c.kv_dtypes = {KvCacheDType::auto_, KvCacheDType::bfloat16, KvCacheDType::fp8_e4m3, KvCacheDType::fp8_e5m2};
  c.page_sizes = IntSet::multiples_of(16);
  c.head_dims = IntSet::any();
  c.types = {AttentionType::decoder, AttentionType::encoder_only};
  c.features = {Feature::sink};
  EXPECT_EQ(cell_text(c, column("dtypes")), "fp16, bf16, fp32");
  EXPECT_EQ(cell_text(c, column("kv_dtypes")), "auto, bfloat16, fp8, fp8_e4m3, fp8_e5m2");
  EXPECT_EQ(cell_text(c, column("page_sizes")), "%16");
  EXPECT_EQ(cell_text(c, column("head_dims")), "Any");
  EXPECT_EQ(cell_text(c, column("v_head_dims")), "none");
  EXPECT_EQ(cell_text(c, column("types")), "Decoder, Encoder Only");
  EXPECT_EQ(cell_text(c, column("sink")), "yes");
  EXPECT_EQ(cell_text(c, column("mla")), "no");
  EXPECT_EQ(cell_text(c, column("kv_layouts")), "nhd, hnd");
  c.types = {AttentionType::decoder, AttentionType::encoder, AttentionType::encoder_only,
             AttentionType::encoder_decoder};
  EXPECT_EQ(cell_text(c, column("types")), "All");
}

TEST(Columns, ComputeCapabilities) {
  const auto text = [](DeviceKind device, int first, int last) {
    Capability c;
    c.device = device;
    c.min_compute_capability = first;
    c.max_compute_capability = last;
    return cell_text(c, column("compute_capability"));
  };
  EXPECT_EQ(text(DeviceKind::cpu, 0, 0), "N/A");
  EXPECT_EQ(text(DeviceKind::cuda, 0, 0), "Any");
  EXPECT_EQ(text(DeviceKind::cuda, 80, 0), "≥8.0");
  EXPECT_EQ(text(DeviceKind::cuda, 90, 99), "9.x");
  EXPECT_EQ(text(DeviceKind::cuda, 70, 99), "7.x-9.x");
  EXPECT_EQ(text(DeviceKind::cuda, 90, 90), "9.0");
  EXPECT_EQ(text(DeviceKind::cuda, 80, 90), "8.0-9.0");
  Capability hopper;
  hopper.device = DeviceKind::cuda;
  hopper.min_compute_capability = 90;
  hopper.max_compute_capability = 99;
  EXPECT_THAT(changed_by({}, [&](Capability& c) { c = hopper; }),
              UnorderedElementsAre("compute_capability=9.0", "device=cuda", "device=cpu"));
}

}  // namespace
}  // namespace fovea
