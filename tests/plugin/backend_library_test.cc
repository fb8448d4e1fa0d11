// Shared libraries as the loader handles them, and the example backend against the fp64 reference.
#include "fovea/backend_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "conformance/prove.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

using testing::HasSubstr;

std::string file(const std::string& name) {
  return FOVEA_BACKENDS "/" + name + ".so";
}

std::string refusal(const std::string& path) {
  BackendRegistry registry = builtin_backends();
  const size_t rows = registry.entries().size();
  const Status status = load_backend_library(path, registry);
  if (status) return "";
  EXPECT_EQ(registry.entries().size(), rows);
  EXPECT_THAT(status.error().message, testing::StartsWith("backend library " + path + ": "));
  EXPECT_THAT(status.error().message, testing::Not(HasSubstr("\n")));
  return status.error().message;
}

AttentionSpec demo_spec() {
  AttentionSpec spec;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = spec.v_head_dim = 64;
  spec.scale = 0.125f;
  return spec;
}

TEST(BackendLibrary, FilesThatAreNoLibrary) {
  EXPECT_THAT(refusal("/no/such/file.so"), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal("no_such_file.so"), HasSubstr("there is no such file"));
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal("/tmp"), HasSubstr("it is not a file"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("it is not a file"));
  EXPECT_THAT(refusal(file("no_library")), HasSubstr("it can't be loaded: "));
}

TEST(BackendLibrary, LibrariesThatAreNoBackend) {
  EXPECT_THAT(refusal(file("backend_no_entry")), HasSubstr("it has no function fovea_backend_v1"));
  EXPECT_THAT(refusal(file("backend_version_2")),
              HasSubstr("it exports fovea_backend_v2; this Fovea loads fovea_backend_v1"));
  EXPECT_THAT(refusal(file("backend_truncated_table")), HasSubstr("fovea_backend_table->size is 64"));
  EXPECT_THAT(refusal(file("backend_truncated_struct")), HasSubstr("fovea_backend->size is 32"));
  EXPECT_THAT(refusal(file("backend_null_function")), HasSubstr("fovea_backend->forward is null"));
  EXPECT_THAT(refusal(file("backend_null_table")), HasSubstr("fovea_backend_table is null"));
  EXPECT_THAT(refusal(file("backend_null_backend")), HasSubstr("fovea_backend is null"));
  EXPECT_THAT(refusal(file("backend_bad_enum")), HasSubstr("features has bit 50"));
  EXPECT_THAT(refusal(file("backend_empty_set")), HasSubstr("dtypes has no members"));
  EXPECT_THAT(refusal(file("backend_refuses")),
              HasSubstr("fovea_backend_v1: this CPU has no such unit; use another backend"));
}

TEST(BackendLibrary, NamesThatAreTaken) {
  EXPECT_THAT(refusal(file("backend_other_name")), HasSubstr("'TORCH_NATIVE' is a name of TORCH_NATIVE"));
  EXPECT_THAT(refusal(file("backend_alias_of_other")), HasSubstr("'flashinfer' is a name of FLASHINFER"));
  BackendRegistry registry = builtin_backends();
  ASSERT_TRUE(load_backend_library(file("backend_sound"), registry).ok());
  const Status twice = load_backend_library(file("backend_sound"), registry);
  ASSERT_FALSE(twice.ok());
  EXPECT_THAT(twice.error().message, HasSubstr("'DEFECTIVE' is a name of DEFECTIVE already, of "));
  // Another registry may add it too: the process loads the library once.
  BackendRegistry other = builtin_backends();
  ASSERT_TRUE(load_backend_library(file("backend_sound"), other).ok());
  EXPECT_EQ(other.find("defective")->info, registry.find("DEFECTIVE")->info);
}

TEST(BackendLibrary, ABackendOfAnotherDeviceIsARow) {
  BackendRegistry registry = builtin_backends();
  ASSERT_TRUE(load_backend_library(file("backend_cuda"), registry).ok());
  const auto* entry = registry.find("DEFECTIVE");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->info->absent.empty(), static_cast<bool>(entry->create));
  const auto reasons = validate(*entry->info, demo_spec(), DeviceInfo{}, Phase::decode);
  ASSERT_FALSE(reasons.empty());
  EXPECT_EQ(reasons[0].text, "compute capability not supported");
}

/// By name; and by automatic choice after the built-in backends.
TEST(BackendLibrary, IsSelected) {
  const std::string files[] = {file("example_attn")};
  const auto registry = with_backend_libraries(builtin_backends(), files);
  ASSERT_TRUE(registry.ok()) << registry.error().message;
  for (const char* name : {"EXAMPLE_ATTN", "example_attn", "example"}) {
    const auto named = select({.backend = name}, demo_spec(), DeviceInfo{}, *registry);
    ASSERT_TRUE(named.ok()) << named.error().message;
    EXPECT_EQ(named->kinds[0].decode.backend->name, "EXAMPLE_ATTN");
  }
  const auto automatic = select({}, demo_spec(), DeviceInfo{}, *registry);
  ASSERT_TRUE(automatic.ok());
  EXPECT_THAT(automatic->kinds[0].decode.why,
              HasSubstr("first of CPU_ATTN, TORCH_NATIVE, FLEX_ATTENTION (CPU), EXAMPLE_ATTN that serves"));
  AttentionSpec sinks = demo_spec();
  sinks.has_sink = true;
  const auto refused = select({.backend = "EXAMPLE_ATTN"}, sinks, DeviceInfo{}, *registry);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("attention sinks not supported"));
  const auto unknown = select({.backend = "EXAMPLE_ATN"}, demo_spec(), DeviceInfo{}, *registry);
  EXPECT_THAT(unknown.error().message, HasSubstr("Did you mean 'EXAMPLE_ATTN'?"));
}

TEST(BackendLibrary, AnInstanceThatFailsSaysWhy) {
  BackendRegistry registry = builtin_backends();
  ASSERT_TRUE(load_backend_library(file("backend_sound"), registry).ok());
  const auto backend = registry.find("DEFECTIVE")->create();
  const auto bytes = backend->workspace_bytes(demo_spec(), {1, 1, 1, 1});
  ASSERT_FALSE(bytes.ok());
  EXPECT_EQ(bytes.error().message, "DEFECTIVE: this backend plans nothing");
}

/// Registries of different threads may load at once.
TEST(BackendLibrary, LoadsOnSeveralThreads) {
  std::vector<std::thread> threads;
  std::vector<const BackendInfo*> found(8);
  for (size_t i = 0; i < found.size(); ++i)
    threads.emplace_back([&found, i] {
      BackendRegistry registry = builtin_backends();
      if (load_backend_library(file("example_attn"), registry)) found[i] = registry.find("example")->info;
    });
  for (std::thread& thread : threads)
    thread.join();
  for (const BackendInfo* info : found) {
    EXPECT_NE(info, nullptr);
    EXPECT_EQ(info, found[0]);
  }
}

/// A few cases of the example's claims; `fovea conformance` runs all of them.
TEST(BackendLibrary, TheExampleIsProven) {
  BackendRegistry registry;
  ASSERT_TRUE(load_backend_library(file("example_attn"), registry).ok());
  const auto& entry = registry.entries().front();
  conformance::ProveOptions options;
  options.quick = true;
  const auto report = conformance::prove(*entry.info, entry.create, options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const auto& failure : report->failures)
    ADD_FAILURE() << failure.what;
  EXPECT_EQ(report->count(conformance::CellStatus::failed), 0);
  EXPECT_GT(report->count(conformance::CellStatus::proven), 50);
}

}  // namespace
}  // namespace fovea
