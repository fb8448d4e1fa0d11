#include "grammar/token_trie.h"

#include <algorithm>
#include <array>

#include "text/utf8.h"

namespace fovea::grammar {
namespace {

constexpr std::array<uint32_t, 18> kLengths = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 32};
constexpr size_t kMaxBytes = 60'000;  // of a token; Node::depth holds it

/// Characters of a plain text, 0 = it is not plain.
uint32_t plain_characters(std::string_view text) {
  uint32_t count = 0;
  for (; !text.empty(); ++count) {
    const text::Utf8Char c = text::decode_utf8(text);
    if (c.status != text::Utf8Status::complete || !is_plain(c.code_point)) return 0;
    text.remove_prefix(c.length);
  }
  return count;
}

using Entry = std::pair<std::string_view, int32_t>;

void build(std::span<const Entry> entries, std::vector<TokenTrie::Node>& nodes) {
  // The nodes of the path to the last entry, whose `after` is not known yet.
  std::vector<size_t> path;
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back())
      nodes[path.back()].after = static_cast<uint32_t>(nodes.size());
  };
  for (const auto& [bytes, token] : entries) {
    const auto common = static_cast<size_t>(
        std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    close(common);
    for (size_t i = common; i < bytes.size(); ++i) {
      path.push_back(nodes.size());
      nodes.push_back({0, -1, static_cast<uint16_t>(i), static_cast<uint8_t>(bytes[i])});
    }
    nodes.back().token = token;
    last = bytes;
  }
  close(0);
}

}  // namespace

TokenTrie::TokenTrie(int vocab, const std::function<std::string(int32_t)>& bytes,
                     const std::function<bool(int32_t)>& special, std::vector<int32_t> ends)
    : vocab_(vocab), at_(static_cast<size_t>(vocab)), ends_(std::move(ends)) {
  std::ranges::sort(ends_);
  for (int32_t id = 0; id < vocab; ++id) {
    std::string text = bytes(id);
    if (text.empty() || text.size() > kMaxBytes) continue;
    if (special(id)) {
      specials_.push_back(text);
      text = kSpecialMark + text + kSpecialMark;
    }
    if (is_end(id)) continue;
    at_[static_cast<size_t>(id)] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(text.size())};
    text_ += text;
    max_depth_ = std::max(max_depth_, static_cast<int>(text.size()));
  }
  std::ranges::sort(specials_, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  std::vector<std::vector<Entry>> of_bucket(1 + kLengths.size());
  for (int32_t id = 0; id < vocab; ++id) {
    const std::string_view text = this->bytes(id);
    if (text.empty()) continue;
    const uint32_t characters = plain_characters(text);
    const auto length = std::ranges::lower_bound(kLengths, characters);
    const bool plain = characters > 0 && length != kLengths.end();
    of_bucket[plain ? static_cast<size_t>(length - kLengths.begin()) + 1 : 0].emplace_back(text, id);
  }
  for (size_t i = 0; i < of_bucket.size(); ++i) {
    auto& entries = of_bucket[i];
    if (entries.empty() && i > 0) continue;
    std::ranges::sort(entries);
    std::vector<Entry> distinct;
    for (const Entry& entry : entries) {
      if (!distinct.empty() && distinct.back().first == entry.first)
        copies_.emplace_back(distinct.back().second, entry.second);
      else
        distinct.push_back(entry);
    }
    Bucket& bucket = buckets_.emplace_back();
    if (i > 0) {
      bucket.characters = kLengths[i - 1];
      bucket.fewest = i > 1 ? kLengths[i - 2] + 1 : 1;
    }
    bucket.mask.assign(mask_words(), 0);
    for (const Entry& entry : entries)
      bucket.mask[static_cast<size_t>(entry.second) / 32] |= 1U << (entry.second % 32);
    build(distinct, bucket.nodes);
  }
}

std::shared_ptr<const TokenTrie> TokenTrie::make(const Tokenizer& tokenizer, std::vector<int32_t> ends) {
  return std::make_shared<TokenTrie>(
      tokenizer.vocab_size(), [&](int32_t id) { return std::string(tokenizer.token_bytes(id)); },
      [&](int32_t id) { return tokenizer.is_special(id); }, std::move(ends));
}

std::string_view TokenTrie::bytes(int32_t token) const {
  if (token < 0 || token >= vocab_) return {};
  const auto [offset, length] = at_[static_cast<size_t>(token)];
  return std::string_view(text_).substr(offset, length);
}

bool TokenTrie::is_end(int32_t token) const {
  return std::ranges::binary_search(ends_, token);
}

}  // namespace fovea::grammar
