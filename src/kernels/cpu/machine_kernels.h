#pragma once
// The loops of machine.cc for one instruction set (machine-inl.h).
#include <cstddef>
#include <cstdint>

namespace fovea::machine_detail {

struct MachineKernels {
  /// `rounds` rounds of independent FMAs; returns their floating-point operations. `sink` keeps them alive.
  double (*fma)(int64_t rounds, volatile float* sink);
  /// Reads [data, data + bytes), bytes a multiple of 4096.
  void (*read)(const float* data, size_t bytes, volatile float* sink);
};

extern const MachineKernels kMachineGeneric;
extern const MachineKernels kMachineAvx2;
extern const MachineKernels kMachineAvx512;

}  // namespace fovea::machine_detail
