#include <algorithm>

#include "attention/other_build.h"
#include "attention/selection_context.h"
#include "base/check.h"
#include "base/edit_distance.h"
#include "base/log.h"
#include "base/same_name.h"
#include "fovea/attention_backend.h"

namespace fovea {
namespace {

using Entry = BackendRegistry::Entry;

bool is_called(const BackendInfo& info, std::string_view name) {
  return same_name(info.name, name) ||
         std::ranges::any_of(info.aliases, [&](auto alias) { return same_name(alias, name); });
}

}  // namespace

Status BackendRegistry::check(const BackendInfo& info) const {
  std::vector<std::string_view> names = {info.name};
  names.insert(names.end(), info.aliases.begin(), info.aliases.end());
  for (const std::string_view name : names)
    if (name.empty() || same_name(name, "auto") || name.find_first_of(",= ") != std::string_view::npos)
      return invalid("a backend can't be called '" + std::string(name) +
                     "': settings name it, where ',', '=' and 'auto' have a meaning; choose another name");
  for (const Entry& entry : entries_) {
    const BackendInfo& other = *entry.info;
    if (other.name == info.name) {
      if (other.version != info.version) continue;
      return invalid("attention backend " + info.label() +
                     " is registered already; give this one another name or version");
    }
    for (const std::string_view name : names)
      if (is_called(other, name))
        return invalid("attention backend " + info.label() + " can't be called " + std::string(name) + ": " +
                       other.label() + " has that name; choose another name");
  }
  return {};
}

void BackendRegistry::add(const BackendInfo& info, Factory create) {
  const Status taken = check(info);
  if (!taken) {
    FOVEA_LOG(error) << taken.error().message;
  }
  FOVEA_CHECK(taken.ok());
  FOVEA_CHECK(info.absent.empty() == static_cast<bool>(create));
  entries_.push_back({&info, std::move(create)});
}

const BackendRegistry::Entry* BackendRegistry::find(std::string_view name) const {
  const auto has_alias = [&](const Entry& entry, auto same) {
    return std::ranges::any_of(entry.info->aliases, [&](auto alias) { return same(alias, name); });
  };
  for (const Entry& entry : entries_)
    if (same_name(name, entry.info->name)) return &entry;
  for (const Entry& entry : entries_)
    if (has_alias(entry, same_name)) return &entry;
  return nullptr;
}

const BackendRegistry::Entry* BackendRegistry::find(const BackendInfo& info) const {
  for (const auto* entries : {&entries_, &mla_prefill_})
    for (const Entry& entry : *entries)
      if (entry.info == &info) return &entry;
  return nullptr;
}

void BackendRegistry::add_mla_prefill(const BackendInfo& info, Factory create) {
  FOVEA_CHECK(info.absent.empty() == static_cast<bool>(create));
  mla_prefill_.push_back({&info, std::move(create)});
}

std::string_view BackendRegistry::nearest(std::string_view name) const {
  std::vector<std::string_view> candidates;
  for (const Entry& entry : entries_) {
    // "flash-attn" and "FlashAttn" are other spellings of FLASH_ATTN.
    if (squash(entry.info->name) == squash(name)) return entry.info->name;
    candidates.push_back(entry.info->name);
    candidates.insert(candidates.end(), entry.info->aliases.begin(), entry.info->aliases.end());
  }
  return nearest_name(name, candidates);
}

bool needs_other_build(const BackendInfo& row) {
  return row.absent == kBuiltWithoutCuda;
}

}  // namespace fovea
