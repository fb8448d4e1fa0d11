#pragma once
// Scheduler, model runner and a real model without an engine: greedy answers, and the logits of every
// position that has some. Each step checks all accounting and fills every page without an owner with NaN.
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/model_runner.h"
#include "engine/scheduler.h"
#include "model/kv_groups.h"
#include "tests/engine/fixture.h"

namespace fovea::test {

/// The attention config: one backend.
struct RunnerOptions {
  std::string backend = "TORCH_NATIVE";
  int threads = 2;
};

class Runner {
 public:
  struct Job {
    Sequence sequence;
    int new_tokens = 0;
    std::map<int, std::vector<float>> logits;  // by position
    bool done = false;
  };

  Runner(std::unique_ptr<Model> model, SchedulerConfig config, const RunnerOptions& options)
      : config_(config),
        pool_(options.threads),
        stream_(pool_),
        model_(std::move(model)),
        scheduler_(config) {
    const ModelConfig& m = model_->config();
    AttentionConfig attention;
    attention.backend = options.backend;
    attention.page_size = config.page_size;
    std::vector<AttentionSpec> specs = attention_specs(m);
    for (AttentionSpec& spec : specs) {
      spec = ModelRunner::resolve(spec, DType::f32, KvCacheDType::bfloat16, KvLayout::hnd, 0);
      spec.page_size = 0;
    }
    auto selection = select(attention, specs, DeviceInfo{}, builtin_backends());
    if (!selection) throw std::runtime_error(selection.error().message);
    ModelRunner::Options runner_options;
    runner_options.limits = {config.max_running, config.max_batched_tokens,
                             int64_t{config.max_running} * config.max_seq_len, config.max_seq_len};
    runner_options.kv_dtype = KvCacheDType::bfloat16;
    runner_options.max_logit_rows = config.max_logit_rows;
    runner_options.max_encoder_len = config.max_encoder_len;
    runner_options.max_encoder_rows = config.max_encoder_rows();
    runner_ = *ModelRunner::create(*model_, *selection, builtin_backends(), runner_options);
    kv_ = std::make_unique<KvCache>(*KvCache::create(
        kv_groups(m, KvCacheDType::bfloat16, KvLayout::hnd, config.page_size), {config.num_pages}));
    runner_->set_kv_cache(*kv_);
  }

  /// `scores`: also keeps the logits of every prompt position.
  size_t add(std::vector<int32_t> prompt, int new_tokens, bool scores = false,
             std::vector<int32_t> encoded = {}) {
    auto job = std::make_unique<Job>();
    Sequence& s = job->sequence;
    s.id = jobs_.size();
    s.tokens = std::move(prompt);
    s.prompt_len = s.num_tokens();
    s.logits_from = scores ? 0 : s.prompt_len - 1;
    job->new_tokens = new_tokens;
    if (!encoded.empty()) {
      auto input = std::make_shared<EncoderInput>();
      input->rows = static_cast<int>(encoded.size());
      input->ids = std::move(encoded);
      s.encoder = std::move(input);
    }
    scheduler_.add(&s);
    jobs_.push_back(std::move(job));
    return jobs_.size() - 1;
  }

  void step() {
    const auto chunks = scheduler_.schedule();
    batch_.build(chunks, config_.page_size);
    poison_free_pages();
    const Status status = runner_->run(batch_, stream_);
    ASSERT_TRUE(status.ok()) << status.error().message;
    scheduler_.commit();
    std::vector<Job*> finished;
    int row = 0;
    for (const ScheduledChunk& c : chunks) {
      Job& job = *jobs_[c.sequence->id];
      for (int p = c.logits_first; p < c.end(); ++p, ++row) {
        const auto logits = runner_->logits(row);
        job.logits[p].assign(logits.begin(), logits.end());
        if (p < c.sequence->prompt_len - 1) c.sequence->logits_from = p + 1;
      }
      if (!c.samples) continue;
      const auto& last = job.logits[c.end() - 1];
      c.sequence->tokens.push_back(
          static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin()));
      if (c.sequence->num_tokens() == c.sequence->prompt_len + job.new_tokens) finished.push_back(&job);
    }
    for (Job* job : finished) {
      scheduler_.remove(&job->sequence);
      job->done = true;
    }
    ASSERT_TRUE(scheduler_.consistent());
  }

  /// Runs until all jobs are done.
  void run() {
    while (!scheduler_.idle()) {
      step();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.pages_in_use(), 0);
  }

  const Job& job(size_t index) const { return *jobs_[index]; }
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  void poison_free_pages() {
    for (int layer = 0; layer < model_->config().num_layers; ++layer) {
      const KvView view = kv_->layer(layer);
      for (int32_t page = 0; page < scheduler_.pages_total(); ++page) {
        if (!scheduler_.page_free(page)) continue;
        poison(view.k, view.k_page_stride, page);
        poison(view.v, view.v_page_stride, page);
      }
    }
  }
  static void poison(const void* base, int64_t stride, int32_t page) {
    auto* bytes = const_cast<std::byte*>(static_cast<const std::byte*>(base));
    std::memset(bytes + page * stride * 2, 0xFF, static_cast<size_t>(stride) * 2);  // NaN in bf16
  }

  SchedulerConfig config_;
  ThreadPool pool_;
  Stream stream_;
  std::unique_ptr<Model> model_;
  Scheduler scheduler_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<KvCache> kv_;
  BatchBuilder batch_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

/// Compares the tokens, and the bits of every logits row that both computed; at least the answer's rows.
inline void expect_same_answer(const Runner::Job& got, const Runner::Job& want) {
  ASSERT_TRUE(got.done && want.done);
  ASSERT_EQ(got.sequence.tokens, want.sequence.tokens);
  for (int p = want.sequence.prompt_len - 1; p + 1 < want.sequence.num_tokens(); ++p)
    ASSERT_TRUE(got.logits.contains(p) && want.logits.contains(p)) << "position " << p;
  for (const auto& [position, logits] : got.logits) {
    const auto other = want.logits.find(position);
    if (other == want.logits.end()) continue;
    ASSERT_EQ(std::memcmp(logits.data(), other->second.data(), logits.size() * sizeof(float)), 0)
        << "position " << position;
  }
}

}  // namespace fovea::test
