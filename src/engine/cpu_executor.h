#pragma once
// Steps on the CPU: submit() computes the step, and wait() returns its result at once.
#include <cstdint>
#include <vector>

#include "device/stream.h"
#include "engine/executor.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"

namespace fovea {

class CpuExecutor final : public Executor {
 public:
  /// Both must outlive the executor. `stream` is a CPU stream.
  CpuExecutor(ModelRunner& runner, Stream& stream);

  Overlap overlap() const override { return {}; }
  bool keeps_hidden() const override { return runner_.hidden_states() > 0; }
  Ticket submit(const Step& step) override;
  StepResult wait(Ticket ticket) override;
  std::vector<AttentionUse> attention() const override { return runner_.attention(); }

 private:
  ModelRunner& runner_;
  Stream& stream_;
  std::vector<Sampler> samplers_;  // one per thread
  StepResult result_;
  uint64_t submitted_ = 0, taken_ = 0;
};

}  // namespace fovea
