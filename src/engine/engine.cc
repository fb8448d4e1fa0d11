#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "attention/selection_context.h"
#include "base/check.h"
#include "base/dtype_names.h"
#include "base/log.h"
#include "base/same_name.h"
#include "engine/chat_prompt.h"
#include "engine/check_device.h"
#include "engine/check_range.h"
#include "engine/core.h"
#include "engine/cpu_executor.h"
#include "engine/kv_sizing.h"
#include "fovea/backend_library.h"
#include "fovea/engine.h"
#include "model/kv_groups.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace fovea {
namespace {

// Logits buffer of a step that scores prompts: bounded, with enough rows for an efficient LM head GEMM.
constexpr int64_t kMaxLogitsBytes = int64_t{64} << 20;

/// The most keys that a query sees in any layer, its own included; 0 = some layer sees all.
int window_of(const ModelConfig& config) {
  int window = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window == 0 && layer.chunk == 0) return 0;
    const int both = layer.window > 0 && layer.chunk > 0 ? std::min(layer.window, layer.chunk)
                                                         : std::max(layer.window, layer.chunk);
    window = std::max(window, both);
  }
  return window;
}

std::string describe_rope_choice(const ModelConfig& config, int max_seq_len) {
  for (const RopeConfig& rope : config.ropes)
    if (rope.scaling == RopeScaling::longrope)
      return std::string("rope: longrope's ") + (rope.long_context ? "long" : "short") +
             " factors, because the longest length " + std::to_string(max_seq_len) + " is " +
             (rope.long_context ? "beyond" : "within") + " the original context of " +
             std::to_string(rope.original_max_position);
  return "";
}

/// A thread-safe front end; one engine thread owns the core.
class EngineImpl final : public Engine {
 public:
  ~EngineImpl() override;

  /// The order is part of the contract: cheap checks fail before anything large is read.
  Status open(const EngineConfig& config);

  const EngineInfo& info() const override { return info_; }
  EngineStats stats() const override;
  EngineSnapshot snapshot() const override;
  Result<uint64_t> submit(GenerateRequest request, OutputSink sink) override;
  Status check(const GenerateRequest& request) const override;
  void cancel(uint64_t id) override;
  void wait_idle() override;

  Result<std::vector<int32_t>> tokenize(std::string_view text, bool add_special_tokens) const override {
    return encode(text, add_special_tokens, SIZE_MAX);
  }
  Result<BoundedTokens> tokenize(std::string_view text, bool add_special_tokens, size_t most) const override;
  std::string detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens) const override;
  std::string token_bytes(int32_t id) const override {
    return tokenizer_ ? std::string(tokenizer_->token_bytes(id)) : std::string();
  }
  bool has_chat_template() const override { return chat_.exists(); }
  Result<std::string> apply_chat_template(const ChatRequest& request) const override {
    return chat_.render(request);
  }
  SamplingParams default_sampling() const override;

 private:
  Result<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens, size_t most) const;
  Status check_config(const EngineConfig& config);
  Status choose_lengths(const EngineConfig& config);
  Status select_backends(const EngineConfig& config, const BackendRegistry& registry);
  Status load_text(const EngineConfig& config);
  Status load_model(const EngineConfig& config, const BackendRegistry& registry);
  Status make_kv_cache(const EngineConfig& config);
  void log_start() const;
  void log_kv_scales() const;
  /// The answers that `request` asks for, without ids yet.
  Result<std::vector<std::unique_ptr<Request>>> make_answers(GenerateRequest request,
                                                             const OutputSink& sink) const;
  void start();
  void run();
  /// Engine thread: makes a snapshot if one is wanted.
  void update_snapshot();
  void publish_stats();

  EngineInfo info_;
  ModelConfig model_config_;
  RequestContext context_;
  DType activations_ = DType::f32;
  int max_seqs_ = 0, max_logit_rows_ = 0;
  SchedulerConfig scheduler_config_;

  // Declaration order matters: each member is destroyed before those it uses.
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ChatPrompt chat_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<EngineCore> core_;  // engine thread only

  // The mailbox: all state shared between the engine thread and other threads.
  mutable std::mutex mutex_;
  mutable std::condition_variable work_;
  std::condition_variable idle_;
  std::vector<std::unique_ptr<Request>> arrived_;
  std::vector<uint64_t> cancelled_;
  bool stop_ = false;
  size_t live_ = 0;  // submitted, final output not delivered yet
  uint64_t next_id_ = 1;
  EngineStats stats_;
  mutable std::condition_variable snapshot_made_;
  mutable bool snapshot_wanted_ = false;  // a caller waits for one: ignore the period
  mutable std::chrono::steady_clock::time_point snapshot_asked_{};
  std::shared_ptr<const EngineSnapshot> snapshot_;
  std::thread thread_;
};

Status EngineImpl::open(const EngineConfig& config) {
  FOVEA_TRY(registry, with_backend_libraries(backends_or_builtin(config.registry), config.backend_libraries));
  FOVEA_RETURN_IF_ERROR(check_config(config));
  FOVEA_TRY(dir, resolve_model_dir(config.model));
  info_.model_dir = dir;
  FOVEA_TRY(model_config, load_model_config(dir, config.generation_config));
  model_config_ = std::move(model_config);
  if (model_config_.kind == ModelKind::encoder)
    return unsupported(dir + ": " + model_config_.architecture +
                       " is an encoder, which generates no text; use fovea embed");
  FOVEA_RETURN_IF_ERROR(choose_lengths(config));
  FOVEA_RETURN_IF_ERROR(select_backends(config, registry));
  FOVEA_RETURN_IF_ERROR(load_text(config));
  pool_ = std::make_unique<ThreadPool>(config.threads);
  stream_ = std::make_unique<Stream>(*pool_);
  info_.threads = pool_->size();
  FOVEA_RETURN_IF_ERROR(load_model(config, registry));
  FOVEA_RETURN_IF_ERROR(make_kv_cache(config));
  log_start();
  start();
  return {};
}

Status EngineImpl::check_config(const EngineConfig& config) {
  FOVEA_RETURN_IF_ERROR(check_device(config.device));
  FOVEA_RETURN_IF_ERROR(check_range("the number of threads", config.threads, 0, kMaxThreads));
  FOVEA_RETURN_IF_ERROR(check_range("max_running_requests", config.max_running_requests, 1, 1 << 16));
  FOVEA_RETURN_IF_ERROR(check_range("max_batched_tokens", config.max_batched_tokens, 1, kMaxBatchedTokens));
  FOVEA_RETURN_IF_ERROR(check_range("max_logprobs", config.max_logprobs, -1, 1 << 30));
  return {};
}

Status EngineImpl::choose_lengths(const EngineConfig& config) {
  const int64_t longest = std::min<int64_t>(model_config_.max_position, 1 << 30);
  if (config.max_seq_len && *config.max_seq_len > longest)
    return invalid("the maximum sequence length is " + std::to_string(*config.max_seq_len) +
                   "; this model's maximum context length is " + std::to_string(longest) + " tokens");
  info_.max_seq_len = config.max_seq_len.value_or(static_cast<int>(longest));
  FOVEA_RETURN_IF_ERROR(check_range("the maximum sequence length", info_.max_seq_len, 1, longest));
  fit_to_length(model_config_, info_.max_seq_len);
  info_.rope_choice = describe_rope_choice(model_config_, info_.max_seq_len);
  info_.architecture = model_config_.architecture;
  info_.dtype = config.dtype.value_or(model_config_.dtype);
  info_.vocab_size = model_config_.vocab_size;
  max_seqs_ = std::min(config.max_running_requests, config.max_batched_tokens);
  const int64_t rows = kMaxLogitsBytes / (int64_t{info_.vocab_size} * static_cast<int64_t>(sizeof(float)));
  max_logit_rows_ = static_cast<int>(std::clamp<int64_t>(rows, max_seqs_, config.max_batched_tokens));
  if (config.attention.use_non_causal.value_or(false)) {
    // Each row of a prompt sees all of it, so a prompt is computed in one step, with the logits of all its
    // rows where wanted; and the keys of a shared prefix depend on the tokens after it, so it cannot be
    // cached.
    scheduler_config_.whole_prompts = true;
    context_.max_prompt_len = config.max_batched_tokens;
    context_.whole_prompts_from = setting(config.attention, "use_non_causal");
    max_logit_rows_ = config.max_batched_tokens;
  }
  scheduler_config_.max_running = config.max_running_requests;
  scheduler_config_.max_batched_tokens = config.max_batched_tokens;
  scheduler_config_.max_logit_rows = max_logit_rows_;
  scheduler_config_.policy = config.scheduling_policy;
  scheduler_config_.max_seq_len = info_.max_seq_len;
  if (model_config_.encoder)
    scheduler_config_.max_encoder_len = model_config_.encoder->max_position;
  else if (const int window = window_of(model_config_); window < info_.max_seq_len)
    scheduler_config_.window = window;
  // With an encoder, a prefix's keys depend on the encoder input, which the radix tree's tokens do not
  // include.
  scheduler_config_.prefix_cache =
      config.prefix_cache && !model_config_.encoder && !scheduler_config_.whole_prompts;
  info_.prefix_cache = scheduler_config_.prefix_cache;
  return {};
}

Status EngineImpl::select_backends(const EngineConfig& config, const BackendRegistry& registry) {
  info_.kv_dtype = resolve(config.kv_cache_dtype, info_.dtype);
  info_.kv_layout = config.kv_layout == KvLayout::auto_ ? KvLayout::hnd : config.kv_layout;
  activations_ = activation_dtype(config.device, info_.dtype);
  for (AttentionSpec spec : attention_specs(model_config_)) {
    spec = with_settings(ModelRunner::resolve(spec, activations_, info_.kv_dtype, info_.kv_layout, 0),
                         config.attention);
    spec.page_size = 0;  // to be chosen
    if (std::ranges::find(info_.specs, spec) == info_.specs.end()) info_.specs.push_back(spec);
  }
  FOVEA_TRY(selection, select(config.attention, info_.specs, config.device, registry));
  if (size_of(info_.kv_dtype) == 0)  // a backend can read it, but no kernel writes it
    return unsupported("--kv-cache-dtype " + std::string(to_string(info_.kv_dtype)) +
                       " can't be stored by this build; allowed are " + stored_kv_cache_dtypes());
  for (const std::string& warning : selection.warnings)
    FOVEA_LOG(warning) << warning;
  for (AttentionSpec& spec : info_.specs)
    spec = ModelRunner::resolve(spec, activations_, info_.kv_dtype, info_.kv_layout, selection.page_size);
  info_.selection = std::move(selection);
  return {};
}

Status EngineImpl::load_text(const EngineConfig& config) {
  auto tokenizer = Tokenizer::load(info_.model_dir);
  if (tokenizer) {
    tokenizer_ = *std::move(tokenizer);
  } else if (tokenizer.error().code == ErrorCode::not_found) {
    FOVEA_LOG(warning) << tokenizer.error().message
                       << ": prompts must be token ids, and answers have no text";
  } else {
    return tokenizer.error();
  }
  FOVEA_TRY(chat, ChatPrompt::load(info_.model_dir, tokenizer_.get(), config));
  chat_ = std::move(chat);
  context_.tokenizer = tokenizer_.get();
  context_.eos_token_ids = model_config_.eos_token_ids;
  if (tokenizer_ && tokenizer_->eos_token_id()) {
    const int32_t id = *tokenizer_->eos_token_id();
    auto& ids = context_.eos_token_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  context_.vocab_size = info_.vocab_size;
  context_.sampled_vocab =
      tokenizer_ ? std::min(tokenizer_->vocab_size(), info_.vocab_size) : info_.vocab_size;
  context_.max_seq_len = info_.max_seq_len;
  context_.max_logprobs = config.max_logprobs;
  context_.seed = config.seed;
  if (model_config_.kind == ModelKind::encoder_decoder) context_.forcing = &model_config_.forcing;
  return {};
}

Status EngineImpl::load_model(const EngineConfig& config, const BackendRegistry& registry) {
  ModelLoadOptions options;
  options.dir = info_.model_dir;
  options.dtype = config.dtype;
  options.dummy_weights = config.dummy_weights;
  options.seed = config.seed;
  options.progress = config.load_progress;
  FOVEA_TRY(model, Model::load(model_config_, options, *stream_));
  model_ = std::move(model);
  info_.weight_bytes = model_->weight_bytes();
  info_.weight_bytes_per_token = model_->weight_bytes_per_token();

  ModelRunner::Options runner_options;
  runner_options.limits = {max_seqs_, config.max_batched_tokens, int64_t{max_seqs_} * info_.max_seq_len,
                           info_.max_seq_len};
  runner_options.attention = config.attention;
  runner_options.activations = activations_;
  runner_options.kv_dtype = info_.kv_dtype;
  runner_options.kv_layout = info_.kv_layout;
  runner_options.max_logit_rows = max_logit_rows_;
  runner_options.max_encoder_len = scheduler_config_.max_encoder_len;
  runner_options.max_encoder_rows = scheduler_config_.max_encoder_rows();
  FOVEA_TRY(runner, ModelRunner::create(*model_, info_.selection, registry, runner_options));
  runner_ = std::move(runner);
  return {};
}

Status EngineImpl::make_kv_cache(const EngineConfig& config) {
  const int page_size = info_.selection.page_size;
  const std::vector<KvGroup> groups =
      kv_groups(model_config_, info_.kv_dtype, info_.kv_layout, page_size, model_->kv_scales());
  FOVEA_CHECK(groups.size() == 1);  // the scheduler's pages are those of one group

  KvSizing sizing;
  sizing.bytes_per_page = bytes_per_page(groups);
  sizing.page_size = page_size;
  sizing.max_seq_len = info_.max_seq_len;
  scheduler_config_.page_size = page_size;
  sizing.sequence_pages = longest_sequence_pages(scheduler_config_);
  sizing.max_running = max_seqs_;
  sizing.num_pages = config.num_pages;
  sizing.memory_share = config.memory_share;
  // The scratch is allocated but not touched yet, so the system still counts it as free.
  sizing.available = std::max<int64_t>(0, available_memory() - runner_->scratch_bytes());
  FOVEA_TRY(pages, choose_num_pages(sizing));
  FOVEA_TRY(cache, KvCache::create(groups, {pages}));
  kv_ = std::make_unique<KvCache>(std::move(cache));
  runner_->set_kv_cache(*kv_);
  info_.workspace_bytes = runner_->scratch_bytes();
  info_.kv_tokens = pages * page_size;
  info_.kv_sequences = static_cast<double>(pages) / static_cast<double>(sizing.sequence_pages);
  info_.kv_bytes = pages * sizing.bytes_per_page;
  info_.kv_bytes_per_token = bytes_per_token(groups);
  return {};
}

/// Logs what info() does not contain; printing info() is up to its caller.
void EngineImpl::log_start() const {
  log_kv_scales();
  if (scheduler_config_.whole_prompts) {
    FOVEA_LOG(info) << "no causal mask (" << context_.whole_prompts_from
                    << "): a prompt is computed in one step of at most " << context_.max_prompt_len
                    << " tokens, and no prefix is reused";
  }
  if (scheduler_config_.window > 0) {
    FOVEA_LOG(info) << "sliding window of " << scheduler_config_.window
                    << " tokens in all layers: a sequence holds at most "
                    << decoder_pages(scheduler_config_) * scheduler_config_.page_size << " tokens at a time";
  }
}

void EngineImpl::log_kv_scales() const {
  const KvScales& scales = model_->kv_scales();
  const std::string_view dtype = to_string(info_.kv_dtype);
  const bool fp8 = is_fp8(info_.kv_dtype);
  if (fp8 && scales.empty()) {
    FOVEA_LOG(warning) << "KV scales: the checkpoint has none, so that 1.0 is used with " << dtype
                       << "; keys and values beyond its range are cut off";
  } else if (fp8) {
    FOVEA_LOG(info) << "KV scales: checkpoint, " << scales.summary();
  } else if (!scales.empty()) {
    FOVEA_LOG(info) << "KV scales: the checkpoint's are for an fp8 cache; " << dtype << " doesn't use them";
  }
}

void EngineImpl::start() {
  scheduler_config_.num_pages = kv_->num_pages(0);
  executor_ = std::make_unique<CpuExecutor>(*runner_, *stream_);
  core_ = std::make_unique<EngineCore>(scheduler_config_, *executor_);
  stats_ = core_->stats();
  snapshot_ = std::make_shared<const EngineSnapshot>(core_->snapshot());
  thread_ = std::thread([this] { run(); });
}

EngineImpl::~EngineImpl() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void EngineImpl::run() {
  std::vector<std::unique_ptr<Request>> arrived;
  std::vector<uint64_t> cancelled;
  for (bool stop = false; !stop;) {
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [&] {
        return stop_ || snapshot_wanted_ || !arrived_.empty() || !cancelled_.empty() || !core_->idle();
      });
      arrived.swap(arrived_);
      cancelled.swap(cancelled_);
      stop = stop_;
    }
    size_t handled = core_->live() + arrived.size();
    for (auto& request : arrived)
      core_->add(std::move(request));
    for (uint64_t id : cancelled)
      core_->cancel(id);
    arrived.clear();
    cancelled.clear();
    if (stop)
      core_->cancel_all();
    else
      core_->step([&] { publish_stats(); });
    handled -= core_->live();
    update_snapshot();
    publish_stats();
    std::lock_guard lock(mutex_);
    live_ -= handled;
    if (live_ == 0) idle_.notify_all();
  }
  FOVEA_CHECK(core_->idle());  // submit() refuses requests once stop_ is set
}

void EngineImpl::publish_stats() {
  EngineStats stats = core_->stats();
  std::lock_guard lock(mutex_);
  stats_ = std::move(stats);
}

EngineStats EngineImpl::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

void EngineImpl::update_snapshot() {
  const auto now = std::chrono::steady_clock::now();
  {
    std::lock_guard lock(mutex_);
    // When idle, the next update may be far away, so publish the final state at once.
    const bool due = core_->idle() || now - snapshot_->made >= kSnapshotPeriod;
    if (!snapshot_wanted_ && (now - snapshot_asked_ >= kSnapshotInterest || !due)) return;
  }
  auto made = std::make_shared<const EngineSnapshot>(core_->snapshot());
  {
    std::lock_guard lock(mutex_);
    snapshot_.swap(made);
    snapshot_wanted_ = false;
  }
  snapshot_made_.notify_all();
}

EngineSnapshot EngineImpl::snapshot() const {
  std::unique_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  const bool watched = now - snapshot_asked_ < kSnapshotInterest;
  snapshot_asked_ = now;
  if (!watched) {
    snapshot_wanted_ = true;
    work_.notify_one();
  }
  if (snapshot_wanted_)
    snapshot_made_.wait_for(lock, kSnapshotPatience, [&] { return snapshot_->made >= now; });
  const auto newest = snapshot_;
  lock.unlock();
  return *newest;
}

Result<std::vector<std::unique_ptr<Request>>> EngineImpl::make_answers(GenerateRequest request,
                                                                       const OutputSink& sink) const {
  const int priority = request.priority;
  if (priority != 0 && scheduler_config_.policy != SchedulingPolicy::priority)
    return invalid("priority is " + std::to_string(priority) +
                   ", but requests are served in arrival order; start with --scheduling-policy priority");
  FOVEA_TRY(encoder, take_encoder_input(request, model_config_));
  FOVEA_TRY(answers, Request::create(std::move(request), sink, context_));
  for (auto& answer : answers) {
    answer->sequence.priority = priority;
    answer->sequence.encoder = encoder;
  }
  return answers;
}

Result<uint64_t> EngineImpl::submit(GenerateRequest request, OutputSink sink) {
  FOVEA_TRY(answers, make_answers(std::move(request), sink));
  uint64_t id = 0;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return Error{ErrorCode::cancelled, "the engine is shutting down"};
    id = next_id_;
    next_id_ += answers.size();
    live_ += answers.size();
    for (auto& answer : answers) {
      answer->set_id(id);
      arrived_.push_back(std::move(answer));
    }
  }
  work_.notify_one();
  return id;
}

Status EngineImpl::check(const GenerateRequest& request) const {
  FOVEA_TRY(answers, make_answers(request, nullptr));
  return {};
}

void EngineImpl::cancel(uint64_t id) {
  {
    std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
  }
  work_.notify_one();
}

void EngineImpl::wait_idle() {
  FOVEA_CHECK(std::this_thread::get_id() != thread_.get_id());  // a sink would wait for itself: deadlock
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return live_ == 0; });
}

Result<BoundedTokens> EngineImpl::tokenize(std::string_view text, bool add_special_tokens,
                                           size_t most) const {
  if (tokenizer_)
    if (const size_t least = tokenizer_->least_ids(text); least > most) return BoundedTokens{{}, least};
  FOVEA_TRY(ids, encode(text, add_special_tokens, most));
  if (ids.size() > most) return BoundedTokens{{}, ids.size()};
  return BoundedTokens{std::move(ids), 0};
}

/// Token ids of `text`. For a text of more than `most` tokens, only a prefix of it, of more than `most`
/// tokens.
Result<std::vector<int32_t>> EngineImpl::encode(std::string_view text, bool add_special_tokens,
                                                size_t most) const {
  if (!tokenizer_) return not_found(info_.model_dir + "/tokenizer.json is missing; add it or give token ids");
  EncodeOptions options;
  options.add_special_tokens = add_special_tokens;
  options.most_ids = most == SIZE_MAX ? most : most + 1;  // a doubled BOS may be removed below
  auto ids = tokenizer_->encode(text, options);
  // Text from an external chat template may already begin with the BOS token that the tokenizer adds.
  if (add_special_tokens && ids && ids->size() > 1 && (*ids)[0] == (*ids)[1] &&
      (*ids)[0] == tokenizer_->bos_token_id())
    ids->erase(ids->begin());
  return ids;
}

std::string EngineImpl::detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens) const {
  return tokenizer_ ? tokenizer_->decode(ids, skip_special_tokens) : std::string();
}

SamplingParams EngineImpl::default_sampling() const {
  SamplingParams p;
  const ModelConfig& c = model_config_;
  if (c.temperature) p.temperature = *c.temperature;
  if (c.top_p) p.top_p = *c.top_p;
  if (c.min_p) p.min_p = *c.min_p;
  if (c.top_k) p.top_k = *c.top_k;
  if (c.repetition_penalty) p.repetition_penalty = *c.repetition_penalty;
  if (c.max_new_tokens) p.max_tokens = *c.max_new_tokens;
  if (c.do_sample && !*c.do_sample) p.temperature = 0;  // generation_config.json asks for greedy
  return p;
}

}  // namespace

std::string_view to_string(SchedulingPolicy policy) {
  return policy == SchedulingPolicy::fcfs ? "fcfs" : "priority";
}

std::optional<SchedulingPolicy> parse_scheduling_policy(std::string_view name) {
  for (const SchedulingPolicy policy : {SchedulingPolicy::fcfs, SchedulingPolicy::priority})
    if (same_name(name, to_string(policy))) return policy;
  return std::nullopt;
}

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config) {
  try {
    auto engine = std::make_unique<EngineImpl>();
    FOVEA_RETURN_IF_ERROR(engine->open(config));
    return std::unique_ptr<Engine>(std::move(engine));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "out of memory while loading " + config.model};
  } catch (const std::system_error& error) {  // thread creation failed
    return Error{ErrorCode::internal, std::string("can't start the engine: ") + error.what()};
  }
}

}  // namespace fovea
