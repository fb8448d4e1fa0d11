#include "profile/step_table.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "profile/recording_test_support.h"
#include "profile/timeline_svg.h"

namespace fovea::profile {
namespace {

const StepRow* row_of(const StepTable& table, std::string_view op) {
  const auto found = std::ranges::find(table.rows, op, &StepRow::op);
  return found == table.rows.end() ? nullptr : &*found;
}

double sum(const StepTable& table) {
  double all = table.before + table.between;
  for (const StepRow& row : table.rows)
    all += row.seconds;
  return all;
}

constexpr double kNs = 1e-9;

StepChoice decode_of(int rows, bool replay = true) {
  StepChoice choice;
  choice.rows = rows;
  choice.replay = replay;
  return choice;
}

TEST(StepTable, OperationsOfAGraphAreThoseOfAStepWithout) {
  FakeGpu gpu;
  gpu.eager(1, 4, 1000);
  gpu.replay(2, 4, 10000);
  gpu.replay(3, 4, 13600);  // 100 after the one before
  const auto table = step_table(gpu.recorder().recording(), decode_of(4), {1e12, 0});
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_EQ(table->note, "");
  EXPECT_EQ(table->step.number, 2u);  // the lower median of 3500 and 3600
  const StepRow* qkv = row_of(*table, "qkv");
  ASSERT_NE(qkv, nullptr);
  EXPECT_EQ(qkv->count, 2);
  EXPECT_NEAR(qkv->seconds, 2000 * kNs, 1e-12);
  EXPECT_NEAR(qkv->floor, 2000e-12, 1e-15);
  EXPECT_EQ(qkv->kernels, std::vector<std::string>{"qkv_kernel"});
  const StepRow* attention = row_of(*table, "attention");
  ASSERT_NE(attention, nullptr);
  EXPECT_NEAR(attention->seconds, 800 * kNs, 1e-12);  // without what qkv hid
  EXPECT_NEAR(attention->spans, 1000 * kNs, 1e-12);
  EXPECT_NEAR(attention->floor, 6000e-12, 1e-15);  // the step's, not the operation's
  EXPECT_NEAR(table->between, 100 * kNs, 1e-12);
  EXPECT_NEAR(table->seconds, 3500 * kNs, 1e-12);
  EXPECT_NEAR(sum(*table), table->seconds, 1e-12);
  EXPECT_EQ(table->rows.front().op, "qkv");
  for (const StepEvent& event : table->events)
    EXPECT_EQ(event.beside, table->rows[event.row].op == "copy_results");
}

TEST(StepTable, TimeBeforeAStepCountsIfItFollowsAnother) {
  FakeGpu gpu;
  gpu.eager(1, 4, 1000);
  gpu.eager(2, 4, 4700);    // 200 after
  gpu.eager(3, 4, 900000);  // after a pause that is not of this step
  const auto table = step_table(gpu.recorder().recording(), decode_of(4, false), {1e12, 0});
  ASSERT_TRUE(table) << table.error().message;
  EXPECT_NEAR(table->before, 0, 1e-12);
  EXPECT_NEAR(table->seconds, 3500 * kNs, 1e-12);
  FakeGpu two;
  two.eager(1, 3, 1000);
  two.eager(2, 4, 4700);
  const auto second = step_table(two.recorder().recording(), decode_of(4, false), {1e12, 0});
  ASSERT_TRUE(second);
  EXPECT_NEAR(second->before, 200 * kNs, 1e-12);
  EXPECT_NEAR(second->seconds, 3700 * kNs, 1e-12);
  EXPECT_NEAR(sum(*second), second->seconds, 1e-12);
}

TEST(StepTable, OtherKernelsOfAGraphHaveNoOperation) {
  FakeGpu gpu;
  gpu.eager(1, 4, 1000);
  gpu.replay(2, 4, 10000, "another_kernel");
  const auto table = step_table(gpu.recorder().recording(), decode_of(4), {1e12, 0});
  ASSERT_TRUE(table);
  EXPECT_NE(table->note, "");
  EXPECT_EQ(row_of(*table, "qkv"), nullptr);
  EXPECT_NEAR(sum(*table), table->seconds, 1e-12);
}

TEST(StepTable, ChoosesTheLargestPrefill) {
  FakeGpu gpu;
  gpu.prefill(1, 100, 1000);
  gpu.prefill(2, 800, 5000);
  gpu.eager(3, 4, 9000);
  StepChoice choice;
  choice.decode = false;
  const auto table = step_table(gpu.recorder().recording(), choice, {1e12, 1e12});
  ASSERT_TRUE(table);
  EXPECT_EQ(table->step.prefill_rows, 800);
  EXPECT_NEAR(table->floor, 4000e-12, 1e-15);  // by operations, not by bytes
}

TEST(StepTable, NamesAMissingStep) {
  FakeGpu gpu;
  gpu.eager(1, 4, 1000);
  const auto table = step_table(gpu.recorder().recording(), decode_of(8, false), {1e12, 0});
  ASSERT_FALSE(table);
  EXPECT_NE(table.error().message.find("8 rows"), std::string::npos);
  EXPECT_FALSE(step_table(Recording(), decode_of(1), {}));
}

TEST(StepTable, IsTextAndJson) {
  FakeGpu gpu;
  gpu.eager(1, 4, 1000);
  gpu.replay(2, 4, 10000);
  const auto table = step_table(gpu.recorder().recording(), decode_of(4), {1e12, 0});
  ASSERT_TRUE(table);
  const std::string text = table_text(*table, 3.4e-6);
  for (const char* part : {"qkv", "attention_kernel", "(between two)", "whole step", "a graph of 4 rows"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  const auto json = nlohmann::json::parse(table_json(*table, 3.4e-6));
  EXPECT_NEAR(json["step_us"].get<double>(), 3.4, 1e-9);
  EXPECT_TRUE(json["graph"].get<bool>());
  double all = json["before_us"].get<double>() + json["between_us"].get<double>();
  for (const auto& row : json["operations"])
    all += row["us"].get<double>();
  EXPECT_NEAR(all, json["recorded_step_us"].get<double>(), 1e-6);
}

/// Whether tags are closed in order and attributes are quoted; texts have no bare "<" or "&".
bool well_formed(const std::string& text) {
  std::vector<std::string> open;
  for (size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at)) {
    const size_t end = text.find('>', at);
    if (end == std::string::npos) return false;
    const std::string tag = text.substr(at + 1, end - at - 1);
    if (std::ranges::count(tag, '"') % 2 != 0 || tag.find('<') != std::string::npos) return false;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag.starts_with('/')) {
      if (open.empty() || "/" + open.back() != tag) return false;
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
    at = end;
  }
  for (size_t at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1))
    if (text.compare(at, 4, "&lt;") != 0 && text.compare(at, 4, "&gt;") != 0 &&
        text.compare(at, 5, "&amp;") != 0 && text.compare(at, 6, "&quot;") != 0)
      return false;
  return open.empty();
}

TEST(TimelineSvg, IsWellFormed) {
  EXPECT_FALSE(well_formed("<a><b></a></b>"));
  EXPECT_FALSE(well_formed("<a>&x</a>"));
  FakeGpu gpu;
  gpu.eager(1, 4, 1000);
  gpu.replay(2, 4, 10000, "kernel<\"a\" & 'b'>");
  for (const bool replay : {false, true}) {
    const auto table = step_table(gpu.recorder().recording(), decode_of(4, replay), {1e12, 0});
    ASSERT_TRUE(table);
    const std::string svg = timeline_svg(*table, "a <model> & \"more\"");
    EXPECT_TRUE(well_formed(svg)) << svg;
    EXPECT_EQ(svg.find("nan"), std::string::npos);
    EXPECT_EQ(svg.find("inf"), std::string::npos);
    EXPECT_NE(svg.find("&lt;model&gt;"), std::string::npos);
    if (!replay) {
      EXPECT_NE(svg.find("layer 0 of it"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace fovea::profile
