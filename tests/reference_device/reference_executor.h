#pragma once
// The engine's executor on a GuardedDevice: a step is queued and runs at some time between its submission and
// its wait(). It reads tokens that earlier steps sample from the device's memory.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/executor.h"
#include "engine/logprobs.h"
#include "engine/model_runner.h"
#include "engine/sampler.h"
#include "ops/op_queue.h"
#include "tests/reference_device/reference_ops.h"

namespace fovea::test {

class ReferenceExecutor final : public Executor {
 public:
  struct Options {
    Overlap overlap{2, true};
    bool latest = false;  ///< no operation runs before wait(); otherwise at random times
    int max_seqs = 0, max_logit_rows = 0;
  };

  ReferenceExecutor(ModelRunner& runner, ReferenceOps& ops, GuardedDevice& device, Stream& stream,
                    const Options& options, uint32_t seed = 0)
      : runner_(runner), ops_(ops), device_(device), stream_(stream), options_(options), rng_(seed) {
    const size_t steps = static_cast<size_t>(options.overlap.open_steps);
    tokens_ = Buffer(device, steps * static_cast<size_t>(options.max_seqs) * sizeof(int32_t));
    for (size_t i = 0; i < steps; ++i)
      arrays_.emplace_back(device, size_t{64} * static_cast<size_t>(options.max_logit_rows));
    token_slots_ = Buffer(device, size_t{1} << 16);
  }
  ~ReferenceExecutor() override { (void)device_.synchronize(stream_); }

  Overlap overlap() const override { return options_.overlap; }
  std::vector<AttentionUse> attention() const override { return runner_.attention(); }

  Ticket submit(const Step& step) override {
    auto queued = std::make_unique<Queued>();
    queued->number = ++submitted;
    queued->status = queue(step, *queued);
    queued->end = device_.queued();
    open_.push_back(std::move(queued));
    overlapped += open_.size() > 1;
    if (!options_.latest) device_.run(device_.ended() + rng_() % (device_.queued() - device_.ended() + 1));
    return {submitted};
  }

  StepResult wait(Ticket ticket) override {
    FOVEA_CHECK(!open_.empty() && open_.front()->number == ticket.number);
    device_.run(open_.front()->end);
    const auto queued = std::move(open_.front());
    open_.pop_front();
    StepResult result;
    result.status = queued->status;
    for (size_t b = 0; b < queued->parts.size() && result.status; ++b)
      result.sequences.push_back(result_of(*queued, b));
    return result;
  }

  uint64_t submitted = 0;
  int64_t overlapped = 0, future_tokens = 0;

 private:
  struct Part {
    SequenceStep asked;
    uint64_t id = 0;
    std::vector<int32_t> prompt;
    std::optional<int> logprobs;
    size_t first_row = 0;
  };
  struct Queued {
    uint64_t number = 0, end = 0;
    Status status;
    std::vector<Part> parts;
    std::vector<int32_t> tokens;
    std::vector<float> logits;
  };

  int64_t slot(uint64_t number, size_t part) const {
    const auto open = static_cast<uint64_t>(options_.overlap.open_steps);
    return static_cast<int64_t>(number % open) * options_.max_seqs + static_cast<int64_t>(part);
  }
  /// The slot in tokens_ of the token that the sequence's newest open step samples.
  int32_t slot_of(uint64_t id) const {
    for (auto step = open_.rbegin(); step != open_.rend(); ++step)
      for (size_t b = 0; b < (*step)->parts.size(); ++b)
        if ((*step)->parts[b].id == id) return static_cast<int32_t>(slot((*step)->number, b));
    ADD_FAILURE() << "a future token of a sequence without an open step";
    return -1;
  }

  Status queue(const Step& step, Queued& queued) {
    const BatchMeta& meta = step.batch.meta();
    const ForwardInput input = step.batch.input();
    std::vector<int32_t> from(input.token_ids.size(), -1), slots, top_k;
    std::vector<float> temperature, top_p, min_p;
    std::vector<int64_t> seed, position;
    for (size_t b = 0; b < step.sequences.size(); ++b) {
      const SequenceStep& asked = step.sequences[b];
      const Sequence& sequence = *asked.chunk.sequence;
      for (auto t = static_cast<size_t>(meta.q_offsets[b]); t < static_cast<size_t>(meta.q_offsets[b + 1]);
           ++t) {
        if (input.token_ids[t] != kFutureToken) continue;
        from[t] = slot_of(sequence.id);
        ++future_tokens;
      }
      std::vector<int32_t> prompt(sequence.tokens.begin(), sequence.tokens.begin() + sequence.prompt_len);
      queued.parts.push_back({asked, sequence.id, std::move(prompt),
                              asked.sampling ? asked.sampling->params->logprobs : std::nullopt,
                              slots.size()});
      for (int p = asked.chunk.logits_first; p < asked.chunk.end(); ++p) {
        const SamplingParams params = asked.sampling ? *asked.sampling->params : SamplingParams();
        if (asked.sampling) FOVEA_CHECK(!asked.sampling->processor->active());
        slots.push_back(
            asked.sampling && p + 1 == asked.chunk.end() ? static_cast<int32_t>(slot(queued.number, b)) : -1);
        temperature.push_back(params.temperature);
        top_p.push_back(params.top_p);
        min_p.push_back(params.min_p);
        top_k.push_back(params.top_k);
        seed.push_back(asked.sampling ? static_cast<int64_t>(asked.sampling->seed) : 0);
        position.push_back(p + 1);
      }
    }
    FOVEA_RETURN_IF_ERROR(runner_.upload(step.batch, stream_));
    OpQueue ops(ops_, stream_);
    size_t offset = 0;
    const Tensor tokens =
        tokens_.tensor(ElementType::i32, {static_cast<int64_t>(tokens_.size() / sizeof(int32_t))});
    ops.take_tokens(tokens, upload(from, token_slots_, offset), runner_.tensors().token_ids);
    FOVEA_RETURN_IF_ERROR(runner_.launch(stream_));
    const Tensor logits = runner_.logits();
    Buffer& arrays = arrays_[queued.number % arrays_.size()];
    offset = 0;
    SampleRows rows;
    rows.slot = upload(slots, arrays, offset);
    rows.temperature = upload(temperature, arrays, offset);
    rows.top_p = upload(top_p, arrays, offset);
    rows.min_p = upload(min_p, arrays, offset);
    rows.top_k = upload(top_k, arrays, offset);
    rows.seed = upload(seed, arrays, offset);
    rows.position = upload(position, arrays, offset);
    if (logits.size(0) > 0) ops.sample(logits, logits.size(1), rows, tokens);
    FOVEA_RETURN_IF_ERROR(ops.status());
    queued.logits.resize(static_cast<size_t>(logits.elements()));
    queued.tokens.resize(static_cast<size_t>(options_.max_seqs));
    FOVEA_RETURN_IF_ERROR(device_.copy_to_host(queued.logits.data(), logits.data,
                                               queued.logits.size() * sizeof(float), stream_));
    return device_.copy_to_host(queued.tokens.data(), tokens.slice(0, slot(queued.number, 0), 1).data,
                                queued.tokens.size() * sizeof(int32_t), stream_);
  }

  template <class T>
  Tensor upload(const std::vector<T>& values, const Buffer& memory, size_t& offset) {
    const Tensor there = memory.tensor(element_type<T>(), {static_cast<int64_t>(values.size())}, offset);
    device_.queue([values, to = there.data] {
      if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
    });
    offset += (values.size() * sizeof(T) + 7) / 8 * 8;
    return there;
  }

  SequenceResult result_of(const Queued& queued, size_t b) const {
    const Part& part = queued.parts[b];
    const ScheduledChunk& chunk = part.asked.chunk;
    const auto vocab = static_cast<size_t>(runner_.vocab_size());
    SequenceResult result;
    size_t row = part.first_row;
    for (int p = chunk.logits_first; p < chunk.end(); ++p, ++row) {
      const auto logits = std::span(queued.logits).subspan(row * vocab, vocab);
      if (!scan_logits(logits).valid) {
        result.status = Error{ErrorCode::internal, "after token " + std::to_string(p) + " " + kBadLogits};
        return result;
      }
      if (static_cast<size_t>(p) + 1 < part.prompt.size())
        result.prompt_logprobs.push_back(
            token_logprobs(logits, part.prompt[static_cast<size_t>(p) + 1], part.asked.prompt_logprobs));
      else if (static_cast<size_t>(p) + 1 == part.prompt.size() && part.asked.last_logits)
        result.last_logits.assign(logits.begin(), logits.end());
      if (!part.asked.sampling || p + 1 < chunk.end()) continue;
      result.tokens.push_back(queued.tokens[b]);
      if (part.logprobs) result.logprobs.push_back(token_logprobs(logits, queued.tokens[b], *part.logprobs));
    }
    return result;
  }

  ModelRunner& runner_;
  ReferenceOps& ops_;
  GuardedDevice& device_;
  Stream& stream_;
  Options options_;
  std::mt19937 rng_;
  Buffer tokens_, token_slots_;  // i32 [open steps, max_seqs]; [rows] index in tokens_
  std::vector<Buffer> arrays_;   // memory of SampleRows, by open step
  std::deque<std::unique_ptr<Queued>> open_;
};

}  // namespace fovea::test
