#pragma once
// What the user asked of each phase of each kind of layers: the grammar of backend settings.
#include <array>
#include <optional>
#include <span>
#include <string>

#include "attention/scene.h"

namespace fovea {

struct Request {
  std::string name;  ///< empty = automatic
  std::string from;  ///< the setting that says so; empty when none does
  /// The setting names this phase: it is no general wish, which an MLA model or a backend that only decodes
  /// answers with two backends.
  bool of_phase = false;
  std::string note = {};  ///< to be told with the choice
};

class Requests {
 public:
  /// Reads all settings that name backends. `kinds` are those that the model has. Errors: what does not
  /// parse, settings that contradict, kinds that the model lacks. Names are not looked up but to compare
  /// them.
  static Result<Requests> read(const AttentionConfig& config, std::span<const LayerKind> kinds,
                               const BackendRegistry& registry);

  const Request& of(LayerKind kind, Phase phase) const {
    return table_[static_cast<size_t>(kind)][static_cast<size_t>(phase)];
  }

 private:
  std::array<std::array<Request, 2>, static_cast<size_t>(LayerKind::count_)> table_;
};

}  // namespace fovea
