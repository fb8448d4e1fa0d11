// fovea bench serve: passes the flags to load/bench.h and writes the figures to the terminal and to files.
#include "cli/bench_serve.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "cli/output_file.h"
#include "cli/terminal.h"
#include "load/plot.h"
#include "load/report.h"

namespace fovea::cli {
namespace {

constexpr size_t kShownErrors = 5;

Result<load::Target> read_target(const BenchServeFlags& flags) {
  if (!flags.base_url.empty()) return load::parse_target(flags.base_url);
  const std::string host = flags.host.find(':') == std::string::npos ? flags.host : "[" + flags.host + "]";
  return load::parse_target("http://" + host + ":" + std::to_string(flags.port));
}

load::DatasetConfig dataset_config(const BenchServeFlags& flags) {
  load::DatasetConfig dataset;
  dataset.kind = flags.dataset_name == "random"     ? load::Dataset::random
                 : flags.dataset_name == "sharegpt" ? load::Dataset::sharegpt
                                                    : load::Dataset::prefix_repetition;
  dataset.num_prompts = flags.num_prompts;
  dataset.seed = flags.seed;
  dataset.input_len = flags.random_input_len;
  dataset.output_len = flags.random_output_len;
  dataset.prefix_len = flags.random_prefix_len;
  dataset.range_ratio = flags.random_range_ratio;
  dataset.path = flags.dataset_path;
  dataset.sharegpt_output_len = flags.sharegpt_output_len;
  dataset.repeated_prefix_len = flags.repeated_prefix_len;
  dataset.suffix_len = flags.suffix_len;
  dataset.num_prefixes = flags.num_prefixes;
  dataset.repetition_output_len = flags.repetition_output_len;
  return dataset;
}

Result<load::BenchConfig> bench_config(const BenchServeFlags& flags) {
  load::BenchConfig config;
  FOVEA_TRY(target, read_target(flags));
  config.target = std::move(target);
  if (!flags.endpoint.empty() &&
      (!flags.endpoint.starts_with('/') || flags.endpoint.find_first_of(" \t\r\n") != std::string::npos))
    return invalid("--endpoint " + flags.endpoint + ": a path begins with / and has no spaces");
  config.endpoint = flags.endpoint;
  config.request.backend = flags.backend == "openai" ? load::Backend::openai : load::Backend::openai_chat;
  config.request.model = flags.model;
  config.request.temperature = flags.temperature;
  config.request.ignore_eos = flags.ignore_eos;
  FOVEA_TRY(extra_body, load::parse_extra_body(flags.extra_body));
  config.request.extra_body = std::move(extra_body);
  config.api_key = flags.api_key;
  const char* key = std::getenv("OPENAI_API_KEY");
  if (config.api_key.empty() && key != nullptr) config.api_key = key;
  config.headers = flags.headers;
  if (!flags.dataset_path.empty() && flags.dataset_name != "sharegpt")
    return invalid("--dataset-path " + flags.dataset_path + ": only --dataset-name sharegpt reads a file");
  config.dataset = dataset_config(flags);
  config.request_rate = flags.request_rate;
  config.burstiness = flags.burstiness;
  config.max_concurrency = flags.max_concurrency;
  config.num_warmups = flags.num_warmups;
  config.ready_timeout_s = flags.ready_timeout;
  config.request_timeout_s = flags.request_timeout;
  config.keep_texts = flags.save_detailed;
  FOVEA_TRY(goodput, load::parse_goodput(flags.goodput));
  config.goodput = goodput;
  return config;
}

/// "20261122-054500", in local time.
std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &parts);
  return text;
}

Status write_file(const std::string& path, const std::string& text) {
  FOVEA_TRY(file, OutputFile::open({path}));
  FOVEA_RETURN_IF_ERROR(file.line(text));
  return file.commit();
}

void say_load(const load::BenchConfig& config, std::FILE* out) {
  const char* kind = config.burstiness == 1 ? "Poisson process" : "Gamma distribution";
  std::fprintf(out, "Traffic request rate: %g\nBurstiness factor: %g (%s)\n", config.request_rate,
               config.burstiness, kind);
  std::fprintf(out, "Maximum request concurrency: %s\n",
               config.max_concurrency > 0 ? std::to_string(config.max_concurrency).c_str() : "None");
}

/// Reports a missing folder before the run, not after it.
Status check_folder(const std::string& file) {
  const std::filesystem::path folder = std::filesystem::path(file).parent_path();
  std::error_code ignored;
  if (folder.empty() || std::filesystem::is_directory(folder, ignored)) return {};
  return io_error("cannot write " + file + ": the folder " + folder.string() + " does not exist");
}

std::string result_path(const BenchServeFlags& flags, const std::string& name) {
  return (std::filesystem::path(flags.result_dir) / name).string();
}

}  // namespace

Status run_bench_serve(const BenchServeFlags& flags) {
  FOVEA_TRY(config, bench_config(flags));
  load::ReportConfig report;
  FOVEA_TRY(metrics, load::parse_metrics(flags.percentile_metrics));
  FOVEA_TRY(percentiles, load::parse_percentiles(flags.metric_percentiles));
  report.metrics = std::move(metrics);
  report.percentiles = std::move(percentiles);
  report.detailed = flags.save_detailed;
  const bool saves = flags.save_result || flags.save_detailed;
  if (!saves && (!flags.result_filename.empty() || !flags.result_dir.empty()))
    return invalid(
        "--result-filename and --result-dir have a meaning only with --save-result or --save-detailed");
  FOVEA_RETURN_IF_ERROR(check_folder(flags.plot));
  if (saves)
    FOVEA_RETURN_IF_ERROR(
        check_folder(result_path(flags, flags.result_filename.empty() ? "x" : flags.result_filename)));

  std::FILE* out = flags.json ? stderr : stdout;
  const std::string date = date_now();
  InterruptFlag interrupt;
  bool stopped = false;
  Progress progress("requests", flags.num_prompts);
  load::BenchWatch watch;
  watch.stop = [&] { return stopped = stopped || interrupt.take(); };
  watch.say = [&](const std::string& line) {
    std::fprintf(out, "%s\n", line.c_str());
    if (line.starts_with("Starting main")) say_load(config, out);
    std::fflush(out);
  };
  watch.progress = [&](size_t done) { progress.update(static_cast<int64_t>(done)); };
  FOVEA_TRY(result, load::run_bench(config, watch));
  progress.clear();

  if (const std::string errors = load::report_errors(result, kShownErrors); !errors.empty())
    std::fprintf(stderr, "Errors of failed requests:\n%s", errors.c_str());
  if (flags.json)
    std::puts(load::report_json(config, result, report, date).c_str());
  else
    std::fputs(load::report_text(config, result, report).c_str(), stdout);
  if (saves) {
    const std::string name =
        flags.result_filename.empty() ? load::report_file_name(config, result, date) : flags.result_filename;
    const std::string path = result_path(flags, name);
    FOVEA_RETURN_IF_ERROR(write_file(path, load::report_json(config, result, report, date)));
    std::fprintf(out, "Saved %s\n", path.c_str());
  }
  if (!flags.plot.empty()) {
    FOVEA_RETURN_IF_ERROR(write_file(flags.plot, load::plot_svg(config, result)));
    std::fprintf(out, "Saved %s\n", flags.plot.c_str());
  }
  if (result.stopped)
    return Error{ErrorCode::cancelled, "interrupted; the figures cover the requests until then"};
  if (result.summary.completed == 0)
    return io_error("none of the " + std::to_string(result.outcomes.size()) + " requests succeeded");
  return {};
}

}  // namespace fovea::cli
