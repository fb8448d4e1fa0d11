#include <algorithm>
#include <string>

#include "attention/batch_check.h"
#include "attention/candidates.h"
#include "attention/mla_prefill.h"
#include "attention/page_size.h"
#include "attention/provenance.h"
#include "base/check.h"
#include "fovea/attention.h"
#include "fovea/attention_config.h"

namespace fovea {
namespace {

/// The layers of one kind, with all their requirements.
struct Group {
  LayerKind kind;
  std::vector<int> indices;
  std::vector<AttentionSpec> specs;
};

/// `spec` with the requirements of the settings.
AttentionSpec asked(AttentionSpec spec, const AttentionConfig& config) {
  spec = with_settings(spec, config);
  if (config.page_size && has_kv_pages(kind_of(spec)))
    spec.page_size = config.allow_page_override ? 0 : *config.page_size;
  if (config.batch_invariant.value_or(false)) spec.needs.insert(Feature::batch_invariance);
  return spec;
}

std::vector<Group> group_by_kind(std::span<const AttentionSpec> specs, const AttentionConfig& config) {
  std::vector<Group> groups;
  for (int i = 0; i < static_cast<int>(specs.size()); ++i) {
    const AttentionSpec& spec = specs[static_cast<size_t>(i)];
    auto at = std::ranges::find(groups, kind_of(spec), &Group::kind);
    if (at == groups.end()) at = groups.insert(groups.end(), {kind_of(spec), {}, {}});
    at->indices.push_back(i);
    at->specs.push_back(asked(spec, config));
  }
  std::ranges::sort(groups, {}, &Group::kind);
  return groups;
}

Status check(const AttentionConfig& config) {
  if (config.page_size && *config.page_size < 1)
    return invalid(setting(config, "page_size") + " " + std::to_string(*config.page_size) +
                   " must be 1 or more");
  if (const auto version = config.flash_attn_version; version && (*version < 2 || *version > 4))
    return invalid(setting(config, "flash_attn_version") + " is " + std::to_string(*version) +
                   "; FlashAttention has the versions 2, 3 and 4");
  return {};
}

/// The page size for the rows that read the cache; nullopt when one of them is missing.
std::optional<PageSize> page_size_of(std::span<const SelectionContext> contexts, const Selection& selection,
                                     const BackendInfo* (*row_of)(const PhaseSelection&)) {
  std::vector<const BackendInfo*> readers;
  int required = 0;
  const bool pages =
      std::ranges::any_of(contexts, [](const SelectionContext& s) { return has_kv_pages(s.kind); });
  for (size_t i = 0; i < contexts.size(); ++i) {
    if (pages && !has_kv_pages(contexts[i].kind)) continue;
    if (required == 0) required = contexts[i].spec().page_size;
    for (Phase phase : {Phase::prefill, Phase::decode}) {
      const BackendInfo* row = row_of(selection.kinds[i].of(phase));
      if (row == nullptr) return std::nullopt;
      if (!is_mla_prefill(*row, contexts[i].registry) && std::ranges::find(readers, row) == readers.end())
        readers.push_back(row);
    }
  }
  if (readers.empty()) return std::nullopt;
  AttentionConfig config = contexts.front().config;
  if (!pages) config.page_size.reset();
  return choose_page_size(config, readers, required);
}

/// vLLM's warning that the user's page size excluded a preferred backend.
void warn_of_precluded(const PhaseSelection& phase, const AttentionConfig& config, Selection& selection) {
  if (phase.backend == nullptr || !config.page_size || config.allow_page_override) return;
  std::vector<std::string> precluded;
  for (const Candidate& c : phase.candidates) {
    if (c.backend == phase.backend) break;
    if (c.reasons.size() == 1 && c.reasons.front().text == "block_size not supported")
      precluded.push_back(c.backend->label());
  }
  if (precluded.empty()) return;
  std::string warning = "--block-size " + std::to_string(*config.page_size) +
                        " precluded higher-priority backend(s) " + join(precluded, ", ") + ". Using " +
                        phase.backend->label() + " instead, which may result in reduced performance.";
  if (std::ranges::find(selection.warnings, warning) == selection.warnings.end())
    selection.warnings.push_back(std::move(warning));
}

/// Warns of a decode backend for a model that does not decode.
void warn_of_decode(const Requests& requests, const std::vector<LayerKind>& kinds, Selection& selection) {
  const BackendRequest& decode = requests.of(LayerKind::encoder, Phase::decode);
  if (kinds.size() == 1 && kinds.front() == LayerKind::encoder && decode.of_phase && !decode.name.empty())
    selection.warnings.push_back("decode backend '" + decode.name + "' of " + decode.from +
                                 " has no effect: encoder layers only prefill");
}

const BackendInfo* chosen(const PhaseSelection& phase) {
  return phase.backend;
}

}  // namespace

Result<Selection> consider(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                           const DeviceInfo& device, const BackendRegistry& registry) {
  if (specs.empty()) return invalid("there is no attention to select a backend for");
  for (const AttentionSpec& spec : specs)
    FOVEA_RETURN_IF_ERROR(check_spec(spec));
  FOVEA_RETURN_IF_ERROR(check(config));
  const std::vector<Group> groups = group_by_kind(specs, config);
  std::vector<LayerKind> kinds;
  std::vector<SelectionContext> contexts;
  for (const Group& group : groups) {
    kinds.push_back(group.kind);
    contexts.push_back({config, registry, device, group.kind, groups.size() == 1, group.specs});
  }
  FOVEA_TRY(requests, Requests::read(config, kinds, registry));
  // Unused names (another setting wins, or the phase does not run) are checked, too.
  for (const std::string& name : requests.names())
    FOVEA_RETURN_IF_ERROR(check_known(name, registry));
  FOVEA_RETURN_IF_ERROR(check_mla_prefill(config, registry));
  for (SelectionContext& context : contexts)
    context.requests = &requests;
  Selection selection;
  selection.device = device;
  for (size_t i = 0; i < groups.size(); ++i) {
    const LayerKind kind = groups[i].kind;
    KindSelection chosen{kind, groups[i].indices, {}, {}};
    if (kind == LayerKind::encoder) {
      FOVEA_TRY(prefill, choose(requests.of(kind, Phase::prefill), contexts[i], Phase::prefill));
      chosen.prefill = chosen.decode = std::move(prefill);
    } else {
      FOVEA_TRY(decode, choose(requests.of(kind, Phase::decode), contexts[i], Phase::decode));
      FOVEA_TRY(prefill, choose_prefill(requests.of(kind, Phase::prefill), contexts[i], decode));
      chosen.prefill = std::move(prefill);
      chosen.decode = std::move(decode);
    }
    warn_of_precluded(chosen.prefill, config, selection);
    warn_of_precluded(chosen.decode, config, selection);
    selection.kinds.push_back(std::move(chosen));
  }
  warn_of_decode(requests, kinds, selection);
  const auto page = page_size_of(contexts, selection, fovea::chosen);
  selection.page_size = page ? page->size : 0;
  selection.page_size_why = page ? page->why : "a phase has no backend";
  if (page && !page->warning.empty()) selection.warnings.push_back(page->warning);
  add_provenance(contexts, page ? *page : page_size_of(contexts, selection, meant).value_or(PageSize{}),
                 selection);
  return selection;
}

Result<Selection> select(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                         const DeviceInfo& device, const BackendRegistry& registry) {
  FOVEA_TRY(selection, consider(config, specs, device, registry));
  for (const KindSelection& kind : selection.kinds) {
    // The MLA prefill depends on the decode backend.
    const bool mla = kind.kind == LayerKind::mla || kind.kind == LayerKind::sparse_mla;
    for (Phase phase : {mla ? Phase::decode : Phase::prefill, mla ? Phase::prefill : Phase::decode})
      if (kind.of(phase).backend == nullptr) return kind.of(phase).error;
  }
  if (selection.page_size == 0) return unsupported(selection.page_size_why);
  return selection;
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

bool same_bits_across_phases(const KindSelection& kind) {
  if (kind.kind == LayerKind::encoder) return true;
  FOVEA_CHECK(kind.prefill.backend != nullptr && kind.decode.backend != nullptr);
  return kind.prefill.backend == kind.decode.backend &&
         kind.prefill.backend->capability.invariance.has(Invariance::chunking);
}

bool same_bits_across_phases(const Selection& selection) {
  return std::ranges::all_of(selection.kinds,
                             [](const KindSelection& kind) { return same_bits_across_phases(kind); });
}

}  // namespace fovea
