// The endpoints of encoders: embeddings, and scores of pairs of texts.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "server/answer_ids.h"
#include "server/endpoint_steps.h"
#include "server/endpoints.h"
#include "server/ollama/embed.h"
#include "server/openai/answer_size.h"
#include "server/openai/rerank.h"
#include "server/openai/response.h"

namespace fovea::server {
namespace {

using openai::ApiError;
using openai::ApiResult;
using openai::bad_request;
using Ids = std::vector<int32_t>;
using Vectors = std::vector<std::vector<float>>;

constexpr size_t kSlice = 64;  // inputs between two checks for a client disconnect
/// The client has disconnected: there is nobody to answer.
constexpr int kGone = 499;

/// A text's ids, as Embedder::tokenize().
ApiResult<Ids> tokenize(const Core& core, std::string_view text, bool truncate, const std::string& what) {
  const Embedder& embedder = *core.embedder;
  size_t at_least = 0;
  auto ids = embedder.tokenize(text, truncate, &at_least);
  if (at_least > 0)
    return too_long(static_cast<size_t>(embedder.info().max_seq_len), "at least " + std::to_string(at_least),
                    what);
  if (!ids) return bad_request(ids.error().message, what);
  if (const Status fits = embedder.check(*ids); !fits) return bad_request(fits.error().message, what);
  return *std::move(ids);
}

/// Checks before any input is computed; `tokens` of all of them.
std::optional<ApiError> admit_tokens(Admission::Ticket& ticket, int64_t tokens) {
  const auto verdict = ticket.set_prompt_tokens(tokens);
  if (verdict != Admission::Verdict::admitted) return overloaded(verdict);
  return std::nullopt;
}

/// compute(part) for slices of `inputs`, one after the other; its results in order.
template <class Out, class In, class Compute>
ApiResult<std::vector<Out>> in_slices(const Reply& reply, const std::vector<In>& inputs,
                                      const Compute& compute) {
  std::vector<Out> out;
  for (size_t at = 0; at < inputs.size(); at += kSlice) {
    if (reply.done()) return ApiError{kGone, "", "", ""};
    if (reply.core().aborted.load()) return shutting_down();
    auto part = compute(std::span(inputs).subspan(at, std::min(kSlice, inputs.size() - at)));
    if (!part) return error_of(part.error());
    std::ranges::move(*part, std::back_inserter(out));
  }
  return out;
}

ApiResult<Vectors> embed(const Reply& reply, const std::vector<Ids>& inputs) {
  return in_slices<std::vector<float>>(
      reply, inputs, [&](std::span<const Ids> part) { return reply.core().embedder->embed(part); });
}

int64_t total(const std::vector<Ids>& inputs) {
  return std::accumulate(inputs.begin(), inputs.end(), int64_t{0},
                         [](int64_t sum, const Ids& ids) { return sum + static_cast<int64_t>(ids.size()); });
}

std::optional<ApiError> check_dimensions(const Core& core, std::optional<int> asked) {
  const int dimensions = core.embedder->info().dimensions;
  if (!asked || *asked == dimensions) return std::nullopt;
  return bad_request(
      "dimensions is " + std::to_string(*asked) + "; this model's are " + std::to_string(dimensions),
      "dimensions");
}

/// Reserves the memory of an answer of embeddings; sets `share`.
std::optional<ApiError> reserve(const Core& core, size_t inputs, bool base64,
                                std::shared_ptr<AnswerShare>& share) {
  const int dimensions = core.embedder->info().dimensions;
  const int64_t bytes = openai::embeddings_size(inputs, dimensions, base64);
  if (bytes > core.config.max_answer_bytes)
    return answer_too_large(core, bytes,
                            std::to_string(inputs) + " inputs, " + std::to_string(dimensions) +
                                " dimensions, encoding_format " + (base64 ? "base64" : "float"),
                            "input");
  share = std::make_shared<AnswerShare>(core.answers);
  if (!share->grow(bytes)) return answers_full();
  return std::nullopt;
}

std::optional<ApiError> embedding(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket) {
  const Core& core = reply->core();
  auto parsed = openai::parse_embedding(reply->request().body, core.config.unknown_fields);
  if (!parsed) return std::move(parsed).error();
  note_ignored(*reply, *parsed);
  if (auto error = check_model(core, parsed->model)) return error;
  if (auto error = check_dimensions(core, parsed->dimensions)) return error;
  std::shared_ptr<AnswerShare> share;
  if (auto error = reserve(core, parsed->inputs.size(), parsed->base64, share)) return error;
  const auto longest = static_cast<size_t>(core.embedder->info().max_seq_len);
  std::vector<Ids> inputs;
  for (openai::Prompt& given : parsed->inputs) {
    if (const auto* text = std::get_if<std::string>(&given)) {
      auto ids = tokenize(core, *text, parsed->truncate, "input");
      if (!ids) return std::move(ids).error();
      inputs.push_back(*std::move(ids));
      continue;
    }
    Ids ids = std::move(std::get<Ids>(given));
    if (parsed->truncate) ids.resize(std::min(ids.size(), longest));
    if (ids.size() > longest) return too_long(longest, std::to_string(ids.size()), "input");
    if (const Status fits = core.embedder->check(ids); !fits)
      return bad_request(fits.error().message, "input");
    inputs.push_back(std::move(ids));
  }
  const int64_t tokens = total(inputs);
  if (auto error = admit_tokens(*ticket, tokens)) return error;
  auto vectors = embed(*reply, inputs);
  if (!vectors) return std::move(vectors).error();
  ticket.reset();  // before the client can send its next request
  reply->respond(
      {200,
       "application/json",
       openai::embeddings_json(core.served_name(), *vectors, parsed->base64, static_cast<int>(tokens)),
       {},
       share});
  return std::nullopt;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0, of_a = 0, of_b = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    dot += x * y;
    of_a += x * x;
    of_b += y * y;
  }
  const double lengths = std::sqrt(of_a) * std::sqrt(of_b);
  return lengths > 0 ? dot / lengths : 0;
}

/// Two texts and the names of their fields, for errors.
struct Pair {
  std::string_view first, second;
};
struct Scores {
  std::vector<float> values;
  int tokens = 0;
};

/// Each text is embedded once, however often it occurs.
ApiResult<Scores> compare(const Reply& reply, Admission::Ticket& ticket, const std::vector<Pair>& pairs,
                          bool truncate, const Pair& names) {
  std::map<std::string_view, size_t> index;
  std::vector<Ids> inputs;
  std::optional<ApiError> error;
  const auto add = [&](std::string_view text, std::string_view name) {
    if (error || !index.emplace(text, inputs.size()).second) return;
    auto ids = tokenize(reply.core(), text, truncate, std::string(name));
    if (ids)
      inputs.push_back(*std::move(ids));
    else
      error = std::move(ids).error();
  };
  for (const Pair& pair : pairs) {
    add(pair.first, names.first);
    add(pair.second, names.second);
  }
  if (error) return *std::move(error);
  const int64_t tokens = total(inputs);
  if (auto refused = admit_tokens(ticket, tokens)) return *std::move(refused);
  auto vectors = embed(reply, inputs);
  if (!vectors) return std::move(vectors).error();
  Scores out{{}, static_cast<int>(tokens)};
  for (const Pair& pair : pairs)
    out.values.push_back(
        static_cast<float>(cosine((*vectors)[index.at(pair.first)], (*vectors)[index.at(pair.second)])));
  return out;
}

/// By the model's classification head.
ApiResult<Scores> classify(const Reply& reply, Admission::Ticket& ticket, const std::vector<Pair>& pairs,
                           bool truncate, const Pair& names) {
  Embedder& embedder = *reply.core().embedder;
  std::vector<TextPair> inputs;
  int64_t tokens = 0;
  for (const Pair& pair : pairs) {
    size_t at_least = 0;
    auto input = embedder.tokenize_pair(pair.first, pair.second, truncate, &at_least);
    if (at_least > 0)
      return too_long(static_cast<size_t>(embedder.info().max_seq_len),
                      "at least " + std::to_string(at_least),
                      std::string(names.first) + " and " + std::string(names.second));
    if (!input) return bad_request(input.error().message);
    tokens += static_cast<int64_t>(input->ids.size());
    inputs.push_back(*std::move(input));
  }
  if (auto refused = admit_tokens(ticket, tokens)) return *std::move(refused);
  auto scores =
      in_slices<float>(reply, inputs, [&](std::span<const TextPair> part) { return embedder.score(part); });
  if (!scores) return std::move(scores).error();
  return Scores{*std::move(scores), static_cast<int>(tokens)};
}

ApiResult<Scores> score_pairs(const Reply& reply, Admission::Ticket& ticket, const std::vector<Pair>& pairs,
                              bool truncate, const Pair& names) {
  const int labels = reply.core().embedder->info().labels;
  if (labels > 1)
    return bad_request("this model's classification head has " + std::to_string(labels) +
                       " outputs; scores need a model with 1 (a reranker), or an embedding model");
  return labels == 1 ? classify(reply, ticket, pairs, truncate, names)
                     : compare(reply, ticket, pairs, truncate, names);
}

openai::ScoreHead head_of(const Core& core, const char* prefix, int tokens) {
  return {random_id(prefix), core.served_name(), unix_seconds(), tokens};
}

std::optional<ApiError> score(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket) {
  const Core& core = reply->core();
  auto parsed = openai::parse_score(reply->request().body, core.config.unknown_fields);
  if (!parsed) return std::move(parsed).error();
  note_ignored(*reply, *parsed);
  if (auto error = check_model(core, parsed->model)) return error;
  std::vector<Pair> pairs;
  for (size_t i = 0; i < parsed->second.size(); ++i)
    pairs.push_back({parsed->first[parsed->first.size() == 1 ? 0 : i], parsed->second[i]});
  auto scores = score_pairs(*reply, *ticket, pairs, parsed->truncate, {"text_1", "text_2"});
  if (!scores) return std::move(scores).error();
  ticket.reset();  // before the client can send its next request
  reply->respond(
      {200, "application/json", openai::score_json(head_of(core, "score-", scores->tokens), scores->values)});
  return std::nullopt;
}

std::optional<ApiError> rerank(std::shared_ptr<Reply>& reply, std::shared_ptr<Admission::Ticket>& ticket) {
  const Core& core = reply->core();
  auto parsed = openai::parse_rerank(reply->request().body, core.config.unknown_fields);
  if (!parsed) return std::move(parsed).error();
  note_ignored(*reply, *parsed);
  if (auto error = check_model(core, parsed->model)) return error;
  // Cohere's API cuts long documents, and does not repeat them; vLLM's and Jina's repeat them.
  const bool cohere = reply->request().path.starts_with("/v2/");
  const bool with_documents = parsed->return_documents.value_or(!cohere);
  const auto share = std::make_shared<AnswerShare>(core.answers);
  if (!share->grow(static_cast<int64_t>(with_documents ? reply->request().body.size() : 0)))
    return answers_full();
  std::vector<Pair> pairs;
  for (const std::string& document : parsed->documents)
    pairs.push_back({parsed->query, document});
  auto scores = score_pairs(*reply, *ticket, pairs, parsed->truncate || cohere, {"query", "documents"});
  if (!scores) return std::move(scores).error();
  ticket.reset();  // before the client can send its next request
  reply->respond(
      {200,
       "application/json",
       openai::rerank_json(head_of(core, "rerank-", scores->tokens), *parsed, scores->values, with_documents),
       {},
       share});
  return std::nullopt;
}

void normalise(std::vector<float>& vector) {
  double squares = 0;
  for (const float x : vector)
    squares += static_cast<double>(x) * static_cast<double>(x);
  if (squares == 0) return;
  for (float& x : vector)
    x = static_cast<float>(static_cast<double>(x) / std::sqrt(squares));
}

std::optional<ApiError> ollama_embed(std::shared_ptr<Reply>& reply,
                                     std::shared_ptr<Admission::Ticket>& ticket, bool older) {
  const auto arrival = std::chrono::steady_clock::now();
  const Core& core = reply->core();
  auto parsed =
      older ? ollama::parse_embeddings(reply->request().body) : ollama::parse_embed(reply->request().body);
  if (!parsed) return std::move(parsed).error();
  note_ignored(*reply, *parsed);
  const std::string model = parsed->model.empty() ? core.served_name() : parsed->model;
  if (auto error = check_model(core, untagged(core, model))) return error;
  if (auto error = check_dimensions(core, parsed->dimensions)) return error;
  std::shared_ptr<AnswerShare> share;
  if (auto error = reserve(core, parsed->inputs.size(), false, share)) return error;
  std::vector<Ids> inputs;
  for (const std::string& text : parsed->inputs) {
    auto ids = tokenize(core, text, parsed->truncate, older ? "prompt" : "input");
    if (!ids) return std::move(ids).error();
    inputs.push_back(*std::move(ids));
  }
  const int64_t tokens = total(inputs);
  if (auto error = admit_tokens(*ticket, tokens)) return error;
  auto vectors = embed(*reply, inputs);
  if (!vectors) return std::move(vectors).error();
  if (!older)
    for (std::vector<float>& vector : *vectors)
      normalise(vector);
  ticket.reset();  // before the client can send its next request
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - arrival;
  reply->respond({200,
                  "application/json",
                  older ? ollama::embedding_json(vectors->empty() ? std::vector<float>() : vectors->front())
                        : ollama::embed_json(model, *vectors, tokens, taken),
                  {},
                  share});
  return std::nullopt;
}

/// As run_endpoint(), for clients that may have disconnected.
void run_for(Endpoint endpoint, std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  const auto error = endpoint(reply, ticket);
  ticket.reset();  // before the client can send its next request
  if (error && error->status != kGone) refuse(*reply, *error);
}

}  // namespace

void post_embedding(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_for(embedding, std::move(reply), std::move(ticket));
}

void post_score(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_for(score, std::move(reply), std::move(ticket));
}

void post_rerank(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_for(rerank, std::move(reply), std::move(ticket));
}

void post_ollama_embed(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_for([](auto& to, auto& held) { return ollama_embed(to, held, false); }, std::move(reply),
          std::move(ticket));
}

void post_ollama_embeddings(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket) {
  run_for([](auto& to, auto& held) { return ollama_embed(to, held, true); }, std::move(reply),
          std::move(ticket));
}

}  // namespace fovea::server
