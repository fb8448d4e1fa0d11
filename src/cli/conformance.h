#pragma once
// fovea conformance: tests every claim of the backends on this machine's device.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fovea/attention_backend.h"
#include "fovea/result_fwd.h"

namespace CLI {
class App;
}

namespace fovea::cli {

struct ConformanceFlags {
  std::vector<std::string> backends;          ///< names or aliases; none = all of the device's
  std::vector<std::string> libraries;         ///< main.cc loads them into `registry`
  const BackendRegistry* registry = nullptr;  ///< null = builtin_backends()
  std::string device = "cpu";
  std::string cell;    ///< COLUMN=VALUE
  std::string commit;  ///< of the sources, where git does not know it
  std::string write;   ///< path of the proof file
  std::optional<uint64_t> replay;
  std::string row;  ///< row of that case if it is not part of an array
  uint64_t seed = 1;
  int threads = 0;
  int shared_memory = 0, multiprocessors = 0;  ///< cuda::DeviceLimits; 0 = the GPU's
  bool progress = false;
  bool quick = false, list = false, perf = false, json = false;
};

void add_conformance(CLI::App& root, ConformanceFlags& flags);
/// Returns an internal error (exit code 1) if a cell failed.
Status run_conformance(const ConformanceFlags& flags);

/// Rows of the matrix by name.
using BackendRows = std::vector<const BackendRegistry::Entry*>;

/// Lists the cells to prove and those only declared. Runs no cases.
void list_cells(const BackendRows& rows, bool json);
/// Times each row's phases.
void print_speed(const BackendRows& rows, int threads, bool json);

}  // namespace fovea::cli
