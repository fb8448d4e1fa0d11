// Flags of fovea bench serve, with the names of vllm bench serve.
#include <cmath>

#include "cli/flags.h"

namespace fovea::cli {
namespace {

/// Above 0; "inf" too.
std::string check_positive(const std::string& text) {
  double value = 0;
  if (CLI::detail::lexical_cast(text, value) && value > 0) return "";
  return "must be a number above 0, not " + text;
}

/// 0 or more, and finite.
std::string check_seconds(const std::string& text) {
  double value = 0;
  if (CLI::detail::lexical_cast(text, value) && value >= 0 && std::isfinite(value)) return "";
  return "must be a number of 0 or more, not " + text;
}

constexpr int kMostTokens = 1 << 24, kMostRequests = 10'000'000;

void add_dataset_flags(CLI::App& app, BenchServeFlags& f) {
  start_group(app, "Requests");
  one_of(app.add_option("--dataset-name", f.dataset_name), {"random", "sharegpt", "prefix_repetition"})
      ->capture_default_str();
  takes_file(app.add_option("--dataset-path", f.dataset_path,
                            "ShareGPT's JSON file (default: random words with lengths like its own)"));
  app.add_option("--num-prompts", f.num_prompts, "Requests")
      ->check(CLI::Range(1, kMostRequests))
      ->capture_default_str();
  app.add_option("--seed", f.seed, "Of prompts, lengths and arrivals")
      ->check(check_uint64)
      ->capture_default_str();
  start_group(app, "Lengths of requests");
  const auto length = [&](const char* name, int& value, int least, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(least, kMostTokens))->capture_default_str();
  };
  length("--random-input-len", f.random_input_len, 1, "random: tokens of a prompt");
  length("--random-output-len", f.random_output_len, 1, "random: tokens of an answer");
  length("--random-prefix-len", f.random_prefix_len, 0, "random: tokens before them, the same for all");
  app.add_option("--random-range-ratio", f.random_range_ratio,
                 "random: lengths are uniform between (1 - RATIO) and (1 + RATIO) times the one given")
      ->check(CLI::Range(0.0, 0.999))
      ->capture_default_str();
  app.add_option("--sharegpt-output-len", f.sharegpt_output_len, "sharegpt: tokens of an answer")
      ->check(CLI::Range(1, kMostTokens));
  length("--prefix-repetition-prefix-len", f.repeated_prefix_len, 0, "prefix_repetition: tokens of a prefix");
  length("--prefix-repetition-suffix-len", f.suffix_len, 1, "prefix_repetition: tokens after it");
  length("--prefix-repetition-num-prefixes", f.num_prefixes, 1, "prefix_repetition: different prefixes");
  length("--prefix-repetition-output-len", f.repetition_output_len, 1,
         "prefix_repetition: tokens of an answer");
}

}  // namespace

void add_bench_serve(CLI::App& bench, BenchServeFlags& f) {
  auto& app =
      *bench.add_subcommand("serve", "Latency and throughput of a server with OpenAI's API, under load");
  start_group(app, "Server");
  one_of(app.add_option("--backend", f.backend,
                        "openai (/v1/completions) or openai-chat (/v1/chat/completions)"),
         {"openai", "openai-chat"})
      ->capture_default_str();
  app.add_option("--base-url", f.base_url,
                 "http://HOST[:PORT][/PREFIX] or unix:/PATH, instead of --host and --port");
  app.add_option("--host", f.host)->capture_default_str();
  app.add_option("--port", f.port)->check(CLI::Range(1, 65535))->capture_default_str();
  app.add_option("--endpoint", f.endpoint, "Path (default: the backend's)");
  app.add_option("--model", f.model, "Name in requests (default: the first of /v1/models)");
  app.add_option("--api-key", f.api_key, "Key (default: $OPENAI_API_KEY, which other users cannot read)");
  app.add_option("--header", f.headers, "NAME=VALUE of every request (repeatable)")->allow_extra_args(false);
  app.add_option("--extra-body", f.extra_body, "JSON object whose members every request has");
  app.add_option("--temperature", f.temperature)->check(CLI::Range(0.0, 100.0))->capture_default_str();
  app.add_flag("--ignore-eos", f.ignore_eos,
               "Generate exactly the requested length (an extra field of vLLM and Fovea)");
  add_dataset_flags(app, f);
  start_group(app, "Load");
  app.add_option("--request-rate", f.request_rate, "Requests a second; inf = all at once")
      ->check(check_positive)
      ->capture_default_str();
  app.add_option("--burstiness", f.burstiness,
                 "Shape of the gamma distribution of gaps: 1 = Poisson, less = in bursts, more = evenly")
      ->check(CLI::Range(1e-3, 1e6))
      ->capture_default_str();
  app.add_option("--max-concurrency", f.max_concurrency, "Maximum requests in flight (default: no limit)")
      ->check(CLI::Range(1, kMostRequests));
  app.add_option("--num-warmups", f.num_warmups, "Requests before those that count")
      ->check(CLI::Range(0, kMostRequests))
      ->capture_default_str();
  app.add_option("--ready-check-timeout-sec", f.ready_timeout, "Seconds to wait until the server is ready")
      ->check(check_seconds)
      ->capture_default_str();
  app.add_option("--request-timeout", f.request_timeout,
                 "Seconds without a byte, after which a request has failed")
      ->check(check_positive)
      ->capture_default_str();
  start_group(app, "Results");
  app.add_option("--goodput", f.goodput, "Limits that a good request meets: ttft:MS tpot:MS e2el:MS");
  app.add_option("--percentile-metrics", f.percentile_metrics, "Which to print")->capture_default_str();
  app.add_option("--metric-percentiles", f.metric_percentiles)->capture_default_str();
  app.add_flag("--save-result", f.save_result, "Write the figures to a JSON file");
  app.add_flag("--save-detailed", f.save_detailed, "The same, with each request's times and text");
  takes_folder(app.add_option("--result-dir", f.result_dir, "Folder of that file"));
  app.add_option("--result-filename", f.result_filename,
                 "Its name (default: of the load, the model and the date)");
  takes_file(app.add_option("--plot", f.plot, "SVG file of the latencies and the throughput"));
  app.add_flag("--json", f.json, "The figures as JSON on standard output, instead of the block");
}

}  // namespace fovea::cli
