#include "compat/launch/attention_keys.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/edit_distance.h"
#include "base/json_depth.h"
#include "base/printable.h"
#include "base/same_name.h"
#include "fovea/attention.h"

namespace fovea {
namespace {

using nlohmann::json;

constexpr size_t kMaxText = 1 << 16;  // a configuration has a few hundred characters
constexpr std::string_view kSwitch = "0, 1, true, false";

std::string in_quotes(std::string_view text) {
  return "\"" + printable(text) + "\"";
}

template <std::optional<bool> AttentionConfig::* field>
Status set_switch(AttentionConfig& config, const std::string& value) {
  config.*field = parse_switch(value);
  if (!(config.*field)) return invalid("allowed are " + std::string(kSwitch));
  return {};
}

template <BackendName AttentionConfig::* field>
Status set_name(AttentionConfig& config, const std::string& value) {
  if (value.empty()) return invalid("the name is empty; leave the key out for an automatic choice");
  config.*field = value;
  return {};
}

template <std::optional<int> AttentionConfig::* field, int first, int last>
Status set_integer(AttentionConfig& config, const std::string& value) {
  int number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number < first || number > last)
    return invalid("allowed are integers from " + std::to_string(first) + " to " + std::to_string(last));
  config.*field = number;
  return {};
}

Status set_page_override(AttentionConfig& config, const std::string& value) {
  const auto on = parse_switch(value);
  if (!on) return invalid("allowed are " + std::string(kSwitch));
  config.allow_page_override = *on;
  return {};
}

Status set_kind(AttentionConfig& config, std::string_view name, const std::string& backend) {
  const auto kind = parse_layer_kind(name);
  if (!kind) return unknown_layer_kind(printable(name));
  if (backend.empty()) return invalid("the backend of " + std::string(name) + " is empty; give a name");
  if (!config.backend_per_kind.emplace(*kind, backend).second)
    return invalid("the kind " + std::string(to_string(*kind)) + " is given twice; give it once");
  return {};
}

/// Parses a JSON object into its members; duplicate keys are errors.
Result<std::vector<std::pair<std::string, json>>> read_object(const std::string& text) {
  if (text.size() > kMaxText)
    return invalid("the JSON has " + std::to_string(text.size()) + " bytes; at most " +
                   std::to_string(kMaxText) + " are read");
  if (json_nests_deeper(text, 8)) return invalid("the JSON nests too deep");
  bool twice = false;
  std::string repeated;
  std::vector<std::vector<std::string>> seen;
  const json::parser_callback_t watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) seen.emplace_back();
    if (event == json::parse_event_t::object_end) seen.pop_back();
    if (event == json::parse_event_t::key) {
      const std::string& key = value.get_ref<const std::string&>();
      if (std::ranges::find(seen.back(), key) != seen.back().end()) twice = true, repeated = key;
      seen.back().push_back(key);
    }
    return true;
  };
  const json parsed = json::parse(text, watch, /*allow_exceptions=*/false);
  if (!parsed.is_object())
    return invalid(in_quotes(text) + " is not a JSON object; give {\"KEY\": VALUE, ...}, in single quotes");
  if (twice) return invalid("the key " + in_quotes(repeated) + " is given twice; give it once");
  std::vector<std::pair<std::string, json>> items;
  for (const auto& [key, value] : parsed.items())
    items.emplace_back(key, value);
  return items;
}

/// A JSON value in the form of a flag's text; nullopt for objects and lists.
std::optional<std::string> as_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || value.is_number()) return value.dump();
  return std::nullopt;
}

Status set_per_kind(AttentionConfig& config, const std::string& value) {
  FOVEA_TRY(items, read_object(value));
  for (const auto& [kind, backend] : items) {
    if (!backend.is_string())
      return invalid("the backend of " + in_quotes(kind) + " must be a name in quotes");
    FOVEA_RETURN_IF_ERROR(set_kind(config, kind, backend.get<std::string>()));
  }
  return {};
}

constexpr std::string_view kFp8Query = "fp8 query kernels are not built";
constexpr std::string_view kGraphSplits = "steps are not captured into CUDA graphs";
constexpr std::string_view kFlex =
    "blocks of FLEX_ATTENTION have one size, so that a row has the same bits in all";
constexpr std::string_view kIndexer =
    "index keys of sparse MLA are e4m3 where the cache or the checkpoint has 8 bits, else of the cache's "
    "type";

std::vector<AttentionKey> make_keys() {
  using enum KeyStatus;
  using C = AttentionConfig;
  std::vector<AttentionKey> keys = {
      {"backend",
       "a name, auto, \"PREFILL,DECODE\", or \"prefill=A,decode=B,swa=C\"",
       acts,
       "the backend; mutually exclusive with --attention-backend",
       {},
       set_name<&C::backend>},
      {"prefill_backend",
       "a name or auto",
       acts,
       "the backend of the prefill phase",
       {},
       set_name<&C::prefill_backend>},
      {"decode_backend",
       "a name or auto",
       acts,
       "the backend of the decode phase",
       {},
       set_name<&C::decode_backend>},
      {"backend_per_kind",
       "a JSON object {\"swa\": \"triton\"}, or .KIND NAME",
       acts,
       "the backend of one layer kind",
       {},
       set_per_kind},
      {"page_size", "a positive integer", acts, "--page-size", {}, set_integer<&C::page_size, 1, 1 << 20>},
      {"allow_page_override",
       kSwitch,
       acts,
       "lets a backend change the page size, and reports it",
       {},
       set_page_override},
      {"flash_attn_version",
       "2, 3, 4",
       acts,
       "the FlashAttention version that FLASH_ATTN uses",
       {},
       set_integer<&C::flash_attn_version, 2, 4>},
      {"use_trtllm_attention",
       kSwitch,
       acts,
       "TRTLLM kernels (1) or native kernels (0) in FLASHINFER",
       {},
       set_switch<&C::use_trtllm_attention>},
      {"flashinfer_use_tensor_cores",
       kSwitch,
       acts,
       "decode on tensor cores in FLASHINFER; default: from 4 query heads per KV head",
       {},
       set_switch<&C::flashinfer_use_tensor_cores>},
      {"mla_prefill_backend",
       "the name of an MLA prefill backend",
       acts,
       "MLA prefill backend",
       {},
       set_name<&C::mla_prefill_backend>},
      {"use_prefill_decode_attention",
       kSwitch,
       acts,
       "separate prefill and decode kernels in ROCM_ATTN",
       {},
       set_switch<&C::use_prefill_decode_attention>},
      {"use_non_causal",
       kSwitch,
       acts,
       "removes the causal mask of decoder layers",
       {},
       set_switch<&C::use_non_causal>},
      {"batch_invariant",
       kSwitch,
       acts,
       "requires batch invariance; other backends are refused",
       {},
       set_switch<&C::batch_invariant>},
      {"use_trtllm_ragged_deepseek_prefill",
       kSwitch,
       deprecated,
       "use mla_prefill_backend TRTLLM_RAGGED (1), or another name (0)",
       {},
       set_switch<&C::use_trtllm_ragged_deepseek_prefill>},
      {"disable_flashinfer_prefill",
       kSwitch,
       deprecated,
       "use mla_prefill_backend FLASHINFER (0), or another name (1)",
       {},
       set_switch<&C::disable_flashinfer_prefill>},
      {"use_cudnn_prefill",
       kSwitch,
       deprecated,
       "use mla_prefill_backend CUDNN (1), or another name (0)",
       {},
       set_switch<&C::use_cudnn_prefill>},
  };
  const auto refuse = [&](std::string_view name, std::string_view allowed, std::string_view text,
                          std::vector<std::string_view> neutral) {
    keys.push_back({name, allowed, refused, text, std::move(neutral)});
  };
  refuse("disable_flashinfer_q_quantization", kSwitch, kFp8Query, {"1", "true"});
  refuse("use_prefill_query_quantization", kSwitch, kFp8Query, {"0", "false"});
  refuse("flash_attn_max_num_splits_for_cuda_graph", "an integer", kGraphSplits, {"32"});
  refuse("tq_max_kv_splits_for_cuda_graph", "an integer", kGraphSplits, {"32"});
  for (const std::string_view name :
       {"flex_attn_block_m", "flex_attn_block_n", "flex_attn_q_block_size", "flex_attn_kv_block_size"})
    refuse(name, "an integer", kFlex, {});
  refuse("use_fp4_indexer_cache", kSwitch, kIndexer, {"0", "false"});
  refuse("indexer_kv_dtype", "bf16, fp8, mxfp4, nvfp4", kIndexer, {});
  refuse("sparse_mla_force_mqa", kSwitch, "sparse MLA is absorbed in both phases", {"0", "false"});
  refuse("minimax_m3_msa_decode_backend", "triton, cutlass",
         "MiniMax M3's block-sparse kernels are not built", {});
  return keys;
}

const AttentionKey* find_key(std::string_view name) {
  const auto keys = attention_keys();
  const auto at = std::ranges::find(keys, name, &AttentionKey::name);
  return at == keys.end() ? nullptr : &*at;
}

Error unknown_key(std::string_view name) {
  std::vector<std::string_view> names;
  std::string all;
  for (const AttentionKey& key : attention_keys()) {
    names.push_back(key.name);
    all.append(all.empty() ? "" : ", ").append(key.name);
  }
  const std::string_view near = nearest_name(name, names);
  return invalid("the key " + in_quotes(name) + " is unknown" +
                 (near.empty() ? "" : "; did you mean " + std::string(near) + "?") + " Allowed are " + all);
}

class Applier {
 public:
  Applier(AttentionConfig& config, std::vector<FlagNote>& notes) : config_(config), notes_(notes) {}

  Status json_argument(const AttentionArgument& argument) {
    auto items = read_object(argument.value);
    if (!items) return invalid(argument.name() + ": " + items.error().message);
    for (const auto& [key, value] : *items) {
      const std::string where = argument.name() + " " + printable(key);
      if (value.is_null()) {  // ignored, except that an unknown key is an error
        if (find_key(key) == nullptr) return invalid(argument.name() + ": " + unknown_key(key).message);
        continue;
      }
      const bool nested = value.is_object() && key == "backend_per_kind";
      const auto text = nested ? std::optional(value.dump()) : as_text(value);
      if (!text)
        return invalid(where + " is " + printable(value.dump(-1, ' ', true, json::error_handler_t::replace)) +
                       "; give a string, a number or a boolean");
      FOVEA_RETURN_IF_ERROR(apply(where, key, *text));
    }
    return {};
  }

  Status dotted(const AttentionArgument& argument) {
    const std::string name = argument.spelling + "." + printable(argument.path);
    constexpr std::string_view kPerKind = "backend_per_kind.";
    if (argument.path.starts_with(kPerKind)) {
      const Status set =
          set_kind(config_, std::string_view(argument.path).substr(kPerKind.size()), argument.value);
      if (!set) return invalid(name + " " + printable(argument.value) + ": " + set.error().message);
      config_.sources["backend_per_kind"] = argument.spelling + ".backend_per_kind";
      return {};
    }
    return apply(name, argument.path, argument.value);
  }

 private:
  /// `where` is the spelling that the user wrote: the key's source, and the prefix of errors.
  Status apply(const std::string& where, const std::string& name, const std::string& value) {
    const AttentionKey* key = find_key(name);
    if (key == nullptr)
      return invalid(where.substr(0, where.find_first_of(". ")) + ": " + unknown_key(name).message);
    const std::string shown = where + " " + printable(value);
    if (key->status == KeyStatus::refused) {
      const auto same = [&](std::string_view neutral) { return same_name(neutral, value); };
      const bool nothing = std::ranges::any_of(key->neutral, same);
      notes_.push_back({nothing ? FlagVerdict::noted : FlagVerdict::refused, shown,
                        nothing ? "already the default" : std::string(key->text)});
      return {};
    }
    if (const auto before = config_.sources.find(name); before != config_.sources.end())
      return conflict(*key, before->second, where);
    if (const Status set = key->set(config_, value); !set) return invalid(shown + ": " + set.error().message);
    config_.sources[name] = where;
    return {};
  }

  static Error conflict(const AttentionKey& key, const std::string& before, const std::string& where) {
    if (before.starts_with("-ac") || before.starts_with("--attention-config"))
      return invalid(where + " is given twice; give it once");
    if (key.name == "backend")
      return invalid("attention_backend and attention_config.backend are mutually exclusive: " + before +
                     " and " + where + " were given");
    return invalid(before + " and " + where + " are mutually exclusive; give one of them");
  }

  AttentionConfig& config_;
  std::vector<FlagNote>& notes_;
};

}  // namespace

std::optional<bool> parse_switch(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const std::string_view on : {"1", "true", "yes", "on"})
    if (lower == on) return true;
  for (const std::string_view off : {"0", "false", "no", "off"})
    if (lower == off) return false;
  return std::nullopt;
}

std::span<const AttentionKey> attention_keys() {
  static const std::vector<AttentionKey> keys = make_keys();
  return keys;
}

Status apply_attention_arguments(const std::vector<AttentionArgument>& arguments, AttentionConfig& config,
                                 std::vector<FlagNote>& notes) {
  if (arguments.empty()) return {};
  const AttentionArgument& first = arguments.front();
  for (const AttentionArgument& argument : arguments) {
    if (argument.spelling != first.spelling)
      return invalid(first.name() + " and " + argument.name() +
                     " are two spellings of one flag; write all of them as -ac or as --attention-config");
    if (argument.path.empty() != first.path.empty())
      return invalid(first.name() + " and " + argument.name() +
                     ": a whole JSON object and dot paths don't mix; write all keys in one of the two forms");
  }
  if (first.path.empty() && arguments.size() > 1)
    return invalid(first.name() + " is given twice; write all keys into one JSON object");
  Applier applier(config, notes);
  for (const AttentionArgument& argument : arguments)
    FOVEA_RETURN_IF_ERROR(argument.path.empty() ? applier.json_argument(argument) : applier.dotted(argument));
  return {};
}

}  // namespace fovea
