#include "engine/sentence_transformers.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/log.h"
#include "base/printable.h"
#include "files/json_fields.h"
#include "files/text_file.h"
#include "text/json_value.h"

namespace fovea {
namespace {

constexpr size_t kMaxFileBytes = 1u << 20;
constexpr char kSupportedPooling[] =
    "supported poolings are mean, cls and last; choose one with --pooling if the model allows it";

bool exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

struct Module {
  std::string type;  ///< the class name without its module path
  std::string path;  ///< its folder; "" = the model folder
};

Result<std::vector<Module>> read_modules(const std::string& file) {
  FOVEA_TRY(text, read_text_file(file, kMaxFileBytes));
  FOVEA_TRY(root, text::parse_json(text, file));
  if (!root.array()) return invalid(file + ": must hold a JSON list of modules");
  std::vector<Module> modules;
  for (const text::Json& entry : *root.array()) {
    FOVEA_TRY(type, text::string_field(entry, file, "type", ""));
    FOVEA_TRY(path, text::string_field(entry, file, "path", ""));
    if (path.find('/') != path.npos || path.starts_with('.') || path.find('\0') != path.npos)
      return invalid(file + ": path \"" + printable(path) + "\" must be the plain name of a folder");
    modules.push_back({type.substr(type.rfind('.') + 1), path});
  }
  return modules;
}

/// sentence_bert_config.json, beside the model.
Status read_limits(const std::string& file, SentenceTransformers& out) {
  if (!exists(file)) return {};
  FOVEA_TRY(text, read_text_file(file, kMaxFileBytes));
  FOVEA_TRY(root, parse_json_object(text, file));
  Status status;
  Fields fields(root, file, status);
  if (fields.find("max_seq_length")) out.max_seq_len = fields.small("max_seq_length", 1, 1 << 30);
  if (fields.boolean("do_lower_case", false))
    fields.refuse("do_lower_case", "only false is supported; put a Lowercase normaliser into tokenizer.json",
                  ErrorCode::unsupported);
  return status;
}

/// Warns about a default prompt that sentence-transformers would prepend.
Status warn_prompt(const std::string& file) {
  if (!exists(file)) return {};
  FOVEA_TRY(text, read_text_file(file, kMaxFileBytes));
  FOVEA_TRY(root, parse_json_object(text, file));
  Status status;
  Fields fields(root, file, status);
  const std::string name = fields.string("default_prompt_name", "");
  if (!name.empty()) {
    FOVEA_LOG(warning) << file << ": default_prompt_name is " << printable(name)
                       << "; prompts are not added here: put it before your texts";
  }
  return status;
}

}  // namespace

Result<Pooling> parse_pooling_config(std::string_view text, const std::string& file) {
  FOVEA_TRY(root, parse_json_object(text, file));
  Status status;
  Fields fields(root, file, status);
  std::string chosen = fields.string("pooling_mode", "");
  for (const auto& [key, name] :
       {std::pair{"pooling_mode_cls_token", "cls"}, std::pair{"pooling_mode_mean_tokens", "mean"},
        std::pair{"pooling_mode_lasttoken", "lasttoken"}, std::pair{"pooling_mode_max_tokens", "max"},
        std::pair{"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
        std::pair{"pooling_mode_weightedmean_tokens", "weightedmean"}})
    if (fields.boolean(key, false)) chosen += (chosen.empty() ? "" : "+") + std::string(name);
  if (!fields.boolean("include_prompt", true))
    fields.refuse("include_prompt", "only true is supported", ErrorCode::unsupported);
  FOVEA_RETURN_IF_ERROR(std::move(status));
  if (chosen == "mean") return Pooling::mean;
  if (chosen == "cls") return Pooling::cls;
  if (chosen == "lasttoken") return Pooling::last;
  return unsupported(file + ": the pooling is " + (chosen.empty() ? "missing" : printable(chosen)) + "; " +
                     kSupportedPooling);
}

Result<SentenceTransformers> load_sentence_transformers(const std::string& dir) {
  SentenceTransformers out;
  const std::string file = dir + "/modules.json";
  if (!exists(file)) return out;
  FOVEA_TRY(modules, read_modules(file));
  out.present = true;
  for (size_t i = 0; i < modules.size(); ++i) {
    const auto& [type, path] = modules[i];
    const std::string folder = path.empty() ? dir : dir + "/" + path;
    if (type == "Transformer" && i == 0) {
      if (!path.empty())
        return unsupported(file + ": the Transformer's path is \"" + printable(path) +
                           "\"; only \"\" is supported: give --model " + printable(folder, 200) +
                           " and --pooling");
      FOVEA_RETURN_IF_ERROR(read_limits(dir + "/sentence_bert_config.json", out));
    } else if (type == "Pooling" && i == 1) {
      FOVEA_TRY(text, read_text_file(folder + "/config.json", kMaxFileBytes));
      FOVEA_TRY(pooling, parse_pooling_config(text, folder + "/config.json"));
      out.pooling = pooling;
    } else if (type == "Normalize" && i == 2) {
      out.normalize = true;
    } else {
      return unsupported(file + ": module " + std::to_string(i) + " is \"" + printable(type) +
                         "\"; supported is Transformer, Pooling and then, optionally, Normalize");
    }
  }
  FOVEA_RETURN_IF_ERROR(warn_prompt(dir + "/config_sentence_transformers.json"));
  return out;
}

}  // namespace fovea
