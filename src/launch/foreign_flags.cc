#include "launch/foreign_flags.h"

#include <algorithm>
#include <string>

namespace fovea {
namespace {

using enum FlagValue;
using enum FlagVerdict;
using Peers = EnumSet<Peer>;

constexpr Peers kSglang = {Peer::sglang};
constexpr Peers kVllm = {Peer::vllm};
constexpr Peers kMini = {Peer::mini_sglang};
constexpr Peers kBoth = {Peer::sglang, Peer::vllm};
constexpr Peers kSglangs = {Peer::sglang, Peer::mini_sglang};
constexpr Peers kAll = {Peer::sglang, Peer::vllm, Peer::mini_sglang};

constexpr std::string_view kNoGraphs = "a step is not captured into a graph here: it runs as it is";
constexpr std::string_view kOneProcess =
    "the program is one process that scores, samples and decodes text itself";
constexpr std::string_view kServes = "serve takes it; of no use to a command that listens nowhere";
constexpr std::string_view kOneDevice = "one device runs the whole model; leave it out or give 1";
constexpr std::string_view kNoSpeculation =
    "speculative decoding is not built; leave it out: the answers are the same, one token a step";
constexpr std::string_view kNoVision = "no vision encoder runs here that it could be set for";
constexpr std::string_view kNoStateLayers = "linear-attention and state-space layers are not built";
constexpr std::string_view kNoSparse = "kernels of sparse MLA are not built; leave it out";
constexpr std::string_view kGenerates =
    "generate, chat and serve take it; of no use to a command that does none";

std::vector<ForeignFlag> attention_flags() {
  return {
      {kAll, {"--attention-backend"}, one, same, "--attention-backend", "one name, a pair, or auto"},
      {kMini, {"--attn"}, one, same, "--attn", "one name, a pair, or auto"},
      {kSglang, {"--prefill-attention-backend"}, one, same, "--prefill-attention-backend", "of that phase"},
      {kSglang, {"--decode-attention-backend"}, one, same, "--decode-attention-backend", "of that phase"},
      {kVllm,
       {"--attention-config", "-ac", "--attention-config.*", "-ac.*"},
       one,
       same,
       "--attention-config",
       "JSON or dot paths, all keys"},
      {kSglang,
       {"--enable-deterministic-inference"},
       none,
       alias,
       "--batch-invariant",
       "a backend whose results depend on the batch is refused; the radix cache stays on"},
      {kSglang,
       {"--flashinfer-mla-disable-ragged"},
       none,
       noted,
       "",
       "a knob of FlashInfer's MLA prefill, which this build lacks"},
      {kSglang,
       {"--disable-chunked-prefix-cache"},
       none,
       noted,
       "",
       "chunks of a cached prefix are merged by LSE with the same result"},
      {kSglang,
       {"--triton-attention-num-kv-splits", "--triton-attention-split-tile-size"},
       one,
       noted,
       "",
       "splits lie at fixed positions, so that a result does not depend on the batch"},
      {kSglang, {"--triton-attention-reduce-in-fp32"}, none, noted, "", "attention is always summed in fp32"},
      {kSglang,
       {"--dsa-prefill-backend", "--dsa-decode-backend", "--nsa-prefill-backend", "--nsa-decode-backend",
        "--dsa-topk-backend", "--nsa-topk-backend"},
       one,
       refused,
       "",
       kNoSparse,
       {"auto"}},
      {kSglang,
       {"--linear-attn-backend", "--linear-attn-prefill-backend", "--linear-attn-decode-backend",
        "--max-mamba-cache-size"},
       one,
       refused,
       "",
       kNoStateLayers,
       {"auto"}},
      {kBoth, {"--mamba-*"}, one, refused, "", kNoStateLayers, {"auto"}},
      {kSglang, {"--mm-attention-backend"}, one, noted, "", kNoVision},
      {kVllm, {"--mm-encoder-attn-backend", "--mm-encoder-attn-dtype"}, one, noted, "", kNoVision},
      {kVllm,
       {"--disable-cascade-attn", "--no-disable-cascade-attn"},
       none,
       noted,
       "",
       "no backend here computes a batch's common prefix apart"},
      {kVllm,
       {"--override-attention-dtype"},
       one,
       refused,
       "",
       "attention runs in the dtype of --dtype; give that one",
       {"auto"}},
      {kVllm,
       {"--disable-sliding-window"},
       none,
       refused,
       "",
       "windows are the model's and are never dropped; leave it out"},
  };
}

std::vector<ForeignFlag> cache_flags() {
  return {
      {kSglangs, {"--page-size"}, one, same, "--page-size", "a constraint: never changed silently"},
      {kVllm, {"--block-size"}, one, same, "--block-size", "a constraint: never changed silently"},
      {kBoth, {"--kv-cache-dtype"}, one, same, "--kv-cache-dtype", "vLLM's names, and SGLang's bf16"},
      {kMini, {"--num-pages"}, one, same, "--num-pages", "pages of the KV cache"},
      {kVllm, {"--num-gpu-blocks-override"}, one, same, "--num-gpu-blocks-override", "pages of the KV cache"},
      {kSglang, {"--mem-fraction-static"}, one, same, "--mem-fraction-static", "share of free memory for KV"},
      {kMini, {"--memory-ratio"}, one, alias, "--memory-share", "share of free memory for KV"},
      {kVllm,
       {"--gpu-memory-utilization"},
       one,
       noted,
       "",
       "it counts the weights too; --memory-share is the share of what the weights leave"},
      {kSglang,
       {"--max-total-tokens"},
       one,
       noted,
       "",
       "the cache's size is --num-pages times the page size, or by --memory-share"},
      {kSglang, {"--disable-radix-cache"}, none, same, "--disable-radix-cache", "reuses no prefixes"},
      {kVllm, {"--no-enable-prefix-caching"}, none, same, "--no-enable-prefix-caching", "reuses no prefixes"},
      {kVllm, {"--enable-prefix-caching"}, none, noted, "", "prefixes are reused unless that is turned off"},
      {kMini,
       {"--cache-type"},
       one,
       alias,
       "",
       "radix is the default; naive reuses no prefixes",
       {},
       {{"radix", ""}, {"naive", "--disable-radix-cache"}}},
      {kVllm,
       {"--disable-hybrid-kv-cache-manager", "--no-disable-hybrid-kv-cache-manager"},
       none,
       noted,
       "",
       "all layers share one pool; pages that no window sees any more are freed"},
      {kVllm,
       {"--calculate-kv-scales"},
       none,
       refused,
       "",
       "scales come from the checkpoint, or are 1.0 with a warning; leave it out"},
      {kVllm,
       {"--kv-transfer-config", "--kv-connector"},
       one,
       refused,
       "",
       "KV pages are not moved between processes yet; leave it out",
       {},
       {},
       Feature::kv_connector},
      {kSglang,
       {"--disaggregation-mode"},
       one,
       refused,
       "",
       "one process runs both phases; leave it out",
       {"null", "none"},
       {},
       Feature::kv_connector},
      {kSglang,
       {"--enable-hierarchical-cache"},
       none,
       refused,
       "",
       "KV pages stay on the device; leave it out"},
      {kVllm,
       {"--swap-space", "--cpu-offload-gb"},
       one,
       refused,
       "",
       "nothing is swapped; leave it out",
       {"0"}},
  };
}

std::vector<ForeignFlag> scheduling_flags() {
  return {
      {kSglangs, {"--max-running-requests"}, one, same, "--max-running-requests", "sequences together"},
      {kVllm, {"--max-num-seqs"}, one, same, "--max-num-seqs", "sequences together"},
      {kVllm, {"--max-num-batched-tokens"}, one, same, "--max-num-batched-tokens", "tokens of one step"},
      {kSglang, {"--chunked-prefill-size"}, one, same, "--chunked-prefill-size", "tokens of one step"},
      {kMini,
       {"--max-prefill-length", "--max-extend-length"},
       one,
       alias,
       "--max-num-batched-tokens",
       "tokens of one step, decoding sequences included"},
      {kSglang,
       {"--max-prefill-tokens"},
       one,
       alias,
       "--max-num-batched-tokens",
       "tokens of one step, decoding sequences included"},
      {kMini, {"--max-seq-len-override"}, one, same, "--max-seq-len-override", "longest sequence in tokens"},
      {kVllm, {"--max-model-len"}, one, same, "--max-model-len", "longest sequence in tokens"},
      {kSglang, {"--context-length"}, one, same, "--context-length", "longest sequence in tokens"},
      {kVllm, {"--scheduling-policy"}, one, same, "--scheduling-policy", "fcfs or priority"},
      {kSglang,
       {"--schedule-policy"},
       one,
       alias,
       "",
       "order of waiting requests; prefixes are matched in any order",
       {},
       {{"fcfs", "--scheduling-policy=fcfs"}, {"lpm", ""}}},
      {kVllm, {"--enable-chunked-prefill"}, none, noted, "", "prefills are always chunked"},
      {kVllm,
       {"--no-enable-chunked-prefill"},
       none,
       noted,
       "",
       "prefills are always chunked, which changes no bit; raise --max-num-batched-tokens instead"},
      {kSglang,
       {"--enable-mixed-chunk"},
       none,
       noted,
       "",
       "prefill chunks and decoding sequences always share steps"},
      {kSglang, {"--disable-overlap-schedule"}, none, noted, "", "one thread schedules between steps"},
      {kVllm,
       {"--async-scheduling", "--no-async-scheduling"},
       none,
       noted,
       "",
       "one thread schedules between steps"},
  };
}

std::vector<ForeignFlag> parallel_flags() {
  return {
      {kAll, {"--tp", "--tensor-parallel-size", "--tp-size", "-tp"}, one, refused, "", kOneDevice, {"1"}},
      {kBoth,
       {"--dp", "--dp-size", "--data-parallel-size", "-dp"},
       one,
       refused,
       "",
       "one copy of the model runs; leave it out or give 1",
       {"1"}},
      {kSglang, {"--enable-dp-attention"}, none, refused, "", "one device runs all attention; leave it out"},
      {kBoth, {"--pp", "--pp-size", "--pipeline-parallel-size", "-pp"}, one, refused, "", kOneDevice, {"1"}},
      {kSglang, {"--ep", "--ep-size", "--expert-parallel-size"}, one, refused, "", kOneDevice, {"1"}},
      {kVllm,
       {"--enable-expert-parallel", "-ep"},
       none,
       refused,
       "",
       "one device has all experts; leave it out"},
      {kVllm,
       {"--decode-context-parallel-size", "-dcp"},
       one,
       refused,
       "",
       kOneDevice,
       {"1"},
       {},
       Feature::dcp},
      {kVllm,
       {"--prefill-context-parallel-size", "-pcp"},
       one,
       refused,
       "",
       kOneDevice,
       {"1"},
       {},
       Feature::pcp},
      {kSglang, {"--nnodes", "--nccl-port"}, one, refused, "", "one machine runs the model", {"1"}},
      {kSglang, {"--node-rank", "--dist-init-addr"}, one, noted, "", "one machine runs the model"},
      {kVllm,
       {"--distributed-executor-backend"},
       one,
       noted,
       "",
       "one process runs the model: there is nothing to distribute"},
      {kMini, {"--disable-pynccl"}, none, noted, "", "one device: nothing is communicated"},
      {kSglang, {"--disable-custom-all-reduce"}, none, noted, "", "one device: nothing is communicated"},
      {kVllm, {"--disable-custom-all-reduce"}, none, noted, "", "one device: nothing is communicated"},
      {kSglang,
       {"--speculative-algorithm", "--speculative-algo"},
       one,
       refused,
       "",
       kNoSpeculation,
       {"none"},
       {},
       Feature::verify},
      {kSglang, {"--speculative-eagle-topk"}, one, refused, "", kNoSpeculation, {}, {}, Feature::verify},
      {kSglang, {"--speculative-*"}, one, refused, "", kNoSpeculation},
      {kVllm,
       {"--speculative-config", "-sc"},
       one,
       refused,
       "",
       kNoSpeculation,
       {"none", "null"},
       {},
       Feature::verify},
  };
}

std::vector<ForeignFlag> graph_flags() {
  return {
      {kSglangs, {"--cuda-graph-max-bs"}, one, noted, "", kNoGraphs},
      {kMini, {"--graph"}, one, noted, "", kNoGraphs},
      {kSglang, {"--cuda-graph-bs"}, numbers, noted, "", kNoGraphs},
      {kSglang, {"--disable-cuda-graph", "--disable-cuda-graph-padding"}, none, noted, "", kNoGraphs},
      {kSglang, {"--cuda-graph-backend-prefill", "--cuda-graph-backend-decode"}, one, noted, "", kNoGraphs},
      {kSglang, {"--enable-torch-compile"}, none, noted, "", "kernels are compiled ahead"},
      {kSglang, {"--torch-compile-max-bs"}, one, noted, "", "kernels are compiled ahead"},
      {kVllm, {"--cudagraph-capture-sizes", "--cuda-graph-sizes"}, numbers, noted, "", kNoGraphs},
      {kVllm, {"--max-cudagraph-capture-size"}, one, noted, "", kNoGraphs},
      {kVllm,
       {"-O.*", "-O", "--compilation-config", "--compilation-config.*", "-cc", "-cc.*"},
       one,
       noted,
       "",
       "kernels are compiled ahead, and a step is not captured into a graph"},
      {kVllm, {"-O0", "-O1", "-O2", "-O3"}, none, noted, "", "kernels are compiled ahead"},
      {kVllm, {"--enforce-eager", "--no-enforce-eager"}, none, noted, "", kNoGraphs},
  };
}

std::vector<ForeignFlag> model_flags() {
  return {
      {kAll, {"--model"}, one, same, "--model", "a folder, or a hub id in the local cache"},
      {kSglangs, {"--model-path"}, one, same, "--model-path", "a folder, or a hub id in the local cache"},
      {kAll, {"--dtype"}, one, same, "--dtype", "auto, float32, bfloat16 or float16"},
      {kMini, {"--dummy-weight"}, none, alias, "--dummy-weights", "random weights from config.json alone"},
      {kBoth,
       {"--load-format"},
       one,
       alias,
       "",
       "safetensors are read; dummy makes random weights",
       {},
       {{"auto", ""}, {"safetensors", ""}, {"dummy", "--dummy-weights"}}},
      {kBoth, {"--trust-remote-code"}, none, noted, "", "code that comes with a model is never run"},
      {kMini, {"--model-source"}, one, noted, "", "nothing is downloaded: the local cache is read"},
      {kBoth,
       {"--download-dir"},
       one,
       noted,
       "",
       "nothing is downloaded: HF_HUB_CACHE says where the cache is"},
      {kBoth,
       {"--revision"},
       one,
       refused,
       "",
       "the cache's refs/main is read; give the folder of another revision as --model",
       {"main"}},
      {kBoth,
       {"--tokenizer", "--tokenizer-path"},
       one,
       refused,
       "",
       "the tokenizer is the model folder's; leave it out"},
      {kBoth, {"--tokenizer-mode"}, one, noted, "", "tokenizer.json is read by the program itself"},
      {kBoth,
       {"--quantization", "-q"},
       one,
       refused,
       "",
       "weights are read as the checkpoint has them (float32, bfloat16, float16, MXFP4); leave it out",
       {"none"}},
      {kBoth,
       {"--hf-overrides", "--json-model-override-args"},
       one,
       refused,
       "",
       "edit config.json instead",
       {"{}"}},
      {kBoth, {"--enable-lora"}, none, refused, "", "LoRA adapters are not built; leave it out"},
      {kBoth,
       {"--lora-modules", "--lora-paths"},
       one,
       refused,
       "",
       "LoRA adapters are not built; leave it out"},
      {kMini, {"--moe-backend"}, one, noted, "", "one implementation runs mixtures of experts"},
      {kSglang, {"--moe-runner-backend"}, one, noted, "", "one implementation runs mixtures of experts"},
      {kVllm, {"--seed"}, one, same, "--seed", "of sampling and of dummy weights"},
      {kSglang, {"--random-seed"}, one, alias, "--seed", "of sampling and of dummy weights"},
      {kSglang, {"--sampling-backend"}, one, noted, "", "one sampler; equal seeds give equal tokens"},
      {kBoth, {"--device"}, one, refused, "", "this command runs on the CPU", {"auto", "cpu"}},
      {kVllm, {"--generation-config"}, one, noted, "", kGenerates},
      {kVllm, {"--max-logprobs"}, one, noted, "", kGenerates},
      {kBoth, {"--chat-template"}, one, noted, "", kGenerates},
  };
}

std::vector<ForeignFlag> server_flags() {
  return {
      {kAll, {"--host", "--port"}, one, noted, "", kServes},
      {kBoth, {"--api-key", "--served-model-name"}, one, noted, "", kServes},
      {kVllm,
       {"--uds", "--max-num-queued-reqs", "--max-num-queued-tokens", "--shutdown-timeout"},
       one,
       noted,
       "",
       kServes},
      {kVllm,
       {"--allowed-origins"},
       one,
       noted,
       "",
       "serve takes it (repeated, or as a JSON list); of no use to a command that listens nowhere"},
      {kVllm,
       {"--allowed-methods", "--allowed-headers"},
       one,
       noted,
       "",
       "with --allowed-origins pages may use the methods and headers that the API has"},
      {kVllm, {"--allow-credentials"}, none, noted, "", "no cookie is read: keys are sent in a header"},
      {kSglang, {"--max-queued-requests"}, one, noted, "", kServes},
      {kBoth,
       {"--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs"},
       one,
       refused,
       "",
       "TLS is a proxy's work; leave it out and see docs/serving.md"},
      {kBoth,
       {"--root-path"},
       one,
       noted,
       "",
       "paths begin at /: the proxy that adds one takes it away again"},
      {kBoth,
       {"--uvicorn-log-level", "--log-level-http"},
       one,
       noted,
       "",
       "--log-level info logs each request"},
      {kMini, {"--num-tokenizer", "--tokenizer-count"}, one, noted, "", kOneProcess},
      {kSglang, {"--tokenizer-worker-num"}, one, noted, "", kOneProcess},
      {kVllm, {"--api-server-count"}, one, noted, "", kOneProcess},
      {kSglang, {"--skip-tokenizer-init"}, none, noted, "", "token ids can be given as \"ids\" in rows"},
      {kMini, {"--shell-mode", "--shell"}, none, noted, "", "fovea chat talks to the model"},
      {kSglang, {"--log-requests"}, none, noted, "", "--log-level info logs each request"},
      {kSglang, {"--enable-metrics"}, none, noted, "", "/metrics is always there"},
      {kSglang,
       {"--skip-server-warmup"},
       none,
       noted,
       "",
       "nothing is compiled or captured at the first request"},
      {kVllm,
       {"--disable-log-requests", "--disable-log-stats", "--enable-log-requests"},
       none,
       noted,
       "",
       "--log-level info logs each request, and other levels do not"},
      {kBoth,
       {"--tool-call-parser", "--reasoning-parser"},
       one,
       noted,
       "",
       "text is answered as the model wrote it"},
      {kVllm, {"--enable-auto-tool-choice"}, none, noted, "", "requests with tools are refused"},
      {kBoth,
       {"--watchdog-timeout"},
       one,
       noted,
       "",
       "a step is computed by this process: there is no other to watch"},
  };
}

std::vector<ForeignFlag> all_flags() {
  std::vector<ForeignFlag> all;
  for (std::vector<ForeignFlag> (*group)() : {attention_flags, cache_flags, scheduling_flags, parallel_flags,
                                              graph_flags, model_flags, server_flags})
    for (ForeignFlag& flag : group())
      all.push_back(std::move(flag));
  return all;
}

/// How well `spelling` is matched: its length when exact, else that of the prefix before '*'; -1 = not.
int match(std::string_view pattern, std::string_view spelling) {
  if (pattern == spelling) return static_cast<int>(pattern.size()) + 1;
  if (!pattern.ends_with('*')) return -1;
  pattern.remove_suffix(1);
  return spelling.size() > pattern.size() && spelling.starts_with(pattern) ? static_cast<int>(pattern.size())
                                                                           : -1;
}

}  // namespace

std::string_view to_string(Peer peer) {
  switch (peer) {
    case Peer::sglang: return "SGLang";
    case Peer::vllm: return "vLLM";
    case Peer::mini_sglang: return "Mini-SGLang";
  }
  return "?";
}

std::string_view to_string(FlagVerdict verdict) {
  switch (verdict) {
    case same: return "same";
    case alias: return "alias";
    case noted: return "no meaning here";
    case refused: return "refused";
  }
  return "?";
}

std::span<const ForeignFlag> foreign_flags() {
  static const std::vector<ForeignFlag> flags = all_flags();
  return flags;
}

const ForeignFlag* find_foreign_flag(std::string_view spelling) {
  std::string dashed(spelling);
  if (dashed.starts_with("--")) std::replace(dashed.begin(), dashed.end(), '_', '-');
  const ForeignFlag* best = nullptr;
  int best_match = -1;
  for (const ForeignFlag& flag : foreign_flags())
    for (const std::string_view pattern : flag.spellings)
      if (const int m = match(pattern, dashed); m > best_match) {
        best_match = m;
        best = &flag;
      }
  return best;
}

}  // namespace fovea
