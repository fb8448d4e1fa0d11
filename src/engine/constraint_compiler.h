#pragma once
// Constraints of answers: compiled once for all requests that have the same, and followed by one state for
// each answer. A worker computes the mask of an answer's next token while the model computes its logits.
#include <condition_variable>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/answer_constraint.h"
#include "fovea/engine.h"
#include "grammar/compile.h"
#include "text/tokenizer.h"

namespace fovea {

class ConstraintCompiler {
 public:
  /// `tokenizer` must outlive it.
  ConstraintCompiler(const Tokenizer& tokenizer, std::vector<int32_t> ends);
  ~ConstraintCompiler();

  /// Thread-safe. Errors are the client's.
  Result<CompiledConstraint> compile(const OutputConstraint& constraint);
  /// The state of one answer, which must end before this. `compiled`: of `constraint`.
  std::unique_ptr<TokenConstraint> begin(const CompiledConstraint& compiled,
                                         const OutputConstraint& constraint);

  /// Lets the worker compute a mask. Thread-safe.
  void prepare(std::shared_ptr<grammar::Constraint> constraint, grammar::Constraint::Place place);

 private:
  static constexpr size_t kMostCached = 64;
  struct Job {
    std::shared_ptr<grammar::Constraint> constraint;
    grammar::Constraint::Place place;
  };
  void work();
  Result<std::shared_ptr<grammar::Constraint>> compile(const grammar::ConstraintSpec& spec);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ends_;
  std::once_flag trie_made_;
  std::shared_ptr<const grammar::TokenTrie> trie_;
  std::mutex cache_mutex_;
  using Entry = std::pair<std::string, std::shared_ptr<grammar::Constraint>>;
  std::list<Entry> cached_;  // the most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_key_;
  std::mutex jobs_mutex_;
  std::condition_variable jobs_there_;
  std::deque<Job> jobs_;
  bool stop_ = false;
  std::thread worker_;  // started by the first job
};

}  // namespace fovea
