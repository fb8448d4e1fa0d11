// The endpoints of other vendors' APIs: their conversations become chats.
#include "server/answer_ids.h"
#include "server/anthropic/request.h"
#include "server/anthropic/writer.h"
#include "server/conversation_steps.h"
#include "server/endpoints.h"
#include "server/responses/request.h"
#include "server/responses/writer.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::bad_request;

std::optional<ApiError> message(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket) {
  const Core& core = reply->core();
  if (auto error = check_chats(core)) return error;
  auto parsed = anthropic::parse_messages(reply->request().body, parse_options(core));
  if (!parsed) return std::move(parsed).error();
  return converse(reply, ticket, *std::move(parsed),
                  [&](const openai::GenerationRequest& request, bool to_context_end) {
                    return anthropic::make_message_writer(
                        {random_id("msg_"), core.answer_name(request.model), to_context_end}, request);
                  });
}

std::optional<ApiError> response(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket) {
  const Core& core = reply->core();
  if (auto error = check_chats(core)) return error;
  auto parsed = responses::parse_responses(reply->request().body, parse_options(core));
  if (!parsed) return std::move(parsed).error();
  return converse(reply, ticket, std::move(parsed->conversation),
                  [&](const openai::GenerationRequest& request, bool) {
                    return responses::make_responses_writer(
                        {random_id(""), core.answer_name(request.model), unix_seconds()},
                        std::move(parsed->echo), request);
                  });
}

std::optional<ApiError> count_tokens(Reply& reply) {
  const Core& core = reply.core();
  if (!core.engine) return bad_request("this model is an encoder, which has no messages");
  if (auto error = check_chats(core)) return error;
  auto parsed = anthropic::parse_messages(reply.request().body, parse_options(core), true);
  if (!parsed) return std::move(parsed).error();
  note_ignored(reply, *parsed);
  if (auto error = check_model(core, parsed->common.model)) return error;
  std::string text;
  if (auto error = render(core, *parsed, text)) return error;
  const auto ids = core.engine->tokenize(text, false);
  if (!ids) return bad_request("this model has no tokenizer");
  reply.respond({200, "application/json", anthropic::count_json(ids->size())});
  return std::nullopt;
}

}  // namespace

void post_message(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint(message, std::move(reply), std::move(ticket));
}

void post_response(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_endpoint(response, std::move(reply), std::move(ticket));
}

void post_count_tokens(Reply& reply) {
  if (auto error = count_tokens(reply)) refuse(reply, *error);
}

}  // namespace fovea::server
