#pragma once
// A backend's row (BackendInfo): its names, what it can do (Capability), and the reasons for which it is
// refused; names of its kernels (KernelName).
#include <compare>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_spec.h"
#include "fovea/capability.h"

namespace fovea {

/// One reason why a backend is refused, in vLLM's wording, and the nearest change that removes it.
struct Reason {
  std::string text;
  std::string fix;
};

/// A compiled kernel, by name.
struct KernelName {
  std::string family;    ///< kernels that share an implementation: "cpu", "sm80", "sm90"
  std::string instance;  ///< the instantiation within the family: "decode bf16 D=128"
  /// The keys of sequences with at most split_rows query rows are split at multiples of split_keys, and the
  /// partial results are combined; 0 = never split.
  int split_keys = 0, split_rows = 0;
  auto operator<=>(const KernelName&) const = default;
};

/// A family of kernels (KernelName::family) and why it is chosen, in one line.
struct KernelFamily {
  std::string_view name;
  std::string why;
};

/// One backend, or one version of it (FLASH_ATTN has FA2, FA3 and FA4: rows of the same name).
struct BackendInfo {
  std::string_view name;  ///< vLLM's upper-case name
  /// SGLang's and Mini-SGLang's lower-case names. For an MLA model they mean `mla_sibling`, if there is one.
  std::vector<std::string_view> aliases = {};
  std::string_view version = {};  ///< "FA3", "Native", ...; empty when there is only one
  Capability capability = {};
  /// Empty = built; else why this build has no kernel for it, the tail of "not in this build: ...". The
  /// capability is then the row of the document that describes the backend.
  std::string_view absent = {};
  /// The row in vLLM's or SGLang's table, where `capability` differs from it; null = the same or none.
  const Capability* documented = nullptr;
  LinearAttention linear = LinearAttention::none;  ///< the only layers that it serves
  std::string_view mla_sibling = {};
  std::string_view prefill_partner = {};  ///< for a backend that only decodes: the backend for its prefill
  std::string_view description = {};      ///< one line, for display
  /// Families of kernels (KernelName::family) whose capabilities this row claims. A cell that only kernels of
  /// other families serve is proven for those, and reported as theirs. Empty: any family.
  std::vector<std::string_view> families = {};
  /// Refusals that no single column of the table can express. With an empty fix, validation suggests another
  /// backend.
  std::function<std::optional<Reason>(const AttentionSpec&, const DeviceInfo&)> supports_combination =
      nullptr;
  /// What plan() would refuse on this device in this phase whatever the limits, because the kernels need more
  /// than the device has (shared memory per block). An empty fix as above.
  std::optional<Reason> (*check_kernels)(const BackendInfo&, const AttentionSpec&, const DeviceInfo&,
                                         Phase) = nullptr;
  /// Which of several kernel families serves a phase. nullopt: there is only one.
  std::optional<KernelFamily> (*kernel_family)(const BackendInfo&, const AttentionSpec&, Phase) = nullptr;
  /// The file of a backend that is built outside of Fovea (fovea/backend_library.h); empty = part of it.
  std::string_view library = {};

  /// "FLASH_ATTN (FA3)"
  std::string label() const;
};

}  // namespace fovea
