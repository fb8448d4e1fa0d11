#pragma once
// What a sequence's bits must not depend on.
#include <map>
#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "conformance/case_space.h"
#include "conformance/run.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {

/// Thread pools by size, created on first use, and the machines that cases run on.
class Pools {
 public:
  /// If `gpu` is not null, all cases run there.
  explicit Pools(Machine* gpu = nullptr) : gpu_(gpu) {}
  ThreadPool& of(int threads);
  Machine& machine(int threads);

 private:
  struct Host {
    explicit Host(int threads) : pool(threads), machine(pool) {}
    ThreadPool pool;
    HostMachine machine;
  };
  Host& host(int threads);

  Machine* gpu_;
  std::map<int, std::unique_ptr<Host>> hosts_;
};

/// Rows [first, last) of an output; for comparing a sequence alone with its rows in a batch.
Output rows_of(const Output& all, const AttentionSpec& spec, int64_t first, int64_t last);

/// Sequence `s` of `problem` computed in chunks of `chunk` rows and concatenated; chunks of one row are steps
/// of phase `single_rows`. For masks that show no later keys.
Output in_chunks(AttentionBackend& backend, const Problem& problem, int s, int chunk, const Layout& layout,
                 Phase single_rows, Machine& machine);

/// Runs `c` again with only the property of `level` changed. `first` is the previous output, on the machine
/// of c.threads. Returns "" for the same bits, else what changed them.
std::string find_change(Invariance level, AttentionBackend& backend, const Case& c, const Output& first,
                        Pools& pools);

}  // namespace fovea::conformance
