#pragma once
// Builds the parts of an engine before it runs: configuration, backends, tokenizer, weights, KV cache.
#include <memory>

#include "engine/chat_prompt.h"
#include "engine/model_runner.h"
#include "engine/request.h"
#include "engine/scheduler.h"
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
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Tokenizer> tokenizer;  ///< null: the model has none
  ChatPrompt chat;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<KvCache> kv;

 private:
  static Status check_config(const EngineConfig& config);
  Status choose_lengths(const EngineConfig& config);
  Status select_backends(const EngineConfig& config, const BackendRegistry& registry);
  Status load_text(const EngineConfig& config);
  Status load_model(const EngineConfig& config, const BackendRegistry& registry);
  Status make_kv_cache(const EngineConfig& config);
  void log_start() const;
  void log_kv_scales() const;

  DType activations_ = DType::f32;
  int max_seqs_ = 0, max_logit_rows_ = 0;
};

}  // namespace fovea
