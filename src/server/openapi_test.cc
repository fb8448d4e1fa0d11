// openapi.json describes exactly what the routes and the parsers accept.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "server/anthropic/request.h"
#include "server/ollama/embed.h"
#include "server/ollama/request.h"
#include "server/openai/field_table.h"
#include "server/openai/lora_request.h"
#include "server/openai/request.h"
#include "server/openai/request_body.h"
#include "server/openai/rerank.h"
#include "server/openai/transcription.h"
#include "server/pages.h"
#include "server/responses/request.h"
#include "server/routes.h"

namespace fovea::server {
namespace {

using Json = nlohmann::json;
using Names = std::set<std::string>;

class OpenApi : public testing::Test {
 protected:
  const Json& schema(const std::string& name) const {
    return document.at("components").at("schemas").at(name);
  }

  /// The members of a schema and of the schemas it is composed of; nested ones as
  /// "stream_options.include_usage".
  Names properties(const Json& object) const {
    Names names;
    const Json parts = object.value("allOf", Json::array());
    const Json members = object.value("properties", Json::object());
    for (const Json& part : parts) {
      const std::string name = part.at("$ref").get<std::string>();
      names.merge(properties(schema(name.substr(name.rfind('/') + 1))));
    }
    for (const auto& [name, value] : members.items()) {
      names.insert(name);
      const Json within = value.value("properties", Json::object());
      for (const auto& [inner, unused] : within.items())
        names.insert(name + "." + inner);
    }
    return names;
  }

  const Json document = Json::parse(openapi_json("1.2.3"));
};

using Parse = std::optional<openai::ApiError> (*)(const std::string& body);

template <class Result>
std::optional<openai::ApiError> error_of(const Result& result) {
  return result ? std::nullopt : std::optional(result.error());
}

struct Endpoint {
  const char* schema;
  Parse parse;
  const char* least;  ///< members that a request must have
};
const Endpoint kEndpoints[] = {
    {"CompletionRequest",
     [](const std::string& body) { return error_of(openai::parse_completion(body, {})); }, R"("prompt":"x")"},
    {"ChatCompletionRequest",
     [](const std::string& body) { return error_of(openai::parse_chat_completion(body, {})); },
     R"("messages":[{"role":"user","content":"x"}])"},
    {"EmbeddingRequest", [](const std::string& body) { return error_of(openai::parse_embedding(body)); },
     R"("input":"x")"},
    {"TokenizeRequest", [](const std::string& body) { return error_of(openai::parse_tokenize(body)); },
     R"("messages":[{"role":"user","content":"x"}])"},
    {"MessageRequest", [](const std::string& body) { return error_of(anthropic::parse_messages(body, {})); },
     R"("max_tokens":1,"messages":[{"role":"user","content":"x"}])"},
    {"ResponsesRequest",
     [](const std::string& body) { return error_of(responses::parse_responses(body, {})); },
     R"("input":"x")"},
    {"OllamaChatRequest", [](const std::string& body) { return error_of(ollama::parse_chat(body, {})); },
     R"("messages":[{"role":"user","content":"x"}])"},
    {"OllamaGenerateRequest",
     [](const std::string& body) { return error_of(ollama::parse_generate(body, {})); }, R"("prompt":"x")"},
    {"ScoreRequest", [](const std::string& body) { return error_of(openai::parse_score(body)); },
     R"("text_1":"x","text_2":"y")"},
    {"RerankRequest", [](const std::string& body) { return error_of(openai::parse_rerank(body)); },
     R"("query":"x","documents":["y"])"},
    {"OllamaEmbedRequest", [](const std::string& body) { return error_of(ollama::parse_embed(body)); },
     R"("input":"x")"},
    {"OllamaEmbeddingsRequest",
     [](const std::string& body) { return error_of(ollama::parse_embeddings(body)); }, R"("prompt":"x")"},
    {"DetokenizeRequest", [](const std::string& body) { return error_of(openai::parse_detokenize(body)); },
     R"("tokens":[1])"},
    {"LoadLoraRequest", [](const std::string& body) { return error_of(openai::parse_load_lora(body)); },
     R"("lora_name":"x","lora_path":"y")"},
    {"UnloadLoraRequest", [](const std::string& body) { return error_of(openai::parse_unload_lora(body)); },
     R"("lora_name":"x")"},
};

TEST_F(OpenApi, HasEveryRoute) {
  Names routed, documented;
  for (const RouteInfo& route : routes())
    routed.insert(std::string(route.post ? "post " : "get ") + std::string(route.path));
  routed.insert("get " + std::string(kModelPrefix) + "{model}");
  for (const auto& [path, methods] : document.at("paths").items())
    for (const auto& [method, unused] : methods.items())
      documented.insert(method + " " + path);
  EXPECT_EQ(documented, routed);
}

TEST_F(OpenApi, SaysWhichPathsNeedNoKey) {
  for (const RouteInfo& route : routes()) {
    const auto path = document.at("paths").find(route.path);
    if (path == document.at("paths").end()) continue;
    const Json& operation = path->at(route.post ? "post" : "get");
    EXPECT_EQ(operation.contains("security") && operation.at("security").empty(), route.open) << route.path;
  }
}

TEST_F(OpenApi, HasEveryFieldThatAParserKnows) {
  for (const Endpoint& endpoint : kEndpoints) {
    const std::string least(endpoint.least);
    const openai::LookedFor looked_for;
    endpoint.parse("{" + least + R"(,"stream_options":{},"response_format":{},"structured_outputs":{}})");
    const Names documented = properties(schema(endpoint.schema));
    for (const std::string& field : looked_for.paths()) {
      if (field.find('[') != field.npos || documented.contains(field)) continue;
      const auto error = endpoint.parse("{" + least + ",\"" + field + "\":\"x\"}");
      EXPECT_TRUE(error && error->param == field)
          << endpoint.schema << " has no " << field << ", which the parser takes";
    }
    for (const std::string& field : documented) {
      // Fields of the table are allowed: they have no effect, or are off by their value.
      EXPECT_TRUE(openai::find_rule(field) != nullptr || looked_for.paths().contains(field))
          << endpoint.schema << " has " << field << ", which the parser does not know";
    }
  }
}

TEST_F(OpenApi, HasEveryFieldOfAForm) {
  const auto fields = openai::transcription_fields();
  EXPECT_EQ(properties(schema("TranscriptionRequest")), Names(fields.begin(), fields.end()));
  EXPECT_TRUE(std::ranges::is_sorted(fields));
}

TEST_F(OpenApi, HasEveryFieldOfAMessage) {
  const openai::LookedFor looked_for;
  for (const char* role : {"user", "assistant", "tool"})
    (void)openai::parse_chat_completion(
        R"({"messages":[{"role":")" + std::string(role) + R"(","content":null,"tool_calls":[]}]})", {});
  Names asked;
  const std::string start = "messages[0].";
  for (const std::string& field : looked_for.paths())
    if (field.starts_with(start)) asked.insert(field.substr(start.size()));
  EXPECT_EQ(properties(schema("ChatMessage")), asked);
}

/// Every "$ref" resolves, and every schema is used.
void collect(const Json& node, Names& refs) {
  if (node.is_object() && node.contains("$ref")) refs.insert(node.at("$ref").get<std::string>());
  for (const Json& inner : node)
    if (inner.is_structured()) collect(inner, refs);
}

TEST_F(OpenApi, IsWhole) {
  EXPECT_EQ(document.at("openapi"), "3.1.0");
  EXPECT_EQ(document.at("info").at("version"), "1.2.3");
  Names refs, there, ids;
  collect(document, refs);
  for (const auto& [name, unused] : document.at("components").at("schemas").items())
    there.insert("#/components/schemas/" + name);
  there.erase("#/components/schemas/ChatCompletionChunk");  // of SSE streams: no $ref to it
  there.erase("#/components/schemas/CompletionChunk");
  EXPECT_EQ(refs, there);
  for (const auto& [path, methods] : document.at("paths").items())
    for (const auto& [method, operation] : methods.items()) {
      EXPECT_TRUE(ids.insert(operation.at("operationId")).second) << path;
      EXPECT_FALSE(operation.at("summary").get<std::string>().empty()) << path;
      EXPECT_TRUE(operation.at("responses").contains("200")) << path;
      EXPECT_EQ(operation.contains("requestBody"), method == "post") << path;
    }
}

}  // namespace
}  // namespace fovea::server
