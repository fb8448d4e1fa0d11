#include "server/metrics_engine.h"

#include <algorithm>
#include <string>
#include <vector>

namespace fovea::server {
namespace {

double number(int64_t value) {
  return static_cast<double>(value);
}

void write_requests(const EngineStats& s, MetricsText& out) {
  out.gauge("vllm:num_requests_running", "Sequences that are running.", s.running);
  out.gauge("vllm:num_requests_waiting", "Sequences in the queue.", s.waiting);
  out.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache's pages in use, 0 to 1.",
            s.pages_total > 0 ? number(s.pages_in_use) / number(s.pages_total) : 0);
  out.counter("vllm:prefix_cache_queries_total", "Tokens looked up in the prefix cache.",
              number(s.prefix_queries));
  out.counter("vllm:prefix_cache_hits_total", "Tokens found in the prefix cache.", number(s.prefix_hits));
  out.counter("vllm:num_preemptions_total", "Sequences preempted because pages ran out.",
              number(s.preemptions));
  out.counter("vllm:prompt_tokens_total", "Tokens of prompts whose prefill is complete.",
              number(s.prompt_tokens));
  out.counter("vllm:generation_tokens_total", "Tokens generated.", number(s.generated_tokens));
  out.metric("vllm:iteration_tokens_total", "histogram",
             "Tokens a step: of prompts that it completed, and generated.");
  const std::vector<double> bounds(kStepTokenBounds.begin(), kStepTokenBounds.end());
  out.histogram(bounds, s.step_tokens, number(s.prompt_tokens + s.generated_tokens));
}

/// vLLM's; only where drafts are made, as there.
void write_drafts(const EngineStats& s, MetricsText& out) {
  const SpeculativeCounts& c = s.speculative;
  if (c.drafts == 0) return;
  out.counter("vllm:spec_decode_num_drafts_total", "Steps of a sequence that verified drafts.",
              number(c.drafts));
  out.counter("vllm:spec_decode_num_draft_tokens_total", "Draft tokens verified.", number(c.draft_tokens));
  out.counter("vllm:spec_decode_num_accepted_tokens_total", "Draft tokens accepted.",
              number(c.accepted_tokens));
  out.metric("vllm:spec_decode_num_accepted_tokens_per_pos_total", "counter",
             "Draft tokens accepted, by place in the draft.");
  for (size_t i = 0; i < c.accepted_by_position.size(); ++i)
    out.sample(number(c.accepted_by_position[i]), {{"position", std::to_string(i)}});
}

void write_pages(const EngineStats& s, MetricsText& out) {
  out.metric("fovea_kv_pages", "gauge", "Pages of the KV cache; cached = of the prefix cache and evictable.");
  out.sample(number(s.pages_free), {{"state", "free"}});
  out.sample(number(s.pages_cached), {{"state", "cached"}});
  out.sample(number(s.pages_in_use), {{"state", "in_use"}});
}

void write_steps(const EngineStats& s, MetricsText& out) {
  out.counter("fovea_steps_total", "Forward passes.", number(s.steps));
  out.counter("fovea_step_seconds_total", "Time in steps, sampling included.", s.busy_seconds);
  out.counter("fovea_plan_seconds_total", "Time in steps spent on making attention schedules.",
              s.plan_seconds);
  out.metric("fovea_rows_total", "counter", "Rows computed, cached tokens left out and repeated ones not.");
  out.sample(number(s.prefill_tokens), {{"phase", "prefill"}});
  out.sample(number(s.decode_tokens), {{"phase", "decode"}});
  out.metric(
      "fovea_token_gap_seconds", "summary",
      "How long decoding sequences waited for their next token since the start; quantile 1 = longest.");
  out.sample(s.token_gap_p50, {{"quantile", "0.5"}});
  out.sample(s.token_gap_p99, {{"quantile", "0.99"}});
  out.sample(s.token_gap_max, {{"quantile", "1"}});
}

/// One metric with a sample for each use; `value` returns nullopt to omit a use.
template <class Value>
void write_uses(std::string_view name, std::string_view type, std::string_view help, const EngineStats& s,
                MetricsText& out, const Value& value) {
  out.metric(name, type, help);
  for (const AttentionUse& use : s.attention)
    if (const std::optional<double> v = value(use))
      out.sample(
          *v,
          {{"phase", to_string(use.phase)}, {"layer_kind", to_string(use.kind)}, {"backend", use.backend}});
}

void write_attention(const EngineStats& s, MetricsText& out) {
  using Value = std::optional<double>;
  write_uses("fovea_attention_kernel_seconds_total", "counter", "Time in attention kernels.", s, out,
             [](const AttentionUse& u) -> Value {
               return u.seconds > 0 || u.calls == 0 ? Value(u.seconds) : std::nullopt;  // not on a GPU
             });
  write_uses("fovea_attention_calls_total", "counter", "Calls of attention kernels, one a layer of a step.",
             s, out, [](const AttentionUse& u) -> Value { return number(u.calls); });
  write_uses("fovea_attention_bytes_total", "counter",
             "Minimum bytes that attention reads and writes: visible keys and values, queries, outputs.", s,
             out, [](const AttentionUse& u) -> Value { return u.bytes; });
  write_uses("fovea_attention_flops_total", "counter",
             "Floating-point operations of visible pairs of query and key.", s, out,
             [](const AttentionUse& u) -> Value { return u.flops; });
  write_uses("fovea_attention_bytes_per_second", "gauge",
             "attention_bytes_total over attention_kernel_seconds_total.", s, out,
             [](const AttentionUse& u) -> Value {
               return u.seconds > 0 ? Value(u.bytes / u.seconds) : std::nullopt;
             });
}

void write_floor(const EngineStats& s, const MachineFloor& floor, MetricsText& out) {
  if (!(floor.read_bytes_per_second > 0) || !(floor.fp32_flops_per_second > 0)) return;
  out.gauge("fovea_machine_read_bytes_per_second", "Plain reads of memory by all threads, as measured.",
            floor.read_bytes_per_second);
  out.gauge("fovea_machine_fp32_flops_per_second", "fp32 FMAs of all threads, as measured.",
            floor.fp32_flops_per_second);
  write_uses("fovea_attention_roofline_ratio", "gauge",
             "Minimum time for attention's bytes and flops at the machine's rates, divided by the time "
             "taken; above 1 when keys came from caches.",
             s, out, [&](const AttentionUse& u) -> std::optional<double> {
               if (!(u.seconds > 0)) return std::nullopt;
               return std::max(u.bytes / floor.read_bytes_per_second, u.flops / floor.fp32_flops_per_second) /
                      u.seconds;
             });
}

}  // namespace

void write_backends(const Selection& selection, MetricsText& out) {
  out.metric("fovea_attention_backend_info", "gauge",
             "The attention backend of each phase and kind of layers.");
  for (const KindSelection& kind : selection.kinds)
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      const BackendInfo* backend = kind.of(phase).backend;
      if (!backend || (kind.kind == LayerKind::encoder && phase == Phase::decode)) continue;
      out.sample(
          1,
          {{"phase", to_string(phase)}, {"layer_kind", to_string(kind.kind)}, {"backend", backend->label()}});
    }
}

void write_gpu(const EngineInfo& info, MetricsText& out) {
  if (info.gpu_memory_total == 0) return;
  out.metric("fovea_gpu_info", "gauge", "The GPU that the model runs on.");
  out.sample(1, {{"device", info.device_name}, {"name", info.selection.device.name}});
  out.gauge("fovea_gpu_memory_total_bytes", "Memory of the GPU.", number(info.gpu_memory_total));
  out.metric("fovea_gpu_memory_bytes", "gauge", "What the engine takes of the GPU's memory, as computed.");
  for (const MemoryPart& part : info.gpu_memory)
    out.sample(number(part.bytes), {{"part", part.name}});
}

void write_cache_config(const EngineInfo& info, MetricsText& out) {
  write_gpu(info, out);
  const int page_size = std::max(1, info.selection.page_size);
  out.metric("vllm:cache_config_info", "gauge", "The KV cache: tokens a page, pages, storage type.");
  out.sample(1, {{"block_size", std::to_string(page_size)},
                 {"cache_dtype", to_string(info.kv_dtype)},
                 {"enable_prefix_caching", info.prefix_cache ? "True" : "False"},
                 {"num_gpu_blocks", std::to_string(info.kv_tokens / page_size)}});
}

void write_engine_stats(const EngineStats& stats, const std::optional<MachineFloor>& floor,
                        MetricsText& out) {
  write_requests(stats, out);
  write_drafts(stats, out);
  write_pages(stats, out);
  write_steps(stats, out);
  write_attention(stats, out);
  if (floor) write_floor(stats, *floor, out);
}

}  // namespace fovea::server
