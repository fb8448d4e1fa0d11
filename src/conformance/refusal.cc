#include "conformance/refusal.h"

#include <algorithm>
#include <charconv>

#include "attention/kv_view.h"
#include "conformance/run.h"
#include "fovea/attention.h"

namespace fovea::conformance {
namespace {

/// A column whose value is required by a setting of the spec, and the text of its refusal.
struct Refusal {
  std::string_view column;
  std::string_view text;
  void (*ask)(AttentionSpec&, const Cell&);
};

int number(const Cell& cell) {
  int value = 0;
  std::from_chars(cell.value.data(), cell.value.data() + cell.value.size(), value);
  return value;
}

template <Feature feature>
void need(AttentionSpec& spec, const Cell&) {
  spec.needs.insert(feature);
}

constexpr Refusal kRefusals[] = {
    {"dtypes", "dtype not supported",
     [](AttentionSpec& s, const Cell& c) { s.dtype = *parse_dtype(c.value); }},
    {"kv_dtypes", "kv_cache_dtype not supported",
     [](AttentionSpec& s, const Cell& c) { s.kv_dtype = *parse_kv_cache_dtype(c.value); }},
    {"page_sizes", "block_size not supported",
     [](AttentionSpec& s, const Cell& c) { s.page_size = number(c); }},
    {"head_dims", "head_size not supported", [](AttentionSpec& s, const Cell& c) { s.head_dim = number(c); }},
    {"v_head_dims", "head_size not supported",
     [](AttentionSpec& s, const Cell& c) { s.v_head_dim = number(c); }},
    {"gqa_ratios", "GQA ratio {} not supported",
     [](AttentionSpec& s, const Cell& c) { s.num_heads = s.num_kv_heads * number(c); }},
    {"types", "attention type {} not supported",
     [](AttentionSpec& s, const Cell& c) {
       for (const auto type : {AttentionType::decoder, AttentionType::encoder, AttentionType::encoder_only,
                               AttentionType::encoder_decoder})
         if (to_string(type) == c.value) s.type = type;
       s.mask.causal = s.type == AttentionType::decoder;
     }},
    {"non_causal", "non-causal attention not supported",
     [](AttentionSpec& s, const Cell&) { s.mask.causal = false; }},
    {"window", "sliding window not supported",
     [](AttentionSpec& s, const Cell&) { s.mask.window_left = 15; }},
    {"chunk", "chunked-local attention not supported",
     [](AttentionSpec& s, const Cell&) { s.mask.chunk = 64; }},
    {"softcap", "logit soft cap not supported", [](AttentionSpec& s, const Cell&) { s.softcap = 50; }},
    {"alibi", "ALiBi not supported", [](AttentionSpec& s, const Cell&) { s.has_alibi = true; }},
    {"sink", "attention sinks not supported", [](AttentionSpec& s, const Cell&) { s.has_sink = true; }},
    {"sink_tokens", "StreamingLLM sink tokens not supported",
     [](AttentionSpec& s, const Cell&) { s.mask.sink_tokens = 4; }},
    {"spans", "partial multimodal token full attention not supported",
     [](AttentionSpec& s, const Cell&) { s.mask.spans = true; }},
    {"packed_mask", "packed custom mask not supported",
     [](AttentionSpec& s, const Cell&) {
       s.mask.packed = true;
       s.mask.causal = false;
     }},
    {"verify", "speculative verification not supported", need<Feature::verify>},
    {"tree_mask", "tree mask not supported", [](AttentionSpec& s, const Cell&) { s.mask.tree = true; }},
    {"mla", "MLA not supported", [](AttentionSpec& s, const Cell&) { s.use_mla = true; }},
    {"sparse", "sparse not supported", [](AttentionSpec& s, const Cell&) { s.use_sparse = true; }},
    {"chunked_prefix", "chunked prefix not supported", need<Feature::chunked_prefix>},
    {"dcp", "DCP not supported", need<Feature::dcp>},
    {"non_causal_dcp", "non-causal MLA attention with DCP not supported",
     [](AttentionSpec& s, const Cell&) {
       s.needs.insert(Feature::dcp);
       s.use_mla = true;
       s.mask.causal = false;
     }},
    {"pcp", "PCP not supported", need<Feature::pcp>},
    {"lse", "LSE output not supported", need<Feature::lse>},
    {"kv_layouts", "KV cache layout {} not supported",
     [](AttentionSpec& s, const Cell& c) { set_layout(s, *parse_kv_layout(c.value)); }},
    {"kv_sharing", "KV sharing between layers not supported", need<Feature::kv_sharing>},
    {"kv_connector", "KV connector not supported", need<Feature::kv_connector>},
    {"per_head_scales", "per-head quant scales not supported", need<Feature::per_head_scales>},
    {"output_quant", "quantised output not supported", need<Feature::output_quant>},
    {"adaptive_verification",
     "device-cpu query lens mismatch not supported, this is needed for adaptive verification",
     need<Feature::adaptive_verification>},
    {"fp64_accumulate", "fp64 accumulation not supported",
     [](AttentionSpec& s, const Cell&) { s.fp64_accumulate = true; }},
};

std::string with_value(std::string_view text, const std::string& value) {
  std::string out(text);
  if (const size_t at = out.find("{}"); at != std::string::npos) out.replace(at, 2, value);
  return out;
}

/// Adds the refusals of other columns that this column requires and that are not claimed either.
void expect_implied(const Capability& c, const Cell& cell, Request& request) {
  if (cell.column != "non_causal_dcp") return;
  const auto expect = [&](Feature feature, const char* text) {
    if (!c.features.has(feature)) request.expected.emplace_back(text);
  };
  expect(Feature::mla, "MLA not supported");
  expect(Feature::dcp, "DCP not supported");
  expect(Feature::non_causal, "non-causal attention not supported");
}

/// Columns for the device and the phase.
std::optional<Request> request_of_place(Request request, const Cell& cell) {
  request.of_spec = false;
  if (cell.column == "phases") {
    request.phase = cell.value == to_string(Phase::prefill) ? Phase::prefill : Phase::decode;
    request.expected = {cell.value + " not supported"};
    return request;
  }
  request.expected = {"compute capability not supported"};
  if (cell.column == "device") {
    for (const auto kind :
         {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::rocm, DeviceKind::ascend, DeviceKind::xpu})
      if (to_string(kind) == cell.value) request.device = {kind, kind == DeviceKind::cuda ? 90 : 0, ""};
    return request;
  }
  if (cell.column != "compute_capability") return std::nullopt;
  std::string digits = cell.value;
  std::erase(digits, '.');
  request.device = {DeviceKind::cuda, 0, ""};
  std::from_chars(digits.data(), digits.data() + digits.size(), request.device.compute_capability);
  return request;
}

std::string list(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts)
    out += (out.empty() ? "'" : ", '") + text + "'";
  return out.empty() ? "nothing" : out;
}

/// The outcome of planning a batch of one token for `spec`; empty = refused with one of `expected`.
std::string find_plan(AttentionBackend& instance, const Request& request, Machine& machine) {
  const AttentionSpec& spec = request.spec;
  const std::vector<std::string>& expected = request.expected;
  const auto named = [&](const Error& error) {
    return std::any_of(expected.begin(), expected.end(), [&](const std::string& text) {
      return error.message.find(text) != std::string::npos;
    });
  };
  const AttentionLimits limits{1, 1, 1, 1};
  const auto bytes = instance.workspace_bytes(spec, limits);
  if (bytes) return "workspace_bytes() accepts it";
  if (!named(bytes.error())) return "workspace_bytes() refuses it with: " + bytes.error().message;
  const auto session = machine.open_session();
  if (!session) return session.error().message;
  constexpr int32_t kStep[] = {0, 1, 0};  // offsets of one row; the last is also its page
  const auto there = (*session)->put(kStep, sizeof kStep);
  if (!there) return there.error().message;
  const auto* step = reinterpret_cast<const int32_t*>(*there);
  BatchMeta meta;
  meta.phase = request.phase;
  meta.tokens = 1;
  meta.q_offsets = {step, 2};
  meta.kv_lens = {step + 1, 1};
  meta.page_table = {step + 2, 1};
  meta.page_table_stride = 1;
  const auto plan = instance.plan(spec, limits, meta, {}, (*session)->stream());
  if (plan) return "plan() accepts it";
  return named(plan.error()) ? "" : "plan() refuses it with: " + plan.error().message;
}

/// Likewise for the graph functions of a backend without graphs.
std::string find_graphs(AttentionBackend& instance, const Request& request) {
  const auto bytes = instance.init_graph_state(request.spec, {1, 1, 1, 1});
  if (bytes) return "init_graph_state() accepts it";
  if (bytes.error().message.find(request.expected.front()) != std::string::npos) return {};
  return "init_graph_state() refuses it with: " + bytes.error().message;
}

}  // namespace

std::optional<Request> request_of(const BackendInfo& backend, const Cell& cell, const AttentionSpec& plain,
                                  const DeviceInfo& device) {
  Request request;
  request.spec = plain;
  request.device = device;
  request.phase = backend.capability.phases.has(Phase::prefill) ? Phase::prefill : Phase::decode;
  if (cell.column == "invariance" && cell.value == to_string(Invariance::batch)) {
    request.spec.needs.insert(Feature::batch_invariance);
    request.expected = {"batch invariance not supported"};
    return request;
  }
  if (cell.column == "graph" && backend.capability.graph == GraphSupport::never) {
    request.of_graph = true;
    request.expected = {"can't be captured in a graph"};
    return request;
  }
  for (const Refusal& refusal : kRefusals) {
    if (refusal.column != cell.column) continue;
    refusal.ask(request.spec, cell);
    request.expected = {with_value(refusal.text, cell.value)};
    expect_implied(backend.capability, cell, request);
    return request;
  }
  return request_of_place(std::move(request), cell);
}

std::string find_acceptance(const BackendInfo& backend, AttentionBackend& instance, const Request& request,
                            Machine& machine) {
  if (request.of_graph) return find_graphs(instance, request);
  std::vector<std::string> texts;
  for (const Reason& reason : validate(backend, request.spec, request.device, request.phase)) {
    texts.push_back(reason.text);
    if (reason.fix.empty()) return "'" + reason.text + "' has no fix";
  }
  std::vector<std::string> got = texts, want = request.expected;
  std::sort(got.begin(), got.end());
  std::sort(want.begin(), want.end());
  if (got != want) return "validate() returned " + list(texts) + ", expected " + list(request.expected);
  return request.of_spec ? find_plan(instance, request, machine) : "";
}

}  // namespace fovea::conformance
