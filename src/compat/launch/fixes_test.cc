// Applies each fix that a refusal suggests and checks it: no contradiction, no further refusal, and the
// selected backend is the one that the fix names.
#include <gmock/gmock.h>

#include <charconv>
#include <sstream>

#include "attention/select_test_support.h"
#include "base/same_name.h"
#include "builtin/project_backends.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

struct Setup {
  AttentionConfig config;
  std::vector<AttentionSpec> specs;
  DeviceInfo device;
};

/// One setting of a fix, without the explanation after the colon: "--dtype bfloat16".
struct Change {
  std::string setting, value;
};

constexpr std::string_view kPerKind = "-ac.backend_per_kind.";

/// Parses "--a x -ac.k=v: text" into changes; empty for a part that only explains.
std::vector<Change> changes_of(const std::string& part) {
  if (!part.starts_with("--") && !part.starts_with("-ac.")) return {};
  std::vector<Change> out;
  std::istringstream words(part.substr(0, part.find(": ")));
  for (std::string word; words >> word;) {
    if (word.starts_with("-ac.")) {
      const size_t equals = word.find('=');
      out.push_back({word.substr(0, equals), word.substr(equals + 1)});
    } else {
      out.push_back({word, ""});
      if (!(words >> out.back().value)) out.back().value = "";
    }
  }
  return out;
}

std::vector<std::string> parts_of(const std::string& fix) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= fix.size();) {
    const size_t end = std::min(fix.find("; ", at), fix.size());
    parts.push_back(fix.substr(at, end - at));
    at = end + 2;
  }
  return parts;
}

/// Returns false for a setting outside the selection, which changes a requirement of the model or the run.
bool apply(const Change& change, Setup& s) {
  AttentionConfig& c = s.config;
  const std::string& v = change.value;
  const std::string& key = change.setting;
  if (key == "--attention-backend") return c.backend = v, true;
  if (key == "--prefill-attention-backend") return c.prefill_backend = v, true;
  if (key == "--decode-attention-backend") return c.decode_backend = v, true;
  if (key.starts_with(kPerKind))
    return c.backend_per_kind[*parse_layer_kind(key.substr(kPerKind.size()))] = v, true;
  if (key == "-ac.flash_attn_version" && v.size() == 1) return c.flash_attn_version = v[0] - '0', true;
  if (key == "-ac.use_trtllm_attention") return c.use_trtllm_attention = v == "1", true;
  if (key == "-ac.mla_prefill_backend") return c.mla_prefill_backend = v, true;
  if (key == "--page-size") return c.page_size = std::stoi(v), true;
  for (AttentionSpec& spec : s.specs) {
    if (key == "--dtype") spec.dtype = *parse_dtype(v);
    if (key == "--kv-cache-dtype") spec.kv_dtype = *parse_kv_cache_dtype(v);
    if (key == "--kv-layout") spec.kv_x_packed = false;
  }
  return key == "--dtype" || key == "--kv-cache-dtype" || key == "--kv-layout";
}

const PhaseSelection& phase_of(const Selection& s, LayerKind kind, Phase phase) {
  return std::ranges::find(s.kinds, kind, &KindSelection::kind)->of(phase);
}

class Fixes {
 public:
  Fixes(const BackendRegistry& registry) : registry_(registry) {}

  /// Tries every fix of a selection that found no backend.
  void check(const Setup& setup) {
    const auto selection = consider(setup.config, setup.specs, setup.device, registry_);
    if (!selection) return;  // invalid settings: no candidates were considered
    for (const KindSelection& kind : selection->kinds)
      for (const Phase phase : {Phase::prefill, Phase::decode}) {
        if (kind.kind == LayerKind::encoder && phase == Phase::decode) continue;
        if (kind.of(phase).backend != nullptr) continue;
        for (const Candidate& candidate : kind.of(phase).candidates)
          check_candidate(setup, kind.kind, phase, candidate);
      }
  }

  int tried = 0;

 private:
  void check_candidate(const Setup& setup, LayerKind kind, Phase phase, const Candidate& candidate) {
    Setup all = setup;  // with every setting that the reasons name for this backend
    bool settings = false, only_settings = true;
    for (const Reason& reason : candidate.reasons)
      for (const std::string& part : parts_of(reason.fix)) {
        const auto changes = changes_of(part);
        if (changes.empty()) continue;
        const bool other = part.find("serves it here") != part.npos ||
                           part.find("supports it") != part.npos ||
                           part.find("is for this device") != part.npos || part.find("MLA form") != part.npos;
        if (other) {
          check_other(setup, kind, phase, candidate, part, changes);
        } else {
          settings = true;
          for (const Change& change : changes)
            only_settings = apply(change, all) && only_settings;
        }
      }
    if (!settings || !only_settings) return;
    ++tried;
    const auto after = consider(all.config, all.specs, all.device, registry_);
    ASSERT_TRUE(after.ok()) << describe(setup, candidate) << after.error().message;
    for (const Candidate& again : phase_of(*after, kind, phase).candidates) {
      if (again.backend != candidate.backend) continue;
      for (const Reason& reason : again.reasons)
        EXPECT_TRUE(reason.text.starts_with("not in this build") || reason.text.ends_with(": not documented"))
            << describe(setup, candidate) << "then: " << reason.text;
    }
  }

  void check_other(const Setup& setup, LayerKind kind, Phase phase, const Candidate& candidate,
                   const std::string& part, const std::vector<Change>& changes) {
    Setup changed = setup;
    for (const Change& change : changes)
      ASSERT_TRUE(apply(change, changed)) << part;
    ++tried;
    const auto after = consider(changed.config, changed.specs, changed.device, registry_);
    ASSERT_TRUE(after.ok()) << describe(setup, candidate) << part << "\nthen: " << after.error().message;
    const PhaseSelection& now = phase_of(*after, kind, phase);
    if (part.ends_with("not in this build"))
      EXPECT_TRUE(now.backend != nullptr || now.if_built != nullptr) << describe(setup, candidate) << part;
    else
      EXPECT_NE(now.backend, nullptr)
          << describe(setup, candidate) << part << "\nthen: " << now.error.message;
  }

  static std::string describe(const Setup& s, const Candidate& candidate) {
    std::string out = fovea::describe(s.device) + ", " + s.config.backend + "|" + s.config.prefill_backend +
                      "|" + s.config.decode_backend + " page " +
                      std::to_string(s.config.page_size.value_or(0)) + " version " +
                      std::to_string(s.config.flash_attn_version.value_or(0)) + " heads of " +
                      std::to_string(s.specs.front().head_dim) + "; " + candidate.backend->label() + ":\n";
    for (const Reason& reason : candidate.reasons)
      out += "  " + reason.text + "; fix: " + reason.fix + "\n";
    return out;
  }

  const BackendRegistry& registry_;
};

std::vector<std::vector<AttentionSpec>> models() {
  AttentionSpec window = llama_8b_spec(), sink = llama_8b_spec(), alibi = llama_8b_spec(),
                fp8 = llama_8b_spec(), odd = llama_8b_spec(), packed = llama_8b_spec(),
                encoder = llama_8b_spec(), mla = llama_8b_spec(), linear = llama_8b_spec();
  window.mask.window_left = 1023;
  sink.has_sink = true;
  sink.head_dim = sink.v_head_dim = 64;
  alibi.has_alibi = true;
  fp8.kv_dtype = KvCacheDType::fp8_e5m2;
  odd.dtype = DType::f32;
  odd.head_dim = odd.v_head_dim = 20;
  packed.kv_x_packed = true;
  encoder.type = AttentionType::encoder_only;
  encoder.mask.causal = false;
  mla.use_mla = true;
  mla.num_heads = 128;
  mla.num_kv_heads = 1;
  mla.head_dim = 576;
  mla.v_head_dim = 512;
  mla.mla_nope_head_dim = 128;
  mla.mla_rope_head_dim = 64;
  mla.mla_v_head_dim = 128;
  linear.linear = LinearAttention::gated_delta;
  AttentionSpec cpu = llama_8b_spec();
  cpu.dtype = DType::f32;
  return {{llama_8b_spec()}, {cpu}, {llama_8b_spec(), window}, {sink}, {alibi}, {fp8}, {odd}, {packed},
          {encoder},         {mla}, {llama_8b_spec(), linear}};
}

std::vector<AttentionConfig> settings() {
  std::vector<AttentionConfig> all = {{}};
  for (const char* name :
       {"fa", "fa2", "fa3", "fa4", "fi", "triton", "cpu_attn", "TREE_ATTN", "fa,fi", "fa,cpu_attn", "fa3,fi",
        "trtllm_mla", "prefill=fa3,decode=fi", "full=fa3", "FLASHMLA"})
    all.push_back({.backend = name});
  all.push_back({.prefill_backend = "fa3"});
  all.push_back({.decode_backend = "fa3"});
  all.push_back({.backend = "fa", .decode_backend = "fi"});
  all.push_back({.backend_per_kind = {{LayerKind::full, "fa3"}}});
  all.push_back({.backend_per_kind = {{LayerKind::full, "fa3,fi"}}});
  // Versions and page sizes, with and without names that pin a version.
  for (const AttentionConfig& named :
       {AttentionConfig{}, AttentionConfig{.backend = "fa3"}, AttentionConfig{.backend = "fa3,fi"},
        AttentionConfig{.backend = "fi"}, AttentionConfig{.decode_backend = "fa3"}})
    for (const auto& [page, version, trtllm] :
         {std::tuple{7, 0, -1}, std::tuple{0, 2, -1}, std::tuple{0, 3, -1}, std::tuple{0, 0, 1}}) {
      AttentionConfig c = named;
      if (page > 0) c.page_size = page;
      if (version > 0) c.flash_attn_version = version;
      if (trtllm >= 0) c.use_trtllm_attention = trtllm == 1;
      all.push_back(std::move(c));
    }
  return all;
}

class EveryFix : public ::testing::TestWithParam<bool> {};

TEST_P(EveryFix, HoldsWhereItIsGiven) {
  Fixes fixes(GetParam() ? project_backends() : builtin_backends());
  for (const std::string_view name : {"cpu", "sm80", "sm90", "sm100", "rocm"})
    for (const auto& specs : models())
      for (const AttentionConfig& config : settings()) {
        fixes.check({config, specs, *parse_device(name)});
        if (HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) return;
      }
  EXPECT_GT(fixes.tried, 1000);
}

INSTANTIATE_TEST_SUITE_P(Registries, EveryFix, ::testing::Bool(),
                         [](const auto& test) { return std::string(test.param ? "project" : "builtin"); });

}  // namespace
}  // namespace fovea
