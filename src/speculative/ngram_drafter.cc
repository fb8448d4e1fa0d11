#include "speculative/ngram_drafter.h"

#include <algorithm>

namespace fovea {
namespace {

uint64_t mix(uint64_t hash, int32_t token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

}  // namespace

/// An n-gram enters when a token follows it: the suffix itself is not an occurrence.
void NgramIndex::add(std::span<const int32_t> tokens) {
  for (; seen_ + 1 < tokens.size(); ++seen_) {
    const size_t end = seen_ + 1;
    uint64_t hash = 0;
    for (size_t n = 1; n <= std::min(static_cast<size_t>(max_), end); ++n) {
      hash = mix(hash, tokens[end - n]);
      if (n + 1 >= static_cast<size_t>(min_)) first_.try_emplace(hash + n, static_cast<uint32_t>(end));
    }
  }
}

bool NgramIndex::may_find_next(std::span<const int32_t> tokens) {
  add(tokens);
  const auto least = static_cast<size_t>(min_ - 1);  // of a match with the next token, those that are known
  if (tokens.size() < least) return false;
  uint64_t hash = 0;
  for (size_t n = 1; n <= least; ++n)
    hash = mix(hash, tokens[tokens.size() - n]);
  return least == 0 || first_.contains(hash + least);
}

std::span<const int32_t> NgramIndex::find(std::span<const int32_t> tokens, int most) {
  add(tokens);
  size_t found = 0;
  uint64_t hash = 0;
  for (size_t n = 1; n <= std::min(static_cast<size_t>(max_), tokens.size()); ++n) {
    hash = mix(hash, tokens[tokens.size() - n]);
    if (n < static_cast<size_t>(min_)) continue;
    const auto at = first_.find(hash + n);
    if (at == first_.end()) break;  // no longer suffix has occurred either
    // Two n-grams with one hash would cost a rejected draft; but vLLM's rule knows no hashes.
    if (!std::equal(tokens.end() - static_cast<std::ptrdiff_t>(n), tokens.end(),
                    tokens.begin() + at->second - static_cast<std::ptrdiff_t>(n)))
      break;
    found = at->second;
  }
  if (found == 0) return {};
  return tokens.subspan(found, std::min(static_cast<size_t>(most), tokens.size() - found));
}

void NgramDrafter::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    const auto found = sequences_.try_emplace(job.id, min_, max_).first->second.find(job.tokens, job.most);
    job.drafts.assign(found.begin(), found.end());
  }
}

bool NgramDrafter::may_draft(const DraftJob& job) {
  return sequences_.try_emplace(job.id, min_, max_).first->second.may_find_next(job.tokens);
}

}  // namespace fovea
