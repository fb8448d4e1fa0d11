#include "speculative/suffix_drafter.h"

#include <algorithm>
#include <utility>

namespace fovea {
namespace {

constexpr size_t kNone = SIZE_MAX;

}  // namespace

uint64_t SuffixIndex::key(int32_t first, int32_t second) {
  return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
}

void SuffixIndex::push(int32_t token) {
  const bool pair = token != kBreak && !tokens_.empty() && tokens_.back() != kBreak;
  const uint64_t pair_key = pair ? key(tokens_.back(), token) : 0;
  tokens_.push_back(token);
  before_.push_back(kNone);
  if (!pair) return;
  const auto [newest, is_new] = newest_.try_emplace(pair_key, end());
  if (!is_new) before_.back() = std::exchange(newest->second, end());
}

void SuffixIndex::drop(size_t position) {
  for (; begin_ < position && !tokens_.empty(); ++begin_) {
    if (tokens_.size() > 1) {
      const auto newest = newest_.find(key(tokens_[0], tokens_[1]));
      if (newest != newest_.end() && newest->second == begin_ + 2) newest_.erase(newest);
    }
    tokens_.pop_front();
    before_.pop_front();
  }
}

SuffixIndex::Match SuffixIndex::find(std::span<const int32_t> last, int longest, size_t below) const {
  Match match;
  if (last.size() < 2) return match;
  const auto newest = newest_.find(key(last[last.size() - 2], last.back()));
  if (newest == newest_.end()) return match;
  size_t place = newest->second;
  // before_[p] belongs to the pair that ends at position p + 1.
  for (int places = 0; places < kPlaces && place != kNone && place >= begin_ + 2;
       place = before_[place - 1 - begin_]) {
    if (place >= below) continue;  // the suffix itself: nothing follows it
    ++places;
    const size_t limit = std::min({last.size(), place - begin_, static_cast<size_t>(longest)});
    size_t length = 0;
    while (length < limit && at(place - 1 - length) == last[last.size() - 1 - length])
      ++length;
    if (static_cast<int>(length) > match.length) {
      match.length = static_cast<int>(length);
      match.ends.clear();
    }
    if (static_cast<int>(length) == match.length) match.ends.push_back(place);
  }
  return match;
}

void SuffixDrafter::draft(DraftJob& job, const SuffixIndex& index, const SuffixIndex::Match& match) const {
  // A long match counts as far as leaves room for most drafts.
  int by_match = 0;
  for (int length = 1; length <= match.length; ++length)
    by_match = std::max(by_match, std::min(static_cast<int>(config_.suffix_max_spec_factor * length),
                                           config_.suffix_max_tree_depth - length));
  const int most = std::min(job.most, by_match);
  const auto all = static_cast<double>(match.ends.size());
  std::vector<size_t> places = match.ends;
  while (static_cast<int>(job.drafts.size()) < most) {
    const size_t ahead = job.drafts.size();
    int32_t best = SuffixIndex::kBreak;
    std::ptrdiff_t most_often = 0;
    for (const size_t place : places) {  // the newest one first, so it wins a tie
      const int32_t token = place + ahead < index.end() ? index.at(place + ahead) : SuffixIndex::kBreak;
      if (token == SuffixIndex::kBreak) continue;
      const auto often = std::ranges::count_if(places, [&](size_t other) {
        return other + ahead < index.end() && index.at(other + ahead) == token;
      });
      if (often > most_often) {
        most_often = often;
        best = token;
      }
    }
    if (best == SuffixIndex::kBreak || static_cast<double>(most_often) / all < config_.suffix_min_token_prob)
      break;
    std::erase_if(places, [&](size_t place) {
      return place + ahead >= index.end() || index.at(place + ahead) != best;
    });
    job.drafts.push_back(best);
  }
}

/// The index of all tokens of the sequence.
SuffixIndex& SuffixDrafter::own(const DraftJob& job) {
  SuffixIndex& index = own_[job.id];
  while (index.end() < job.tokens.size())
    index.push(job.tokens[index.end()]);
  return index;
}

bool SuffixDrafter::may_draft(const DraftJob& job) {
  own(job);
  return true;
}

void SuffixDrafter::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    const SuffixIndex& index = own(job);
    const int longest = config_.suffix_max_tree_depth - 1;
    const SuffixIndex::Match here = index.find(job.tokens, longest, job.tokens.size());
    const auto answers = answers_.find(job.client);
    if (answers != answers_.end()) {
      const SuffixIndex& earlier = answers->second.index;
      const SuffixIndex::Match there = earlier.find(job.tokens, longest, SIZE_MAX);
      if (there.length > here.length) {
        draft(job, earlier, there);
        continue;
      }
    }
    if (here.length > 0) draft(job, index, here);
  }
}

void SuffixDrafter::end(uint64_t id, std::span<const int32_t> tokens, int prompt_len,
                        std::string_view client) {
  own_.erase(id);
  const auto kept = static_cast<size_t>(config_.suffix_max_cached_requests);
  if (kept == 0 || tokens.size() <= static_cast<size_t>(prompt_len)) return;
  Answers& answers = answers_[std::string(client)];
  for (const int32_t token : tokens.subspan(static_cast<size_t>(prompt_len)))
    answers.index.push(token);
  answers.index.push(SuffixIndex::kBreak);
  answers.ends.push_back(answers.index.end());
  arrived_.emplace_back(client);
  if (arrived_.size() <= kept) return;
  const auto oldest = answers_.find(arrived_.front());
  oldest->second.index.drop(oldest->second.ends.front());
  oldest->second.ends.pop_front();
  if (oldest->second.ends.empty()) answers_.erase(oldest);
  arrived_.pop_front();
}

}  // namespace fovea
