#pragma once
// Hashes of the tables of expressions and of an automaton's states.
#include <cstdint>

namespace fovea::grammar {

/// `hash` with one more value.
constexpr uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15;
  return hash ^ (hash >> 29);
}

}  // namespace fovea::grammar
