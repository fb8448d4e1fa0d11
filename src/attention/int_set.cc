#include <algorithm>

#include "base/check.h"
#include "fovea/capability.h"

namespace fovea {

std::optional<int> IntSet::next(int at_least) const {
  std::optional<int> best;
  const auto consider = [&](int v) {
    if (v >= at_least && (!best || v < *best)) best = v;
  };
  for (int i = 0; i < count_; ++i)
    consider(listed_[static_cast<size_t>(i)]);
  if (first_ <= last_) {
    const int64_t steps = std::max<int64_t>(0, (int64_t{at_least} - first_ + step_ - 1) / step_);
    if (const int64_t v = first_ + steps * step_; v <= last_) consider(static_cast<int>(v));
  }
  return best;
}

int IntSet::nearest(int wanted) const {
  FOVEA_CHECK(!empty());
  std::optional<int> best;
  const auto consider = [&](int64_t v) {
    const auto distance = [&](int64_t x) { return std::abs(x - wanted); };
    if (!best || distance(v) < distance(*best) || (distance(v) == distance(*best) && v < *best))
      best = static_cast<int>(v);
  };
  for (int i = 0; i < count_; ++i)
    consider(listed_[static_cast<size_t>(i)]);
  if (first_ <= last_) {
    const int64_t top = (int64_t{last_} - first_) / step_;
    const int64_t below = std::clamp<int64_t>((int64_t{wanted} - first_) / step_, 0, top);
    consider(first_ + below * step_);
    consider(first_ + std::min(below + 1, top) * step_);
  }
  return *best;
}

std::string IntSet::to_string() const {
  std::vector<int> listed(listed_.begin(), listed_.begin() + count_);
  std::ranges::sort(listed);
  std::string out;
  const auto append = [&out](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  for (int v : listed)
    append(std::to_string(v));
  if (first_ > last_) return out.empty() ? "none" : out;
  const bool unbounded = last_ == INT_MAX;
  if (unbounded && step_ == 1 && first_ == 1)
    append("Any");
  else if (unbounded && first_ == step_)
    append("%" + std::to_string(step_));
  else if (unbounded)
    append("≥" + std::to_string(first_) + (step_ == 1 ? "" : " step " + std::to_string(step_)));
  else if (first_ == last_)
    append(std::to_string(first_));
  else
    append(std::to_string(first_) + "-" + std::to_string(last_) +
           (step_ == 1 ? "" : " step " + std::to_string(step_)));
  return out;
}

std::string IntSet::describe() const {
  if (count_ > 0 || first_ >= last_) return to_string();
  const std::string from = std::to_string(first_);
  const std::string bounds = last_ == INT_MAX ? from + " or more" : from + " to " + std::to_string(last_);
  if (step_ == 1) return last_ == INT_MAX && first_ == 1 ? "any" : bounds;
  const std::string step = std::to_string(step_);
  if (first_ == step_ && last_ == INT_MAX) return "multiples of " + step;
  if (first_ % step_ == 0) return "multiples of " + step + " from " + bounds;
  return bounds + " in steps of " + step;
}

}  // namespace fovea
