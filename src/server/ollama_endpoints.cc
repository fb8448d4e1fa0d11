// The endpoints of Ollama's API.
#include "server/conversation_steps.h"
#include "server/endpoints.h"
#include "server/ollama/request.h"
#include "server/ollama/writer.h"

namespace fovea::server {
namespace {

using openai::ApiError;

std::optional<ApiError> answer(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket,
                               openai::ApiResult<ollama::OllamaRequest> parsed) {
  const Core& core = reply->core();
  if (!parsed) return std::move(parsed).error();
  std::string& model = parsed->conversation.common.model;
  const ollama::OllamaHead head{model.empty() ? core.served_name() : model, parsed->generates};
  model = untagged(core, model);
  if (auto error = check_model(core, model)) return error;
  if (parsed->only_loads) {
    note_ignored(*reply, parsed->conversation);
    ticket.reset();
    reply->respond({200, "application/json", ollama::loaded_json(head)});
    return std::nullopt;
  }
  if (!parsed->raw)
    if (auto error = check_chats(core)) return error;
  return converse(
      reply, ticket, std::move(parsed->conversation),
      [&](const openai::GenerationRequest& request, bool) { return make_ollama_writer(head, request); },
      parsed->raw ? &parsed->prompt : nullptr);
}

std::optional<ApiError> chat(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket) {
  return answer(reply, ticket, ollama::parse_chat(reply->request().body, parse_options(reply->core())));
}

std::optional<ApiError> generate_text(std::shared_ptr<Reply>& reply,
                                      std::shared_ptr<Admission::Ticket>& ticket) {
  return answer(reply, ticket, ollama::parse_generate(reply->request().body, parse_options(reply->core())));
}

ollama::ModelFacts facts_of(const Core& core) {
  ollama::ModelFacts facts;
  facts.created = core.created;
  facts.max_seq_len = core.max_seq_len();
  facts.generates = core.engine != nullptr;
  facts.family = core.engine ? core.engine->info().architecture : core.embedder->info().architecture;
  if (!core.engine) return facts;
  facts.bytes = core.engine->info().weight_bytes;
  facts.quantization = to_string(core.engine->info().dtype);
  facts.tools = core.engine->has_chat_template() && core.formats.tools != openai::ToolFormat::none;
  facts.thinks = !core.formats.think_end.empty() || core.formats.tools == openai::ToolFormat::harmony;
  return facts;
}

}  // namespace

void post_ollama_chat(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint(chat, std::move(reply), std::move(ticket));
}

void post_ollama_generate(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint(generate_text, std::move(reply), std::move(ticket));
}

void post_ollama_show(Reply& reply) {
  const Core& core = reply.core();
  const auto name = ollama::parse_show(reply.request().body);
  if (!name) return refuse(reply, name.error());
  if (const auto error = check_model(core, untagged(core, *name))) return refuse(reply, *error);
  reply.respond({200, "application/json",
                 ollama::show_json(name->empty() ? core.served_name() : *name, facts_of(core))});
}

void get_ollama_models(Reply& reply, bool running) {
  const Core& core = reply.core();
  reply.respond({200, "application/json", ollama::models_json(core.model_names(), facts_of(core), running)});
}

}  // namespace fovea::server
