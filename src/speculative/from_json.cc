// vLLM's --speculative-config.
#include <algorithm>
#include <array>
#include <cctype>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/edit_distance.h"
#include "base/log.h"
#include "files/json_fields.h"
#include "speculative/launch.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr char kFlag[] = "--speculative-config";
constexpr char kMethods[] = "ngram, suffix, draft_model, eagle, eagle3 and mtp are built";
/// vLLM's draft length where suffix decoding has none: what a match of the deepest tree allows.
constexpr int kSuffixDrafts = kMaxDrafts;

/// Keys that change nothing here, whatever their value, and why.
struct WithoutEffect {
  const char *key, *why;
};
constexpr std::array<WithoutEffect, 4> kWithoutEffect = {{
    {"disable_padded_drafter_batch", "drafts of all sequences are made in one batch without padding"},
    {"disable_eagle_block_drop", "a cached prefix is used whole, with a head too"},
    {"use_local_argmax_reduction", "one device computes the drafter's logits"},
    {"prompt_lookup_num_threads", "an index looks drafts up, in a microsecond"},
}};

/// Keys that only some methods read.
struct OfMethods {
  const char* key;
  std::initializer_list<DraftMethod> methods;
};
const OfMethods kOfMethods[] = {
    {"prompt_lookup_min", {DraftMethod::ngram}},
    {"prompt_lookup_max", {DraftMethod::ngram}},
    {"prompt_lookup_num_threads", {DraftMethod::ngram}},
    {"suffix_decoding_max_tree_depth", {DraftMethod::suffix}},
    {"suffix_decoding_max_cached_requests", {DraftMethod::suffix}},
    {"suffix_decoding_max_spec_factor", {DraftMethod::suffix}},
    {"suffix_decoding_min_token_prob", {DraftMethod::suffix}},
    {"attention_backend",
     {DraftMethod::draft_model, DraftMethod::eagle, DraftMethod::eagle3, DraftMethod::mtp}},
    {"max_model_len", {DraftMethod::draft_model, DraftMethod::eagle, DraftMethod::eagle3, DraftMethod::mtp}},
};

/// Keys read below.
constexpr std::array kRead = {"method",
                              "model",
                              "num_speculative_tokens",
                              "draft_tensor_parallel_size",
                              "tensor_parallel_size",
                              "quantization",
                              "max_model_len",
                              "revision",
                              "code_revision",
                              "attention_backend",
                              "kv_cache_dtype",
                              "prompt_lookup_min",
                              "prompt_lookup_max",
                              "suffix_decoding_max_tree_depth",
                              "suffix_decoding_max_cached_requests",
                              "suffix_decoding_max_spec_factor",
                              "suffix_decoding_min_token_prob",
                              "parallel_drafting",
                              "use_heterogeneous_vocab",
                              "num_speculative_tokens_per_batch_size",
                              "disable_by_batch_size",
                              "enable_adaptive_verification",
                              "rejection_sample_method",
                              "synthetic_acceptance_length",
                              "synthetic_acceptance_rates",
                              "draft_sample_method",
                              "index_share_for_mtp_iteration",
                              "speculative_token_tree",
                              "acceptance_method",
                              "posterior_threshold",
                              "posterior_alpha",
                              "moe_backend",
                              "disable_logprobs"};

bool known(const std::string& key) {
  return std::ranges::find(kRead, key) != kRead.end() ||
         std::ranges::find(kWithoutEffect, key, &WithoutEffect::key) != kWithoutEffect.end();
}

std::string did_you_mean(const std::string& key) {
  const std::string_view nearest = nearest_name(key, {kRead.begin(), kRead.end()});
  return nearest.empty() ? "; docs/speculative-decoding.md lists them"
                         : "; did you mean \"" + std::string(nearest) + "\"?";
}

/// Reads the object, key by key.
class Reader {
 public:
  explicit Reader(const Json& object) : fields_(object, kFlag, status_) {}

  Result<SpeculativeConfig> read() {
    refuse_what_differs();
    read_method();
    refuse_keys_of_others();
    read_tokens();
    read_ngram();
    read_suffix();
    read_draft_model();
    read_synthetic();
    FOVEA_RETURN_IF_ERROR(status_);
    if (const Status valid = validate(config_); !valid)
      return invalid(std::string(kFlag) + ": " + valid.error().message);
    for (const WithoutEffect& without : kWithoutEffect)
      if (fields_.find(without.key) != nullptr) note(without.key, without.why);
    if (fields_.is("draft_sample_method", "probabilistic"))
      note("draft_sample_method", "drafts are the drafter's most probable tokens");
    return config_;
  }

 private:
  static void note(const char* key, const char* why) {
    FOVEA_LOG(warning) << kFlag << ": " << key << " changes nothing here: " << why;
  }

  void refuse_unless(const char* key, const Json& value, const std::string& help) {
    const Json* given = fields_.find(key);
    if (given != nullptr && *given != value) fields_.refuse(key, help);
  }

  void refuse_what_differs() {
    constexpr char kLossy[] =
        "it accepts drafts that the model would not have sampled, which changes answers; leave it out";
    for (const char* key : {"posterior_threshold", "posterior_alpha"})
      if (fields_.find(key) != nullptr) fields_.refuse(key, kLossy);
    refuse_unless("acceptance_method", "rejection_sampler", kLossy);
    const Json* method = fields_.find("rejection_sample_method");
    const auto is = [&](const char* name) { return fields_.is("rejection_sample_method", name); };
    if (method != nullptr && !is("standard") && !is("strict") && !is("block") && !is("probabilistic") &&
        !is("synthetic"))
      fields_.refuse(
          "rejection_sample_method",
          "allowed are standard, block (both accept a draft exactly if it is what the model samples "
          "there) and synthetic");
    if (const Json* sample = fields_.find("draft_sample_method");
        sample != nullptr && *sample != "greedy" && *sample != "probabilistic")
      fields_.refuse("draft_sample_method", "allowed are greedy and probabilistic");
    if (fields_.find("tensor_parallel_size") != nullptr)
      fields_.refuse("tensor_parallel_size", "the key is draft_tensor_parallel_size, and one device runs it");
    refuse_unless("draft_tensor_parallel_size", 1, "one device runs the drafter; leave it out or give 1");
    if (fields_.find("speculative_token_tree") != nullptr) fields_.refuse("speculative_token_tree", kNoTrees);
    refuse_unless("parallel_drafting", false, "drafters that draft all tokens in one pass are not built");
    refuse_unless("use_heterogeneous_vocab", false, "a draft model needs the target's tokens");
    refuse_unless("index_share_for_mtp_iteration", false,
                  "each draft attends to all keys; leave it out or give false");
    refuse_unless("moe_backend", "auto", "experts of a drafter are computed as the model's; leave it out");
    refuse_unless("disable_logprobs", false,
                  "log probabilities are those without drafts, bit for bit; leave it out");
    refuse_unless("quantization", "auto", "the draft model's config.json says how it is quantised");
    for (const char* key : {"revision", "code_revision"})
      if (fields_.find(key) != nullptr) fields_.refuse(key, "give the folder of the revision as \"model\"");
    refuse_unless("kv_cache_dtype", "auto", "the draft model's KV cache has the dtype of --kv-cache-dtype");
  }

  /// vLLM's guess where no method is given.
  static std::string method_of(std::string model) {
    std::ranges::transform(model, model.begin(), [](unsigned char c) { return std::tolower(c); });
    if (model.find("eagle3") != std::string::npos) return "eagle3";
    return model.find("eagle-") != std::string::npos ? "eagle" : "draft_model";
  }

  void read_method() {
    config_.model = fields_.string("model", "");
    std::string method = fields_.string("method", "");
    // Older versions named the method as the model.
    const bool named_by_model = config_.model == "ngram" || config_.model == "[ngram]" ||
                                config_.model == "suffix" || config_.model == "ngram_gpu";
    if (named_by_model) {
      const std::string named = std::exchange(config_.model, "");
      if (method.empty()) method = named;
    }
    if (method.empty() && !config_.model.empty()) method = method_of(config_.model);
    config_.ngram_on_device = method == "ngram_gpu";
    if (method == "ngram" || method == "[ngram]" || config_.ngram_on_device)
      config_.method = DraftMethod::ngram;
    else if (method == "suffix")
      config_.method = DraftMethod::suffix;
    else if (method == "draft_model")
      config_.method = DraftMethod::draft_model;
    else if (method == "eagle")
      config_.method = DraftMethod::eagle;
    else if (method == "eagle3")
      config_.method = DraftMethod::eagle3;
    else if (method == "mtp" || method.ends_with("_mtp"))  // vLLM's older names have the family's in front
      config_.method = DraftMethod::mtp;
    else if (method.empty())
      fields_.refuse("method", kMethods);
    else
      fields_.refuse("method", std::string("that method is not built; ") + kMethods);
  }

  void refuse_keys_of_others() {
    if (!config_.enabled()) return;
    for (const OfMethods& of : kOfMethods) {
      if (fields_.find(of.key) == nullptr ||
          std::ranges::find(of.methods, config_.method) != of.methods.end())
        continue;
      std::string names;
      for (const DraftMethod method : of.methods)
        names += (names.empty() ? "" : ", ") + std::string(to_string(method));
      fields_.refuse(of.key, "the method " + std::string(to_string(config_.method)) +
                                 " has no use for it, only " + names + "; leave it out");
    }
  }

  static constexpr int kMostSequences = 1 << 20;
  static bool is_count(const Json& value) {
    return value.is_number_integer() && value >= 0 && value <= kMostSequences;
  }

  void read_tokens() {
    const bool suffix = config_.method == DraftMethod::suffix;
    std::optional<int64_t> fallback;
    if (suffix) fallback = kSuffixDrafts;
    if (config_.method == DraftMethod::mtp) fallback = 1;
    const Json* given = fields_.find("num_speculative_tokens");
    if (given == nullptr ? !fallback : !is_count(*given) || *given == 0)
      fields_.refuse("num_speculative_tokens",
                     "give the drafts of a step, an integer from 1 to " + std::to_string(kMaxDrafts));
    config_.num_tokens = fields_.small("num_speculative_tokens", 1, 1 << 20, fallback);
    if (suffix) config_.num_tokens = std::min(config_.num_tokens, kMaxDrafts);
    if (const Json* rules = fields_.find("num_speculative_tokens_per_batch_size")) {
      for (const Json& rule : *rules) {
        if (!rule.is_array() || rule.size() != 3 || !std::ranges::all_of(rule, is_count)) {
          fields_.refuse("num_speculative_tokens_per_batch_size",
                         "a list of [from, to, tokens] is needed, all integers from 0 to " +
                             std::to_string(kMostSequences));
          break;
        }
        config_.by_batch.push_back({rule[0].get<int>(), rule[1].get<int>(), rule[2].get<int>()});
      }
    }
    config_.adaptive = fields_.boolean("enable_adaptive_verification", config_.adaptive);
    if (fields_.find("disable_by_batch_size") != nullptr)
      config_.by_batch.push_back(
          {fields_.small("disable_by_batch_size", 1, kMostSequences), kMostSequences, 0});
  }

  void read_ngram() {
    const bool min = fields_.find("prompt_lookup_min") != nullptr,
               max = fields_.find("prompt_lookup_max") != nullptr;
    if (min) config_.prompt_lookup_min = fields_.small("prompt_lookup_min", 1, 64);
    if (max) config_.prompt_lookup_max = fields_.small("prompt_lookup_max", 1, 64);
    // One that is missing equals the other.
    if (min && !max) config_.prompt_lookup_max = config_.prompt_lookup_min;
    if (max && !min) config_.prompt_lookup_min = config_.prompt_lookup_max;
  }

  void read_suffix() {
    SpeculativeConfig& c = config_;
    c.suffix_max_tree_depth = fields_.small("suffix_decoding_max_tree_depth", 2, 64, c.suffix_max_tree_depth);
    c.suffix_max_cached_requests =
        fields_.small("suffix_decoding_max_cached_requests", 0, 1 << 20, c.suffix_max_cached_requests);
    c.suffix_max_spec_factor =
        fields_.number("suffix_decoding_max_spec_factor", 0, 1e6, c.suffix_max_spec_factor);
    c.suffix_min_token_prob = fields_.number("suffix_decoding_min_token_prob", 0, 1, c.suffix_min_token_prob);
  }

  void read_draft_model() {
    config_.attention_backend = fields_.string("attention_backend", "");
    if (fields_.find("max_model_len") != nullptr)
      config_.max_model_len = fields_.small("max_model_len", 1, 1 << 30);
  }

  void read_synthetic() {
    const bool synthetic = fields_.is("rejection_sample_method", "synthetic");
    const Json* rates = fields_.find("synthetic_acceptance_rates");
    const Json* length = fields_.find("synthetic_acceptance_length");
    if (!synthetic) {
      for (const char* key : {"synthetic_acceptance_rates", "synthetic_acceptance_length"})
        if (fields_.find(key) != nullptr)
          fields_.refuse(key, "it needs \"rejection_sample_method\": \"synthetic\", a load test");
      return;
    }
    if ((rates == nullptr) == (length == nullptr)) {
      fields_.refuse("rejection_sample_method",
                     "give either synthetic_acceptance_length or synthetic_acceptance_rates with it");
    } else if (length != nullptr) {
      const auto made =
          synthetic_rates_of(fields_.number("synthetic_acceptance_length", 0, 1e6), config_.num_tokens);
      if (made)
        config_.synthetic_rates = *made;
      else
        fields_.refuse("synthetic_acceptance_length", made.error().message);
    } else {
      for (const Json& rate : *rates)
        config_.synthetic_rates.push_back(rate.is_number() ? rate.get<double>() : -1);
    }
  }

  Status status_;
  Fields fields_;
  SpeculativeConfig config_;
};

}  // namespace

Result<SpeculativeConfig> speculative_from_json(std::string_view json) {
  FOVEA_TRY(object, parse_json_object(json, kFlag));
  for (const auto& [key, value] : object.items())
    if (!known(key))
      return invalid(std::string(kFlag) + ": \"" + key + "\" is no key of it" + did_you_mean(key));
  return Reader(object).read();
}

}  // namespace fovea
