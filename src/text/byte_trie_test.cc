#include "text/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace fovea::text {
namespace {

using Found = std::vector<std::pair<size_t, int32_t>>;

Found prefixes(const ByteTrie& trie, std::string_view text) {
  Found out;
  trie.for_each_prefix(text, [&](size_t length, int32_t value) { out.emplace_back(length, value); });
  return out;
}

TEST(ByteTrie, FindsEveryPrefix) {
  const ByteTrie trie({{"b", 3}, {"abc", 0}, {"a", 1}, {"", 9}, {"ab\xFF", 2}});
  EXPECT_EQ(prefixes(trie, "abcd"), (Found{{1, 1}, {3, 0}}));
  EXPECT_EQ(prefixes(trie, "ab\xFF"), (Found{{1, 1}, {3, 2}}));
  EXPECT_EQ(prefixes(trie, "ab"), (Found{{1, 1}}));
  EXPECT_EQ(prefixes(trie, "c"), Found{});
  EXPECT_EQ(prefixes(trie, ""), Found{});
  EXPECT_EQ(prefixes(ByteTrie({}), "a"), Found{});
}

// Nodes with all numbers of children, up to 256.
TEST(ByteTrie, AgreesWithAMap) {
  std::mt19937 rng(3);
  std::map<std::string, int32_t> keys;
  for (int32_t i = 0; i < 3000; ++i) {
    std::string key;
    for (size_t n = 1 + rng() % 4; n > 0; --n)
      key.push_back(static_cast<char>(rng() % (n > 2 ? 4u : 256u)));
    keys.emplace(std::move(key), i);
  }
  const ByteTrie trie(std::vector<std::pair<std::string_view, int32_t>>(keys.begin(), keys.end()));
  for (const auto& [key, value] : keys) {
    const std::string text = key + "\x01\x02";
    Found want;
    for (size_t n = 1; n <= text.size(); ++n) {
      if (const auto it = keys.find(text.substr(0, n)); it != keys.end()) want.emplace_back(n, it->second);
    }
    ASSERT_EQ(prefixes(trie, text), want);
  }
}

}  // namespace
}  // namespace fovea::text
