#pragma once
// State shared by all requests of a service.
#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "server/admission.h"
#include "server/answer_formats.h"
#include "server/answer_memory.h"
#include "server/api_keys.h"
#include "server/http/listen.h"
#include "server/metrics.h"
#include "server/service.h"
#include "server/work_queue.h"

namespace fovea::server {

using Clock = std::chrono::steady_clock;

/// A long-running answer.
class Job {
 public:
  virtual ~Job() = default;
  /// Ends it with an error, asynchronously. Thread-safe.
  virtual void abort() = 0;
  /// Called periodically: checks deadlines; a stream that was silent too long sends an SSE comment.
  /// Thread-safe.
  virtual void tick(Clock::time_point now) = 0;
};

struct Core {
  ServiceConfig config;
  Engine* engine = nullptr;  ///< exactly one of the two is null
  Embedder* embedder = nullptr;
  WorkQueue* workers = nullptr;  ///< the service's; for use until the server has stopped
  AnswerFormats formats;
  ApiKeys keys;
  Admission admission;
  std::shared_ptr<AnswerMemory> answers;  ///< shared with answers that connections still send
  std::unique_ptr<Metrics> metrics;       ///< null with an embedder
  int64_t created = 0;                    ///< seconds since 1970
  std::atomic<bool> ready{false}, draining{false}, aborted{false};
  std::atomic<int> in_flight{0};

  explicit Core(const Admission::Limits& limits) : admission(limits) {}

  /// The client that a request is accounted to: its API key, or without keys its address.
  std::string client_of(const http::Request& request) const {
    return keys.open() ? http::address_group(request.remote)
                       : "key " + std::to_string(keys.find(credential(request)));
  }
  /// "Bearer KEY": the header "authorization", or "x-api-key" of Anthropic's clients.
  static std::string credential(const http::Request& request) {
    const std::string_view key = request.header("x-api-key");
    const std::string_view given = request.header("authorization");
    return given.empty() && !key.empty() ? "Bearer " + std::string(key) : std::string(given);
  }
  int max_seq_len() const { return engine ? engine->info().max_seq_len : embedder->info().max_seq_len; }
  const std::string& served_name() const { return config.served_names.front(); }
  bool is_served(const std::string& name) const {
    return std::ranges::find(config.served_names, name) != config.served_names.end();
  }
  /// The served names, then those of LoRA adapters.
  std::vector<std::string> model_names() const {
    std::vector<std::string> names = config.served_names;
    if (engine)
      for (LoraInfo& lora : engine->loras())
        names.push_back(std::move(lora.name));
    return names;
  }
  bool has_model(const std::string& name) const {
    return is_served(name) || (engine && std::ranges::any_of(engine->loras(), [&](const LoraInfo& lora) {
                                 return lora.name == name;
                               }));
  }
  /// The LoRA adapter that a request chooses by its model, one that has_model(); "" = none.
  std::string lora_of(const std::string& model) const { return is_served(model) ? "" : model; }
  /// The model that answers name.
  const std::string& answer_name(const std::string& model) const {
    return model.empty() || is_served(model) ? served_name() : model;
  }

  void add(const std::shared_ptr<Job>& job) {
    const std::lock_guard lock(mutex_);
    jobs_.emplace(job.get(), job);
  }
  void remove(const Job* job) {
    const std::lock_guard lock(mutex_);
    jobs_.erase(job);
  }
  std::vector<std::shared_ptr<Job>> jobs() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<Job>> all;
    for (const auto& [key, job] : jobs_)
      if (auto alive = job.lock()) all.push_back(std::move(alive));
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<const Job*, std::weak_ptr<Job>> jobs_;
};

}  // namespace fovea::server
