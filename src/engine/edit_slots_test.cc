#include "engine/edit_slots.h"

#include <gtest/gtest.h>

#include "base/thread_pool.h"

namespace fovea {
namespace {

constexpr int kVocab = 100;

class EditSlotsTest : public ::testing::Test {
 protected:
  uint64_t block(EditSlots& slots, uint64_t id, uint64_t step, uint64_t oldest_open) {
    Sequence sequence;
    sequence.id = id;
    sequence.tokens = {1, 2, 3};
    sequence.prompt_len = 2;
    const auto found = slots.block(sequence, processor_, step, oldest_open, stream_);
    EXPECT_TRUE(found.ok());
    return found ? *found : 0;
  }

  static SamplingParams penalised() {
    SamplingParams params;
    params.frequency_penalty = 1;
    return params;
  }

  ThreadPool pool_{1};
  Stream stream_{pool_};
  LogitsProcessor processor_{penalised(), {}, {}};
  const int64_t bytes_ = EditSlots::slot_bytes(kVocab, 0);
};

TEST_F(EditSlotsTest, OnlyRequestsWithEditsNeedASlot) {
  const EditSlots slots(cpu_device(), 2, bytes_, kVocab);
  const LogitsProcessor none;
  EXPECT_EQ(slots.need(nullptr), EditSlots::Need::none);
  EXPECT_EQ(slots.need(&none), EditSlots::Need::none);
  EXPECT_EQ(slots.need(&processor_), EditSlots::Need::slot);
  SamplingParams params;
  for (int32_t token = 0; token < kVocab; ++token)
    params.logit_bias.push_back({token, 1.0f});
  const LogitsProcessor large(params, {}, {});
  EXPECT_EQ(slots.need(&large), EditSlots::Need::host);
  SamplingParams timed;
  timed.timestamps = TimestampRules{};
  const LogitsProcessor timestamps(timed, {}, {});
  EXPECT_EQ(slots.need(&timestamps), EditSlots::Need::host);
}

TEST_F(EditSlotsTest, ABlockStaysUntilItsStepsAreClosed) {
  EditSlots slots(cpu_device(), 2, bytes_, kVocab);
  const uint64_t a = block(slots, 1, 1, 1), b = block(slots, 2, 1, 1);
  EXPECT_NE(a, b);
  EXPECT_EQ(block(slots, 1, 2, 1), a);
  EXPECT_EQ(block(slots, 3, 2, 1), 0u);  // step 1 is open
  EXPECT_EQ(block(slots, 3, 2, 2), b);   // it is closed, and step 2 uses the block of 1
  EXPECT_EQ(block(slots, 1, 3, 2), a);
}

TEST_F(EditSlotsTest, SequencesOfTheStepKeepTheirBlocks) {
  EditSlots slots(cpu_device(), 2, bytes_, kVocab);
  const uint64_t a = block(slots, 1, 1, 1), b = block(slots, 2, 1, 1);
  slots.keep(1, 2);  // the step has sequences 3 and 1, in this order
  slots.keep(3, 2);
  EXPECT_EQ(block(slots, 3, 2, 2), b);
  EXPECT_EQ(block(slots, 1, 2, 2), a);
}

}  // namespace
}  // namespace fovea
