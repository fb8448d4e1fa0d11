#include "plugin/table.h"

#include <algorithm>
#include <climits>

#include "attention/selection_context.h"
#include "base/sized_struct.h"
#include "plugin/enums.h"

namespace fovea::plugin {
namespace {

// Struct sizes in the first release of version 1.
constexpr size_t kTableSize1 = 160, kIntSetSize1 = 68;
static_assert(sizeof(fovea_backend_table) == kTableSize1 && sizeof(fovea_backend_int_set) == kIntSetSize1);

constexpr size_t kMostName = 64, kMostDescription = 200;
constexpr uint32_t kMostNames = 16;  // aliases, families

bool is_one_of(char c, std::string_view letters) {
  return letters.find(c) != std::string_view::npos;
}

constexpr std::string_view kUpper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
constexpr std::string_view kLower = "abcdefghijklmnopqrstuvwxyz0123456789_";

/// Reads a name usable in flags: 1 to kMostName characters of `letters`.
Result<std::string> read_name(const char* given, const std::string& field, std::string_view letters,
                              const char* allowed) {
  if (given == nullptr) return invalid(field + " is null");
  const std::string name(given, ::strnlen(given, kMostName + 1));
  if (name.empty() || name.size() > kMostName ||
      !std::ranges::all_of(name, [&](char c) { return is_one_of(c, letters); }))
    return invalid(field + " is '" + name.substr(0, kMostName) + "'; allowed are 1 to " +
                   std::to_string(kMostName) + " characters of " + allowed);
  if (is_auto(name)) return invalid(field + " is '" + name + "', which means the automatic choice");
  return name;
}

Result<std::string> read_line(const char* given, const std::string& field) {
  if (given == nullptr) return invalid(field + " is null");
  std::string line(given, ::strnlen(given, kMostDescription + 1));
  if (line.size() > kMostDescription)
    return invalid(field + " has more than " + std::to_string(kMostDescription) + " bytes");
  if (std::ranges::any_of(line, [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    return invalid(field + " has control characters; one line is allowed");
  return line;
}

Result<std::vector<std::string_view>> read_names(const char* const* given, uint32_t count,
                                                 const std::string& field, Row& row) {
  std::vector<std::string_view> names;
  if (count > kMostNames)
    return invalid("num_" + field + " is " + std::to_string(count) + "; at most " +
                   std::to_string(kMostNames) + " are allowed");
  if (count > 0 && given == nullptr) return invalid(field + " is null and num_" + field + " is not 0");
  for (uint32_t i = 0; i < count; ++i) {
    FOVEA_TRY(name, read_name(given[i], field + "[" + std::to_string(i) + "]", kLower, "a-z, 0-9 and _"));
    if (std::ranges::find(names, name) != names.end()) return invalid(field + " has '" + name + "' twice");
    names.push_back(row.keep(std::move(name)));
  }
  return names;
}

Result<IntSet> read_int_set(const fovea_backend_int_set* given, const std::string& field) {
  FOVEA_TRY(set, read_struct(given, fovea_backend_int_set{}, kIntSetSize1, field));
  if (set.num_listed > IntSet::kMaxListed)
    return invalid(field + "->num_listed is " + std::to_string(set.num_listed) + "; at most " +
                   std::to_string(IntSet::kMaxListed) + " are allowed");
  IntSet out;
  if (set.first <= set.last) {
    if (set.first < 1 || set.step < 1)
      return invalid(field + " has the range " + std::to_string(set.first) + " to " +
                     std::to_string(set.last) + " with step " + std::to_string(set.step) +
                     "; first and step must be 1 or more");
    out = IntSet::range(set.first, set.last, set.step);
  }
  for (uint32_t i = 0; i < set.num_listed; ++i) {
    if (set.listed[i] < 1)
      return invalid(field + "->listed[" + std::to_string(i) + "] is " + std::to_string(set.listed[i]) +
                     "; it must be 1 or more");
    if (!out.has(set.listed[i])) out.insert(set.listed[i]);
  }
  if (out.empty()) return invalid(field + " has no members");
  return out;
}

template <class E>
Result<EnumSet<E>> read_set(std::span<const Enumerator<E>> all, uint64_t bits, const std::string& field) {
  FOVEA_TRY(set, set_from_abi(all, bits, field));
  if (set.empty()) return invalid(field + " has no members");
  return set;
}

/// "auto" is the dtype of Q: claimed if every supported dtype can also be stored.
void add_auto(Capability& c) {
  for (const auto& dtype : abi_dtypes())
    if (c.dtypes.has(dtype.value) && !c.kv_dtypes.has(resolve(KvCacheDType::auto_, dtype.value))) return;
  c.kv_dtypes.insert(KvCacheDType::auto_);
}

Status read_sets(const fovea_backend_table& table, Capability& c) {
  FOVEA_TRY(dtypes, read_set(abi_dtypes(), table.dtypes, "dtypes"));
  FOVEA_TRY(kv_dtypes, read_set(abi_kv_dtypes(), table.kv_dtypes, "kv_dtypes"));
  FOVEA_TRY(types, read_set(abi_types(), table.types, "types"));
  FOVEA_TRY(phases, read_set(abi_phases(), table.phases, "phases"));
  FOVEA_TRY(features, set_from_abi(abi_features(), table.features, "features"));
  FOVEA_TRY(invariance, set_from_abi(abi_invariance(), table.invariance, "invariance"));
  FOVEA_TRY(page_sizes, read_int_set(table.page_sizes, "page_sizes"));
  FOVEA_TRY(head_dims, read_int_set(table.head_dims, "head_dims"));
  FOVEA_TRY(v_head_dims, read_int_set(table.v_head_dims, "v_head_dims"));
  c.dtypes = dtypes;
  c.kv_dtypes = kv_dtypes;
  c.types = types;
  c.phases = phases;
  c.features = features;
  c.invariance = invariance;
  c.page_sizes = page_sizes;
  c.head_dims = head_dims;
  c.v_head_dims = v_head_dims;
  add_auto(c);
  if (table.gqa_ratios == nullptr) return {};
  FOVEA_TRY(gqa_ratios, read_int_set(table.gqa_ratios, "gqa_ratios"));
  c.gqa_ratios = gqa_ratios;
  return {};
}

Status read_numbers(const fovea_backend_table& table, Capability& c) {
  FOVEA_TRY(device, from_abi(abi_devices(), table.device, "device"));
  FOVEA_TRY(graph, from_abi(abi_graphs(), table.graph, "graph"));
  c.device = device;
  c.graph = graph;
  c.preferred_page_size = table.preferred_page_size;
  c.min_compute_capability = table.min_compute_capability;
  c.max_compute_capability = table.max_compute_capability;
  if (!c.page_sizes.has(c.preferred_page_size))
    return invalid("preferred_page_size is " + std::to_string(c.preferred_page_size) +
                   ", which page_sizes does not have: " + c.page_sizes.describe());
  const int least = c.min_compute_capability, most = c.max_compute_capability;
  if (least < 0 || most < 0 || (most > 0 && most < least) || std::max(least, most) > 999)
    return invalid("min_compute_capability " + std::to_string(least) + " and max_compute_capability " +
                   std::to_string(most) + " are not a range; 90 means 9.0, and 0 means no bound");
  if (device == DeviceKind::cuda) return {};
  if (graph != GraphSupport::never)
    return invalid("graph is " + std::string(to_string(graph)) + "; a backend of the CPU has NEVER");
  if (least != 0 || most != 0) return invalid("a backend of the CPU has no compute capability; give 0");
  return {};
}

}  // namespace

Result<std::unique_ptr<Row>> read_table(const fovea_backend_table* given) {
  FOVEA_TRY(table, read_struct(given, fovea_backend_table{}, kTableSize1, "fovea_backend_table"));
  auto row = std::make_unique<Row>();
  BackendInfo& info = row->info;
  FOVEA_TRY(name, read_name(table.name, "name", kUpper, "A-Z, 0-9 and _"));
  FOVEA_TRY(description, read_line(table.description, "description"));
  FOVEA_TRY(aliases, read_names(table.aliases, table.num_aliases, "aliases", *row));
  FOVEA_TRY(families, read_names(table.families, table.num_families, "families", *row));
  info.name = row->keep(std::move(name));
  info.description = row->keep(std::move(description));
  info.aliases = std::move(aliases);
  info.families = std::move(families);
  if (table.prefill_partner != nullptr) {
    FOVEA_TRY(partner, read_name(table.prefill_partner, "prefill_partner", kUpper, "A-Z, 0-9 and _"));
    info.prefill_partner = row->keep(std::move(partner));
  }
  FOVEA_RETURN_IF_ERROR(read_sets(table, info.capability));
  FOVEA_RETURN_IF_ERROR(read_numbers(table, info.capability));
  if (info.capability.phases.has(Phase::prefill) != info.prefill_partner.empty())
    return invalid(
        info.prefill_partner.empty()
            ? "phases does not include prefill; prefill_partner must name the backend that prefills for it"
            : "prefill_partner is for a backend whose phases do not include prefill");
  return row;
}

Status check_names(const BackendInfo& info, const BackendRegistry& registry) {
  const auto taken = [&](std::string_view name) -> Status {
    const BackendRegistry::Entry* entry = registry.find(name);
    if (entry == nullptr) return {};
    const BackendInfo& other = *entry->info;
    return invalid("'" + std::string(name) + "' is a name of " + other.label() + " already" +
                   (other.library.empty() ? "" : ", of " + std::string(other.library)) +
                   "; give the backend another one");
  };
  FOVEA_RETURN_IF_ERROR(taken(info.name));
  for (const std::string_view alias : info.aliases)
    FOVEA_RETURN_IF_ERROR(taken(alias));
  if (info.prefill_partner.empty()) return {};
  const BackendRegistry::Entry* partner = registry.find(info.prefill_partner);
  if (partner == nullptr || !partner->info->capability.phases.has(Phase::prefill))
    return invalid("prefill_partner is '" + std::string(info.prefill_partner) +
                   "'; no backend of that name prefills");
  return {};
}

}  // namespace fovea::plugin
