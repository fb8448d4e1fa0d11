#include "plugin/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <random>
#include <set>

#include "attention/columns.h"
#include "fovea/attention.h"
#include "plugin/enums.h"
#include "plugin/fake_library.h"

namespace fovea::plugin {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The error of read_table() for the fake's table with this change; "" = accepted.
std::string refusal(const std::function<void(fovea_backend_table&)>& change) {
  fovea_backend_table table = fake_table();
  change(table);
  const auto row = read_table(&table);
  return row ? "" : row.error().message;
}

TEST(Table, BecomesARow) {
  fovea_backend_table table = fake_table();
  std::string name = "FAKE_ATTN";
  table.name = name.c_str();
  const char* const aliases[] = {"fake", "fake2"};
  table.aliases = aliases;
  table.num_aliases = 2;
  const auto row = read_table(&table);
  ASSERT_TRUE(row.ok()) << row.error().message;
  name = "gone";
  const BackendInfo& info = (*row)->info;
  EXPECT_EQ(info.name, "FAKE_ATTN");
  EXPECT_EQ(info.aliases, (std::vector<std::string_view>{"fake", "fake2"}));
  const Capability& c = info.capability;
  EXPECT_EQ(c.dtypes, (EnumSet<DType>{DType::f32}));
  EXPECT_EQ(c.kv_dtypes,
            (EnumSet<KvCacheDType>{KvCacheDType::auto_, KvCacheDType::float32, KvCacheDType::float16}));
  EXPECT_EQ(c.features, (FeatureSet{Feature::window, Feature::lse}));
  EXPECT_EQ(c.head_dims.to_string(), "1, 3, 8-256 step 8");
  EXPECT_EQ(c.gqa_ratios, IntSet::any());
  EXPECT_EQ(c.preferred_page_size, 16);
}

/// "auto" is the dtype of Q: a table that stores only fp16 does not accept it for fp32.
TEST(Table, AutoIsClaimedWhereEachDtypeIsStored) {
  fovea_backend_table table = fake_table();
  table.kv_dtypes = FOVEA_BACKEND_BIT(FOVEA_BACKEND_KV_F16);
  const auto row = read_table(&table);
  ASSERT_TRUE(row.ok());
  EXPECT_FALSE((*row)->info.capability.kv_dtypes.has(KvCacheDType::auto_));
}

TEST(Table, EveryEnumeratorHasANumber) {
  for (unsigned i = 0; i < static_cast<unsigned>(Feature::count_); ++i)
    if (const auto f = static_cast<Feature>(i); f != Feature::batch_invariance) {
      EXPECT_GE(to_abi(abi_features(), f), 0) << to_string(f);
    }
  std::set<int> levels;  // numbers of new ones follow, whatever their place among the others
  for (unsigned i = 0; i < static_cast<unsigned>(Invariance::count_); ++i)
    levels.insert(to_abi(abi_invariance(), static_cast<Invariance>(i)));
  EXPECT_THAT(levels, ElementsAre(0, 1, 2, 3, 4, 5));
  for (unsigned i = 0; i < static_cast<unsigned>(KvCacheDType::count_); ++i)
    // Records of fp8_ds_mla belong to sparse attention, whose lists of keys a plugin does not get.
    if (const auto d = static_cast<KvCacheDType>(i); size_of(d) != 0 && d != KvCacheDType::fp8_ds_mla) {
      EXPECT_GE(to_abi(abi_kv_dtypes(), d), 0) << to_string(d);
    }
}

TEST(Table, RefusesNames) {
  for (const char* bad : {"", "lower", "WITH SPACE", "A-B", "AUTO", "A\nB", "\xc3\x84"})
    EXPECT_THAT(refusal([&](auto& t) { t.name = bad; }), HasSubstr("name is '")) << bad;
  EXPECT_THAT(refusal([](auto& t) { t.name = nullptr; }), HasSubstr("name is null"));
  const std::string longest(64, 'A'), longer(65, 'A');
  EXPECT_EQ(refusal([&](auto& t) { t.name = longest.c_str(); }), "");
  EXPECT_THAT(refusal([&](auto& t) { t.name = longer.c_str(); }), HasSubstr("1 to 64 characters"));
  EXPECT_THAT(refusal([](auto& t) { t.description = nullptr; }), HasSubstr("description is null"));
  EXPECT_THAT(refusal([](auto& t) { t.description = "two\nlines"; }), HasSubstr("control characters"));
  const std::string text(201, 'x');
  EXPECT_THAT(refusal([&](auto& t) { t.description = text.c_str(); }), HasSubstr("more than 200 bytes"));
  const auto aliases = [](std::vector<const char*> names) {
    return refusal([&](auto& t) {
      t.aliases = names.data();
      t.num_aliases = static_cast<uint32_t>(names.size());
    });
  };
  EXPECT_EQ(aliases({"fake", "other"}), "");
  EXPECT_THAT(aliases({"Fake"}), HasSubstr("aliases[0] is 'Fake'"));
  EXPECT_THAT(aliases({"fake", nullptr}), HasSubstr("aliases[1] is null"));
  EXPECT_THAT(aliases({"fake", "fake"}), HasSubstr("twice"));
  EXPECT_EQ(aliases({"fake_attn"}), "") << "as torch_native is an alias of TORCH_NATIVE";
  EXPECT_THAT(aliases({"auto"}), HasSubstr("automatic choice"));
  EXPECT_THAT(aliases(std::vector<const char*>(17, "a")), HasSubstr("at most 16"));
  EXPECT_THAT(refusal([](auto& t) { t.num_aliases = 1; }), HasSubstr("aliases is null"));
  EXPECT_THAT(refusal([](auto& t) { t.num_families = 1; }), HasSubstr("families is null"));
}

TEST(Table, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(refusal([](auto& t) { t.dtypes |= FOVEA_BACKEND_BIT(3); }),
              HasSubstr("dtypes has bit 3; this Fovea knows the bits 0 to 2"));
  EXPECT_THAT(refusal([](auto& t) { t.kv_dtypes |= FOVEA_BACKEND_BIT(63); }),
              HasSubstr("kv_dtypes has bit 63"));
  EXPECT_THAT(refusal([](auto& t) { t.features |= FOVEA_BACKEND_BIT(40); }),
              HasSubstr("features has bit 40"));
  EXPECT_THAT(refusal([](auto& t) { t.invariance |= FOVEA_BACKEND_BIT(6); }), HasSubstr("invariance has"));
  EXPECT_THAT(refusal([](auto& t) { t.types |= FOVEA_BACKEND_BIT(4); }), HasSubstr("types has bit 4"));
  EXPECT_THAT(refusal([](auto& t) { t.phases |= FOVEA_BACKEND_BIT(2); }), HasSubstr("phases has bit 2"));
  EXPECT_THAT(refusal([](auto& t) { t.device = 2; }), HasSubstr("device is 2; this Fovea knows 0 to 1"));
  EXPECT_THAT(refusal([](auto& t) { t.device = -1; }), HasSubstr("device is -1"));
  EXPECT_THAT(refusal([](auto& t) { t.graph = 4; }), HasSubstr("graph is 4"));
}

TEST(Table, RefusesEmptySets) {
  EXPECT_THAT(refusal([](auto& t) { t.dtypes = 0; }), HasSubstr("dtypes has no members"));
  EXPECT_THAT(refusal([](auto& t) { t.kv_dtypes = 0; }), HasSubstr("kv_dtypes has no members"));
  EXPECT_THAT(refusal([](auto& t) { t.types = 0; }), HasSubstr("types has no members"));
  EXPECT_THAT(refusal([](auto& t) { t.phases = 0; }), HasSubstr("phases has no members"));
  EXPECT_EQ(refusal([](auto& t) { t.features = t.invariance = 0; }), "") << "these may be empty";
  fovea_backend_int_set set{};
  set.size = sizeof set;
  const auto with_set = [&] { return refusal([&](auto& t) { t.head_dims = &set; }); };
  set.last = -1;
  EXPECT_THAT(with_set(), HasSubstr("head_dims has no members"));
  set.first = 0, set.last = 8, set.step = 1;
  EXPECT_THAT(with_set(), HasSubstr("first and step must be 1 or more"));
  set.first = 1, set.step = 0;
  EXPECT_THAT(with_set(), HasSubstr("first and step must be 1 or more"));
  set.step = 1, set.num_listed = 13;
  EXPECT_THAT(with_set(), HasSubstr("at most 12"));
  set.num_listed = 1;
  EXPECT_THAT(with_set(), HasSubstr("head_dims->listed[0] is 0"));
  set.size = 8;
  EXPECT_THAT(with_set(), HasSubstr("head_dims->size is 8"));
  EXPECT_THAT(refusal([](auto& t) { t.page_sizes = nullptr; }), HasSubstr("page_sizes is null"));
}

TEST(Table, RefusesNumbersThatContradict) {
  EXPECT_THAT(refusal([](auto& t) { t.preferred_page_size = 5; }),
              HasSubstr("preferred_page_size is 5, which page_sizes does not have"));
  EXPECT_THAT(refusal([](auto& t) { t.graph = FOVEA_BACKEND_GRAPH_ALWAYS; }), HasSubstr("graph is ALWAYS"));
  EXPECT_THAT(refusal([](auto& t) { t.min_compute_capability = 90; }), HasSubstr("no compute capability"));
  const auto on_cuda = [](int least, int most) {
    return refusal([&](auto& t) {
      t.device = FOVEA_BACKEND_CUDA;
      t.graph = FOVEA_BACKEND_GRAPH_ALWAYS;
      t.min_compute_capability = least;
      t.max_compute_capability = most;
    });
  };
  EXPECT_EQ(on_cuda(80, 0), "");
  EXPECT_EQ(on_cuda(0, 99), "");
  EXPECT_THAT(on_cuda(90, 80), HasSubstr("are not a range"));
  EXPECT_THAT(on_cuda(-1, 0), HasSubstr("are not a range"));
  EXPECT_THAT(on_cuda(9000, 0), HasSubstr("are not a range"));
  EXPECT_THAT(refusal([](auto& t) { t.phases = FOVEA_BACKEND_BIT(FOVEA_BACKEND_DECODE); }),
              HasSubstr("prefill_partner must name"));
  EXPECT_THAT(refusal([](auto& t) { t.prefill_partner = "CPU_ATTN"; }),
              HasSubstr("whose phases do not include"));
}

TEST(Table, SizesAreThoseOfTheVersion) {
  EXPECT_EQ(read_table(nullptr).error().message, "fovea_backend_table is null");
  EXPECT_THAT(refusal([](auto& t) { t.size = 0; }), HasSubstr("fovea_backend_table->size is 0"));
  EXPECT_THAT(refusal([](auto& t) { t.size = 64; }), HasSubstr("at least 160"));
  EXPECT_THAT(refusal([](auto& t) { t.size = 5000; }), HasSubstr("->size is 5000"));
  // A field of a later version is accepted if it is zero.
  struct {
    fovea_backend_table table = fake_table();
    uint64_t later = 0;
  } longer;
  longer.table.size = sizeof longer;
  EXPECT_TRUE(read_table(&longer.table).ok());
  longer.later = 1;
  EXPECT_THAT(read_table(&longer.table).error().message, HasSubstr("does not know"));
}

TEST(Table, NamesOfOthersAreRefused) {
  const auto clash = [](const char* name, std::vector<const char*> aliases) {
    fovea_backend_table table = fake_table();
    table.name = name;
    table.aliases = aliases.data();
    table.num_aliases = static_cast<uint32_t>(aliases.size());
    const auto row = read_table(&table);
    EXPECT_TRUE(row.ok());
    const Status status = check_names((*row)->info, builtin_backends());
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(clash("FAKE_ATTN", {"fake"}), "");
  EXPECT_THAT(clash("CPU_ATTN", {}), HasSubstr("'CPU_ATTN' is a name of CPU_ATTN already"));
  EXPECT_THAT(clash("TRITON", {}), HasSubstr("'TRITON' is a name of TRITON_ATTN already")) << "its alias";
  EXPECT_THAT(clash("FAKE_ATTN", {"flash_attn"}), HasSubstr("'flash_attn' is a name of FLASH_ATTN"));
}

/// An accepted table must give a row that all readers can handle, whatever the bytes were.
void use(const BackendInfo& info) {
  const Capability& c = info.capability;
  for (const IntSet* set : {&c.page_sizes, &c.head_dims, &c.v_head_dims, &c.gqa_ratios}) {
    ASSERT_FALSE(set->empty());
    EXPECT_FALSE(set->describe().empty());
    EXPECT_TRUE(set->has(set->smallest()));
    EXPECT_TRUE(set->has(set->nearest(77)));
    set->next(INT_MAX);
  }
  EXPECT_TRUE(c.page_sizes.has(c.preferred_page_size));
  EXPECT_FALSE(cells(c).empty());
  for (const Column& column : columns())
    cell_text(c, column);
  AttentionSpec spec;
  spec.num_heads = spec.num_kv_heads = 1;
  spec.head_dim = spec.v_head_dim = 64;
  spec.scale = 1;
  validate(info, spec, DeviceInfo{}, Phase::decode);
}

/// Changes bytes of a valid table and its sets at random; pointers stay.
TEST(Table, RandomBytesAreRefusedOrARow) {
  std::mt19937_64 random(7);
  int taken = 0;
  constexpr int kRounds = 20000;
  for (int round = 0; round < kRounds; ++round) {
    fovea_backend_int_set sets[4] = {kFakeSizes, kFakeSizes, kFakeSizes, kFakeSizes};
    fovea_backend_table table = fake_table();
    constexpr size_t kFirstNumber = offsetof(fovea_backend_table, dtypes);
    const size_t changes = 1 + random() % 3;
    for (size_t i = 0; i < changes; ++i) {
      const auto byte = static_cast<unsigned char>(random());
      // Small numbers are close to valid ones.
      const auto small = static_cast<int32_t>(random() % 40) - 4;
      if (random() % 2 == 0) {
        const size_t at = kFirstNumber + random() % (sizeof table - kFirstNumber);
        const bool pointer = at >= offsetof(fovea_backend_table, page_sizes) &&
                             at < offsetof(fovea_backend_table, preferred_page_size);
        if (!pointer) reinterpret_cast<unsigned char*>(&table)[at] = byte;
      } else {
        auto* words = reinterpret_cast<unsigned char*>(&sets[random() % 4]);
        const size_t at = random() % (sizeof(fovea_backend_int_set) / 4);
        if (random() % 2 == 0)
          std::memcpy(words + at * 4, &small, 4);
        else
          words[at * 4 + random() % 4] = byte;
      }
    }
    table.page_sizes = &sets[0];
    table.head_dims = &sets[1];
    table.v_head_dims = &sets[2];
    table.gqa_ratios = &sets[3];
    // A size larger than the struct would make the reader access bytes after it.
    for (auto& set : sets)
      if (set.size > sizeof set) set.size = sizeof set;
    const auto row = read_table(&table);
    if (!row) {
      EXPECT_FALSE(row.error().message.empty());
      continue;
    }
    ++taken;
    use((*row)->info);
  }
  EXPECT_GT(taken, kRounds / 50);
  EXPECT_LT(taken, kRounds);
}

}  // namespace
}  // namespace fovea::plugin
