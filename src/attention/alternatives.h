#pragma once
// Which other backend would serve where one is refused; the last part of a fix.
#include <optional>
#include <string>
#include <vector>

#include "attention/selection_context.h"
#include "attention/validate.h"

namespace fovea {

class Alternatives {
 public:
  Alternatives(const SelectionContext& context, Phase phase) : context_(context), phase_(phase) {}

  /// `findings` of `refused` with their fixes, each a change that works with the other settings in place:
  /// settings, if these remove all findings, else another backend and the setting that selects it.
  std::vector<Reason> with_fixes(const BackendInfo& refused, std::vector<Finding> findings);

 private:
  struct Places {
    const BackendInfo* here = nullptr;         ///< serves on this device
    const BackendInfo* here_nearly = nullptr;  ///< built, and flags remove all findings against it
    std::string nearly_with;                   ///< those flags
    const BackendInfo* here_absent = nullptr;  ///< would, if this build had its kernels
    std::vector<std::string> here_unsaid;      ///< requirements that its documentation does not mention
    std::string elsewhere;                     ///< "CPU_ATTN serves it on cpu"
    std::string elsewhere_absent;
  };
  const Places& places();
  Places look_around(const SelectionContext& context) const;
  Reason with_fix(const BackendInfo& refused, Finding finding);
  bool serves(const BackendInfo& row, Phase phase) const;
  /// Whether some setting names a version of FlashAttention: "fa3".
  bool names_a_version() const;
  /// The setting that selects `row`; `of_phase`: for this phase only.
  std::string flag(const BackendInfo& row, bool of_phase) const;
  std::string instead(const BackendInfo& refused, bool of_phase);

  SelectionContext context_;
  Phase phase_;
  std::optional<Places> places_;
};

}  // namespace fovea
