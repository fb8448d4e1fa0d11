#include "load/statistics.h"
#include "fovea/result.h"

#include <gtest/gtest.h>

#include <cmath>

namespace fovea::load {
namespace {

Outcome served(double start, double ttft, std::vector<double> itl, int64_t prompt) {
  Outcome outcome;
  outcome.ending = Ending::success;
  outcome.sent = true;
  outcome.start = start;
  outcome.ttft = outcome.latency = ttft;
  for (const double gap : itl)
    outcome.latency += gap;
  outcome.output_tokens = static_cast<int64_t>(itl.size()) + 1;
  outcome.itl = std::move(itl);
  outcome.prompt_tokens = prompt;
  return outcome;
}

Outcome failed(double start) {
  Outcome outcome;
  outcome.ending = Ending::failure;
  outcome.start = start;
  outcome.sent = true;
  outcome.prompt_tokens = 1000;
  outcome.output_tokens = 1000;
  return outcome;
}

TEST(Statistics, PercentilesLieBetweenTheNearestTwo) {
  const std::vector<double> values = {10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(percentile(values, 0), 10);
  EXPECT_DOUBLE_EQ(percentile(values, 50), 25);    // position 1.5
  EXPECT_DOUBLE_EQ(percentile(values, 90), 37);    // position 2.7
  EXPECT_DOUBLE_EQ(percentile(values, 99), 39.7);  // position 2.97
  EXPECT_DOUBLE_EQ(percentile(values, 100), 40);
  EXPECT_DOUBLE_EQ(percentile(std::vector<double>{7}, 99), 7);
  EXPECT_DOUBLE_EQ(percentile({}, 50), 0);
}

TEST(Statistics, DistributionIsInMilliseconds) {
  const Distribution values = distribution({0.004, 0.001, 0.003, 0.002});
  EXPECT_DOUBLE_EQ(values.mean_ms, 2.5);
  EXPECT_DOUBLE_EQ(values.median_ms, 2.5);
  EXPECT_DOUBLE_EQ(values.std_ms, std::sqrt(1.25));  // population: (2.25 + 0.25 + 0.25 + 2.25) / 4
  EXPECT_DOUBLE_EQ(distribution({}).mean_ms, 0);
}

// Three served requests and a failed one in 4 seconds:
//   a: 0.0, tokens at 0.5 1.0 1.5        (3 tokens, 10 of prompt)
//   b: 0.5, tokens at 1.5 1.75           (2 tokens, 20 of prompt)
//   c: 3.0, token at 3.25                (1 token, 30 of prompt)
std::vector<Outcome> example() {
  return {served(0, 0.5, {0.5, 0.5}, 10), served(0.5, 1, {0.25}, 20), failed(1), served(3, 0.25, {}, 30)};
}

TEST(Statistics, ThroughputCountsServedRequests) {
  const Summary summary = summarize(example(), 4, {});
  EXPECT_EQ(summary.completed, 3);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(summary.unfinished, 0);
  EXPECT_EQ(summary.total_input, 60);
  EXPECT_EQ(summary.total_output, 6);
  EXPECT_DOUBLE_EQ(summary.request_throughput, 0.75);
  EXPECT_DOUBLE_EQ(summary.output_throughput, 1.5);
  EXPECT_DOUBLE_EQ(summary.total_throughput, 16.5);
  EXPECT_DOUBLE_EQ(summary.peak_output_throughput, 4);  // second 1: 1.0, 1.5, 1.5, 1.75
  EXPECT_EQ(summary.peak_concurrency, 2);               // a and b
}

TEST(Statistics, LatenciesOfTheExample) {
  const Summary summary = summarize(example(), 4, {});
  EXPECT_NEAR(summary.of(Metric::ttft).mean_ms, 1750.0 / 3, 1e-9);
  EXPECT_DOUBLE_EQ(summary.of(Metric::ttft).median_ms, 500);
  // (1.5 - 0.5) / 2 and (1.25 - 1) / 1; a single token has no time per output token
  EXPECT_EQ(summary.of(Metric::tpot).sorted_ms, (std::vector<double>{250, 500}));
  EXPECT_EQ(summary.of(Metric::itl).sorted_ms, (std::vector<double>{250, 500, 500}));
  EXPECT_EQ(summary.of(Metric::e2el).sorted_ms, (std::vector<double>{250, 1250, 1500}));
  EXPECT_DOUBLE_EQ(summary.of(Metric::e2el).at(90), 1450);  // position 1.8: 1250 + 0.8 * 250
}

TEST(Statistics, GoodputNeedsEveryLimit) {
  const auto good = [](Goodput goodput) { return summarize(example(), 4, goodput).goodput * 4; };
  EXPECT_DOUBLE_EQ(good({500, {}, {}}), 2);   // a and c; a value equal to the limit is good
  EXPECT_DOUBLE_EQ(good({500, 300, {}}), 1);  // c: a single token
  EXPECT_DOUBLE_EQ(good({{}, {}, 1300}), 2);  // b and c
  EXPECT_DOUBLE_EQ(good({10, {}, 1300}), 0);
}

TEST(Statistics, TheServersCountOfTokensDecides) {
  Outcome outcome = served(0, 0.1, {0.2}, 1);
  outcome.output_tokens = 5;  // two events carried five tokens
  EXPECT_DOUBLE_EQ(time_per_output_token(outcome), 0.05);
}

TEST(Statistics, NothingServed) {
  const std::vector<Outcome> outcomes = {failed(0), Outcome()};
  const Summary summary = summarize(outcomes, 0, {});
  EXPECT_EQ(summary.completed, 0);
  EXPECT_EQ(summary.unfinished, 1);
  EXPECT_EQ(summary.request_throughput, 0);
  EXPECT_EQ(summary.of(Metric::ttft).at(99), 0);
}

TEST(Statistics, TimelineOfTheExample) {
  const Timeline line = timeline(example(), 4, 1);
  EXPECT_EQ(line.tokens_per_second, (std::vector<double>{1, 4, 0, 1, 0}));
  EXPECT_EQ(line.concurrency,
            (std::vector<double>{2, 1, 0, 0, 0}));  // at 0.5: a, b; at 1.5 b; c ends at 3.25
  const Timeline halves = timeline(example(), 4, 0.5);
  EXPECT_EQ(halves.tokens_per_second.size(), 9u);
  EXPECT_EQ(halves.tokens_per_second[3], 6);  // 1.5, 1.5, 1.75 in half a second
}

TEST(Statistics, ParsesNamesNumbersAndLimits) {
  EXPECT_EQ(*parse_metrics("itl,ttft"), (std::vector<Metric>{Metric::itl, Metric::ttft}));
  EXPECT_EQ(*parse_percentiles("50,99.9"), (std::vector<double>{50, 99.9}));
  EXPECT_DOUBLE_EQ(*parse_goodput({"ttft:200", "tpot:2.5"})->tpot_ms, 2.5);
  EXPECT_FALSE(parse_goodput({"ttft:200"})->e2el_ms);
  for (const char* bad : {"", "ttfts", "ttft,", "ttft, itl"})
    EXPECT_FALSE(parse_metrics(bad)) << bad;
  for (const char* bad : {"", "101", "-1", "nan", "5,", "0x5", "5 "})
    EXPECT_FALSE(parse_percentiles(bad)) << bad;
  for (const char* bad : {"", "ttft", "ttft:", "ttft:-1", "itl:5", "ttft:inf", "ttft:5:6"})
    EXPECT_FALSE(parse_goodput({bad})) << bad;
}

}  // namespace
}  // namespace fovea::load
