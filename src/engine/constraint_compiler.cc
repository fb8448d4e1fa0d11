#include "engine/constraint_compiler.h"

#include <array>

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

/// Texts that begin with one of `texts`.
ConstraintSpec opening(std::vector<std::string> texts, const char* white_space) {
  ConstraintSpec spec;
  spec.kind = ConstraintSpec::Kind::opening;
  spec.choices = std::move(texts);
  spec.json.white_space = white_space;
  return spec;
}

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

Result<CompiledConstraint> ConstraintCompiler::compile(const OutputConstraint& constraint) {
  CompiledConstraint out;
  auto form = compile(spec_of(constraint));
  if (!form) {
    Error error = std::move(form).error();
    if (!constraint.name.empty()) error.message = constraint.name + ": " + error.message;
    return error;
  }
  out.form = *std::move(form);
  if (!constraint.after.empty() && !constraint.after_begin.empty()) {
    FOVEA_TRY(free, compile(opening({constraint.after_begin}, "[ \\t\\r\\n]{0,2}")));
    out.free = std::move(free);
  }
  if (!constraint.instead.empty()) {
    // Without white space, which would be a choice against the form.
    FOVEA_TRY(instead, compile(opening(constraint.instead, "")));
    out.instead = std::move(instead);
  }
  return out;
}

Result<std::shared_ptr<grammar::Constraint>> ConstraintCompiler::compile(const ConstraintSpec& spec) {
  std::call_once(trie_made_, [&] { trie_ = grammar::TokenTrie::make(tokenizer_, ends_); });
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

std::unique_ptr<TokenConstraint> ConstraintCompiler::begin(const CompiledConstraint& compiled,
                                                           const OutputConstraint& constraint) {
  return std::make_unique<AnswerConstraint>(
      compiled, constraint,
      [this](std::shared_ptr<grammar::Constraint> part, grammar::Constraint::Place place) {
        prepare(std::move(part), place);
      });
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
