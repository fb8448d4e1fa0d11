#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <span>

#include "engine/batch_builder.h"
#include "engine/scheduler_test_support.h"

namespace fovea {
namespace {

using test::config_of;
using Tokens = std::vector<int32_t>;

/// Added to the "key" of a row that decode computed, where phases differ in their bits.
constexpr int32_t kDecoded = 1000;

/// What a model sees of a sequence: at most the last `window` tokens (0 = all), the encoder input and, where
/// phases differ, which of them computed each key.
struct Sight {
  int window = 0;
  Tokens encoded = {};
  bool phases_differ = false;
};

/// The token that follows `history`: a hash of all visible tokens and their order.
int32_t next_token(std::span<const int32_t> history, const Sight& sight) {
  if (const auto window = static_cast<size_t>(sight.window); window > 0 && history.size() > window)
    history = history.last(window);
  uint64_t hash = 1469598103934665603u;
  for (int32_t t : sight.encoded)
    hash = (hash ^ static_cast<uint64_t>(t)) * 1099511628211u;
  for (int32_t t : history)
    hash = (hash ^ static_cast<uint64_t>(t)) * 1099511628211u;
  return static_cast<int32_t>(hash >> 33) % 3;  // few symbols: generated text shares prefixes too
}

Tokens run_alone(Tokens prompt, int new_tokens, const Sight& sight) {
  Tokens keys = prompt;
  for (int i = 0; i < new_tokens; ++i) {
    prompt.push_back(next_token(keys, sight));
    keys.push_back(prompt.back() + (sight.phases_differ ? kDecoded : 0));
  }
  return prompt;
}

/// A model whose "keys" are the tokens themselves: it reads its history through the page tables only, so a
/// page that is lost, shared wrongly or overwritten changes its output. Where phases differ, so does a key
/// that the wrong one computed.
class PagedFakeModel {
 public:
  explicit PagedFakeModel(const SchedulerConfig& c)
      : config_(c), slots_(static_cast<size_t>(c.num_pages * c.page_size), kPoison) {}

  /// The next token after each logit row.
  Tokens forward(const BatchBuilder& batch) {
    if (config_.max_encoder_len > 0 && batch.encoder().encodes()) encode(batch.encoder());
    const BatchMeta& meta = batch.meta();
    const ForwardInput input = batch.input();
    EXPECT_EQ(meta.num_tokens(), static_cast<int>(input.token_ids.size()));
    for (size_t row = 0; row < input.slots.size(); ++row)
      slots_[static_cast<size_t>(input.slots[row])] =
          input.token_ids[row] +
          (config_.phases_differ && row < static_cast<size_t>(batch.split().decode_rows) ? kDecoded : 0);
    EXPECT_LE(meta.num_seqs(), config_.max_running);
    Tokens next;
    size_t logit = 0;
    for (int b = 0; b < meta.num_seqs(); ++b) {
      Sight sight{config_.window, {}, config_.phases_differ};
      if (config_.phases_differ && b < batch.split().num_decodes) {
        EXPECT_EQ(meta.q_offsets[static_cast<size_t>(b)] + 1, meta.q_offsets[static_cast<size_t>(b) + 1]);
      }
      if (config_.max_encoder_len > 0) {
        const BatchMeta& cross = batch.encoder().cross_meta();
        EXPECT_EQ(cross.num_tokens(), meta.num_tokens());
        sight.encoded = read(cross, b, 0, cross.kv_lens[static_cast<size_t>(b)]);
      }
      const int begin = meta.q_offsets[static_cast<size_t>(b)],
                end = meta.q_offsets[static_cast<size_t>(b) + 1];
      for (; logit < input.logit_rows.size() && input.logit_rows[logit] < end; ++logit) {
        EXPECT_GE(input.logit_rows[logit], begin);
        const int keep = input.positions[static_cast<size_t>(input.logit_rows[logit])] + 1;
        EXPECT_LE(keep, meta.kv_lens[static_cast<size_t>(b)]);
        const int first = config_.window > 0 ? std::max(0, keep - config_.window) : 0;
        next.push_back(next_token(read(meta, b, first, keep), sight));
      }
    }
    EXPECT_EQ(logit, input.logit_rows.size());
    return next;
  }

  /// Overwrites free pages, whose content must not matter.
  void poison(const Scheduler& scheduler) {
    for (int64_t page = 0; page < config_.num_pages; ++page)
      if (scheduler.page_free(static_cast<int32_t>(page)))
        std::fill_n(slots_.begin() + page * config_.page_size, config_.page_size, kPoison);
  }

 private:
  static constexpr int32_t kPoison = -77;

  /// Tokens [first, last) of sequence b.
  Tokens read(const BatchMeta& meta, int b, int first, int last) const {
    Tokens tokens;
    for (int p = first; p < last; ++p) {
      const auto entry = static_cast<size_t>(b * meta.page_table_stride + p / config_.page_size);
      tokens.push_back(
          slots_[static_cast<size_t>(meta.page_table[entry]) * static_cast<size_t>(config_.page_size) +
                 static_cast<size_t>(p % config_.page_size)]);
      EXPECT_NE(tokens.back(), kPoison) << "position " << p;
    }
    return tokens;
  }

  /// The encoder's attention covers the input rows, each sequence over its own.
  void encode(const EncoderBatch& batch) {
    const EncodeInput input = batch.input();
    const BatchMeta meta = batch.self_meta();
    EXPECT_LE(input.offsets.back(), config_.max_encoder_rows());
    EXPECT_EQ(input.cross_slots.size(), static_cast<size_t>(input.offsets.back()));
    EXPECT_EQ(meta.num_seqs() + 1, static_cast<int>(input.offsets.size()));
    for (int b = 0; b < meta.num_seqs(); ++b)
      for (int row = 0; row < meta.kv_lens[static_cast<size_t>(b)]; ++row)
        EXPECT_EQ(meta.pages(b)[row], input.offsets[static_cast<size_t>(b)] + row);
    for (size_t row = 0; row < input.cross_slots.size(); ++row)
      slots_[static_cast<size_t>(input.cross_slots[row])] = input.token_ids[row];
  }

  SchedulerConfig config_;
  Tokens slots_;
};

struct Job {
  Sequence sequence;
  Sight sight;
  Tokens expected;      // prompt and answer of a run alone
  bool scores = false;  // wants logits of every prompt position
  Tokens prompt_next;   // the model's token after each prompt position
};

/// Runs scheduler steps against the fake model and checks everything that must hold at each.
class Harness {
 public:
  explicit Harness(const SchedulerConfig& config) : config_(config), scheduler_(config), model_(config) {}

  Job& add(Tokens prompt, int new_tokens, bool scores = false, int priority = 0, Tokens encoded = {},
           std::string client = {}) {
    auto job = std::make_unique<Job>();
    job->sequence.id = next_id_++;
    job->sequence.prompt_len = static_cast<int>(prompt.size());
    job->sequence.tokens = prompt;
    job->sequence.logits_from = scores ? 0 : job->sequence.prompt_len - 1;
    job->sequence.priority = priority;
    job->sequence.client = std::move(client);
    job->scores = scores;
    job->sight = {config_.window, encoded, config_.phases_differ};
    if (!encoded.empty()) {
      auto input = std::make_shared<EncoderInput>();
      input->rows = static_cast<int>(encoded.size());
      input->ids = std::move(encoded);
      job->sequence.encoder = std::move(input);
    }
    job->prompt_next.assign(prompt.size(), -1);
    job->expected = run_alone(std::move(prompt), new_tokens, job->sight);
    tokens_added_ += static_cast<int64_t>(job->expected.size());
    scheduler_.add(&job->sequence);
    jobs_.push_back(std::move(job));
    return *jobs_.back();
  }

  void cancel(size_t index) {
    scheduler_.remove(&jobs_[index]->sequence);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void step() {
    const Sequence* first = first_in_order();
    const bool ran = first && !first->pages.empty();
    const auto chunks = scheduler_.schedule();
    if (!chunks.empty()) ++steps_;
    if (ran) {
      ASSERT_FALSE(first->pages.empty()) << "the first in order was preempted";
    }
    int rows = 0, logits = 0;
    bool prefill_seen = false;
    for (const ScheduledChunk& c : chunks) {
      rows += c.count;
      logits += c.logit_rows();
      ASSERT_GE(c.count, 1);
      ASSERT_FALSE(c.decode && prefill_seen) << "decodes come first";
      prefill_seen |= !c.decode;
      if (config_.phases_differ) {
        const int prompt_len = c.sequence->prompt_len;
        ASSERT_EQ(c.decode, c.first >= prompt_len);
        ASSERT_TRUE(c.decode || c.end() <= prompt_len);
        if (c.decode) repeated_ += c.count - c.samples;
      }
    }
    ASSERT_LE(rows, config_.max_batched_tokens);
    ASSERT_LE(logits, config_.max_logit_rows);
    ASSERT_LE(scheduler_.running(), config_.max_running);
    builder_.build(chunks, config_.page_size);
    ASSERT_EQ(builder_.num_logit_rows(), logits);
    check_split(chunks);
    model_.poison(scheduler_);
    const Tokens next = model_.forward(builder_);
    if (!chunks.empty()) scheduler_.commit();
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
  int64_t steps() const { return steps_; }
  int64_t tokens_added() const { return tokens_added_; }
  Sequence& sequence(size_t index) { return jobs_[index]->sequence; }
  const Sequence* last() const { return &last_; }
  /// Rows of decode chunks whose next token was known, where phases differ.
  int64_t repeated() const { return repeated_; }

 private:
  void check_split(std::span<const ScheduledChunk> chunks) const {
    const PhaseSplit split = builder_.split();
    const auto offsets = builder_.meta().q_offsets;
    size_t b = 0;
    int rows = 0;
    for (size_t i = 0; i < chunks.size() && chunks[i].decode; ++i) {
      rows += chunks[i].count;
      b += static_cast<size_t>(config_.phases_differ ? chunks[i].count : 1);
    }
    ASSERT_EQ(split.num_decodes, static_cast<int>(b));
    ASSERT_EQ(split.decode_rows, rows);
    ASSERT_EQ(split.prefill_offsets.size(), offsets.size() - b);
    for (size_t i = b; i < offsets.size(); ++i)
      ASSERT_EQ(split.prefill_offsets[i - b], offsets[i] - rows);
  }
  Job* find(const Sequence& s) {
    for (auto& job : jobs_)
      if (&job->sequence == &s) return job.get();
    return nullptr;
  }
  const Sequence* first_in_order() const {
    const Sequence* first = nullptr;
    for (const auto& job : jobs_) {
      const Sequence& s = job->sequence;
      const bool sooner =
          first && config_.policy == SchedulingPolicy::priority && s.priority < first->priority;
      if (!first || sooner) first = &s;
    }
    return first;
  }
  void finish(Sequence& s) {
    scheduler_.remove(&s);
    Job* job = find(s);
    EXPECT_EQ(s.tokens, job->expected);
    if (job->scores) {
      for (size_t p = 0; p < static_cast<size_t>(s.prompt_len); ++p)
        EXPECT_EQ(job->prompt_next[p], next_token(std::span(s.tokens).first(p + 1), job->sight));
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
  int64_t steps_ = 0, tokens_added_ = 0, repeated_ = 0;
  int finished_ = 0;
};

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

std::shared_ptr<const LoraAdapter> adapter(uint64_t number) {
  auto made = std::make_shared<LoraAdapter>();
  made->number = number;
  return made;
}

TEST(SchedulerTest, APrefixIsThatOfOneAdapter) {
  for (const int page_size : {1, 2}) {
    Scheduler scheduler(config_of(4, 16, page_size, 64));
    const auto hits = [&](std::shared_ptr<const LoraAdapter> lora, const char* salt = "") {
      Sequence sequence;
      sequence.tokens = {1, 2, 1, 2, 1, 2, 1};
      sequence.prompt_len = 7;
      sequence.logits_from = 6;
      sequence.lora = std::move(lora);
      sequence.cache_salt = salt;
      scheduler.add(&sequence);
      EXPECT_EQ(scheduler.schedule().size(), 1u);
      scheduler.commit();
      scheduler.remove(&sequence);
      return sequence.cached_tokens;
    };
    const auto a = adapter(1), b = adapter(2);
    for (const auto& lora : {std::shared_ptr<const LoraAdapter>(), a, b})
      EXPECT_EQ(hits(lora), 0);
    for (const auto& lora : {b, std::shared_ptr<const LoraAdapter>(), a})
      EXPECT_EQ(hits(lora), 6);
    for (const int hit : {0, 6})
      for (const char* salt : {"x", "y"}) {
        EXPECT_EQ(hits(nullptr, salt), hit);
        EXPECT_EQ(hits(a, salt), hit);
      }
    EXPECT_EQ(hits(adapter(3)), 0);
  }
}

TEST(SchedulerTest, MoreAdaptersThanAStepMayHaveWait) {
  SchedulerConfig config = config_of(8, 64, 2, 64);
  config.max_loras = 2;
  Scheduler scheduler(config);
  std::array<Sequence, 6> all;
  const std::array adapters = {adapter(1), adapter(2), std::shared_ptr<const LoraAdapter>(),
                               adapter(1), adapter(3), std::shared_ptr<const LoraAdapter>()};
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].id = i;
    all[i].tokens = {1, 2, 1};
    all[i].prompt_len = 3;
    all[i].logits_from = 2;
    all[i].lora = i == 3 ? all[0].lora : adapters[i];
    scheduler.add(&all[i]);
  }
  EXPECT_EQ(scheduler.schedule().size(), 5u);  // the last one overtakes the one with a third adapter
  scheduler.commit();
  EXPECT_EQ(scheduler.waiting(), 1);
  scheduler.remove(&all[1]);
  for (const size_t i : {size_t{0}, size_t{2}, size_t{3}, size_t{5}})
    all[i].tokens.push_back(2);
  EXPECT_EQ(scheduler.schedule().size(), 5u);
  scheduler.commit();
  EXPECT_EQ(scheduler.waiting(), 0);
}

TEST(SchedulerTest, ASequenceThatWaitsForAnAdapterIsNotOvertakenForEver) {
  SchedulerConfig config = config_of(2, 64, 2, 64);
  config.max_loras = 1;
  Scheduler scheduler(config);
  const auto a = adapter(1), b = adapter(2);
  std::deque<Sequence> all;
  const auto add = [&](const std::shared_ptr<const LoraAdapter>& lora) {
    Sequence& made = all.emplace_back();
    made.id = all.size();
    made.tokens = {1, 2, 1};
    made.prompt_len = 3;
    made.logits_from = 2;
    made.lora = lora;
    scheduler.add(&made);
    return &made;
  };
  Sequence* running = add(a);
  (void)scheduler.schedule();
  scheduler.commit();
  Sequence* const waits = add(b);
  const auto is_running = [](Sequence* which) { return !which->share->waiting.contains(which); };
  int overtakers = 0;
  for (; overtakers < 1000 && !is_running(waits); ++overtakers) {
    Sequence* const next = add(a);  // there is always one more of the adapter that runs
    running->tokens.push_back(2);
    (void)scheduler.schedule();
    scheduler.commit();
    scheduler.remove(running);
    if (!is_running(next)) break;
    running = next;
  }
  EXPECT_EQ(overtakers, 64);
  (void)scheduler.schedule();
  scheduler.commit();
  EXPECT_TRUE(is_running(waits));
}

TEST(CacheSpaces, AreDifferentForDifferentPairs) {
  CacheSpaces keys;
  std::set<uint64_t> spaces;
  for (const uint64_t adapter : {0, 1, 2})
    for (const char* salt : {"", "a", "1a"})
      EXPECT_TRUE(spaces.insert(keys.space(adapter, salt)).second);
  EXPECT_EQ(keys.space(1, "a"), keys.space(1, "a"));
  std::set<int32_t> seen;
  for (const uint64_t number : {1, 2, 3})
    for (const int32_t token : {0, 1, 500'000})
      EXPECT_TRUE(seen.insert(*keys.key(number, token)).second);
  EXPECT_EQ(keys.key(2, 1), keys.key(2, 1));
  EXPECT_GE(*seen.begin(), CacheSpaces::kFirst);
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

SchedulerConfig by_phase(SchedulerConfig c) {
  c.phases_differ = true;
  return c;
}

TEST(ByPhase, GeneratedPagesServeTheirOwnAnswerAlone) {
  Harness h(by_phase(config_of(4, 16, 2, 64)));
  h.add({1, 2, 1}, 5);
  while (h.live())
    h.step();
  EXPECT_EQ(h.scheduler().pages_cached(), 1) << "the prompt's whole page";
  Tokens turn = h.last()->tokens;
  turn.push_back(0);
  h.add(turn, 1);
  h.step();
  EXPECT_EQ(h.last()->cached_tokens, 2) << "the prompt of the turn before, in whole pages";
  h.add(turn, 3);
  h.step();
  EXPECT_EQ(h.sequence(0).cached_tokens, 8) << "now it is a prompt";
  EXPECT_EQ(h.sequence(0).num_tokens(), 10);
}

TEST(ByPhase, TheLastRowOfAPromptIsPrefill) {
  Harness h(by_phase(config_of(4, 3, 1, 64)));
  h.add({1, 2, 1, 2}, 1);
  h.step();
  auto chunks = h.scheduler().schedule();  // a chunk of one row
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].count, 1);
  EXPECT_FALSE(chunks[0].decode);
  h.scheduler().commit();
  h.sequence(0).tokens.push_back(0);
  h.add({1, 2, 1, 2}, 1);  // all four are cached
  chunks = h.scheduler().schedule();
  ASSERT_EQ(chunks.size(), 2u);
  EXPECT_TRUE(chunks[0].decode);
  EXPECT_EQ(chunks[1].first, 3);
  EXPECT_EQ(chunks[1].count, 1);
  EXPECT_FALSE(chunks[1].decode);
  EXPECT_EQ(chunks[1].batch_seqs(), 1);
}

/// Two answers in a pool of 8 pages of 2, as in PreemptsTheLastArrivedAndResumesIt.
TEST(ByPhase, APreemptedAnswerRepeatsItsDecodes) {
  for (const bool cache : {false, true}) {
    for (const int max_running : {2, 4}) {
      SCOPED_TRACE(testing::Message() << "cache " << cache << ", " << max_running << " at a time");
      Harness h(by_phase(config_of(max_running, 16, 2, 8, cache)));
      h.add({0, 1, 2, 0}, 9);
      h.add({2, 1, 0, 1}, 9);
      int64_t most = 0;
      while (h.live() && !testing::Test::HasFatalFailure()) {
        const int64_t before = h.repeated();
        h.step();
        most = std::max(most, h.repeated() - before);
      }
      EXPECT_EQ(h.finished(), 2);
      EXPECT_GT(h.last()->preemptions, 0);
      EXPECT_GT(h.repeated(), 2);
      EXPECT_EQ(most, max_running) << "as many in a step as the batch has room for";
      EXPECT_LE(h.scheduler().pages_cached(), 2 * 2) << "nothing of the answers is left";
    }
  }
}

/// A page of an answer that was preempted is still there for it, and gone when it ends.
TEST(ByPhase, APreemptedAnswerFindsItsOwnPages) {
  auto config = by_phase(config_of(1, 16, 2, 40));
  config.policy = SchedulingPolicy::fcfs;
  config.max_running = config.max_logit_rows = 2;
  Harness h(config);
  h.add({1, 1, 1}, 30, false, 0, {}, "a");
  h.add({2, 1, 1}, 30, false, 0, {}, "a");
  for (int i = 0; i < 10; ++i)
    h.step();
  h.add({0, 1, 1}, 2, false, 0, {}, "b");  // takes a place from the second
  while (h.scheduler().stats().preemptions == 0)
    h.step();
  EXPECT_EQ(h.sequence(1).preemptions, 1);
  const int64_t before = h.repeated();
  while (h.sequence(1).pages.empty())
    h.step();
  EXPECT_GT(h.sequence(1).computed + h.sequence(1).shared_pages, 8);
  while (h.live())
    h.step();
  EXPECT_LE(h.repeated() - before, 2) << "a part of a page";
  EXPECT_EQ(h.finished(), 3);
  EXPECT_EQ(h.scheduler().pages_cached(), 3) << "the whole page of each prompt";
}

/// The rules, and not chance, keep the answers: without them, the model's tokens change.
TEST(ByPhase, ThePlantedBugIsCaught) {
  const auto wrong = [](bool cache, const auto& run) {
    const auto config = config_of(4, 16, 2, 8, cache);
    Scheduler without(config);
    PagedFakeModel model(by_phase(config));
    return run(without, model);
  };
  // An answer preempted halfway, and computed again by prefill.
  const auto preempted = [](Scheduler& scheduler, PagedFakeModel& model) {
    std::vector<Sequence> sequences(2);
    std::vector<Tokens> expected;
    for (size_t i = 0; i < 2; ++i) {
      sequences[i].tokens = {static_cast<int32_t>(i), 1, 2, 0};
      sequences[i].prompt_len = 4;
      sequences[i].logits_from = 3;
      expected.push_back(run_alone(sequences[i].tokens, 9, {0, {}, true}));
      scheduler.add(&sequences[i]);
    }
    BatchBuilder builder;
    while (!scheduler.idle()) {
      const auto chunks = scheduler.schedule();
      builder.build(chunks, 2);
      const Tokens next = model.forward(builder);
      scheduler.commit();
      size_t row = 0;
      for (const ScheduledChunk& c : chunks) {
        row += static_cast<size_t>(c.logit_rows());
        if (c.samples) c.sequence->tokens.push_back(next[row - 1]);
        if (c.samples && c.sequence->num_tokens() == 13) scheduler.remove(c.sequence);
      }
    }
    EXPECT_GT(scheduler.stats().preemptions, 0);
    return sequences[0].tokens != expected[0] || sequences[1].tokens != expected[1];
  };
  EXPECT_TRUE(wrong(false, preempted));
  EXPECT_TRUE(wrong(true, preempted));
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

TEST(SchedulerTest, NoSequenceOvertakesTheFirstInLine) {
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

TEST(SchedulerTest, TheWatermarkKeepsRoomForTokensToCome) {
  // The same with room for 6 tokens each: 2 + 2 pages and 3 + 3 more don't fit into 8.
  auto config = config_of(4, 16, 2, 8);
  config.watermark = 6;
  Harness h(config);
  h.add({0, 1, 2, 0}, 9);
  h.add({2, 1, 0, 1}, 9);
  h.step();
  EXPECT_EQ(h.scheduler().running(), 1);
  while (h.live())
    h.step();
  EXPECT_EQ(h.finished(), 2);
  EXPECT_EQ(h.scheduler().stats().preemptions, 0);
}

TEST(SchedulerTest, AnAdmissionIsFollowedByWatermarkTokensWithoutPreemption) {
  for (const int watermark : {1, 3, 8, 20}) {
    auto config = config_of(8, 64, 2, 40, false);
    config.watermark = watermark;
    Harness h(config);
    for (int i = 0; i < 12; ++i)
      h.add({0, 1, i % 3, 2, 1}, 60);
    int64_t preempted = 0, admitted_at = -1000;
    for (int step = 0; h.live(); ++step) {
      const int before = h.scheduler().waiting();
      h.step();
      if (testing::Test::HasFailure()) return;
      const int64_t preemptions = h.scheduler().stats().preemptions;
      if (preemptions > preempted) {
        EXPECT_GE(step - admitted_at, watermark) << watermark;
      }
      if (h.scheduler().waiting() < before) admitted_at = step;
      preempted = preemptions;
    }
    EXPECT_EQ(h.finished(), 12);
    EXPECT_GT(preempted, 0);
  }
}

SchedulerConfig windowed(int window, int budget, int page_size, int64_t pages, bool cache) {
  auto c = config_of(4, budget, page_size, pages, cache);
  c.window = window;
  c.max_seq_len = 1000;
  return c;
}

TEST(SchedulerTest, AWindowedPromptRunsInAPoolFarSmallerThanItself) {
  for (const bool cache : {false, true}) {
    auto config = windowed(8, 4, 2, 1, cache);
    config.num_pages = longest_sequence_pages(config);  // 8 - 1 + 4 tokens meet at most 7 pages of 2
    EXPECT_EQ(config.num_pages, 6);
    Harness h(config);
    Tokens prompt(200);
    for (size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = static_cast<int32_t>(i * i) % 3;
    h.add(prompt, 50, true);
    while (h.live()) {
      h.step();
      ASSERT_FALSE(testing::Test::HasFailure());
    }
    EXPECT_EQ(h.finished(), 1);
  }
}

TEST(SchedulerTest, WindowedPagesAreCachedWhenTheyLeaveTheWindow) {
  Harness h(windowed(8, 16, 2, 100, true));
  Tokens prompt(60);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>(i * i) % 3;
  h.add(prompt, 10);
  for (int i = 0; i < 5; ++i)
    h.step();
  // 61 tokens computed: the 27 pages of 2 before token 61 - 8 + 1 are no longer the sequence's; the others
  // are.
  EXPECT_EQ(h.sequence(0).computed, 61);
  EXPECT_EQ(h.sequence(0).dropped, 27);
  EXPECT_EQ(h.scheduler().pages_cached(), 27);
  EXPECT_EQ(h.scheduler().pages_in_use(), 4);
  while (h.live())
    h.step();
  h.add(prompt, 1);
  h.step();
  EXPECT_EQ(h.last()->cached_tokens, 58);
}

TEST(SchedulerTest, AWindowedPrefixThatWasEvictedIsNotContinued) {
  auto config = windowed(4, 8, 1, 30, true);
  config.max_seq_len = 60;
  Harness h(config);
  Tokens prompt(50);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>(i * i) % 3;
  h.add(prompt, 5);  // more pages than there are: the first ones are evicted while it runs
  while (h.live())
    h.step();
  h.add(prompt, 5);
  while (h.live()) {
    h.step();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_EQ(h.finished(), 2);
  EXPECT_LE(h.last()->cached_tokens, 30);
}

TEST(SchedulerTest, PriorityDecidesAdmissionAndPreemption) {
  auto config = config_of(2, 16, 2, 8);
  config.policy = SchedulingPolicy::priority;
  Harness h(config);
  h.add({0, 1, 2, 0}, 9, false, 5);
  h.add({2, 1, 0, 1}, 9, false, 1);
  h.add({2, 2, 0, 1}, 9, false, 3);
  h.step();
  EXPECT_EQ(h.scheduler().running(), 2);
  EXPECT_TRUE(h.sequence(0).pages.empty());  // arrived first, served last
  std::vector<uint64_t> order;
  while (h.live()) {
    const int before = h.finished();
    h.step();
    if (h.finished() > before) order.push_back(h.last()->id);
  }
  EXPECT_EQ(order, (std::vector<uint64_t>{1, 2, 0}));
  EXPECT_GT(h.scheduler().stats().preemptions, 0);
}

TEST(SchedulerTest, FcfsIgnoresPriorities) {
  Harness h(config_of(1, 16, 2, 8));
  h.add({0, 1, 2, 0}, 2, false, 5);
  h.add({2, 1, 0, 1}, 2, false, -7);
  h.step();
  EXPECT_FALSE(h.sequence(0).pages.empty());
}

TEST(SchedulerTest, EqualPrioritiesAreServedInOrderOfArrival) {
  auto config = config_of(1, 16, 2, 8);
  config.policy = SchedulingPolicy::priority;
  Harness h(config);
  for (int i = 0; i < 5; ++i)
    h.add({0, 1, 2, i % 3}, 2, false, 2);
  uint64_t next = 0;
  while (h.live()) {
    const int before = h.finished();
    h.step();
    if (h.finished() > before) {
      EXPECT_EQ(h.last()->id, next++);
    }
  }
}

SchedulerConfig with_encoder(SchedulerConfig c, int longest) {
  c.prefix_cache = false;
  c.max_encoder_len = longest;
  c.num_pages += c.pages_for(longest);
  return c;
}

TEST(SchedulerTest, EncodersRunOnceAtAdmissionWithinTheirBudget) {
  Harness h(with_encoder(config_of(4, 6, 2, 60), 10));
  for (int i = 0; i < 3; ++i)
    h.add({1, 2}, 4, false, 0, {1, 2, 1, 0, i});
  const auto chunks = h.scheduler().schedule();
  ASSERT_EQ(chunks.size(), 2u);  // 5 + 5 rows of the 10 that a step encodes
  EXPECT_TRUE(chunks[0].encode && chunks[1].encode);
  EXPECT_EQ(h.sequence(0).cross_pages.size(), 3u);
  h.scheduler().commit();
  const auto next = h.scheduler().schedule();
  EXPECT_EQ(std::count_if(next.begin(), next.end(), [](const auto& c) { return c.encode; }), 1);
}

TEST(SchedulerTest, APreemptedSequenceIsEncodedAgain) {
  auto config = with_encoder(config_of(4, 16, 2, 8), 3);
  Harness h(config);  // 10 pages: 2 + 2 are cross pages
  h.add({0, 1, 2, 0}, 9, false, 0, {1, 2, 0});
  h.add({2, 1, 0, 1}, 9, false, 0, {0, 0, 1});
  while (h.live()) {
    h.step();
    ASSERT_FALSE(testing::Test::HasFailure());
  }
  EXPECT_EQ(h.finished(), 2);
  EXPECT_GT(h.scheduler().stats().preemptions, 0);
}

Job& add_for(Harness& h, const std::string& client, int new_tokens, int prompt = 4, int priority = 0) {
  Tokens tokens(static_cast<size_t>(prompt), 1);
  tokens[0] = static_cast<int32_t>(client[0]);  // clients have no prefix in common
  return h.add(tokens, new_tokens, false, priority, {}, client);
}

/// Runs steps until all sequences of `client` are done.
int steps_until_done(Harness& h, const std::string& client, int most) {
  const auto waits = [&] {
    for (size_t i = 0; i < h.live(); ++i)
      if (h.sequence(i).client == client) return true;
    return false;
  };
  int steps = 0;
  for (; steps < most && waits() && !testing::Test::HasFailure(); ++steps)
    h.step();
  return steps;
}

TEST(FairShareTest, ManyAnswersOfOneClientDoNotKeepAnotherWaiting) {
  for (const bool cache : {true, false}) {
    Harness h(config_of(4, 32, 2, 400, cache));
    for (int i = 0; i < 40; ++i)
      add_for(h, "many", 100);
    for (int i = 0; i < 10; ++i)
      h.step();
    for (int chat = 0; chat < 30; ++chat) {  // and its latency stays bounded
      add_for(h, "one", 5);
      EXPECT_LE(steps_until_done(h, "one", 1000), 8) << chat;
    }
  }
}

TEST(FairShareTest, ManyLongPromptsOfOneClientDoNotKeepAnotherWaiting) {
  Harness h(config_of(4, 8, 2, 2000));
  for (int i = 0; i < 10; ++i)
    add_for(h, "many", 2, 800);
  for (int i = 0; i < 3; ++i)
    h.step();
  add_for(h, "one", 3);
  EXPECT_LE(steps_until_done(h, "one", 1000), 6);
}

TEST(FairShareTest, AKvCacheFullOfOneClientsAnswersMakesRoomForAnother) {
  Harness h(config_of(8, 32, 2, 60));
  for (int i = 0; i < 8; ++i)
    add_for(h, "many", 70, 8);
  while (h.scheduler().pages_free() + h.scheduler().pages_cached() > 2 && h.live() == 8)
    h.step();
  add_for(h, "one", 4, 20);
  EXPECT_LE(steps_until_done(h, "one", 1000), 20);
  steps_until_done(h, "many", 5000);
  EXPECT_EQ(h.finished(), 9);
}

TEST(FairShareTest, ClientsThatWantMoreThanThereIsGetEqualShares) {
  Harness h(config_of(4, 32, 2, 400));
  for (int i = 0; i < 60; ++i)
    add_for(h, "long", 40);
  for (int i = 0; i < 300; ++i)
    add_for(h, "short", 4);
  for (int i = 0; i < 400; ++i)
    h.step();
  int64_t longs = 60 * 44, shorts = 300 * 8;
  for (size_t i = 0; i < h.live(); ++i) {
    const Sequence& s = h.sequence(i);
    const bool is_long = s.client == "long";
    (is_long ? longs : shorts) -= (is_long ? 44 : 8) - (s.num_tokens() > s.prompt_len ? s.num_tokens() : 0);
  }
  // In tokens; a cached prompt costs nothing, so that not all of them were computed.
  EXPECT_GT(longs, 500) << shorts;
  EXPECT_GT(shorts, 500) << longs;
  // No preemption ping-pong.
  EXPECT_LE(h.scheduler().stats().preemptions, 10);
}

TEST(FairShareTest, RequestsOfAClientRunInArrivalOrder) {
  Harness h(config_of(1, 16, 2, 40));
  for (int i = 0; i < 12; ++i)
    add_for(h, i % 3 == 0 ? "a" : "b", 2);
  std::vector<uint64_t> of_a, of_b;
  while (h.live() && !testing::Test::HasFailure()) {
    const int before = h.finished();
    h.step();
    if (h.finished() > before) (h.last()->client == "a" ? of_a : of_b).push_back(h.last()->id);
  }
  EXPECT_TRUE(std::ranges::is_sorted(of_a));
  EXPECT_TRUE(std::ranges::is_sorted(of_b));
}

TEST(FairShareTest, PrioritiesGoBeforeSharesAndDoNotInterrupt) {
  auto config = config_of(2, 16, 2, 100);
  config.policy = SchedulingPolicy::priority;
  Harness h(config);
  for (int i = 0; i < 6; ++i)
    add_for(h, "many", 20, 4, 1);
  for (int i = 0; i < 5; ++i)
    h.step();
  add_for(h, "late", 2, 4, 2);
  add_for(h, "urgent", 2, 4, 0);
  EXPECT_GT(steps_until_done(h, "urgent", 1000), 10);  // waits for a running one to finish
  EXPECT_EQ(h.scheduler().stats().preemptions, 0);
  EXPECT_GT(steps_until_done(h, "late", 1000), 20);  // waits for all with a lower priority number
  EXPECT_LE(h.live(), 1u);
}

/// Random arrivals, cancels, lengths, priorities, clients, windows and encoders in minimum-size pools: every
/// answer equals a run alone, every page is accounted for at every step, and every request finishes.
class SchedulerProperty : public testing::TestWithParam<const char*> {};

TEST_P(SchedulerProperty, EveryRequestGetsTheTokensOfARunAlone) {
  std::string kind = GetParam();
  const bool phases_differ = kind.ends_with("_by_phase");
  if (phases_differ) kind.resize(kind.size() - std::string("_by_phase").size());
  int64_t repeated = 0;
  int64_t preemptions = 0, hits = 0, dropped = 0;
  int finished = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 rng(seed);
    const auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
    const int page_size = std::array{1, 2, 3, 16}[seed % 4];
    const int longest = 40;
    auto config = config_of(below(6) + 1, std::array{1, 3, 7, 64}[below(4)], page_size, 1, below(4) != 0);
    config.max_seq_len = longest;
    config.watermark = std::array{1, 4, 32}[below(3)];
    if (kind == "windowed") config.window = below(12) + 1;
    if (kind == "encoded") config = with_encoder(config, 9);
    if (below(2)) config.policy = SchedulingPolicy::priority;
    config.num_pages = longest_sequence_pages(config) + below(3) * below(10);
    config.phases_differ = phases_differ;
    Harness h(config);
    int to_arrive = 25;
    for (int step = 0; h.live() || to_arrive > 0; ++step) {
      ASSERT_LT(step, 20000) << "no progress";
      while (to_arrive > 0 && below(3) == 0) {
        --to_arrive;
        Tokens prompt(static_cast<size_t>(below(30)) + 1);
        for (auto& t : prompt)
          t = below(10) == 0;
        Tokens encoded(config.max_encoder_len > 0 ? static_cast<size_t>(below(9)) + 1 : 0);
        for (auto& t : encoded)
          t = below(3);
        const int room = longest - static_cast<int>(prompt.size());
        const std::string client = kind == "shared" ? std::string(1, static_cast<char>('a' + below(3))) : "";
        h.add(prompt, below(room) + 1, below(5) == 0, below(4), encoded, client);
      }
      if (h.live() && below(40) == 0) h.cancel(static_cast<size_t>(below(static_cast<int>(h.live()))));
      h.step();
      if (testing::Test::HasFailure()) return;
      for (size_t i = 0; i < h.live(); ++i)
        dropped += h.sequence(i).dropped;
    }
    EXPECT_TRUE(h.scheduler().idle());
    if (config.policy == SchedulingPolicy::fcfs && kind != "shared") {
      EXPECT_LE(h.steps(), h.tokens_added());  // each step computes a token that is not recomputed
    }
    preemptions += h.scheduler().stats().preemptions;
    hits += h.scheduler().stats().prefix_hits;
    finished += h.finished();
    repeated += h.repeated();
  }
  // The runs exercised what they are meant to test.
  EXPECT_GT(preemptions, 60);
  EXPECT_GT(finished, 6500);
  if (kind != "encoded") {
    EXPECT_GT(hits, 1000);
  }
  if (kind == "windowed") {
    EXPECT_GT(dropped, 1000);
  }
  if (phases_differ) {
    EXPECT_GT(repeated, 300);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, SchedulerProperty,
                         testing::Values("plain", "windowed", "encoded", "shared", "plain_by_phase",
                                         "windowed_by_phase", "encoded_by_phase", "shared_by_phase"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace fovea
