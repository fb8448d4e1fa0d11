// fovea bench model: prefill and decode rates of a model, and the share of the machine's read bandwidth that
// a decode step reaches: at batch B it must read every weight once and each sequence's KV once.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "cli/batch.h"
#include "cli/profile_file.h"
#include "device/gpu.h"
#include "kernels/cpu/machine.h"
#include "profile/session.h"
#include "profile/step_table.h"
#include "profile/timeline_svg.h"

namespace fovea::cli {
namespace {

/// Prompts of distinct random ids, so that no prefix is shared.
GenerateRequest random_request(int sequence, int tokens, int vocab, int new_tokens) {
  GenerateRequest request;
  uint64_t state = 0x9e3779b97f4a7c15ull * static_cast<uint64_t>(sequence + 1);
  for (int i = 0; i < tokens; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    request.prompt_ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab)));
  }
  request.sampling.temperature = 0;
  request.sampling.max_tokens = new_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

/// Seconds until all of a batch of requests are done.
Result<double> timed_batch(Engine& engine, int round, const BenchModelFlags& flags, int new_tokens) {
  const auto start = Clock::now();
  BatchRunner::Options options;
  options.what = "bench";
  options.rows = flags.batch;
  options.window = static_cast<size_t>(flags.batch);
  BatchRunner runner(engine, options, [](RowResult&) -> Status { return {}; });
  const std::vector<LoraInfo> adapters = engine.loras();
  for (int i = 0; i < flags.batch; ++i) {
    GenerateRequest request =
        random_request(round * flags.batch + i, flags.prompt_tokens, engine.info().vocab_size, new_tokens);
    if (!adapters.empty()) request.lora = adapters[static_cast<size_t>(i) % adapters.size()].name;
    FOVEA_RETURN_IF_ERROR(runner.submit(std::move(request)));
  }
  FOVEA_RETURN_IF_ERROR(runner.drain());
  return seconds_since(start);
}

/// Of batches with different prompts.
struct Batches {
  double best = 0, median = 0;  ///< seconds
};

/// Up to three batches, or seven: other load on the machine only adds time, so the best counts, unless time
/// depends on luck.
Result<Batches> time_batches(Engine& engine, int& round, const BenchModelFlags& flags, int new_tokens) {
  constexpr double kEnoughSeconds = 5;  // a batch this long is not repeated
  const int most = engine.stats().speculative.drafts > 0 ? 7 : 3;
  std::vector<double> seconds;
  double spent = 0;
  while (static_cast<int>(seconds.size()) < most && spent < kEnoughSeconds) {
    FOVEA_TRY(batch, timed_batch(engine, round++, flags, new_tokens));
    spent += seconds.emplace_back(batch);
  }
  std::ranges::sort(seconds);
  return Batches{seconds.front(), (seconds[(seconds.size() - 1) / 2] + seconds[seconds.size() / 2]) / 2};
}

Result<double> best_batch(Engine& engine, int& round, const BenchModelFlags& flags, int new_tokens) {
  FOVEA_TRY(batches, time_batches(engine, round, flags, new_tokens));
  return batches.best;
}

/// Decode steps of all sequences that are recorded without and with graphs.
constexpr int kEagerSteps = 4, kRecordedSteps = 16;

/// Steps until the last sequence of a batch has its first token: those before it are not of all sequences.
int prefill_steps(const BenchModelFlags& flags, const EngineInfo& info) {
  const int64_t tokens = int64_t{flags.batch} * flags.prompt_tokens;
  return static_cast<int>((tokens + info.max_batched_tokens - 1) / info.max_batched_tokens) + 2;
}

/// Refuses runs whose answers would be cut short or whose sequences would not all run at once; the figures
/// would be wrong.
Status check_fits(const BenchModelFlags& flags, int new_tokens, const EngineInfo& info) {
  const int64_t tokens = int64_t{flags.prompt_tokens} + new_tokens;
  const std::string given =
      "--prompt-tokens " + std::to_string(flags.prompt_tokens) +
      (new_tokens == flags.new_tokens ? " and --new-tokens " : " and steps to record ") +
      std::to_string(new_tokens);
  if (tokens > info.max_seq_len)
    return invalid(given + " are " + std::to_string(tokens) + " tokens; a sequence has at most " +
                   std::to_string(info.max_seq_len));
  const int64_t page_size = info.selection.page_size;
  const int64_t needed = flags.batch * ((tokens + page_size - 1) / page_size * page_size);
  if (needed > info.kv_tokens)
    return invalid(given + " with --batch " + std::to_string(flags.batch) + " need " +
                   std::to_string(needed) + " tokens of KV cache; there are " +
                   std::to_string(info.kv_tokens));
  return {};
}

int gpu_of(const EngineInfo& info) {
  return std::stoi(info.device_name.substr(info.device_name.find(':') + 1));
}

/// Bytes a second that the model's device reads from its memory.
Result<double> read_bandwidth(const EngineInfo& info) {
  if (info.gpu_memory_total > 0) return measure_gpu_read_bandwidth(gpu_of(info), int64_t{1} << 30, 5);
  ThreadPool pool(info.threads);
  return measure_machine(pool).dram_gbps() * 1e9;
}

/// Operations of a decode and of a prefill step on a GPU.
struct StepTables {
  profile::DeviceRates rates;
  profile::StepTable decode, prefill;
};

/// Records batches: some decode steps without graphs, which tell the operations of kernels, then steps as
/// they usually run.
Result<StepTables> record_steps(Engine& engine, int& round, const BenchModelFlags& flags, double bandwidth) {
  StepTables out;
  out.rates.read_bytes = bandwidth;
  if (const auto rate = measure_gpu_matmul_rate(gpu_of(engine.info()), 8192, 10))
    out.rates.flops = *rate;
  else
    std::fprintf(stderr, "floors are by bytes alone: %s\n", rate.error().message.c_str());
  profile::Session::Options options;
  options.ranges = !flags.model.profile.empty();
  options.device = true;
  FOVEA_TRY(session, profile::Session::start(options));
  if (!session->without_cupti().empty())
    std::fprintf(stderr, "times by events: %s\n", session->without_cupti().c_str());
  FOVEA_RETURN_IF_ERROR(session->record_device(true));
  session->run_eagerly(true);
  const int before = prefill_steps(flags, engine.info());
  if (auto done = timed_batch(engine, round++, flags, before + kEagerSteps); !done)
    return std::move(done).error();
  session->run_eagerly(false);
  if (auto done = timed_batch(engine, round++, flags, before + kRecordedSteps); !done)
    return std::move(done).error();
  FOVEA_RETURN_IF_ERROR(session->record_device(false));
  const profile::Recording recording = session->recording();
  if (!flags.model.profile.empty())
    FOVEA_RETURN_IF_ERROR(write_profile(flags.model.profile, recording, "bench model"));
  profile::StepChoice choice;
  choice.rows = flags.batch;
  choice.replay =
      session->device_times() == profile::DeviceTimes::cupti &&
      std::ranges::any_of(engine.info().cuda_graph_bs, [&](int rows) { return rows >= flags.batch; });
  FOVEA_TRY(decode, step_table(recording, choice, out.rates));
  choice.decode = false;
  FOVEA_TRY(prefill, step_table(recording, choice, out.rates));
  out.decode = std::move(decode);
  out.prefill = std::move(prefill);
  return out;
}

Status write_file(const std::string& path, const std::string& text) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"), std::fclose);
  if (!file || std::fwrite(text.data(), 1, text.size(), file.get()) != text.size() ||
      std::fflush(file.get()) != 0)
    return io_error(path + " can't be written; is its folder there, and the disk not full?");
  return {};
}

/// `step`: seconds of a decode step; `prefill`: of a prefill that is one step, else 0.
Status report_steps(Engine& engine, int& round, const BenchModelFlags& flags, double bandwidth, double step,
                    double prefill) {
  const EngineInfo& info = engine.info();
  FOVEA_TRY(tables, record_steps(engine, round, flags, bandwidth));
  const std::string title = info.model_dir + ", batch " + std::to_string(flags.batch) + ", " +
                            std::to_string(flags.prompt_tokens) + " prompt tokens, " +
                            std::string(to_string(info.dtype)) + ", " + info.selection.device.name;
  if (!flags.model.json) {
    std::printf("\n%s\n", table_text(tables.decode, step).c_str());
    std::fputs(table_text(tables.prefill, prefill).c_str(), stdout);
    std::printf("floors: %.2f GB/s read, %.0f TFLOP/s in bf16 matrix products of cuBLASLt\n", bandwidth / 1e9,
                tables.rates.flops / 1e12);
  }
  if (!flags.svg.empty()) FOVEA_RETURN_IF_ERROR(write_file(flags.svg, timeline_svg(tables.decode, title)));
  if (flags.steps.empty()) return {};
  JsonRow row;
  row.add("model", info.model_dir).add("device", info.selection.device.name);
  row.add("dtype", to_string(info.dtype)).add("batch", flags.batch);
  row.add("prompt_tokens", flags.prompt_tokens).add("read_bytes_per_s", bandwidth);
  row.add("matmul_flops", tables.rates.flops);
  std::string text = row.str();
  text.insert(text.size() - 1, ",\"decode\":" + table_json(tables.decode, step) +
                                   ",\"prefill\":" + table_json(tables.prefill, prefill));
  return write_file(flags.steps, text + "\n");
}

}  // namespace

Status run_bench_model(const BenchModelFlags& flags) {
  ModelFlags model = flags.model;
  // The defaults admit 64 requests and 512 tokens at least.
  if (model.max_running_requests || flags.batch > 64)
    model.max_running_requests = std::max(model.max_running_requests.value_or(0), flags.batch);
  if (model.max_batched_tokens || flags.batch > 512)
    model.max_batched_tokens = std::max(model.max_batched_tokens.value_or(8192), flags.batch);
  ModelFlags recorded = model;
  FOVEA_TRY(where, read_device(model.device));
  if (where.info.kind == DeviceKind::cuda) recorded.profile.clear();  // only the recorded steps are written
  FOVEA_TRY(profile, ProfileFile::start(recorded, "bench model"));
  FOVEA_TRY(engine, make_engine(model));
  const EngineInfo& info = engine->info();
  std::fputs(describe_start(info).c_str(), stderr);
  const bool gpu = info.gpu_memory_total > 0;
  if (!gpu && !(flags.steps.empty() && flags.svg.empty()))
    return invalid(
        "--steps and --svg are of a GPU; this model runs on the CPU (--profile shows its operations)");
  const bool steps =
      gpu && !(flags.model.json && flags.steps.empty() && flags.svg.empty() && flags.model.profile.empty());
  FOVEA_RETURN_IF_ERROR(check_fits(flags, flags.new_tokens, info));
  if (steps) FOVEA_RETURN_IF_ERROR(check_fits(flags, prefill_steps(flags, info) + kRecordedSteps, info));
  int round = 0;
  if (auto warm_up = timed_batch(*engine, round++, flags, 2); !warm_up) return std::move(warm_up).error();
  FOVEA_TRY(prefill, best_batch(*engine, round, flags, 1));
  // A decode step is one of all sequences: what comes before, decodes beside prefills, is subtracted.
  const int before = std::min(prefill_steps(flags, info), flags.new_tokens - 1);
  double beginning = prefill;
  if (before > 1) {
    FOVEA_TRY(seconds, best_batch(*engine, round, flags, before));
    beginning = seconds;
  }
  FOVEA_TRY(batches, time_batches(*engine, round, flags, flags.new_tokens));
  const double whole = batches.best;
  if (whole <= beginning)
    return Error{ErrorCode::internal,
                 "decoding took no measurable time beside the prefill: raise --new-tokens"};
  FOVEA_TRY(bandwidth, read_bandwidth(info));

  const SpeculativeCounts drafts = engine->stats().speculative;
  const double step =
      (whole - beginning) / (flags.new_tokens - before);  // of a token, where drafts are verified
  const double context = flags.prompt_tokens + (before + flags.new_tokens) / 2.0;
  const double step_bytes = static_cast<double>(info.weight_bytes_per_token) +
                            flags.batch * context * static_cast<double>(info.kv_bytes_per_token);
  const double share = step_bytes / step / bandwidth;
  const bool one_step = int64_t{flags.batch} * flags.prompt_tokens <= info.max_batched_tokens;
  const auto report = [&]() -> Status {
    if (!steps) return profile.finish({});
    return report_steps(*engine, round, flags, bandwidth, step, one_step ? prefill : 0);
  };
  if (flags.model.json) {
    JsonRow row;
    row.add("model", info.model_dir).add("device", info.device_name);
    row.add("dtype", to_string(info.dtype)).add("threads", info.threads);
    row.add("batch", flags.batch)
        .add("prompt_tokens", flags.prompt_tokens)
        .add("new_tokens", flags.new_tokens);
    row.add("prefill_tokens_per_s", flags.batch * flags.prompt_tokens / prefill);
    row.add("decode_tokens_per_s", flags.batch / step).add("decode_step_ms", step * 1e3);
    row.add("bytes_per_step", step_bytes).add("bytes_per_token", step_bytes / flags.batch);
    if (drafts.drafts > 0) {
      row.add("mean_acceptance_length", drafts.mean_acceptance_length());
      row.add("median_decode_tokens_per_s",
              flags.batch * (flags.new_tokens - before) / (batches.median - beginning));
    }
    row.add("read_bandwidth_gb_s", bandwidth / 1e9).add("share_of_bandwidth", share);
    std::puts(row.str().c_str());
    return report();
  }
  const std::string device = info.gpu_memory_total > 0
                                 ? info.device_name + " (" + info.selection.device.name + ")"
                                 : std::to_string(info.threads) + " threads";
  std::printf("%s, %s, %s, batch %d, %d + %d tokens\n", info.model_dir.c_str(),
              std::string(to_string(info.dtype)).c_str(), device.c_str(), flags.batch, flags.prompt_tokens,
              flags.new_tokens);
  std::printf("prefill   %10.1f tokens/s\n", flags.batch * flags.prompt_tokens / prefill);
  std::printf("decode    %10.1f tokens/s   %.3f ms a step\n", flags.batch / step, step * 1e3);
  if (drafts.drafts > 0) {
    std::printf(
        "drafts    %10.2f tokens a step of a sequence that verified some (the time above is of a token)\n",
        drafts.mean_acceptance_length());
    std::printf("median    %10.1f tokens/s of batches with different prompts; the rate above is the best\n",
                flags.batch * (flags.new_tokens - before) / (batches.median - beginning));
  }
  std::printf("bytes     %10s a token   (%s of weights a step, %s of KV a token of context)\n",
              human(step_bytes / flags.batch).c_str(),
              human(static_cast<double>(info.weight_bytes_per_token)).c_str(),
              human(static_cast<double>(info.kv_bytes_per_token)).c_str());
  std::printf(
      "bandwidth %10.2f GB/s read by decode, %.0f %% of the %.2f GB/s that the device reads from memory\n",
      step_bytes / step / 1e9, share * 100, bandwidth / 1e9);
  if (info.gpu_memory_total == 0 && info.weight_bytes < (64 << 20))
    std::puts("          (weights of this size stay in the caches: the share can pass 100 %)");
  return report();
}

}  // namespace fovea::cli
