#include "server/snapshot_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fovea::server {
namespace {

using Json = nlohmann::json;

EngineSnapshot example() {
  EngineSnapshot s;
  s.steps_total = 4211;
  s.generated_tokens = 9000;
  s.speculative.add(5, 3);
  s.speculative.add(5, 0);
  s.page_size = 16;
  s.pages_total = 2048;
  s.pages_free = 1800;
  s.pages_cached = 200;
  s.pages_in_use = 48;
  s.running = 1;
  s.waiting = 2;
  s.sequences.push_back({17, 1, EngineSnapshot::State::decode, 31, 40, 10, 16, 3, 1, 2});
  s.sequences.push_back({18, 0, EngineSnapshot::State::prefill, 500, 64, 0, 0, 32, 0, 0});
  s.sequences.push_back({19, 0, EngineSnapshot::State::waiting, 5, 0, 0, 0, 0, 0, 0});
  s.prefix_nodes = 12;
  s.prefix_pages = 208;
  s.prefix_locked_pages = 8;
  s.prefixes_complete = false;
  s.prefixes = {{1024, 64, false}, {512, 32, true}};
  s.steps = {{0.0021, 0.0004, 1e-5, 0, 3}, {1.5, 0.25, 0, 512, 0}};
  s.made = std::chrono::steady_clock::now();
  return s;
}

TEST(SnapshotJson, HasEveryFieldOfTheHeader) {
  const EngineSnapshot s = example();
  EXPECT_EQ(Json::parse(snapshot_json(s, s.made + std::chrono::milliseconds(250))), Json::parse(R"({
    "age_seconds": 0.25, "steps_total": 4211, "generated_tokens": 9000,
    "drafts": {"steps": 2, "draft_tokens": 10, "accepted_tokens": 3}, "page_size": 16,
    "pages": {"total": 2048, "free": 1800, "cached": 200, "in_use": 48},
    "running": 1, "waiting": 2,
    "sequences": [
      {"id": 17, "index": 1, "state": "decode", "prompt_tokens": 31, "computed_tokens": 40,
       "generated_tokens": 10, "cached_tokens": 16, "pages": 3, "shared_pages": 1, "preemptions": 2},
      {"id": 18, "index": 0, "state": "prefill", "prompt_tokens": 500, "computed_tokens": 64,
       "generated_tokens": 0, "cached_tokens": 0, "pages": 32, "shared_pages": 0, "preemptions": 0},
      {"id": 19, "index": 0, "state": "waiting", "prompt_tokens": 5, "computed_tokens": 0,
       "generated_tokens": 0, "cached_tokens": 0, "pages": 0, "shared_pages": 0, "preemptions": 0}],
    "prefixes": {"nodes": 12, "pages": 208, "locked_pages": 8, "complete": false,
      "longest": [{"tokens": 1024, "pages": 64, "locked": false}, {"tokens": 512, "pages": 32, "locked": true}]},
    "steps": [
      {"seconds": 0.0021, "attention_seconds": 0.0004, "plan_seconds": 0.00001, "prefill_rows": 0,
       "decode_rows": 3},
      {"seconds": 1.5, "attention_seconds": 0.25, "plan_seconds": 0.0, "prefill_rows": 512,
       "decode_rows": 0}]})"));
}

TEST(SnapshotJson, ListsMayBeEmpty) {
  const Json parsed = Json::parse(snapshot_json({}));
  EXPECT_TRUE(parsed["sequences"].is_array() && parsed["sequences"].empty());
  EXPECT_TRUE(parsed["prefixes"]["longest"].is_array() && parsed["prefixes"]["longest"].empty());
  EXPECT_TRUE(parsed["steps"].is_array() && parsed["steps"].empty());
}

TEST(SnapshotJson, AgeIsNeverNegative) {
  const EngineSnapshot s = example();
  EXPECT_EQ(Json::parse(snapshot_json(s, s.made - std::chrono::seconds(1)))["age_seconds"], 0.0);
}

}  // namespace
}  // namespace fovea::server
