// Every key of AttentionConfig has an effect: it changes the selection or the plan, is refused, or is named
// in a warning. The keys are those of attention_keys(), which the table in the documentation lists.
#include <gmock/gmock.h>

#include <map>

#include "attention/select_test_support.h"
#include "builtin/project_backends.h"
#include "compat/launch/attention_keys.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

using ::testing::Contains;
using ::testing::StartsWith;

AttentionSpec deepseek() {
  AttentionSpec spec;
  spec.num_heads = 128;
  spec.num_kv_heads = 1;
  spec.head_dim = 576;
  spec.v_head_dim = 512;
  spec.mla_nope_head_dim = 128;
  spec.mla_rope_head_dim = 64;
  spec.mla_v_head_dim = 128;
  spec.scale = 0.1f;
  spec.dtype = DType::bf16;
  spec.use_mla = true;
  return spec;
}

/// A setup in which a key has an effect: its value, and the other settings.
struct Case {
  std::string value;
  std::string device;
  AttentionSpec spec = llama_8b_spec();
  AttentionConfig beside = {};
};

const std::map<std::string_view, Case>& cases() {
  static const std::map<std::string_view, Case> all = {
      {"backend", {"TRITON_ATTN", "sm90"}},
      {"prefill_backend", {"TRITON_ATTN", "sm90"}},
      {"decode_backend", {"TRITON_ATTN", "sm90"}},
      {"backend_per_kind", {R"({"full": "TRITON_ATTN"})", "sm90"}},
      {"page_size", {"48", "sm90"}},
      {"allow_page_override", {"1", "sm90", deepseek(), {.backend = "FLASHMLA", .page_size = 7}}},
      {"flash_attn_version", {"2", "sm90"}},
      {"use_trtllm_attention", {"1", "sm80", llama_8b_spec(), {.backend = "FLASHINFER"}}},
      {"flashinfer_use_tensor_cores", {"0", "sm90", llama_8b_spec(), {.backend = "FLASHINFER"}}},
      {"mla_prefill_backend", {"CUDNN", "sm100", deepseek()}},
      {"use_prefill_decode_attention", {"1", "rocm"}},
      {"use_non_causal", {"1", "cpu"}},
      {"batch_invariant", {"1", "sm100", llama_8b_spec(), {.backend = "TRTLLM_MHA"}}},
      {"use_trtllm_ragged_deepseek_prefill", {"0", "sm100", deepseek()}},
      {"disable_flashinfer_prefill", {"0", "sm100", deepseek()}},
      {"use_cudnn_prefill", {"1", "sm100", deepseek()}},
  };
  return all;
}

Result<Selection> selected(const Case& c, const AttentionConfig& config) {
  return consider(config, {&c.spec, 1}, *parse_device(c.device), project_backends());
}

std::string label(const BackendInfo* row) {
  return row == nullptr ? "none" : row->label();
}

/// Everything that determines execution: rows, reasons, page size, plan inputs, and resolved defaults.
std::string effect(const Case& c, const AttentionConfig& config, const std::vector<std::string>& keys) {
  const auto s = selected(c, config);
  if (!s) return s.error().message;
  std::string out;
  for (const KindSelection& kind : s->kinds)
    for (const PhaseSelection* phase : {&kind.prefill, &kind.decode}) {
      out += label(phase->backend) + "/" + label(phase->if_built) + ":";
      for (const Candidate& candidate : phase->candidates) {
        out += candidate.backend->label();
        for (const Reason& reason : candidate.reasons)
          out += " '" + reason.text + "'";
      }
    }
  out += "page " + std::to_string(s->page_size);
  const AttentionSpec spec = with_settings(c.spec, config);
  out += spec.mask.causal ? " causal" : " both ways";
  for (const ResolvedValue& value : s->resolved)
    if (std::ranges::find(keys, value.key) != keys.end()) out += " " + value.key + "=" + value.value;
  return out;
}

std::vector<std::string> resolved_keys(const Selection& s) {
  std::vector<std::string> keys;
  for (const ResolvedValue& value : s.resolved)
    keys.push_back(value.key);
  return keys;
}

AttentionConfig with(const AttentionKey& key, const std::string& value, AttentionConfig config) {
  std::vector<FlagNote> notes;
  const Status status = apply_attention_arguments({{"-ac", std::string(key.name), value}}, config, notes);
  EXPECT_TRUE(status.ok()) << status.error().message;
  return config;
}

TEST(KeyEffects, EveryKeyThatActsHasACaseAndChangesSomething) {
  for (const AttentionKey& key : attention_keys()) {
    if (key.status == KeyStatus::refused) continue;  // attention_keys_test.cc covers refused keys
    SCOPED_TRACE(key.name);
    const auto at = cases().find(key.name);
    ASSERT_NE(at, cases().end()) << "say here where the key acts";
    const Case& c = at->second;
    const auto without = selected(c, c.beside);
    ASSERT_TRUE(without.ok()) << without.error().message;
    const AttentionConfig config = with(key, c.value, c.beside);
    const auto keys = resolved_keys(*without);
    const std::string before = effect(c, c.beside, keys), after = effect(c, config, keys);
    if (before != after) continue;
    const auto s = selected(c, config);
    EXPECT_THAT(s->warnings, Contains(StartsWith("-ac." + std::string(key.name) + " has no effect: ")))
        << before;
  }
}

TEST(KeyEffects, AKeyThatFindsNothingToActOnIsNamed) {
  // Keys without effect for a plain model on a CPU; all other keys act there.
  const std::map<std::string_view, std::string> idle = {{"allow_page_override", "1"},
                                                        {"flash_attn_version", "2"},
                                                        {"use_trtllm_attention", "0"},
                                                        {"flashinfer_use_tensor_cores", "1"},
                                                        {"mla_prefill_backend", "FLASH_ATTN"},
                                                        {"use_prefill_decode_attention", "1"},
                                                        {"use_trtllm_ragged_deepseek_prefill", "1"},
                                                        {"disable_flashinfer_prefill", "1"},
                                                        {"use_cudnn_prefill", "1"}};
  Case c{"", "cpu"};
  c.spec.dtype = DType::f32;
  for (const AttentionKey& key : attention_keys()) {
    const auto at = idle.find(key.name);
    if (at == idle.end()) continue;
    const auto s = selected(c, with(key, at->second, {}));
    ASSERT_TRUE(s.ok()) << s.error().message;
    EXPECT_THAT(s->warnings, Contains(StartsWith("-ac." + std::string(key.name) + " has no effect: ")));
  }
}

TEST(KeyEffects, EveryFieldHasAKey) {
  // Does not compile if a field is missing here; `sources` has no key.
  [[maybe_unused]] const auto [backend, prefill, decode, per_kind, page, page_override, flash, trtllm, cores,
                               mla, ragged, flashinfer, cudnn, split, non_causal, invariant, sources] =
      AttentionConfig{};
  constexpr int kFields = 16;
  const auto acts = [](const AttentionKey& key) { return key.status != KeyStatus::refused; };
  EXPECT_EQ(std::ranges::count_if(attention_keys(), acts), kFields);
}

}  // namespace
}  // namespace fovea
