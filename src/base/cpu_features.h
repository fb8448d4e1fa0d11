#pragma once
// The instruction sets that kernels are compiled for, chosen once at run time.
#include <optional>
#include <string_view>

namespace fovea {

enum class Isa { generic, avx2, avx512 };

std::string_view to_string(Isa isa);

/// The best one that this CPU and its operating system offer.
Isa detect_isa();

/// What kernels dispatch on: detect_isa(), or what set_isa() chose (tests, benchmarks).
Isa current_isa();
/// False, and nothing changes, when this CPU lacks `isa`.
bool set_isa(Isa isa);

}  // namespace fovea
