// Structured output on a GPU: masks go to the device, and the answers are those that the host draws.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "tests/engine/gpu_variants.h"

namespace fovea {
namespace {

using namespace test;

class MasksOnGpu : public EngineOnGpu {};

std::shared_ptr<const OutputConstraint> constraint(OutputConstraint::Kind kind, std::string text) {
  OutputConstraint c;
  c.kind = kind;
  c.text = std::move(text);
  return std::make_shared<const OutputConstraint>(std::move(c));
}

/// Every second one under a constraint.
std::vector<GenerateRequest> constrained_requests() {
  using Kind = OutputConstraint::Kind;
  const std::vector<std::shared_ptr<const OutputConstraint>> all = {
      constraint(Kind::regex, "[a-z]{20,90}( [0-9]{1,5}){2,6}"), constraint(Kind::json_object, ""),
      constraint(
          Kind::json_schema,
          R"({"type":"object","properties":{"name":{"type":"string","maxLength":40},"age":{"type":)"
          R"("integer"},"tags":{"type":"array","items":{"enum":["red","green","blue"]},"maxItems":9}},)"
          R"("required":["name","age","tags"],"additionalProperties":false})")};
  std::vector<GenerateRequest> requests = mixed_requests(48, 11);
  for (size_t i = 0; i < requests.size(); i += 2) {
    SamplingParams& s = requests[i].sampling;
    s.constraint = all[i / 2 % all.size()];
    s.allowed_token_ids.reset();
    s.ignore_eos = false;
    s.max_tokens = 120;
  }
  return requests;
}

TEST_F(MasksOnGpu, AnswersAreThoseThatTheHostDraws) {
  const std::string name = "llama3_gqa4_d16_bf16";  // with a tokenizer
  auto requests = constrained_requests();
  EngineConfig base = config(name);
  std::vector<Answers> want;
  {
    EngineConfig c = base;
    c.overlap = c.cuda_graphs = false;
    c.speculative.method = DraftMethod::ngram;  // with drafts the host draws
    c.speculative.num_tokens = 1;
    const auto engine = open(c);
    ASSERT_NE(engine, nullptr);
    base.attention.page_size = engine->info().selection.page_size;
    want = run(*engine, requests, true);
  }
  int alike = 0;
  {
    auto free = requests;
    for (GenerateRequest& request : free)
      request.sampling.constraint.reset();
    const auto engine = open(base);
    ASSERT_NE(engine, nullptr);
    const auto got = run(*engine, free, false);
    for (size_t i = 0; i < want.size(); i += 2)
      alike += got[i] == want[i];
  }
  EXPECT_LT(alike, 3);  // masks change most answers
  const std::vector<Variant> variants = {
      {"as it is", [](EngineConfig&) {}},
      {"no overlap", [](EngineConfig& c) { c.overlap = false; }},
      {"no graphs", [](EngineConfig& c) { c.cuda_graphs = false; }},
      {"chunks of 33, few pages",
       [](EngineConfig& c) {
         c.max_batched_tokens = 33;
         c.num_pages = 768 / *c.attention.page_size;
       }},
      {"5 drafts",
       [](EngineConfig& c) {
         c.speculative.method = DraftMethod::ngram;
         c.speculative.num_tokens = 5;
       }},
  };
  expect_bytes("masks", base, variants, requests, want, {.storm = true});
}

}  // namespace
}  // namespace fovea
