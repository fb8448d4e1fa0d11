#include "files/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_depth.h"
#include "base/printable.h"
#include "files/text_file.h"
#include "fovea/result.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxIndexBytes = 256u << 20;
constexpr size_t kMaxShards = 10'000;

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_plain_shard_name(const std::string& name) {
  return name.size() > 12 && name.size() < 256 && name.ends_with(".safetensors") && name[0] != '.' &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

/// The error for a directory without safetensors.
Error no_weights(const std::string& dir) {
  std::error_code code;
  for (fs::directory_iterator it(dir, code), end; !code && it != end; it.increment(code)) {
    const std::string ext = it->path().extension().string();
    if (ext == ".bin" || ext == ".pt" || ext == ".pth" || ext == ".ckpt")
      return unsupported(dir + ": only pickled weights (" + printable(it->path().filename().string()) +
                         "), which can run code when read; convert them to safetensors "
                         "(transformers: save_pretrained(dir, safe_serialization=True))");
    if (ext == ".gguf")
      return unsupported(dir + ": GGUF weights (" + printable(it->path().filename().string()) +
                         ") aren't supported; use the model's Hugging Face directory with model.safetensors");
  }
  return not_found(dir +
                   ": no weights; there must be model.safetensors, or model.safetensors.index.json with "
                   "its shards (or use --dummy-weights)");
}

/// weight_map of an index: tensor -> file.
Result<std::map<std::string, std::string>> read_index(const std::string& path) {
  FOVEA_TRY(text, read_text_file(path, kMaxIndexBytes));
  if (json_nests_deeper(text))
    return invalid(path + ": nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
  const auto root = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("weight_map") || !root["weight_map"].is_object())
    return invalid(path + ": must be a JSON object with \"weight_map\": {tensor: file}");
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : root["weight_map"].items()) {
    if (!file.is_string() || !is_plain_shard_name(file.get_ref<const std::string&>()))
      return invalid(path + ": weight_map of \"" + printable(tensor) + "\" is " +
                     printable(file.dump(-1, ' ', true)) +
                     "; allowed is the plain name of a .safetensors file in the same directory");
    map.emplace(tensor, file.get<std::string>());
  }
  if (map.empty()) return invalid(path + ": weight_map is empty");
  return map;
}

const SafetensorsEntry* find_entry(const std::vector<SafetensorsEntry>& entries, std::string_view name) {
  const auto it = std::ranges::lower_bound(entries, name, {}, &SafetensorsEntry::name);
  return it != entries.end() && it->name == name ? &*it : nullptr;
}

}  // namespace

std::string CheckpointTensor::where() const {
  return *file + ": tensor \"" + printable(name()) + "\"";
}

Result<const Checkpoint::File*> Checkpoint::add_file(const std::string& path) {
  FOVEA_TRY(map, MappedFile::open(path));
  FOVEA_TRY(entries, parse_safetensors(map.bytes(), path));
  files_.push_back({path, std::move(map), std::move(entries)});
  return &files_.back();
}

Status Checkpoint::add_shards(const std::string& dir, const std::string& index_path) {
  FOVEA_TRY(index, read_index(index_path));
  std::map<std::string, const File*> shards;
  for (const auto& [tensor, name] : index)
    shards[name] = nullptr;
  if (shards.size() > kMaxShards)
    return invalid(index_path + ": " + std::to_string(shards.size()) + " shards; at most " +
                   std::to_string(kMaxShards) + " are allowed");
  for (auto& [name, file] : shards) {
    const std::string path = dir + "/" + name;
    if (!exists(path))
      return not_found(path + ": missing; " + index_path + " names it. Copy or download the model again");
    FOVEA_TRY(added, add_file(path));
    file = added;
  }
  for (const auto& [tensor, name] : index) {
    const File* file = shards[name];
    const SafetensorsEntry* entry = find_entry(file->entries, tensor);
    if (!entry)
      return invalid(index_path + ": maps tensor \"" + printable(tensor) + "\" to " + name +
                     ", which doesn't have it; copy or download the model again");
    tensors_.push_back({entry, &file->path, file->map.bytes().data() + entry->begin, &file->map});
  }
  return {};
}

Result<Checkpoint> Checkpoint::open(const std::string& dir) {
  const std::string single = dir + "/model.safetensors", index = dir + "/model.safetensors.index.json";
  Checkpoint checkpoint;
  if (exists(single)) {
    checkpoint.source_ = single;
    FOVEA_TRY(file, checkpoint.add_file(single));
    for (const auto& entry : file->entries)
      checkpoint.tensors_.push_back(
          {&entry, &file->path, file->map.bytes().data() + entry.begin, &file->map});
  } else if (exists(index)) {
    checkpoint.source_ = index;
    FOVEA_RETURN_IF_ERROR(checkpoint.add_shards(dir, index));
  } else {
    return no_weights(dir);
  }
  return checkpoint;
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto it = std::ranges::lower_bound(tensors_, name, {}, &CheckpointTensor::name);
  return it != tensors_.end() && it->name() == name ? &*it : nullptr;
}

Status CheckpointTensor::read(uint64_t first, std::span<std::byte> to) const {
  return map->read(entry->begin + first, to);
}

void Checkpoint::prefetch() const {
  for (const auto& file : files_)
    file.map.prefetch();
}

}  // namespace fovea
