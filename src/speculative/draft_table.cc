#include "speculative/draft_table.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/check.h"

namespace fovea {
namespace {

/// Numbers of sequences that are one class.
int class_of(int decodes) {
  return decodes <= 8 ? decodes : (decodes + 7) / 8 * 8;
}

/// What a step of `rows` rows is taken to cost, relative to others, where nothing is known. On an H200 the
/// linear layers of 8 billion parameters take 1.06 times as long for 64 rows as for 1, and twice for 256.
double guess(int rows) {
  return 1 + rows / 256.0;
}

constexpr double kNewest = 0.1;     // the weight of a step in a mean, at least
constexpr int kTryEvery = 64;       // choices
constexpr int kTrySoon = 8;         // after one that was better than none
constexpr int kTrySeldom = 512;     // where none is best
constexpr int kTryRarest = 4096;    // where finding out takes long
constexpr int kAloneSteps = 4;      // of one sequence that finds out
constexpr double kTryCost = 0.005;  // the share of all time that finding out may take there
constexpr double kOutlier = 2;      // times the mean: a step that captured a graph, say
constexpr double kForget = 0.98;    // of what was counted, with each step of a sequence

}  // namespace

double DraftTable::seconds(const Row& row, int decodes, int drafts) const {
  int near = -1;
  for (int d = 0; d <= kMaxDrafts; ++d)
    if (row.of[static_cast<size_t>(d)].count > 0 &&
        (near < 0 || std::abs(d - drafts) < std::abs(near - drafts)))
      near = d;
  const double cost = guess(decodes * (1 + drafts));
  if (near < 0) return cost;
  return row.of[static_cast<size_t>(near)].seconds * cost / guess(decodes * (1 + near));
}

/// Measured, else from how often drafts are accepted at each place: the next place is taken to be a little
/// worse than the last one that is known.
double DraftTable::tokens(const Row& row, int drafts) const {
  constexpr int kEnough = 4;
  constexpr double kFirst = 0.6, kLater = 0.8;
  const Steps& steps = row.of[static_cast<size_t>(drafts)];
  if (steps.count >= kEnough) return steps.tokens;
  double sum = 1, share = kFirst / kLater;
  for (size_t i = 0; i < static_cast<size_t>(drafts); ++i) {
    share = verified_[i] > 1 ? accepted_[i] / verified_[i] : share * kLater;
    sum += share;
  }
  return sum;
}

DraftTable::Choice DraftTable::choose(int decodes, int most) {
  FOVEA_CHECK(0 <= most && most <= kMaxDrafts);
  Row& row = rows_[class_of(decodes)];
  int best = 0;
  double best_rate = 0;
  for (int drafts = 0; drafts <= most; ++drafts) {
    const double rate = tokens(row, drafts) / seconds(row, decodes, drafts);
    if (rate > best_rate) best = drafts, best_rate = rate;
  }
  if (std::exchange(row.again, false)) return {std::min(1, most)};
  if (best != row.best) row.best = best, row.choices = row.alone = 0, row.every = kTryEvery;
  if (row.alone > 0) {
    --row.alone;
    return {std::min(1, most), true};
  }
  const bool everyone = std::exchange(row.everyone, false) && best == 0;
  if (++row.choices < row.every && !everyone) return {best};
  row.choices = 0;
  row.every = best == 0 ? std::min(2 * row.every, kTrySeldom) : kTryEvery;
  row.more = best == 0 || !row.more;
  const int other = best + (row.more ? 1 : -1);
  if (other > most) return {best};
  if (best == 0 && one_finds_out_ && decodes > 1 && !everyone) {
    row.alone = kAloneSteps - 1;
    row.alone_steps = row.alone_tokens = 0;
    row.alone_seconds = 0;
    return {other, true};
  }
  row.first = row.again = best == 0;
  return {other};
}

void DraftTable::add(int decodes, Choice choice, double seconds, int tokens) {
  const int drafts = choice.drafts;
  if (decodes <= 0 || drafts < 0 || drafts > kMaxDrafts) return;
  Row& row = rows_[class_of(decodes)];
  if (choice.alone && drafts > 0) return add_alone(row, decodes, seconds, tokens);
  Steps& steps = row.of[static_cast<size_t>(drafts)];
  const Steps& none = row.of[0];
  const bool finds_out = row.best == 0 && drafts > 0 && none.seconds > 0;
  if (finds_out && std::exchange(row.first, false)) {
    // A draft model has computed what it had not seen: the next step shows what drafts cost.
    const double pause = (seconds - none.seconds) / (kTryCost * none.seconds);
    row.every = std::max(row.every, static_cast<int>(std::clamp<double>(pause, 0, kTryRarest)));
    return;
  }
  if (steps.count > 1) seconds = std::min(seconds, kOutlier * steps.seconds);
  // The second step replaces the first, which may have loaded kernels and captured a graph.
  const double weight = steps.count < 2 ? 1 : std::max(kNewest, 1.0 / steps.count);
  steps.seconds += weight * (seconds - steps.seconds);
  steps.tokens += weight * (static_cast<double>(tokens) / decodes - steps.tokens);
  ++steps.count;
  if (finds_out && tokens * none.seconds > none.tokens * decodes * seconds)
    row.every = std::min(row.every, kTrySoon);
}

/// A step in which one sequence had a draft. After the last of them all find out, if drafts that give each as
/// many tokens would be worth their time, as far as it is known.
void DraftTable::add_alone(Row& row, int decodes, double seconds, int tokens) {
  const Steps &none = row.of[0], &one = row.of[1];
  row.alone_tokens += tokens - decodes + 1;
  row.alone_seconds += seconds - none.seconds;
  if (++row.alone_steps < kAloneSteps || row.best != 0 || none.seconds <= 0) return;
  const double pause = row.alone_seconds / (kTryCost * none.seconds);
  row.every = std::max(row.every, static_cast<int>(std::clamp<double>(pause, 0, kTryRarest)));
  const double cost = one.count > 0 ? one.seconds : none.seconds * guess(2 * decodes) / guess(decodes);
  if (row.alone_tokens * none.seconds > kAloneSteps * cost) row.everyone = true;
}

void DraftTable::count(int verified, int accepted) {
  for (size_t i = 0; i < static_cast<size_t>(std::min(verified, kMaxDrafts)); ++i) {
    verified_[i] = kForget * verified_[i] + 1;
    accepted_[i] = kForget * accepted_[i] + (static_cast<int>(i) < accepted ? 1 : 0);
  }
}

}  // namespace fovea
