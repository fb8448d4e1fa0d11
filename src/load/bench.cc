#include "load/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <memory>
#include <set>

#include "fovea/result.h"
#include "load/arrivals.h"
#include "load/client.h"
#include "load/draft_counts.h"
#include "load/stream_receiver.h"

namespace fovea::load {
namespace {

constexpr double kAskTimeout = 30;  // seconds for /v1/models and /tokenize

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double cpu_seconds() {
  rusage usage = {};
  (void)::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Error interrupted() {
  return {ErrorCode::cancelled, "interrupted before the benchmark began"};
}

bool may_be_header(std::string_view name, std::string_view value) {
  const auto plain = [](std::string_view text) {
    return std::none_of(text.begin(), text.end(),
                        [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; });
  };
  return !name.empty() && plain(name) && plain(value) && name.find_first_of(" :\t") == std::string_view::npos;
}

/// The header lines of every request.
Result<std::string> header_lines(const BenchConfig& config) {
  std::string lines;
  if (!config.api_key.empty()) {
    if (!may_be_header("Authorization", config.api_key))
      return invalid("--api-key: it has a control character; a key is one line");
    lines += "Authorization: Bearer " + config.api_key + "\r\n";
  }
  for (const std::string& header : config.headers) {
    const size_t equals = std::min(header.find('='), header.size());
    const std::string name = header.substr(0, equals),
                      value = header.substr(std::min(equals + 1, header.size()));
    if (equals == header.size() || !may_be_header(name, value))
      return invalid("--header " + header + ": allowed is NAME=VALUE on one line");
    lines.append(name).append(": ").append(value).append("\r\n");
  }
  return lines;
}

class Bench {
 public:
  Bench(const BenchConfig& config, const BenchWatch& watch, Client client, std::string headers)
      : config_(config),
        watch_(watch),
        client_(std::move(client)),
        headers_(std::move(headers)),
        request_(config.request) {}

  Result<BenchResult> run() {
    FOVEA_RETURN_IF_ERROR(find_model());
    const bool from_file = config_.dataset.kind == Dataset::sharegpt && !config_.dataset.path.empty();
    FOVEA_TRY(vocabulary, ask_tokenizer());
    if (from_file || config_.request.backend == Backend::openai_chat) vocabulary.ids.clear();
    FOVEA_TRY(prompts, make_prompts(config_.dataset, vocabulary));
    watch_.say("Starting initial single prompt test run...");
    Status tried = try_one(prompts.back());
    if (!tried && !vocabulary.ids.empty() && refused_) {
      watch_.say("The server refuses prompts of token ids; prompts are words.");
      vocabulary.ids.clear();
      FOVEA_TRY(words, make_prompts(config_.dataset, vocabulary));
      prompts = std::move(words);
      tried = try_one(prompts.back());
    }
    if (!tried && vocabulary.ids.empty() && refused_ && !from_file &&
        config_.request.backend == Backend::openai && !has_tokenizer_) {
      watch_.say("The server refuses prompts of text; prompts are token ids of 256 to 1279.");
      for (int32_t id = 256; id < 1280; ++id)  // above special tokens, below the size of current vocabularies
        vocabulary.ids.push_back(id);
      FOVEA_TRY(ids, make_prompts(config_.dataset, vocabulary));
      prompts = std::move(ids);
      tried = try_one(prompts.back());
    }
    FOVEA_RETURN_IF_ERROR(tried);
    const Prompt spare = prompts.back();
    prompts.pop_back();
    if (config_.num_warmups > 0) {
      watch_.say("Warming up with " + std::to_string(config_.num_warmups) + " requests...");
      const std::vector<Prompt> warmups(static_cast<size_t>(config_.num_warmups), spare);
      FOVEA_TRY(ignored, load(warmups, std::vector<double>(warmups.size(), 0), [](size_t) {}));
      if (watch_.stop()) return interrupted();
    }
    return measure(prompts, !vocabulary.ids.empty());
  }

 private:
  Result<Fetched> ask(std::string_view method, std::string_view endpoint, std::string_view body) {
    return fetch(client_, request_bytes(client_.target(), method, endpoint, headers_, body), kAskTimeout,
                 watch_.stop);
  }

  /// What the server has counted so far; zero if it has no such metrics.
  SpeculativeCounts draft_counts() {
    const auto answer = ask("GET", "/metrics", "");
    if (!answer || answer->status != 200) return {};
    return parse_draft_counts(answer->body).value_or(SpeculativeCounts());
  }

  /// Also waits for the server.
  Status find_model() {
    const double until = seconds_now() + config_.ready_timeout_s;
    for (;;) {
      auto answer = ask("GET", "/v1/models", "");
      if (answer && answer->status == 200) {
        FOVEA_TRY(names, parse_models(answer->body));
        if (request_.model.empty()) request_.model = names.front();
        return {};
      }
      if (!answer && answer.error().code == ErrorCode::cancelled) return interrupted();
      if (seconds_now() < until) {
        const timespec pause = {0, 200'000'000};
        ::nanosleep(&pause, nullptr);
        if (watch_.stop()) return interrupted();
        continue;
      }
      if (!answer)
        return io_error(client_.target().name() + ": " + answer.error().message +
                        "; is the server running, and is --base-url (or --host and --port) right?");
      if (!request_.model.empty() && answer->status == 404) return {};  // the server may lack the list
      return io_error(
          client_.target().name() + "/v1/models: " + error_message(answer->status, answer->body) +
          (answer->status == 401 || answer->status == 403 ? "; give --api-key" : "; give --model"));
    }
  }

  /// The tokens of common words, if the server has /tokenize (vLLM and Fovea do).
  Result<Vocabulary> ask_tokenizer() {
    Vocabulary vocabulary;
    const std::string words = all_words();
    auto answer = ask("POST", "/tokenize", tokenize_body(request_.model, words));
    if (!answer && answer.error().code == ErrorCode::cancelled) return interrupted();
    auto tokens = answer && answer->status == 200 ? parse_tokens(answer->body)
                                                  : Result<std::vector<int32_t>>(io_error(""));
    if (!tokens || tokens->empty()) {
      watch_.say(
          "The server has no /tokenize: prompts are words, counted as one token each (text as one per 4 "
          "bytes).");
      return vocabulary;
    }
    has_tokenizer_ = true;
    const auto count = static_cast<double>(tokens->size());
    vocabulary.tokens_per_word = count / static_cast<double>(common_words().size());
    vocabulary.bytes_per_token = static_cast<double>(words.size()) / count;
    const std::set<int32_t> distinct(tokens->begin(), tokens->end());
    vocabulary.ids.assign(distinct.begin(), distinct.end());
    return vocabulary;
  }

  Status try_one(const Prompt& prompt) {
    FOVEA_TRY(outcomes, load({prompt}, {0}, [](size_t) {}));
    const Outcome& outcome = outcomes.front();
    if (outcome.ending == Ending::open) return interrupted();
    if (outcome.ending == Ending::success) return {};
    return io_error("the initial test run failed: " + client_.target().name() +
                    config_.endpoint_or_default() + ": " + outcome.error);
  }

  Result<std::vector<Outcome>> load(const std::vector<Prompt>& prompts, std::vector<double> starts,
                                    std::function<void(size_t)> progress) {
    std::vector<Outcome> outcomes(prompts.size());
    std::deque<StreamReceiver> receivers;
    for (size_t i = 0; i < prompts.size(); ++i) {
      outcomes[i].prompt_tokens = prompts[i].tokens;
      receivers.emplace_back(outcomes[i], config_.keep_texts);
    }
    Plan plan;
    plan.starts = std::move(starts);
    plan.max_concurrency = config_.max_concurrency;
    plan.idle_timeout = config_.request_timeout_s;
    plan.bytes = [&](size_t i) {
      return request_bytes(client_.target(), "POST", config_.endpoint_or_default(), headers_,
                           request_body(request_, prompts[i]));
    };
    plan.receiver = [&](size_t i) -> Receiver& { return receivers[i]; };
    plan.stop = [&] { return stopped_ = stopped_ || watch_.stop(); };
    plan.progress = std::move(progress);
    FOVEA_RETURN_IF_ERROR(client_.run(plan));
    refused_ = !receivers.empty() && receivers.front().status() >= 400 && receivers.front().status() < 500;
    return outcomes;
  }

  Result<BenchResult> measure(const std::vector<Prompt>& prompts, bool ids) {
    BenchResult result;
    result.model = request_.model;
    result.prompts_are_ids = ids;
    watch_.say("Starting main benchmark run...");
    auto starts =
        arrival_times(prompts.size(), config_.request_rate, config_.burstiness, config_.dataset.seed);
    const SpeculativeCounts before = draft_counts();
    const double cpu = cpu_seconds(), began = seconds_now();
    FOVEA_TRY(outcomes, load(prompts, std::move(starts), watch_.progress));
    const double duration = seconds_now() - began;
    result.client_cpu_s = cpu_seconds() - cpu;
    result.stopped = stopped_;
    if (const auto made = difference(draft_counts(), before); made.drafts > 0) result.drafts = made;
    result.outcomes = std::move(outcomes);
    result.summary = summarize(result.outcomes, duration, config_.goodput);
    return result;
  }

  const BenchConfig& config_;
  const BenchWatch& watch_;
  Client client_;
  std::string headers_;
  RequestOptions request_;
  bool stopped_ = false, refused_ = false, has_tokenizer_ = false;
};

}  // namespace

std::string BenchConfig::endpoint_or_default() const {
  if (!endpoint.empty()) return endpoint;
  return request.backend == Backend::openai ? "/v1/completions" : "/v1/chat/completions";
}

Result<BenchResult> run_bench(const BenchConfig& config, const BenchWatch& watch) {
  FOVEA_TRY(headers, header_lines(config));
  FOVEA_TRY(client, Client::create(config.target));
  return Bench(config, watch, std::move(client), std::move(headers)).run();
}

}  // namespace fovea::load
