#pragma once
// Run-time selection of the instruction set for CPU kernels.
#include <optional>
#include <string_view>

namespace fovea {

enum class Isa { generic, avx2, avx512 };

std::string_view to_string(Isa isa);

/// The best instruction set that this CPU and operating system support.
Isa detect_isa();

/// The ISA that kernels dispatch on: detect_isa(), unless set_isa() overrides it (tests, benchmarks).
Isa current_isa();
/// Returns false and changes nothing if this CPU lacks `isa`.
bool set_isa(Isa isa);

}  // namespace fovea
