#pragma once
// Resolves a name as the user wrote it to one row of the registry.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/selection_context.h"
#include "fovea/attention_config.h"

namespace fovea {

/// One of a backend's rows.
struct Version {
  const BackendInfo* row = nullptr;
  std::optional<Reason> reason = {};  ///< the version that the user asked for does not exist
};

/// All versions of the backend called `name` exactly, in the order of registration.
std::vector<const BackendInfo*> rows_named(const std::vector<BackendRegistry::Entry>& entries,
                                           std::string_view name);

/// The version selected by the flags and the device: FlashAttention 3 on sm_90 and 2 elsewhere unless
/// flash_attn_version overrides it; FlashInfer's TRT-LLM kernels by use_trtllm_attention or, if unset, by the
/// device. `rows` is not empty, and all have the same name.
Version choose_version(const std::vector<const BackendInfo*>& rows, const SelectionContext& context);

/// If the kernels of `wanted` are not in this build: the first other version that is built, runs on the
/// device and is not excluded by a flag; else null.
const BackendInfo* built_instead(const BackendInfo& wanted, const std::vector<const BackendInfo*>& rows,
                                 const SelectionContext& context);

/// Whether `row` may be chosen without being requested: no flag pins another version of it.
bool version_is_free(const BackendInfo& row, const AttentionConfig& config);

/// The flag that selects this version of its backend; empty when there is only one version.
std::string version_flag(const BackendInfo& row);

/// 2 for "FA2"; nullopt when the row is no version of FlashAttention.
std::optional<int> flash_version(const BackendInfo& row);

/// The FlashAttention version without a flag: 3 on compute capability 9.x, 2 elsewhere and with ALiBi.
int default_flash_version(const SelectionContext& context);

/// Whether kind and compute capability of the device match.
bool runs_on(const Capability& capability, const DeviceInfo& device);

/// An error for a name that no backend of `registry` has, with the nearest known name.
Status check_known(const std::string& name, const BackendRegistry& registry);

struct Named {
  Version version;
  std::string meaning;  ///< how the name was resolved, where that is not obvious; else empty
  bool version_named = false;
};

/// Lower-case aliases are families: on an MLA model they mean the family's MLA backend. "fa3" pins version 3.
/// A name without a version means another version that is built if the device's default version is not.
Result<Named> resolve_name(const std::string& given, const SelectionContext& context);

/// Whether two names mean the same backend and version; unknown names are equal only if spelt alike.
bool same_backend(std::string_view a, std::string_view b, const BackendRegistry& registry);

}  // namespace fovea
