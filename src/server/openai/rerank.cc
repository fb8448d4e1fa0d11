#include "server/openai/rerank.h"

#include <algorithm>
#include <numeric>

#include "server/openai/json_writer.h"
#include "server/openai/request_body.h"

namespace fovea::openai {
namespace {

using text::Json;

/// The texts under one of two or three names, of which one must be given.
void read_texts(Fields& fields, std::initializer_list<std::string_view> names,
                std::vector<std::string>& out) {
  std::string_view given;
  for (const std::string_view name : names) {
    std::vector<std::string> texts;
    if (!fields.find(name)) continue;
    if (!given.empty())
      return fields.fail(name, std::string(given) + " and " + std::string(name) +
                                   " are both given; they mean the same: give one of them");
    given = name;
    if (!fields.read_string_or_strings(name, texts, kMostPrompts)) continue;
    if (texts.empty()) fields.fail(name, std::string(name) + " is []; it needs at least one text");
    out = std::move(texts);
  }
  if (given.empty())
    fields.fail(*names.begin(),
                std::string(*names.begin()) + " is missing; it must be a string or a list of strings");
}

void read_score(Fields& fields, ScoreRequest& out) {
  fields.read("model", out.model);
  read_texts(fields, {"text_1", "data_1", "queries"}, out.first);
  read_texts(fields, {"text_2", "data_2", "documents"}, out.second);
  int truncated = 0;
  out.truncate = fields.read("truncate_prompt_tokens", truncated, -1, -1);
  if (!fields.error() && out.first.size() != 1 && out.first.size() != out.second.size())
    fields.fail("text_1", "text_1 has " + std::to_string(out.first.size()) + " texts and text_2 has " +
                              std::to_string(out.second.size()) + "; give one text_1, or as many as text_2");
}

void read_document(Fields& fields, const Json& value, const std::string& path, RerankRequest& out) {
  std::string text;
  if (value.string()) {
    text = *value.string();
  } else if (value.object()) {
    Fields document(value, path);
    if (!document.read("text", text)) document.fail("text", path + ".text is missing; it must be a string");
    document.close(false);
    fields.join(document);
  } else {
    fields.fail("documents",
                path + " is " + shown(value) + R"(; it must be a string, or an object with a string "text")");
  }
  out.documents.push_back(std::move(text));
}

void read_rerank(Fields& fields, RerankRequest& out) {
  fields.read("model", out.model);
  if (!fields.read("query", out.query)) fields.fail("query", "query is missing; it must be a string");
  const Json* documents = fields.find("documents");
  if (!documents) {
    fields.fail("documents", "documents is missing; it must be a list of strings");
  } else if (!documents->array() || documents->array()->empty()) {
    fields.refuse("documents", *documents, "a list of at least one string");
  } else if (documents->array()->size() > static_cast<size_t>(kMostPrompts)) {
    fields.fail("documents", "documents has " + std::to_string(documents->array()->size()) +
                                 " entries; at most " + std::to_string(kMostPrompts) +
                                 " are allowed in a request");
  } else {
    for (size_t i = 0; i < documents->array()->size() && !fields.error(); ++i)
      read_document(fields, (*documents->array())[i], "documents[" + std::to_string(i) + "]", out);
  }
  // vLLM's 0 means all.
  if (int most = 0; fields.read("top_n", most, 0) && most > 0) out.top_n = most;
  if (bool repeats = false; fields.read("return_documents", repeats)) out.return_documents = repeats;
  int truncated = 0;
  out.truncate = fields.read("truncate_prompt_tokens", truncated, -1, -1);
}

template <class Request, class Read>
ApiResult<Request> parse_pairs(std::string_view body, UnknownFields unknown, const Read& read) {
  FOVEA_TRY(json, parse_body(body));
  Fields fields(json);
  Request out;
  read(fields, out);
  fields.close();
  if (auto error = fields.outcome(unknown)) return *std::move(error);
  out.ignored = fields.unknown();
  return out;
}

void append_score_head(std::string& out, const ScoreHead& head) {
  out += R"({"id":)";
  append_string(out, head.id);
  out += R"(,"object":"list","created":)";
  append_integer(out, head.created);
  out += R"(,"model":)";
  append_string(out, head.model);
}

void append_tokens(std::string& out, int tokens) {
  out += R"("usage":{"prompt_tokens":)";
  append_integer(out, tokens);
  out += R"(,"total_tokens":)";
  append_integer(out, tokens);
  out += '}';
}

}  // namespace

ApiResult<ScoreRequest> parse_score(std::string_view body, UnknownFields unknown) {
  return parse_pairs<ScoreRequest>(body, unknown, read_score);
}

ApiResult<RerankRequest> parse_rerank(std::string_view body, UnknownFields unknown) {
  return parse_pairs<RerankRequest>(body, unknown, read_rerank);
}

namespace {
template <class Request, class Read>
std::vector<std::string_view> pair_fields_of(const Read& read) {
  const Json empty{Json::Object()};
  Fields fields(empty);
  Request request;
  read(fields, request);
  std::vector<std::string_view> names = fields.asked();
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}
}  // namespace

std::vector<std::string_view> score_fields() {
  return pair_fields_of<ScoreRequest>(read_score);
}

std::vector<std::string_view> rerank_fields() {
  return pair_fields_of<RerankRequest>(read_rerank);
}

std::string score_json(const ScoreHead& head, std::span<const float> scores) {
  std::string out;
  append_score_head(out, head);
  out += R"(,"data":[)";
  for (size_t i = 0; i < scores.size(); ++i) {
    out += i > 0 ? R"(,{"index":)" : R"({"index":)";
    append_integer(out, static_cast<int64_t>(i));
    out += R"(,"object":"score","score":)";
    append_float(out, scores[i]);
    out += '}';
  }
  out += "],";
  append_tokens(out, head.tokens);
  return out + "}";
}

std::string rerank_json(const ScoreHead& head, const RerankRequest& request, std::span<const float> scores,
                        bool with_documents) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(
      order, [&](size_t a, size_t b) { return scores[a] != scores[b] ? scores[a] > scores[b] : a < b; });
  if (request.top_n) order.resize(std::min(order.size(), static_cast<size_t>(*request.top_n)));
  std::string out;
  append_score_head(out, head);
  out += R"(,"results":[)";
  for (const size_t i : order) {
    if (i != order.front()) out += ',';
    out += R"({"index":)";
    append_integer(out, static_cast<int64_t>(i));
    out += R"(,"relevance_score":)";
    append_float(out, scores[i]);
    if (with_documents) {
      out += R"(,"document":{"text":)";
      append_string(out, request.documents[i]);
      out += '}';
    }
    out += '}';
  }
  out += R"(],"meta":{"api_version":{"version":"2"},"billed_units":{"search_units":1}},)";
  append_tokens(out, head.tokens);
  return out + "}";
}

}  // namespace fovea::openai
