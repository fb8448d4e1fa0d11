#include "server/ollama/embed.h"

#include "server/openai/json_writer.h"
#include "server/openai/request_body.h"

namespace fovea::ollama {
namespace {

using openai::ApiResult;
using openai::Fields;

ApiResult<EmbedRequest> parse_texts(std::string_view body, bool older) {
  FOVEA_TRY(json, openai::parse_body(body));
  Fields fields(json);
  EmbedRequest out;
  fields.read("model", out.model);
  if (older) {
    std::string prompt;
    if (!fields.read("prompt", prompt)) fields.fail("prompt", "prompt is missing; it must be a string");
    // As in Ollama: nothing to embed only loads the model.
    if (!prompt.empty()) out.inputs.push_back(std::move(prompt));
  } else {
    if (!fields.find("input"))
      fields.fail("input", "input is missing; it must be a string or a list of strings");
    fields.read_string_or_strings("input", out.inputs, openai::kMostPrompts);
    fields.read("truncate", out.truncate);
    if (int dimensions = 0; fields.read("dimensions", dimensions, 1)) out.dimensions = dimensions;
  }
  fields.find("keep_alive");
  fields.find("options");  // of memory and threads, which the server's flags decide
  if (!fields.error()) fields.close(false);
  if (auto error = fields.outcome(openai::UnknownFields::ignored)) return *std::move(error);
  out.ignored = fields.unknown();
  return out;
}

void append_vector(std::string& out, const std::vector<float>& vector) {
  out += '[';
  for (size_t i = 0; i < vector.size(); ++i) {
    if (i > 0) out += ',';
    openai::append_float(out, vector[i]);
  }
  out += ']';
}

}  // namespace

ApiResult<EmbedRequest> parse_embed(std::string_view body) {
  return parse_texts(body, false);
}

ApiResult<EmbedRequest> parse_embeddings(std::string_view body) {
  return parse_texts(body, true);
}

std::string embed_json(const std::string& model, const std::vector<std::vector<float>>& vectors,
                       int64_t tokens, std::chrono::nanoseconds taken) {
  std::string out = R"({"model":)";
  openai::append_string(out, model);
  out += R"(,"embeddings":[)";
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (i > 0) out += ',';
    append_vector(out, vectors[i]);
  }
  out += R"(],"total_duration":)";
  openai::append_integer(out, taken.count());
  out += R"(,"load_duration":0,"prompt_eval_count":)";
  openai::append_integer(out, tokens);
  return out + "}";
}

std::string embedding_json(const std::vector<float>& vector) {
  std::string out = R"({"embedding":)";
  append_vector(out, vector);
  return out + "}";
}

}  // namespace fovea::ollama
