#include "engine/model_drafter.h"

#include <algorithm>

#include "attention/selection_context.h"
#include "base/check.h"
#include "base/log.h"
#include "engine/kv_sizing.h"
#include "files/model_folder.h"
#include "model/kv_groups.h"

namespace fovea {

Result<std::unique_ptr<ModelDrafter>> ModelDrafter::create(const SpeculativeConfig& config,
                                                           const Target& target,
                                                           const BackendRegistry& registry, Stream& stream) {
  std::unique_ptr<ModelDrafter> drafter(new ModelDrafter(stream));
  FOVEA_RETURN_IF_ERROR(drafter->load(config, target, registry));
  return drafter;
}

Status ModelDrafter::load(const SpeculativeConfig& config, const Target& target,
                          const BackendRegistry& registry) {
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
  max_tokens_ = std::max(target.max_batched_tokens, target.max_running);
  vocab_ = target.sampled_vocab;
  fit_to_length(model_config, max_len_);

  const DeviceInfo device;
  const DType dtype = config.model_dtype.value_or(model_config.dtype);
  ModelRunner::Options options;
  options.activations = activation_dtype(device, dtype);
  options.kv_dtype = resolve(KvCacheDType::auto_, dtype);
  options.limits = {target.max_running, max_tokens_, int64_t{target.max_running} * max_len_, max_len_};
  options.max_logit_rows = target.max_running;
  options.attention.backend = config.attention_backend;
  std::vector<AttentionSpec> specs;
  for (const AttentionSpec& spec : attention_specs(model_config)) {
    specs.push_back(ModelRunner::resolve(spec, options.activations, options.kv_dtype, KvLayout::hnd, 0));
    specs.back().page_size = 0;  // to be chosen
  }
  FOVEA_TRY(selection, select(options.attention, specs, device, registry));
  selection_ = std::move(selection);

  ModelLoadOptions load;
  load.dir = dir;
  load.dtype = config.model_dtype;
  load.dummy_weights = target.dummy_weights;
  load.seed = target.seed + 1;  // not the target's
  FOVEA_TRY(model, Model::load(model_config, load, stream_));
  model_ = std::move(model);
  FOVEA_TRY(runner, ModelRunner::create(*model_, selection_, registry, options));
  runner_ = std::move(runner);

  const auto groups =
      kv_groups(model_config, options.kv_dtype, KvLayout::hnd, selection_.page_size, model_->kv_scales());
  KvSizing sizing;
  sizing.bytes_per_page = bytes_per_page(groups);
  sizing.page_size = selection_.page_size;
  sizing.max_seq_len = max_len_;
  sizing.sequence_pages = (int64_t{max_len_} + sizing.page_size - 1) / sizing.page_size;
  sizing.max_running = target.max_running;
  sizing.memory_share = target.memory_share;
  sizing.available = available_memory();
  FOVEA_TRY(pages, choose_num_pages(sizing));
  FOVEA_TRY(cache, KvCache::create(groups, {pages}, cpu_device()));
  kv_ = std::make_unique<KvCache>(std::move(cache));
  kv_bytes_ = pages * sizing.bytes_per_page;
  runner_->set_kv_cache(*kv_);
  pool_ = std::make_unique<PagePool>(pages);
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
  const int page = selection_.page_size;
  const int64_t pages = (int64_t{tokens} + most + page - 1) / page;
  if (const auto more = pages - static_cast<int64_t>(sequence.pages.size());
      more > 0 && !pool_->allocate(more, sequence.pages))
    return false;
  wanted = {&job, &sequence, most};
  return true;
}

void ModelDrafter::propose(std::span<DraftJob> jobs) {
  if (failed_) return;
  std::vector<Wanted> all;
  for (DraftJob& job : jobs)
    if (Wanted wanted; begin(job, wanted)) all.push_back(wanted);
  Status status = catch_up(all);
  while (status) {
    std::erase_if(all, [](const Wanted& w) { return static_cast<int>(w.job->drafts.size()) >= w.most; });
    if (all.empty()) return;
    status = extend(all);
  }
  failed_ = true;
  FOVEA_LOG(warning) << "no drafts from now on: the draft model failed: " << status.error().message;
}

Status ModelDrafter::run(const std::vector<ScheduledChunk>& chunks) {
  batch_.build(chunks, selection_.page_size);
  FOVEA_RETURN_IF_ERROR(runner_->run(batch_, stream_));
  for (const ScheduledChunk& chunk : chunks)
    chunk.sequence->computed = chunk.end();
  return {};
}

/// Computes what the draft model has not seen of each sequence, up to the first draft.
Status ModelDrafter::catch_up(std::vector<Wanted>& all) {
  for (size_t next = 0; next < all.size();) {
    std::vector<ScheduledChunk> chunks;
    std::vector<Wanted*> done;
    int budget = max_tokens_;
    while (next < all.size() && budget > 0) {
      Sequence& sequence = *all[next].sequence;
      ScheduledChunk chunk;
      chunk.sequence = &sequence;
      chunk.first = sequence.computed;
      chunk.count = std::min(budget, sequence.num_tokens() - sequence.computed);
      const bool last = chunk.end() == sequence.num_tokens();
      chunk.logits_first = chunk.end() - last;
      budget -= chunk.count;
      chunks.push_back(chunk);
      if (!last) break;
      done.push_back(&all[next++]);
    }
    FOVEA_RETURN_IF_ERROR(run(chunks));
    for (size_t row = 0; row < done.size(); ++row)
      take_draft(*done[row], static_cast<int>(row));
  }
  return {};
}

/// One more draft for each.
Status ModelDrafter::extend(std::vector<Wanted>& all) {
  std::vector<ScheduledChunk> chunks;
  for (const Wanted& wanted : all) {
    ScheduledChunk chunk;
    chunk.sequence = wanted.sequence;
    chunk.first = chunk.logits_first = wanted.sequence->computed;
    chunk.count = 1;
    chunk.decode = true;
    chunks.push_back(chunk);
  }
  FOVEA_RETURN_IF_ERROR(run(chunks));
  for (size_t row = 0; row < all.size(); ++row)
    take_draft(all[row], static_cast<int>(row));
  return {};
}

void ModelDrafter::take_draft(Wanted& wanted, int row) {
  const auto logits = runner_->logits(row).first(static_cast<size_t>(vocab_));
  const auto best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  wanted.job->drafts.push_back(best);
  wanted.sequence->tokens.push_back(best);
}

}  // namespace fovea
