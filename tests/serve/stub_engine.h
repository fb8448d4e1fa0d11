#pragma once
// An engine without a model, to test and measure the server alone. It generates tokens_per_second for each of
// at most `slots` answers at a time. A token is a byte.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fovea/engine.h"

namespace fovea {

class StubEngine final : public Engine {
 public:
  struct Options {
    int slots = 64;                ///< answers that run concurrently
    double tokens_per_second = 0;  ///< of each answer; 0 = as fast as possible
    int max_seq_len = 4096;
    bool chat = true;
    int threads = 0;     ///< EngineInfo::threads
    MachineFloor floor;  ///< result of measure_floor(); rates of 0 = an error
    /// The whole answer to a request (its text, tokens and log probabilities); null = letters.
    std::function<RequestOutput(const GenerateRequest&)> script = nullptr;
  };

  explicit StubEngine(const Options& options) : options_(options) {
    info_.architecture = "Stub";
    info_.max_seq_len = options.max_seq_len;
    info_.vocab_size = 256;
    info_.threads = options.threads;
    thread_ = std::thread([this] { run(); });
  }
  ~StubEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    work_.notify_all();
    thread_.join();
  }

  /// Generates no tokens while paused; cancels still take effect.
  void pause(bool paused) {
    {
      const std::lock_guard lock(mutex_);
      paused_ = paused;
    }
    work_.notify_all();
  }
  /// GenerateRequest::client of the last request.
  std::string last_client() const {
    const std::lock_guard lock(mutex_);
    return last_client_;
  }
  /// The number of answers submitted so far, over all requests.
  int64_t submitted() const {
    const std::lock_guard lock(mutex_);
    return submitted_;
  }

  const EngineInfo& info() const override { return info_; }
  std::optional<Error> failure() const override { return std::nullopt; }
  EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    EngineStats stats;
    stats.running = running_count_;
    stats.waiting = waiting_count_;
    stats.decode_tokens = stats.generated_tokens = tokens_;
    stats.steps = steps_;
    return stats;
  }
  Result<MachineFloor> measure_floor() const override {
    ++measured_;
    if (options_.floor.read_bytes_per_second > 0) return options_.floor;
    return Error{ErrorCode::out_of_memory, "the stub has no rates"};
  }
  /// The number of calls to measure_floor().
  int measured() const { return measured_; }
  EngineSnapshot snapshot() const override {
    EngineSnapshot snapshot;
    snapshot.made = std::chrono::steady_clock::now();
    snapshot.running = stats().running;
    return snapshot;
  }

  Status check(const GenerateRequest& request) const override {
    if (request.prompt_ids.empty()) return invalid("prompt has no tokens; give at least one");
    for (const int32_t id : request.prompt_ids)
      if (id < 0 || id >= info_.vocab_size)
        return invalid("prompt token is " + std::to_string(id) + "; ids are 0 to 255");
    return {};
  }

  Result<uint64_t> submit(GenerateRequest request, OutputSink sink) override {
    FOVEA_RETURN_IF_ERROR(check(request));
    const std::lock_guard lock(mutex_);
    if (stop_) return Error{ErrorCode::cancelled, "the engine is shutting down"};
    const uint64_t id = next_id_++;
    last_client_ = request.client;
    last_lora_ = request.lora;
    for (int i = 0; i < request.sampling.n; ++i) {
      Answer answer;
      answer.sink = sink;
      if (i == 0) answer.on_start = request.on_start;
      answer.output.id = id;
      answer.output.index = i;
      answer.output.prompt_tokens = static_cast<int>(request.prompt_ids.size());
      const int room = info_.max_seq_len - answer.output.prompt_tokens;
      answer.max_tokens = std::min(request.sampling.max_tokens.value_or(16), room);
      // The step of a prompt that begins with byte 0 fails.
      answer.fails = request.prompt_ids.front() == 0;
      if (options_.script) answer.scripted = options_.script(request);
      arrived_.push_back(std::move(answer));
      ++submitted_;
    }
    work_.notify_all();
    return id;
  }

  void cancel(uint64_t id) override {
    const std::lock_guard lock(mutex_);
    cancelled_.push_back(id);
    work_.notify_all();
  }
  void wait_idle() override {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [&] { return running_count_ + waiting_count_ == 0 && arrived_.empty(); });
  }

  Result<std::vector<int32_t>> tokenize(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    for (const char c : text)
      ids.push_back(static_cast<unsigned char>(c));
    return ids;
  }
  Result<BoundedTokens> tokenize(std::string_view text, bool add_special_tokens, size_t most) const override {
    if (text.size() > most) return BoundedTokens{{}, text.size()};
    tokenized_ += static_cast<int64_t>(text.size());
    FOVEA_TRY(ids, tokenize(text, add_special_tokens));
    return BoundedTokens{std::move(ids), 0};
  }
  /// Prompt bytes tokenised so far.
  int64_t tokenized() const { return tokenized_; }
  std::string detokenize(const std::vector<int32_t>& ids, bool) const override {
    std::string text;
    for (const int32_t id : ids)
      text += static_cast<char>(id);
    return text;
  }
  std::string token_bytes(int32_t id) const override { return std::string(1, static_cast<char>(id)); }
  bool has_chat_template() const override { return options_.chat; }
  /// ChatRequest::template_kwargs of the last chat.
  std::string last_template_kwargs() const {
    const std::lock_guard lock(mutex_);
    return last_template_kwargs_;
  }
  Result<std::string> apply_chat_template(const ChatRequest& request) const override {
    const std::lock_guard lock(mutex_);
    last_template_kwargs_ = request.template_kwargs;
    return request.messages;
  }
  SamplingParams default_sampling() const override { return {}; }

  std::vector<LoraInfo> loras() const override {
    const std::lock_guard lock(mutex_);
    return loras_;
  }
  /// A path of "bad" is an invalid adapter, one of "absent" is not found.
  Status load_lora(const LoraModule& module) override {
    if (module.path == "bad") return invalid("bad/adapter_config.json: r is missing");
    if (module.path == "absent") return not_found("absent: no such directory");
    const std::lock_guard lock(mutex_);
    loras_.push_back({module.name, module.path, 8, 100, 7});
    return {};
  }
  Status unload_lora(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    if (std::erase_if(loras_, [&](const LoraInfo& lora) { return lora.name == name; }) == 0)
      return not_found("the LoRA adapter \"" + name + "\" is not loaded");
    return {};
  }
  /// GenerateRequest::lora of the last request.
  std::string last_lora() const {
    const std::lock_guard lock(mutex_);
    return last_lora_;
  }

 private:
  struct Answer {
    OutputSink sink;
    std::function<void()> on_start;
    RequestOutput output;
    int max_tokens = 0;
    bool fails = false;
    std::optional<RequestOutput> scripted;
  };

  void run() {
    std::list<Answer> running;
    std::deque<Answer> waiting;
    auto next = std::chrono::steady_clock::now();
    const auto period = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(options_.tokens_per_second > 0 ? 1 / options_.tokens_per_second : 0));
    for (;;) {
      std::vector<uint64_t> cancelled;
      bool stop, paused;
      {
        std::unique_lock lock(mutex_);
        running_count_ = static_cast<int>(running.size());
        waiting_count_ = static_cast<int>(waiting.size());  // as of the last step, like the real engine's
        if (running.empty() && waiting.empty() && arrived_.empty()) idle_.notify_all();
        const auto news = [&] { return stop_ || !arrived_.empty() || !cancelled_.empty(); };
        const bool idle = running.empty() && waiting.empty();
        if (idle || paused_)
          work_.wait(lock, [&] { return news() || (!paused_ && !idle); });
        else if (period.count() > 0)
          work_.wait_until(lock, next, [&] { return stop_; });
        std::ranges::move(arrived_, std::back_inserter(waiting));
        arrived_.clear();
        cancelled.swap(cancelled_);
        stop = stop_;
        paused = paused_;
      }
      end_cancelled(running, cancelled, stop);
      end_cancelled(waiting, cancelled, stop);
      if (stop) return;
      while (!waiting.empty() && running.size() < static_cast<size_t>(options_.slots)) {
        running.push_back(std::move(waiting.front()));
        if (running.back().on_start) running.back().on_start();
        waiting.pop_front();
      }
      if (paused) continue;
      next = std::max(next + period, std::chrono::steady_clock::now());
      int64_t tokens = 0;
      for (auto answer = running.begin(); answer != running.end();) {
        ++tokens;
        answer = step(*answer) ? running.erase(answer) : std::next(answer);
      }
      const std::lock_guard lock(mutex_);
      tokens_ += tokens;
      ++steps_;
    }
  }

  template <class List>
  static void end_cancelled(List& answers, const std::vector<uint64_t>& ids, bool all) {
    for (auto answer = answers.begin(); answer != answers.end();) {
      if (!all && std::ranges::find(ids, answer->output.id) == ids.end()) {
        ++answer;
        continue;
      }
      answer->output.text.clear();
      answer->output.token_ids.clear();
      answer->output.finish = FinishReason::cancelled;
      answer->sink(answer->output);
      answer = answers.erase(answer);
    }
  }

  /// Whether the answer has ended.
  static bool step(Answer& answer) {
    RequestOutput& output = answer.output;
    if (answer.fails) {
      output.finish = FinishReason::error;
      output.error = {ErrorCode::internal, "secret internals at 0xdeadbeef"};
    } else if (answer.scripted) {
      output.text = answer.scripted->text;
      output.token_ids = answer.scripted->token_ids;
      output.logprobs = answer.scripted->logprobs;
      output.prompt_logprobs = answer.scripted->prompt_logprobs;
      output.completion_tokens = static_cast<int>(output.token_ids.size());
      output.finish = FinishReason::stop;
    } else {
      const char c = static_cast<char>('a' + output.completion_tokens % 26);
      output.text = c;
      output.token_ids = {c};
      if (++output.completion_tokens >= answer.max_tokens) output.finish = FinishReason::length;
    }
    answer.sink(output);
    return output.finish != FinishReason::none;
  }

  const Options options_;
  EngineInfo info_;
  mutable std::string last_template_kwargs_;
  mutable std::mutex mutex_;
  std::condition_variable work_, idle_;
  std::vector<Answer> arrived_;
  std::vector<uint64_t> cancelled_;
  bool stop_ = false, paused_ = false;
  uint64_t next_id_ = 1;
  int running_count_ = 0, waiting_count_ = 0;
  mutable std::atomic<int64_t> tokenized_{0};
  mutable std::atomic<int> measured_{0};
  std::string last_client_, last_lora_;
  std::vector<LoraInfo> loras_;
  int64_t submitted_ = 0, tokens_ = 0, steps_ = 0;
  std::thread thread_;
};

}  // namespace fovea
