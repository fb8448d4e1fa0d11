#include "attention/resolve_name.h"

#include <algorithm>
#include <cctype>

#include "attention/other_build.h"
#include "base/same_name.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

using Entry = BackendRegistry::Entry;

bool is_alias(const Entry& entry, std::string_view given) {
  return std::ranges::any_of(entry.info->aliases, [&](auto alias) { return same_name(alias, given); });
}

bool is_exact_alias(const Entry& entry, std::string_view given) {
  return std::ranges::find(entry.info->aliases, given) != entry.info->aliases.end();
}

/// Whether `given` is a family name of SGLang or Mini-SGLang, not one of vLLM's names in any letter case.
bool means_family(const Entry& entry, std::string_view given) {
  return is_exact_alias(entry, given) || (!same_name(entry.info->name, given) && is_alias(entry, given));
}

Error unknown_backend(const std::string& name, const BackendRegistry& registry) {
  if (same_name(name, "CUSTOM"))
    return invalid(
        "Backend CUSTOM must be registered before use. Use BackendRegistry::add() with a BackendInfo of that "
        "name, and give that registry to the engine (EngineConfig::registry)");
  std::vector<std::string> names;
  for (const Entry& entry : registry.entries())
    if (std::ranges::find(names, entry.info->name) == names.end()) names.emplace_back(entry.info->name);
  std::string message =
      "Unknown attention backend: '" + name + "'. Valid options are: auto, " + join(names, ", ") + ".";
  if (const std::string_view near = registry.nearest(name); !near.empty())
    message += " Did you mean '" + std::string(near) + "'?";
  return invalid(message);
}

/// The first row that `wanted` accepts.
template <class F>
const BackendInfo* first(const std::vector<const BackendInfo*>& rows, F wanted) {
  const auto at = std::ranges::find_if(rows, [&](const BackendInfo* row) { return wanted(*row); });
  return at == rows.end() ? nullptr : *at;
}

bool is_native_flashinfer(const BackendInfo& row) {
  return same_name(row.version, "native");
}

/// True on Blackwell (compute capability 10.x).
bool trtllm_by_default(const DeviceInfo& device) {
  return device.kind == DeviceKind::cuda && device.compute_capability / 10 == 10;
}

bool has_trtllm_kernels(const BackendInfo& row) {
  return row.name == "FLASHINFER" && !row.version.empty() && !is_native_flashinfer(row);
}

/// What a family's row means on MLA models, the first that is registered: sparse MLA has rows of its own.
std::vector<std::string> mla_siblings(const BackendInfo& row, const AttentionSpec& spec) {
  const std::string sibling(row.mla_sibling);
  if (!spec.use_sparse) return {sibling};
  return {sibling + "_SPARSE", sibling};
}

Version choose_flash_version(const std::vector<const BackendInfo*>& rows, const SelectionContext& context) {
  const std::optional<int>& asked = context.config.flash_attn_version;
  const int wanted = asked.value_or(default_flash_version(context));
  const auto is = [&](const BackendInfo& row) { return flash_version(row) == wanted; };
  if (const BackendInfo* row = first(rows, is)) return {row};
  if (!asked) return {rows.front()};
  std::string versions;
  for (const BackendInfo* row : rows)
    versions += (versions.empty() ? "" : "|") + std::to_string(flash_version(*row).value_or(0));
  return {rows.front(), Reason{"FlashAttention version " + std::to_string(wanted) + " not supported",
                               "-ac.flash_attn_version=" + versions + ": the versions of " +
                                   std::string(rows.front()->name)}};
}

}  // namespace

int default_flash_version(const SelectionContext& context) {
  const int cc = context.device.compute_capability;
  const bool hopper = context.device.kind == DeviceKind::cuda && cc >= 90 && cc < 100;
  const bool alibi = std::ranges::any_of(context.specs, &AttentionSpec::has_alibi);
  return hopper && !alibi ? 3 : 2;
}

std::optional<int> flash_version(const BackendInfo& row) {
  const std::string_view v = row.version;
  if (v.size() != 3 || !v.starts_with("FA") || std::isdigit(static_cast<unsigned char>(v[2])) == 0)
    return std::nullopt;
  return v[2] - '0';
}

bool runs_on(const Capability& c, const DeviceInfo& device) {
  const int cc = device.compute_capability;
  return device.kind == c.device && cc >= c.min_compute_capability &&
         (c.max_compute_capability == 0 || cc <= c.max_compute_capability);
}

std::vector<const BackendInfo*> rows_named(const std::vector<Entry>& entries, std::string_view name) {
  std::vector<const BackendInfo*> rows;
  for (const Entry& entry : entries)
    if (entry.info->name == name) rows.push_back(entry.info);
  return rows;
}

Version choose_version(const std::vector<const BackendInfo*>& rows, const SelectionContext& context) {
  if (rows.size() == 1) return {rows.front()};
  if (flash_version(*rows.front())) return choose_flash_version(rows, context);
  const auto here = [&](const BackendInfo& row) { return runs_on(row.capability, context.device); };
  if (first(rows, has_trtllm_kernels) != nullptr) {
    const auto asked = context.config.use_trtllm_attention;
    const bool trtllm = asked.value_or(trtllm_by_default(context.device));
    const auto wanted = [&](const BackendInfo& row) { return has_trtllm_kernels(row) == trtllm; };
    const auto wanted_here = [&](const BackendInfo& row) { return wanted(row) && here(row); };
    if (const BackendInfo* row = first(rows, wanted_here)) return {row};
    if (const BackendInfo* row = asked ? first(rows, wanted) : nullptr) return {row};
  }
  const BackendInfo* row = first(rows, here);
  return {row != nullptr ? row : rows.front()};
}

const BackendInfo* built_instead(const BackendInfo& wanted, const std::vector<const BackendInfo*>& rows,
                                 const SelectionContext& context) {
  const auto written = [](const BackendInfo& row) { return row.absent.empty() || needs_other_build(row); };
  if (written(wanted)) return nullptr;
  return first(rows, [&](const BackendInfo& row) {
    return written(row) && runs_on(row.capability, context.device) && version_is_free(row, context.config);
  });
}

bool version_is_free(const BackendInfo& row, const AttentionConfig& config) {
  if (const auto flash = flash_version(row); flash && config.flash_attn_version)
    return flash == config.flash_attn_version;
  if (row.name == "FLASHINFER" && config.use_trtllm_attention)
    return has_trtllm_kernels(row) == *config.use_trtllm_attention;
  return true;
}

std::string version_flag(const BackendInfo& row) {
  if (const auto flash = flash_version(row)) return "-ac.flash_attn_version=" + std::to_string(*flash);
  if (row.name == "FLASHINFER" && !row.version.empty())
    return std::string("-ac.use_trtllm_attention=") + (has_trtllm_kernels(row) ? "1" : "0");
  return {};
}

Status check_known(const std::string& name, const BackendRegistry& registry) {
  if (registry.find(name) == nullptr) return unknown_backend(name, registry);
  return {};
}

Result<Named> resolve_name(const std::string& given, const SelectionContext& context) {
  const Entry* entry = context.registry.find(given);
  if (entry == nullptr) return unknown_backend(given, context.registry);
  const auto& entries = context.registry.entries();
  std::vector<const BackendInfo*> rows = rows_named(entries, entry->info->name);
  const bool family = means_family(*entry, given);
  if (family && context.spec().use_mla)
    for (const BackendInfo* row : rows)
      for (const std::string& sibling : mla_siblings(*row, context.spec()))
        if (const auto siblings = rows_named(entries, sibling); !siblings.empty())
          return Named{choose_version(siblings, context), "on an MLA model that is " + sibling, false};
  if (family)
    if (const BackendInfo* pinned = first(rows, [&](auto& row) { return same_name(row.version, given); })) {
      const auto asked = context.config.flash_attn_version;
      if (asked && flash_version(*pinned) && flash_version(*pinned) != asked)
        return invalid("attention backend '" + given + "' contradicts " +
                       setting(context.config, "flash_attn_version") + " " + std::to_string(*asked) +
                       "; give only one of them");
      return Named{{pinned}, {}, true};
    }
  const Version version = choose_version(rows, context);
  if (const BackendInfo* built = built_instead(*version.row, rows, context))
    return Named{{built}, version.row->label() + " is not in this build", false};
  return Named{version, {}, false};
}

bool same_backend(std::string_view a, std::string_view b, const BackendRegistry& registry) {
  if (is_auto(a) || is_auto(b)) return is_auto(a) && is_auto(b);
  if (same_name(a, b)) return true;
  const Entry *x = registry.find(a), *y = registry.find(b);
  if (x == nullptr || y == nullptr || x->info->name != y->info->name) return false;
  // Different versions ("fa2" and "fa3") are different backends.
  const auto pin = [&](std::string_view name) {
    return first(rows_named(registry.entries(), x->info->name),
                 [&](auto& row) { return same_name(row.version, name); });
  };
  const BackendInfo *p = pin(a), *q = pin(b);
  return p == q;
}

}  // namespace fovea
