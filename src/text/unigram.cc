#include "text/unigram.h"

#include <algorithm>
#include <cmath>

#include "fovea/result.h"
#include "text/utf8.h"

namespace fovea::text {
namespace {

constexpr double kUnkPenalty = 10.0;
// Real scores are log probabilities above -100. Sums over a whole text must stay exact enough to compare, and
// never reach infinity.
constexpr double kMaxScore = 1e6;
// A text takes time proportional to its length times the longest token's; real tokens have at most some 50.
constexpr size_t kMaxTokenBytes = 1024;

ByteTrie trie_of(const Vocabulary& vocabulary) {
  std::vector<std::pair<std::string_view, int32_t>> keys;
  keys.reserve(static_cast<size_t>(vocabulary.size()));
  for (int32_t id = 0; id < vocabulary.size(); ++id)
    keys.emplace_back(vocabulary.token(id), id);
  return ByteTrie(std::move(keys));
}

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, int32_t unk_id, bool byte_fallback)
    : TokenModel(std::move(vocabulary)),
      scores_(std::move(scores)),
      unk_score_(*std::min_element(scores_.begin(), scores_.end()) - kUnkPenalty),
      unk_id_(unk_id),
      byte_fallback_(byte_fallback),
      byte_ids_(this->vocabulary().byte_token_ids()),
      trie_(trie_of(this->vocabulary())) {}

void Unigram::find_best(std::string_view piece, std::vector<Node>& best) const {
  best.assign(piece.size() + 1, {0.0, 0, -1});
  const auto offer = [&](size_t start, size_t end, double score, int32_t id) {
    // On ties the first found stays: the one with the longest last token.
    if (best[end].id < 0 || score > best[end].score) best[end] = {score, start, id};
  };
  for (size_t start = 0; start < piece.size();) {
    const size_t character = decode_utf8(piece.substr(start)).length;
    const double so_far = best[start].score;
    bool character_is_token = false;
    trie_.for_each_prefix(piece.substr(start), [&](size_t length, int32_t id) {
      offer(start, start + length, so_far + scores_[static_cast<size_t>(id)], id);
      character_is_token |= length == character;
    });
    if (!character_is_token) offer(start, start + character, so_far + unk_score_, unk_id_);
    start += character;
  }
}

void Unigram::emit(std::string_view text, std::vector<int32_t>& out) const {
  if (const auto id = vocabulary().find(text)) {
    out.push_back(*id);
    return;
  }
  const auto byte_id = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (byte_fallback_ &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return byte_id(byte) >= 0; })) {
    std::transform(text.begin(), text.end(), std::back_inserter(out), byte_id);
    return;
  }
  out.push_back(unk_id_);
}

void Unigram::encode(std::string_view piece, std::vector<int32_t>& out) const {
  static thread_local std::vector<Node> best;
  static thread_local std::vector<std::string_view> tokens;  // right to left
  find_best(piece, best);
  tokens.clear();
  for (size_t end = piece.size(); end > 0;) {
    size_t start = best[end].start;
    if (best[end].id == unk_id_) {
      while (start > 0 && best[start].id == unk_id_)
        start = best[start].start;
    }
    tokens.push_back(piece.substr(start, end - start));
    end = start;
  }
  for (auto it = tokens.rbegin(); it != tokens.rend(); ++it)
    emit(*it, out);
}

Result<std::unique_ptr<TokenModel>> parse_unigram(const Json& spec) {
  constexpr std::string_view kPath = "tokenizer.json: model.vocab";
  const Json* list = spec.find("vocab");
  if (!list || !list->array() || list->array()->empty()) {
    return invalid(std::string(kPath) + " must be a list of [token, score] that is not empty");
  }
  const Json::Array& items = *list->array();
  if (items.size() > static_cast<size_t>(Vocabulary::kMaxId)) {
    return invalid(std::string(kPath) + " has " + std::to_string(items.size()) + " tokens; at most " +
                   std::to_string(Vocabulary::kMaxId) + " are allowed");
  }
  std::vector<Vocabulary::Entry> entries;
  std::vector<double> scores;
  for (size_t id = 0; id < items.size(); ++id) {
    const Json::Array* pair = items[id].array();
    const std::string* token = pair && pair->size() == 2 ? (*pair)[0].string() : nullptr;
    const Json* value = token ? &(*pair)[1] : nullptr;
    if (!value || (!value->real() && !value->integer())) {
      return invalid(std::string(kPath) + "[" + std::to_string(id) + "] must be [token, score]");
    }
    const double score = value->real() ? *value->real() : static_cast<double>(*value->integer());
    if (!std::isfinite(score) || std::abs(score) > kMaxScore) {
      return invalid(std::string(kPath) + "[" + std::to_string(id) + "] has the score " + value->describe() +
                     "; scores between -1000000 and 1000000 are allowed");
    }
    if (token->size() > kMaxTokenBytes) {
      return invalid(std::string(kPath) + "[" + std::to_string(id) + "] has a token of " +
                     std::to_string(token->size()) + " bytes; at most " + std::to_string(kMaxTokenBytes) +
                     " are allowed");
    }
    entries.push_back({*token, static_cast<int32_t>(id)});
    scores.push_back(score);
  }
  FOVEA_TRY(vocabulary, Vocabulary::build(entries, kPath));
  const Json* unk = spec.find("unk_id");
  const int64_t* unk_id = unk ? unk->integer() : nullptr;
  if (!unk_id || *unk_id < 0 || static_cast<uint64_t>(*unk_id) >= items.size()) {
    return invalid("tokenizer.json: model.unk_id is " + (unk ? unk->describe() : "missing") +
                   "; an index into model.vocab is needed");
  }
  FOVEA_TRY(byte_fallback, bool_field(spec, "tokenizer.json: model", "byte_fallback", false));
  return std::unique_ptr<TokenModel>(std::make_unique<Unigram>(std::move(vocabulary), std::move(scores),
                                                               static_cast<int32_t>(*unk_id), byte_fallback));
}

}  // namespace fovea::text
