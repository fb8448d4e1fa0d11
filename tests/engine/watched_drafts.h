#pragma once
// Drafts of the heads in tests/draft_heads, watched: what a drafter proposes after each length of a text,
// beside the drafts that tools/goldens/draft_heads.py computed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
#include "files/checkpoint.h"
#include "tests/engine/recorded_drafter.h"
#include "tests/support/temp_dir.h"

namespace fovea::test {

struct HeadCase {
  const char* head;
  DraftMethod method;
};
/// Heads of the model llama3_gqa4_d16_bf16.
inline constexpr HeadCase kLlamaHeads[] = {{"eagle3_bf16", DraftMethod::eagle3},
                                           {"eagle3_speculators_bf16", DraftMethod::eagle3},
                                           {"eagle1_bf16", DraftMethod::eagle}};

/// GLM-4.7-Flash's fixture with the layer of tests/draft_heads/mtp_bf16 after its last one: shards, and a key
/// in config.json. `tests`: the folder of both.
class ModelWithMtp {
 public:
  /// `exchanged`: two norms of the layer change places.
  explicit ModelWithMtp(const std::filesystem::path& tests, bool exchanged = false) {
    namespace fs = std::filesystem;
    const fs::path to(dir_.path()), from = tests / "goldens" / "glm4moelite_mla4_bf16",
                                    head = tests / "draft_heads" / "mtp_bf16";
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
      fs::copy(from / file, to / file);
    nlohmann::json config = read(from / "config.json");
    config.update(read(head / "config.json"));
    dir_.write("config.json", config.dump());
    nlohmann::json map = nlohmann::json::object();
    int shard = 0;
    for (const fs::path& folder : {from, head}) {
      const std::string name = "model-" + std::to_string(++shard) + ".safetensors";
      fs::copy(folder / "model.safetensors", to / name);
      const auto checkpoint = Checkpoint::open(folder);
      for (const CheckpointTensor& tensor : checkpoint->tensors())
        map[std::string(tensor.name())] = name;
    }
    if (exchanged) exchange_norms(to / "model-2.safetensors");
    dir_.write("model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  }
  const std::string& path() const { return dir_.path(); }

 private:
  static nlohmann::json read(const std::filesystem::path& path) {
    std::ifstream in(path);
    return nlohmann::json::parse(in);
  }
  /// Their names in the file's header are as long as each other.
  static void exchange_norms(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    in.close();
    const size_t first = bytes.find("enorm.weight"), second = bytes.find("hnorm.weight");
    if (first == std::string::npos || second == std::string::npos)
      throw std::runtime_error("the head has no two norms");
    std::swap(bytes[first], bytes[second]);
    std::ofstream(file, std::ios::binary) << bytes;
  }

  TempDir dir_;
};

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

  /// With n > 0 it drafts only where a text has a multiple of n tokens: the engine need not wait for the
  /// others.
  void draft_every(size_t n) { every_ = n; }
  bool may_draft(const DraftJob& job) override {
    return every_ == 0 || (job.tokens.size() + 1) % every_ == 0;
  }

  /// Called after each proposal for one sequence.
  using After = std::function<void(const DraftJob&, const HeadDrafter&)>;
  void after(After after) { after_ = std::move(after); }

  /// Only sequences that begin with these tokens are watched.
  void watch(std::vector<int32_t> tokens) { watched_ = std::move(tokens); }

  void propose(std::span<DraftJob> all) override {
    std::vector<DraftJob> jobs;
    for (const DraftJob& job : all)
      if (every_ == 0 || job.tokens.size() % every_ == 0) jobs.push_back(job);
    propose_now(jobs);
    for (DraftJob& job : jobs)
      std::ranges::find(all, job.id, &DraftJob::id)->drafts = std::move(job.drafts);
  }
  void observe(std::span<const HiddenRows> rows, std::span<const std::span<const float>> states) override {
    head_->observe(rows, states);
  }
  void settle(std::span<const HiddenRows> sequences) override { head_->settle(sequences); }
  void end(uint64_t id, std::span<const int32_t> tokens, int prompt_len, std::string_view client) override {
    head_->end(id, tokens, prompt_len, client);
  }

 private:
  void propose_now(std::span<DraftJob> jobs) {
    head_->propose(jobs);
    if (after_ && jobs.size() == 1) after_(jobs.front(), dynamic_cast<const HeadDrafter&>(*head_));
    for (DraftJob& job : jobs) {
      if (std::ranges::equal(watched_, job.tokens.first(std::min(watched_.size(), job.tokens.size()))))
        proposals_[job.tokens.size()] = job.drafts;
      if (known_) job.drafts.clear();
    }
    if (known_) known_->propose(jobs);
  }

  std::unique_ptr<Drafter> head_;
  Proposals& proposals_;
  std::unique_ptr<RecordedDrafter> known_;
  size_t every_ = 0;
  After after_;
  std::vector<int32_t> watched_;
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
    if (setup_.drafter) {
      auto watched = std::make_unique<Watched>(std::move(setup_.drafter), proposals, std::move(text));
      watched_ = watched.get();
      speculator =
          std::make_unique<Speculator>(config.speculative, std::move(watched), setup_.context.sampled_vocab);
    }
    core_ = std::make_unique<EngineCore>(setup_.scheduler, *executor_, std::move(speculator));
  }

  /// From now on `logits` gets those of the last draft after each length of a text: of the first one, with
  /// one draft a step, which has all rows of its run without graphs.
  void keep_logits() {
    watched_->after([this](const DraftJob& job, const HeadDrafter& head) {
      const Tensor rows = head.logits();
      std::vector<float> last(static_cast<size_t>(rows.size(1)));
      Stream& stream = setup_.gpu ? *setup_.gpu->stream : *setup_.stream;
      const float* const from = rows.as<float>() + (rows.size(0) - 1) * rows.stride(0);
      const bool copied =
          rows.device->copy_to_host(last.data(), from, last.size() * sizeof(float), stream).ok() &&
          rows.device->synchronize(stream).ok();
      if (copied) logits[job.tokens.size()] = std::move(last);
    });
  }

  std::vector<int32_t> run(const std::vector<int32_t>& prompt, int tokens) {
    proposals.clear();
    std::vector<int32_t> out;
    add(prompt, tokens, out);
    finish();
    return out;
  }
  /// Returns its id. `out` gets the answer.
  uint64_t add(const std::vector<int32_t>& prompt, int tokens, std::vector<int32_t>& out,
               const char* client = "") {
    GenerateRequest request;
    request.prompt_ids = prompt;
    request.client = client;
    request.sampling.temperature = 0;
    request.sampling.max_tokens = tokens;
    request.sampling.ignore_eos = true;
    auto made = Request::create(
        std::move(request),
        [&out](const RequestOutput& output) {
          out.insert(out.end(), output.token_ids.begin(), output.token_ids.end());
        },
        setup_.context);
    made->front()->set_id(next_id_);
    core_->add(std::move(made->front()));
    return next_id_++;
  }
  void step() {
    core_->step([] {});
  }
  void finish() {
    while (!core_->idle())
      step();
  }
  void cancel(uint64_t id) { core_->cancel(id); }
  /// There must be a drafter.
  Watched& watched() { return *watched_; }
  EngineStats stats() const { return core_->stats(); }

  Watched::Proposals proposals;
  std::map<size_t, std::vector<float>> logits;  ///< keep_logits()

 private:
  EngineSetup setup_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<EngineCore> core_;
  Watched* watched_ = nullptr;
  uint64_t next_id_ = 1;
};

/// How far logits of first drafts are off, in multiples of what simulated rounding changes; ascending.
/// `text`: one of drafts.json; up to a length of `until`.
inline void compare_logits(const std::map<size_t, std::vector<float>>& logits, const nlohmann::json& text,
                           size_t until, std::vector<double>& off, double& most) {
  for (const nlohmann::json& at : text["at"]) {
    const auto found = logits.find(at["length"].get<size_t>());
    if (found == logits.end() || found->first > until) continue;
    double worst = 0;
    for (size_t i = 0; i < at["logits"].size(); ++i)
      worst = std::max(worst, std::abs(found->second[i] - at["logits"][i].get<double>()));
    most = std::max(most, worst);
    off.push_back(worst / at["noise"].get<double>());
  }
  std::ranges::sort(off);
}

struct ComparedDrafts {
  int equal = 0, others = 0;
  double gap = 0;  ///< the largest between the best two logits of a draft that is another
};

/// Compares each chain up to its first draft that is another, after which the head has other tokens. `text`:
/// one of drafts.json; `sure`: only drafts that rounding to bfloat16 hardly changes.
inline void compare_drafts(const Watched::Proposals& proposals, const nlohmann::json& text,
                           ComparedDrafts& compared, bool sure = false) {
  for (const nlohmann::json& at : text["at"]) {
    const auto found = proposals.find(at["length"].get<size_t>());
    if (found == proposals.end()) continue;
    const size_t count = sure ? at["sure"].get<size_t>() : found->second.size();
    for (size_t i = 0; i < std::min(count, found->second.size()); ++i) {
      if (found->second[i] == at["drafts"][i].get<int32_t>()) {
        ++compared.equal;
        continue;
      }
      ++compared.others;
      compared.gap = std::max(compared.gap, at["gaps"][i].get<double>());
      break;
    }
  }
}

inline nlohmann::json read_drafts(const std::string& folder) {
  std::ifstream in(folder + "/drafts.json");
  return nlohmann::json::parse(in);
}

}  // namespace fovea::test
