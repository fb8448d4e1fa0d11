#pragma once
// Answers of Ollama's API.
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/answer_writer.h"

namespace fovea::ollama {

/// The release whose API this is: clients refuse to talk to old ones.
inline constexpr std::string_view kVersion = "0.12.0";

struct OllamaHead {
  std::string model;       ///< as the request names it
  bool generates = false;  ///< OllamaRequest's
  std::chrono::steady_clock::time_point arrival = std::chrono::steady_clock::now();
};

std::unique_ptr<openai::AnswerWriter> make_ollama_writer(const OllamaHead& head,
                                                         const openai::GenerationRequest& request);
/// The answer to a request that only loads the model.
std::string loaded_json(const OllamaHead& head);

/// What the lists of models say of a model.
struct ModelFacts {
  std::string family, quantization;
  int64_t bytes = 0;  ///< of the weights
  int64_t created = 0;
  int max_seq_len = 0;
  bool generates = true, tools = false, thinks = false;
};
/// /api/tags and, with `running`, /api/ps.
std::string models_json(std::span<const std::string> names, const ModelFacts& facts, bool running);
/// /api/show of the model `name`.
std::string show_json(std::string_view name, const ModelFacts& facts);

}  // namespace fovea::ollama
