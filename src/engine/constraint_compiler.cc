#include "engine/constraint_compiler.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace fovea {
namespace {

using grammar::ConstraintSpec;

ConstraintSpec spec_of(const OutputConstraint& constraint) {
  using Kind = ConstraintSpec::Kind;
  constexpr std::array kKinds = {Kind::json_object, Kind::json_schema, Kind::regex,
                                 Kind::choice,      Kind::grammar,     Kind::structural_tag};
  ConstraintSpec spec;
  spec.kind = kKinds[static_cast<size_t>(constraint.kind)];
  spec.text = constraint.text;
  spec.choices = constraint.choices;
  spec.json.strict = constraint.strict;
  if (constraint.white_space) spec.json.white_space = *constraint.white_space;
  return spec;
}

/// Follows one answer. Up to the end of `after` everything is allowed.
class AnswerConstraint final : public TokenConstraint {
 public:
  AnswerConstraint(ConstraintCompiler& compiler, std::shared_ptr<grammar::Constraint> constraint,
                   std::string after)
      : compiler_(compiler),
        constraint_(std::move(constraint)),
        matcher_(constraint_),
        after_(std::move(after)),
        free_(!after_.empty()) {
    if (!free_) prepare();
  }

  bool fill_mask(std::span<uint32_t> mask) override {
    if (free_) return false;
    const size_t words = constraint_->trie().mask_words();
    if (mask.size() == words) {
      matcher_.fill_mask(mask);
      return true;
    }
    wider_.resize(words);
    matcher_.fill_mask(wider_);
    for (size_t i = 0; i < mask.size(); ++i)
      mask[i] = i < words ? wider_[i] : 0;
    return true;
  }

  bool advance(int32_t token) override {
    if (free_) return advance_free(token);
    if (!matcher_.accept(token)) return false;
    if (matcher_.ended() || !matcher_.continues()) {
      matcher_.roll_back(1);
      return false;
    }
    prepare();
    steps_.push_back({false, 1, {}});
    return true;
  }

  void roll_back(int tokens) override {
    for (; tokens > 0; --tokens) {
      FOVEA_CHECK(!steps_.empty());
      const Step& step = steps_.back();
      matcher_.roll_back(step.matched);
      free_ = step.was_free;
      if (free_) tail_ = step.tail;
      steps_.pop_back();
    }
  }

 private:
  struct Step {
    bool was_free;
    size_t matched;    // steps of the matcher
    std::string tail;  // before, if it was free
  };

  void prepare() { compiler_.prepare(constraint_, matcher_.place()); }

  bool advance_free(int32_t token) {
    if (constraint_->trie().is_end(token)) return false;
    Step step{true, 0, tail_};
    for (const char c : constraint_->trie().bytes(token))
      if (c != grammar::kSpecialMark) tail_ += c;
    if (const size_t at = tail_.find(after_); at != std::string::npos) {
      free_ = false;
      // White space in the same token does not count, nor does what the constraint would not allow.
      std::string_view rest = std::string_view(tail_).substr(at + after_.size());
      rest.remove_prefix(std::min(rest.find_first_not_of(" \n\r\t"), rest.size()));
      if (!rest.empty() && matcher_.accept_text(rest)) step.matched = 1;
      tail_.clear();
      prepare();
    } else if (tail_.size() >= after_.size()) {
      tail_.erase(0, tail_.size() - after_.size() + 1);
    }
    steps_.push_back(std::move(step));
    return true;
  }

  ConstraintCompiler& compiler_;
  std::shared_ptr<grammar::Constraint> constraint_;
  grammar::Matcher matcher_;
  std::string after_, tail_;  // the last bytes of the free part
  bool free_;
  std::vector<Step> steps_;
  std::vector<uint32_t> wider_;
};

}  // namespace

ConstraintCompiler::ConstraintCompiler(const Tokenizer& tokenizer, std::vector<int32_t> ends)
    : tokenizer_(tokenizer), ends_(std::move(ends)) {}

ConstraintCompiler::~ConstraintCompiler() {
  {
    const std::lock_guard lock(jobs_mutex_);
    stop_ = true;
  }
  jobs_there_.notify_all();
  if (worker_.joinable()) worker_.join();
}

Result<std::shared_ptr<grammar::Constraint>> ConstraintCompiler::compile(const OutputConstraint& constraint) {
  std::call_once(trie_made_, [&] { trie_ = grammar::TokenTrie::make(tokenizer_, ends_); });
  const ConstraintSpec spec = spec_of(constraint);
  const std::string key = spec.key();
  {
    const std::lock_guard lock(cache_mutex_);
    if (const auto found = by_key_.find(key); found != by_key_.end()) {
      cached_.splice(cached_.begin(), cached_, found->second);
      return found->second->second;
    }
  }
  FOVEA_TRY(compiled, grammar::compile_constraint(spec, trie_));
  const std::lock_guard lock(cache_mutex_);
  if (by_key_.contains(key)) return by_key_.at(key)->second;
  cached_.emplace_front(key, compiled);
  by_key_[key] = cached_.begin();
  if (cached_.size() > kMostCached) {
    by_key_.erase(cached_.back().first);
    cached_.pop_back();
  }
  return compiled;
}

std::unique_ptr<TokenConstraint> ConstraintCompiler::begin(std::shared_ptr<grammar::Constraint> constraint,
                                                           std::string after) {
  return std::make_unique<AnswerConstraint>(*this, std::move(constraint), std::move(after));
}

void ConstraintCompiler::prepare(std::shared_ptr<grammar::Constraint> constraint,
                                 grammar::Constraint::Place place) {
  {
    const std::lock_guard lock(jobs_mutex_);
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
    jobs_.push_back({std::move(constraint), place});
  }
  jobs_there_.notify_one();
}

void ConstraintCompiler::work() {
  while (true) {
    Job job;
    {
      std::unique_lock lock(jobs_mutex_);
      jobs_there_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
      if (stop_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.constraint->prepare(job.place);
  }
}

}  // namespace fovea
