#pragma once
// Prometheus text format 0.0.4.
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace fovea::server {

class MetricsText {
 public:
  using Label = std::pair<std::string_view, std::string_view>;
  using Labels = std::initializer_list<Label>;

  /// Every series gets the label model_name.
  explicit MetricsText(std::string_view model_name);

  /// Begins a metric: `type` is "counter", "gauge", "histogram" or "summary" (quantiles only). The samples of
  /// a metric must be consecutive.
  void metric(std::string_view name, std::string_view type, std::string_view help);
  /// A sample of the current metric.
  void sample(double value, Labels labels = {});
  /// The samples of a histogram. `counts`: one for each bucket, whose inclusive upper bounds are `bounds`,
  /// and one for values above the last bound.
  void histogram(std::span<const double> bounds, std::span<const int64_t> counts, double sum);

  /// A metric with one sample.
  void counter(std::string_view name, std::string_view help, double value);
  void gauge(std::string_view name, std::string_view help, double value);

  std::string take() { return std::move(text_); }

 private:
  void line(std::string_view suffix, Labels labels, double value);

  std::string text_, name_;
  std::string model_label_;  // model_name="..."
};

}  // namespace fovea::server
