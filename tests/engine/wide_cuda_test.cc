// Models of real widths on a GPU, cut to four layers with random weights: the bits of 200 answers are those
// that the requests get alone, in a storm of 256 requests with cancels and preemption, whatever the size of
// chunks.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "tests/engine/gpu_requests.h"
#include "tests/support/temp_dir.h"

namespace fovea {
namespace {

using namespace test;
using nlohmann::json;

/// Of tests/configs or bench/configs.
class WideModel : public EngineOnGpu, public ::testing::WithParamInterface<const char*> {
 protected:
  static constexpr int kLayers = 4;

  EngineConfig wide() {
    std::ifstream file(source_folder(GetParam()) / "config.json");
    json fields = json::parse(file, nullptr, /*allow_exceptions=*/false);
    fields["num_hidden_layers"] = kLayers;
    if (const auto types = fields.find("layer_types"); types != fields.end())
      types->get_ref<json::array_t&>().resize(kLayers);
    folder_.write("config.json", fields.dump());
    EngineConfig c = config("");
    c.model = folder_.path();
    c.dummy_weights = true;
    c.max_running_requests = 256;
    return c;
  }

 private:
  TempDir folder_;
};

TEST_P(WideModel, AnswersOfAStormOf256AreThoseOfRequestsAlone) {
  const auto requests = mixed_requests(200, 23);
  EngineConfig base = wide();
  std::vector<Answers> want;
  int page_size = 0;
  {
    const auto engine = open(base);
    ASSERT_NE(engine, nullptr);
    page_size = engine->info().selection.page_size;
    want = run(*engine, requests, true);
  }
  // Three of the longest sequences fit. Chunks of 16 rows start so few requests at a time that none may be
  // preempted.
  int64_t preemptions = 0;
  for (const int chunk : {16, 512, 8192})
    for (const bool few_pages : {false, true}) {
      EngineConfig c = base;
      c.max_batched_tokens = chunk;
      if (few_pages) c.num_pages = 1536 / page_size;
      const auto engine = open(c);
      ASSERT_NE(engine, nullptr);
      const int differ = differences(want, run_in_a_storm(*engine, requests));
      const EngineStats stats = engine->stats();
      std::printf("%-24s chunks of %-5d differ %d/%zu  steps %lld preemptions %lld\n", GetParam(), chunk,
                  differ, want.size(), static_cast<long long>(stats.steps),
                  static_cast<long long>(stats.preemptions));
      EXPECT_EQ(differ, 0) << "chunks of " << chunk;
      preemptions += stats.preemptions;
      EXPECT_EQ(stats.pages_in_use, 0);
    }
  EXPECT_GT(preemptions, 0);
}

/// Prompts of up to 3000 tokens, some of which repeat themselves; every third request may say few words only.
std::vector<GenerateRequest> long_requests(int count) {
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    GenerateRequest r;
    const auto part = prompt_of(10 + i * 37 % 190, static_cast<uint32_t>(i));
    const size_t tokens = i % 4 == 0 ? 1500 + static_cast<size_t>(i) * 97 % 1500 : part.size() * 2;
    while (r.prompt_ids.size() < tokens)
      r.prompt_ids.insert(r.prompt_ids.end(), part.begin(), part.end());
    SamplingParams& s = r.sampling;
    s.ignore_eos = true;
    s.max_tokens = 20 + i * 13 % 50;
    s.temperature = i % 2 == 0 ? 0.0f : 0.7f;
    s.seed = static_cast<uint64_t>(i);
    if (i % 3 == 0) s.allowed_token_ids = {{5, 9, 70}};
    if (i % 5 == 0) s.logprobs = 2;
    requests.push_back(std::move(r));
  }
  return requests;
}

TEST_P(WideModel, DraftsChangeNoAnswer) {
  const auto requests = long_requests(36);
  EngineConfig base = wide();
  base.max_seq_len = 4096;
  base.max_batched_tokens = 2048;
  std::vector<Answers> want;
  int page_size = 0;
  {
    const auto engine = open(base);
    ASSERT_NE(engine, nullptr);
    page_size = engine->info().selection.page_size;
    want = run(*engine, requests, true);
  }
  struct Variant {
    int drafts, requests;
    bool graphs, adaptive, few_pages;
  };
  for (const Variant& v : {Variant{5, 256, true, false, false},
                           {15, 256, true, false, true},
                           {5, 12, false, false, false},
                           {3, 1, true, false, false},
                           {7, 256, true, true, false}}) {
    EngineConfig c = base;
    c.max_running_requests = v.requests;
    c.cuda_graphs = v.graphs;
    if (v.few_pages) c.num_pages = 12288 / page_size;
    c.speculative.method = DraftMethod::ngram;
    c.speculative.num_tokens = v.drafts;
    c.speculative.prompt_lookup_min = 1;
    c.speculative.prompt_lookup_max = 4;
    c.speculative.adaptive = v.adaptive;
    // Kernels are chosen by the requests that may run.
    std::vector<Answers> expected = want;
    if (v.requests != base.max_running_requests) {
      EngineConfig plain = c;
      plain.speculative = {};
      const auto engine = open(plain);
      ASSERT_NE(engine, nullptr);
      expected = run(*engine, requests, false);
    }
    const auto engine = open(c);
    ASSERT_NE(engine, nullptr);
    const int differ = differences(expected, run(*engine, requests, false));
    const EngineStats stats = engine->stats();
    std::printf(
        "%-24s %2d drafts, %3d requests: differ %d/%zu  steps %lld preemptions %lld, %lld of %lld drafts "
        "accepted\n",
        GetParam(), v.drafts, v.requests, differ, want.size(), static_cast<long long>(stats.steps),
        static_cast<long long>(stats.preemptions), static_cast<long long>(stats.speculative.accepted_tokens),
        static_cast<long long>(stats.speculative.draft_tokens));
    EXPECT_EQ(differ, 0);
    EXPECT_GT(stats.speculative.draft_tokens, 100);
    EXPECT_GT(stats.speculative.accepted_tokens, 20);
    EXPECT_EQ(stats.pages_in_use, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, WideModel,
                         ::testing::Values("tests/configs/llama-3.1-8b", "bench/configs/qwen3-30b-a3b",
                                           "tests/configs/gpt-oss-20b"),
                         [](const auto& model) {
                           std::string name = model.param;
                           name.erase(0, name.rfind('/') + 1);
                           std::ranges::replace_if(name, [](char c) { return !std::isalnum(c); }, '_');
                           return name;
                         });

}  // namespace
}  // namespace fovea
