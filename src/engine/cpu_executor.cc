#include "engine/cpu_executor.h"

#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "engine/logit_rows.h"
#include "profile/scopes.h"

namespace fovea {

CpuExecutor::CpuExecutor(ModelRunner& runner, Stream& stream)
    : runner_(runner), stream_(stream), samplers_(static_cast<size_t>(stream.pool().size())) {}

Ticket CpuExecutor::submit(const Step& step) {
  FOVEA_CHECK(submitted_ == taken_);
  const double planned = runner_.plan_seconds(), attended = runner_.attention_seconds();
  result_ = {};
  result_.status = runner_.run(step.batch, stream_);
  result_.plan_seconds = runner_.plan_seconds() - planned;
  result_.attention_seconds = runner_.attention_seconds() - attended;
  if (result_.status.ok()) {
    const profile::Range range("sample", static_cast<int64_t>(step.sequences.size()));
    LogitRows rows(step.sequences);
    const auto logits_of = [&](int row) { return runner_.logits(row); };
    const auto evaluate = [&](int64_t group, int worker) {
      rows.evaluate(static_cast<int>(group), logits_of, samplers_[static_cast<size_t>(worker)]);
    };
    stream_.pool().parallel_tasks(rows.groups(), evaluate,
                                  {static_cast<double>(rows.size()) * runner_.vocab_size()});
    for (size_t i = 0; i < step.sequences.size(); ++i)
      result_.sequences.push_back(rows.result(i, logits_of));
    for (int i = 0; i < runner_.hidden_states(); ++i)
      result_.hidden.push_back(runner_.hidden(i));
  }
  return {++submitted_};
}

StepResult CpuExecutor::wait(Ticket ticket) {
  FOVEA_CHECK(ticket.number == submitted_ && taken_ + 1 == submitted_);
  ++taken_;
  return std::move(result_);
}

}  // namespace fovea
