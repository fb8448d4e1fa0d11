#pragma once
// The endpoints with a request body. Each runs on the calling thread.
#include <memory>

#include "server/reply.h"

namespace fovea::server {

void post_completion(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_chat_completion(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_embedding(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);
void post_tokenize(Reply& reply);
void post_detokenize(Reply& reply);

/// A 404 unless `name` is served; "" selects the served model.
std::optional<openai::ApiError> check_model(const Core& core, const std::string& name);

}  // namespace fovea::server
