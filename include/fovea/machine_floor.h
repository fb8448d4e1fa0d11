#pragma once

namespace fovea {

/// Peak rates of the machine that an engine runs on: bytes and flops over them are the minimum time for a
/// piece of work.
struct MachineFloor {
  double read_bytes_per_second = 0;  ///< of all threads, from memory
  double fp32_flops_per_second = 0;  ///< of all threads, with the best instruction set
};

}  // namespace fovea
