#pragma once
// proof/<device>.json: the results of a run of `fovea conformance`, committed so that the documents can cite
// them.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::conformance {

enum class CellStatus : uint8_t {
  proven,         ///< claimed, every case passed, and enough of each phase reached the row's own kernels
  other_kernels,  ///< likewise, but in some phase only kernels of families other than the row's serve it
  refused,        ///< not claimed, and refused with the documented reason
  unasked,        ///< not claimed, and no input of a spec requires it (a graph level): no refusal to test
  too_few,        ///< claimed, no case failed, and fewer cases passed than a proof needs
  failed,         ///< claimed and wrong, or not claimed and not refused as documented
};
std::string_view to_string(CellStatus status);

/// The result for one cell (see Cell in attention/columns.h).
struct CellProof {
  std::string cell;  ///< "kv_dtypes=fp8_e4m3"
  CellStatus status = CellStatus::proven;
  int64_t cases = 0;                                         ///< passing cases that depend on the value
  std::map<std::string, int64_t> prefill = {}, decode = {};  ///< the same by phase and kernel family
  double worst_error = 0;                                    ///< largest |O - O in fp64| of the cases
  double worst_lse_error = 0;                                ///< likewise for the LSE, where it is finite
  /// refused: the refusal; failed: what was wrong; too_few: what is lacking; other_kernels: which kernels.
  std::string reason;
  bool operator==(const CellProof&) const = default;
};

/// A kernel that cases of a row reached.
struct KernelProof {
  std::string family, instance;
  int64_t cases = 0;        ///< passing cases
  int64_t split_cases = 0;  ///< those in which some row's keys span two or more splits
  int64_t cells = 0;        ///< cells that these cases prove
  int64_t least = 0;        ///< the lowest number of cases of these cells
  bool operator==(const KernelProof&) const = default;
};

/// One row of the matrix.
struct BackendProof {
  std::string name, version;
  /// The label of another row with the same claims for the same kernels: that one was run, and the rest is
  /// empty. "" = this row was run.
  std::string same_as;
  std::vector<std::string> families;  ///< kernel families that the row claims; none = any
  int64_t cases = 0;                  ///< distinct cases: a case counts for many cells
  std::vector<KernelProof> kernels;
  std::vector<CellProof> cells;  ///< in the order of the columns
  std::string commit = {};       ///< of the code that ran, where it is not the file's
  std::string date = {};         ///< of the run, likewise
  bool operator==(const BackendProof&) const = default;
};

struct Proof {
  std::string device;       ///< as parse_device() names it: "cpu", "sm90"
  std::string device_name;  ///< "AMD EPYC ...", "NVIDIA H200"
  std::string isa;          ///< instruction sets that kernels ran on, "sm_90" for a GPU
  std::string driver;       ///< of a GPU, and its CUDA version: "580.95.05, CUDA 13.0"; else ""
  std::string compiler;     ///< "g++ 12.2.0", with a GPU "..., CUDA 13.0"
  std::string commit;       ///< of the code that ran; "" = not known
  std::string date;         ///< YYYY-MM-DD
  int threads = 0;
  double seconds = 0;  ///< wall-clock time
  /// Passing cases that a claimed cell needs: in all, in each phase on the row's own kernels, and on each of
  /// these kernels that any of its cases reaches.
  int64_t needed = 0, needed_of_phase = 0, needed_of_kernel = 0;
  std::vector<BackendProof> backends;

  /// Null when there is no such row.
  const BackendProof* find(std::string_view name, std::string_view version) const;
  bool operator==(const Proof&) const = default;
};

/// One line for each cell, so that two proofs can be compared line by line.
std::string to_json(const Proof& proof);
/// Refuses everything that to_json() does not write: unknown or missing keys, other types, duplicate rows or
/// cells. The error message begins with `file`.
Result<Proof> parse_proof(std::string_view text, const std::string& file);

}  // namespace fovea::conformance
