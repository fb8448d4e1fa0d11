#include <gtest/gtest.h>

#include "fovea/result.h"
#include "hub/digest.h"
#include "hub/listing.h"
#include "hub/pull.h"

namespace fovea::hub {
namespace {

std::string digest(Digest::Kind kind, const std::string& text, size_t piece = 1000) {
  Digest digest(kind);
  for (size_t at = 0; at < text.size(); at += piece)
    digest.add(std::string_view(text).substr(at, piece));
  return digest.hex();
}

// FIPS 180-4's examples, and lengths around a block.
TEST(Digest, IsThatOfTheStandard) {
  using enum Digest::Kind;
  EXPECT_EQ(digest(sha256, ""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest(sha256, "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest(sha256, std::string(1'000'000, 'a'), 977),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(digest(sha1, "abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
  EXPECT_EQ(digest(sha1, std::string(1'000'000, 'a'), 977), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
  EXPECT_EQ(digest(sha1, std::string("blob 0") + '\0'), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");  // git's
  for (size_t length = 50; length < 140; ++length) {
    const std::string text(length, 'x');
    EXPECT_EQ(digest(sha256, text, 1), digest(sha256, text)) << length;
    EXPECT_EQ(digest(sha1, text, 7), digest(sha1, text)) << length;
  }
}

const std::string kCommit(40, 'a'), kSha(64, 'b');

std::string listing_of(const std::string& file) {
  return R"({"sha": ")" + kCommit + R"(", "siblings": [)" + file + "]}";
}

TEST(Listing, IsRead) {
  const auto listing =
      parse_listing(listing_of(R"({"rfilename": "model.safetensors", "size": 5, "blobId": ")" + kCommit +
                               R"(", "lfs": {"sha256": ")" + kSha + R"(", "size": 7, "pointerSize": 133}},
      {"rfilename": "1_Pooling/config.json", "size": 3, "blobId": ")" +
                               kCommit + R"("})"));
  ASSERT_TRUE(listing) << listing.error().message;
  ASSERT_EQ(listing->files.size(), 2U);
  EXPECT_EQ(listing->commit, kCommit);
  EXPECT_TRUE(listing->files[0].git);
  EXPECT_EQ(listing->files[1].size, 7);
  EXPECT_EQ(listing->files[1].digest, kSha);
  EXPECT_EQ(link_target(listing->files[0]), "../../../blobs/" + kCommit);
  EXPECT_EQ(link_target(listing->files[1]), "../../blobs/" + kSha);
}

TEST(Listing, NamesThatLeaveTheFolderAreRefused) {
  for (const char* name : {"../x", "/etc/passwd", "a/../../b", "a//b", "", ".", "a\\\\b", "a\\nb"})
    EXPECT_FALSE(parse_listing(listing_of(R"({"rfilename": ")" + std::string(name) +
                                          R"(", "size": 1, "blobId": ")" + kCommit + R"("})")))
        << name;
  for (const char* digest : {"", "../../x", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"})
    EXPECT_FALSE(parse_listing(
        listing_of(R"({"rfilename": "a", "size": 1, "blobId": ")" + std::string(digest) + R"("})")))
        << digest;
  for (const char* text : {"", "[]", "{}", R"({"sha": "main", "siblings": []})",
                           R"({"sha": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"})"})
    EXPECT_FALSE(parse_listing(text)) << text;
  EXPECT_FALSE(
      parse_listing(listing_of(R"({"rfilename": "a", "size": -1, "blobId": ")" + kCommit + R"("})")));
}

TEST(Listing, WantsWhatTheEngineReads) {
  for (const char* path :
       {"config.json", "model-00001-of-00002.safetensors", "tokenizer.json", "merges.txt",
        "additional_chat_templates/tool_use.jinja", "1_Pooling/config.json", "encoding/encoding_dsv32.py"})
    EXPECT_TRUE(is_wanted(path)) << path;
  for (const char* path : {"pytorch_model.bin", "original/params.json", "consolidated.safetensors",
                           "README.md", "onnx/model.onnx", ".gitattributes"})
    EXPECT_FALSE(is_wanted(path)) << path;
  EXPECT_EQ(url_path("a b/c%.json"), "a%20b/c%25.json");
}

TEST(Pull, ChecksItsArguments) {
  for (const char* id : {"", "a", "a/b/c", "../b", "a/..", "-a/b"})
    EXPECT_FALSE(pull({.id = id, .cache = "/nowhere"})) << id;
  for (const char* revision : {"", "../main", "a b", "/x", "-x", "a?b"})
    EXPECT_FALSE(pull({.id = "a/b", .revision = revision, .cache = "/nowhere"})) << revision;
  EXPECT_FALSE(pull({.id = "a/b", .cache = ""}));
}

}  // namespace
}  // namespace fovea::hub
