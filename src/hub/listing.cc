#include "hub/listing.h"

#include <algorithm>

#include "base/printable.h"
#include "fovea/result.h"
#include "text/json_value.h"

namespace fovea::hub {
namespace {

using text::Json;

bool is_hex(std::string_view text, size_t length) {
  return text.size() == length &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_path(std::string_view path) {
  if (path.empty() || path.size() > 512) return false;
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\') return false;
  while (true) {
    const size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

const std::string* string_of(const Json& object, std::string_view key) {
  const Json* value = object.object() ? object.find(key) : nullptr;
  return value ? value->string() : nullptr;
}

Result<RemoteFile> read_file(const Json& entry) {
  const auto wrong = [](const std::string& what) { return invalid("the hub's list of files: " + what); };
  const std::string* path = string_of(entry, "rfilename");
  if (!path || !is_path(*path))
    return wrong("a file is named " + (path ? "\"" + printable(*path, 100) + "\"" : "nothing") +
                 ", which is no path below a folder");
  RemoteFile file{*path, 0, "", true};
  const Json* large = entry.find("lfs");
  const bool is_large = large && large->object();
  const Json* size = is_large ? large->find("size") : entry.find("size");
  if (!size || !size->integer() || *size->integer() < 0) return wrong(printable(*path, 100) + " has no size");
  file.size = *size->integer();
  const std::string* digest = is_large ? string_of(*large, "sha256") : string_of(entry, "blobId");
  file.git = !is_large;
  if (!digest || !is_hex(*digest, is_large ? 64 : 40)) return wrong(printable(*path, 100) + " has no digest");
  file.digest = *digest;
  return file;
}

}  // namespace

Result<Listing> parse_listing(std::string_view json) {
  FOVEA_TRY(parsed, text::parse_json(json, "the hub's answer"));
  Listing out;
  const std::string* commit = string_of(parsed, "sha");
  if (!commit || !is_hex(*commit, 40)) return invalid("the hub's answer has no commit (\"sha\")");
  out.commit = *commit;
  const Json* files = parsed.find("siblings");
  if (!files || !files->array()) return invalid("the hub's answer has no list of files (\"siblings\")");
  for (const Json& entry : *files->array()) {
    if (!entry.object()) return invalid("the hub's list of files has an entry that is no object");
    FOVEA_TRY(file, read_file(entry));
    out.files.push_back(std::move(file));
  }
  std::ranges::sort(out.files, {}, &RemoteFile::path);
  return out;
}

bool is_wanted(std::string_view path) {
  constexpr std::string_view kFolders[] = {"original/", "onnx/", "openvino/", "coreml/", "metal/",
                                           "flax/",     "tf/",   "gguf/",     "assets/", ".github/"};
  constexpr std::string_view kEnds[] = {".safetensors", ".json", ".jinja", ".txt", ".model", ".tiktoken"};
  const std::string_view name = path.substr(path.rfind('/') + 1);
  // Mistral's own form of the same weights.
  if (name.starts_with("consolidated") && name.ends_with(".safetensors")) return false;
  for (const std::string_view folder : kFolders)
    if (path.starts_with(folder)) return false;
  if (path == "encoding/encoding_dsv32.py") return true;  // instead of a chat template; read, never run
  return std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); });
}

std::string url_path(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~/").find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
  }
  return out;
}

std::string repository_folder(const std::string& hub, const std::string& id) {
  const size_t slash = id.find('/');
  return hub + "/models--" + id.substr(0, slash) + "--" + id.substr(slash + 1);
}

std::string link_target(const RemoteFile& file) {
  std::string out = "../../";
  for (const char c : file.path)
    if (c == '/') out += "../";
  return out + "blobs/" + file.digest;
}

}  // namespace fovea::hub
