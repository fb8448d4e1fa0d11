#pragma once
// Engines on a GPU that differ only in what must not change a byte of an answer.
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/gpu_requests.h"

namespace fovea::test {

/// A change of an engine's settings.
struct Variant {
  std::string name;
  std::function<void(EngineConfig&)> change;
};

/// What each request gets alone in an engine of `config`, whose page size is then set to the engine's. Empty
/// after a failure.
inline std::vector<Answers> answers_alone(EngineConfig& config,
                                          const std::vector<GenerateRequest>& requests) {
  const auto engine = open(config);
  if (!engine) return {};
  config.attention.page_size = engine->info().selection.page_size;
  auto answers = run(*engine, requests, true);
  for (size_t i = 0; i < answers.size(); ++i)
    for (const Answer& answer : answers[i])
      EXPECT_EQ(answer.error, "") << "request " << i;
  return answers;
}

struct VariantOptions {
  bool storm = false;  ///< the requests run once more, between others that come and go
  std::function<void(const Variant&, const EngineConfig&, const EngineStats&)> look = {};
};

/// Runs the requests together in an engine of each variant and expects the bytes of `want`. Variants that the
/// engine does not support, such as a page size, are reported and left out.
inline void expect_bytes(const std::string& what, const EngineConfig& base,
                         const std::vector<Variant>& variants, const std::vector<GenerateRequest>& requests,
                         const std::vector<Answers>& want, const VariantOptions& options = {}) {
  for (const Variant& variant : variants) {
    EngineConfig c = base;
    variant.change(c);
    auto made = Engine::create(c);
    if (!made && made.error().code == ErrorCode::unsupported) {
      std::printf("%-28s %-34s refused: %s\n", what.c_str(), variant.name.c_str(),
                  made.error().message.c_str());
      continue;
    }
    ASSERT_TRUE(made.ok()) << what << ", " << variant.name << ": " << made.error().message;
    const auto got = run(**made, requests, false);
    const int differ = differences(want, got);
    const int again = options.storm ? differences(want, run_in_a_storm(**made, requests)) : 0;
    std::string first;
    for (size_t i = 0; i < want.size() && first.empty(); ++i)
      if (got[i] != want[i])
        first = "request " + std::to_string(i) + " of " + std::to_string(requests[i].prompt_ids.size()) +
                " tokens" + (got[i][0].ids == want[i][0].ids ? ", same ids" : ", other ids") +
                (got[i][0].error.empty() ? "" : ", " + got[i][0].error);
    const EngineStats stats = (*made)->stats();
    std::printf("%-28s %-34s differ %d/%zu%s  steps %lld preemptions %lld hits %lld  %s\n", what.c_str(),
                variant.name.c_str(), differ, want.size(),
                options.storm ? (", in a storm " + std::to_string(again)).c_str() : "",
                static_cast<long long>(stats.steps), static_cast<long long>(stats.preemptions),
                static_cast<long long>(stats.prefix_hits), first.c_str());
    if (c.speculative.enabled())
      std::printf("%-28s %-34s %lld of %lld drafts accepted\n", what.c_str(), variant.name.c_str(),
                  static_cast<long long>(stats.speculative.accepted_tokens),
                  static_cast<long long>(stats.speculative.draft_tokens));
    EXPECT_EQ(differ, 0) << what << ", " << variant.name << ": " << first;
    EXPECT_EQ(again, 0) << what << ", " << variant.name << ", in a storm";
    EXPECT_EQ(stats.pages_in_use, 0);
    if (options.look) options.look(variant, c, stats);
  }
}

}  // namespace fovea::test
