#pragma once
// proof/<device>.json: what a run of `fovea conformance` proved, committed, so that the documents can say it.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"

namespace fovea::conformance {

enum class CellStatus : uint8_t {
  proven,         ///< claimed, every case was right, and enough of each phase reached the row's own kernels
  other_kernels,  ///< likewise, but in some phase only kernels of other families than the row's serve it
  refused,        ///< not claimed, and asking for it gave the documented reason
  unasked,  ///< not claimed, and nothing in a spec asks for it (a graph level), so there is no refusal to see
  too_few,  ///< claimed, no case was wrong, and fewer than a proof takes were right
  failed,   ///< claimed and wrong, or not claimed and not refused as documented
};
std::string_view to_string(CellStatus status);

/// What became of one cell (see Cell in attention/columns.h).
struct CellProof {
  std::string cell;  ///< "kv_dtypes=fp8_e4m3"
  CellStatus status = CellStatus::proven;
  int64_t cases = 0;                                         ///< right ones in which the value was used
  std::map<std::string, int64_t> prefill = {}, decode = {};  ///< of them, by the family of kernels that ran
  double worst_error = 0;                                    ///< largest |O - O in fp64| of the cases
  double worst_lse_error = 0;                                ///< likewise of the LSE, where it is finite
  /// Of a refused cell the refusal, of a failed one what was wrong, of too_few what is lacking, of
  /// other_kernels which they are.
  std::string reason;
  bool operator==(const CellProof&) const = default;
};

/// A kernel that cases of a row reached.
struct KernelProof {
  std::string family, instance;
  int64_t cases = 0;        ///< right ones
  int64_t split_cases = 0;  ///< of them, those in which some row's keys lie in two or more splits
  int64_t cells = 0;        ///< that those cases prove
  int64_t least = 0;        ///< cases of the one of them that has fewest
  bool operator==(const KernelProof&) const = default;
};

/// One row of the matrix.
struct BackendProof {
  std::string name, version;
  /// Another row, by its label, that claims the same of the same kernels: it is what was run, and the rest is
  /// empty. "" = this row was run itself.
  std::string same_as;
  std::vector<std::string> families;  ///< of kernels that the row is a claim about; none = whichever run
  int64_t cases = 0;                  ///< distinct ones: a case counts for many cells
  std::vector<KernelProof> kernels;
  std::vector<CellProof> cells;  ///< in the order of the columns
  bool operator==(const BackendProof&) const = default;
};

struct Proof {
  std::string device;       ///< as parse_device() names it: "cpu", "sm90"
  std::string device_name;  ///< "AMD EPYC ...", "NVIDIA H200"
  std::string isa;          ///< instruction sets that kernels ran on, "sm_90" of a GPU
  std::string driver;       ///< of a GPU, and the CUDA that it is for: "580.95.05, CUDA 13.0"; else ""
  std::string compiler;     ///< "g++ 12.2.0", with a GPU "..., CUDA 13.0"
  std::string commit;       ///< of the code that ran; "" = not known
  std::string date;         ///< YYYY-MM-DD
  int threads = 0;
  double seconds = 0;  ///< of the wall clock
  /// What a claimed cell needs: right cases, those of each phase on the row's own kernels, and those on each
  /// of these kernels that any of its cases reaches.
  int64_t needed = 0, needed_of_phase = 0, needed_of_kernel = 0;
  std::vector<BackendProof> backends;

  /// Null when it has no such row.
  const BackendProof* find(std::string_view name, std::string_view version) const;
  bool operator==(const Proof&) const = default;
};

/// One line for each cell, so that two proofs can be compared by lines.
std::string to_json(const Proof& proof);
/// Refuses what to_json() does not write: other keys, missing ones, other types, a row or a cell twice.
/// `file` begins the message.
Result<Proof> parse_proof(std::string_view text, const std::string& file);

}  // namespace fovea::conformance
