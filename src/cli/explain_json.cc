#include <nlohmann/json.hpp>

#include "cli/explain.h"

namespace fovea::cli {
namespace {

using Json = nlohmann::ordered_json;

Json backend_json(const BackendInfo* backend) {
  if (backend == nullptr) return nullptr;
  return {{"name", backend->name}, {"version", backend->version}};
}

Json phase_json(const PhaseSelection& phase) {
  Json candidates = Json::array();
  for (const Candidate& candidate : phase.candidates) {
    Json reasons = Json::array();
    for (const Reason& reason : candidate.reasons)
      reasons.push_back({{"text", reason.text}, {"fix", reason.fix}});
    Json one = backend_json(candidate.backend);
    one["reasons"] = std::move(reasons);
    candidates.push_back(std::move(one));
  }
  return {{"backend", backend_json(phase.backend)},
          {"why", phase.why},
          {"error", phase.backend == nullptr ? Json(phase.error.message) : Json(nullptr)},
          {"if_built", backend_json(phase.if_built)},
          {"if_built_unstated", phase.unstated},
          {"candidates", std::move(candidates)}};
}

Json spec_json(const AttentionSpec& spec, int layers) {
  Json out = {{"kind", to_string(kind_of(spec))}, {"layers", layers},
              {"heads", spec.num_heads},          {"kv_heads", spec.num_kv_heads},
              {"head_dim", spec.head_dim},        {"v_head_dim", spec.v_head_dim},
              {"dtype", to_string(spec.dtype)},   {"kv_cache_dtype", to_string(spec.kv_dtype)},
              {"type", to_string(spec.type)}};
  out["window"] = spec.mask.window_left >= 0 ? Json(spec.mask.window_left + 1) : Json(nullptr);
  out["chunk"] = spec.mask.chunk > 0 ? Json(spec.mask.chunk) : Json(nullptr);
  out["causal"] = spec.mask.causal;
  out["linear"] = spec.linear != LinearAttention::none ? Json(to_string(spec.linear)) : Json(nullptr);
  out["sink"] = spec.has_sink;
  out["mla"] = spec.use_mla;
  out["sparse"] = spec.use_sparse;
  return out;
}

Json model_json(const Explanation& e) {
  const AttentionShapes& s = e.shapes;
  Json attentions = Json::array();
  for (size_t i = 0; i < s.specs.size(); ++i)
    attentions.push_back(spec_json(s.specs[i], s.layers[i]));
  return {{"given", e.model},
          {"config", s.file},
          {"architecture", s.architecture},
          {"model_type", s.model_type},
          {"dtype", to_string(s.dtype)},
          {"attentions", std::move(attentions)},
          {"other_layers", s.other_layers},
          {"notes", s.notes},
          {"runnable", s.runnable},
          {"why_not", s.runnable ? Json(nullptr) : Json(s.why_not)}};
}

Json flags_json(const Explanation& e) {
  Json out = {{"refused", Json::array()}, {"noted", Json::array()}, {"alias", Json::array()}};
  for (const FlagNote& note : e.notes) {
    const char* list = note.verdict == FlagVerdict::refused ? "refused"
                       : note.verdict == FlagVerdict::noted ? "noted"
                                                            : "alias";
    out[list].push_back({{"flag", note.flag}, {"text", note.text}});
  }
  return out;
}

Json to_json(const Explanation& e) {
  Json out = {{"model", model_json(e)},
              {"device",
               {{"kind", to_string(e.device.kind)},
                {"compute_capability", e.device.compute_capability},
                {"name", e.device.name},
                {"shared_memory_bytes", e.device.shared_bytes},
                {"from", e.device_from}}},
              {"flags", flags_json(e)}};
  Json environment = Json::array();
  for (const EnvironmentNote& note : e.environment)
    environment.push_back(
        {{"name", note.name}, {"value", note.value}, {"applied", note.applied}, {"text", note.text}});
  out["environment"] = std::move(environment);
  Json kinds = Json::array();
  for (const KindSelection& kind : e.selection.kinds)
    kinds.push_back({{"kind", to_string(kind.kind)},
                     {"attentions", kind.specs},
                     {"prefill", phase_json(kind.prefill)},
                     {"decode", phase_json(kind.decode)}});
  out["kinds"] = std::move(kinds);
  const SpeculativeConfig& drafts = e.speculative;
  if (drafts.enabled())
    out["speculative"] = {{"method", to_string(drafts.method)},
                          {"num_tokens", drafts.num_tokens},
                          {"target_verify", "decode"},
                          {"draft_decode", drafts.method == DraftMethod::mtp ? Json(e.model)
                                           : drafts.model.empty()            ? Json(nullptr)
                                                                             : Json(drafts.model)}};
  out["page_size"] = e.selection.page_size > 0 ? Json(e.selection.page_size) : Json(nullptr);
  out["page_size_why"] = e.selection.page_size_why;
  Json resolved = Json::array();
  for (const ResolvedValue& value : e.selection.resolved)
    resolved.push_back({{"key", value.key}, {"value", value.value}, {"from", value.from}});
  out["resolved"] = std::move(resolved);
  out["warnings"] = e.selection.warnings;
  Json choices = Json::array();
  for (const tune::TunedLinear& tuned : e.tuning.choices)
    choices.push_back({{"linear", tune::describe(tuned.choice)},
                       {"us", tuned.seconds * 1e6},
                       {"automatic_us", tuned.automatic_seconds * 1e6}});
  out["tuning"] = {{"file", e.tuning.file}, {"ignored", e.tuning.ignored}, {"choices", std::move(choices)}};
  out["complete"] = static_cast<bool>(e.status());
  return out;
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string explanation_json(const Explanation& e) {
  return dump(to_json(e), 2) + "\n";
}

std::string server_info_json(const Explanation& e, const EngineInfo& info,
                             const std::optional<AudioFacts>& audio) {
  Json out = to_json(e);
  out["effective"] = {{"dtype", to_string(info.dtype)},
                      {"kv_cache_dtype", to_string(info.kv_dtype)},
                      {"kv_layout", to_string(info.kv_layout)},
                      {"page_size", info.selection.page_size},
                      {"max_seq_len", info.max_seq_len},
                      {"vocab_size", info.vocab_size},
                      {"threads", info.threads},
                      {"prefix_cache", info.prefix_cache},
                      {"kv_tokens", info.kv_tokens},
                      {"kv_bytes", info.kv_bytes},
                      {"weight_bytes", info.weight_bytes},
                      {"workspace_bytes", info.workspace_bytes},
                      {"rope_choice", info.rope_choice},
                      {"device", info.device_name},
                      {"max_running_requests", info.max_running_requests},
                      {"max_batched_tokens", info.max_batched_tokens},
                      {"overlap_schedule", info.overlap},
                      {"cuda_graph_bs", info.cuda_graph_bs},
                      {"gpu_memory_total", info.gpu_memory_total},
                      {"gpu_memory_surplus", info.gpu_memory_surplus}};
  Json& parts = out["effective"]["gpu_memory"] = Json::object();
  for (const MemoryPart& part : info.gpu_memory)
    parts[part.name] = part.bytes;
  if (audio)
    out["effective"]["audio"] = {{"window_seconds", audio->window_seconds},
                                 {"timestamps", audio->timestamps}};
  return dump(out, -1);
}

std::string server_info_json(const Explanation& e, const EmbedInfo& info) {
  Json out = to_json(e);
  out["effective"] = {{"dtype", to_string(info.dtype)},     {"max_seq_len", info.max_seq_len},
                      {"vocab_size", info.vocab_size},      {"threads", info.threads},
                      {"weight_bytes", info.weight_bytes},  {"dimensions", info.dimensions},
                      {"pooling", to_string(info.pooling)}, {"pooling_why", info.pooling_why},
                      {"normalize", info.normalize}};
  return dump(out, -1);
}

}  // namespace fovea::cli
