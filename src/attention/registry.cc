#include <algorithm>
#include <deque>

#include "attention/project_backends.h"
#include "attention/rows/rows.h"
#include "attention/scene.h"
#include "backends/cpu_attn/cpu_attn.h"
#include "backends/cuda/factory.h"
#include "backends/torch_native/torch_native.h"
#include "base/check.h"
#include "base/edit_distance.h"
#include "device/gpu.h"
#include "fovea/attention_backend.h"

namespace fovea {
namespace {

using Entry = BackendRegistry::Entry;

constexpr std::string_view kNotCompiled =
    "this program was built without CUDA; build it with FOVEA_BUILD_CUDA=1 ./run.sh";

/// What `info` is called is not what another backend is; two versions of one are told apart.
void check_names(const BackendInfo& info, const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    const BackendInfo& other = *entry.info;
    if (other.name == info.name) {
      FOVEA_CHECK(other.version != info.version);
      continue;
    }
    FOVEA_CHECK(!same_name(other.name, info.name));
    for (std::string_view alias : info.aliases) {
      FOVEA_CHECK(!same_name(alias, other.name));
      for (std::string_view taken : other.aliases)
        FOVEA_CHECK(!same_name(alias, taken));
    }
    for (std::string_view taken : other.aliases)
      FOVEA_CHECK(!same_name(taken, info.name));
  }
}

}  // namespace

void BackendRegistry::add(const BackendInfo& info, Factory create) {
  FOVEA_CHECK(!info.name.empty());
  check_names(info, entries_);
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
    // "flash-attn" and "FlashAttn" are FLASH_ATTN but for how they are written.
    if (squash(entry.info->name) == squash(name)) return entry.info->name;
    candidates.push_back(entry.info->name);
    candidates.insert(candidates.end(), entry.info->aliases.begin(), entry.info->aliases.end());
  }
  return nearest_name(name, candidates);
}

const BackendRegistry& project_backends() {
  static const BackendRegistry registry = [] {
    BackendRegistry r;
    r.add(cpu_attn_info(), make_cpu_attn);
    r.add(torch_native_info(), make_torch_native);
    for (const BackendInfo* info : document_rows())
      r.add(*info, info->absent.empty() ? cuda_factory(*info) : nullptr);
    for (const MlaPrefillRow& row : mla_prefill_rows())
      r.add_mla_prefill(row.info, nullptr);
    return r;
  }();
  return registry;
}

const BackendRegistry& builtin_backends() {
  if (cuda_built()) return project_backends();
  static const BackendRegistry registry = [] {
    static std::deque<BackendInfo> rows;  // addresses last
    BackendRegistry r;
    for (const Entry& entry : project_backends().entries()) {
      const BackendInfo& info = *entry.info;
      if (info.capability.device != DeviceKind::cuda || !info.absent.empty()) {
        r.add(info, entry.create);
        continue;
      }
      rows.push_back(info);
      rows.back().absent = kNotCompiled;
      r.add(rows.back(), nullptr);
    }
    for (const Entry& entry : project_backends().mla_prefill())
      r.add_mla_prefill(*entry.info, entry.create);
    return r;
  }();
  return registry;
}

}  // namespace fovea
