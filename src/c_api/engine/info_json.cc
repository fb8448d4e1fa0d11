#include "c_api/engine/info_json.h"

#include <nlohmann/json.hpp>

namespace fovea::c_api {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson optional_json(const std::optional<int>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson label_json(const PhaseSelection& phase) {
  return phase.backend == nullptr ? OrderedJson(nullptr) : OrderedJson(phase.backend->label());
}

OrderedJson attention_json(const Selection& selection) {
  OrderedJson kinds = OrderedJson::array();
  for (const KindSelection& kind : selection.kinds)
    kinds.push_back({{"kind", to_string(kind.kind)},
                     {"prefill", label_json(kind.prefill)},
                     {"decode", label_json(kind.decode)}});
  return kinds;
}

OrderedJson sampling_json(const SamplingParams& p) {
  OrderedJson bias = OrderedJson::object();
  for (const LogitBias& one : p.logit_bias)
    bias[std::to_string(one.token_id)] = one.bias;
  return {{"temperature", p.temperature},
          {"top_p", p.top_p},
          {"top_k", p.top_k},
          {"min_p", p.min_p},
          {"repetition_penalty", p.repetition_penalty},
          {"frequency_penalty", p.frequency_penalty},
          {"presence_penalty", p.presence_penalty},
          {"logit_bias", std::move(bias)},
          {"bad_words", p.bad_words},
          {"max_tokens", optional_json(p.max_tokens)},
          {"min_tokens", p.min_tokens},
          {"stop", p.stop},
          {"stop_token_ids", p.stop_token_ids},
          {"ignore_eos", p.ignore_eos}};
}

/// File names need not be UTF-8.
std::string text_of(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace

std::string info_json(const Engine& engine) {
  const EngineInfo& info = engine.info();
  OrderedJson out = {{"model_dir", info.model_dir},
                     {"architecture", info.architecture},
                     {"device", describe(info.selection.device)},
                     {"dtype", to_string(info.dtype)},
                     {"kv_cache_dtype", to_string(info.kv_dtype)},
                     {"kv_layout", to_string(info.kv_layout)},
                     {"page_size", info.selection.page_size},
                     {"weight_bytes", info.weight_bytes},
                     {"kv_bytes", info.kv_bytes},
                     {"kv_bytes_per_token", info.kv_bytes_per_token},
                     {"kv_tokens", info.kv_tokens},
                     {"workspace_bytes", info.workspace_bytes},
                     {"enable_prefix_caching", info.prefix_cache},
                     {"max_model_len", info.max_seq_len},
                     {"vocab_size", info.vocab_size},
                     {"threads", info.threads},
                     {"has_chat_template", engine.has_chat_template()},
                     {"attention", attention_json(info.selection)},
                     {"explain", explain(info.selection)},
                     {"rope", info.rope_choice},
                     {"default_sampling", sampling_json(engine.default_sampling())}};
  return text_of(out);
}

std::string stats_json(const EngineStats& s) {
  const SpeculativeCounts& c = s.speculative;
  const OrderedJson drafts = {{"drafts", c.drafts},
                              {"draft_tokens", c.draft_tokens},
                              {"accepted_tokens", c.accepted_tokens},
                              {"accepted_by_position", c.accepted_by_position},
                              {"mean_acceptance_length", c.mean_acceptance_length()}};
  const OrderedJson out = {{"steps", s.steps},
                           {"prefill_tokens", s.prefill_tokens},
                           {"decode_tokens", s.decode_tokens},
                           {"busy_seconds", s.busy_seconds},
                           {"plan_seconds", s.plan_seconds},
                           {"running", s.running},
                           {"waiting", s.waiting},
                           {"pages_total", s.pages_total},
                           {"pages_free", s.pages_free},
                           {"pages_cached", s.pages_cached},
                           {"pages_in_use", s.pages_in_use},
                           {"prefix_queries", s.prefix_queries},
                           {"prefix_hits", s.prefix_hits},
                           {"preemptions", s.preemptions},
                           {"max_step_tokens", s.max_step_tokens},
                           {"token_gap_p50", s.token_gap_p50},
                           {"token_gap_p99", s.token_gap_p99},
                           {"token_gap_max", s.token_gap_max},
                           {"prompt_tokens", s.prompt_tokens},
                           {"generated_tokens", s.generated_tokens},
                           {"speculative", drafts}};
  return text_of(out);
}

std::string info_json(const EmbedInfo& info) {
  const OrderedJson out = {{"model_dir", info.model_dir},
                           {"architecture", info.architecture},
                           {"device", describe(info.selection.device)},
                           {"dtype", to_string(info.dtype)},
                           {"weight_bytes", info.weight_bytes},
                           {"dimensions", info.dimensions},
                           {"max_model_len", info.max_seq_len},
                           {"vocab_size", info.vocab_size},
                           {"threads", info.threads},
                           {"pooling", to_string(info.pooling)},
                           {"normalize", info.normalize},
                           {"attention", attention_json(info.selection)},
                           {"explain", explain(info.selection)}};
  return text_of(out);
}

}  // namespace fovea::c_api
