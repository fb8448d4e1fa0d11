#pragma once
// Builds the parts of an engine before it runs: configuration, backends, tokenizer, weights, KV cache.
#include <memory>
#include <optional>
#include <vector>

#include "engine/chat_prompt.h"
#include "engine/device_executor.h"
#include "engine/engine_gpu.h"
#include "engine/head_drafter.h"
#include "engine/lora_table.h"
#include "engine/memory_bill.h"
#include "engine/model_runner.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/speculator.h"
#include "fovea/engine.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace fovea {

class EngineSetup {
 public:
  /// The order is part of the contract (README.md): cheap checks fail before anything large is read.
  Status open(const EngineConfig& config);

  EngineInfo info;
  ModelConfig model_config;
  RequestContext context;
  SchedulerConfig scheduler;

  // Declaration order matters: each member is destroyed before those it uses.
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Stream> stream;                   ///< of the CPU
  std::optional<EngineGpu> gpu;                     ///< nullopt: the model runs on the CPU
  std::unique_ptr<Tokenizer> tokenizer;             ///< null: the model has none
  std::unique_ptr<ConstraintCompiler> constraints;  ///< null without a tokenizer
  ChatPrompt chat;
  std::unique_ptr<LoraLayout> lora_layout;  ///< null: no adapters, or on the CPU
  std::unique_ptr<LoraTable> loras;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<KvCache> kv;
  std::unique_ptr<LoraSlots> lora_slots;  ///< with lora_layout
  std::unique_ptr<Drafter> drafter;       ///< null: no drafts

  /// Takes the drafter. Null: no drafts.
  std::unique_ptr<Speculator> make_speculator(const EngineConfig& config);

  /// For the executor of the GPU.
  DeviceExecutor::Options executor;
  /// Reports what the engine has taken of the GPU's memory beside what was computed before.
  void report_gpu_memory(const EngineConfig& config);

 private:
  Status check_config(const EngineConfig& config);
  Status choose_device(const EngineConfig& config);
  Status choose_lengths(const EngineConfig& config);
  int rows_alike(const EngineConfig& config) const;
  /// Whether latent attention has no other prefill than its decode backend's: it has on the CPU.
  bool absorbs_prefill() const { return model_config.mla && device_.kind != DeviceKind::cpu; }
  Status select_backends(const EngineConfig& config, const BackendRegistry& registry);
  Status load_text(const EngineConfig& config);
  Status load_loras(const LoraConfig& config);
  Status allow_loras(const LoraConfig& config);
  int64_t lora_block_rows() const;
  Status load_model(const EngineConfig& config, const BackendRegistry& registry);
  ModelRunner::Options runner_options(const EngineConfig& config) const;
  std::vector<KvGroup> groups_of_cache() const;
  Status fit_gpu_memory(const EngineConfig& config, const BackendRegistry& registry);
  Result<int64_t> choose_pages(const EngineConfig& config, int64_t bytes_per_page) const;
  Status make_kv_cache(const EngineConfig& config);
  Status read_draft_head(const EngineConfig& config);
  Status make_drafter(const EngineConfig& config, const BackendRegistry& registry);
  bool drafts_there() const;
  DrafterDevice drafter_device(const BackendRegistry& registry) const;
  Status make_head_drafter(const EngineConfig& config, DrafterDevice device);
  Status place_drafter(int64_t pages);
  Status check_speculative(const EngineConfig& config) const;
  /// Bytes of a drafter's keys and values beside a page of the model's cache.
  int64_t drafter_kv_bytes() const {
    return drafter_with_model_ ? drafter_with_model_->kv_bytes_per_page() : 0;
  }
  void log_start() const;
  void log_kv_scales() const;

  DeviceInfo device_;
  DType activations_ = DType::f32;
  int max_seqs_ = 0, max_logit_rows_ = 0;
  GpuBill bill_;
  int64_t gpu_pages_ = 0;
  std::optional<DraftHeadConfig> head_;             ///< of a drafter that reads hidden states
  DrafterWithModel* drafter_with_model_ = nullptr;  ///< `drafter`, if it is one
};

}  // namespace fovea
