#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "base/same_name.h"
#include "base/thread_pool.h"
#include "engine/core.h"
#include "engine/cpu_executor.h"
#include "engine/device_executor.h"
#include "engine/engine_setup.h"
#include "fovea/engine.h"
#include "kernels/cpu/machine.h"
#include "profile/scopes.h"

namespace fovea {
namespace {

/// A thread-safe front end; one engine thread owns the core.
class EngineImpl final : public Engine {
 public:
  ~EngineImpl() override;

  Status open(const EngineConfig& config);

  const EngineInfo& info() const override { return setup_->info; }
  EngineStats stats() const override;
  EngineSnapshot snapshot() const override;
  std::optional<Error> failure() const override;
  Result<MachineFloor> measure_floor() const override;
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
    return setup_->tokenizer ? std::string(setup_->tokenizer->token_bytes(id)) : std::string();
  }
  bool has_chat_template() const override { return setup_->chat.exists(); }
  Result<std::string> apply_chat_template(const ChatRequest& request) const override {
    return setup_->chat.render(request);
  }
  SamplingParams default_sampling() const override;
  std::vector<LoraInfo> loras() const override { return setup_->loras->list(); }
  Status load_lora(const LoraModule& module) override { return setup_->loras->load(module); }
  Status unload_lora(const std::string& name) override { return setup_->loras->unload(name); }

 private:
  Result<std::vector<int32_t>> encode(std::string_view text, bool add_special_tokens, size_t most) const;
  /// The answers that `request` asks for, without ids yet.
  Result<std::vector<std::unique_ptr<Request>>> make_answers(GenerateRequest request,
                                                             const OutputSink& sink) const;
  Status make_executor(const EngineConfig& config);
  void run();
  /// Engine thread: makes a snapshot if one is wanted.
  void update_snapshot();
  void publish_stats();

  // Declaration order matters: each member is destroyed before those it uses.
  std::unique_ptr<EngineSetup> setup_ = std::make_unique<EngineSetup>();
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<EngineCore> core_;  // engine thread only

  // The mailbox: all state shared between the engine thread and other threads.
  mutable std::mutex mutex_;
  mutable std::condition_variable work_;
  std::condition_variable idle_;
  std::vector<std::unique_ptr<Request>> arrived_;
  std::vector<uint64_t> cancelled_;
  bool stop_ = false;
  size_t live_ = 0;    // submitted, final output not delivered yet
  bool open_ = false;  // steps, possibly of answers that have ended
  uint64_t next_id_ = 1;
  EngineStats stats_;
  std::optional<Error> failure_;
  mutable std::condition_variable snapshot_made_;
  mutable bool snapshot_wanted_ = false;  // a caller waits for one: ignore the period
  mutable std::chrono::steady_clock::time_point snapshot_asked_{};
  std::shared_ptr<const EngineSnapshot> snapshot_;
  std::thread thread_;
};

Status EngineImpl::open(const EngineConfig& config) {
  FOVEA_RETURN_IF_ERROR(setup_->open(config));
  setup_->scheduler.num_pages = setup_->kv->num_pages(0);
  FOVEA_RETURN_IF_ERROR(make_executor(config));
  core_ = std::make_unique<EngineCore>(setup_->scheduler, *executor_, setup_->make_speculator(config));
  stats_ = core_->stats();
  snapshot_ = std::make_shared<const EngineSnapshot>(core_->snapshot());
  thread_ = std::thread([this] { run(); });
  return {};
}

Status EngineImpl::make_executor(const EngineConfig& config) {
  if (!setup_->gpu) {
    executor_ = std::make_unique<CpuExecutor>(*setup_->runner, *setup_->stream);
    return {};
  }
  EngineGpu& gpu = *setup_->gpu;
  auto executor = std::make_unique<DeviceExecutor>(*setup_->runner, *gpu.ops, *gpu.queue, *setup_->pool,
                                                   setup_->executor);
  FOVEA_RETURN_IF_ERROR(executor->start());
  setup_->report_gpu_memory(config);
  executor_ = std::move(executor);
  return {};
}

EngineImpl::~EngineImpl() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  thread_.join();
  if (!failure_) return;
  // Calls to a device that stands still do not return: its memory is left to the driver.
  (void)core_.release();      // NOLINT(bugprone-unused-return-value)
  (void)executor_.release();  // NOLINT(bugprone-unused-return-value)
  (void)setup_.release();     // NOLINT(bugprone-unused-return-value)
}

std::optional<Error> EngineImpl::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void EngineImpl::run() {
  executor_->begin_thread();
  profile::name_thread("engine");
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
    open_ = !core_->idle();
    if (live_ == 0 && !open_) idle_.notify_all();
  }
  FOVEA_CHECK(core_->idle());  // submit() refuses requests once stop_ is set
}

void EngineImpl::publish_stats() {
  EngineStats stats = core_->stats();
  std::lock_guard lock(mutex_);
  stats_ = std::move(stats);
  failure_ = core_->failure();
}

EngineStats EngineImpl::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

Result<MachineFloor> EngineImpl::measure_floor() const {
  if (setup_->gpu) return unsupported("the rates of a GPU are not measured while an engine uses it");
  try {
    ThreadPool pool(setup_->info.threads);  // the engine thread uses setup_->pool
    return measure_machine_floor(pool);
  } catch (const std::exception& error) {
    return Error{ErrorCode::out_of_memory,
                 std::string("the machine's rates can't be measured: ") + error.what()};
  }
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
  if (priority != 0 && setup_->scheduler.policy != SchedulingPolicy::priority)
    return invalid("priority is " + std::to_string(priority) +
                   ", but requests are served in arrival order; start with --scheduling-policy priority");
  std::shared_ptr<const LoraAdapter> lora;
  if (!request.lora.empty()) {
    FOVEA_TRY(found, setup_->loras->find(request.lora));
    lora = std::move(found);
  }
  FOVEA_TRY(encoder, take_encoder_input(request, setup_->model_config));
  FOVEA_TRY(answers, Request::create(std::move(request), sink, setup_->context));
  for (auto& answer : answers) {
    answer->sequence.priority = priority;
    answer->sequence.encoder = encoder;
    answer->sequence.lora = lora;
  }
  return answers;
}

Result<uint64_t> EngineImpl::submit(GenerateRequest request, OutputSink sink) {
  FOVEA_TRY(answers, make_answers(std::move(request), sink));
  uint64_t id = 0;
  {
    std::lock_guard lock(mutex_);
    if (stop_) return Error{ErrorCode::cancelled, "the engine is shutting down"};
    if (failure_) return Error{ErrorCode::cancelled, "the engine has failed: " + failure_->message};
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
  idle_.wait(lock, [&] { return live_ == 0 && !open_; });
}

Result<BoundedTokens> EngineImpl::tokenize(std::string_view text, bool add_special_tokens,
                                           size_t most) const {
  if (setup_->tokenizer)
    if (const size_t least = setup_->tokenizer->least_ids(text); least > most)
      return BoundedTokens{{}, least};
  FOVEA_TRY(ids, encode(text, add_special_tokens, most));
  if (ids.size() > most) return BoundedTokens{{}, ids.size()};
  return BoundedTokens{std::move(ids), 0};
}

/// Token ids of `text`. For a text of more than `most` tokens, only a prefix of it, of more than `most`
/// tokens.
Result<std::vector<int32_t>> EngineImpl::encode(std::string_view text, bool add_special_tokens,
                                                size_t most) const {
  if (!setup_->tokenizer)
    return not_found(setup_->info.model_dir + "/tokenizer.json is missing; add it or give token ids");
  EncodeOptions options;
  options.add_special_tokens = add_special_tokens;
  options.most_ids = most == SIZE_MAX ? most : most + 1;  // a doubled BOS may be removed below
  auto ids = setup_->tokenizer->encode(text, options);
  // Text from an external chat template may already begin with the BOS token that the tokenizer adds.
  if (add_special_tokens && ids && ids->size() > 1 && (*ids)[0] == (*ids)[1] &&
      (*ids)[0] == setup_->tokenizer->bos_token_id())
    ids->erase(ids->begin());
  return ids;
}

std::string EngineImpl::detokenize(const std::vector<int32_t>& ids, bool skip_special_tokens) const {
  return setup_->tokenizer ? setup_->tokenizer->decode(ids, skip_special_tokens) : std::string();
}

SamplingParams EngineImpl::default_sampling() const {
  SamplingParams p;
  const ModelConfig& c = setup_->model_config;
  if (c.temperature) p.temperature = *c.temperature;
  if (c.top_p) p.top_p = *c.top_p;
  if (c.min_p) p.min_p = *c.min_p;
  if (c.top_k) p.top_k = *c.top_k;
  if (c.repetition_penalty) p.repetition_penalty = *c.repetition_penalty;
  if (c.max_new_tokens) p.max_tokens = c.max_new_tokens;
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
