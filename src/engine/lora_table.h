#pragma once
// The LoRA adapters of an engine, by name. Thread-safe.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fovea/lora.h"
#include "fovea/result.h"
#include "lora/adapter_files.h"
#include "model/config.h"

namespace fovea {

/// The modules of a decoder that adapters can have on the CPU.
LoraShape lora_shape(const ModelConfig& config);

/// What a configuration has to do with the model, before weights are read.
Status check_lora(const LoraConfig& config, const ModelConfig& model);

class LoraTable {
 public:
  /// With !config.on(): without adapters for ever.
  /// `layout`: of the slots of a device that is not the CPU; it outlives the table. Null: none.
  LoraTable(const LoraConfig& config, LoraShape shape, const LoraLayout* layout = nullptr)
      : config_(config), shape_(std::move(shape)), layout_(layout) {}

  /// Reads the adapter; while it does, others can be found and loaded.
  Status load(const LoraModule& module);
  /// Who has found it keeps it.
  Status unload(const std::string& name);
  /// Errors: there is none of this name.
  Result<std::shared_ptr<const LoraAdapter>> find(const std::string& name) const;
  std::vector<LoraInfo> list() const;

 private:
  struct Entry {
    LoraInfo info;
    std::shared_ptr<const LoraAdapter> adapter;  // null while it is read
  };
  Status reserve(const LoraModule& module);
  Result<LoraAdapter> read(const LoraModule& module) const;

  LoraConfig config_;
  LoraShape shape_;
  const LoraLayout* layout_;
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  uint64_t last_number_ = 0;
};

}  // namespace fovea
