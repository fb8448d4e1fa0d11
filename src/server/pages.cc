#include "server/pages.h"

#include <nlohmann/json.hpp>

#include "base/embedded_file.h"
#include "server/openai/error.h"

namespace fovea::server {

namespace api {
std::span<const EmbeddedFile> embedded_files();
}

namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string version_json(std::string_view version) {
  return dump({{"version", version}});
}

std::string loading_json(double weights, double seconds) {
  Json out = Json::parse(
      openai::error_json({503, "the model is being loaded; try again later", "", "loading"}), nullptr, false);
  out["loading"] = {{"weights", weights}, {"seconds", seconds}};
  return dump(out);
}

std::string openapi_json(std::string_view version) {
  Json out = Json::parse(api::embedded_files()[0].text);
  out["info"]["version"] = version;
  return dump(out);
}

std::string server_info_json(const std::string& fixed, const EngineStats* stats, int in_flight, int waiting,
                             const http::ConnectionCounts& connections) {
  Json out = Json::parse(fixed, nullptr, false);
  if (!out.is_object()) out = Json::object();
  out["requests"] = {{"in_flight", in_flight}, {"waiting", waiting}};
  out["connections"] = {
      {"open", connections.open}, {"refused", connections.refused}, {"evicted", connections.evicted}};
  if (stats != nullptr)
    out["engine"] = {{"running", stats->running},
                     {"waiting", stats->waiting},
                     {"steps", stats->steps},
                     {"prefill_tokens", stats->prefill_tokens},
                     {"decode_tokens", stats->decode_tokens},
                     {"busy_seconds", stats->busy_seconds},
                     {"preemptions", stats->preemptions},
                     {"prefix_queries", stats->prefix_queries},
                     {"prefix_hits", stats->prefix_hits},
                     {"pages",
                      {{"total", stats->pages_total},
                       {"free", stats->pages_free},
                       {"cached", stats->pages_cached},
                       {"in_use", stats->pages_in_use}}}};
  return dump(out);
}

}  // namespace fovea::server
