#pragma once
// What the user asked of each phase of each kind of layers: the grammar of backend settings.
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attention/selection_context.h"

namespace fovea {

struct Request {
  std::string name;  ///< empty = automatic
  std::string from;  ///< the setting that says so; empty when none does
  /// The setting names this phase: it is no general preference, which an MLA model or a backend that only
  /// decodes answers with two backends.
  bool of_phase = false;
  std::string note = {};  ///< to be told with the choice
};

class Requests {
 public:
  /// Where a name stands.
  enum class Place : uint8_t { backend, prefill_backend, decode_backend, backend_per_kind };

  /// One name, for the phases and kinds of layers that it is meant for.
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
    /// The more exact wins: KIND.phase over KIND over phase over all.
    int exactness() const { return (kind ? 2 : 0) + (phase ? 1 : 0); }
    /// "prefill", "sliding_window", "sliding_window.decode"; empty = all.
    std::string key() const;
  };

  /// Reads all settings that name backends. `kinds` are those that the model has; a setting that names no
  /// kind is about those with softmax, where there are any. Errors: what does not parse, settings that
  /// contradict, kinds that the model lacks. Names are not looked up but to compare them.
  static Result<Requests> read(const AttentionConfig& config, std::span<const LayerKind> kinds,
                               const BackendRegistry& registry);

  const Request& of(LayerKind kind, Phase phase) const {
    return table_[static_cast<size_t>(kind)][static_cast<size_t>(phase)];
  }

  /// All names that the settings have, whether they come to something or not; "auto" is none.
  std::vector<std::string> names() const;

  /// The other phase of `kind` gets its backend from the same setting, or from none as this one.
  bool together(LayerKind kind, Phase phase) const;

  /// The setting that makes `name` the backend of `phase` of `kind`, of its other phase too with `both`, and
  /// that goes together with all others: "--attention-backend fa2". It replaces the one of its name.
  std::string change(LayerKind kind, Phase phase, bool both, const std::string& name) const;

 private:
  const Item* best(LayerKind kind, Phase phase) const;
  std::string changed_list(LayerKind kind, Phase phase, bool both, const std::string& name) const;

  std::vector<Item> items_;
  size_t kinds_ = 0;
  bool only_linear_ = false;
  std::array<std::array<Request, 2>, static_cast<size_t>(LayerKind::count_)> table_;
};

}  // namespace fovea
