#pragma once
// The tiny models of tests/goldens as engines, and requests run to completion.
#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "gtest/gtest.h"

namespace fovea::test {

inline constexpr char kLlama[] =
    "llama3_gqa4_d16_bf16";  // bf16, byte-level BPE of 256 + <s> </s>, 1024 tokens
inline constexpr char kQwen[] = "qwen3_gqa7_d128_bf16";

inline std::string fixture_dir(const std::string& name) {
  return std::string(FOVEA_SOURCE_DIR) + "/tests/goldens/" + name;
}

inline EngineConfig fixture_config(const std::string& name = kLlama,
                                   const std::string& backend = "TORCH_NATIVE") {
  EngineConfig config;
  config.model = fixture_dir(name);
  config.attention.backend = backend;
  config.attention.page_size = 4;
  config.num_pages = 1024;
  config.threads = 2;
  return config;
}

inline std::unique_ptr<Engine> make_engine(const EngineConfig& config) {
  auto engine = Engine::create(config);
  if (!engine) {
    ADD_FAILURE() << engine.error().message;
    return nullptr;
  }
  return *std::move(engine);
}

/// All outputs of one request, joined.
struct Answer {
  RequestOutput last;
  std::string text;
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs;
  int outputs = 0;
};

inline OutputSink collect(std::shared_ptr<Answer> answer) {
  return [answer](const RequestOutput& output) {
    answer->text += output.text;
    answer->ids.insert(answer->ids.end(), output.token_ids.begin(), output.token_ids.end());
    answer->logprobs.insert(answer->logprobs.end(), output.logprobs.begin(), output.logprobs.end());
    answer->last = output;
    ++answer->outputs;
  };
}

/// Submits all requests and waits for them; `sink_of(i)` makes request i's sink. The engine thread blocks in
/// the first request's first step until all are submitted, so that batching does not depend on the machine's
/// load.
template <typename SinkOf>
void run_together(Engine& engine, const std::vector<GenerateRequest>& requests, const SinkOf& sink_of) {
  const auto submitted = std::make_shared<std::latch>(1);
  for (size_t i = 0; i < requests.size(); ++i) {
    GenerateRequest request = requests[i];
    if (i == 0)
      request.on_start = [submitted, then = request.on_start] {
        submitted->wait();
        if (then) then();
      };
    const auto id = engine.submit(std::move(request), sink_of(i));
    if (!id) ADD_FAILURE() << id.error().message;
  }
  submitted->count_down();
  engine.wait_idle();
}

inline std::vector<Answer> run_all(Engine& engine, const std::vector<GenerateRequest>& requests) {
  std::vector<std::shared_ptr<Answer>> answers;
  run_together(engine, requests,
               [&](size_t) { return collect(answers.emplace_back(std::make_shared<Answer>())); });
  std::vector<Answer> out;
  for (const auto& answer : answers)
    out.push_back(*answer);
  return out;
}

inline Answer run_one(Engine& engine, const GenerateRequest& request) {
  return run_all(engine, {request})[0];
}

/// `n` ids of the byte vocabulary, different for each `salt`.
inline std::vector<int32_t> prompt_of(int n, uint32_t salt = 1) {
  std::vector<int32_t> ids;
  uint32_t state = salt * 2654435761u;
  for (int i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    ids.push_back(static_cast<int32_t>(state >> 24));
  }
  return ids;
}

inline GenerateRequest greedy(std::vector<int32_t> prompt, int max_tokens) {
  GenerateRequest request;
  request.prompt_ids = std::move(prompt);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = max_tokens;
  return request;
}

}  // namespace fovea::test
