#pragma once
// Requests to an engine on a GPU whose answers are compared as bytes. Tests need a GPU and the folder
// tests/goldens: where the sources of the build are not, the environment variable FOVEA_SOURCE_DIR names the
// folder that has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "fovea/engine.h"

namespace fovea::test {

namespace fs = std::filesystem;

/// A folder of the sources, such as "tests/goldens".
inline fs::path source_folder(const std::string& name) {
  const fs::path built = fs::path(FOVEA_SOURCE_DIR) / name;
  const char* given = std::getenv("FOVEA_SOURCE_DIR");
  return fs::exists(built) || given == nullptr ? built : fs::path(given) / name;
}

inline fs::path fixtures() {
  return source_folder("tests/goldens");
}

class EngineOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto device = find_device("cuda");
    if (!device) GTEST_SKIP() << "SKIPPED: " << device.error().message;
    if (!fs::exists(fixtures())) GTEST_SKIP() << "SKIPPED: no folder " << fixtures();
    device_ = *device;
  }

  EngineConfig config(const std::string& name, std::optional<DType> dtype = {}) const {
    EngineConfig c;
    c.model = (fixtures() / name).string();
    c.device = device_.info;
    c.device_index = device_.index;
    c.dtype = dtype;
    c.max_running_requests = 12;
    c.max_batched_tokens = 512;
    c.max_seq_len = 512;
    c.threads = 4;
    c.max_logprobs = -1;
    c.gpu_memory_utilization = 0.4;  // room for what runs beside the test
    return c;
  }

  EngineDevice device_;
};

/// What a caller got of one answer: ids, and the bytes of all numbers.
struct Answer {
  std::vector<int32_t> ids;
  std::string bytes;
  std::vector<float> last_logits;
  std::string error;
  bool operator==(const Answer& other) const {
    return ids == other.ids && bytes == other.bytes && error == other.error;
  }
};
using Answers = std::vector<Answer>;  // the n of a request

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

inline OutputSink into(Answers& answers) {
  return [&answers](const RequestOutput& output) {
    Answer& answer = answers[static_cast<size_t>(output.index)];
    answer.ids.insert(answer.ids.end(), output.token_ids.begin(), output.token_ids.end());
    for (const auto* list : {&output.logprobs, &output.prompt_logprobs})
      for (const TokenLogprobs& logprobs : *list)
        append(answer.bytes, logprobs);
    if (output.finish == FinishReason::none) return;
    append(answer.bytes, output.last_logits.data(), output.last_logits.size() * sizeof(float));
    answer.last_logits = output.last_logits;
    answer.error = output.error.message;
  };
}

inline std::unique_ptr<Engine> open(const EngineConfig& config) {
  auto engine = Engine::create(config);
  EXPECT_TRUE(engine.ok()) << config.model << ": " << (engine.ok() ? "" : engine.error().message);
  return engine ? *std::move(engine) : nullptr;
}

/// Answers of requests that run one after another, or all at once in the order `order`.
inline std::vector<Answers> run(Engine& engine, const std::vector<GenerateRequest>& requests, bool alone) {
  std::vector<Answers> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    answers[i].resize(static_cast<size_t>(requests[i].sampling.n));
    const auto id = engine.submit(requests[i], into(answers[i]));
    EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().message);
    if (alone) engine.wait_idle();
  }
  engine.wait_idle();
  return answers;
}

inline std::vector<int32_t> prompt_of(int tokens, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> ids;
  for (int i = 0; i < tokens; ++i)
    ids.push_back(static_cast<int32_t>(rng() % 200));
  return ids;
}

/// Prompts with common beginnings, repeated prompts, and every kind of sampling.
inline std::vector<GenerateRequest> mixed_requests(int count, uint32_t seed) {
  std::mt19937 rng(seed);
  const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    GenerateRequest r;
    if (i % 5 == 4) {
      r.prompt_ids = requests[static_cast<size_t>(below(i))].prompt_ids;
    } else {
      if (below(2)) r.prompt_ids = prompt_of(below(2) ? 64 : 128, 1000);
      const auto own =
          prompt_of(1 + (below(4) ? below(60) : 100 + below(150)), seed + static_cast<uint32_t>(i));
      r.prompt_ids.insert(r.prompt_ids.end(), own.begin(), own.end());
    }
    SamplingParams& s = r.sampling;
    s.ignore_eos = true;
    const int room = 500 - static_cast<int>(r.prompt_ids.size());
    s.max_tokens = 1 + below(below(4) ? 40 : room);
    s.temperature = below(2) ? 0.0f : 0.8f;
    s.seed = static_cast<uint64_t>(i);
    if (s.temperature > 0) {
      if (below(2)) s.top_p = 0.8f;
      if (below(3) == 0) s.top_k = 20;
      if (below(3) == 0) s.min_p = 0.02f;
      if (below(6) == 0) s.n = 2;
    }
    if (below(3)) s.logprobs = below(4) == 0 ? 40 : below(5);
    if (below(5) == 0) r.prompt_logprobs = below(3);
    if (below(6) == 0) s.frequency_penalty = 0.5f;
    if (below(6) == 0) s.repetition_penalty = 1.3f;
    if (below(8) == 0) s.logit_bias = {{5, 3.0f}, {9, -100.0f}};
    if (below(8) == 0) s.allowed_token_ids = prompt_of(30, 77);
    if (s.allowed_token_ids) {
      std::ranges::sort(*s.allowed_token_ids);
      s.allowed_token_ids->erase(std::unique(s.allowed_token_ids->begin(), s.allowed_token_ids->end()),
                                 s.allowed_token_ids->end());
    }
    r.last_logits = below(5) == 0;
    requests.push_back(std::move(r));
  }
  return requests;
}

/// Answers to `requests` that arrive in a random order between others, half as many at least, which are
/// cancelled at once or within half a millisecond.
inline std::vector<Answers> run_in_a_storm(Engine& engine, const std::vector<GenerateRequest>& requests) {
  std::mt19937 rng(3);
  std::vector<Answers> got(requests.size()), others(2 * requests.size());
  std::vector<size_t> order(requests.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::ranges::shuffle(order, rng);
  size_t other = 0;
  for (const size_t i : order) {
    got[i].resize(static_cast<size_t>(requests[i].sampling.n));
    const auto compared = engine.submit(requests[i], into(got[i]));
    EXPECT_TRUE(compared.ok()) << (compared.ok() ? "" : compared.error().message);
    if (rng() % 2) {
      GenerateRequest disturbance = mixed_requests(1, static_cast<uint32_t>(rng()))[0];
      others[other].resize(static_cast<size_t>(disturbance.sampling.n));
      const auto id = engine.submit(disturbance, into(others[other++]));
      EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().message);
      if (rng() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(rng() % 500));
      if (id) engine.cancel(*id);
    }
  }
  engine.wait_idle();
  return got;
}

/// How many requests have other answers.
inline int differences(const std::vector<Answers>& want, const std::vector<Answers>& got) {
  int differ = 0;
  for (size_t i = 0; i < want.size(); ++i)
    differ += got[i] != want[i];
  return differ;
}

}  // namespace fovea::test
