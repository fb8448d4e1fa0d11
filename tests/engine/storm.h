#pragma once
// Requests in an engine without its thread: everything runs on one thread in an order that a seed decides, so
// that a failure repeats.
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/core.h"
#include "engine/cpu_executor.h"
#include "engine/engine_setup.h"
#include "tests/engine/fixture.h"

namespace fovea::test {

inline constexpr char kPair[] = "CPU_ATTN,TORCH_NATIVE";
inline constexpr int kLongest = 256;
inline void append(std::string& bytes, const void* data, size_t size) {
  bytes.append(static_cast<const char*>(data), size);
}

inline void append(std::string& bytes, const TokenLogprobs& logprobs) {
  const auto one = [&](const TokenLogprob& t) {
    append(bytes, &t.token_id, sizeof t.token_id);
    append(bytes, &t.logprob, sizeof t.logprob);
    append(bytes, &t.rank, sizeof t.rank);
  };
  one(logprobs.token);
  for (const TokenLogprob& t : logprobs.top)
    one(t);
}

/// What a caller got of one answer.
struct StormAnswer {
  std::vector<int32_t> ids;
  std::string bytes;  // of ids' log probabilities, those of the prompt, and the last row of logits
  std::string text, stop_reason;
  bool ended = false;  // neither cancelled nor failed
  bool operator==(const StormAnswer&) const = default;
};
using Answers = std::vector<StormAnswer>;  // the n of a request

/// An engine without its thread.
class Core {
 public:
  /// `drafter`: null = as the configuration says.
  explicit Core(const EngineConfig& config, bool rules = true, std::unique_ptr<Drafter> drafter = nullptr) {
    const Status status = setup_.open(config);
    if (!status) throw std::runtime_error(status.error().message);
    setup_.scheduler.num_pages = setup_.kv->num_pages(0);
    EXPECT_EQ(setup_.scheduler.phases_differ, config.attention.backend == kPair);
    if (!rules) setup_.scheduler.phases_differ = false;
    executor_ = std::make_unique<CpuExecutor>(*setup_.runner, *setup_.stream);
    auto speculator = drafter ? std::make_unique<Speculator>(config.speculative, std::move(drafter),
                                                             setup_.context.sampled_vocab)
                              : setup_.make_speculator(config);
    core_ = std::make_unique<EngineCore>(setup_.scheduler, *executor_, std::move(speculator));
  }

  /// Returns the id; answers arrive in `out`.
  /// `constraint`: of the first answer, instead of the request's; null = the request's.
  uint64_t add(const GenerateRequest& request, std::shared_ptr<Answers> out,
               std::unique_ptr<TokenConstraint> constraint = nullptr) {
    out->resize(static_cast<size_t>(request.sampling.n));
    auto made = Request::create(
        request,
        [out](const RequestOutput& output) {
          StormAnswer& answer = (*out)[static_cast<size_t>(output.index)];
          EXPECT_NE(output.finish, FinishReason::error) << output.error.message;
          answer.ids.insert(answer.ids.end(), output.token_ids.begin(), output.token_ids.end());
          for (const auto* list : {&output.logprobs, &output.prompt_logprobs})
            for (const TokenLogprobs& logprobs : *list)
              append(answer.bytes, logprobs);
          append(answer.bytes, output.last_logits.data(), output.last_logits.size() * sizeof(float));
          answer.text += output.text;
          answer.stop_reason = output.stop_reason;
          answer.ended =
              answer.ended || output.finish == FinishReason::length || output.finish == FinishReason::stop;
        },
        setup_.context);
    if (!made) throw std::runtime_error(made.error().message);
    const uint64_t id = next_id_;
    next_id_ += made->size();
    if (constraint) made->front()->set_constraint(std::move(constraint));
    for (auto& one : *made) {
      one->set_id(id);
      core_->add(std::move(one));
    }
    return id;
  }

  void step() {
    core_->step([] {});
  }
  EngineCore& operator*() { return *core_; }
  EngineCore* operator->() { return core_.get(); }

  Answers run(const GenerateRequest& request, std::unique_ptr<TokenConstraint> constraint = nullptr) {
    const auto answers = std::make_shared<Answers>();
    add(request, answers, std::move(constraint));
    while (!core_->idle())
      step();
    return *answers;
  }

 private:
  EngineSetup setup_;
  std::unique_ptr<CpuExecutor> executor_;
  std::unique_ptr<EngineCore> core_;
  uint64_t next_id_ = 1;
};

struct Setting {
  int page_size = 16;
  bool prefix_cache = false;
  int chunk = 512;  // rows of a step
  int running = 16;
  int64_t pages = 0;  // 0 = room for all
  int threads = 1;
};

inline EngineConfig config_of(const Setting& s, const std::string& backend = kPair) {
  EngineConfig config = fixture_config(kLlama, backend);
  config.kv_cache_dtype = KvCacheDType::float32;  // bf16 would round most differences away
  config.attention.page_size = s.page_size;
  config.prefix_cache = s.prefix_cache;
  config.max_batched_tokens = s.chunk;
  config.max_running_requests = s.running;
  config.max_seq_len = kLongest;
  config.num_pages = s.pages > 0 ? s.pages : int64_t{s.running} * (kLongest / s.page_size);
  config.threads = s.threads;
  return config;
}

struct Case {
  GenerateRequest request;
  Answers alone;
};

/// Half of the prompts are new, some with a common beginning; a quarter are earlier ones once more (a full
/// prefix hit), a quarter an earlier one with its answer and something after it (the next turn of a chat).
inline std::vector<Case> cases(int count, uint32_t seed, const std::string& backend = kPair) {
  std::mt19937 rng(seed);
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  Core alone(config_of({}, backend));
  std::vector<Case> all;
  for (int i = 0; i < count; ++i) {
    const int kind = i < 8 ? 0 : i % 4;
    std::vector<int32_t> prompt;
    if (kind <= 1) {
      if (below(2)) prompt = prompt_of(below(2) ? 32 : 64, 1000);
      const auto own =
          prompt_of(below(3) ? below(50) + 1 : 64 - below(2) * 32, seed + static_cast<uint32_t>(i));
      prompt.insert(prompt.end(), own.begin(), own.end());
    } else {
      const Case* earlier = &all[static_cast<size_t>(below(i))];
      for (; earlier->request.prompt_ids.size() > 150; --earlier) {
      }
      prompt = earlier->request.prompt_ids;
      if (kind == 3) {
        prompt.insert(prompt.end(), earlier->alone[0].ids.begin(), earlier->alone[0].ids.end());
        const auto more = prompt_of(below(10) + 1, static_cast<uint32_t>(i));
        prompt.insert(prompt.end(), more.begin(), more.end());
      }
    }
    Case c;
    c.request = greedy(std::move(prompt), below(40) + 1);
    c.request.sampling.logprobs = 2;
    if (below(2)) {
      c.request.sampling.temperature = 1;
      c.request.sampling.seed = static_cast<uint64_t>(i);
      if (below(4) == 0) c.request.sampling.n = 2;
    }
    if (below(6) == 0) c.request.prompt_logprobs = 1;
    c.request.last_logits = below(3) == 0;
    c.alone = alone.run(c.request);
    all.push_back(std::move(c));
  }
  return all;
}

}  // namespace fovea::test
