#pragma once
// The routes: paths, methods, and whether they need a key.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fovea::server {

enum class Route : uint8_t {
  health,
  ping,
  version,
  openapi,
  server_info,
  server_state,
  metrics,
  models,
  model,  ///< /v1/models/{id}
  completions,
  chat_completions,
  embeddings,
  responses,
  messages,
  count_tokens,     ///< /v1/messages/count_tokens
  ollama_chat,      ///< /api/chat
  ollama_generate,  ///< /api/generate
  ollama_show,      ///< /api/show
  ollama_tags,      ///< /api/tags
  ollama_ps,        ///< /api/ps
  ollama_version,   ///< /api/version
  tokenize,
  detokenize,
  transcriptions,     ///< /v1/audio/transcriptions
  translations,       ///< /v1/audio/translations
  score,              ///< /v1/score and vLLM's /score
  rerank,             ///< /v1/rerank, Cohere's /v2/rerank and vLLM's /rerank
  ollama_embed,       ///< /api/embed
  ollama_embeddings,  ///< /api/embeddings
  load_lora,          ///< /v1/load_lora_adapter
  unload_lora,        ///< /v1/unload_lora_adapter
};

struct RouteInfo {
  Route route;
  std::string_view path;
  bool post = false;  ///< false: GET and HEAD
  bool open = false;  ///< needs no key
  bool form = false;  ///< the body is a form (multipart/form-data), else JSON
};

/// All routes except /v1/models/{id}. openapi.json describes each; a test checks that the two agree.
std::span<const RouteInfo> routes();
/// Null when the path does not exist.
const RouteInfo* find_route(std::string_view path);
/// The value of the Allow header.
std::string_view allowed_methods(const RouteInfo& route);

inline constexpr std::string_view kModelPrefix = "/v1/models/";

}  // namespace fovea::server
