#pragma once
// fovea bench serve: generates load on a server with the OpenAI API.
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::cli {

struct BenchServeFlags {
  std::string backend = "openai", base_url, host = "127.0.0.1", endpoint, model, api_key, extra_body;
  int port = 8000;
  std::vector<std::string> headers;
  double temperature = 0;
  bool ignore_eos = false;
  std::string dataset_name = "random", dataset_path;
  int num_prompts = 1000;
  uint64_t seed = 0;
  int random_input_len = 1024, random_output_len = 128, random_prefix_len = 0;
  double random_range_ratio = 0;
  std::optional<int> sharegpt_output_len;
  int repeated_prefix_len = 256, suffix_len = 256, num_prefixes = 10, repetition_output_len = 128;
  double request_rate = std::numeric_limits<double>::infinity(), burstiness = 1;
  int max_concurrency = 0, num_warmups = 0;
  double ready_timeout = 0, request_timeout = 600;
  std::vector<std::string> goodput;
  std::string percentile_metrics = "ttft,tpot,itl,e2el", metric_percentiles = "50,90,99";
  bool save_result = false, save_detailed = false, json = false;
  std::string result_dir, result_filename, plot;
};

Status run_bench_serve(const BenchServeFlags& flags);

}  // namespace fovea::cli
