#pragma once
// Scores of pairs of texts: vLLM's /v1/score, and the /v1/rerank of Cohere, Jina and vLLM.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/request.h"

namespace fovea::openai {

struct ScoreRequest : RequestBase {
  std::string model;
  /// As many of each, or one first: a pair each.
  std::vector<std::string> first, second;
  bool truncate = false;
};

struct RerankRequest : RequestBase {
  std::string model;
  std::string query;
  std::vector<std::string> documents;  ///< at least one
  std::optional<int> top_n;            ///< nullopt = all
  std::optional<bool> return_documents;
  bool truncate = false;
};

/// text_1 and text_2 (also data_1 and data_2, queries and documents): strings or lists of strings.
ApiResult<ScoreRequest> parse_score(std::string_view body, UnknownFields unknown = UnknownFields::refused);
/// `documents`: strings, or objects with a "text".
ApiResult<RerankRequest> parse_rerank(std::string_view body, UnknownFields unknown = UnknownFields::refused);

/// The fields that each reads, for read_fields().
std::vector<std::string_view> score_fields();
std::vector<std::string_view> rerank_fields();

struct ScoreHead {
  std::string id, model;
  int64_t created = 0;
  int tokens = 0;
};
std::string score_json(const ScoreHead& head, std::span<const float> scores);

/// The documents in descending order of their scores, those with equal scores in the request's order; the
/// first `top_n`. `with_documents`: the answer repeats their texts.
std::string rerank_json(const ScoreHead& head, const RerankRequest& request, std::span<const float> scores,
                        bool with_documents);

}  // namespace fovea::openai
