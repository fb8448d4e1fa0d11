#include "server/routes.h"

namespace fovea::server {
namespace {

using enum Route;

// Routes need a key by default, so that a new path is never open by omission.
constexpr RouteInfo kRoutes[] = {
    {.route = health, .path = "/health", .open = true},
    {.route = ping, .path = "/ping", .open = true},
    {.route = version, .path = "/version"},
    {.route = openapi, .path = "/openapi.json"},
    {.route = server_info, .path = "/server_info"},
    {.route = server_state, .path = "/server_state"},
    {.route = metrics, .path = "/metrics"},
    {.route = models, .path = "/v1/models"},
    {.route = completions, .path = "/v1/completions", .post = true},
    {.route = chat_completions, .path = "/v1/chat/completions", .post = true},
    {.route = embeddings, .path = "/v1/embeddings", .post = true},
    {.route = score, .path = "/v1/score", .post = true},
    {.route = score, .path = "/score", .post = true},
    {.route = rerank, .path = "/v1/rerank", .post = true},
    {.route = rerank, .path = "/v2/rerank", .post = true},
    {.route = rerank, .path = "/rerank", .post = true},
    {.route = transcriptions, .path = "/v1/audio/transcriptions", .post = true, .form = true},
    {.route = translations, .path = "/v1/audio/translations", .post = true, .form = true},
    {.route = responses, .path = "/v1/responses", .post = true},
    {.route = messages, .path = "/v1/messages", .post = true},
    {.route = count_tokens, .path = "/v1/messages/count_tokens", .post = true},
    {.route = ollama_chat, .path = "/api/chat", .post = true},
    {.route = ollama_generate, .path = "/api/generate", .post = true},
    {.route = ollama_embed, .path = "/api/embed", .post = true},
    {.route = ollama_embeddings, .path = "/api/embeddings", .post = true},
    {.route = ollama_show, .path = "/api/show", .post = true},
    {.route = ollama_tags, .path = "/api/tags"},
    {.route = ollama_ps, .path = "/api/ps"},
    {.route = ollama_version, .path = "/api/version"},
    {.route = tokenize, .path = "/tokenize", .post = true},
    {.route = detokenize, .path = "/detokenize", .post = true},
    {.route = load_lora, .path = "/v1/load_lora_adapter", .post = true},
    {.route = unload_lora, .path = "/v1/unload_lora_adapter", .post = true},
};
constexpr RouteInfo kModel = {.route = model, .path = kModelPrefix};

}  // namespace

std::span<const RouteInfo> routes() {
  return kRoutes;
}

const RouteInfo* find_route(std::string_view path) {
  for (const RouteInfo& route : kRoutes)
    if (path == route.path) return &route;
  return path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size() ? &kModel : nullptr;
}

std::string_view allowed_methods(const RouteInfo& route) {
  return route.post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
}

}  // namespace fovea::server
