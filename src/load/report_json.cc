#include <cmath>
#include <nlohmann/json.hpp>

#include "load/report.h"

namespace fovea::load {
namespace {

using Json = nlohmann::ordered_json;

void add_details(Json& json, const BenchResult& result) {
  for (const char* key :
       {"input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors"})
    json[key] = Json::array();
  for (const Outcome& outcome : result.outcomes) {
    const bool good = outcome.ending == Ending::success;
    json["input_lens"].push_back(outcome.prompt_tokens);
    json["output_lens"].push_back(good ? outcome.output_tokens : 0);
    json["ttfts"].push_back(outcome.ttft);
    json["itls"].push_back(outcome.itl);
    json["start_times"].push_back(outcome.start);
    json["generated_texts"].push_back(outcome.text);
    json["errors"].push_back(outcome.ending == Ending::open ? "not finished when the run was stopped"
                                                            : outcome.error);
  }
}

void add_metric(Json& json, Metric metric, const Distribution& values,
                const std::vector<double>& percentiles) {
  const std::string suffix = "_" + std::string(to_string(metric)) + "_ms";
  json["mean" + suffix] = values.mean_ms;
  json["median" + suffix] = values.median_ms;
  json["std" + suffix] = values.std_ms;
  for (const double percent : percentiles)
    json[percentile_name(percent) + suffix] = values.at(percent);
}

}  // namespace

std::string report_json(const BenchConfig& config, const BenchResult& result, const ReportConfig& report,
                        const std::string& date) {
  const Summary& summary = result.summary;
  Json json;
  json["date"] = date;
  json["endpoint_type"] = json["backend"] = to_string(config.request.backend);
  json["label"] = nullptr;
  json["model_id"] = json["tokenizer_id"] = result.model;
  json["num_prompts"] = config.dataset.num_prompts;
  json["dataset_name"] = to_string(config.dataset.kind);
  json["seed"] = config.dataset.seed;
  json["request_rate"] = std::isinf(config.request_rate) ? Json("inf") : Json(config.request_rate);
  json["burstiness"] = config.burstiness;
  json["max_concurrency"] = config.max_concurrency > 0 ? Json(config.max_concurrency) : Json();
  json["duration"] = summary.duration_s;
  json["completed"] = summary.completed;
  json["failed"] = summary.failed;
  json["unfinished"] = summary.unfinished;
  json["total_input_tokens"] = summary.total_input;
  json["total_output_tokens"] = summary.total_output;
  json["request_throughput"] = summary.request_throughput;
  json["request_goodput"] = config.goodput.any() ? Json(summary.goodput) : Json();
  json["output_throughput"] = summary.output_throughput;
  json["total_token_throughput"] = summary.total_throughput;
  json["max_output_tokens_per_s"] = summary.peak_output_throughput;
  json["max_concurrent_requests"] = summary.peak_concurrency;
  json["client_cpu_seconds"] = result.client_cpu_s;
  if (const auto& drafts = result.drafts) {  // vLLM's keys
    const auto all = static_cast<double>(drafts->draft_tokens), steps = static_cast<double>(drafts->drafts);
    json["spec_decode_acceptance_rate"] =
        all > 0 ? 100 * static_cast<double>(drafts->accepted_tokens) / all : 0;
    json["spec_decode_acceptance_length"] = drafts->mean_acceptance_length();
    json["spec_decode_num_drafts"] = drafts->drafts;
    json["spec_decode_draft_tokens"] = drafts->draft_tokens;
    json["spec_decode_accepted_tokens"] = drafts->accepted_tokens;
    Json& places = json["spec_decode_per_position_acceptance_rates"] = Json::array();
    for (const int64_t accepted : drafts->accepted_by_position)
      places.push_back(static_cast<double>(accepted) / steps);
  }
  for (const Metric metric : report.metrics)
    add_metric(json, metric, summary.of(metric), report.percentiles);
  if (report.detailed) add_details(json, result);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace fovea::load
