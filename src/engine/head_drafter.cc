#include "engine/head_drafter.h"

#include <algorithm>

#include "attention/selection_context.h"
#include "base/check.h"
#include "base/log.h"
#include "model/kv_groups.h"

namespace fovea {
namespace {

/// Rows of a decoding sequence that wait for the next drafts, at most.
constexpr int kMostPending = kMaxDrafts + 1;

}  // namespace

Result<std::unique_ptr<HeadDrafter>> HeadDrafter::create(const SpeculativeConfig& config,
                                                         DraftHeadConfig head, const Target& target,
                                                         const Model& model, const BackendRegistry& registry,
                                                         Stream& stream) {
  std::unique_ptr<HeadDrafter> drafter(new HeadDrafter(stream));
  FOVEA_RETURN_IF_ERROR(drafter->load(config, std::move(head), target, model, registry));
  return drafter;
}

Status HeadDrafter::load(const SpeculativeConfig& config, DraftHeadConfig head, const Target& target,
                         const Model& model, const BackendRegistry& registry) {
  ModelConfig& layer = head.layer;
  max_len_ = static_cast<int>(std::min<int64_t>(
      {layer.max_position, target.max_seq_len, config.max_model_len.value_or(target.max_seq_len)}));
  max_tokens_ = std::max(target.max_batched_tokens, target.max_running);
  max_running_ = target.max_running;
  sampled_vocab_ = target.sampled_vocab;
  page_size_ = target.page_size;
  width_ = head.states_width;
  hidden_ = layer.hidden_size;
  fit_to_length(layer, max_len_);
  // Pages before the model's window are gone.
  int& window = layer.layers.front().window;
  if (target.window > 0) window = window > 0 ? std::min(window, target.window) : target.window;

  const DeviceInfo device;
  const DType dtype = config.model_dtype.value_or(layer.dtype);
  ModelRunner::Options options;
  options.activations = activation_dtype(device, dtype);
  options.kv_dtype = resolve(KvCacheDType::auto_, dtype);
  options.limits = {target.max_running, max_tokens_, int64_t{target.max_running} * max_len_, max_len_};
  options.max_logit_rows = target.max_running;
  options.hidden_states = 1;
  options.attention.backend = config.attention_backend;
  options.attention.page_size = page_size_;
  std::vector<AttentionSpec> specs;
  for (const AttentionSpec& spec : attention_specs(layer)) {
    specs.push_back(
        with_settings(ModelRunner::resolve(spec, options.activations, options.kv_dtype, KvLayout::hnd, 0),
                      options.attention));
    specs.back().page_size = 0;  // to be chosen
  }
  FOVEA_TRY(selection, select(options.attention, specs, device, registry));
  selection_ = std::move(selection);

  ModelLoadOptions load;
  load.dtype = config.model_dtype;
  load.dummy_weights = target.dummy_weights;
  load.seed = target.seed + 1;  // not the target's
  FOVEA_TRY(loaded, load_draft_head(head, load, model, stream_));
  head_ = std::move(loaded);
  if (!head_.tokens.empty() && std::ranges::min(head_.tokens) >= sampled_vocab_)
    return invalid("the head " + head.dir +
                   " drafts no token that the model samples (d2t); give a head that "
                   "was trained for this model");
  FOVEA_RETURN_IF_ERROR(head_.model->keep_hidden({head.own_hidden}));
  FOVEA_TRY(runner, ModelRunner::create(*head_.model, selection_, registry, options));
  runner_ = std::move(runner);
  groups_ = kv_groups(layer, options.kv_dtype, KvLayout::hnd, page_size_);
  return {};
}

int64_t HeadDrafter::bytes_per_page() const {
  return fovea::bytes_per_page(groups_);
}

Status HeadDrafter::set_pages(int64_t pages) {
  // A sequence's drafts begin in a page of the model's or at the start of one of these.
  const int64_t spare = int64_t{max_running_} * ((kMaxDrafts + page_size_ - 1) / page_size_ + 1);
  FOVEA_TRY(cache, KvCache::create(groups_, {pages + spare}, cpu_device()));
  kv_ = std::make_unique<KvCache>(std::move(cache));
  pages_ = pages;
  kv_bytes_ = (pages + spare) * bytes_per_page();
  runner_->set_kv_cache(*kv_);
  return {};
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

void HeadDrafter::observe(std::span<const HiddenRows> rows, std::span<const std::span<const float>> states) {
  if (failed_) return;
  std::vector<Rows> all;
  const auto part = static_cast<size_t>(width_) / states.size();
  for (const HiddenRows& r : rows) {
    Head& head = heads_[r.id];
    Sequence& sequence = head.sequence;
    if (r.first != sequence.computed + pending(head)) {  // a prefix was cached, or it was preempted
      head.pending.clear();
      sequence.computed = r.first;
    }
    if (r.first + r.count > max_len_) {
      head.pending.clear();
      continue;
    }
    for (int i = 0; i < r.count; ++i)
      for (const std::span<const float> state : states) {
        const auto at = state.subspan(static_cast<size_t>(r.row + i) * part, part);
        head.pending.insert(head.pending.end(), at.begin(), at.end());
      }
    // The newest row waits for the token after it, or for the next drafts.
    const int known = std::min(pending(head), static_cast<int>(r.tokens.size()) - 1 - sequence.computed);
    const int count = r.ended ? known : std::min(known, pending(head) - 1);
    if (count <= 0 || (pending(head) <= kMostPending && !r.ended)) continue;
    take_tokens(head, r.tokens);
    sequence.pages.assign(r.pages.begin(), r.pages.end());
    all.push_back({&head, count, nullptr, 0});
  }
  fail(compute(all));
}

void HeadDrafter::propose(std::span<DraftJob> jobs) {
  if (failed_) return;
  std::vector<Rows> all;
  const int spare = (kMaxDrafts + page_size_ - 1) / page_size_ + 1;
  for (size_t i = 0; i < jobs.size(); ++i) {
    DraftJob& job = jobs[i];
    const auto found = heads_.find(job.id);
    const int most = std::min(job.most, max_len_ - static_cast<int>(job.tokens.size()));
    if (found == heads_.end() || most <= 0) continue;
    Head& head = found->second;
    const int count = static_cast<int>(job.tokens.size()) - 1 - head.sequence.computed;
    if (count <= 0 || count != pending(head)) continue;
    take_tokens(head, job.tokens);
    std::vector<int32_t>& pages = head.sequence.pages;
    pages.assign(job.pages.begin(), job.pages.end());
    FOVEA_CHECK(static_cast<int>(i) < max_running_);
    for (int p = 0; p < spare; ++p)
      pages.push_back(static_cast<int32_t>(pages_ + static_cast<int64_t>(i) * spare + p));
    all.push_back({&head, count, &job, most});
  }
  Status status = compute(all);
  std::vector<int> computed;
  for (const Rows& rows : all)
    computed.push_back(rows.head->sequence.computed);
  std::vector<Rows> open = all;
  while (status) {
    std::erase_if(open, [](const Rows& r) { return static_cast<int>(r.job->drafts.size()) >= r.most; });
    if (open.empty()) break;
    status = extend(open);
  }
  // Rows of drafts are computed again from the model's states.
  for (size_t i = 0; i < all.size(); ++i)
    all[i].head->sequence.computed = computed[i];
  fail(status);
}

/// Rows with the model's states, in runs of at most max_tokens_.
Status HeadDrafter::compute(std::span<Rows> all) {
  std::vector<Rows> part;
  int budget = max_tokens_;
  for (const Rows& rows : all) {
    int left = rows.count;
    while (left > 0) {
      const int count = std::min(left, budget);
      left -= count;
      budget -= count;
      part.push_back({rows.head, count, left == 0 ? rows.job : nullptr, rows.most});
      if (budget > 0) continue;
      FOVEA_RETURN_IF_ERROR(run(part));
      part.clear();
      budget = max_tokens_;
    }
  }
  return part.empty() ? Status() : run(part);
}

Status HeadDrafter::run(std::span<Rows> part) {
  std::vector<ScheduledChunk> chunks;
  states_.clear();
  for (const Rows& rows : part) {
    ScheduledChunk chunk;
    chunk.sequence = &rows.head->sequence;
    chunk.first = rows.head->sequence.computed;
    chunk.count = rows.count;
    chunk.logits_first = chunk.end() - (rows.job != nullptr);
    chunks.push_back(chunk);
    auto& pending = rows.head->pending;
    const auto end = pending.begin() + static_cast<std::ptrdiff_t>(rows.count) * width_;
    states_.insert(states_.end(), pending.begin(), end);
    pending.erase(pending.begin(), end);
    rows.head->sequence.computed = chunk.end();
  }
  FOVEA_RETURN_IF_ERROR(run_chunks(chunks, states_.data(), width_));
  int row = 0;
  for (const Rows& rows : part)
    if (rows.job != nullptr) take_draft(rows, row++);
  return {};
}

/// One more draft for each, from the head's own state of the row before, which is at the end of `pending`.
Status HeadDrafter::extend(std::span<Rows> all) {
  std::vector<ScheduledChunk> chunks;
  states_.clear();
  for (const Rows& rows : all) {
    ScheduledChunk chunk;
    chunk.sequence = &rows.head->sequence;
    chunk.first = chunk.logits_first = rows.head->sequence.computed++;
    chunk.count = 1;
    chunk.decode = true;
    chunks.push_back(chunk);
    states_.insert(states_.end(), rows.head->pending.begin(), rows.head->pending.end());
    rows.head->pending.clear();
  }
  FOVEA_RETURN_IF_ERROR(run_chunks(chunks, states_.data(), hidden_));
  for (size_t i = 0; i < all.size(); ++i)
    take_draft(all[i], static_cast<int>(i));
  return {};
}

Status HeadDrafter::run_chunks(const std::vector<ScheduledChunk>& chunks, const float* states,
                               int64_t width) {
  batch_.build(chunks, page_size_);
  runner_->set_states(states, width);
  return runner_->run(batch_, stream_);
}

/// The best of the tokens that the model may sample. Keeps the head's state of the row, unless it was the
/// last.
void HeadDrafter::take_draft(const Rows& rows, int row) {
  const auto logits = runner_->logits(row);
  int32_t best = -1;
  float best_logit = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const int32_t token = head_.tokens.empty() ? static_cast<int32_t>(i) : head_.tokens[i];
    if (token < sampled_vocab_ && (best < 0 || logits[i] > best_logit)) {
      best = token;
      best_logit = logits[i];
    }
  }
  FOVEA_CHECK(best >= 0);
  rows.job->drafts.push_back(best);
  if (static_cast<int>(rows.job->drafts.size()) >= rows.most) return;
  rows.head->sequence.tokens.push_back(best);
  const auto size = static_cast<size_t>(hidden_);
  const auto state = runner_->hidden(0).subspan(static_cast<size_t>(row) * size, size);
  rows.head->pending.assign(state.begin(), state.end());
}

}  // namespace fovea
