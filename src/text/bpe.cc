#include "text/bpe.h"

#include <algorithm>
#include <array>
#include <queue>
#include <ranges>

#include "fovea/result.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

// Up to this many symbols, rescanning all ranks after each merge beats a heap: it is at most 32 * 31 / 2
// comparisons of values that lie in four cache lines.
constexpr size_t kShort = 32;

// A merge that was valid when it was pushed.
struct Candidate {
  uint32_t rank;
  size_t left;  // index of the left symbol
  int32_t id;   // what the pair becomes
  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : left > other.left;
  }
};

constexpr size_t kNone = static_cast<size_t>(-1);

struct Node {
  int32_t id;  // -1 once merged into its left neighbour
  size_t previous, next;
};

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, MergeTable merges, BpeOptions options)
    : TokenModel(std::move(vocabulary)),
      direct_(kDirect, -1),
      byte_ids_(this->vocabulary().byte_token_ids()),
      merges_(std::move(merges)),
      options_(std::move(options)) {
  for (uint32_t c = 0; c < kDirect; ++c) {
    std::string character;
    append_utf8(c, character);
    direct_[c] = this->vocabulary().find(character).value_or(-1);
  }
}

int32_t Bpe::plain_symbol(std::string_view character, uint32_t code_point) const {
  if (code_point < kDirect) return direct_[code_point];
  return vocabulary().find(character).value_or(-1);
}

bool Bpe::add_byte_tokens(std::string_view symbol, std::vector<int32_t>& symbols) const {
  const size_t before = symbols.size();
  for (const char byte : symbol) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(byte)];
    if (id < 0) {
      symbols.resize(before);
      return false;
    }
    symbols.push_back(id);
  }
  return true;
}

void Bpe::split_into_symbols(std::string_view piece, std::vector<int32_t>& symbols) const {
  const std::string& prefix = options_.continuing_subword_prefix;
  const std::string& suffix = options_.end_of_word_suffix;
  std::string affixed;
  bool after_unk = false;
  for (bool first = true; !piece.empty(); first = false) {
    const Utf8Char c = decode_utf8(piece);
    std::string_view symbol = piece.substr(0, c.length);
    piece.remove_prefix(c.length);
    int32_t id = -1;
    if ((first || prefix.empty()) && (!piece.empty() || suffix.empty())) {
      id = plain_symbol(symbol, c.code_point);
    } else {
      affixed.assign(first ? "" : prefix).append(symbol).append(piece.empty() ? suffix : "");
      symbol = affixed;
      id = vocabulary().find(symbol).value_or(-1);
    }
    if (id >= 0) {
      symbols.push_back(id);
      after_unk = false;
    } else if (options_.byte_fallback && add_byte_tokens(symbol, symbols)) {
      after_unk = false;
    } else if (options_.unk_id) {
      if (!after_unk || !options_.fuse_unk) symbols.push_back(*options_.unk_id);
      after_unk = true;
    }
  }
}

size_t Bpe::longest_token(bool byte_level) const {
  const auto known = [&](uint32_t byte) {  // bytes that never occur in UTF-8 need no token
    return byte == 0xC0 || byte == 0xC1 || byte > 0xF4 ||
           vocabulary().find(byte_to_char(static_cast<uint8_t>(byte))).has_value();
  };
  const auto all_bytes = std::views::iota(0U, 256U);
  // With affixes, a character is looked up in its affixed spelling, so the bytes alone decide nothing.
  const bool plain = options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  if (byte_level && plain && std::ranges::all_of(all_bytes, known)) return vocabulary().longest(true);
  const size_t longest = vocabulary().longest(false);
  if (options_.byte_fallback && std::ranges::all_of(byte_ids_, [](int32_t id) { return id >= 0; }))
    return longest;
  // The unknown token can be part of a merge, and each one replaces a character of up to 4 bytes.
  return options_.unk_id && !options_.fuse_unk ? 4 * longest : 0;
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& out) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary().find(piece)) {
      out.push_back(*id);
      return;
    }
  }
  static thread_local std::vector<int32_t> symbols;
  symbols.clear();
  split_into_symbols(piece, symbols);
  if (symbols.size() <= kShort) {
    merge_short(symbols);
  } else {
    merge_long(symbols);
  }
  out.insert(out.end(), symbols.begin(), symbols.end());
}

void Bpe::merge_short(std::vector<int32_t>& symbols) const {
  std::array<Merge, kShort> merges;  // merges[i]: of symbols i and i + 1
  size_t n = symbols.size();
  for (size_t i = 0; i + 1 < n; ++i)
    merges[i] = merges_.find(symbols[i], symbols[i + 1]);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (!merges[best].exists()) break;
    symbols[best] = merges[best].id;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i - 1] = merges[i];
    }
    --n;
    if (best > 0) merges[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
    if (best + 1 < n) merges[best] = merges_.find(symbols[best], symbols[best + 1]);
  }
  symbols.resize(n);
}

// O(n log n): a linked list of symbols and a heap of candidates; a candidate whose symbols have changed since
// it was pushed is skipped when it is popped.
void Bpe::merge_long(std::vector<int32_t>& symbols) const {
  const size_t n = symbols.size();
  std::vector<Node> nodes(n);
  for (size_t i = 0; i < n; ++i)
    nodes[i] = {symbols[i], i == 0 ? kNone : i - 1, i + 1 == n ? kNone : i + 1};
  std::vector<Candidate> storage;
  storage.reserve(n);
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap({}, std::move(storage));
  const auto push = [&](size_t left) {
    if (left == kNone || nodes[left].next == kNone) return;
    const Merge merge = merges_.find(nodes[left].id, nodes[nodes[left].next].id);
    if (merge.exists()) heap.push({merge.rank, left, merge.id});
  };
  for (size_t i = 0; i + 1 < n; ++i)
    push(i);
  while (!heap.empty()) {
    const Candidate top = heap.top();
    heap.pop();
    Node& left = nodes[top.left];
    if (left.id < 0 || left.next == kNone) continue;
    Node& right = nodes[left.next];
    if (merges_.find(left.id, right.id).rank != top.rank) continue;
    left.id = top.id;
    right.id = -1;
    left.next = right.next;
    if (left.next != kNone) nodes[left.next].previous = top.left;
    push(left.previous);
    push(top.left);
  }
  symbols.clear();
  for (size_t i = 0; i != kNone; i = nodes[i].next)
    symbols.push_back(nodes[i].id);
}

namespace {

struct MergeParts {
  std::string_view left, right;
};

// "a b" or ["a", "b"].
Result<MergeParts> merge_parts(const Json& entry, size_t index) {
  const auto bad = [&] {
    return invalid("tokenizer.json: model.merges[" + std::to_string(index) + "] is " + entry.describe() +
                   "; \"left right\" or [\"left\", \"right\"] is needed");
  };
  MergeParts parts;
  if (const std::string* text = entry.string()) {
    const size_t space = text->find(' ');
    if (space == std::string::npos || text->find(' ', space + 1) != std::string::npos) return bad();
    parts = {std::string_view(*text).substr(0, space), std::string_view(*text).substr(space + 1)};
  } else {
    const Json::Array* pair = entry.array();
    if (!pair || pair->size() != 2 || !(*pair)[0].string() || !(*pair)[1].string()) return bad();
    parts = {*(*pair)[0].string(), *(*pair)[1].string()};
  }
  if (parts.left.empty() || parts.right.empty()) return bad();
  return parts;
}

// The right part continues a word and starts with `prefix`, which the merged token has only at its start.
Result<MergeTable> parse_merges(const Json::Array& list, const Vocabulary& vocabulary,
                                std::string_view prefix) {
  MergeTable table;
  table.reserve(list.size());
  std::string merged;
  for (size_t i = 0; i < list.size(); ++i) {
    FOVEA_TRY(parts, merge_parts(list[i], i));
    if (!parts.right.starts_with(prefix)) {
      return invalid("tokenizer.json: model.merges[" + std::to_string(i) + "] has right part " +
                     Json(std::string(parts.right)).describe() +
                     ", which must start with continuing_subword_prefix " +
                     Json(std::string(prefix)).describe());
    }
    merged.assign(parts.left).append(parts.right.substr(prefix.size()));
    const auto left = vocabulary.find(parts.left), right = vocabulary.find(parts.right);
    const auto result = vocabulary.find(merged);
    if (!left || !right || !result) {
      const std::string_view missing = !left ? parts.left : !right ? parts.right : std::string_view(merged);
      return invalid("tokenizer.json: model.merges[" + std::to_string(i) + "] needs token " +
                     Json(std::string(missing)).describe() + ", which model.vocab does not have");
    }
    table.insert(*left, *right, {static_cast<uint32_t>(i), *result});
  }
  return table;
}

// Dropout randomises merges during training; it would make the ids of a text random.
Status refuse_dropout(const Json& spec) {
  const Json* dropout = spec.find("dropout");
  const bool off = !dropout || dropout->is_null() || (dropout->real() && *dropout->real() == 0.0) ||
                   (dropout->integer() && *dropout->integer() == 0);
  if (!off) {
    return unsupported("tokenizer.json: model.dropout is " + dropout->describe() +
                       "; only null and 0 are supported");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<TokenModel>> parse_bpe(const Json& spec) {
  constexpr std::string_view kPath = "tokenizer.json: model";
  FOVEA_RETURN_IF_ERROR(refuse_dropout(spec));
  const Json* merge_list = spec.find("merges");
  if (!merge_list || !merge_list->array()) return invalid("tokenizer.json: model.merges must be a list");
  FOVEA_TRY(vocabulary, parse_vocab_object(spec));
  FOVEA_TRY(ignore_merges, bool_field(spec, kPath, "ignore_merges", false));
  FOVEA_TRY(fuse_unk, bool_field(spec, kPath, "fuse_unk", false));
  FOVEA_TRY(byte_fallback, bool_field(spec, kPath, "byte_fallback", false));
  FOVEA_TRY(prefix, string_field(spec, kPath, "continuing_subword_prefix", ""));
  FOVEA_TRY(suffix, string_field(spec, kPath, "end_of_word_suffix", ""));
  FOVEA_TRY(unk_id, parse_unk_token(spec, vocabulary));
  FOVEA_TRY(merges, parse_merges(*merge_list->array(), vocabulary, prefix));
  BpeOptions options{.ignore_merges = ignore_merges,
                     .unk_id = unk_id,
                     .fuse_unk = fuse_unk,
                     .byte_fallback = byte_fallback,
                     .continuing_subword_prefix = std::move(prefix),
                     .end_of_word_suffix = std::move(suffix)};
  return std::unique_ptr<TokenModel>(
      std::make_unique<Bpe>(std::move(vocabulary), std::move(merges), std::move(options)));
}

}  // namespace fovea::text
