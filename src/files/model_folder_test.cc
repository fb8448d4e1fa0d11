#include "files/model_folder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "../tests/support/temp_dir.h"
#include "fovea/result.h"

namespace fovea {
namespace {

using Values = std::map<std::string, std::string>;

/// Sets the variables that decide where the cache is, and restores them.
class Environment {
 public:
  explicit Environment(const Values& values) {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      if (const char* old = std::getenv(name)) saved_[name] = old;
      const auto it = values.find(name);
      if (it != values.end()) {
        setenv(name, it->second.c_str(), 1);
      } else {
        unsetenv(name);
      }
    }
  }
  ~Environment() {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      const auto it = saved_.find(name);
      if (it != saved_.end()) {
        setenv(name, it->second.c_str(), 1);
      } else {
        unsetenv(name);
      }
    }
  }

 private:
  std::map<std::string, std::string> saved_;
};

std::string error_of(const std::string& name) {
  const auto result = resolve_model_dir(name);
  EXPECT_FALSE(result.ok());
  if (result.ok()) return "";
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
  return result.error().message;
}

testing::AssertionResult mentions(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" doesn't mention \"" << part << "\"";
}

TEST(Hub, TakesADirectoryAsItIs) {
  test::TempDir dir;
  const auto result = resolve_model_dir(dir.path());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(*result, dir.path());
}

TEST(Hub, FindsTheSnapshotOfMain) {
  for (const auto& [variable, below] :
       std::map<std::string, std::string>{{"HF_HUB_CACHE", ""},
                                          {"HF_HOME", "hub/"},
                                          {"XDG_CACHE_HOME", "huggingface/hub/"},
                                          {"HOME", ".cache/huggingface/hub/"}}) {
    test::TempDir dir;
    const std::string repo = below + "models--Qwen--Qwen3-0.6B/";
    dir.write(repo + "refs/main", "abc123\n");
    dir.write(repo + "snapshots/abc123/config.json", "{}");
    Environment environment(Values{{variable, dir.path()}});
    const auto result = resolve_model_dir("Qwen/Qwen3-0.6B");
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(*result, dir.path() + "/" + repo + "snapshots/abc123");
  }
}

TEST(Hub, TheMoreSpecificVariableWins) {
  test::TempDir dir;
  dir.write("hub/models--a--b/refs/main", "1");
  dir.write("hub/models--a--b/snapshots/1/config.json", "{}");
  Environment environment(
      Values{{"HF_HUB_CACHE", dir.path() + "/hub"}, {"HF_HOME", "/none"}, {"HOME", "/none"}});
  EXPECT_TRUE(resolve_model_dir("a/b").ok());
}

TEST(Hub, SaysWhereItLookedAndHowToGetTheFiles) {
  test::TempDir dir;
  Environment environment(Values{{"HF_HOME", dir.path()}});
  const std::string missing = error_of("Qwen/Qwen3-0.6B");
  EXPECT_TRUE(mentions(missing, dir.path() + "/hub"));
  EXPECT_TRUE(mentions(missing, "fovea pull Qwen/Qwen3-0.6B"));

  const std::string repo = "hub/models--Qwen--Qwen3-0.6B/";
  dir.write(repo + "blobs/x", "");
  EXPECT_TRUE(mentions(error_of("Qwen/Qwen3-0.6B"), "refs/main"));
  dir.write(repo + "refs/main", "abc");
  EXPECT_TRUE(mentions(error_of("Qwen/Qwen3-0.6B"), "snapshots/abc"));
  EXPECT_TRUE(mentions(error_of("Qwen/Qwen3-0.6B"), "fovea pull"));
  dir.write(repo + "refs/main", "../../../etc");
  EXPECT_TRUE(mentions(error_of("Qwen/Qwen3-0.6B"), "not a commit name"));
}

TEST(Hub, RefusesWhatIsNoIdAndNoDirectory) {
  test::TempDir dir;
  Environment environment(Values{{"HF_HOME", dir.path()}});
  for (const char* name : {"", "nowhere", "../a/b", "a/b/c", "/no/such", "a/..", "./a", "a/b;rm", "a\n/b"})
    EXPECT_TRUE(mentions(error_of(name), "no such directory")) << name;
  const std::string file = dir.write("model.gguf", "x");
  EXPECT_TRUE(mentions(error_of(file), "not a directory"));
}

TEST(Hub, WorksWithoutAHome) {
  Environment environment(Values{});
  EXPECT_TRUE(mentions(error_of("a/b"), "HF_HOME"));
}

}  // namespace
}  // namespace fovea
