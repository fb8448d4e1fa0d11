#include "files/model_folder.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/printable.h"
#include "files/text_file.h"
#include "fovea/result.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_directory(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// The error for a model file or folder without read permission.
Error permission_denied(const std::string& path) {
  return io_error(
      printable(path, 400) +
      ": permission denied; let this user read it and enter its folders (chmod -R a+rX FOLDER), or "
      "run as a user with access");
}

}  // namespace

std::string hub_cache_folder() {
  if (const auto hub = variable("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const auto home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  if (const auto xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/huggingface/hub";
  if (const auto home = variable("HOME"); !home.empty()) return home + "/.cache/huggingface/hub";
  return "";
}

bool is_hub_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return !name.empty() && name.size() <= 96 && name.front() != '.' && name.front() != '-' &&
         name.find("..") == std::string_view::npos && std::ranges::all_of(name, allowed);
}

bool is_hub_id(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && is_hub_name(name.substr(0, slash)) &&
         is_hub_name(name.substr(slash + 1));
}

Status refuse_gguf(const std::string& file) {
  char magic[4] = {};
  if (!std::ifstream(file, std::ios::binary).read(magic, sizeof magic) ||
      std::string_view(magic, sizeof magic) != "GGUF")
    return {};
  return unsupported(printable(file, 400) +
                     ": a GGUF file, llama.cpp's format, which is not read; give the directory in Hugging "
                     "Face format that it was made from (config.json, tokenizer.json, *.safetensors)");
}

Result<std::string> find_config(const std::string& dir) {
  const std::string file = dir + "/config.json";
  std::error_code error;
  const bool is_there = fs::exists(file, error);
  if (error == std::errc::permission_denied) return permission_denied(file);
  if (is_there) return file;
  std::string also;
  for (auto at = fs::directory_iterator(dir, error); !error && at != fs::directory_iterator();
       at.increment(error))
    if (at->path().extension() == ".gguf")
      also = ", and this one has a GGUF file, llama.cpp's format, which is not read";
  return not_found(file + ": missing; --model must name a directory in Hugging Face format" + also);
}

Result<std::string> resolve_model_dir(const std::string& name, const std::string& needs) {
  if (is_directory(name)) return name;
  std::error_code error, ignored;
  const bool is_there = fs::exists(name, error);
  if (error == std::errc::permission_denied) return permission_denied(name);
  if (is_there) FOVEA_RETURN_IF_ERROR(refuse_gguf(name));
  if (is_there)
    return invalid(printable(name, 400) +
                   ": not a directory; give the model's directory (config.json, "
                   "tokenizer.json, *.safetensors)");
  if (!is_hub_id(name))
    return not_found("model \"" + printable(name, 400) +
                     "\": no such directory, and not a hub id (ORG/NAME); give one of the two");

  // In huggingface_hub's cache: ROOT/models--ORG--NAME/{refs/main, snapshots/COMMIT/...}.
  const std::string root = hub_cache_folder();
  const std::string download = "; get the files with: fovea pull " + name;
  if (root.empty())
    return not_found("model " + name +
                     ": none of HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME and HOME is set, so "
                     "there is no Hugging Face cache to look in; give the model's directory");
  const size_t slash = name.find('/');
  const std::string repo = root + "/models--" + name.substr(0, slash) + "--" + name.substr(slash + 1);
  if (!is_directory(repo))
    return not_found("model " + name + ": no such directory, and not in the local Hugging Face cache (" +
                     root + ")" + download);
  auto ref = read_text_file(repo + "/refs/main", 4096);
  if (!ref)
    return not_found("model " + name + ": " + repo + " has no refs/main" + download +
                     " (or give a directory under " + repo + "/snapshots)");
  std::string commit = *std::move(ref);
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' '))
    commit.pop_back();
  if (!is_hub_name(commit))
    return invalid(repo + "/refs/main: \"" + printable(commit) + "\" is not a commit name" + download);
  const std::string snapshot = repo + "/snapshots/" + commit;
  if (!is_directory(snapshot) || !fs::exists(snapshot + "/" + needs, ignored))
    return not_found("model " + name + ": " + snapshot + " has no " + needs + "; the download is incomplete" +
                     download);
  return snapshot;
}

}  // namespace fovea
