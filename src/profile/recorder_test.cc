#include "profile/recorder.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/thread_pool.h"
#include "device/stream.h"
#include "profile/kernel_name.h"
#include "profile/scopes.h"
#include "profile/session.h"

namespace fovea::profile {
namespace {

TEST(Newest, KeepsTheNewestInOrder) {
  Newest<int> list(3);
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(list.add(i));
  EXPECT_EQ(list.in_order(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(list.dropped(), 0u);
  for (int i = 3; i < 8; ++i)
    EXPECT_FALSE(list.add(i));
  EXPECT_EQ(list.in_order(), (std::vector<int>{5, 6, 7}));
  EXPECT_EQ(list.newest(), 7);
  EXPECT_EQ(list.dropped(), 5u);
}

TEST(Recorder, FindsTheOperationOfARecordByItsCorrelation) {
  Recorder recorder;
  recorder.add(StepInfo{7});
  const uint64_t op = recorder.add(OpRecord{"qkv", 3});
  DeviceRecord record;
  record.correlation = 42;
  record.begin = 20;
  recorder.add(record);
  record.correlation = 43;
  record.begin = 10;
  recorder.add(record);
  recorder.correlate(42, op);
  const Recording out = recorder.recording();
  ASSERT_EQ(out.device.size(), 2u);
  EXPECT_EQ(out.device[0].op, 0u);  // by begin
  EXPECT_EQ(out.device[1].op, op);
  ASSERT_NE(out.op(op), nullptr);
  EXPECT_STREQ(out.op(op)->name, "qkv");
  EXPECT_EQ(out.op(op)->step, 7u);
  EXPECT_EQ(out.op(op + 1), nullptr);
  EXPECT_EQ(out.op(0), nullptr);
}

TEST(Recorder, NumbersOfOperationsStayWhenOlderOnesAreDropped) {
  Recorder::Limits limits;
  limits.ops = 2;
  Recorder recorder(limits);
  uint64_t last = 0;
  for (const char* name : {"a", "b", "c", "d", "e"})
    last = recorder.add(OpRecord{name});
  const Recording out = recorder.recording();
  EXPECT_EQ(out.ops.size(), 2u);
  EXPECT_EQ(out.dropped, 3u);
  EXPECT_STREQ(out.op(last)->name, "e");
  EXPECT_STREQ(out.op(last - 1)->name, "d");
  EXPECT_EQ(out.op(last - 2), nullptr);
  recorder.clear();
  EXPECT_EQ(recorder.add(OpRecord{"f"}), last + 1);
  EXPECT_STREQ(recorder.recording().op(last + 1)->name, "f");
}

TEST(Recorder, NamesAreKeptOnce) {
  Recorder recorder;
  const uint32_t a = recorder.name("a"), b = recorder.name("b");
  EXPECT_NE(a, b);
  EXPECT_EQ(recorder.name("a"), a);
  EXPECT_EQ(recorder.recording().names[b], "b");
}

TEST(Session, RecordsRangesOfThreadsOnlyWhileItRuns) {
  {
    const Range unseen("before");
  }
  auto session = Session::start({});
  ASSERT_TRUE(session) << session.error().message;
  EXPECT_FALSE(Session::start({}));  // one at a time
  {
    const Range outer("outer", 5);
    const Range inner("inner");
  }
  std::thread([] {
    name_thread("worker");
    const Range range("elsewhere");
  }).join();
  ThreadPool pool(1);
  Stream stream(pool);
  {
    bool asked = false;
    const Op op(stream, "linear", 2, [&] {
      asked = true;
      return OpWork{1, 2};
    });
    EXPECT_TRUE(asked);
  }
  count("running", 3);
  const Recording out = (*session)->recording();
  session->reset();
  {
    const Range unseen("after");
  }
  {
    bool asked = false;
    const Op op(stream, "linear", 2, [&] {
      asked = true;
      return OpWork();
    });
    EXPECT_FALSE(asked);
  }
  ASSERT_EQ(out.ranges.size(), 4u);
  EXPECT_STREQ(out.ranges[0].name, "inner");  // they end first
  EXPECT_STREQ(out.ranges[1].name, "outer");
  EXPECT_EQ(out.ranges[1].value, 5);
  EXPECT_LE(out.ranges[1].begin, out.ranges[0].begin);
  EXPECT_GE(out.ranges[1].end, out.ranges[0].end);
  EXPECT_STREQ(out.ranges[2].name, "elsewhere");
  EXPECT_NE(out.ranges[2].thread, out.ranges[0].thread);
  EXPECT_EQ(out.threads[out.ranges[2].thread], "worker");
  EXPECT_STREQ(out.ranges[3].name, "linear");
  EXPECT_EQ(out.ranges[3].value, 2);
  ASSERT_EQ(out.counters.size(), 1u);
  EXPECT_EQ(out.counters[0].value, 3);
  EXPECT_EQ(out.device_times, DeviceTimes::none);
  auto next = Session::start({});
  ASSERT_TRUE(next);
  EXPECT_TRUE((*next)->recording().ranges.empty());
}

TEST(KernelName, IsShort) {
  EXPECT_EQ(short_kernel_name("_ZN5fovea4cuda12_GLOBAL__N_118take_tokens_kernelEPKiPi"),
            "take_tokens_kernel");
  EXPECT_EQ(short_kernel_name("_ZN5fovea4cuda11wgmma_thingI13__nv_bfloat16Li16ELb1EEEvNS0_6ParamsE"),
            "wgmma_thing<__nv_bfloat16, 16, true>");
  EXPECT_EQ(short_kernel_name("plain_c_kernel"), "plain_c_kernel");
  EXPECT_EQ(short_kernel_name(""), "");
}

}  // namespace
}  // namespace fovea::profile
