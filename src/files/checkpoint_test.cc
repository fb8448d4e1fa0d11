#include "files/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "../tests/support/safetensors_writer.h"
#include "../tests/support/temp_dir.h"
#include "fovea/result.h"

namespace fovea {
namespace {

std::string one_tensor(const std::string& name, float value) {
  test::SafetensorsWriter writer;
  writer.add(name, {1}, {value}, DType::f32);
  return writer.bytes();
}

void expect_error(const std::string& dir, const std::vector<std::string>& parts) {
  const auto result = Checkpoint::open(dir);
  ASSERT_FALSE(result.ok());
  for (const auto& part : parts)
    EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find('\n'), std::string::npos);
}

constexpr const char* kIndex = "model.safetensors.index.json";

TEST(Checkpoint, ReadsOneFile) {
  test::TempDir dir;
  dir.write("model.safetensors", one_tensor("a", 2.5f));
  const auto checkpoint = Checkpoint::open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  const CheckpointTensor* tensor = checkpoint->find("a");
  ASSERT_TRUE(tensor);
  EXPECT_EQ(checkpoint->find("b"), nullptr);
  float value = 0;
  std::memcpy(&value, tensor->data, 4);
  EXPECT_EQ(value, 2.5f);
}

TEST(Checkpoint, ReadsShardsThroughSymlinks) {
  test::TempDir dir;  // layout of the Hugging Face cache: snapshots link to blobs
  dir.write("blobs/1", one_tensor("a", 1));
  dir.write("blobs/2", one_tensor("b", 2));
  dir.write(std::string("s/") + kIndex,
            R"({"metadata":{"total_size":8},"weight_map":{"b":"m-2.safetensors","a":"m-1.safetensors"}})");
  for (const std::string n : {"1", "2"})
    std::filesystem::create_symlink("../blobs/" + n, dir.path() + "/s/m-" + n + ".safetensors");
  const auto checkpoint = Checkpoint::open(dir.path() + "/s");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  ASSERT_EQ(checkpoint->tensors().size(), 2u);
  float value = 0;
  std::memcpy(&value, checkpoint->find("b")->data, 4);
  EXPECT_EQ(value, 2);
}

TEST(Checkpoint, RefusesWhatIsMissing) {
  test::TempDir empty;
  expect_error(empty.path(), {empty.path(), "no weights", "model.safetensors"});
  test::TempDir pickled;
  pickled.write("pytorch_model.bin", "x");
  expect_error(pickled.path(), {"pickled", "pytorch_model.bin", "convert"});
  test::TempDir gguf;
  gguf.write("model.gguf", "x");
  expect_error(gguf.path(), {"GGUF"});
  test::TempDir shards;
  shards.write("m-1.safetensors", one_tensor("a", 1));
  shards.write(kIndex, R"({"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})");
  expect_error(shards.path(), {"m-2.safetensors", "missing"});
  shards.write("m-2.safetensors", one_tensor("c", 1));
  expect_error(shards.path(), {"\"b\"", "m-2.safetensors", "doesn't have it"});
}

TEST(Checkpoint, RefusesATruncatedFile) {
  test::TempDir dir;
  const std::string whole = one_tensor("a", 1);
  for (size_t size = 0; size < whole.size(); ++size) {
    dir.write("model.safetensors", whole.substr(0, size));
    expect_error(dir.path(), {"model.safetensors"});
  }
}

TEST(Checkpoint, RefusesShardNamesThatLeaveTheDirectory) {
  for (const std::string name : {"../m.safetensors", "/etc/m.safetensors", "a/m.safetensors", "..safetensors",
                                 "m.bin", "", ".safetensors", "a\\\\m.safetensors", "m\\u0000.safetensors"}) {
    test::TempDir dir;
    dir.write(kIndex, R"({"weight_map":{"a":")" + name + R"("}})");
    expect_error(dir.path(), {kIndex, "plain name"});
  }
}

TEST(Checkpoint, RefusesAMalformedIndex) {
  for (const char* text : {"", "[]", "{", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                           R"({"weight_map":{"a":1}})", R"({"weight_map":{"a":{"b":"m.safetensors"}}})"}) {
    test::TempDir dir;
    dir.write(kIndex, text);
    expect_error(dir.path(), {kIndex, "weight_map"});
  }
}

TEST(Checkpoint, RefusesAnIndexNestedTooDeep) {
  test::TempDir dir;
  dir.write(kIndex, R"({"weight_map":{"a":)" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}}");
  expect_error(dir.path(), {kIndex, "nested deeper than 100 levels"});
}

TEST(Checkpoint, RefusesWhatIsNoRegularFile) {
  test::TempDir dir;
  const std::string path = dir.path() + "/model.safetensors";
  std::filesystem::create_directory(path);
  expect_error(dir.path(), {"not a regular file"});
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);  // it has no writer
  expect_error(dir.path(), {"not a regular file"});
}

}  // namespace
}  // namespace fovea
