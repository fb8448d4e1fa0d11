#pragma once
// Backend requests of the user for each phase of each kind of layers: the grammar of backend settings.
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/selection_context.h"
#include "fovea/attention_config.h"

namespace fovea {

struct BackendRequest {
  std::string name;  ///< empty = automatic
  std::string from;  ///< the setting that requests it; empty = none
  /// The setting names this phase explicitly. A setting without a phase may select two backends, for an MLA
  /// model or for a backend that only decodes.
  bool of_phase = false;
  std::string note = {};  ///< reported with the choice
};

class Requests {
 public:
  /// The setting that contains a name.
  enum class Place : uint8_t { backend, prefill_backend, decode_backend, backend_per_kind };

  /// One name, and the phases and kinds of layers that it applies to.
  struct Item {
    std::optional<LayerKind> kind;
    std::optional<Phase> phase;
    std::string name;  ///< empty = automatic
    std::string from;
    std::string given;  ///< the setting's value, as written
    std::string note = {};
    Place place = Place::backend;
    bool listed = false;  ///< as KEY=NAME

    bool covers(LayerKind k, Phase p) const { return (!kind || *kind == k) && (!phase || *phase == p); }
    /// The more specific setting wins: KIND.phase over KIND over phase over all.
    int exactness() const { return (kind ? 2 : 0) + (phase ? 1 : 0); }
    /// "prefill", "sliding_window", "sliding_window.decode"; empty = all.
    std::string key() const;
  };

  /// Reads all settings that name backends. `kinds` are the model's layer kinds; a setting that names no kind
  /// applies to those with softmax, if there are any. Errors: settings that do not parse or that contradict
  /// each other, kinds that the model lacks. Names are looked up only to compare them.
  static Result<Requests> read(const AttentionConfig& config, std::span<const LayerKind> kinds,
                               const BackendRegistry& registry);

  const BackendRequest& of(LayerKind kind, Phase phase) const {
    return table_[static_cast<size_t>(kind)][static_cast<size_t>(phase)];
  }

  /// All backend names in the settings, also in settings with no effect; without "auto".
  std::vector<std::string> names() const;

  /// Whether both phases of `kind` get their backend from the same setting, or both from none.
  bool together(LayerKind kind, Phase phase) const;

  /// The setting that makes `name` the backend of `phase` of `kind` (with `both`, of the other phase too) and
  /// is compatible with all other settings: "--attention-backend fa2". It replaces the setting of its name.
  std::string change(LayerKind kind, Phase phase, bool both, const std::string& name) const;

 private:
  const Item* best(LayerKind kind, Phase phase) const;
  std::string changed_list(LayerKind kind, Phase phase, bool both, const std::string& name) const;

  std::vector<Item> items_;
  size_t kinds_ = 0;
  bool only_linear_ = false;
  std::array<std::array<BackendRequest, 2>, static_cast<size_t>(LayerKind::count_)> table_;
};

}  // namespace fovea
