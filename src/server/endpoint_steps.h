#pragma once
// The steps that endpoints share: checks, tokenisation, admission. Each returns an error for the client.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/generation.h"

namespace fovea::server {

/// Answers with the error, and counts it.
void refuse(Reply& reply, const openai::ApiError& error);
/// Logs and reports unknown fields that were ignored (UnknownFields::ignored).
void note_ignored(Reply& reply, const openai::RequestBase& request);

openai::ParseOptions parse_options(const Core& core);
/// The prompt of a chat, with the server's variables of the template where the request has none.
Result<std::string> render_chat(const Core& core, ChatRequest chat);
/// A 404 unless `name` is served, or is that of a LoRA adapter; "" selects the served model.
std::optional<openai::ApiError> check_model(const Core& core, const std::string& name);
/// Without ":latest", which Ollama's clients append to names that have no tag.
std::string untagged(const Core& core, const std::string& name);
/// OpenAI's wording, which clients match. `tokens`: "20", "at least 20".
openai::ApiError too_long(size_t longest, const std::string& tokens, const std::string& what);

/// Stores a prompt's ids, or fails if there are too many. With an encoder-decoder model they are the
/// encoder's input, and the answer begins with the decoder prompt from the model's files.
std::optional<openai::ApiError> take_prompt(const Core& core, const openai::GenerationRequest& request,
                                            std::vector<int32_t> ids, const char* what,
                                            TokenizedPrompt& prompt);
/// Tokenises `text` into `prompt`; a text that is too long is refused before it is fully tokenised.
std::optional<openai::ApiError> tokenize_prompt(const Core& core, const openai::GenerationRequest& request,
                                                std::string_view text, const char* what,
                                                TokenizedPrompt& prompt);
/// Checks the model and the number of answers before tokenisation.
std::optional<openai::ApiError> admit(const Core& core, Admission::Ticket& ticket,
                                      const openai::GenerationRequest& request, size_t prompts);
/// The last step: prompts are tokenised and their lengths checked. `writer`: as Generation::start().
std::optional<openai::ApiError> generate(std::shared_ptr<Reply>& reply,
                                         std::shared_ptr<Admission::Ticket>& ticket, openai::ApiKind kind,
                                         openai::GenerationRequest request,
                                         std::vector<TokenizedPrompt> prompts,
                                         std::unique_ptr<openai::AnswerWriter> writer = nullptr);

using Endpoint = std::optional<openai::ApiError> (*)(std::shared_ptr<Reply>&,
                                                     std::shared_ptr<Admission::Ticket>&);
/// Answers with the endpoint's error, if it has one.
void run_endpoint(Endpoint endpoint, std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket);

}  // namespace fovea::server
