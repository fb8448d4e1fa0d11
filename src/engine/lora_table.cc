#include "engine/lora_table.h"

#include <chrono>
#include <new>

#include "base/log.h"
#include "base/printable.h"
#include "engine/check_range.h"

namespace fovea {
namespace {

constexpr size_t kMaxName = 256;

std::string called(const std::string& name) {
  return "the LoRA adapter \"" + printable(name) + "\"";
}

int64_t seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

LoraShape lora_shape(const ModelConfig& config) {
  LoraShape shape;
  shape.hidden = config.hidden_size;
  shape.q = int64_t{config.num_heads} * config.head_dim;
  shape.kv = int64_t{config.num_kv_heads} * config.head_dim;
  shape.intermediate = config.intermediate_size;
  if (const MlaConfig& mla = config.mla) {
    shape.q = int64_t{config.num_heads} * mla.v_dim;
    shape.queries = int64_t{config.num_heads} * mla.qk_dim();
    shape.q_rank = mla.q_rank;
    shape.record = mla.record();
  }
  for (const LayerConfig& layer : config.layers)
    shape.dense_mlp.push_back(!layer.moe);
  const MoeConfig& moe = config.moe;
  if (moe.num_experts > 0 && moe.layout != MoeLayout::gpt_oss && moe.layout != MoeLayout::llama4) {
    const bool mixtral = moe.layout == MoeLayout::mixtral;
    shape.experts = moe.num_experts;
    shape.expert_intermediate = moe.intermediate_size;
    shape.shared_intermediate = moe.shared_intermediate_size;
    shape.expert_block = mixtral ? "block_sparse_moe." : "mlp.";
    if (mixtral) shape.expert_parts = {"w1", "w3", "w2"};
    if (moe.layout == MoeLayout::deepseek) shape.shared_name = "shared_experts";
  }
  if (config.architecture == "Llama4ForCausalLM") shape.mlp_name = "feed_forward";
  shape.stacked = config.architecture == "Phi3ForCausalLM";
  return shape;
}

Status check_lora(const LoraConfig& config, const ModelConfig& model) {
  FOVEA_RETURN_IF_ERROR(check_range("the largest LoRA rank", config.max_rank, 1, kMaxLoraRank));
  FOVEA_RETURN_IF_ERROR(check_range("the number of LoRA adapters in a step", config.max_loras, 0, 1 << 16));
  FOVEA_RETURN_IF_ERROR(check_range("the number of loaded LoRA adapters", config.max_loaded, 0, 1 << 16));
  if (!config.on()) return {};
  if (model.kind != ModelKind::decoder)
    return unsupported(model.architecture + " can't have LoRA adapters; decoders can");
  if (model.moe.layout == MoeLayout::longcat)
    return unsupported(model.architecture +
                       " can't have LoRA adapters: its layers have two blocks of each kind");
  return {};
}

Status LoraTable::reserve(const LoraModule& module) {
  if (!config_.on())
    return unsupported("LoRA adapters are off; start with --enable-lora or --lora-modules NAME=PATH");
  if (module.name.empty() || module.name.size() > kMaxName)
    return invalid("a LoRA adapter's name is \"" + printable(module.name) + "\"; give one of 1 to " +
                   std::to_string(kMaxName) + " bytes");
  const std::lock_guard lock(mutex_);
  if (entries_.contains(module.name))
    return invalid(called(module.name) + " is loaded already; unload it first, or choose another name");
  if (config_.max_loaded > 0 && entries_.size() >= static_cast<size_t>(config_.max_loaded))
    return invalid(std::to_string(entries_.size()) + " LoRA adapters are loaded, the limit " +
                   "(--max-cpu-loras); unload one first");
  entries_[module.name].info.name = module.name;
  return {};
}

Result<LoraAdapter> LoraTable::read(const LoraModule& module) const {
  try {
    FOVEA_TRY(adapter, read_lora_adapter(module.path, shape_, config_.max_rank));
    if (layout_ == nullptr) return adapter;
    adapter.image = lora_image(adapter, *layout_);
    adapter.layers.clear();
    adapter.experts.clear();
    return adapter;
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "out of memory"};
  }
}

Status LoraTable::load(const LoraModule& module) {
  FOVEA_RETURN_IF_ERROR(reserve(module));
  auto read = this->read(module);
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(module.name);
  if (!read) {
    entries_.erase(entry);
    return Error{read.error().code, called(module.name) + ": " + read.error().message};
  }
  read->number = ++last_number_;
  read->name = module.name;
  entry->second.info = {module.name, module.path, read->rank, read->bytes(), seconds_since_1970()};
  entry->second.adapter = std::make_shared<const LoraAdapter>(*std::move(read));
  FOVEA_LOG(info) << "LoRA adapter " << printable(module.name) << " from " << printable(module.path, 400)
                  << ": rank " << entry->second.info.rank << ", " << (entry->second.info.bytes >> 10)
                  << " KiB";
  return {};
}

Status LoraTable::unload(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(name);
  if (entry == entries_.end() || !entry->second.adapter) return not_found(called(name) + " is not loaded");
  entries_.erase(entry);
  return {};
}

Result<std::shared_ptr<const LoraAdapter>> LoraTable::find(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(name);
  if (entry != entries_.end() && entry->second.adapter) return entry->second.adapter;
  return not_found(called(name) + " is not loaded" + (entries_.empty() ? "; none is" : "; others are"));
}

std::vector<LoraInfo> LoraTable::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<LoraInfo> out;
  for (const auto& [name, entry] : entries_)
    if (entry.adapter) out.push_back(entry.info);
  return out;
}

}  // namespace fovea
