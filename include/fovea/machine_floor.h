#pragma once

namespace fovea {

/// Peak rates of the machine that an engine runs on: the bytes and flops of a computation, divided by them,
/// give its minimum time.
struct MachineFloor {
  double read_bytes_per_second = 0;  ///< of all threads, from memory
  double fp32_flops_per_second = 0;  ///< of all threads, with the best instruction set
};

}  // namespace fovea
