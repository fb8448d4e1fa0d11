#include "engine/fair_line.h"

#include <algorithm>

#include "base/check.h"

namespace fovea {

void FairLine::add(Sequence& sequence) {
  ClientShare& share = clients_.try_emplace(sequence.client, order_).first->second;
  if (!share.is_active()) {
    // A share unused while inactive is lost; a charge beyond the share is kept.
    share.charged = std::max(share.charged, now_);
    ++active_;
  }
  sequence.share = &share;
  FOVEA_CHECK(share.waiting.insert(&sequence).second);
  ++waiting_;
}

void FairLine::admit(Sequence& sequence) {
  FOVEA_CHECK(sequence.share->waiting.erase(&sequence) == 1);
  --waiting_;
  ++sequence.share->running;
}

void FairLine::put_back(Sequence& sequence) {
  --sequence.share->running;
  FOVEA_CHECK(sequence.share->waiting.insert(&sequence).second);
  ++waiting_;
}

void FairLine::remove(Sequence& sequence) {
  ClientShare& share = *sequence.share;
  if (share.waiting.erase(&sequence) == 1)
    --waiting_;
  else
    --share.running;
  FOVEA_CHECK(share.running >= 0);
  sequence.share = nullptr;
  if (share.is_active()) return;
  --active_;
  forget(share, sequence.client);
}

void FairLine::forget(ClientShare& share, const std::string& client) {
  if (active_ == 0) {  // no active client: reset
    clients_.clear();
    now_ = charges_ = 0;
    swept_at_ = 0;
    return;
  }
  if (share.charged <= now_) clients_.erase(client);
  constexpr size_t kFew = 64;
  if (clients_.size() < 2 * std::max(kFew, swept_at_)) return;
  std::erase_if(clients_,
                [&](const auto& each) { return !each.second.is_active() && each.second.charged <= now_; });
  swept_at_ = clients_.size();
}

void FairLine::charge(const Sequence& sequence, int rows) {
  sequence.share->charged += rows;
  charges_ += rows;
}

void FairLine::advance() {
  if (active_ > 0) now_ += charges_ / static_cast<double>(active_);
  charges_ = 0;
}

bool FairLine::before(const Sequence* a, const Sequence* b) const {
  const bool by_priority = order_.policy == SchedulingPolicy::priority && a->priority != b->priority;
  if (by_priority || a->share == b->share || a->share->charged == b->share->charged) return order_(a, b);
  return a->share->charged < b->share->charged;
}

bool FairLine::takes_place(const Sequence& first, const Sequence& running) const {
  const ClientShare &poor = *first.share, &rich = *running.share;
  return first.priority == running.priority && poor.charged < rich.charged &&
         2 * (poor.running + 1) <= rich.running;
}

Sequence* FairLine::first() const {
  Sequence* first = nullptr;
  for (const auto& [client, share] : clients_)
    if (!share.waiting.empty() && (first == nullptr || before(*share.waiting.begin(), first)))
      first = *share.waiting.begin();
  return first;
}

std::vector<const Sequence*> FairLine::first_ones(size_t count) const {
  std::vector<const Sequence*> all;
  for (const auto& [client, share] : clients_)
    all.insert(all.end(), share.waiting.begin(), share.waiting.end());
  const auto end = all.begin() + static_cast<std::ptrdiff_t>(std::min(count, all.size()));
  std::partial_sort(all.begin(), end, all.end(), [&](const auto* a, const auto* b) { return before(a, b); });
  all.erase(end, all.end());
  return all;
}

}  // namespace fovea
