#pragma once
// Maps the ABI's enumerators to the C++ ones. Their numbers are independent, so that either list can grow.
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "fovea/backend_abi.h"
#include "fovea/capability.h"
#include "fovea/result.h"

namespace fovea::plugin {

/// An enumerator and its bit or value `number` in the ABI.
template <class E>
struct Enumerator {
  int number;
  E value;
};

std::span<const Enumerator<DType>> abi_dtypes();
std::span<const Enumerator<KvCacheDType>> abi_kv_dtypes();
std::span<const Enumerator<AttentionType>> abi_types();
std::span<const Enumerator<Phase>> abi_phases();
std::span<const Enumerator<DeviceKind>> abi_devices();
std::span<const Enumerator<GraphSupport>> abi_graphs();
std::span<const Enumerator<Feature>> abi_features();
std::span<const Enumerator<Invariance>> abi_invariance();

/// The number of `value`; -1 if the ABI has none.
template <class E>
int to_abi(std::span<const Enumerator<E>> all, E value) {
  for (const auto& e : all)
    if (e.value == value) return e.number;
  return -1;
}

/// "0 to 5"
template <class E>
std::string numbers_of(std::span<const Enumerator<E>> all) {
  return std::to_string(all.front().number) + " to " + std::to_string(all.back().number);
}

template <class E>
Result<E> from_abi(std::span<const Enumerator<E>> all, int number, const std::string& name) {
  for (const auto& e : all)
    if (e.number == number) return e.value;
  return invalid(name + " is " + std::to_string(number) + "; this Fovea knows " + numbers_of(all));
}

template <class E>
Result<EnumSet<E>> set_from_abi(std::span<const Enumerator<E>> all, uint64_t bits, const std::string& name) {
  EnumSet<E> set;
  for (const auto& e : all) {
    if (((bits >> e.number) & 1u) != 0) set.insert(e.value);
    bits &= ~(uint64_t{1} << e.number);
  }
  if (bits == 0) return set;
  int bit = 0;
  while (((bits >> bit) & 1u) == 0)
    ++bit;
  return invalid(name + " has bit " + std::to_string(bit) + "; this Fovea knows the bits " + numbers_of(all));
}

/// Omits values that the ABI has no number for.
template <class E>
uint64_t set_to_abi(std::span<const Enumerator<E>> all, EnumSet<E> set) {
  uint64_t bits = 0;
  for (const auto& e : all)
    if (set.has(e.value)) bits |= uint64_t{1} << e.number;
  return bits;
}

}  // namespace fovea::plugin
