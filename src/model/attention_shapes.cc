#include "model/attention_shapes.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/printable.h"
#include "files/model_folder.h"
#include "files/text_file.h"
#include "model/attention_reader.h"
#include "model/config.h"
#include "model/family.h"
#include "model/model.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = 16u << 20;

/// Keys under which a multimodal config.json holds its language model.
constexpr const char* kTextKeys[] = {"text_config", "language_config", "llm_config"};

/// transformers' defaults for keys that published text configs omit.
constexpr std::pair<std::string_view, std::string_view> kTextDefaults[] = {
    {"gemma3_text",
     R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
         "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 131072})"},
    {"gemma3n_text",
     R"({"hidden_size": 2048, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2,
         "head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 5, "num_kv_shared_layers": 15})"},
    {"gemma4_text",
     R"({"hidden_size": 2304, "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 4,
         "head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "sliding_window_pattern": 6})"},
    {"llama4_text",
     R"({"vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192, "num_hidden_layers": 48,
         "num_attention_heads": 40, "num_key_value_heads": 8, "max_position_embeddings": 131072,
         "num_local_experts": 16})"},
};

std::string name_of_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? path : "";
}

std::string first_architecture(Fields& fields) {
  const Json* names = fields.find("architectures");
  if (!names || !names->is_array() || names->empty() || !names->front().is_string()) return "";
  return names->front().get<std::string>();
}

/// Adds the layers that the engine runs for this config, in the model's dtype.
void add_config(AttentionShapes& out, const ModelConfig& config, bool spans) {
  for (AttentionSpec spec : attention_specs(config)) {
    spec.dtype = out.dtype;
    spec.mask.spans = spans;
    add_layers(out, spec);
  }
  if (config.sparse) note_indexer(out, config.sparse_topk);
}

void note_tower(Fields& fields, const char* key, AttentionShapes& out) {
  const Json* tower = fields.find(key);
  if (tower && tower->is_object() && !tower->empty())
    out.notes.push_back(std::string(key) + ": the attention of that tower has its own list of backends " +
                        "in vLLM and SGLang, and isn't part of this choice");
}

/// Whether tokens of an image attend to each other, by the whole model's type.
bool has_spans(Fields& whole, const std::string& text_type) {
  const std::string type = whole.string("model_type", "");
  if (type == "paligemma" || type == "molmo2") return true;
  return type == "gemma3" && text_type == "gemma3_text";
}

Status unless_unsupported(const Status& status) {
  return !status && status.error().code == ErrorCode::unsupported ? Status() : status;
}

/// Adds the layers of `part`, whose type is `family`'s, even if the engine refuses other settings. False if
/// the family does not implement these layers: then only their heads are read, into part.heads.
Result<bool> add_family(const Family& family, TextPart& part, const Json& text) {
  ModelConfig config;
  config.kind = family.kind;
  Status layers, rest;
  Fields layer_fields(text, part.fields.file(), layers), other_fields(text, part.fields.file(), rest);
  family.read_attention(layer_fields, config);
  FOVEA_RETURN_IF_ERROR(unless_unsupported(layers));
  const bool known = layers.ok();
  if (known)
    add_config(part.out, config, part.spans);
  else
    part.heads = attention_specs(config).front();
  family.configure(other_fields, config);
  FOVEA_RETURN_IF_ERROR(unless_unsupported(rest));
  return known;
}

/// Reads the layers of the language model part.
Status read_text(Fields& whole, const Json& root, AttentionShapes& out) {
  Json text = root;
  std::string where;
  const auto enter = [&](const char* key) {
    const auto at = text.find(key);
    if (at == text.end() || !at->is_object()) return false;
    where += std::string(": ") + key;
    text = Json(*at);
    return true;
  };
  enter("thinker_config");
  for (const char* key : kTextKeys)
    if (enter(key)) break;
  if (!where.empty() && !whole.find("dtype") && !whole.find("torch_dtype")) {
    Status status;
    Fields part(text, out.file + where, status);
    out.dtype = read_checkpoint_dtype(part);
    FOVEA_RETURN_IF_ERROR(std::move(status));
  }
  const auto type_at = text.find("model_type");
  std::string type = type_at != text.end() && type_at->is_string() ? type_at->get<std::string>() : "";
  if (type.empty() && !where.empty() && out.model_type == "gemma3") type = "gemma3_text";
  for (const auto& [name, defaults] : kTextDefaults)
    if (name == type) {
      Json filled = Json::parse(defaults);
      filled.update(text);
      text = std::move(filled);
    }
  Status status;
  Fields fields(text, out.file + where, status);
  TextPart part{fields, type, has_spans(whole, type), {}, out};
  if (const Family* family = find_family_of_type(type)) {
    FOVEA_TRY(added, add_family(*family, part, text));
    if (added) return {};
  }
  read_attention_fields(part);
  return status;
}

}  // namespace

void add_layers(AttentionShapes& out, const AttentionSpec& spec, int layers) {
  if (layers <= 0) return;
  const auto at = std::ranges::find(out.specs, spec);
  if (at == out.specs.end()) {
    out.specs.push_back(spec);
    out.layers.push_back(layers);
  } else {
    out.layers[static_cast<size_t>(at - out.specs.begin())] += layers;
  }
}

Result<AttentionShapes> parse_attention_shapes(std::string_view config, const std::string& file) {
  FOVEA_TRY(root, parse_json_object(config, file));
  Status status;
  Fields fields(root, file, status);
  AttentionShapes out;
  out.file = file;
  out.model_type = fields.string("model_type", "");
  out.architecture = first_architecture(fields);
  auto known = parse_model_config(root, file);
  if (known) {
    out.architecture = known->architecture;
    out.model_type = known->model_type;
    out.dtype = known->dtype;
    out.runnable = true;
    add_config(out, *known, false);
    return out;
  }
  if (known.error().code != ErrorCode::unsupported) return known.error();
  out.why_not = find_family(out.architecture) || out.architecture.empty()
                    ? known.error().message
                    : "the engine doesn't run architecture " + printable(out.architecture);
  out.dtype = read_checkpoint_dtype(fields);
  FOVEA_RETURN_IF_ERROR(read_text(fields, root, out));
  for (const char* key : {"vision_config", "audio_config"})
    note_tower(fields, key, out);
  FOVEA_RETURN_IF_ERROR(std::move(status));
  return out;
}

Result<AttentionShapes> read_attention_shapes(const std::string& path) {
  std::string file = name_of_file(path);
  if (file.empty()) {
    FOVEA_TRY(dir, resolve_model_dir(path));
    FOVEA_TRY(config, find_config(dir));
    file = config;
  }
  FOVEA_RETURN_IF_ERROR(refuse_gguf(file));
  FOVEA_TRY(text, read_text_file(file, kMaxConfigBytes));
  return parse_attention_shapes(text, file);
}

}  // namespace fovea
