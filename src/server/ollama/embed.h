#pragma once
// Ollama's embeddings: /api/embed, and the older /api/embeddings.
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/request.h"

namespace fovea::ollama {

struct EmbedRequest : openai::RequestBase {
  std::string model;
  std::vector<std::string> inputs;
  bool truncate = true;
  std::optional<int> dimensions;
};

/// /api/embed: "input", a string or a list of strings. Unknown fields and options are ignored and listed.
openai::ApiResult<EmbedRequest> parse_embed(std::string_view body);
/// /api/embeddings: "prompt", one text.
openai::ApiResult<EmbedRequest> parse_embeddings(std::string_view body);

std::string embed_json(const std::string& model, const std::vector<std::vector<float>>& vectors,
                       int64_t tokens, std::chrono::nanoseconds taken);
std::string embedding_json(const std::vector<float>& vector);

}  // namespace fovea::ollama
