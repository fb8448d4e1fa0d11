// Answers without generated text: embeddings, models, tokens.
#include <bit>

#include "server/openai/json_writer.h"
#include "server/openai/response.h"

namespace fovea::openai {
namespace {

void append_base64(std::string& out, std::span<const float> vector) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  static_assert(std::endian::native == std::endian::little, "clients read little-endian floats");
  const std::string_view bytes(reinterpret_cast<const char*>(vector.data()), vector.size_bytes());
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
}

void append_vector(std::string& out, std::span<const float> vector) {
  out += '[';
  for (size_t i = 0; i < vector.size(); ++i) {
    if (i) out += ',';
    append_float(out, vector[i]);
  }
  out += ']';
}

}  // namespace

std::string embeddings_json(std::string_view model, std::span<const std::vector<float>> vectors, bool base64,
                            int prompt_tokens) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < vectors.size(); ++i) {
    if (i) out += ',';
    out += R"({"object":"embedding","index":)";
    append_integer(out, static_cast<int64_t>(i));
    out += ",\"embedding\":";
    if (base64) {
      out += '"';
      append_base64(out, vectors[i]);
      out += "\"}";
    } else {
      append_vector(out, vectors[i]);
      out += '}';
    }
  }
  out += "],\"model\":";
  append_string(out, model);
  out += ",\"usage\":{\"prompt_tokens\":";
  append_integer(out, prompt_tokens);
  out += ",\"total_tokens\":";
  append_integer(out, prompt_tokens);
  return out += "}}";
}

std::string model_json(const ModelCard& model, int max_model_len) {
  std::string out = "{\"id\":";
  append_string(out, model.name);
  out += ",\"object\":\"model\",\"created\":";
  append_integer(out, model.created);
  out += R"(,"owned_by":"fovea","root":)";
  append_string(out, model.name);
  out += ",\"parent\":";
  if (model.parent.empty())
    out += "null";
  else
    append_string(out, model.parent);
  out += ",\"max_model_len\":";
  append_integer(out, max_model_len);
  return out += '}';
}

std::string models_json(std::span<const ModelCard> models, int max_model_len) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < models.size(); ++i) {
    if (i) out += ',';
    out += model_json(models[i], max_model_len);
  }
  return out += "]}";
}

std::string tokenize_json(std::span<const int32_t> ids, int max_model_len, const TokenText* words) {
  std::string out = "{\"count\":";
  append_integer(out, static_cast<int64_t>(ids.size()));
  out += ",\"max_model_len\":";
  append_integer(out, max_model_len);
  out += ",\"tokens\":";
  append_ids(out, ids);
  out += ",\"token_strs\":";
  if (!words) return out += "null}";
  for (size_t i = 0; i < ids.size(); ++i) {
    out += i ? ',' : '[';
    append_string(out, words->bytes(ids[i]));
  }
  return out += ids.empty() ? "[]}" : "]}";
}

std::string detokenize_json(std::string_view text) {
  std::string out = "{\"prompt\":";
  append_string(out, text);
  return out += '}';
}

}  // namespace fovea::openai
