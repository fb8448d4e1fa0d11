// The part of EngineSetup that makes drafters.
#include "attention/selection_context.h"
#include "base/log.h"
#include "engine/engine_setup.h"
#include "engine/model_drafter.h"
#include "files/model_folder.h"

namespace fovea {

std::unique_ptr<Speculator> EngineSetup::make_speculator(const EngineConfig& config) {
  if (!drafter && executor.ngram.most == 0) return nullptr;
  auto speculator =
      std::make_unique<Speculator>(config.speculative, std::move(drafter), context.sampled_vocab);
  if (gpu) speculator->measure();
  return speculator;
}

/// What the model and its backends have to do with it.
Status EngineSetup::check_speculative(const EngineConfig& config) const {
  const SpeculativeConfig& c = config.speculative;
  if (!c.enabled()) return {};
  if (scheduler.whole_prompts)
    return unsupported(
        "speculative decoding verifies several rows of a sequence in one step, and without the "
        "causal mask (" +
        context.whole_prompts_from + ") a row would see the drafts after it; leave out one");
  if (c.verify_in_prefill && scheduler.phases_differ)
    return unsupported(
        "--speculative-attention-mode prefill: the prefill backend gives a row other bits than decode, so "
        "drafts would change answers; leave it out, or select one backend that claims chunking for both "
        "phases");
  if (c.verify_in_prefill) {
    FOVEA_LOG(warning) << "--speculative-attention-mode prefill: drafts are verified by the decode backend, "
                          "which gives the same bits here";
  }
  return {};
}

/// Before any weight is read.
Status EngineSetup::read_draft_head(const EngineConfig& config) {
  const SpeculativeConfig& c = config.speculative;
  if (!c.reads_hidden_states()) return {};
  std::string dir = info.model_dir;
  if (c.method != DraftMethod::mtp) {
    FOVEA_TRY(found, resolve_model_dir(c.model));
    dir = std::move(found);
  }
  FOVEA_TRY(head, load_draft_head_config(c.method, dir, model_config));
  head_ = std::move(head);
  return {};
}

/// Whether the GPU can look n-gram drafts up. Else the host does, with the same answers.
bool EngineSetup::drafts_there() const {
  const char* why = nullptr;
  if (!gpu)
    why = "the model runs on the CPU";
  else if (scheduler.window > 0)
    why = "pages before the window are given up as soon as it is known which tokens stay";
  else if (model_config.encoder)
    why = "the model has an encoder";
  if (why != nullptr) {
    FOVEA_LOG(warning) << "the method ngram_gpu looks drafts up on the host, as ngram does: " << why;
  }
  return why == nullptr;
}

DrafterDevice EngineSetup::drafter_device(const BackendRegistry& registry) const {
  DrafterDevice device;
  device.host = stream.get();
  device.registry = &registry;
  if (!gpu) return device;
  device.info = device_;
  device.ops = gpu->ops.get();
  device.queue = gpu->queue.get();
  device.buckets = executor.buckets;
  return device;
}

Status EngineSetup::make_head_drafter(const EngineConfig& config, DrafterDevice device) {
  HeadDrafter::Target target;
  target.page_size = info.selection.page_size;
  target.sampled_vocab = context.sampled_vocab;
  target.max_seq_len = info.max_seq_len;
  target.max_running = info.max_running_requests;
  target.max_batched_tokens = info.max_batched_tokens;
  target.window = scheduler.window;
  target.seed = config.seed;
  target.dummy_weights = config.dummy_weights;
  FOVEA_TRY(made, HeadDrafter::create(config.speculative, *head_, target, *model, std::move(device)));
  FOVEA_LOG(info) << "draft head: " << head_->dir << ", " << (made->weight_bytes() >> 20)
                  << " MiB of weights beside the model's, a layer in the KV cache";
  drafter_with_model_ = made.get();
  drafter = std::move(made);
  return {};
}

/// One with a model has to be placed.
Status EngineSetup::make_drafter(const EngineConfig& config, const BackendRegistry& registry) {
  const SpeculativeConfig& c = config.speculative;
  if (head_) return make_head_drafter(config, drafter_device(registry));
  if (c.method == DraftMethod::ngram && c.ngram_on_device && drafts_there()) {
    executor.ngram = {c.prompt_lookup_min,      c.prompt_lookup_max, c.num_tokens,
                      info.selection.page_size, info.max_seq_len,    c.synthetic_rates};
    return {};
  }
  drafter = fovea::make_drafter(c);
  if (c.method != DraftMethod::draft_model) return {};
  ModelDrafter::Target target;
  target.tokenizer = tokenizer.get();
  target.sampled_vocab = context.sampled_vocab;
  target.page_size = info.selection.page_size;
  target.max_seq_len = info.max_seq_len;
  target.max_running = info.max_running_requests;
  target.max_batched_tokens = info.max_batched_tokens;
  target.seed = config.seed;
  target.dummy_weights = config.dummy_weights;
  FOVEA_TRY(made, ModelDrafter::create(c, target, drafter_device(registry)));
  FOVEA_LOG(info) << "draft model: " << c.model << ", " << (made->weight_bytes() >> 20) << " MiB of weights";
  drafter_with_model_ = made.get();
  drafter = std::move(made);
  return {};
}

Status EngineSetup::place_drafter(int64_t pages) {
  if (drafter_with_model_ == nullptr) return {};
  const Tensor step = gpu && head_ ? runner->hidden_there() : Tensor();
  return drafter_with_model_->place(pages, step, {pool.get(), {}});
}

}  // namespace fovea
