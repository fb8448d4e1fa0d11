#pragma once
// The endpoints with a request body. Each runs on the calling thread.
#include <memory>

#include "server/reply.h"

namespace fovea::server {

void post_completion(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_chat_completion(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_message(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_response(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_ollama_chat(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_ollama_generate(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_embedding(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_score(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_rerank(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_ollama_embed(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
/// The older path, for one text.
void post_ollama_embeddings(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_transcription(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_translation(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_count_tokens(Reply& reply);
void post_ollama_show(Reply& reply);
/// /api/tags; with `running`, /api/ps.
void get_ollama_models(Reply& reply, bool running);
void post_tokenize(Reply& reply);
void post_detokenize(Reply& reply);
void post_load_lora(Reply& reply);
void post_unload_lora(Reply& reply);
/// /v1/models, in OpenAI's form, and one of its entries, which exists.
std::string models_json(const Core& core);
std::string model_json(const Core& core, const std::string& name);

}  // namespace fovea::server
