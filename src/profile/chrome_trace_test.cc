#include "profile/chrome_trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "profile/recording_test_support.h"

namespace fovea::profile {
namespace {

using nlohmann::json;

class ChromeTrace : public ::testing::Test {
 protected:
  ~ChromeTrace() override { std::filesystem::remove(path_); }
  json written(const Recording& recording) {
    const Status status = write_chrome_trace(path_, recording, {{"command", "test \"quoted\""}});
    EXPECT_TRUE(status) << status.error().message;
    std::ifstream file(path_);
    return json::parse(file);
  }
  const std::string path_ = ::testing::TempDir() + "/fovea_trace.json";
};

/// Ranges of one track are nested or follow each other, and times of a track never go back.
void expect_nested(const json& trace) {
  std::map<std::pair<int, int>, std::vector<double>> ends;  // of the ranges that are open
  std::map<std::pair<int, int>, double> last;
  constexpr double kRounding = 1e-6;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const std::pair<int, int> track{event["pid"].get<int>(), event["tid"].get<int>()};
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    EXPECT_GE(event["dur"].get<double>(), 0);
    EXPECT_GE(begin, last.try_emplace(track, begin).first->second - kRounding);
    last[track] = begin;
    auto& open = ends[track];
    while (!open.empty() && open.back() <= begin + kRounding)
      open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(end, open.back() + kRounding) << event;
    }
    open.push_back(end);
  }
}

TEST_F(ChromeTrace, IsValidAndNested) {
  FakeGpu gpu;
  const int64_t start = now();
  gpu.eager(1, 4, start + 1000);
  gpu.replay(2, 4, start + 5000);
  // As they end: inner ones first, from two threads' worth of one.
  for (const auto& [name, begin, end] :
       {std::tuple("inner", 200, 300), {"inner", 300, 350}, {"outer", 100, 400}, {"later", 400, 500}})
    gpu.recorder().add(RangeRecord{name, 0, start + begin, start + end, begin});
  gpu.recorder().name_thread("the \"engine\"\n");
  gpu.recorder().add(CounterRecord{"running", start + 10, 2});
  Recording recording = gpu.recorder().recording();
  recording.device_times = DeviceTimes::cupti;
  const json trace = written(recording);
  expect_nested(trace);
  EXPECT_EQ(trace["otherData"]["device_times"], "CUPTI activity records");
  EXPECT_EQ(trace["otherData"]["command"], "test \"quoted\"");
  std::map<std::string, int> count;
  for (const json& event : trace["traceEvents"]) {
    ++count[event["ph"].get<std::string>()];
    if (event["ph"] == "X" && event["pid"] == 2 && event["name"] == "attention_kernel") {
      EXPECT_NEAR(event["args"]["early_us"].get<double>(), 0.1, 1e-9);
    }
    if (event["ph"] == "X" && event["name"] == "qkv_kernel") {  // of both steps
      EXPECT_EQ(event["args"]["operation"], "qkv");
      ++count["step " + std::to_string(event["args"]["step"].get<int>())];
    }
    if (event["ph"] == "M" && event["name"] == "thread_name" && event["pid"] == 1) {
      EXPECT_EQ(event["args"]["name"], "the \"engine\"\n");
    }
  }
  EXPECT_EQ(count["X"], 4 + 2 * 7);
  EXPECT_EQ(count["C"], 1);
  EXPECT_EQ(count["step 1"], 2);
  EXPECT_EQ(count["step 2"], 2);
}

TEST_F(ChromeTrace, SaysThatTimesAreByEvents) {
  Recording recording;
  recording.device_times = DeviceTimes::events;
  recording.without_cupti = "CUPTI is not found";
  recording.dropped = 12;
  const json trace = written(recording);
  EXPECT_NE(trace["otherData"]["device_times"].get<std::string>().find("without graphs"), std::string::npos);
  EXPECT_EQ(trace["otherData"]["without_cupti"], "CUPTI is not found");
  EXPECT_EQ(trace["otherData"]["dropped_records"], "12");
}

TEST_F(ChromeTrace, NamesAFileThatCannotBeWritten) {
  const Status status = write_chrome_trace("/nonexistent/trace.json", {}, {});
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("/nonexistent/trace.json"), std::string::npos);
}

}  // namespace
}  // namespace fovea::profile
