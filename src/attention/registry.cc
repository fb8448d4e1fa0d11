#include <algorithm>
#include <cctype>

#include "attention/absent_backends.h"
#include "backends/cpu_attn/cpu_attn.h"
#include "backends/torch_native/torch_native.h"
#include "base/check.h"
#include "base/edit_distance.h"
#include "fovea/attention_backend.h"

namespace fovea {
namespace {

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::toupper(x) == std::toupper(y); });
}

}  // namespace

void BackendRegistry::add(const BackendInfo& info, Factory create) {
  FOVEA_CHECK(find(info.name) == nullptr);
  for (std::string_view alias : info.aliases)
    FOVEA_CHECK(find(alias) == nullptr);
  FOVEA_CHECK(info.absent.empty() == static_cast<bool>(create));
  entries_.push_back({&info, std::move(create)});
}

const BackendRegistry::Entry* BackendRegistry::find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    if (same_name(name, entry.info->name)) return &entry;
    for (std::string_view alias : entry.info->aliases)
      if (same_name(name, alias)) return &entry;
  }
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
    candidates.push_back(entry.info->name);
    candidates.insert(candidates.end(), entry.info->aliases.begin(), entry.info->aliases.end());
  }
  return nearest_name(name, candidates);
}

const BackendRegistry& builtin_backends() {
  static const BackendRegistry registry = [] {
    BackendRegistry r;
    r.add(cpu_attn_info(), make_cpu_attn);
    r.add(torch_native_info(), make_torch_native);
    for (const BackendInfo& info : absent_backends())
      r.add(info, nullptr);
    return r;
  }();
  return registry;
}

}  // namespace fovea
