#include "engine/head_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace fovea {
namespace {

/// Rows of a decoding sequence that wait for the next drafts, at most.
constexpr int kMostPending = kMaxDrafts + 1;
/// States that are kept for them, for each sequence that may run.
constexpr int kKeptEach = 8;

}  // namespace

Result<std::unique_ptr<HeadDrafter>> HeadDrafter::create(const SpeculativeConfig& config,
                                                         DraftHeadConfig head, const Target& target,
                                                         const Model& model, DrafterDevice device) {
  std::unique_ptr<HeadDrafter> drafter(new HeadDrafter(std::move(device)));
  FOVEA_RETURN_IF_ERROR(drafter->load(config, std::move(head), target, model));
  return drafter;
}

Status HeadDrafter::load(const SpeculativeConfig& config, DraftHeadConfig head, const Target& target,
                         const Model& model) {
  ModelConfig& layer = head.layer;
  max_len_ = static_cast<int>(std::min<int64_t>(
      {layer.max_position, target.max_seq_len, config.max_model_len.value_or(target.max_seq_len)}));
  max_running_ = target.max_running;
  page_size_ = target.page_size;
  run_options_.sampled_vocab = target.sampled_vocab;
  run_options_.kept_rows = std::max(kMostPending, kKeptEach * max_running_);
  run_options_.width = head.states_width;
  run_options_.own_width = layer.hidden_size;
  fit_to_length(layer, max_len_);
  // Pages before the model's window are gone.
  int& window = layer.layers.front().window;
  if (target.window > 0) window = window > 0 ? std::min(window, target.window) : target.window;

  FOVEA_TRY(dtype, model_.choose_dtype(config, layer.dtype));
  FOVEA_RETURN_IF_ERROR(model_.select(
      layer, config, dtype, {target.max_running, target.max_batched_tokens, max_len_, page_size_}, true));
  ModelLoadOptions load;
  load.dtype = model_.device().on_cpu() ? config.model_dtype : dtype;
  load.dummy_weights = target.dummy_weights;
  load.seed = target.seed + 1;  // not the target's
  load.deferred = model_.deferred();
  FOVEA_TRY(loaded, load_draft_head(head, load, model, *model_.device().host));
  model_.model = std::move(loaded.model);
  run_options_.tokens = std::move(loaded.tokens);
  const auto& tokens = run_options_.tokens;
  if (!tokens.empty() && std::ranges::min(tokens) >= target.sampled_vocab)
    return invalid("the head " + head.dir +
                   " drafts no token that the model samples (d2t); give a head that "
                   "was trained for this model");
  return model_.model->keep_hidden({head.own_hidden});
}

/// A sequence's drafts begin in a page of the model's or at the start of one of these.
int64_t HeadDrafter::spare_pages_each() const {
  return (kMaxDrafts + page_size_ - 1) / page_size_ + 1;
}

Status HeadDrafter::place(int64_t pages, const Tensor& step, const PlaceOptions& options) {
  run_options_.step = step;
  pages_ = pages;
  return model_.place(pages + spare_pages(), run_options_, options);
}

/// Tokens of the rows that are not computed yet.
void HeadDrafter::take_tokens(Head& head, std::span<const int32_t> tokens) const {
  Sequence& sequence = head.sequence;
  const auto first = std::min(static_cast<size_t>(sequence.computed), tokens.size() - 1);
  sequence.tokens.resize(tokens.size() - 1);
  std::copy(tokens.begin() + static_cast<std::ptrdiff_t>(first) + 1, tokens.end(),
            sequence.tokens.begin() + static_cast<std::ptrdiff_t>(first));
}

void HeadDrafter::fail(const Status& status) {
  if (status) return;
  failed_ = true;
  heads_.clear();
  FOVEA_LOG(warning) << "no drafts from now on: the draft head failed: " << status.error().message;
}

/// Forgets the kept rows of sequences that the step has no rows of.
void HeadDrafter::clear_others(std::span<const HiddenRows> rows) {
  for (auto& [id, head] : heads_)
    if (std::ranges::find(rows, id, &HiddenRows::id) == rows.end()) head.kept.clear();
}

void HeadDrafter::observe(std::span<const HiddenRows> rows, std::span<const std::span<const float>> states) {
  if (failed_) return;
  model_.runs().begin(states);
  if (std::ranges::all_of(heads_, [](const auto& head) { return head.second.kept.empty(); })) next_kept_ = 0;
  int wanted = 0;
  for (const HiddenRows& r : rows)
    wanted += std::min(r.count, kMostPending);
  // Without room for them all but the newest row of each sequence are computed, and the room is used again.
  const bool full = next_kept_ + wanted > run_options_.kept_rows;
  if (full) clear_others(rows);
  std::vector<Rows> older, newer;
  std::vector<int32_t> keep;
  std::vector<Head*> keepers;  // of each row of `keep`
  for (const HiddenRows& r : rows) {
    Head& head = heads_[r.id];
    Sequence& sequence = head.sequence;
    if (r.first != sequence.computed + static_cast<int>(head.kept.size())) {  // a cached prefix, or preempted
      head.kept.clear();
      sequence.computed = r.first;
    }
    if (r.first + r.count > max_len_) {
      head.kept.clear();
      continue;
    }
    // The newest row waits for the token after it, or for the next drafts.
    const int old = static_cast<int>(head.kept.size()), all = old + r.count;
    const int known = std::min(all, static_cast<int>(r.tokens.size()) - 1 - sequence.computed);
    int count = r.ended ? known : std::min(known, all - 1);
    if (all <= kMostPending && !r.ended && !full) count = 0;
    if (count > 0) {
      take_tokens(head, r.tokens);
      sequence.pages.assign(r.pages.begin(), r.pages.end());
    }
    const int of_kept = std::min(count, old);
    if (of_kept > 0) {
      Rows& part = older.emplace_back();
      part.head = &head;
      part.states.assign(head.kept.begin(), head.kept.begin() + of_kept);
      head.kept.erase(head.kept.begin(), head.kept.begin() + of_kept);
    }
    if (count > of_kept) {
      Rows& part = newer.emplace_back();
      part.head = &head;
      for (int i = 0; i < count - of_kept; ++i)
        part.states.push_back(static_cast<int32_t>(r.row + i));
    }
    for (int i = std::max(0, count - of_kept); i < r.count && !r.ended; ++i) {
      keep.push_back(static_cast<int32_t>(r.row + i));
      keepers.push_back(&head);
    }
  }
  Status status = compute(older, DraftRuns::States::kept);
  if (status) status = compute(newer, DraftRuns::States::step);
  if (full) next_kept_ = 0;
  if (status) status = model_.runs().keep(keep, next_kept_);
  for (Head* head : keepers)
    head->kept.push_back(next_kept_++);
  fail(status);
}

void HeadDrafter::settle(std::span<const HiddenRows> sequences) {
  if (failed_) return;
  std::vector<Rows> all;
  for (const HiddenRows& s : sequences) {
    const auto found = heads_.find(s.id);
    if (found == heads_.end()) continue;
    Head& head = found->second;
    const int known = static_cast<int>(s.tokens.size()) - 1 - head.sequence.computed;
    const int count = std::min(known, static_cast<int>(head.kept.size()));
    if (count > 0) {
      take_tokens(head, s.tokens);
      head.sequence.pages.assign(s.pages.begin(), s.pages.end());
      Rows& rows = all.emplace_back();
      rows.head = &head;
      rows.states.assign(head.kept.begin(), head.kept.begin() + count);
    }
    head.kept.clear();
  }
  fail(compute(all, DraftRuns::States::kept));
}

void HeadDrafter::propose(std::span<DraftJob> jobs) {
  if (failed_) return;
  std::vector<Rows> all;
  const int64_t spare = spare_pages_each();
  for (size_t i = 0; i < jobs.size(); ++i) {
    DraftJob& job = jobs[i];
    const auto found = heads_.find(job.id);
    const int most = std::min(job.most, max_len_ - static_cast<int>(job.tokens.size()));
    if (found == heads_.end() || most <= 0) continue;
    Head& head = found->second;
    const int count = static_cast<int>(job.tokens.size()) - 1 - head.sequence.computed;
    if (count <= 0 || count != static_cast<int>(head.kept.size())) continue;
    take_tokens(head, job.tokens);
    std::vector<int32_t>& pages = head.sequence.pages;
    pages.assign(job.pages.begin(), job.pages.end());
    FOVEA_CHECK(static_cast<int>(i) < max_running_);
    for (int64_t p = 0; p < spare; ++p)
      pages.push_back(static_cast<int32_t>(pages_ + static_cast<int64_t>(i) * spare + p));
    Rows& rows = all.emplace_back();
    rows.head = &head;
    rows.states = std::move(head.kept);
    rows.job = &job;
    rows.most = most;
    rows.slot = (static_cast<int>(all.size()) - 1) * kMaxDrafts;
    head.kept.clear();
  }
  // Chains continue from the states of one run, so sequences whose rows fit into one are drafted together.
  Status status;
  for (size_t first = 0, end = 0; status && first < all.size(); first = end) {
    int total = 0;
    for (; end < all.size() && (end == first || total + all[end].count() <= model_.max_tokens()); ++end)
      total += all[end].count();
    status = draft(std::span(all).subspan(first, end - first));
  }
  if (status) status = take(all);
  fail(status);
}

/// All drafts of a group, which has one run's rows, or is one sequence.
Status HeadDrafter::draft(std::span<Rows> group) {
  const int most = model_.max_tokens();
  if (group.size() == 1 && group[0].count() > most) {  // all but the last of its runs
    Rows before = group[0];
    before.job = nullptr;
    before.states.resize(before.states.size() - static_cast<size_t>(most));
    FOVEA_RETURN_IF_ERROR(compute({&before, 1}, DraftRuns::States::kept));
    group[0].states.erase(group[0].states.begin(), group[0].states.end() - most);
  }
  std::vector<Rows*> open;
  bool few = true;
  for (Rows& rows : group) {
    open.push_back(&rows);
    few = few && rows.count() <= model_.decode_rows();
  }
  FOVEA_RETURN_IF_ERROR(run(open, DraftRuns::States::kept, few));
  std::vector<int> computed;
  for (const Rows& rows : group)
    computed.push_back(rows.head->sequence.computed);
  while (true) {
    std::erase_if(open, [](const Rows* rows) { return rows->drafts >= rows->most; });
    if (open.empty()) break;
    for (Rows* rows : open) {
      rows->states.assign(1, rows->row);
      rows->head->sequence.tokens.push_back(kFutureToken);
    }
    FOVEA_RETURN_IF_ERROR(run(open, DraftRuns::States::own, true));
  }
  // Rows of drafts are computed again from the model's states.
  for (size_t i = 0; i < group.size(); ++i)
    group[i].head->sequence.computed = computed[i];
  return {};
}

/// Rows without drafts, in runs of at most max_tokens().
Status HeadDrafter::compute(std::span<Rows> all, DraftRuns::States source) {
  std::vector<Rows> parts;
  std::vector<size_t> ends;  // of runs
  int budget = model_.max_tokens();
  for (const Rows& rows : all)
    for (int first = 0; first < rows.count();) {
      const int count = std::min(rows.count() - first, budget);
      Rows& part = parts.emplace_back();
      part.head = rows.head;
      part.states.assign(rows.states.begin() + first, rows.states.begin() + first + count);
      first += count;
      budget -= count;
      if (budget > 0) continue;
      ends.push_back(parts.size());
      budget = model_.max_tokens();
    }
  if (ends.empty() || ends.back() < parts.size()) ends.push_back(parts.size());
  for (size_t first = 0; const size_t end : ends) {
    std::vector<Rows*> part;
    for (; first < end; ++first)
      part.push_back(&parts[first]);
    if (!part.empty()) FOVEA_RETURN_IF_ERROR(run(part, source, false));
  }
  return {};
}

Status HeadDrafter::run(std::span<Rows* const> part, DraftRuns::States source, bool decode) {
  std::vector<ScheduledChunk> chunks;
  std::vector<int32_t> from, slots, states;
  int total = 0;
  bool drafts = true;
  for (const Rows* rows : part) {
    total += rows->count();
    drafts = drafts && rows->job != nullptr;
  }
  const bool all_logits = decode && drafts && model_.runs().wants_all_logits(total);
  for (Rows* rows : part) {
    Sequence& sequence = rows->head->sequence;
    const bool last = rows->job != nullptr;
    ScheduledChunk chunk;
    chunk.sequence = &sequence;
    chunk.first = sequence.computed;
    chunk.count = rows->count();
    chunk.decode = decode;
    chunk.logits_first = all_logits ? chunk.first : chunk.end() - last;
    chunks.push_back(chunk);
    sequence.computed = chunk.end();
    states.insert(states.end(), rows->states.begin(), rows->states.end());
    from.insert(from.end(), rows->states.size(), -1);
    if (rows->drafts > 0) from.back() = rows->slot + rows->drafts - 1;
    slots.insert(slots.end(), static_cast<size_t>(chunk.logit_rows()), -1);
    if (!last) continue;
    rows->row = static_cast<int>(slots.size()) - 1;
    slots.back() = rows->slot + rows->drafts++;
  }
  batch_.build(chunks, page_size_);
  return model_.runs().run({batch_, from, slots, states, source});
}

/// Hands out the drafts, up to the first that the model cannot sample.
Status HeadDrafter::take(std::span<const Rows> all) {
  if (all.empty()) return {};
  FOVEA_TRY(drafts, model_.runs().drafts(all.back().slot + kMaxDrafts));
  for (const Rows& rows : all)
    for (int i = 0; i < rows.drafts; ++i) {
      const int32_t draft = drafts[static_cast<size_t>(rows.slot) + static_cast<size_t>(i)];
      if (draft < 0 || draft >= run_options_.sampled_vocab) break;
      rows.job->drafts.push_back(draft);
    }
  return {};
}

}  // namespace fovea
