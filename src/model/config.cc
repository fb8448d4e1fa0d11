#include "model/config.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "files/model_folder.h"
#include "files/text_file.h"
#include "model/config_fields.h"
#include "model/family.h"
#include "model/kv_scales.h"
#include "ops/gpu_indexer.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxConfigBytes = 16u << 20;
constexpr char kGenerationFile[] = "generation_config.json";

const Family* choose_family(Fields& fields) {
  std::string known;
  for (const Family* family : families())
    for (const std::string_view name : family->architectures)
      if (!name.empty()) known += (known.empty() ? "" : ", ") + std::string(name);
  const Json* names = fields.find("architectures");
  if (!names) {  // transformers saves a bare config with model_type only
    if (const Family* family = find_family_of_type(fields.string("model_type", ""))) return family;
  } else if (names->is_array()) {
    for (const Json& name : *names)
      if (name.is_string())
        if (const Family* family = find_family(name.get_ref<const std::string&>())) return family;
  }
  fields.refuse("architectures", "supported architectures are " + known, ErrorCode::unsupported);
  return nullptr;
}

/// Rejects settings that no family implements.
void refuse_unsupported(Fields& fields, ModelConfig& c) {
  const Json* quantization = fields.find("quantization_config");
  if (!quantization || c.moe.mxfp4) return;
  const KvCacheScheme scheme = kv_cache_scheme(*quantization);
  std::string problem;
  if (!scheme.only) c.quantization = read_weight_quantization(*quantization, problem);
  if (!scheme.only && problem.empty() && !c.quantization.fp8)
    problem = "it has neither quantised weights nor a kv_cache_scheme alone; remove it";
  if (!problem.empty())
    fields.refuse("quantization_config", problem, ErrorCode::unsupported);
  else if (!scheme.problem.empty())
    fields.refuse("quantization_config", scheme.problem, ErrorCode::unsupported);
  c.has_kv_scales = scheme.scales;
}

void read_token_ids(Fields& fields, ModelConfig& c) {
  const auto bos = fields.token_ids("bos_token_id");
  if (!c.bos_token_id && !bos.empty()) c.bos_token_id = bos.front();
  for (const int32_t id : fields.token_ids("eos_token_id"))
    if (std::ranges::find(c.eos_token_ids, id) == c.eos_token_ids.end()) c.eos_token_ids.push_back(id);
}

/// forced_decoder_ids: [[position, id or null], ...]; null leaves the position to the caller (a language to
/// detect).
void read_forced_prompt(Fields& fields, std::vector<std::pair<int, int32_t>>& out) {
  const Json* list = fields.find("forced_decoder_ids");
  if (!list) return;
  out.clear();
  const auto is_index = [](const Json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
  };
  for (const Json& entry : *list) {
    if (!list->is_array() || !entry.is_array() || entry.size() != 2 || !is_index(entry[0]) ||
        !(is_index(entry[1]) || entry[1].is_null()))
      return fields.refuse("forced_decoder_ids", "a list of [place, token id or null] is needed");
    if (!entry[1].is_null()) out.emplace_back(entry[0].get<int>(), entry[1].get<int32_t>());
  }
}

/// Tokens that generate() forces or suppresses in an encoder-decoder model's output.
void read_forcing(Fields& fields, ModelConfig& c) {
  const auto one = [&](const char* key, std::optional<int32_t>& id) {
    const auto ids = fields.token_ids(key);
    if (ids.empty()) return;
    id = ids.front();
    if (*id >= c.vocab_size)
      fields.refuse(key,
                    "the model's ids are 0 to " + std::to_string(c.vocab_size - 1) + " (vocab_size - 1)");
  };
  one("decoder_start_token_id", c.decoder_start_token_id);
  one("forced_bos_token_id", c.forcing.first);
  one("forced_eos_token_id", c.forcing.last);
  if (fields.find("suppress_tokens")) c.forcing.suppressed = fields.token_ids("suppress_tokens");
  if (fields.find("begin_suppress_tokens"))
    c.forcing.suppressed_first = fields.token_ids("begin_suppress_tokens");
  read_forced_prompt(fields, c.forcing.prompt);
}

/// generate()'s search settings for an encoder-decoder model; unsupported ones are errors.
void read_search(Fields& fields, ModelConfig& c) {
  const std::string help = "it isn't supported; give --generation-config none to ignore the file's defaults";
  if (fields.small("num_beams", 1, 1 << 20, 1) > 1)
    fields.refuse("num_beams", "beam search: " + help, ErrorCode::unsupported);
  for (const char* key : {"no_repeat_ngram_size", "encoder_no_repeat_ngram_size"})
    if (fields.small(key, 0, 1 << 20, 0) > 0) fields.refuse(key, help, ErrorCode::unsupported);
  c.forcing.min_length = fields.small("min_length", 0, 1 << 30, 0);
  if (fields.find("max_length")) c.forcing.max_length = fields.small("max_length", 1, 1 << 30);
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

/// The file that `source` refers to; "" = none.
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

DType read_checkpoint_dtype(Fields& fields) {
  const char* key = fields.find("dtype") ? "dtype" : "torch_dtype";
  std::string name = fields.string(key, "float32");
  if (name.starts_with("torch.")) name.erase(0, 6);
  if (const auto dtype = parse_dtype(name)) return *dtype;
  fields.refuse(key, "supported are float32, float16, bfloat16", ErrorCode::unsupported);
  return DType::f32;
}

Result<ModelConfig> parse_model_config(const Json& root, const std::string& file) {
  Status status;
  Fields fields(root, file, status);
  const Family* family = choose_family(fields);
  if (!family) return status.error();

  ModelConfig c;
  c.architecture = family->architectures.front();
  c.model_type = fields.string("model_type", std::string(family->model_type));
  c.kind = family->kind;
  c.dtype = read_checkpoint_dtype(fields);
  family->read_attention(fields, c);
  family->configure(fields, c);
  fit_to_length(c, c.max_position);
  refuse_unsupported(fields, c);
  read_token_ids(fields, c);
  if (c.kind == ModelKind::encoder_decoder) read_forcing(fields, c);
  FOVEA_RETURN_IF_ERROR(std::move(status));
  return c;
}

Result<ModelConfig> parse_model_config(std::string_view config, std::string_view generation,
                                       const std::string& dir, const std::string& generation_file) {
  const std::string file = dir + "/config.json";
  FOVEA_TRY(root, parse_json_object(config, file));
  FOVEA_TRY(c, parse_model_config(root, file));
  if (generation.empty()) return c;
  const std::string name = generation_file.empty() ? dir + "/" + kGenerationFile : generation_file;
  FOVEA_TRY(generation_root, parse_json_object(generation, name));
  Status status;
  Fields fields(generation_root, name, status);
  read_token_ids(fields, c);
  if (c.kind == ModelKind::encoder_decoder) {
    read_forcing(fields, c);
    read_search(fields, c);
  }
  read_sampling(fields, c);
  FOVEA_RETURN_IF_ERROR(std::move(status));
  return c;
}

void fit_to_length(ModelConfig& config, int64_t max_seq_len) {
  for (RopeConfig& rope : config.ropes)
    rope.long_context = rope.scaling == RopeScaling::longrope && max_seq_len > rope.original_max_position;
  config.sparse = config.sparse_topk > 0 && max_seq_len > config.sparse_topk;
}

std::string length_refusal(const ModelConfig& config) {
  const IndexerConfig& indexer = config.indexer;
  if (!config.sparse || (indexer.dim == kGpuIndexDim && indexer.heads <= kGpuIndexHeads)) return "";
  const std::string topk = std::to_string(config.sparse_topk);
  return config.architecture + " has an indexer of " + std::to_string(indexer.heads) + " heads of " +
         std::to_string(indexer.dim) + " elements (index_n_heads, index_head_dim); on a GPU up to " +
         std::to_string(kGpuIndexHeads) + " of " + std::to_string(kGpuIndexDim) + " are supported. Up to " +
         topk + " tokens attention is dense: give --max-model-len " + topk + " or less, or --device cpu";
}

Result<ModelConfig> load_model_config(const std::string& dir, const std::string& generation_config) {
  FOVEA_TRY(file, find_config(dir));
  FOVEA_TRY(config, read_text_file(file, kMaxConfigBytes));
  FOVEA_TRY(generation_file, find_generation_config(dir, generation_config));
  std::string generation;
  if (!generation_file.empty()) {
    FOVEA_TRY(text, read_text_file(generation_file, kMaxConfigBytes));
    if (text.empty())
      return invalid(generation_file + ": empty; it must hold a JSON object, or not be there");
    generation = std::move(text);
  }
  FOVEA_TRY(parsed, parse_model_config(config, generation, dir, generation_file));
  // Models older than generation_config.json have its keys in config.json.
  const bool old = generation_config == "auto" && generation_file.empty();
  if (old && parsed.kind == ModelKind::encoder_decoder) return parse_model_config(config, config, dir, file);
  return parsed;
}

}  // namespace fovea
