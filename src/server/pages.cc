#include "server/pages.h"

#include <nlohmann/json.hpp>

namespace fovea::server {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string version_json(std::string_view version) {
  return dump({{"version", version}});
}

std::string server_info_json(const std::string& fixed, const EngineStats* stats, int in_flight, int waiting) {
  Json out = Json::parse(fixed, nullptr, false);
  if (!out.is_object()) out = Json::object();
  out["requests"] = {{"in_flight", in_flight}, {"waiting", waiting}};
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

std::string tokenize_json(std::span<const int32_t> ids, int max_model_len,
                          const std::vector<std::string>* words) {
  Json out = {{"count", ids.size()}, {"max_model_len", max_model_len}, {"tokens", ids}};
  out["token_strs"] = words != nullptr ? Json(*words) : Json(nullptr);
  return dump(out);
}

std::string detokenize_json(std::string_view text) {
  return dump({{"prompt", text}});
}

}  // namespace fovea::server
