#include "c_api/engine/output_queue.h"

#include <gmock/gmock.h>

#include <atomic>
#include <set>
#include <thread>

#include "c_api/engine/handles.h"

namespace fovea::c_api {
namespace {

using ::testing::HasSubstr;

RequestOutput piece(uint64_t id, std::string text, FinishReason finish = FinishReason::none) {
  RequestOutput output;
  output.id = id;
  output.text = std::move(text);
  output.finish = finish;
  return output;
}

TEST(OutputQueue, KeepsTheOrderAndTheTags) {
  OutputQueue queue;
  queue.expect(1);
  queue.push(piece(1, "a"), 10);
  queue.push(piece(1, "b", FinishReason::stop), 11);
  const auto taken = queue.take(0);
  ASSERT_TRUE(taken.ok());
  ASSERT_EQ(taken->size(), 2U);
  EXPECT_EQ((*taken)[0].output.text + (*taken)[1].output.text, "ab");
  EXPECT_EQ((*taken)[1].tag, 11U);
  EXPECT_TRUE(queue.take(0)->empty());
  EXPECT_TRUE(queue.take(1)->empty());
}

TEST(OutputQueue, KnowsTheIdsThatItHasSeen) {
  OutputQueue queue;
  EXPECT_FALSE(queue.has_id(0));
  EXPECT_FALSE(queue.has_id(1));
  queue.push(piece(4, "before submit() returned"), 0);
  EXPECT_TRUE(queue.has_id(4));
  queue.note_id(3);
  EXPECT_TRUE(queue.has_id(4));
  EXPECT_FALSE(queue.has_id(5));
  queue.note_id(5);
  EXPECT_TRUE(queue.has_id(5));
}

TEST(OutputQueue, IdleWhenEveryAnswerHasEnded) {
  OutputQueue queue;
  EXPECT_TRUE(*queue.wait_idle(0));
  queue.expect(3);
  EXPECT_FALSE(*queue.wait_idle(1));
  queue.push(piece(1, "", FinishReason::length), 0);
  queue.unexpect(1);
  EXPECT_FALSE(*queue.wait_idle(0));
  queue.push(piece(2, "more"), 0);
  EXPECT_FALSE(*queue.wait_idle(0));
  queue.push(piece(2, "", FinishReason::cancelled), 0);
  EXPECT_TRUE(*queue.wait_idle(-1));
}

TEST(OutputQueue, CloseWakesEveryWait) {
  OutputQueue queue;
  queue.expect(1);
  std::vector<std::thread> threads;
  std::atomic<int> cancelled = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&queue, &cancelled, i] {
      const auto code = i % 2 == 0 ? queue.take(-1).error().code : queue.wait_idle(INT64_MAX).error().code;
      cancelled += code == ErrorCode::cancelled;
    });
  queue.close();
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(cancelled, 4);
  queue.push(piece(1, "late", FinishReason::stop), 0);  // dropped
  EXPECT_THAT(queue.take(0).error().message, HasSubstr("the engine was destroyed"));
}

TEST(OutputQueue, EveryOutputGoesToOneOfManyReaders) {
  constexpr uint64_t kCount = 2000;
  OutputQueue queue;
  queue.expect(kCount);
  std::mutex mutex;
  std::set<uint64_t> seen;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i)
    readers.emplace_back([&] {
      for (;;) {
        const auto taken = queue.take(-1);
        if (!taken) return;
        const std::lock_guard lock(mutex);
        for (const TaggedOutput& one : *taken)
          EXPECT_TRUE(seen.insert(one.tag).second);
      }
    });
  for (uint64_t i = 0; i < kCount; ++i)
    queue.push(piece(i, "x", FinishReason::stop), i);
  EXPECT_TRUE(*queue.wait_idle(-1));
  for (;;) {
    const std::lock_guard lock(mutex);
    if (seen.size() == kCount) break;
  }
  queue.close();
  for (std::thread& reader : readers)
    reader.join();
}

TEST(Batch, ShowsAllFields) {
  TaggedOutput one;
  one.tag = 77;
  one.output.id = 5;
  one.output.index = 2;
  one.output.text = std::string("a\0b", 3);
  one.output.token_ids = {8, 9};
  one.output.logprobs = {{{8, -0.5f, 1}, {{8, -0.5f, 1}, {3, -2.0f, 2}}}, {{9, -1.5f, 4}, {}}};
  one.output.prompt_logprobs = {{{1, -3.0f, 7}, {}}};
  one.output.finish = FinishReason::error;
  one.output.error = unsupported("no");
  one.output.stop_token = 4;
  one.output.cached_tokens = 16;
  TaggedOutput plain;
  plain.output.error = invalid("of another request");  // meaningless without FinishReason::error
  fovea_outputs* batch = make_batch({one, plain});
  ASSERT_NE(batch, nullptr);
  ASSERT_EQ(batch->count, 2U);
  const fovea_output& out = *batch->outputs[0];
  EXPECT_EQ(out.size, sizeof(fovea_output));
  EXPECT_EQ(out.id, 5U);
  EXPECT_EQ(out.tag, 77U);
  EXPECT_EQ(out.index, 2);
  EXPECT_EQ(std::string(out.text, out.text_bytes), one.output.text);
  ASSERT_EQ(out.num_token_ids, 2U);
  EXPECT_EQ(out.token_ids[1], 9);
  ASSERT_EQ(out.num_logprobs, 2U);
  EXPECT_EQ(out.logprobs[0].num_top, 2);
  EXPECT_EQ(out.logprobs[0].top[1].token_id, 3);
  EXPECT_EQ(out.logprobs[1].token.rank, 4);
  EXPECT_EQ(out.logprobs[1].top, nullptr);
  ASSERT_EQ(out.num_prompt_logprobs, 1U);
  EXPECT_EQ(out.prompt_logprobs[0].token.logprob, -3.0f);
  EXPECT_EQ(out.finish, FOVEA_FINISH_ERROR);
  EXPECT_STREQ(out.error, "no");
  EXPECT_EQ(out.error_status, FOVEA_UNSUPPORTED);
  EXPECT_EQ(out.stop_token, 4);
  EXPECT_EQ(out.cached_tokens, 16);
  EXPECT_STREQ(batch->outputs[1]->error, "");
  EXPECT_EQ(batch->outputs[1]->error_status, FOVEA_OK);
  EXPECT_EQ(batch->outputs[1]->stop_token, -1);
  fovea_outputs_free(batch);
  EXPECT_EQ(make_batch({}), nullptr);
}

struct Thing {
  explicit Thing(int given) : number(given) {}
  int number;
};
struct ThingHandle;
using Things = Handles<ThingHandle, Thing>;

TEST(Handles, AreCheckedAndNeverReused) {
  ThingHandle* const a = Things::add(std::make_shared<Thing>(1));
  ThingHandle* const b = Things::add(std::make_shared<Thing>(2));
  EXPECT_EQ((*Things::find(a, "thing"))->number, 1);
  const std::shared_ptr<Thing> held = *Things::find(b, "thing");
  EXPECT_EQ(Things::remove(b)->number, 2);
  EXPECT_EQ(held->number, 2);
  EXPECT_EQ(Things::remove(b), nullptr);
  EXPECT_EQ(Things::remove(nullptr), nullptr);
  EXPECT_EQ(Things::find(nullptr, "thing").error().message, "thing is null");
  EXPECT_THAT(Things::find(b, "thing").error().message, HasSubstr("thing is not a live one"));
  int local = 0;
  EXPECT_FALSE(Things::find(reinterpret_cast<ThingHandle*>(&local), "thing").ok());
  EXPECT_NE(Things::add(std::make_shared<Thing>(3)), b);
}

}  // namespace
}  // namespace fovea::c_api
