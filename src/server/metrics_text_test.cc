#include "server/metrics_text.h"

#include <cmath>
#include <vector>

#include "server/metrics_test_support.h"

namespace fovea::server {
namespace {

TEST(MetricsText, WritesTypesAndLabels) {
  MetricsText out("m");
  out.counter("a_total", "What it counts.", 3);
  out.metric("b", "gauge", "Two.");
  out.sample(0.25, {{"phase", "decode"}});
  out.sample(-1e-9, {{"phase", "prefill"}, {"kind", "full"}});
  EXPECT_EQ(out.take(),
            "# HELP a_total What it counts.\n# TYPE a_total counter\na_total{model_name=\"m\"} 3\n"
            "# HELP b Two.\n# TYPE b gauge\nb{model_name=\"m\",phase=\"decode\"} 0.25\n"
            "b{model_name=\"m\",phase=\"prefill\",kind=\"full\"} -1e-09\n");
}

TEST(MetricsText, BucketsAreCumulative) {
  MetricsText out("m");
  out.metric("h", "histogram", "H.");
  const std::vector<double> bounds = {0.5, 1, 16384};
  const std::vector<int64_t> counts = {2, 0, 1, 4};
  out.histogram(bounds, counts, 12.5);
  EXPECT_EQ(out.take(),
            "# HELP h H.\n# TYPE h histogram\nh_bucket{model_name=\"m\",le=\"0.5\"} 2\n"
            "h_bucket{model_name=\"m\",le=\"1.0\"} 2\nh_bucket{model_name=\"m\",le=\"16384.0\"} 3\n"
            "h_bucket{model_name=\"m\",le=\"+Inf\"} 7\nh_sum{model_name=\"m\"} 12.5\n"
            "h_count{model_name=\"m\"} 7\n");
}

TEST(MetricsText, EscapesLabels) {
  MetricsText out("a\\b\"c\nd} 1\xff");
  out.gauge("g", "G.", 1);
  const std::string text = out.take();
  EXPECT_NE(text.find("g{model_name=\"a\\\\b\\\"c\\nd} 1\xEF\xBF\xBD\"} 1\n"), text.npos) << text;
  EXPECT_EQ(test::parse_metrics(text).size(), 1u);
}

TEST(MetricsText, CountsKeepAllTheirDigits) {
  MetricsText out("m");
  out.gauge("g", "G.", 9007199254740991.0);
  EXPECT_NE(out.take().find("} 9007199254740991\n"), std::string::npos);
  out.metric("h", "gauge", "Not numbers.");
  out.sample(std::nan(""), {{"x", "1"}});
  out.sample(-INFINITY, {{"x", "2"}});
  const std::string text = out.take();
  EXPECT_NE(text.find("x=\"1\"} NaN\n"), text.npos);
  EXPECT_NE(text.find("x=\"2\"} -Inf\n"), text.npos);
}

}  // namespace
}  // namespace fovea::server
