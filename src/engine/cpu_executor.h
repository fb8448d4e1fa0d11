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
  Ticket submit(const Step& step) override;
  StepResult wait(Ticket ticket) override;
  std::vector<AttentionUse> attention() const override { return runner_.attention(); }

 private:
  /// One logit row of the step; the result is a pure function of it.
  struct Row {
    const SequenceStep* sequence = nullptr;
    int position = 0;      // of the row's token
    bool samples = false;  // the next token is sampled from it
    Status status;
    std::optional<int32_t> sampled;
    std::optional<TokenLogprobs> logprobs;  // of the sampled, or of the next prompt token
  };

  void collect_rows(std::span<const SequenceStep> sequences);
  void evaluate_rows();
  void evaluate(int index, Sampler& sampler);
  SequenceResult collect_result(const SequenceStep& sequence, size_t first_row);

  ModelRunner& runner_;
  Stream& stream_;
  std::vector<Sampler> samplers_;  // one per thread
  std::vector<Row> rows_;
  StepResult result_;
  uint64_t submitted_ = 0, taken_ = 0;
};

}  // namespace fovea
