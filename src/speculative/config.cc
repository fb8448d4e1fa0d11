#include <algorithm>
#include <cmath>

#include "fovea/speculative.h"

namespace fovea {
namespace {

Status check(const char* key, int value, int least, int most) {
  if (least <= value && value <= most) return {};
  return invalid(std::string(key) + " is " + std::to_string(value) + "; it must be " + std::to_string(least) +
                 " to " + std::to_string(most));
}

/// A number without trailing zeros.
std::string text_of(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

Status check_rules(const SpeculativeConfig& config) {
  for (const SpeculativeConfig::BatchRule& rule : config.by_batch) {
    const std::string key = "num_speculative_tokens_per_batch_size";
    if (rule.from < 1 || rule.to < rule.from)
      return invalid(key + " has the range " + std::to_string(rule.from) + " to " + std::to_string(rule.to) +
                     "; give [from, to, tokens] with 1 <= from <= to");
    FOVEA_RETURN_IF_ERROR(check(key.c_str(), rule.num_tokens, 0, kMaxDrafts));
  }
  return {};
}

Status check_rates(const SpeculativeConfig& config) {
  const std::vector<double>& rates = config.synthetic_rates;
  if (rates.empty()) return {};
  if (rates.size() != static_cast<size_t>(config.num_tokens))
    return invalid("synthetic_acceptance_rates has " + std::to_string(rates.size()) +
                   " entries; give one for each of the " + std::to_string(config.num_tokens) +
                   " num_speculative_tokens");
  double before = 1;
  for (const double rate : rates) {
    if (!(rate >= 0 && rate <= before))
      return invalid("synthetic_acceptance_rates has " + text_of(rate) +
                     "; rates are 0 to 1 and do not ascend, since a draft counts only if those before it do");
    before = rate;
  }
  return {};
}

}  // namespace

std::string_view to_string(DraftMethod method) {
  switch (method) {
    case DraftMethod::none: return "none";
    case DraftMethod::ngram: return "ngram";
    case DraftMethod::suffix: return "suffix";
    case DraftMethod::draft_model: return "draft_model";
    case DraftMethod::eagle: return "eagle";
    case DraftMethod::eagle3: return "eagle3";
    case DraftMethod::mtp: return "mtp";
  }
  return "?";
}

Status validate(const SpeculativeConfig& config) {
  if (!config.enabled()) return {};
  if (config.num_tokens < 1 || config.num_tokens > kMaxDrafts)
    return invalid("num_speculative_tokens is " + std::to_string(config.num_tokens) + "; it must be 1 to " +
                   std::to_string(kMaxDrafts) + ", since a step verifies at most " +
                   std::to_string(kMaxDrafts + 1) + " rows of a sequence");
  if (config.method == DraftMethod::ngram) {
    FOVEA_RETURN_IF_ERROR(check("prompt_lookup_min", config.prompt_lookup_min, 1, 64));
    FOVEA_RETURN_IF_ERROR(check("prompt_lookup_max", config.prompt_lookup_max, 1, 64));
    if (config.prompt_lookup_min > config.prompt_lookup_max)
      return invalid("prompt_lookup_min is " + std::to_string(config.prompt_lookup_min) +
                     ", but prompt_lookup_max is " + std::to_string(config.prompt_lookup_max) +
                     "; the former must not be larger");
  }
  if (config.method == DraftMethod::suffix) {
    FOVEA_RETURN_IF_ERROR(check("suffix_decoding_max_tree_depth", config.suffix_max_tree_depth, 2, 64));
    FOVEA_RETURN_IF_ERROR(
        check("suffix_decoding_max_cached_requests", config.suffix_max_cached_requests, 0, 1 << 20));
    if (!(config.suffix_max_spec_factor > 0))
      return invalid("suffix_decoding_max_spec_factor is " + text_of(config.suffix_max_spec_factor) +
                     "; it must be above 0");
    if (!(config.suffix_min_token_prob >= 0 && config.suffix_min_token_prob <= 1))
      return invalid("suffix_decoding_min_token_prob is " + text_of(config.suffix_min_token_prob) +
                     "; it must be 0 to 1");
  }
  const bool has_folder = config.method == DraftMethod::draft_model || config.method == DraftMethod::eagle ||
                          config.method == DraftMethod::eagle3;
  if (has_folder && config.model.empty())
    return invalid("the method " + std::string(to_string(config.method)) +
                   " needs \"model\": a directory, or a hub id in the local cache");
  if ((config.method == DraftMethod::ngram || config.method == DraftMethod::suffix) && !config.model.empty())
    return invalid("the method " + std::string(to_string(config.method)) +
                   " has \"model\" = " + config.model +
                   "; leave it out, since these drafts need no model, or give the method draft_model");
  if (config.method == DraftMethod::mtp && !config.model.empty())
    return invalid("the method mtp has \"model\" = " + config.model +
                   "; leave it out: the layer is in the model's own checkpoint");
  FOVEA_RETURN_IF_ERROR(check_rules(config));
  return check_rates(config);
}

Result<std::vector<double>> synthetic_rates_of(double length, int drafts) {
  if (!(length >= 1 && length <= drafts + 1))
    return invalid("synthetic_acceptance_length is " + text_of(length) + "; with " + std::to_string(drafts) +
                   " drafts it must be 1 to " + std::to_string(drafts + 1));
  const auto sum = [&](double rate) {
    double total = 0, power = 1;
    for (int i = 0; i < drafts; ++i)
      total += power *= rate;
    return total;
  };
  double low = 0, high = 1;
  for (int i = 0; i < 60; ++i)
    (sum((low + high) / 2) < length - 1 ? low : high) = (low + high) / 2;
  std::vector<double> rates;
  for (int i = 1; i <= drafts; ++i)
    rates.push_back(std::pow(high, i));
  return rates;
}

void SpeculativeCounts::add(int verified, int accepted) {
  if (verified == 0) return;
  ++drafts;
  draft_tokens += verified;
  accepted_tokens += accepted;
  if (accepted_by_position.size() < static_cast<size_t>(verified))
    accepted_by_position.resize(static_cast<size_t>(verified));
  for (int i = 0; i < accepted; ++i)
    ++accepted_by_position[static_cast<size_t>(i)];
}

}  // namespace fovea
