#pragma once
// A device whose results come late but in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "engine/core.h"
#include "engine/executor.h"

namespace fovea::test {

using Tokens = std::vector<int32_t>;

inline constexpr int kVocab = 5;
inline constexpr int32_t kPoison = -77;
/// Added to the "key" of a row that decode computed, where phases differ in their bits.
inline constexpr int32_t kDecoded = 1000;

/// The token that follows `history`: a hash of the last `window` tokens (0 = all) and their order.
inline int32_t next_token(std::span<const int32_t> history, int window = 0) {
  if (window > 0 && history.size() > static_cast<size_t>(window))
    history = history.last(static_cast<size_t>(window));
  uint64_t hash = 1469598103934665603u;
  for (const int32_t token : history)
    hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211u;
  return static_cast<int32_t>((hash >> 33) % kVocab);
}

/// Runs steps in order, each at some time between its submission and its wait(). The "keys" are the tokens
/// themselves, and are read through the page tables as they were at submission, so a page that is lost,
/// released too early or overwritten changes the tokens.
class LateDevice final : public Executor {
 public:
  struct Options {
    Overlap overlap;
    int tokens_per_result = 1;
    bool latest = false;  ///< no step runs before its wait(); otherwise at random times
    uint64_t fails = 0;   ///< number of the step that fails, from 1
  };

  LateDevice(const SchedulerConfig& config, const Options& options, uint32_t seed = 0)
      : config_(config),
        options_(options),
        slots_(static_cast<size_t>(config.num_pages * config.page_size), kPoison),
        rng_(seed) {}

  /// Pages without an owner in `scheduler` are overwritten before a step runs.
  void watch(const Scheduler& scheduler) { scheduler_ = &scheduler; }

  Overlap overlap() const override { return options_.overlap; }
  std::vector<AttentionUse> attention() const override { return {}; }

  Ticket submit(const Step& step) override {
    Queued queued;
    const BatchMeta& meta = step.batch.meta();
    const ForwardInput input = step.batch.input();
    int b = 0;  // the chunk's last sequence of the batch
    size_t begin = 0;
    for (const SequenceStep& asked : step.sequences) {
      b += asked.chunk.batch_seqs() - 1;
      Part& part = queued.parts.emplace_back();
      const auto count = static_cast<size_t>(asked.chunk.count);
      const auto copy = [&](const auto& all) {
        return std::vector(all.begin() + static_cast<std::ptrdiff_t>(begin),
                           all.begin() + static_cast<std::ptrdiff_t>(begin + count));
      };
      part.id = asked.chunk.sequence->id;
      part.ids = copy(input.token_ids);
      part.slots = copy(input.slots);
      part.first = asked.chunk.first;
      part.logits_first = asked.chunk.logits_first;
      part.prompt_len = asked.chunk.sequence->prompt_len;
      part.samples = asked.sampling.has_value();
      part.drafts = asked.chunk.drafts;
      drafts += part.drafts;
      part.mark = config_.phases_differ && asked.chunk.decode ? kDecoded : 0;
      EXPECT_EQ(input.positions[begin], part.first);
      const int pages = (asked.chunk.end() + config_.page_size - 1) / config_.page_size;
      part.pages.assign(meta.pages(b), meta.pages(b) + pages);
      future_tokens += std::ranges::count(part.ids, kFutureToken);
      begin += count;
      EXPECT_EQ(begin, static_cast<size_t>(meta.q_offsets[static_cast<size_t>(++b)]));
    }
    EXPECT_EQ(b, meta.num_seqs());
    EXPECT_LE(b, config_.max_running);
    for (int32_t page = 0; page < static_cast<int32_t>(config_.num_pages); ++page)
      if (scheduler_->page_free(page)) queued.free_pages.push_back(page);
    queued.number = ++submitted;
    queue_.push_back(std::move(queued));
    overlapped += queue_.size() > 1;
    EXPECT_LE(queue_.size(), static_cast<size_t>(options_.overlap.open_steps));
    check_pages();
    if (!options_.latest) advance(rng_() % (queue_.size() + 1));
    return {submitted};
  }

  StepResult wait(Ticket ticket) override {
    EXPECT_FALSE(queue_.empty());
    EXPECT_EQ(ticket.number, queue_.front().number) << "in the order of submission";
    advance(1);
    StepResult result = std::move(queue_.front().result);
    queue_.pop_front();
    --done_;
    return result;
  }

  /// No page that an open step writes is free, or also written for another sequence.
  void check_pages() const {
    std::map<int64_t, uint64_t> writer;
    for (const Queued& queued : queue_)
      for (const Part& part : queued.parts)
        for (const int64_t slot : part.slots) {
          const int64_t page = slot / config_.page_size;
          EXPECT_FALSE(scheduler_->page_free(static_cast<int32_t>(page))) << "sequence " << part.id;
          EXPECT_EQ(writer.try_emplace(page, part.id).first->second, part.id) << "page " << page;
        }
  }

  size_t open() const { return queue_.size(); }

  uint64_t submitted = 0;
  int64_t overlapped = 0, future_tokens = 0, drafts = 0;

 private:
  /// One chunk of a step.
  struct Part {
    uint64_t id = 0;
    Tokens ids, pages;
    std::vector<int64_t> slots;
    int first = 0, logits_first = 0, prompt_len = 0, drafts = 0;
    int32_t mark = 0;
    bool samples = false;
  };
  struct Queued {
    uint64_t number = 0;
    std::vector<Part> parts;
    Tokens free_pages;
    StepResult result;
  };

  /// Runs steps until the oldest `count` are done.
  void advance(size_t count) {
    for (; done_ < count; ++done_)
      run(queue_[done_]);
  }

  void run(Queued& step) {
    for (const int32_t page : step.free_pages)
      std::fill_n(slots_.begin() + int64_t{page} * config_.page_size, config_.page_size, kPoison);
    if (step.number == options_.fails) {
      step.result.status = Error{ErrorCode::internal, "the device failed"};
      return;
    }
    for (Part& part : step.parts)
      for (size_t row = 0; row < part.ids.size(); ++row)
        slots_[static_cast<size_t>(part.slots[row])] =
            (part.ids[row] == kFutureToken ? newest_[part.id] : part.ids[row]) + part.mark;
    for (const Part& part : step.parts)
      step.result.sequences.push_back(result_of(part));
  }

  SequenceResult result_of(const Part& part) {
    SequenceResult result;
    const int end = part.first + static_cast<int>(part.ids.size());
    Tokens history;
    const int seen = config_.window > 0 ? std::max(0, part.first - config_.window + 1) : 0;
    for (int position = seen; position < end; ++position) {
      const auto page = static_cast<size_t>(part.pages[static_cast<size_t>(position / config_.page_size)]);
      history.push_back(slots_[page * static_cast<size_t>(config_.page_size) +
                               static_cast<size_t>(position % config_.page_size)]);
    }
    for (int position = part.logits_first; position + 1 < std::min(end + 1, part.prompt_len); ++position) {
      TokenLogprobs logprobs;
      logprobs.token.token_id =
          next_token(std::span(history).first(static_cast<size_t>(position + 1 - seen)), config_.window);
      result.prompt_logprobs.push_back(logprobs);
    }
    if (!part.samples) return result;
    for (int i = 0; i < part.drafts; ++i) {  // position end - drafts - 1 + i samples
      const auto seen_keys = history.size() - static_cast<size_t>(part.drafts - i);
      result.tokens.push_back(next_token(std::span(history).first(seen_keys), config_.window));
      const auto draft = part.ids.size() - static_cast<size_t>(part.drafts - i);
      if (result.tokens.back() != part.ids[draft]) return result;
    }
    for (int i = 0; i < options_.tokens_per_result; ++i) {
      result.tokens.push_back(next_token(history, config_.window));
      history.push_back(result.tokens.back() + (config_.phases_differ ? kDecoded : 0));
    }
    newest_[part.id] = result.tokens.front();
    return result;
  }

  SchedulerConfig config_;
  Options options_;
  Tokens slots_;
  std::mt19937 rng_;
  const Scheduler* scheduler_ = nullptr;
  std::deque<Queued> queue_;
  size_t done_ = 0;  // steps of the queue that have run
  std::map<uint64_t, int32_t> newest_;
};

struct Answer {
  Tokens prompt, expected, ids;
  FinishReason expected_finish = FinishReason::length, finish = FinishReason::none;
  std::vector<TokenLogprobs> prompt_logprobs;
  std::string error;
  int ends = 0;
  bool scores = false;
};

/// An engine core on a late device; every step is checked.
class Harness {
 public:
  Harness(const SchedulerConfig& config, const LateDevice::Options& options, uint32_t seed = 0,
          std::unique_ptr<Speculator> speculator = nullptr)
      : config_(config), device(config, options, seed), core(config, device, std::move(speculator)) {
    device.watch(core.scheduler());
    context_.vocab_size = context_.sampled_vocab = kVocab;
    context_.max_seq_len = config.max_seq_len;
  }

  /// `stop`: the id that ends the answer; -1 = none.
  Answer& add(Tokens prompt, int max_tokens, int32_t stop = -1, bool scores = false) {
    auto answer = std::make_shared<Answer>();
    answer->prompt = prompt;
    answer->scores = scores;
    Tokens all = prompt;  // as keys
    for (int i = 0; i < max_tokens && answer->expected_finish == FinishReason::length; ++i) {
      const int32_t token = next_token(all, config_.window);
      if (token == stop) {
        answer->expected_finish = FinishReason::stop;
      } else {
        all.push_back(token + (config_.phases_differ ? kDecoded : 0));
        answer->expected.push_back(token);
      }
    }
    GenerateRequest request;
    request.prompt_ids = std::move(prompt);
    request.sampling.max_tokens = max_tokens;
    if (stop >= 0) request.sampling.stop_token_ids = {stop};
    if (scores) request.prompt_logprobs = 0;
    auto created = Request::create(
        std::move(request),
        [answer](const RequestOutput& output) {
          EXPECT_EQ(answer->ends, 0) << "an output after the last";
          answer->ids.insert(answer->ids.end(), output.token_ids.begin(), output.token_ids.end());
          if (output.finish == FinishReason::none) return;
          ++answer->ends;
          answer->finish = output.finish;
          answer->error = output.error.message;
          answer->prompt_logprobs = output.prompt_logprobs;
        },
        context_);
    EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().message);
    created->front()->set_id(answers.size());
    core.add(std::move(created->front()));
    answers.push_back(std::move(answer));
    return *answers.back();
  }

  /// A request with `n` answers, the only one of the core, whose outputs nobody looks at.
  void add_group(Tokens prompt, int max_tokens, int n) {
    GenerateRequest request;
    request.prompt_ids = std::move(prompt);
    request.sampling.max_tokens = max_tokens;
    request.sampling.n = n;
    auto created = Request::create(std::move(request), [](const RequestOutput&) {}, context_);
    ASSERT_TRUE(created.ok());
    for (auto& answer : *created) {
      answer->set_id(0);
      core.add(std::move(answer));
    }
  }

  void step() {
    core.step([] {});
    device.check_pages();
    const Scheduler& s = core.scheduler();
    ASSERT_TRUE(s.consistent());
    ASSERT_EQ(s.pages_free() + s.pages_cached() + s.pages_in_use(), s.pages_total());
  }

  /// Steps until the core is idle, then checks all answers; cancelled and failed ones may end early.
  void finish() {
    for (int steps = 0; !core.idle(); ++steps) {
      ASSERT_LT(steps, 20000) << "no progress";
      step();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_EQ(core.scheduler().pages_in_use(), 0);
    EXPECT_EQ(device.open(), 0u);
    for (size_t i = 0; i < answers.size(); ++i)
      expect_right(*answers[i], i);
  }

  void expect_right(const Answer& answer, size_t index) const {
    SCOPED_TRACE(testing::Message() << "request " << index);
    EXPECT_EQ(answer.ends, 1);
    if (answer.finish == FinishReason::cancelled || answer.finish == FinishReason::error) {
      ASSERT_LE(answer.ids.size(), answer.expected.size());
      EXPECT_TRUE(std::ranges::equal(answer.ids, std::span(answer.expected).first(answer.ids.size())));
      return;
    }
    EXPECT_EQ(answer.finish, answer.expected_finish);
    EXPECT_EQ(answer.ids, answer.expected);
    if (!answer.scores) return;
    ASSERT_EQ(answer.prompt_logprobs.size(), answer.prompt.size() - 1);
    for (size_t i = 0; i + 1 < answer.prompt.size(); ++i)
      EXPECT_EQ(answer.prompt_logprobs[i].token.token_id,
                next_token(std::span(answer.prompt).first(i + 1), config_.window));
  }

 private:
  SchedulerConfig config_;
  RequestContext context_;

 public:
  LateDevice device;
  EngineCore core;
  std::vector<std::shared_ptr<Answer>> answers;
};

}  // namespace fovea::test
