#include "engine/drafter_model.h"

#include <algorithm>
#include <new>

#include "attention/selection_context.h"
#include "base/check.h"
#include "base/dtype_names.h"
#include "builtin/decode_rows.h"
#include "engine/device_draft_runs.h"
#include "engine/host_draft_runs.h"
#include "model/kv_groups.h"

namespace fovea {
namespace {

/// Rows of a run on a device: longer prompts take several runs, whose activations need less memory.
constexpr int kDeviceRows = 2048;
constexpr int64_t kNodeBytes = 2 << 10;  // of a graph

DeviceDraftRuns::Options device_options(const DrafterModel::RunOptions& o, const DrafterDevice& device,
                                        const AttentionLimits& limits) {
  DeviceDraftRuns::Options out;
  out.max_seqs = limits.max_seqs;
  out.slots = limits.max_seqs * kMaxDrafts;
  out.sampled_vocab = o.sampled_vocab;
  out.tokens = o.tokens;
  out.kept_rows = o.kept_rows;
  out.width = o.width;
  out.own_width = o.own_width;
  out.max_rows = limits.max_tokens;
  out.buckets = device.buckets;
  out.step = o.step;
  return out;
}

}  // namespace

Result<DType> DrafterModel::choose_dtype(const SpeculativeConfig& config, DType own) const {
  if (device_.on_cpu()) return config.model_dtype.value_or(own);
  const DType dtype = device_.ops->activations();
  if (config.model_dtype && *config.model_dtype != dtype)
    return unsupported("the drafter's dtype " + std::string(to_string(*config.model_dtype)) +
                       " is not the model's, " + std::string(to_string(dtype)) + "; on " +
                       std::string(device_.memory().name()) + " both have one: leave it out");
  return dtype;
}

Status DrafterModel::select(const ModelConfig& model_config, const SpeculativeConfig& config, DType dtype,
                            const Limits& limits, bool states) {
  const int graph_rows = device_.buckets.empty() ? 0 : device_.buckets.back();
  int max_tokens = std::max(limits.max_tokens, limits.max_running);
  if (!device_.on_cpu())
    max_tokens = std::max({std::min(max_tokens, kDeviceRows), limits.max_running, graph_rows});
  options_.activations = activation_dtype(device_.info, dtype);
  options_.kv_dtype = resolve(KvCacheDType::auto_, dtype);
  options_.limits = {limits.max_running, max_tokens, int64_t{limits.max_running} * limits.max_len,
                     limits.max_len};
  options_.max_logit_rows = std::max(limits.max_running, graph_rows);
  options_.hidden_states = states ? 1 : 0;
  options_.hidden_rows = options_.max_logit_rows;
  options_.attention.backend = config.attention_backend;
  if (limits.page_size > 0) options_.attention.page_size = limits.page_size;
  if (!device_.on_cpu()) {
    options_.ops = device_.ops;
    options_.open_steps = DeviceDraftRuns::kOpenRuns;
    options_.row_bytes = DeviceDraftRuns::kRowBytes;
    options_.logit_row_bytes = DeviceDraftRuns::kLogitRowBytes;
    options_.graph_rows = graph_rows;
  }
  std::vector<AttentionSpec> specs;
  for (const AttentionSpec& spec : attention_specs(model_config)) {
    specs.push_back(
        with_settings(ModelRunner::resolve(spec, options_.activations, options_.kv_dtype, KvLayout::hnd, 0),
                      options_.attention));
    specs.back().page_size = 0;  // to be chosen
  }
  FOVEA_TRY(selection, fovea::select(options_.attention, specs, device_.info, *device_.registry));
  selection_ = std::move(selection);
  decode_rows_ = 1 + kMaxDrafts;
  for (AttentionSpec& spec : specs) {
    spec.page_size = selection_.page_size;
    decode_rows_ = std::min(decode_rows_, alike_decode_rows(*selection_.of(spec).decode.backend, spec,
                                                            options_.limits, decode_rows_));
  }
  return {};
}

int64_t DrafterModel::bytes_per_page() const {
  return fovea::bytes_per_page(
      kv_groups(model->config(), options_.kv_dtype, KvLayout::hnd, page_size(), model->kv_scales()));
}

Result<int64_t> DrafterModel::device_bytes(const RunOptions& options) {
  FOVEA_CHECK(!device_.on_cpu());
  FOVEA_TRY(bytes, ModelRunner::measure(*model, selection_, *device_.registry, options_));
  // Graphs of at most two kinds of runs for each bucket, as far as the driver's memory for them is known.
  const int64_t nodes = 24 + 12 * static_cast<int64_t>(model->config().layers.size());
  const int64_t graphs = 2 * static_cast<int64_t>(device_.buckets.size()) * nodes * kNodeBytes;
  return graphs + model->placed_bytes(*device_.ops) + bytes.total() +
         DeviceDraftRuns::bytes(device_options(options, device_, options_.limits), model->config().vocab_size,
                                options_.max_logit_rows, *device_.queue);
}

Status DrafterModel::place(int64_t pages, const RunOptions& options, const PlaceOptions& placing) {
  try {
    if (!device_.on_cpu())
      FOVEA_RETURN_IF_ERROR(model->place(*device_.ops, device_.queue->stream(), placing));
    FOVEA_TRY(runner, ModelRunner::create(*model, selection_, *device_.registry, options_));
    runner_ = std::move(runner);
    const auto groups =
        kv_groups(model->config(), options_.kv_dtype, KvLayout::hnd, page_size(), model->kv_scales());
    FOVEA_TRY(cache, KvCache::create(groups, {pages}, device_.memory()));
    kv_ = std::make_unique<KvCache>(std::move(cache));
    runner_->set_kv_cache(*kv_);
    if (device_.on_cpu()) {
      runs_ = std::make_unique<HostDraftRuns>(
          *runner_, *device_.host,
          HostDraftRuns::Options{options_.limits.max_seqs * kMaxDrafts, options.sampled_vocab, options.tokens,
                                 options.kept_rows, options.width, options.own_width});
      return {};
    }
    auto runs =
        std::make_unique<DeviceDraftRuns>(*runner_, *device_.ops, *device_.queue, options_.max_logit_rows,
                                          device_options(options, device_, options_.limits));
    FOVEA_RETURN_IF_ERROR(runs->start());
    runs_ = std::move(runs);
    return {};
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory,
                 "no memory for the drafter on " + std::string(device_.memory().name()) +
                     "; lower --gpu-memory-utilization or --max-running-requests, or leave out the drafter"};
  }
}

}  // namespace fovea
