#pragma once
// What a sequence's bits must not depend on.
#include <map>
#include <memory>
#include <string>

#include "conformance/case_space.h"
#include "conformance/run.h"

namespace fovea::conformance {

/// Thread pools by their size, made when they are first asked for, and the machines that cases run on.
class Pools {
 public:
  /// With `gpu` all cases run there.
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

/// Rows [first, last) of an output; for comparing a sequence with the part of a batch that it was.
Output rows_of(const Output& all, const AttentionSpec& spec, int64_t first, int64_t last);

/// Sequence `s` of `problem` in chunks of `chunk` rows, put together; single rows go through forward_decode.
/// For masks that look only backwards.
Output in_chunks(AttentionBackend& backend, const Problem& problem, int s, int chunk, const Layout& layout,
                 Machine& machine);

/// Runs `c` again where only what `level` names is another. `first` is what it gave before, on the machine of
/// c.threads; empty = the same bits, else what changed them.
std::string find_change(Invariance level, AttentionBackend& backend, const Case& c, const Output& first,
                        Pools& pools);

}  // namespace fovea::conformance
