#pragma once
// The result of `fovea explain`, independent of its output format.
#include <optional>
#include <string>
#include <vector>

#include "cli/tuning.h"
#include "fovea/embed.h"
#include "model/attention_shapes.h"

namespace fovea::cli {

struct Explanation {
  std::string model;  ///< as given
  AttentionShapes shapes;
  DeviceInfo device;
  std::string device_from;  ///< "--device sm90", "this machine"
  std::vector<FlagNote> notes;
  std::vector<EnvironmentNote> environment;
  Tuning tuning;  ///< of a CUDA device
  SpeculativeConfig speculative;
  Selection selection;  ///< has no kinds if the model has no attention layers

  /// The error that the command exits with: refused flags, phases without a backend.
  Status status() const;
};

Result<Explanation> make_explanation(const ExplainFlags& flags);
/// Explains `flags` on `device`; `device_from` as in Explanation. `gpu`: the device's index, for a tune file.
Result<Explanation> make_explanation(const ModelFlags& flags, const DeviceInfo& device,
                                     std::string device_from, int gpu = 0);

/// Properties of a model that takes audio, for the playground.
struct AudioFacts {
  int window_seconds = 0;
  bool timestamps = false;  ///< its transcripts can have times
};

/// Human-readable text.
std::string explanation_text(const Explanation& explanation);
/// One JSON object; docs/explain.md has its schema.
std::string explanation_json(const Explanation& explanation);
/// The same with "effective": the values that the engine resolved.
std::string server_info_json(const Explanation& explanation, const EngineInfo& info,
                             const std::optional<AudioFacts>& audio = {});
std::string server_info_json(const Explanation& explanation, const EmbedInfo& info);

}  // namespace fovea::cli
