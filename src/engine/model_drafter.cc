#include "engine/model_drafter.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "engine/kv_sizing.h"
#include "files/model_folder.h"

namespace fovea {

Result<std::unique_ptr<ModelDrafter>> ModelDrafter::create(const SpeculativeConfig& config,
                                                           const Target& target, DrafterDevice device) {
  std::unique_ptr<ModelDrafter> drafter(new ModelDrafter(std::move(device)));
  FOVEA_RETURN_IF_ERROR(drafter->load(config, target));
  return drafter;
}

Status ModelDrafter::load(const SpeculativeConfig& config, const Target& target) {
  target_ = target;
  FOVEA_TRY(dir, resolve_model_dir(config.model));
  FOVEA_TRY(model_config, load_model_config(dir));
  if (model_config.kind != ModelKind::decoder)
    return unsupported("the draft model " + dir + ": " + model_config.architecture +
                       " is no decoder; give a decoder with the model's tokens");
  FOVEA_RETURN_IF_ERROR(check_tokens(dir, target));
  if (model_config.vocab_size < target.sampled_vocab)
    return invalid("the draft model " + dir + " has logits for " + std::to_string(model_config.vocab_size) +
                   " tokens, the model has " + std::to_string(target.sampled_vocab) +
                   "; give a draft model with the same tokens");
  max_len_ = static_cast<int>(std::min<int64_t>(
      {model_config.max_position, target.max_seq_len, config.max_model_len.value_or(target.max_seq_len)}));
  run_options_.sampled_vocab = target.sampled_vocab;
  fit_to_length(model_config, max_len_);
  if (const std::string refusal = length_refusal(model_config); !model_.device().on_cpu() && !refusal.empty())
    return unsupported("the draft model " + dir + ": " + refusal);

  FOVEA_TRY(dtype, model_.choose_dtype(config, model_config.dtype));
  FOVEA_RETURN_IF_ERROR(model_.select(model_config, config, dtype,
                                      {target.max_running, target.max_batched_tokens, max_len_, 0}, false));
  ModelLoadOptions load;
  load.dir = dir;
  load.dtype = model_.device().on_cpu() ? config.model_dtype : dtype;
  load.dummy_weights = target.dummy_weights;
  load.seed = target.seed + 1;  // not the target's
  load.deferred = model_.deferred();
  FOVEA_TRY(loaded, Model::load(model_config, load, *model_.device().host));
  model_.model = std::move(loaded);
  return {};
}

int64_t ModelDrafter::kv_bytes_per_page() const {
  const int page = model_.page_size();
  return (model_.bytes_per_page() * target_.page_size + page - 1) / page;
}

Status ModelDrafter::place(int64_t pages, const Tensor&, const PlaceOptions& options) {
  const int page = model_.page_size();
  KvSizing sizing;
  sizing.bytes_per_page = model_.bytes_per_page();
  sizing.page_size = page;
  sizing.max_seq_len = max_len_;
  sizing.sequence_pages = (int64_t{max_len_} + page - 1) / page;
  sizing.max_running = target_.max_running;
  sizing.memory_share = target_.memory_share;
  sizing.available = available_memory();
  if (!model_.device().on_cpu()) {  // as many tokens as the model's
    const int64_t tokens = pages * target_.page_size;
    sizing.num_pages = std::min((tokens + page - 1) / page, sizing.max_running * sizing.sequence_pages);
    sizing.num_pages = std::max(*sizing.num_pages, sizing.sequence_pages);
    sizing.available = INT64_MAX;
  }
  FOVEA_TRY(count, choose_num_pages(sizing));
  FOVEA_RETURN_IF_ERROR(model_.place(count, run_options_, options));
  kv_bytes_ = count * sizing.bytes_per_page;
  pool_ = std::make_unique<PagePool>(count);
  return {};
}

/// Every id must be the same token.
Status ModelDrafter::check_tokens(const std::string& dir, const Target& target) const {
  if (target.tokenizer == nullptr) return {};
  auto loaded = Tokenizer::load(dir);
  if (!loaded)
    return loaded.error().code == ErrorCode::not_found
               ? Status(not_found("the draft model " + dir +
                                  " has no tokenizer.json to compare with the model's; copy it there"))
               : Status(loaded.error());
  const Tokenizer& own = **loaded;
  for (int32_t id = 0; id < target.sampled_vocab; ++id)
    if (own.id_to_token(id) != target.tokenizer->id_to_token(id))
      return invalid("the draft model " + dir + " has other tokens: id " + std::to_string(id) + " is \"" +
                     std::string(own.id_to_token(id)) + "\", the model's is \"" +
                     std::string(target.tokenizer->id_to_token(id)) +
                     "\"; give a draft model with the same tokenizer");
  return {};
}

void ModelDrafter::end(uint64_t id, std::span<const int32_t>, int, std::string_view) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  pool_->release(found->second.pages);
  sequences_.erase(found);
}

int ModelDrafter::behind(const DraftJob& job) const {
  const auto found = sequences_.find(job.id);
  return static_cast<int>(job.tokens.size()) - (found == sequences_.end() ? 0 : found->second.computed);
}

/// False: there is no room for drafts.
bool ModelDrafter::begin(DraftJob& job, Wanted& wanted) {
  const auto tokens = static_cast<int>(job.tokens.size());
  const int most = std::min(job.most, max_len_ - tokens);
  if (most <= 0) return false;
  Sequence& sequence = sequences_[job.id];
  sequence.id = job.id;
  sequence.prompt_len = job.prompt_len;
  // Keys of drafts that were rejected are computed again.
  const auto same =
      std::mismatch(sequence.tokens.begin(), sequence.tokens.end(), job.tokens.begin(), job.tokens.end())
          .first -
      sequence.tokens.begin();
  sequence.computed = std::min({sequence.computed, static_cast<int>(same), tokens - 1});
  sequence.tokens.assign(job.tokens.begin(), job.tokens.end());
  const int page = model_.page_size();
  const int64_t pages = (int64_t{tokens} + most + page - 1) / page;
  if (const auto more = pages - static_cast<int64_t>(sequence.pages.size());
      more > 0 && !pool_->allocate(more, sequence.pages))
    return false;
  wanted.job = &job;
  wanted.sequence = &sequence;
  wanted.most = most;
  return true;
}

void ModelDrafter::propose(std::span<DraftJob> jobs) {
  if (failed_) return;
  std::vector<Wanted> all;
  for (DraftJob& job : jobs) {
    Wanted wanted;
    if (!begin(job, wanted)) continue;
    wanted.slot = static_cast<int>(all.size()) * kMaxDrafts;
    all.push_back(wanted);
  }
  const Status status = draft(all);
  if (status) return;
  failed_ = true;
  FOVEA_LOG(warning) << "no drafts from now on: the draft model failed: " << status.error().message;
}

Status ModelDrafter::draft(std::vector<Wanted>& all) {
  FOVEA_RETURN_IF_ERROR(catch_up(all));
  while (true) {
    std::vector<Rows> rows;
    for (Wanted& wanted : all)
      if (wanted.drafts < wanted.most) rows.push_back({&wanted, 1, true});
    if (rows.empty()) break;
    FOVEA_RETURN_IF_ERROR(run(rows, true));
  }
  return take(all);
}

/// Computes what the draft model has not seen of each sequence, up to the first draft: first those that
/// only miss what a step gave.
Status ModelDrafter::catch_up(std::vector<Wanted>& all) {
  const auto missing = [](const Wanted& w) { return w.sequence->num_tokens() - w.sequence->computed; };
  for (const bool decode : {true, false}) {
    std::vector<Rows> part;
    int budget = model_.max_tokens();
    for (Wanted& wanted : all) {
      const bool few = missing(wanted) <= std::min(model_.decode_rows(), model_.max_tokens());
      if (wanted.drafts > 0 || few != decode) continue;
      for (int left = missing(wanted); left > 0;) {
        if (budget == 0 || (decode && budget < left)) {
          FOVEA_RETURN_IF_ERROR(run(part, decode));
          part.clear();
          budget = model_.max_tokens();
        }
        const int count = std::min(left, budget);
        left -= count;
        budget -= count;
        part.push_back({&wanted, count, left == 0});
      }
    }
    if (!part.empty()) FOVEA_RETURN_IF_ERROR(run(part, decode));
  }
  return {};
}

Status ModelDrafter::run(std::span<const Rows> part, bool decode) {
  std::vector<ScheduledChunk> chunks;
  std::vector<int32_t> from, slots;
  int total = 0;
  for (const Rows& rows : part)
    total += rows.count;
  const bool all_logits = decode && model_.runs().wants_all_logits(total);
  for (const Rows& rows : part) {
    Wanted& wanted = *rows.wanted;
    ScheduledChunk chunk;
    chunk.sequence = wanted.sequence;
    chunk.first = wanted.sequence->computed;
    chunk.count = rows.count;
    chunk.decode = decode;
    chunk.logits_first = all_logits ? chunk.first : chunk.end() - rows.last;
    chunks.push_back(chunk);
    from.insert(from.end(), static_cast<size_t>(rows.count), -1);
    if (wanted.drafts > 0) from.back() = wanted.slot + wanted.drafts - 1;
    slots.insert(slots.end(), static_cast<size_t>(chunk.logit_rows()), -1);
    wanted.sequence->computed = chunk.end();
    if (!rows.last) continue;
    slots.back() = wanted.slot + wanted.drafts++;
    wanted.sequence->tokens.push_back(kFutureToken);
  }
  batch_.build(chunks, model_.page_size());
  return model_.runs().run({batch_, from, slots, {}, DraftRuns::States::none});
}

/// Hands out the drafts.
Status ModelDrafter::take(std::span<Wanted> all) {
  if (all.empty()) return {};
  FOVEA_TRY(drafts, model_.runs().drafts(all.back().slot + kMaxDrafts));
  for (const Wanted& wanted : all) {
    const auto own = drafts.subspan(static_cast<size_t>(wanted.slot), static_cast<size_t>(wanted.drafts));
    wanted.job->drafts.assign(own.begin(), own.end());
    std::ranges::copy(own, wanted.sequence->tokens.end() - wanted.drafts);
  }
  return {};
}

}  // namespace fovea
