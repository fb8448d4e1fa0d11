#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>

#include "engine/batch_builder.h"

namespace fovea {
namespace {

using Tokens = std::vector<int32_t>;

/// The token that follows `history`: any change of any token or of their order changes it.
int32_t next_token(const Tokens& history) {
  uint64_t hash = 1469598103934665603u;
  for (int32_t t : history)
    hash = (hash ^ static_cast<uint64_t>(t)) * 1099511628211u;
  return static_cast<int32_t>(hash >> 33) % 3;  // few symbols: generated text shares prefixes too
}

Tokens run_alone(Tokens prompt, int new_tokens) {
  for (int i = 0; i < new_tokens; ++i)
    prompt.push_back(next_token(prompt));
  return prompt;
}

/// A model whose "keys" are the tokens themselves: it reads its history through the page table only, so a
/// page that is lost, shared wrongly or overwritten changes what it says.
class PagedFakeModel {
 public:
  explicit PagedFakeModel(const SchedulerConfig& c)
      : page_size_(c.page_size), slots_(static_cast<size_t>(c.num_pages * c.page_size), -1) {}

  /// The next token after each logit row.
  std::vector<int32_t> forward(const BatchBuilder& batch) {
    const BatchMeta& meta = batch.meta();
    const ForwardInput input = batch.input();
    EXPECT_EQ(meta.num_tokens(), static_cast<int>(input.token_ids.size()));
    for (size_t row = 0; row < input.slots.size(); ++row)
      slots_[static_cast<size_t>(input.slots[row])] = input.token_ids[row];
    std::vector<int32_t> next;
    size_t logit = 0;
    for (int b = 0; b < meta.num_seqs(); ++b) {
      Tokens history;
      for (int p = 0; p < meta.kv_lens[static_cast<size_t>(b)]; ++p) {
        const auto entry = static_cast<size_t>(b * meta.page_table_stride + p / page_size_);
        history.push_back(
            slots_[static_cast<size_t>(meta.page_table[entry]) * static_cast<size_t>(page_size_) +
                   static_cast<size_t>(p % page_size_)]);
      }
      const int begin = meta.q_offsets[static_cast<size_t>(b)],
                end = meta.q_offsets[static_cast<size_t>(b) + 1];
      for (; logit < input.logit_rows.size() && input.logit_rows[logit] < end; ++logit) {
        EXPECT_GE(input.logit_rows[logit], begin);
        const int keep = input.positions[static_cast<size_t>(input.logit_rows[logit])] + 1;
        next.push_back(next_token(Tokens(history.begin(), history.begin() + keep)));
      }
    }
    EXPECT_EQ(logit, input.logit_rows.size());
    return next;
  }

 private:
  int page_size_;
  std::vector<int32_t> slots_;
};

struct Job {
  Sequence sequence;
  Tokens expected;      // prompt and answer of a run alone
  bool scores = false;  // wants logits of every prompt position
  Tokens prompt_next;   // what the model said after each prompt position
};

/// Runs scheduler steps against the fake model and checks everything that must hold at each.
class Harness {
 public:
  explicit Harness(const SchedulerConfig& config) : config_(config), scheduler_(config), model_(config) {}

  Job& add(Tokens prompt, int new_tokens, bool scores = false) {
    auto job = std::make_unique<Job>();
    job->sequence.id = next_id_++;
    job->sequence.prompt_len = static_cast<int>(prompt.size());
    job->sequence.tokens = prompt;
    job->sequence.logits_from = scores ? 0 : job->sequence.prompt_len - 1;
    job->scores = scores;
    job->prompt_next.assign(prompt.size(), -1);
    job->expected = run_alone(std::move(prompt), new_tokens);
    scheduler_.add(&job->sequence);
    jobs_.push_back(std::move(job));
    return *jobs_.back();
  }

  void cancel(size_t index) {
    scheduler_.remove(&jobs_[index]->sequence);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void step() {
    const auto chunks = scheduler_.schedule();
    int rows = 0, logits = 0;
    bool prefill_seen = false;
    for (const ScheduledChunk& c : chunks) {
      rows += c.count;
      logits += c.logit_rows();
      ASSERT_GE(c.count, 1);
      ASSERT_FALSE(c.decode && prefill_seen) << "decodes come first";
      prefill_seen |= !c.decode;
    }
    ASSERT_LE(rows, config_.max_batched_tokens);
    ASSERT_LE(logits, config_.max_logit_rows);
    ASSERT_LE(scheduler_.running(), config_.max_running);
    builder_.build(chunks, config_.page_size);
    ASSERT_EQ(builder_.num_logit_rows(), logits);
    const std::vector<int32_t> next = model_.forward(builder_);
    scheduler_.commit();
    size_t row = 0;
    std::vector<Sequence*> finished;
    for (const ScheduledChunk& c : chunks) {
      Sequence& s = *c.sequence;
      Job& job = *find(s);
      for (int p = c.logits_first; p < c.end(); ++p, ++row)
        if (p < s.prompt_len) {
          job.prompt_next[static_cast<size_t>(p)] = next[row];
          s.logits_from = std::max(s.logits_from, std::min(p + 1, s.prompt_len - 1));
        }
      if (!c.samples) continue;
      if (s.tokens.size() < job.expected.size()) s.tokens.push_back(next[row - 1]);
      if (s.tokens.size() == job.expected.size()) finished.push_back(&s);
    }
    for (Sequence* s : finished)
      finish(*s);
    ASSERT_TRUE(scheduler_.consistent());
    ASSERT_EQ(scheduler_.pages_free() + scheduler_.pages_cached() + scheduler_.pages_in_use(),
              scheduler_.pages_total());
    ASSERT_GE(scheduler_.pages_in_use(), 0);
    if (scheduler_.idle()) {
      ASSERT_EQ(scheduler_.pages_in_use(), 0);
    }
  }

  Scheduler& scheduler() { return scheduler_; }
  size_t live() const { return jobs_.size(); }
  int finished() const { return finished_; }
  const Sequence* last() const { return &last_; }

 private:
  Job* find(const Sequence& s) {
    for (auto& job : jobs_)
      if (&job->sequence == &s) return job.get();
    return nullptr;
  }
  void finish(Sequence& s) {
    scheduler_.remove(&s);
    Job* job = find(s);
    EXPECT_EQ(s.tokens, job->expected);
    if (job->scores) {
      for (size_t p = 0; p < static_cast<size_t>(s.prompt_len); ++p)
        EXPECT_EQ(
            job->prompt_next[p],
            next_token(Tokens(s.tokens.begin(), s.tokens.begin() + static_cast<std::ptrdiff_t>(p) + 1)));
    }
    last_ = s;
    ++finished_;
    std::erase_if(jobs_, [&](const auto& j) { return j.get() == job; });
  }

  SchedulerConfig config_;
  Scheduler scheduler_;
  PagedFakeModel model_;
  BatchBuilder builder_;
  std::vector<std::unique_ptr<Job>> jobs_;
  Sequence last_;
  uint64_t next_id_ = 0;
  int finished_ = 0;
};

SchedulerConfig config_of(int max_running, int budget, int page_size, int64_t pages, bool cache = true) {
  SchedulerConfig c;
  c.max_running = max_running;
  c.max_batched_tokens = budget;
  c.max_logit_rows = max_running;
  c.page_size = page_size;
  c.num_pages = pages;
  c.prefix_cache = cache;
  return c;
}

TEST(SchedulerTest, ChunksAPrefillAndMixesItWithDecodes) {
  Harness h(config_of(4, 4, 2, 64));
  h.add({1, 1, 1}, 10);
  h.step();  // prefill of 3
  h.add({2, 2, 2, 2, 2, 2, 2}, 2);
  const auto chunks = h.scheduler().schedule();
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_TRUE(chunks[0].decode);
  EXPECT_EQ(chunks[0].count, 1);
  EXPECT_EQ(chunks[0].logit_rows(), 1);
  EXPECT_FALSE(chunks[1].decode);
  EXPECT_EQ(chunks[1].count, 3);
  EXPECT_EQ(chunks[1].logit_rows(), 0);
  EXPECT_FALSE(chunks[1].samples);
}

TEST(SchedulerTest, ThePrefixOfAFinishedPrefillIsShared) {
  Harness h(config_of(4, 16, 2, 64));
  h.add({1, 2, 1, 2, 1, 2, 1}, 3);
  h.step();
  h.add({1, 2, 1, 2, 1, 2, 1}, 3);  // while the first still runs
  h.step();
  EXPECT_EQ(h.scheduler().stats().prefix_hits, 6);
  while (h.live())
    h.step();
  EXPECT_EQ(h.last()->cached_tokens, 6);
}

TEST(SchedulerTest, TheLastPromptTokenIsAlwaysComputed) {
  Harness h(config_of(4, 16, 2, 64));
  h.add({1, 2, 1, 2}, 1);
  h.step();
  h.add({1, 2, 1, 2}, 1);
  h.step();
  EXPECT_EQ(h.finished(), 2);
  EXPECT_EQ(h.last()->cached_tokens, 2);  // one page of two: the second page holds the last token
}

TEST(SchedulerTest, GeneratedTokensAreCachedForTheNextTurn) {
  Harness h(config_of(4, 16, 2, 64));
  h.add({1, 2, 1}, 5);
  while (h.live())
    h.step();
  Tokens turn = h.last()->tokens;  // 8 tokens, the last one never computed
  turn.push_back(0);
  h.add(turn, 1);
  h.step();
  EXPECT_EQ(h.last()->cached_tokens, 6);
}

TEST(SchedulerTest, PromptLogitsBypassThePrefixCache) {
  Harness h(config_of(2, 16, 2, 64));
  h.add({1, 2, 1, 2, 1, 2}, 1);
  h.step();
  h.add({1, 2, 1, 2, 1, 2}, 1, true);
  while (h.live())
    h.step();  // two logit rows a step: the harness checks each position's
  EXPECT_EQ(h.last()->cached_tokens, 0);
}

TEST(SchedulerTest, PreemptsTheLastArrivedAndResumesIt) {
  // 8 pages of 2: the two need 3 + 3 pages at first and 7 each at the end.
  Harness h(config_of(4, 16, 2, 8));
  h.add({0, 1, 2, 0}, 9);
  h.add({2, 1, 0, 1}, 9);
  while (h.live())
    h.step();
  EXPECT_EQ(h.finished(), 2);
  EXPECT_GT(h.scheduler().stats().preemptions, 0);
  EXPECT_EQ(h.last()->id, 1u);
  EXPECT_GT(h.last()->preemptions, 0);
}

TEST(SchedulerTest, NobodyOvertakesTheFirstInLine) {
  Harness h(config_of(4, 16, 2, 8, false));
  h.add({0, 1, 2, 0, 0, 0, 0, 0, 0}, 4);  // 5 pages
  h.step();
  h.add({1, 1, 1, 1, 1, 1, 1, 1}, 1);  // 4: must wait
  h.add({2}, 1);                       // would fit
  h.step();
  EXPECT_EQ(h.scheduler().waiting(), 2);
  while (h.live())
    h.step();
  EXPECT_EQ(h.finished(), 3);
}

/// Random arrivals, cancels and lengths in pools that are too small: every answer equals a run alone.
TEST(SchedulerProperty, EveryRequestGetsTheTokensOfARunAlone) {
  int64_t preemptions = 0, hits = 0;
  int finished = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 rng(seed);
    const int page_size = std::array{1, 2, 3, 16}[seed % 4];
    const int longest = 40;
    const int64_t least = (longest + page_size - 1) / page_size;
    const int budget = std::array{1, 3, 7, 64}[rng() % 4];
    auto config = config_of(static_cast<int>(rng() % 6) + 1, budget, page_size,
                            least + static_cast<int64_t>(rng() % 20), rng() % 4 != 0);
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Harness h(config);
    int to_arrive = 25;
    for (int step = 0; h.live() || to_arrive > 0; ++step) {
      ASSERT_LT(step, 20000) << "no progress";
      while (to_arrive > 0 && rng() % 3 == 0) {
        --to_arrive;
        Tokens prompt(rng() % 30 + 1);
        for (auto& t : prompt)
          t = rng() % 10 == 0;
        const int room = longest - static_cast<int>(prompt.size());
        h.add(prompt, static_cast<int>(rng() % static_cast<uint32_t>(room)) + 1, rng() % 5 == 0);
      }
      if (h.live() && rng() % 40 == 0) h.cancel(rng() % h.live());
      h.step();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(h.scheduler().idle());
    preemptions += h.scheduler().stats().preemptions;
    hits += h.scheduler().stats().prefix_hits;
    finished += h.finished();
  }
  // The runs above did meet what they are about.
  EXPECT_GT(preemptions, 100);
  EXPECT_GT(hits, 1000);
  EXPECT_GT(finished, 1000);
}

}  // namespace
}  // namespace fovea
