#pragma once
// The weights of a model directory: model.safetensors, or the shards listed in model.safetensors.index.json.
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/mapped_file.h"
#include "files/safetensors.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// One tensor in the mapped file: row-major, little-endian, any alignment.
struct CheckpointTensor {
  const SafetensorsEntry* entry = nullptr;
  const std::string* file = nullptr;  ///< for messages
  const std::byte* data = nullptr;
  const MappedFile* map = nullptr;

  std::string_view name() const { return entry->name; }
  std::string where() const;  ///< the file and the tensor's printable name, for messages
  size_t bytes() const { return static_cast<size_t>(entry->end - entry->begin); }
  /// Bytes [first, first + to.size()) of the tensor, by MappedFile::read().
  Status read(uint64_t first, std::span<std::byte> to) const;
};

class Checkpoint {
 public:
  /// Maps and checks every file. Missing shards, shards that lack a tensor of the index, names that aren't
  /// plain file names, and directories with pickled weights only are errors.
  static Result<Checkpoint> open(const std::string& dir);

  /// Null when there is no such tensor.
  const CheckpointTensor* find(std::string_view name) const;
  std::span<const CheckpointTensor> tensors() const { return tensors_; }  ///< sorted by name
  const std::string& source() const { return source_; }                   ///< the file that lists the tensors

  /// Requests read-ahead of all files.
  void prefetch() const;

 private:
  struct File {
    std::string path;
    MappedFile map;
    std::vector<SafetensorsEntry> entries;
  };

  Result<const File*> add_file(const std::string& path);
  Status add_shards(const std::string& dir, const std::string& index_path);

  std::string source_;
  std::deque<File> files_;  // tensors point into them, so addresses must be stable
  std::vector<CheckpointTensor> tensors_;
};

}  // namespace fovea
