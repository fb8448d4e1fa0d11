#include <algorithm>
#include <string>

#include "attention/batch_check.h"
#include "base/check.h"
#include "fovea/attention.h"
#include "fovea/attention_backend.h"

namespace fovea {
namespace {

using Entry = BackendRegistry::Entry;

/// What the user asked of one phase.
struct Request {
  std::string name;  ///< empty = automatic
  std::string from;  ///< the setting it came from
};

struct Requests {
  Request prefill, decode;
};

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (const std::string& item : items) {
    if (!out.empty()) out += separator;
    out += item;
  }
  return out;
}

std::string trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ')
    text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ')
    text.remove_suffix(1);
  return std::string(text);
}

bool is_auto(std::string_view name) {
  return name.size() == 4 && (name[0] | 32) == 'a' && (name[1] | 32) == 'u' && (name[2] | 32) == 't' &&
         (name[3] | 32) == 'o';
}

Result<Requests> split_pair(const std::string& given) {
  const size_t comma = given.find(',');
  const std::string quoted = "attention backend '" + given + "'";
  if (given.find(',', comma + 1) != std::string::npos)
    return invalid(quoted + " has more than one comma; a pair is 'PREFILL,DECODE'");
  Requests r{{trim(given.substr(0, comma)), "--attention-backend"},
             {trim(given.substr(comma + 1)), "--attention-backend"}};
  if (r.prefill.name.empty() || r.decode.name.empty())
    return invalid(quoted + " lacks its " + (r.prefill.name.empty() ? "prefill" : "decode") +
                   " half; name both as 'PREFILL,DECODE', or give one name for both phases");
  if (is_auto(r.prefill.name) || is_auto(r.decode.name))
    return invalid(quoted + " has 'auto' in a pair; to choose one phase and leave the other automatic use " +
                   "--prefill-attention-backend or --decode-attention-backend alone");
  return r;
}

bool same_backend(const std::string& a, const std::string& b, const BackendRegistry& registry) {
  const Entry* entry = registry.find(a);
  return a == b || (entry != nullptr && entry == registry.find(b));
}

Status override_phase(Request& request, const std::string& given, const char* flag, bool pair,
                      const BackendRegistry& registry) {
  if (given.empty()) return {};
  if (given.find(',') != std::string::npos)
    return invalid(std::string(flag) + " '" + given +
                   "' must be one name; a pair goes to --attention-backend");
  if (pair && !same_backend(request.name, given, registry))
    return invalid(std::string(flag) + " '" + given + "' contradicts '" + request.name +
                   "' of the pair in --attention-backend; give only one of them");
  request = {is_auto(given) ? "" : given, flag};
  return {};
}

Result<Requests> read_requests(const AttentionConfig& config, const BackendRegistry& registry) {
  Requests r;
  const bool pair = config.backend.find(',') != std::string::npos;
  if (pair) {
    FOVEA_TRY(both, split_pair(config.backend));
    r = both;
  } else if (!config.backend.empty() && !is_auto(config.backend)) {
    r.prefill = r.decode = {config.backend, "--attention-backend"};
  }
  FOVEA_RETURN_IF_ERROR(
      override_phase(r.prefill, config.prefill_backend, "--prefill-attention-backend", pair, registry));
  FOVEA_RETURN_IF_ERROR(
      override_phase(r.decode, config.decode_backend, "--decode-attention-backend", pair, registry));
  return r;
}

/// ['a', 'b'], as Python prints a list.
std::string quoted_list(const std::vector<Reason>& reasons) {
  std::string out = "[";
  for (const Reason& r : reasons) {
    if (out.size() > 1) out += ", ";
    out.append("'").append(r.text).append("'");
  }
  return out + "]";
}

std::vector<std::string> built_names(const BackendRegistry& registry) {
  std::vector<std::string> names;
  for (const Entry& entry : registry.entries())
    if (entry.info->absent.empty()) names.emplace_back(entry.info->name);
  return names;
}

Error unknown_backend(const std::string& name, const BackendRegistry& registry) {
  std::vector<std::string> names;
  for (const Entry& entry : registry.entries())
    names.emplace_back(entry.info->name);
  std::string message =
      "Unknown attention backend: '" + name + "'. Valid options are: auto, " + join(names, ", ") + ".";
  if (const std::string_view near = registry.nearest(name); !near.empty())
    message += " Did you mean '" + std::string(near) + "'?";
  return invalid(message);
}

Error not_valid(const BackendInfo& info, const std::vector<Reason>& reasons,
                const BackendRegistry& registry) {
  std::vector<std::string> fixes;
  for (const Reason& r : reasons)
    if (std::find(fixes.begin(), fixes.end(), r.fix) == fixes.end()) fixes.push_back(r.fix);
  std::string message = "Selected backend " + std::string(info.name) +
                        " is not valid for this configuration. Reason: " + quoted_list(reasons) +
                        ". Fix: " + join(fixes, "; ") + ".";
  if (!info.absent.empty()) message += " This build has: " + join(built_names(registry), ", ") + ".";
  return unsupported(message);
}

/// The changes that the built backend with the fewest refusals asks for.
std::string nearest_fix(const std::vector<Candidate>& rejected) {
  const Candidate* nearest = nullptr;
  for (const Candidate& r : rejected)
    if (!r.reasons.empty() && r.backend->absent.empty() &&
        (nearest == nullptr || r.reasons.size() < nearest->reasons.size()))
      nearest = &r;
  if (nearest == nullptr) return {};
  std::vector<std::string> fixes;
  for (const Reason& r : nearest->reasons)
    fixes.push_back(r.fix);
  return " Fix for " + std::string(nearest->backend->name) + ": " + join(fixes, "; ") + ".";
}

Error none_valid(const AttentionSpec& spec, const DeviceInfo& device,
                 const std::vector<Candidate>& rejected) {
  std::vector<std::string> each;
  for (const Candidate& r : rejected)
    each.push_back(std::string(r.backend->name) + ": " + quoted_list(r.reasons));
  const std::string block = spec.page_size > 0 ? std::to_string(spec.page_size) : "None";
  return unsupported("No valid attention backend found for " + describe(device) +
                     " with AttentionSelectorConfig(head_size=" + std::to_string(spec.head_dim) +
                     ", dtype=" + std::string(to_string(spec.dtype)) +
                     ", kv_cache_dtype=" + std::string(to_string(spec.kv_dtype)) + ", block_size=" + block +
                     ", attn_type=" + std::string(to_string(spec.type)) + "). Reasons: {" + join(each, ", ") +
                     "}." + nearest_fix(rejected));
}

/// Every spec's reasons, each once.
std::vector<Reason> validate_all(const BackendInfo& backend, std::span<const AttentionSpec> specs,
                                 const DeviceInfo& device, Phase phase) {
  std::vector<Reason> all;
  for (const AttentionSpec& spec : specs)
    for (Reason& reason : validate(backend, spec, device, phase))
      if (std::ranges::find(all, reason.text, &Reason::text) == all.end()) all.push_back(std::move(reason));
  return all;
}

Result<PhaseSelection> select_phase(const Request& request, std::span<const AttentionSpec> specs,
                                    const DeviceInfo& device, Phase phase, const BackendRegistry& registry) {
  const Entry* named = nullptr;
  if (!request.name.empty()) {
    named = registry.find(request.name);
    if (named == nullptr) return unknown_backend(request.name, registry);
  }
  PhaseSelection selection;
  std::vector<std::string> valid;
  for (const Entry& entry : registry.entries()) {
    std::vector<Reason> reasons = validate_all(*entry.info, specs, device, phase);
    if (&entry == named && !reasons.empty()) return not_valid(*entry.info, reasons, registry);
    selection.candidates.push_back({entry.info, std::move(reasons)});
    if (!selection.candidates.back().reasons.empty()) continue;
    valid.emplace_back(entry.info->name);
    if (selection.backend == nullptr) selection.backend = entry.info;
  }
  if (named != nullptr) {
    selection.backend = named->info;
    selection.why = "given: " + request.from + " " + request.name;
    return selection;
  }
  if (selection.backend == nullptr) return none_valid(specs.front(), device, selection.candidates);
  const std::string on = std::string(" this model on ").append(to_string(device.kind));
  selection.why = valid.size() == 1 ? "automatic: the only one that serves" + on
                                    : "automatic: first of " + join(valid, ", ") + " that serves" + on;
  if (!request.from.empty()) selection.why += ", as " + request.from + " says";
  return selection;
}

/// The preferred page size that every backend takes, else the smallest that all do.
Status choose_page_size(Selection& s) {
  std::vector<const BackendInfo*> backends;
  for (const KindSelection& kind : s.kinds)
    for (const BackendInfo* backend : {kind.prefill.backend, kind.decode.backend})
      if (std::ranges::find(backends, backend) == backends.end()) backends.push_back(backend);
  const auto all_take = [&](int size) {
    return std::ranges::all_of(backends, [&](auto* b) { return b->capability.page_sizes.has(size); });
  };
  for (const BackendInfo* backend : backends)
    if (const int size = backend->capability.preferred_page_size; all_take(size)) {
      s.page_size = size;
      s.page_size_why = "preferred by " + std::string(backend->name);
      return {};
    }
  constexpr int kLargest = 1 << 20;
  const IntSet& sizes = backends.front()->capability.page_sizes;
  for (auto size = sizes.next(1); size && *size <= kLargest; size = sizes.next(*size + 1))
    if (all_take(*size)) {
      s.page_size = *size;
      s.page_size_why = "the smallest that all backends take";
      return {};
    }
  std::vector<std::string> names;
  for (const BackendInfo* backend : backends)
    names.emplace_back(backend->name);
  return unsupported("No page size suits all of " + join(names, ", ") +
                     "; choose others with --attention-backend");
}

}  // namespace

Result<Selection> consider(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                           const DeviceInfo& device, const BackendRegistry& registry) {
  if (specs.empty()) return invalid("there is no attention to select a backend for");
  for (const AttentionSpec& spec : specs)
    FOVEA_RETURN_IF_ERROR(check_spec(spec));
  if (config.page_size && *config.page_size < 1)
    return invalid("--page-size " + std::to_string(*config.page_size) + " must be 1 or more");
  FOVEA_TRY(requests, read_requests(config, registry));
  std::vector<AttentionSpec> wanted(specs.begin(), specs.end());
  if (config.page_size)
    for (AttentionSpec& spec : wanted)
      spec.page_size = *config.page_size;
  Selection selection;
  FOVEA_TRY(prefill, select_phase(requests.prefill, wanted, device, Phase::prefill, registry));
  FOVEA_TRY(decode, select_phase(requests.decode, wanted, device, Phase::decode, registry));
  for (int i = 0; i < static_cast<int>(specs.size()); ++i) {
    const LayerKind kind = kind_of(specs[static_cast<size_t>(i)]);
    auto& kinds = selection.kinds;
    auto at = std::ranges::find(kinds, kind, &KindSelection::kind);
    if (at == kinds.end()) at = kinds.insert(kinds.end(), {kind, {}, prefill, decode});
    at->specs.push_back(i);
  }
  std::ranges::sort(selection.kinds, {}, &KindSelection::kind);
  const int page_size = wanted.front().page_size;
  if (page_size == 0) {
    FOVEA_RETURN_IF_ERROR(choose_page_size(selection));
  } else {
    selection.page_size = page_size;
    selection.page_size_why = config.page_size ? "given: --page-size" : "required by the model";
  }
  return selection;
}

Result<Selection> select(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                         const DeviceInfo& device, const BackendRegistry& registry) {
  return consider(config, specs, device, registry);
}

const KindSelection& Selection::of(const AttentionSpec& spec) const {
  const auto at = std::ranges::find(kinds, kind_of(spec), &KindSelection::kind);
  FOVEA_CHECK(at != kinds.end());
  return *at;
}

bool Selection::complete() const {
  return page_size > 0 && std::ranges::all_of(kinds, [](const KindSelection& k) {
           return k.prefill.backend != nullptr && k.decode.backend != nullptr;
         });
}

std::string explain(const Selection& selection) {
  const auto line = [](Phase phase, const PhaseSelection& s) {
    return std::string(to_string(phase)) + ": " + s.backend->label() + " (" + s.why + ")";
  };
  const KindSelection& kind = selection.kinds.front();
  return line(Phase::prefill, kind.prefill) + "\n" + line(Phase::decode, kind.decode);
}

std::string explain_in_full(const Selection& selection) {
  return explain(selection);
}

}  // namespace fovea
