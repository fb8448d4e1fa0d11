#include "engine/memory_bill.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fovea {
namespace {

/// --gpu-memory-utilization that leaves room for `bytes`, rounded up; 0 = the GPU is too small.
double utilization_for(const GpuBill& bill, int64_t bytes) {
  const double share = static_cast<double>(bill.taken + bytes) / static_cast<double>(bill.total);
  const double rounded = std::ceil(share * 100) / 100;
  return rounded <= 0.99 ? rounded : 0;
}

std::string or_raise(const GpuBill& bill, int64_t bytes) {
  const double share = utilization_for(bill, bytes);
  if (share == 0) return "";
  char text[80];
  std::snprintf(text, sizeof text, ", or raise --gpu-memory-utilization from %.2f to %.2f", bill.utilization,
                share);
  return text;
}

std::string room(const GpuBill& bill) {
  char share[16];
  std::snprintf(share, sizeof share, "%.2f", bill.utilization);
  return "--gpu-memory-utilization " + std::string(share) + " leaves " +
         memory_text(std::max<int64_t>(0, bill.budget())) + " of the GPU's " + memory_text(bill.total) +
         " (" + memory_text(bill.taken) + " are taken by other programs and the driver)";
}

Error too_much(const GpuBill& bill, std::string what, const std::string& change, int64_t bytes) {
  return {ErrorCode::out_of_memory,
          std::move(what) + ", and " + room(bill) + "; " + change + or_raise(bill, bytes)};
}

}  // namespace

std::string memory_text(int64_t bytes) {
  char text[32];
  if (bytes >= int64_t{1} << 30)
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  else if (bytes >= 10 << 20)
    std::snprintf(text, sizeof text, "%lld MiB", static_cast<long long>(bytes >> 20));
  else
    std::snprintf(text, sizeof text, "%lld KiB", static_cast<long long>(bytes >> 10));
  return text;
}

Result<int64_t> gpu_pages(const GpuBill& bill, const GpuKv& kv) {
  if (bill.weights > bill.budget())
    return too_much(bill, "the weights need " + memory_text(bill.weights),
                    "use a smaller model or a GPU with more memory", bill.weights);
  const int64_t longest = kv.sequence_pages * kv.bytes_per_page;
  if (bill.lora > 0 && bill.left() < longest && bill.left() + bill.lora >= longest)
    return too_much(bill,
                    "the slots of LoRA adapters need " + memory_text(bill.lora) + " beside " +
                        memory_text(bill.without_kv() - bill.lora) + " for everything else and " +
                        memory_text(longest) + " for the KV cache of one sequence of the longest length",
                    "lower --max-loras or --max-lora-rank", bill.without_kv() + longest);
  if (bill.left() < kv.bytes_per_page) {
    // Activations grow with the tokens of a step.
    const int64_t short_of = longest - bill.left();
    std::string change = "use a smaller model or a GPU with more memory";
    if (short_of < bill.activations) {
      const auto tokens = static_cast<int64_t>(static_cast<double>(kv.max_batched_tokens) *
                                               static_cast<double>(bill.activations - short_of) /
                                               static_cast<double>(bill.activations));
      if (tokens >= kv.max_running) change = "lower --max-num-batched-tokens to " + std::to_string(tokens);
    }
    return too_much(bill,
                    "weights, activations and buffers of a step of " + std::to_string(kv.max_batched_tokens) +
                        " tokens and " + std::to_string(kv.max_running) + " requests need " +
                        memory_text(bill.without_kv()) + " without the KV cache",
                    change, bill.without_kv() + longest);
  }
  const int64_t fit = bill.left() / kv.bytes_per_page;
  if (kv.num_pages && *kv.num_pages > fit)
    return too_much(bill,
                    "a KV cache of " + std::to_string(*kv.num_pages) + " pages needs " +
                        memory_text(*kv.num_pages * kv.bytes_per_page),
                    "lower --num-pages to " + std::to_string(fit),
                    bill.without_kv() + *kv.num_pages * kv.bytes_per_page);
  if (kv.num_pages && *kv.num_pages < kv.sequence_pages)
    return Error{ErrorCode::out_of_memory, "a KV cache of " + std::to_string(*kv.num_pages) +
                                               " pages is less than one sequence of the longest length (" +
                                               std::to_string(kv.max_seq_len) +
                                               " tokens) needs; raise --num-pages to " +
                                               std::to_string(kv.sequence_pages)};
  if (fit < kv.sequence_pages)
    return too_much(bill,
                    "the KV cache of one sequence of the longest length (" + std::to_string(kv.max_seq_len) +
                        " tokens) needs " + memory_text(longest) + " beside " +
                        memory_text(bill.without_kv()) + " for everything else",
                    "lower --max-model-len to " + std::to_string(fit * kv.page_size),
                    bill.without_kv() + longest);
  if (kv.num_pages) return *kv.num_pages;
  // The running sequences cannot use more; further pages would only cache prefixes of finished requests.
  return std::min({fit, kv.max_running * kv.sequence_pages, int64_t{INT32_MAX}});
}

std::vector<MemoryPart> memory_parts(const GpuBill& bill, int64_t kv_bytes) {
  std::vector<MemoryPart> parts = {{"weights", bill.weights},         {"KV cache", kv_bytes},
                                   {"activations", bill.activations}, {"attention workspace", bill.workspace},
                                   {"logits", bill.logits},           {"arrays of a step", bill.step_arrays},
                                   {"sampler", bill.sampler}};
  if (bill.drafter > 0) parts.push_back({"drafter without its KV cache", bill.drafter});
  parts.push_back({"CUDA graphs and kernels (estimate)", bill.graphs});
  parts.push_back({"CUDA context and other programs", bill.taken});
  if (bill.lora > 0) parts.push_back({"LoRA adapters", bill.lora});
  return parts;
}

}  // namespace fovea
