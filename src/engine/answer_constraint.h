#pragma once
// Where one answer is in its OutputConstraint: in its free part, at the point where the form begins or a call
// instead, in the form, or in a call.
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/token_constraint.h"
#include "fovea/engine.h"
#include "grammar/constraint.h"

namespace fovea {

/// The compiled parts of an OutputConstraint.
struct CompiledConstraint {
  std::shared_ptr<grammar::Constraint> form;
  /// Texts that begin with OutputConstraint::after_begin, and with one of `instead`; null = there is none.
  std::shared_ptr<grammar::Constraint> free, instead;
};

class AnswerConstraint final : public TokenConstraint {
 public:
  /// `prepare`: asks for the mask of a place to be computed in advance.
  using Prepare = std::function<void(std::shared_ptr<grammar::Constraint>, grammar::Constraint::Place)>;

  AnswerConstraint(const CompiledConstraint& compiled, const OutputConstraint& constraint, Prepare prepare);

  bool fill_mask(std::span<uint32_t> mask) override;
  bool advance(int32_t token) override;
  void roll_back(int tokens) override;

 private:
  enum class Mode : uint8_t {
    fork,  // the text so far may become more than one of `branches_`
    free,  // up to the end of `after_`
    form,
    call,  // free to the end
  };
  /// One of the things that an answer may begin with.
  struct Branch {
    std::shared_ptr<grammar::Constraint> constraint;
    grammar::Matcher matcher;
    bool alive = false;
  };
  /// What may come first, and what may come behind the free part.
  enum Which : size_t { kForm, kCall, kFree, kLaterForm, kLaterCall, kBranches };

  struct Step {
    Mode mode = Mode::form;
    size_t needle = 0;
    std::string tail;  // only of Mode::free
    std::array<bool, kBranches> alive{};
    std::array<bool, kBranches> stepped{};
  };

  Step here() const;
  void enter_fork(bool later);
  bool alive(Which which) const { return branches_[which] && branches_[which]->alive; }
  const grammar::TokenTrie& trie() const { return branches_[kForm]->constraint->trie(); }
  /// The form of Mode::form.
  grammar::Matcher& form() { return branches_[alive(kForm) ? kForm : kLaterForm]->matcher; }
  void take_back(const Step& step);
  void prepare();
  bool advance_free(int32_t token, Step& step);
  /// Advances the branches that are alive by `take(matcher)`; false, and no change, if none can.
  bool advance_fork(const std::function<bool(grammar::Matcher&)>& take, Step& step);

  Prepare prepare_;
  std::array<std::optional<Branch>, kBranches> branches_;
  std::vector<std::string> after_;
  bool may_end_before_;
  Mode mode_ = Mode::form;
  size_t needle_ = 0;  // of after_
  std::string tail_;   // Mode::free: the last bytes
  std::vector<Step> steps_;
  std::vector<uint32_t> words_;
};

}  // namespace fovea
