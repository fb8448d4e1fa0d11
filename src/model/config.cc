#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "model/family.h"
#include "model/mapped_file.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = 16u << 20;
constexpr char kGenerationFile[] = "generation_config.json";
constexpr int64_t kMaxTokenId = std::numeric_limits<int32_t>::max();

/// Reads keys of one JSON object. The first problem is kept; later reads return their fallback.
class Fields {
 public:
  Fields(const Json& object, std::string file, Status& status)
      : object_(object), file_(std::move(file)), status_(status) {}

  const std::string& file() const { return file_; }
  bool ok() const { return status_.ok(); }

  /// Null when the key is absent or null.
  const Json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool has(const char* key) const { return object_.contains(key); }

  /// "FILE: KEY is VALUE; HELP"
  void refuse(const char* key, const std::string& help, ErrorCode code = ErrorCode::invalid_argument) {
    if (!status_) return;
    const Json* value = find(key);
    const std::string text = value ? printable(value->dump(-1, ' ', true)) : has(key) ? "null" : "missing";
    status_ = Error{code, file_ + ": " + key + " is " + text + "; " + help};
  }

  int64_t integer(const char* key, int64_t low, int64_t high, std::optional<int64_t> fallback = {}) {
    const Json* value = find(key);
    if (!value && fallback) return *fallback;
    if (value && fits(*value, low, high)) return value->get<int64_t>();
    refuse(key, "an integer from " + std::to_string(low) + " to " + std::to_string(high) + " is needed");
    return low;
  }
  int small(const char* key, int64_t low, int64_t high, std::optional<int64_t> fallback = {}) {
    return static_cast<int>(integer(key, low, high, fallback));
  }
  double number(const char* key, double low, double high, std::optional<double> fallback = {}) {
    const Json* value = find(key);
    if (!value && fallback) return *fallback;
    if (value && value->is_number()) {
      const double x = value->get<double>();
      if (x >= low && x <= high) return x;
    }
    refuse(key, "a number from " + short_number(low) + " to " + short_number(high) + " is needed");
    return low;
  }
  bool boolean(const char* key, bool fallback) {
    const Json* value = find(key);
    if (!value) return fallback;
    if (value->is_boolean()) return value->get<bool>();
    refuse(key, "true or false is needed");
    return fallback;
  }
  std::string string(const char* key, const std::string& fallback) {
    const Json* value = find(key);
    if (!value) return fallback;
    if (value->is_string()) return value->get<std::string>();
    refuse(key, "a string is needed");
    return fallback;
  }
  /// An id or a list of ids; empty when absent.
  std::vector<int32_t> token_ids(const char* key) {
    const Json* value = find(key);
    std::vector<int32_t> ids;
    if (!value) return ids;
    const Json list = value->is_array() ? *value : Json::array({*value});
    for (const Json& id : list) {
      if (!fits(id, 0, kMaxTokenId)) {
        refuse(key, "a token id (0 or more) or a list of them is needed");
        return {};
      }
      ids.push_back(id.get<int32_t>());
    }
    return ids;
  }
  std::optional<float> optional_number(const char* key, double low, double high) {
    if (!find(key)) return std::nullopt;
    return static_cast<float>(number(key, low, high));
  }

 private:
  static bool fits(const Json& value, int64_t low, int64_t high) {
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMaxInt64)) return false;
    return value.is_number_integer() && value.get<int64_t>() >= low && value.get<int64_t>() <= high;
  }
  static std::string short_number(double x) { return Json(x).dump(); }
  static constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

  const Json& object_;
  std::string file_;
  Status& status_;
};

const Family* choose_family(Fields& fields) {
  std::string known;
  for (const Family* family : families())
    known += (known.empty() ? "" : ", ") + std::string(family->architecture);
  const Json* names = fields.find("architectures");
  if (!names) {  // transformers' save of a bare config has only model_type
    const std::string type = fields.string("model_type", "");
    for (const Family* family : families())
      if (family->model_type == type) return family;
  } else if (names->is_array()) {
    for (const Json& name : *names)
      if (name.is_string())
        if (const Family* family = find_family(name.get_ref<const std::string&>())) return family;
  }
  fields.refuse("architectures", "supported architectures are " + known, ErrorCode::unsupported);
  return nullptr;
}

void read_sizes(Fields& fields, const Family& family, ModelConfig& c) {
  c.vocab_size = fields.small("vocab_size", 1, 10'000'000);
  c.hidden_size = fields.small("hidden_size", 1, 1 << 20);
  c.intermediate_size = fields.small("intermediate_size", 1, 1 << 22);
  c.num_layers = fields.small("num_hidden_layers", 1, 10'000);
  c.num_heads = fields.small("num_attention_heads", 1, 1 << 16);
  c.num_kv_heads = fields.small("num_key_value_heads", 1, 1 << 16, c.num_heads);
  if (c.num_heads % c.num_kv_heads != 0)
    fields.refuse("num_key_value_heads",
                  "it must divide num_attention_heads = " + std::to_string(c.num_heads));
  if (fields.find("head_dim")) {
    c.head_dim = fields.small("head_dim", 2, 1 << 16);
  } else if (family.default_head_dim > 0 && !fields.has("head_dim")) {
    c.head_dim = family.default_head_dim;
  } else {
    c.head_dim = c.hidden_size / c.num_heads;
    if (c.hidden_size % c.num_heads != 0)
      fields.refuse("head_dim", "without it, num_attention_heads = " + std::to_string(c.num_heads) +
                                    " must divide hidden_size = " + std::to_string(c.hidden_size));
  }
  if (c.head_dim < 2 || c.head_dim % 2 != 0)
    fields.refuse("head_dim", "it must be even for rotary positions, not " + std::to_string(c.head_dim));
  if (static_cast<int64_t>(c.num_heads) * c.head_dim > 1 << 22)
    fields.refuse("head_dim", "num_attention_heads x head_dim may be at most " + std::to_string(1 << 22));
  c.max_position = fields.integer("max_position_embeddings", 1, 1 << 30);
}

/// `rope` holds rope_type and its numbers: rope_parameters (v5) or rope_scaling (v4).
void read_rope_scaling(Fields& rope, RopeConfig& out) {
  const char* key = rope.find("rope_type") ? "rope_type" : "type";
  const std::string type = rope.string(key, "default");
  if (rope.number("partial_rotary_factor", 0, 1, 1.0) != 1.0)
    rope.refuse("partial_rotary_factor", "only 1 is supported by this architecture", ErrorCode::unsupported);
  if (type == "default") return;
  if (type != "linear" && type != "llama3") {
    rope.refuse(key, "supported rope types are default, linear, llama3", ErrorCode::unsupported);
    return;
  }
  out.scaling = type == "linear" ? RopeScaling::linear : RopeScaling::llama3;
  out.factor = rope.number("factor", 1.0, 1e6);
  if (out.scaling == RopeScaling::linear) return;
  out.low_freq_factor = rope.number("low_freq_factor", 1e-6, 1e6);
  out.high_freq_factor = rope.number("high_freq_factor", 1e-6, 1e6);
  out.original_max_position = rope.integer("original_max_position_embeddings", 1, 1 << 30);
  if (out.high_freq_factor <= out.low_freq_factor)
    rope.refuse("high_freq_factor", "it must be above low_freq_factor");
}

void read_rope(Fields& fields, const std::string& file, Status& status, RopeConfig& out) {
  constexpr double kMinTheta = 1.0, kMaxTheta = 1e15;
  out.theta = fields.number("rope_theta", kMinTheta, kMaxTheta, out.theta);
  if (fields.number("partial_rotary_factor", 0, 1, 1.0) != 1.0)
    fields.refuse("partial_rotary_factor", "only 1 is supported by this architecture",
                  ErrorCode::unsupported);
  const bool v5 = fields.find("rope_parameters") != nullptr;
  const char* key = v5 ? "rope_parameters" : "rope_scaling";
  const Json* object = fields.find(key);
  if (!object) return;
  if (!object->is_object()) return fields.refuse(key, "an object or null is needed");
  for (const auto& [name, value] : object->items())
    if (value.is_object())
      return fields.refuse(key,
                           "rope parameters by layer type (\"" + printable(name) + "\") aren't supported",
                           ErrorCode::unsupported);
  Fields rope(*object, file + ": " + key, status);
  out.theta = rope.number("rope_theta", kMinTheta, kMaxTheta, out.theta);
  read_rope_scaling(rope, out);
}

/// Refuses what the keys ask for and no code of the families does.
void refuse_unsupported(Fields& fields, const ModelConfig& c) {
  const std::string act = fields.string("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    fields.refuse("hidden_act", "only silu (swish) is supported by this architecture",
                  ErrorCode::unsupported);
  if (fields.find("quantization_config"))
    fields.refuse("quantization_config",
                  "quantised checkpoints aren't supported; use the float32, float16 or bfloat16 one",
                  ErrorCode::unsupported);
  if (const Json* types = fields.find("layer_types")) {
    if (!types->is_array()) return fields.refuse("layer_types", "a list of strings is needed");
    for (const Json& type : *types)
      if (type != "full_attention")
        return fields.refuse("layer_types", "only \"full_attention\" layers are supported",
                             ErrorCode::unsupported);
  } else if (fields.boolean("use_sliding_window", false) && fields.find("sliding_window") &&
             fields.integer("max_window_layers", 0, 1 << 30, 0) < c.num_layers) {
    fields.refuse("sliding_window",
                  "sliding-window layers aren't supported; use_sliding_window must be false",
                  ErrorCode::unsupported);
  }
}

DType read_dtype(Fields& fields) {
  const char* key = fields.find("dtype") ? "dtype" : "torch_dtype";
  std::string name = fields.string(key, "float32");
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (const auto dtype = parse_dtype(name)) return *dtype;
  fields.refuse(key, "supported are float32, float16, bfloat16", ErrorCode::unsupported);
  return DType::f32;
}

void read_token_ids(Fields& fields, ModelConfig& c) {
  const auto bos = fields.token_ids("bos_token_id");
  if (!c.bos_token_id && !bos.empty()) c.bos_token_id = bos.front();
  for (const int32_t id : fields.token_ids("eos_token_id"))
    if (std::ranges::find(c.eos_token_ids, id) == c.eos_token_ids.end()) c.eos_token_ids.push_back(id);
}

void read_sampling(Fields& fields, ModelConfig& c) {
  c.temperature = fields.optional_number("temperature", 0, 1e6);
  c.top_p = fields.optional_number("top_p", 0, 1);
  c.min_p = fields.optional_number("min_p", 0, 1);
  if (fields.find("top_k")) c.top_k = fields.small("top_k", -1, 1 << 30);
  c.repetition_penalty = fields.optional_number("repetition_penalty", 1e-6, 1e6);
  if (fields.find("max_new_tokens")) c.max_new_tokens = fields.small("max_new_tokens", 1, 1 << 30);
  if (fields.find("do_sample")) c.do_sample = fields.boolean("do_sample", false);
}

Result<Json> parse_object(std::string_view text, const std::string& file) {
  if (json_nests_deeper(text))
    return invalid(file + ": nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  Json root;
  size_t at = 0;
  try {
    root = Json::parse(text);
  } catch (const Json::parse_error& error) {
    at = error.byte;
  } catch (const Json::exception&) {  // a number that no double holds
    return invalid(file + ": holds a number out of range");
  }
  if (at != 0)
    return invalid(file + ": not valid JSON at byte " + std::to_string(at) + "; copy or download it again");
  if (!root.is_object()) return invalid(file + ": must hold a JSON object, {...}");
  return root;
}

/// The file that `source` names; "" = none.
Result<std::string> find_generation_config(const std::string& dir, const std::string& source) {
  std::error_code ignored;
  if (source == "none" || source == "vllm") return std::string();
  const std::string folder = source == "auto" ? dir : source;
  const std::string inside = folder + "/" + kGenerationFile;
  if (std::filesystem::exists(inside, ignored)) return inside;
  if (source == "auto") return std::string();
  if (std::filesystem::is_regular_file(source, ignored)) return source;
  return not_found("generation config " + source + ": neither a file nor a folder with " + kGenerationFile +
                   "; allowed are auto (the model's), vllm or none (no defaults), or such a path");
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view config, std::string_view generation,
                                       const std::string& dir, const std::string& generation_file) {
  const std::string file = dir + "/config.json";
  FOVEA_TRY(root, parse_object(config, file));
  Status status;
  Fields fields(root, file, status);
  const Family* family = choose_family(fields);
  if (!family) return status.error();

  ModelConfig c;
  c.architecture = family->architecture;
  c.model_type = fields.string("model_type", std::string(family->model_type));
  read_sizes(fields, *family, c);
  c.rms_norm_eps = static_cast<float>(fields.number("rms_norm_eps", 0, 1, 1e-6));
  c.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  c.attention_bias = fields.boolean("attention_bias", false);
  c.mlp_bias = fields.boolean("mlp_bias", false);
  c.qk_norm = family->qk_norm;
  c.dtype = read_dtype(fields);
  read_rope(fields, file, status, c.rope);
  refuse_unsupported(fields, c);
  read_token_ids(fields, c);
  FOVEA_RETURN_IF_ERROR(std::move(status));

  if (!generation.empty()) {
    const std::string name = generation_file.empty() ? dir + "/" + kGenerationFile : generation_file;
    FOVEA_TRY(generation_root, parse_object(generation, name));
    Status generation_status;
    Fields generation_fields(generation_root, name, generation_status);
    read_token_ids(generation_fields, c);
    read_sampling(generation_fields, c);
    FOVEA_RETURN_IF_ERROR(std::move(generation_status));
  }
  return c;
}

Result<ModelConfig> load_model_config(const std::string& dir, const std::string& generation_config) {
  const std::string file = dir + "/config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    return not_found(file + ": missing; --model must name a directory in Hugging Face format");
  FOVEA_TRY(config, read_text_file(file, kMaxConfigBytes));
  FOVEA_TRY(generation_file, find_generation_config(dir, generation_config));
  std::string generation;
  if (!generation_file.empty()) {
    FOVEA_TRY(text, read_text_file(generation_file, kMaxConfigBytes));
    if (text.empty())
      return invalid(generation_file + ": empty; it must hold a JSON object, or not be there");
    generation = std::move(text);
  }
  return parse_model_config(config, generation, dir, generation_file);
}

}  // namespace fovea
