#pragma once
// From a name as the user wrote it to one row of the registry.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attention/selection_context.h"

namespace fovea {

/// One of a backend's rows.
struct Version {
  const BackendInfo* row = nullptr;
  std::optional<Reason> reason = {};  ///< the version that the user asked for does not exist
};

/// All versions of the backend called `name` exactly, in the order of registration.
std::vector<const BackendInfo*> rows_named(const std::vector<BackendRegistry::Entry>& entries,
                                           std::string_view name);

/// The version that flags and the device ask for: FlashAttention 3 on sm_90 and 2 elsewhere unless
/// flash_attn_version says otherwise; FlashInfer's TRT-LLM kernels where use_trtllm_attention or, unset, the
/// device wants them. `rows` is not empty and of one name.
Version choose_version(const std::vector<const BackendInfo*>& rows, const SelectionContext& context);

/// Where `wanted`'s kernels are not written: the first other version whose are, that runs on the device and
/// that no flag rules out; else null.
const BackendInfo* built_instead(const BackendInfo& wanted, const std::vector<const BackendInfo*>& rows,
                                 const SelectionContext& context);

/// May `row` be taken without being asked for: no flag pins another version of it.
bool version_is_free(const BackendInfo& row, const AttentionConfig& config);

/// The flag that takes this version of its backend; empty when it has one only.
std::string version_flag(const BackendInfo& row);

/// 2 for "FA2"; nullopt when the row is no version of FlashAttention.
std::optional<int> flash_version(const BackendInfo& row);

/// Of FlashAttention, where no flag says otherwise: 3 on compute capability 9.x, 2 elsewhere and with ALiBi.
int default_flash_version(const SelectionContext& context);

/// Compute capability and kind of device.
bool runs_on(const Capability& capability, const DeviceInfo& device);

/// An error for a name that no backend of `registry` has, with the nearest one.
Status check_known(const std::string& name, const BackendRegistry& registry);

struct Named {
  Version version;
  std::string meaning;  ///< what the name stands for here, where that is not plain; else empty
  bool version_named = false;
};

/// Lower-case aliases are families: on an MLA model they mean the family's MLA backend. "fa3" pins version 3.
/// A name that pins none means a version that is built where the device's own is not.
Result<Named> resolve_name(const std::string& given, const SelectionContext& context);

/// Names that mean one backend, versions apart; unknown ones are the same only when they are spelt alike.
bool same_backend(std::string_view a, std::string_view b, const BackendRegistry& registry);

}  // namespace fovea
