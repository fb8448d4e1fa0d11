#pragma once
// A drafter's runs on the CPU: each is done when run() returns.
#include <vector>

#include "engine/draft_runs.h"
#include "engine/model_runner.h"

namespace fovea {

class HostDraftRuns final : public DraftRuns {
 public:
  struct Options {
    int slots = 0;
    int sampled_vocab = 0;                        ///< only ids below are drafted
    std::vector<int32_t> tokens;                  ///< the model's token of each logit; empty = the same
    int kept_rows = 0, width = 0, own_width = 0;  ///< heads: of a row's state of the model, and of the head
  };
  /// The runner and the stream must outlive it.
  HostDraftRuns(ModelRunner& runner, Stream& stream, Options options);

  bool wants_all_logits(int) const override { return false; }
  void begin(std::span<const std::span<const float>> states) override;
  Status keep(std::span<const int32_t> rows, int first) override;
  Status run(const Run& run) override;
  Result<std::span<const int32_t>> drafts(int count) override;

 private:
  void gather(const Run& run);
  int32_t best(std::span<const float> logits) const;

  ModelRunner& runner_;
  Stream& stream_;
  Options options_;
  std::vector<std::span<const float>> step_;  // of begin()
  std::vector<float> kept_, states_;          // [rows, width]
  std::vector<int32_t> drafts_;               // [slots]
};

}  // namespace fovea
