#include "attention/select_test_support.h"

namespace fovea {
namespace {

class Registry : public CpuSelectTest {};

TEST_F(Registry, FindsNamesInAnyCaseAndAliases) {
  for (const char* name : {"FAST_ATTN", "fast_attn", "Fast_Attn", "fa", "FAST"})
    EXPECT_EQ(registry.get().find(name)->info, fast) << name;
  for (const char* name : {"", "FAST-ATTN", "FASTATTN", "auto", "f"})
    EXPECT_EQ(registry.get().find(name), nullptr) << name;
}

TEST_F(Registry, NearestKnowsTyposAndOtherSpellings) {
  EXPECT_EQ(registry.get().nearest("FAST_ATN"), "FAST_ATTN");
  EXPECT_EQ(registry.get().nearest("torch-plain"), "torch_plain");
  EXPECT_EQ(registry.get().nearest("FastAttn"), "FAST_ATTN");
  EXPECT_EQ(registry.get().nearest("something else"), "");
}

TEST_F(Registry, VersionsOfOneNameAreRowsOfTheirOwn) {
  TestRegistry r;
  BackendInfo info = backend_named("FLASH_ATTN", plain_capability(), {"fa"});
  info.version = "FA2";
  const BackendInfo& first = r.add(info);
  info.version = "FA3";
  const BackendInfo& second = r.add(info);
  EXPECT_EQ(r.get().find("fa")->info, &first);
  EXPECT_EQ(r.get().find(second)->info, &second);
  EXPECT_EQ(second.label(), "FLASH_ATTN (FA3)");
  EXPECT_DEATH(r.add(info), "version");
  EXPECT_DEATH(r.add(backend_named("fa", plain_capability())), "choose another name");
  EXPECT_DEATH(r.add(backend_named("OTHER", plain_capability(), {"FA"})), "choose another name");
}

}  // namespace
}  // namespace fovea
