#include "engine/answer_constraint.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace fovea {

AnswerConstraint::AnswerConstraint(const CompiledConstraint& compiled, const OutputConstraint& constraint,
                                   Prepare prepare)
    : prepare_(std::move(prepare)), after_(constraint.after), may_end_before_(constraint.may_end_before) {
  const auto add = [&](Which which, const std::shared_ptr<grammar::Constraint>& part) {
    if (part) branches_[which].emplace(Branch{part, grammar::Matcher(part), false});
  };
  add(kForm, compiled.form);
  add(kCall, compiled.instead);
  if (!after_.empty()) {
    add(kFree, compiled.free);
    add(kLaterForm, compiled.form);
    add(kLaterCall, compiled.instead);
  }
  if (!after_.empty() && !branches_[kFree])
    mode_ = Mode::free;
  else
    enter_fork(false);
}

/// `later`: behind the free part.
void AnswerConstraint::enter_fork(bool later) {
  mode_ = Mode::form;
  for (const Which which : later ? std::vector{kLaterForm, kLaterCall} : std::vector{kForm, kCall, kFree}) {
    if (!branches_[which]) continue;
    branches_[which]->alive = true;
    if (which != kForm && which != kLaterForm) mode_ = Mode::fork;
  }
  prepare();
}

void AnswerConstraint::prepare() {
  for (const auto& branch : branches_)
    if (branch && branch->alive) prepare_(branch->constraint, branch->matcher.place());
}

bool AnswerConstraint::fill_mask(std::span<uint32_t> mask) {
  const auto without_ends = [this](std::span<uint32_t> words) {
    for (const int32_t end : trie().ends())
      if (const auto word = static_cast<size_t>(end) / 32; word < words.size())
        words[word] &= ~(1U << (end % 32));
  };
  if (mode_ == Mode::call || (mode_ == Mode::free && may_end_before_)) return false;
  if (mode_ == Mode::free) {
    std::ranges::fill(mask, ~0U);
    without_ends(mask);
    return true;
  }
  const size_t words = trie().mask_words();
  if (mode_ == Mode::form && mask.size() == words) {
    form().fill_mask(mask);
    return true;
  }
  words_.resize(words);
  std::ranges::fill(mask, 0);
  for (size_t which = 0; which < kBranches; ++which) {
    if (!alive(static_cast<Which>(which))) continue;
    branches_[which]->matcher.fill_mask(words_);
    // Only the form is a whole answer.
    if (which != kForm && which != kLaterForm) without_ends(words_);
    for (size_t i = 0; i < std::min(words, mask.size()); ++i)
      mask[i] |= words_[i];
  }
  return true;
}

AnswerConstraint::Step AnswerConstraint::here() const {
  Step step;
  step.mode = mode_;
  step.needle = needle_;
  step.tail = tail_;
  for (size_t i = 0; i < kBranches; ++i)
    step.alive[i] = branches_[i] && branches_[i]->alive;
  return step;
}

void AnswerConstraint::take_back(const Step& step) {
  mode_ = step.mode;
  needle_ = step.needle;
  tail_ = step.tail;
  for (size_t i = 0; i < kBranches; ++i) {
    if (!branches_[i]) continue;
    branches_[i]->alive = step.alive[i];
    if (step.stepped[i]) branches_[i]->matcher.roll_back(1);
  }
}

bool AnswerConstraint::advance(int32_t token) {
  if (trie().is_end(token)) return false;
  Step step = here();
  if (mode_ == Mode::free) {
    if (!advance_free(token, step)) return false;
  } else if (mode_ != Mode::call) {
    if (!advance_fork([token](grammar::Matcher& matcher) { return matcher.accept(token); }, step))
      return false;
  }
  steps_.push_back(std::move(step));
  return true;
}

void AnswerConstraint::roll_back(int tokens) {
  for (; tokens > 0; --tokens) {
    FOVEA_CHECK(!steps_.empty());
    take_back(steps_.back());
    steps_.pop_back();
  }
}

bool AnswerConstraint::advance_fork(const std::function<bool(grammar::Matcher&)>& take, Step& step) {
  bool any = false;
  for (size_t which = 0; which < kBranches; ++which) {
    if (!alive(static_cast<Which>(which))) continue;
    step.stepped[which] = branches_[which]->alive = take(branches_[which]->matcher);
    any |= branches_[which]->alive;
  }
  const bool in_form = alive(kForm) || alive(kLaterForm);
  const auto complete = [&](Which which) { return alive(which) && branches_[which]->matcher.complete(); };
  // A form that allows the text of a call means it.
  if (complete(kFree))
    mode_ = Mode::free;
  else if (!in_form && (complete(kCall) || complete(kLaterCall)))
    mode_ = Mode::call;
  else if (in_form && !alive(kFree) &&
           (complete(kCall) || complete(kLaterCall) || !(alive(kCall) || alive(kLaterCall))))
    mode_ = Mode::form;
  if (!any || (mode_ == Mode::form && !form().continues())) {  // it may not follow, or nothing follows it
    take_back(step);
    return false;
  }
  for (size_t which = 0; which < kBranches && mode_ != Mode::fork; ++which)
    if (branches_[which])
      branches_[which]->alive &= mode_ == Mode::form && (which == kForm || which == kLaterForm);
  prepare();
  return true;
}

bool AnswerConstraint::advance_free(int32_t token, Step& step) {
  for (const char c : trie().bytes(token))
    if (c != grammar::kSpecialMark) tail_ += c;
  for (size_t at = tail_.find(after_[needle_]); at != std::string::npos; at = tail_.find(after_[needle_])) {
    tail_.erase(0, at + after_[needle_].size());
    if (++needle_ < after_.size()) continue;
    // White space in the same token does not count, nor does what the constraint would not allow.
    tail_.erase(0, std::min(tail_.find_first_not_of(" \n\r\t"), tail_.size()));
    const std::string rest = std::exchange(tail_, "");
    enter_fork(true);
    Step inner = here();
    if (!rest.empty() && advance_fork([&](grammar::Matcher& to) { return to.accept_text(rest); }, inner))
      step.stepped = inner.stepped;
    return true;
  }
  if (const size_t most = after_[needle_].size() - 1; tail_.size() > most)
    tail_.erase(0, tail_.size() - most);
  return true;
}

}  // namespace fovea
