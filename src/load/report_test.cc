#include "load/report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "load/plot.h"

namespace fovea::load {
namespace {

BenchConfig example_config() {
  BenchConfig config;
  config.request_rate = 2.5;
  config.max_concurrency = 8;
  config.goodput.ttft_ms = 300;
  config.dataset.num_prompts = 4;
  return config;
}

BenchResult example_result(const BenchConfig& config) {
  BenchResult result;
  result.model = "org/a <b> & \"c\"";
  for (const double ttft : {0.25, 0.5}) {
    Outcome outcome;
    outcome.ending = Ending::success;
    outcome.ttft = ttft;
    outcome.itl = {0.5};
    outcome.latency = ttft + 0.5;
    outcome.prompt_tokens = 100;
    outcome.output_tokens = 2;
    outcome.text = "\xff";
    result.outcomes.push_back(outcome);
  }
  result.outcomes.emplace_back().ending = Ending::failure;
  result.outcomes.back().error = "busy";
  result.outcomes.emplace_back();
  result.summary = summarize(result.outcomes, 4, config.goodput);
  return result;
}

TEST(Report, TheBlock) {
  const BenchConfig config = example_config();
  ReportConfig report;
  report.metrics = {Metric::ttft};
  report.percentiles = {50, 99.9};
  EXPECT_EQ(report_text(config, example_result(config), report),
            "============ Serving Benchmark Result ============\n"
            "Successful requests:                     2         \n"
            "Failed requests:                         1         \n"
            "Requests cut off by the interrupt:       1         \n"
            "Maximum request concurrency:             8         \n"
            "Request rate configured (RPS):           2.50      \n"
            "Benchmark duration (s):                  4.00      \n"
            "Total input tokens:                      200       \n"
            "Total generated tokens:                  4         \n"
            "Request throughput (req/s):              0.50      \n"
            "Request goodput (req/s):                 0.25      \n"
            "Output token throughput (tok/s):         1.00      \n"
            "Peak output token throughput (tok/s):    3.00      \n"
            "Peak concurrent requests:                2.00      \n"
            "Total Token throughput (tok/s):          51.00     \n"
            "---------------Time to First Token----------------\n"
            "Mean TTFT (ms):                          375.00    \n"
            "Median TTFT (ms):                        375.00    \n"
            "P50 TTFT (ms):                           375.00    \n"
            "P99.9 TTFT (ms):                         499.75    \n"
            "==================================================\n");
}

TEST(Report, TheKeysOfTheFile) {
  const BenchConfig config = example_config();
  ReportConfig report;
  report.detailed = true;
  const auto json =
      nlohmann::json::parse(report_json(config, example_result(config), report, "20260102-030405"));
  for (const char* key : {"date",
                          "backend",
                          "model_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "input_lens",
                          "output_lens",
                          "ttfts",
                          "itls",
                          "generated_texts",
                          "errors"})
    EXPECT_TRUE(json.contains(key)) << key;
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"})
    for (const char* figure : {"mean", "median", "std", "p50", "p90", "p99"})
      EXPECT_TRUE(json.contains(std::string(figure) + "_" + metric + "_ms")) << figure << metric;
  EXPECT_EQ(json["p90_ttft_ms"], 475.0);
  EXPECT_EQ(json["errors"][2], "busy");
  EXPECT_EQ(json["output_lens"], (std::vector<int>{2, 2, 0, 0}));
  EXPECT_EQ(json["model_id"], "org/a <b> & \"c\"");
}

TEST(Report, AnInfiniteRateAndNoLimit) {
  const BenchConfig config;
  const auto json = nlohmann::json::parse(report_json(config, example_result(config), {}, ""));
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_TRUE(json["max_concurrency"].is_null());
  EXPECT_TRUE(json["request_goodput"].is_null());
  EXPECT_FALSE(json.contains("ttfts"));
}

TEST(Report, ErrorsByFrequency) {
  BenchResult result;
  for (const char* error : {"a", "b", "b", "c"}) {
    result.outcomes.emplace_back().ending = Ending::failure;
    result.outcomes.back().error = error;
  }
  EXPECT_EQ(report_errors(result, 2), "2 x b\n1 x a\nand 1 other errors\n");
  EXPECT_EQ(report_errors({}, 2), "");
}

TEST(Report, FileNamesAreNames) {
  const BenchConfig config = example_config();
  EXPECT_EQ(report_file_name(config, example_result(config), "D"),
            "openai-2.5qps-concurrency8-a_<b>_&_\"c\"-D.json");
}

TEST(Plot, SaysWhatTheFiguresAreAndEscapes) {
  const BenchConfig config = example_config();
  const std::string svg = plot_svg(config, example_result(config));
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(svg.find("var("), std::string::npos);  // supported by browsers only: librsvg draws black
  EXPECT_NE(svg.find(".ground{fill:#ffffff}"), std::string::npos);
  EXPECT_NE(svg.find("org/a &lt;b&gt; &amp;"), std::string::npos);
  EXPECT_EQ(svg.find("<b>"), std::string::npos);
  EXPECT_NE(svg.find("p50 375, p90 475, p99 498 ms"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(Plot, NothingServedOneValueAndLongTails) {
  BenchConfig config;
  BenchResult result;
  result.summary = summarize(result.outcomes, 0, {});
  EXPECT_NE(plot_svg(config, result).find("nothing was measured"), std::string::npos);
  Outcome outcome;
  outcome.ending = Ending::success;
  outcome.ttft = outcome.latency = 0.001;
  outcome.output_tokens = 1;
  result.outcomes.assign(200, outcome);
  result.summary = summarize(result.outcomes, 1e-9, {});
  std::string svg = plot_svg(config, result);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  result.outcomes[0].ttft = result.outcomes[0].latency = 100;
  result.summary = summarize(result.outcomes, 100, {});
  svg = plot_svg(config, result);
  EXPECT_NE(svg.find("logarithmic"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find(",inf"), std::string::npos);
}

}  // namespace
}  // namespace fovea::load
