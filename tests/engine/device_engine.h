#pragma once
// An engine on a GuardedDevice, whose memory the host cannot access and whose operations run late: scheduler,
// runner and DeviceExecutor, with a model of tests/goldens.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/core.h"
#include "engine/device_executor.h"
#include "engine/encoder_input.h"
#include "engine/head_drafter.h"
#include "engine/lora_table.h"
#include "engine/model_drafter.h"
#include "model/kv_groups.h"
#include "model/model_test_support.h"
#include "tests/engine/guarded_queue.h"
#include "tests/reference_device/reference_backend.h"
#include "tests/reference_device/reference_ops.h"

namespace fovea::test {

struct DeviceAnswer {
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs, prompt_logprobs;
  std::vector<float> last_logits;
  FinishReason finish = FinishReason::none;
  std::string error;
  bool operator==(const DeviceAnswer&) const = default;
};

struct DeviceConfig {
  Overlap overlap{2, true};
  std::vector<int> buckets = {1, 2, 4, 6};
  int max_batched_tokens = 33;
  int64_t num_pages = 400;
  bool latest = false;
  double patience = 60;
  uint32_t seed = 0;
  int drafts = 0;  ///< of a step; 0 = none
  /// N-gram drafts of the device: tokens that are looked up, at least and at most.
  std::optional<std::pair<int, int>> ngram = {};
  std::function<std::unique_ptr<Drafter>()> drafter = {};
  /// A drafter with a model, in place of `drafter`; what `watch` makes of it.
  SpeculativeConfig with_model = {};
  std::function<std::unique_ptr<Drafter>(std::unique_ptr<Drafter>)> watch = {};
  /// Rows that decode are sequences of their own in the batch, as beside a backend whose phases differ.
  bool phases_differ = false;
  int decode_rows = 1;  ///< SchedulerConfig::decode_rows
  /// Adapters of requests, by name; their images are made here.
  std::map<std::string, std::shared_ptr<LoraAdapter>> adapters = {};
  int lora_slots = 0;       ///< 0 = no adapters
  int lora_block_rows = 8;  ///< at least as many as a graph has
  /// The constraint of request i; null = none.
  std::function<std::unique_ptr<TokenConstraint>(size_t)> constraint = {};
};

class DeviceEngine {
 public:
  static constexpr int kPageSize = 4, kRunning = 6;

  explicit DeviceEngine(const DeviceConfig& setup, const std::string& name = "llama3_gqa4_d16_bf16")
      : pool_(1),
        stream_(pool_),
        registry_(ReferenceBackend::registry(device_)),
        adapters_(setup.adapters),
        constraint_(setup.constraint) {
    const std::string dir = std::string(FOVEA_SOURCE_DIR) + "/tests/goldens/" + name;
    const auto config = load_model_config(dir);
    EXPECT_TRUE(config.ok()) << config.error().message;
    config_ = *config;
    const bool encodes = config_.encoder.has_value();
    ops_ = encodes ? std::make_unique<PackingOps>(device_) : std::make_unique<ReferenceOps>(device_);
    auto model = Model::load(config_, {.dir = dir, .dtype = DType::f32, .deferred = encodes}, stream_);
    EXPECT_TRUE(model.ok()) << model.error().message;
    model_ = *std::move(model);
    std::optional<DraftHeadConfig> head;
    if (setup.with_model.reads_hidden_states()) {
      head = *load_draft_head_config(setup.with_model.method, setup.with_model.model, config_);
      EXPECT_TRUE(model_->keep_hidden(head->hidden).ok());
    }
    const Status placed = model_->place(*ops_, stream_);
    EXPECT_TRUE(placed.ok()) << placed.error().message;

    SchedulerConfig scheduler;
    scheduler.max_running = kRunning;
    scheduler.max_batched_tokens = setup.max_batched_tokens;
    scheduler.max_logit_rows = setup.max_batched_tokens;
    scheduler.page_size = kPageSize;
    scheduler.num_pages = setup.num_pages;
    if (encodes) scheduler.max_encoder_len = config_.encoder->max_position;
    scheduler.prefix_cache = !encodes;
    const int64_t room = (setup.num_pages - scheduler.pages_for(scheduler.max_encoder_len)) * kPageSize;
    scheduler.max_seq_len = static_cast<int>(std::min({int64_t{320}, int64_t{config_.max_position}, room}));
    scheduler.watermark = 2;
    scheduler.phases_differ = setup.phases_differ;
    scheduler.decode_rows = setup.decode_rows;

    AttentionConfig attention;
    attention.backend = std::string(ReferenceBackend::kName);
    attention.page_size = kPageSize;
    std::vector<AttentionSpec> specs = attention_specs(config_);
    for (AttentionSpec& spec : specs) {
      spec = ModelRunner::resolve(spec, DType::f32, KvCacheDType::float32, KvLayout::hnd, 0);
      spec.page_size = 0;
    }
    const auto selection = select(attention, specs, *parse_device("xpu"), registry_);
    EXPECT_TRUE(selection.ok()) << (selection.ok() ? "" : selection.error().message);
    ModelRunner::Options options;
    options.ops = ops_.get();
    options.open_steps = setup.overlap.open_steps;
    options.row_bytes = DeviceExecutor::kRowBytes;
    options.logit_row_bytes = DeviceExecutor::kLogitRowBytes;
    if (setup.ngram) {
      options.row_bytes += DeviceExecutor::kNgramRowBytes;
      options.logit_row_bytes += DeviceExecutor::kNgramLogitRowBytes;
    }
    options.graph_rows = setup.buckets.empty() ? 0 : setup.buckets.back();
    options.limits = {kRunning, scheduler.max_batched_tokens, int64_t{kRunning} * scheduler.max_seq_len,
                      scheduler.max_seq_len};
    options.kv_dtype = KvCacheDType::float32;
    if (setup.lora_slots > 0) {
      layout_ = lora_layout(lora_shape(config_), 16, DType::f32);
      const Status allowed = model_->allow_lora({16, &layout_, setup.lora_block_rows});
      EXPECT_TRUE(allowed.ok()) << (allowed.ok() ? "" : allowed.error().message);
      options.row_bytes += LoraSlots::kRowBytes;
      options.logit_row_bytes += LoraSlots::kRowBytes;
      scheduler.max_loras = setup.lora_slots;
      lora_slots_ = std::make_unique<LoraSlots>(device_, layout_, setup.lora_slots, setup.lora_block_rows,
                                                scheduler.max_batched_tokens);
      uint64_t number = 0;
      for (auto& [of, adapter] : adapters_) {
        adapter->number = ++number;
        adapter->image = lora_image(*adapter, layout_);
      }
    }
    options.max_logit_rows = scheduler.max_logit_rows;
    options.hidden_states = head ? static_cast<int>(head->hidden.size()) : 0;
    options.max_encoder_len = scheduler.max_encoder_len;
    options.max_encoder_rows = scheduler.max_encoder_rows();
    measured_ = *ModelRunner::measure(*model_, *selection, registry_, options);
    auto runner = ModelRunner::create(*model_, *selection, registry_, options);
    EXPECT_TRUE(runner.ok()) << (runner.ok() ? "" : runner.error().message);
    runner_ = *std::move(runner);
    kv_ = std::make_unique<KvCache>(*KvCache::create(
        kv_groups(config_, KvCacheDType::float32, KvLayout::hnd, kPageSize), {setup.num_pages}, device_));
    runner_->set_kv_cache(*kv_);
    queue_ = std::make_unique<GuardedQueue>(device_, stream_, setup.latest, setup.seed);

    DeviceExecutor::Options executor;
    if (setup.ngram)
      executor.ngram = {setup.ngram->first, setup.ngram->second,   setup.drafts,
                        kPageSize,          scheduler.max_seq_len, setup.with_model.synthetic_rates};
    executor.overlap = setup.overlap;
    executor.max_seqs = kRunning;
    executor.max_logit_rows = scheduler.max_logit_rows;
    executor.sampled_vocab = config_.vocab_size;
    executor.buckets = setup.buckets;
    executor.drafts = setup.drafts > 0;
    executor.edit_list_bytes = setup.drafts > 0 ? 4096 : 0;
    executor.lora = lora_slots_.get();
    executor.patience = std::chrono::duration<double>(setup.patience);
    executor_ = std::make_unique<DeviceExecutor>(*runner_, *ops_, *queue_, pool_, executor);
    const Status captured = executor_->start();
    EXPECT_TRUE(captured.ok()) << (captured.ok() ? "" : captured.error().message);
    std::unique_ptr<Speculator> speculator;
    if (setup.drafts > 0) {
      SpeculativeConfig speculative = setup.with_model;
      speculative.num_tokens = setup.drafts;
      speculative.ngram_on_device = setup.ngram.has_value();
      auto drafter = setup.ngram     ? nullptr
                     : setup.drafter ? setup.drafter()
                                     : make_drafter(setup, scheduler, head);
      if (setup.watch) drafter = setup.watch(std::move(drafter));
      speculator = std::make_unique<Speculator>(speculative, std::move(drafter), config_.vocab_size);
    }
    core_ = std::make_unique<EngineCore>(scheduler, *executor_, std::move(speculator));
    context_.vocab_size = context_.sampled_vocab = config_.vocab_size;
    context_.max_seq_len = scheduler.max_seq_len;
    context_.max_logprobs = -1;
    if (encodes) context_.forcing = &config_.forcing;
    if (encodes) context_.eos_token_ids = config_.eos_token_ids;
  }

  /// Adds all requests, then steps until the core is idle. `before_step(n)` is called before each step.
  std::vector<DeviceAnswer> run(
      const std::vector<GenerateRequest>& requests,
      const std::function<void(int)>& before_step = [](int) {}) {
    std::vector<DeviceAnswer> answers(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      DeviceAnswer& answer = answers[i];
      GenerateRequest request = requests[i];
      const auto encoder = take_encoder_input(request, config_);
      EXPECT_TRUE(encoder.ok()) << (encoder.ok() ? "" : encoder.error().message);
      auto created = Request::create(
          std::move(request),
          [&answer](const RequestOutput& output) {
            answer.ids.insert(answer.ids.end(), output.token_ids.begin(), output.token_ids.end());
            answer.logprobs.insert(answer.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
            if (output.finish == FinishReason::none) return;
            answer.finish = output.finish;
            answer.error = output.error.message;
            answer.prompt_logprobs = output.prompt_logprobs;
            answer.last_logits = output.last_logits;
          },
          context_);
      EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().message);
      created->front()->sequence.encoder = *encoder;
      if (!requests[i].lora.empty()) created->front()->sequence.lora = adapters_.at(requests[i].lora);
      if (constraint_) created->front()->set_constraint(constraint_(i));
      created->front()->set_id(i + 1);
      core_->add(std::move(created->front()));
    }
    for (int step = 0; !core_->idle(); ++step) {
      before_step(step);
      core_->step([] {});
      EXPECT_TRUE(core_->scheduler().consistent());
    }
    EXPECT_EQ(core_->scheduler().pages_in_use(), 0);
    return answers;
  }

  DeviceExecutor& executor() { return *executor_; }
  const LoraSlots& lora_slots() const { return *lora_slots_; }
  GuardedQueue& queue() { return *queue_; }
  EngineCore& core() { return *core_; }
  ModelRunner& runner() { return *runner_; }
  const ModelConfig& model_config() const { return config_; }
  /// ModelRunner::measure()
  const ModelRunner::Bytes& measured() const { return measured_; }

 private:
  std::unique_ptr<Drafter> make_drafter(const DeviceConfig& setup, const SchedulerConfig& scheduler,
                                        const std::optional<DraftHeadConfig>& head) {
    SpeculativeConfig config = setup.with_model;
    config.attention_backend = std::string(ReferenceBackend::kName);
    DrafterDevice device;
    device.info = *parse_device("xpu");
    device.host = &stream_;
    device.registry = &registry_;
    device.ops = ops_.get();
    device.queue = queue_.get();
    device.buckets = setup.buckets;
    std::unique_ptr<DrafterWithModel> made;
    if (head) {
      const HeadDrafter::Target target{kPageSize, config_.vocab_size, scheduler.max_seq_len, kRunning,
                                       scheduler.max_batched_tokens};
      auto drafter = HeadDrafter::create(config, *head, target, *model_, device);
      EXPECT_TRUE(drafter.ok()) << (drafter.ok() ? "" : drafter.error().message);
      made = *std::move(drafter);
    } else {
      const ModelDrafter::Target target{nullptr,   config_.vocab_size,
                                        kPageSize, scheduler.max_seq_len,
                                        kRunning,  scheduler.max_batched_tokens};
      auto drafter = ModelDrafter::create(config, target, device);
      EXPECT_TRUE(drafter.ok()) << (drafter.ok() ? "" : drafter.error().message);
      made = *std::move(drafter);
    }
    const Status placed =
        made->place(setup.num_pages, head ? runner_->hidden_there() : Tensor(), PlaceOptions{});
    EXPECT_TRUE(placed.ok()) << (placed.ok() ? "" : placed.error().message);
    return made;
  }

  ThreadPool pool_;
  Stream stream_;
  GuardedDevice device_;  // outlives all members that have its memory
  std::unique_ptr<Ops> ops_;
  BackendRegistry registry_;
  ModelConfig config_;
  ModelRunner::Bytes measured_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  std::map<std::string, std::shared_ptr<LoraAdapter>> adapters_;
  std::function<std::unique_ptr<TokenConstraint>(size_t)> constraint_;
  LoraLayout layout_;
  std::unique_ptr<LoraSlots> lora_slots_;
  std::unique_ptr<GuardedQueue> queue_;
  std::unique_ptr<DeviceExecutor> executor_;
  RequestContext context_;
  std::unique_ptr<EngineCore> core_;
};

}  // namespace fovea::test
