// fovea bench model: prefill and decode rates of a model, and the share of the machine's read bandwidth that
// a decode step reaches: at batch B it must read every weight once and each sequence's KV once.
#include <cstdio>

#include "cli/batch.h"
#include "device/gpu.h"
#include "kernels/cpu/machine.h"

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
  for (int i = 0; i < flags.batch; ++i)
    FOVEA_RETURN_IF_ERROR(runner.submit(
        random_request(round * flags.batch + i, flags.prompt_tokens, engine.info().vocab_size, new_tokens)));
  FOVEA_RETURN_IF_ERROR(runner.drain());
  return seconds_since(start);
}

/// The best of up to three batches with different prompts: other load on the machine only adds time.
Result<double> best_batch(Engine& engine, int& round, const BenchModelFlags& flags, int new_tokens) {
  constexpr double kEnoughSeconds = 5;  // a batch this long is not repeated
  FOVEA_TRY(best, timed_batch(engine, round++, flags, new_tokens));
  double spent = best;
  for (int i = 1; i < 3 && spent < kEnoughSeconds; ++i) {
    FOVEA_TRY(seconds, timed_batch(engine, round++, flags, new_tokens));
    spent += seconds;
    best = std::min(best, seconds);
  }
  return best;
}

/// Refuses runs whose answers would be cut short or whose sequences would not all run at once; the figures
/// would be wrong.
Status check_fits(const BenchModelFlags& flags, const EngineInfo& info) {
  const int64_t tokens = int64_t{flags.prompt_tokens} + flags.new_tokens;
  const std::string given = "--prompt-tokens " + std::to_string(flags.prompt_tokens) + " and --new-tokens " +
                            std::to_string(flags.new_tokens);
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

/// Bytes a second that the model's device reads from its memory.
Result<double> read_bandwidth(const EngineInfo& info) {
  if (info.gpu_memory_total > 0)
    return measure_gpu_read_bandwidth(std::stoi(info.device_name.substr(info.device_name.find(':') + 1)),
                                      int64_t{1} << 30, 5);
  ThreadPool pool(info.threads);
  return measure_machine(pool).dram_gbps() * 1e9;
}

}  // namespace

Status run_bench_model(const BenchModelFlags& flags) {
  ModelFlags model = flags.model;
  // The defaults admit 64 requests and 512 tokens at least.
  if (model.max_running_requests || flags.batch > 64)
    model.max_running_requests = std::max(model.max_running_requests.value_or(0), flags.batch);
  if (model.max_batched_tokens || flags.batch > 512)
    model.max_batched_tokens = std::max(model.max_batched_tokens.value_or(8192), flags.batch);
  FOVEA_TRY(engine, make_engine(model));
  const EngineInfo& info = engine->info();
  std::fputs(describe_start(info).c_str(), stderr);
  FOVEA_RETURN_IF_ERROR(check_fits(flags, info));
  int round = 0;
  if (auto warm_up = timed_batch(*engine, round++, flags, 2); !warm_up) return std::move(warm_up).error();
  FOVEA_TRY(prefill, best_batch(*engine, round, flags, 1));
  FOVEA_TRY(whole, best_batch(*engine, round, flags, flags.new_tokens));
  if (whole <= prefill)
    return Error{ErrorCode::internal,
                 "decoding took no measurable time beside the prefill: raise --new-tokens"};
  FOVEA_TRY(bandwidth, read_bandwidth(info));

  const double step = (whole - prefill) / (flags.new_tokens - 1);
  const double context = flags.prompt_tokens + flags.new_tokens / 2.0;
  const double step_bytes = static_cast<double>(info.weight_bytes_per_token) +
                            flags.batch * context * static_cast<double>(info.kv_bytes_per_token);
  const double share = step_bytes / step / bandwidth;
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
    row.add("read_bandwidth_gb_s", bandwidth / 1e9).add("share_of_bandwidth", share);
    std::puts(row.str().c_str());
    return {};
  }
  const std::string device = info.gpu_memory_total > 0
                                 ? info.device_name + " (" + info.selection.device.name + ")"
                                 : std::to_string(info.threads) + " threads";
  std::printf("%s, %s, %s, batch %d, %d + %d tokens\n", info.model_dir.c_str(),
              std::string(to_string(info.dtype)).c_str(), device.c_str(), flags.batch, flags.prompt_tokens,
              flags.new_tokens);
  std::printf("prefill   %10.1f tokens/s\n", flags.batch * flags.prompt_tokens / prefill);
  std::printf("decode    %10.1f tokens/s   %.3f ms a step\n", flags.batch / step, step * 1e3);
  std::printf("bytes     %10s a token   (%s of weights a step, %s of KV a token of context)\n",
              human(step_bytes / flags.batch).c_str(),
              human(static_cast<double>(info.weight_bytes_per_token)).c_str(),
              human(static_cast<double>(info.kv_bytes_per_token)).c_str());
  std::printf(
      "bandwidth %10.2f GB/s read by decode, %.0f %% of the %.2f GB/s that the device reads from memory\n",
      step_bytes / step / 1e9, share * 100, bandwidth / 1e9);
  if (info.gpu_memory_total == 0 && info.weight_bytes < (64 << 20))
    std::puts("          (weights of this size stay in the caches: the share can pass 100 %)");
  return {};
}

}  // namespace fovea::cli
