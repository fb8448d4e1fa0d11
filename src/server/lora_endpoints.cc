// LoRA adapters: /v1/load_lora_adapter, /v1/unload_lora_adapter, and their entries of /v1/models.
#include "base/log.h"
#include "server/endpoint_steps.h"
#include "server/endpoints.h"
#include "server/openai/lora_request.h"
#include "server/text.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::bad_request;

std::optional<ApiError> check_allowed(const Core& core) {
  if (!core.engine) return bad_request("this model is an encoder, which has no LoRA adapters");
  if (core.config.lora_updates) return std::nullopt;
  return ApiError{403,
                  "adapters can't be loaded or unloaded while the server runs; start it with "
                  "--allow-lora-updating, or with --lora-modules NAME=PATH",
                  "", "lora_updating_disabled"};
}

ApiError refusal(const Error& error, const char* param) {
  if (error.code == ErrorCode::out_of_memory) return out_of_memory();
  if (error.code == ErrorCode::not_found) return {404, error.message, param, "adapter_not_found"};
  return bad_request(error.message, param);
}

void succeed(Reply& reply, const std::string& name, const char* what) {
  FOVEA_LOG(info) << escaped(reply.request().id) << " LoRA adapter " << escaped(name) << " " << what;
  reply.respond(
      {200, "text/plain; charset=utf-8", "Success: LoRA adapter '" + name + "' " + what + " successfully."});
}

std::optional<ApiError> load(Reply& reply) {
  Core& core = reply.core();
  if (auto error = check_allowed(core)) return error;
  auto parsed = openai::parse_load_lora(reply.request().body, core.config.unknown_fields);
  if (!parsed) return std::move(parsed).error();
  note_ignored(reply, *parsed);
  if (core.is_served(parsed->name))
    return bad_request("lora_name is the model's own name; give the adapter another one", "lora_name");
  if (const Status loaded = core.engine->load_lora({parsed->name, parsed->path}); !loaded)
    return refusal(loaded.error(), "lora_path");
  succeed(reply, parsed->name, "added");
  return std::nullopt;
}

std::optional<ApiError> unload(Reply& reply) {
  Core& core = reply.core();
  if (auto error = check_allowed(core)) return error;
  auto parsed = openai::parse_unload_lora(reply.request().body, core.config.unknown_fields);
  if (!parsed) return std::move(parsed).error();
  note_ignored(reply, *parsed);
  if (const Status unloaded = core.engine->unload_lora(parsed->name); !unloaded)
    return refusal(unloaded.error(), "lora_name");
  succeed(reply, parsed->name, "removed");
  return std::nullopt;
}

std::vector<openai::ModelCard> cards_of(const Core& core) {
  std::vector<openai::ModelCard> cards;
  for (const std::string& name : core.config.served_names)
    cards.push_back({name, core.created, ""});
  if (!core.engine) return cards;
  for (const LoraInfo& lora : core.engine->loras())
    cards.push_back({lora.name, lora.created, core.served_name()});
  return cards;
}

}  // namespace

void post_load_lora(Reply& reply) {
  if (auto error = load(reply)) refuse(reply, *error);
}

void post_unload_lora(Reply& reply) {
  if (auto error = unload(reply)) refuse(reply, *error);
}

std::string models_json(const Core& core) {
  return openai::models_json(cards_of(core), core.max_seq_len());
}

std::string model_json(const Core& core, const std::string& name) {
  for (const openai::ModelCard& card : cards_of(core))
    if (card.name == name) return openai::model_json(card, core.max_seq_len());
  return openai::model_json({name, core.created, ""}, core.max_seq_len());
}

}  // namespace fovea::server
