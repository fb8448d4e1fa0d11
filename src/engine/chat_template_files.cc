#include "engine/chat_template_files.h"

#include <algorithm>
#include <filesystem>

#include "base/printable.h"
#include "engine/deepseek_template.h"
#include "engine/harmony_template.h"
#include "files/text_file.h"
#include "fovea/result.h"
#include "text/json_value.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;
using text::Json;

constexpr size_t kMaxTemplateBytes = 4u << 20;
constexpr size_t kMaxConfigBytes = 64u << 20;  // tokenizer_config.json lists added tokens: a few MiB at most
constexpr size_t kMaxTemplates = 100;
constexpr const char* kDefault = "default";
constexpr const char* kHarmony = "harmony";
constexpr const char* kDeepSeekEncoder = "/encoding/encoding_dsv32.py";

Status add(std::vector<NamedTemplate>& templates, NamedTemplate found) {
  const auto same = [&](const NamedTemplate& other) { return other.name == found.name; };
  if (std::any_of(templates.begin(), templates.end(), same)) return {};
  if (templates.size() == kMaxTemplates)
    return invalid(found.origin + ": more than " + std::to_string(kMaxTemplates) +
                   " chat templates; remove those that are not needed");
  templates.push_back(std::move(found));
  return {};
}

Status add_file(const std::string& path, const std::string& name, std::vector<NamedTemplate>& out) {
  FOVEA_TRY(source, read_text_file(path, kMaxTemplateBytes));
  return add(out, {name, std::move(source), path});
}

Status add_folder(const std::string& folder, std::vector<NamedTemplate>& out) {
  std::error_code error;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".jinja") files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files)
    FOVEA_RETURN_IF_ERROR(add_file(file.string(), file.stem().string(), out));
  return {};
}

Error bad_entry(const std::string& file, const Json& value) {
  return invalid(
      file + ": chat_template is " + value.describe() +
      "; a string, a list of {\"name\": string, \"template\": string} or an object of strings is needed");
}

Status add_values(const std::string& file, const Json& value, std::vector<NamedTemplate>& out) {
  const auto origin = [&](const std::string& name) { return file + ": chat_template '" + name + "'"; };
  if (value.string()) return add(out, {kDefault, *value.string(), file + ": chat_template"});
  if (const Json::Object* named = value.object()) {
    for (const auto& [name, source] : *named) {
      if (!source.string()) return bad_entry(file, value);
      FOVEA_RETURN_IF_ERROR(add(out, {name, *source.string(), origin(name)}));
    }
    return {};
  }
  if (!value.array()) return bad_entry(file, value);
  for (const Json& entry : *value.array()) {
    const Json* name = entry.find("name");
    const Json* source = entry.find("template");
    if (!name || !name->string() || !source || !source->string()) return bad_entry(file, value);
    FOVEA_RETURN_IF_ERROR(add(out, {*name->string(), *source->string(), origin(*name->string())}));
  }
  return {};
}

/// Reads member chat_template of a JSON file; the file may be absent.
Status add_json(const std::string& path, std::vector<NamedTemplate>& out) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  FOVEA_TRY(content, read_text_file(path, kMaxConfigBytes));
  FOVEA_TRY(root, text::parse_json(content, path));
  const Json* value = root.find("chat_template");
  return value && !value->is_null() ? add_values(path, *value, out) : Status();
}

/// DeepSeek-V3.2 has an encoder in Python instead of a template.
Status add_encoder(const std::string& path, std::vector<NamedTemplate>& out) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  FOVEA_TRY(encoder, read_text_file(path, kMaxTemplateBytes));
  FOVEA_TRY(source, deepseek_template(encoder, path));
  return add(out, {kDefault, std::move(source), path});
}

bool is_gpt_oss(const std::string& dir) {
  const auto content = read_text_file(dir + "/config.json", kMaxConfigBytes);
  const auto config = content ? text::parse_json(*content, "config.json") : Result<Json>(Json());
  const Json* type = config && config->object() ? config->find("model_type") : nullptr;
  return type && type->string() && *type->string() == "gpt_oss";
}

}  // namespace

Result<std::vector<NamedTemplate>> find_chat_templates(const std::string& dir) {
  std::vector<NamedTemplate> templates;
  std::error_code ignored;
  const std::string main_file = dir + "/chat_template.jinja";
  if (fs::exists(main_file, ignored)) FOVEA_RETURN_IF_ERROR(add_file(main_file, kDefault, templates));
  FOVEA_RETURN_IF_ERROR(add_folder(dir + "/additional_chat_templates", templates));
  FOVEA_RETURN_IF_ERROR(add_folder(dir + "/chat_templates", templates));
  if (templates.empty()) FOVEA_RETURN_IF_ERROR(add_json(dir + "/tokenizer_config.json", templates));
  if (templates.empty()) FOVEA_RETURN_IF_ERROR(add_json(dir + "/chat_template.json", templates));
  if (templates.empty()) FOVEA_RETURN_IF_ERROR(add_encoder(dir + kDeepSeekEncoder, templates));
  if (templates.empty() && is_gpt_oss(dir))
    templates.push_back({kDefault, std::string(harmony_template()), kHarmony});
  return templates;
}

Result<NamedTemplate> read_given_template(const std::string& text_or_file) {
  if (text_or_file.find("{{") != std::string::npos || text_or_file.find("{%") != std::string::npos)
    return NamedTemplate{kDefault, text_or_file, "the given chat template"};
  std::error_code ignored;
  if (text_or_file == kHarmony && !fs::exists(text_or_file, ignored))
    return NamedTemplate{kDefault, std::string(harmony_template()), kHarmony};
  if (!fs::exists(text_or_file, ignored))
    return not_found("chat template " + printable(text_or_file) +
                     " is not a file; give a file, or a template text, which has {{ or {% in it");
  FOVEA_TRY(source, read_text_file(text_or_file, kMaxTemplateBytes));
  return NamedTemplate{kDefault, std::move(source), fs::path(text_or_file).filename().string()};
}

}  // namespace fovea
