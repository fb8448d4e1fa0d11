#pragma once
// Drafts of the heads in tests/draft_heads, watched: what a drafter proposes after each length of a text,
// beside the drafts that tools/goldens/draft_heads.py computed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/core.h"
#include "engine/cpu_executor.h"
#include "engine/device_executor.h"
#include "engine/engine_setup.h"
#include "tests/engine/recorded_drafter.h"

namespace fovea::test {

struct HeadCase {
  const char* head;
  DraftMethod method;
};
/// Heads of the model llama3_gqa4_d16_bf16.
inline constexpr HeadCase kLlamaHeads[] = {{"eagle3_bf16", DraftMethod::eagle3},
                                           {"eagle3_speculators_bf16", DraftMethod::eagle3},
                                           {"eagle1_bf16", DraftMethod::eagle}};

/// What a head has proposed after each length of a text. Gives other drafts to the engine where it knows the
/// text, so that some are accepted.
class Watched final : public Drafter {
 public:
  using Proposals = std::map<size_t, std::vector<int32_t>>;
  Watched(std::unique_ptr<Drafter> head, Proposals& proposals, std::vector<int32_t> text)
      : head_(std::move(head)), proposals_(proposals) {
    if (!text.empty())
      known_ = std::make_unique<RecordedDrafter>(std::vector<std::vector<int32_t>>{std::move(text)}, 0.7, 5);
  }

  void propose(std::span<DraftJob> jobs) override {
    head_->propose(jobs);
    for (DraftJob& job : jobs) {
      proposals_[job.tokens.size()] = job.drafts;
      if (known_) job.drafts.clear();
    }
    if (known_) known_->propose(jobs);
  }
  void observe(std::span<const HiddenRows> rows, std::span<const std::span<const float>> states) override {
    head_->observe(rows, states);
  }
  void end(uint64_t id, std::span<const int32_t> tokens, int prompt_len, std::string_view client) override {
    head_->end(id, tokens, prompt_len, client);
  }

 private:
  std::unique_ptr<Drafter> head_;
  Proposals& proposals_;
  std::unique_ptr<RecordedDrafter> known_;
};

/// An engine whose drafter is watched; runs one greedy request at a time, on the thread that made it.
class WatchedCore {
 public:
  WatchedCore(const EngineConfig& config, std::vector<int32_t> text) {
    const Status status = setup_.open(config);
    if (!status) throw std::runtime_error(status.error().message);
    setup_.scheduler.num_pages = setup_.kv->num_pages(0);
    if (setup_.gpu) {
      auto executor = std::make_unique<DeviceExecutor>(*setup_.runner, *setup_.gpu->ops, *setup_.gpu->queue,
                                                       *setup_.pool, setup_.executor);
      if (const Status started = executor->start(); !started)
        throw std::runtime_error(started.error().message);
      executor_ = std::move(executor);
    } else {
      executor_ = std::make_unique<CpuExecutor>(*setup_.runner, *setup_.stream);
    }
    std::unique_ptr<Speculator> speculator;
    if (setup_.drafter)
      speculator = std::make_unique<Speculator>(
          config.speculative,
          std::make_unique<Watched>(std::move(setup_.drafter), proposals, std::move(text)),
          setup_.context.sampled_vocab);
    core_ = std::make_unique<EngineCore>(setup_.scheduler, *executor_, std::move(speculator));
  }

  std::vector<int32_t> run(const std::vector<int32_t>& prompt, int tokens) {
    proposals.clear();
    std::vector<int32_t> out;
    GenerateRequest request;
    request.prompt_ids = prompt;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = tokens;
    request.sampling.ignore_eos = true;
    auto made = Request::create(
        std::move(request),
        [&](const RequestOutput& output) {
          out.insert(out.end(), output.token_ids.begin(), output.token_ids.end());
        },
        setup_.context);
    made->front()->set_id(next_id_++);
    core_->add(std::move(made->front()));
    while (!core_->idle())
      core_->step([] {});
    return out;
  }
  EngineStats stats() const { return core_->stats(); }

  Watched::Proposals proposals;

 private:
  EngineSetup setup_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<EngineCore> core_;
  uint64_t next_id_ = 1;
};

/// Compares up to the first draft that is decided by less than the tolerance of logits. Returns the number of
/// drafts. `text`: one of drafts.json.
inline int compare_drafts(const Watched::Proposals& proposals, const nlohmann::json& text, double tolerance) {
  int compared = 0;
  for (const nlohmann::json& at : text["at"]) {
    const auto found = proposals.find(at["length"].get<size_t>());
    if (found == proposals.end()) continue;
    for (size_t i = 0; i < found->second.size(); ++i) {
      if (at["gaps"][i].get<double>() < tolerance) break;
      EXPECT_EQ(found->second[i], at["drafts"][i].get<int32_t>())
          << "after " << found->first << " tokens, draft " << i;
      if (found->second[i] != at["drafts"][i].get<int32_t>()) return compared;
      ++compared;
    }
  }
  return compared;
}

inline nlohmann::json read_drafts(const std::string& folder) {
  std::ifstream in(folder + "/drafts.json");
  return nlohmann::json::parse(in);
}

}  // namespace fovea::test
