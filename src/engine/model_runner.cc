#include "engine/model_runner.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "attention/kv_view.h"
#include "attention/mla_prefill.h"
#include "base/check.h"
#include "profile/scopes.h"

namespace fovea {

Result<std::unique_ptr<ModelRunner>> ModelRunner::create(Model& model, const Selection& selection,
                                                         const BackendRegistry& registry,
                                                         const Options& options) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, options));
  Device& device = options.ops->device();
  FOVEA_RETURN_IF_ERROR(runner->make_groups(selection, registry));
  try {
    for (Group& group : runner->groups_)
      group.workspace = Buffer(device, group.workspace_bytes);
    runner->logits_ =
        Buffer(device, dense_bytes(ElementType::f32, {options.max_logit_rows, runner->vocab_size()}));
    runner->hidden_ = Buffer(device, static_cast<size_t>(runner->hidden_bytes()));
    if (!runner->on_cpu()) runner->arrays_.emplace(device, runner->step_limits(selection.page_size));
    if (!runner->on_cpu() && runner->has(AttentionType::encoder))
      runner->encoder_arrays_.emplace(device, options.limits.max_seqs, options.max_encoder_rows);
    runner->activation_bytes_ = model.reserve(options.limits.max_tokens, options.max_logit_rows);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "no memory for the activations and the attention workspace of " +
                                               std::to_string(options.limits.max_seqs) + " requests and " +
                                               std::to_string(options.limits.max_tokens) +
                                               " tokens a step; allow fewer of either"};
  }
  return runner;
}

Result<ModelRunner::Bytes> ModelRunner::measure(Model& model, const Selection& selection,
                                                const BackendRegistry& registry, const Options& options) {
  ModelRunner runner(model, options);
  FOVEA_RETURN_IF_ERROR(runner.make_groups(selection, registry));
  Bytes bytes;
  for (const Group& group : runner.groups_)
    bytes.workspace += static_cast<int64_t>(group.workspace_bytes);
  bytes.logits =
      static_cast<int64_t>(dense_bytes(ElementType::f32, {options.max_logit_rows, runner.vocab_size()}));
  bytes.step_arrays = StepArrays::block_bytes(runner.step_limits(selection.page_size));
  if (runner.has(AttentionType::encoder))
    bytes.step_arrays += EncoderArrays::bytes(options.limits.max_seqs, options.max_encoder_rows);
  bytes.activations =
      model.activation_bytes(*options.ops, options.limits.max_tokens, options.max_logit_rows) +
      runner.hidden_bytes();
  return bytes;
}

/// Sets groups_ and group_of_; the workspaces are not allocated.
Status ModelRunner::make_groups(const Selection& selection, const BackendRegistry& registry) {
  for (AttentionSpec spec : attention_specs(model_.config())) {
    spec = with_settings(
        resolve(spec, options_.activations, options_.kv_dtype, options_.kv_layout, selection.page_size),
        options_.attention);
    const auto same = std::ranges::find(groups_, spec, &Group::spec);
    group_of_.push_back(static_cast<size_t>(same - groups_.begin()));
    if (same != groups_.end()) continue;
    const KindSelection& kind = selection.of(spec);
    if (is_mla_prefill(*kind.prefill.backend, registry) != (model_.config().mla.expanded_keys > 0))
      return unsupported(kind.prefill.backend->label() +
                         " prefills latent attention without absorption, for which this model's weights were "
                         "not loaded; leave out -ac.mla_prefill_backend");
    FOVEA_TRY(attention, PhasedAttention::create(kind, registry));
    const AttentionLimits limits = limits_of(spec.type, options_);
    FOVEA_TRY(bytes, attention.workspace_bytes(spec, limits));
    groups_.push_back(
        {spec, limits, std::move(attention), bytes, Buffer(), {kind.prefill.backend, kind.decode.backend}});
  }
  return {};
}

StepArrays::Limits ModelRunner::step_limits(int page_size) const {
  StepArrays::Limits limits;
  limits.max_seqs = options_.limits.max_seqs;
  limits.max_tokens = options_.limits.max_tokens;
  limits.max_logit_rows = options_.max_logit_rows;
  limits.max_pages = std::max<int64_t>(1, max_pages(AttentionType::decoder));
  limits.max_cross_pages = max_pages(AttentionType::encoder_decoder);
  limits.page_size = page_size;
  limits.host_blocks = options_.open_steps + 2;
  limits.row_bytes = options_.row_bytes;
  limits.logit_row_bytes = options_.logit_row_bytes;
  limits.graph_rows = options_.graph_rows;
  return limits;
}

AttentionSpec ModelRunner::resolve(AttentionSpec spec, DType activations, KvCacheDType kv_dtype,
                                   KvLayout layout, int page_size) {
  const bool in_cache = spec.type == AttentionType::decoder || spec.type == AttentionType::encoder_decoder;
  spec.dtype = activations;
  spec.kv_dtype = in_cache ? kv_dtype : fovea::resolve(KvCacheDType::auto_, activations);
  set_layout(spec, in_cache ? layout : KvLayout::hnd);
  spec.page_size = in_cache ? page_size : 1;
  return spec;
}

AttentionLimits ModelRunner::limits_of(AttentionType type, const Options& options) {
  AttentionLimits limits = options.limits;
  if (type == AttentionType::decoder) return limits;
  limits.max_kv_len = options.max_encoder_len;
  limits.max_kv_tokens = int64_t{limits.max_seqs} * options.max_encoder_len;
  if (type != AttentionType::encoder_decoder) {
    limits.max_tokens = options.max_encoder_rows;
    limits.max_kv_tokens = options.max_encoder_rows;
  }
  return limits;
}

ModelRunner::Bytes ModelRunner::bytes() const {
  Bytes bytes;
  bytes.logits = static_cast<int64_t>(logits_.size());
  for (const Group& group : groups_)
    bytes.workspace += static_cast<int64_t>(group.workspace.size());
  bytes.activations = activation_bytes_ + static_cast<int64_t>(hidden_.size());
  if (arrays_) bytes.step_arrays = arrays_->device_bytes();
  if (encoder_arrays_) bytes.step_arrays += encoder_arrays_->device_bytes();
  return bytes;
}

void ModelRunner::set_kv_cache(KvCache& kv) {
  FOVEA_CHECK(kv.groups().size() == 1);
  kv_ = &kv;
}

bool ModelRunner::has(AttentionType type) const {
  return std::ranges::any_of(groups_, [&](const Group& group) { return group.spec.type == type; });
}

/// Pages of the most keys that attention of `type` reads of one sequence; 0 = the model has none.
int64_t ModelRunner::max_pages(AttentionType type) const {
  int64_t most = 0;
  for (const Group& group : groups_)
    if (group.spec.type == type)
      most = std::max(most,
                      (int64_t{group.limits.max_kv_len} + group.spec.page_size - 1) / group.spec.page_size);
  return most;
}

/// Calls `plan` and adds its time to plan_seconds_.
template <class F>
Status ModelRunner::timed(const F& plan) {
  const auto start = std::chrono::steady_clock::now();
  const Status status = plan();
  if (status)
    plan_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return status;
}

Status ModelRunner::plan(Group& group, const BatchMeta& meta, const PhaseSplit& split, Stream& stream) {
  const profile::Op op(stream, "attention_plan");
  return group.attention.plan(group.spec, group.limits, meta, split,
                              {group.workspace.data(), group.workspace.size()}, stream);
}

Status ModelRunner::plan(const BatchBuilder& batch, Stream& stream) {
  for (Group& group : groups_) {
    const bool cross = group.spec.type == AttentionType::encoder_decoder;
    const bool self = group.spec.type == AttentionType::encoder;
    if (self && !batch.encoder().encodes()) continue;
    BatchMeta meta = self ? batch.encoder().self_meta() : cross ? batch.encoder().cross_meta() : batch.meta();
    if (!self) meta.num_pages = kv_->num_pages(0);  // page ids are checked: 4 bytes per page
    PhaseSplit split = self ? PhaseSplit{} : batch.split();
    split.host_q_offsets = meta.q_offsets;
    split.host_kv_lens = meta.kv_lens;
    FOVEA_RETURN_IF_ERROR(plan(group, meta, split, stream));
  }
  return {};
}

Status ModelRunner::run(const BatchBuilder& batch, Stream& stream) {
  if (!on_cpu()) {
    FOVEA_RETURN_IF_ERROR(upload(batch, stream));
    return launch(stream);
  }
  FOVEA_CHECK(kv_ && batch.num_logit_rows() <= options_.max_logit_rows);
  const Status planned = timed([&] { return plan(batch, stream); });
  FOVEA_RETURN_IF_ERROR(planned);
  if (batch.encoder().encodes()) FOVEA_RETURN_IF_ERROR(model_.encode(encode_input(batch), stream));
  ForwardInput input = batch.input();
  input.attention = this;
  input.kv = kv_;
  input.batch = &batch.meta();
  if (states_) {
    FOVEA_CHECK(states_.contiguous() && states_.size(0) >= static_cast<int64_t>(input.token_ids.size()));
    input.states = states_.as<float>();
    input.states_width = states_.size(1);
  }
  if (hidden_.size() > 0) input.hidden = hidden_.tensor(ElementType::f32, {1}).as<float>();
  logit_rows_ = batch.num_logit_rows();
  hidden_rows_ = states_ ? logit_rows_ : static_cast<int64_t>(input.token_ids.size());
  return model_.forward(input, logits().as<float>(), stream);
}

std::span<const float> ModelRunner::hidden(int state) const {
  FOVEA_CHECK(on_cpu() && state >= 0 && state < options_.hidden_states);
  const int64_t size = hidden_rows_ * model_.config().hidden_size;
  const Tensor all = hidden_.tensor(ElementType::f32, {options_.hidden_states, size});
  return {all.as<float>() + state * size, static_cast<size_t>(size)};
}

Tensor ModelRunner::hidden_there() const {
  FOVEA_CHECK(!on_cpu() && options_.hidden_states > 0);
  return hidden_.tensor(ElementType::f32,
                        {most_hidden_rows(), int64_t{options_.hidden_states} * model_.config().hidden_size});
}

int64_t ModelRunner::hidden_bytes() const {
  if (options_.hidden_states == 0) return 0;
  return static_cast<int64_t>(dense_bytes(
      ElementType::f32, {int64_t{options_.hidden_states} * most_hidden_rows(), model_.config().hidden_size}));
}

EncodeInput ModelRunner::encode_input(const BatchBuilder& batch) {
  EncodeInput input = batch.encoder().input();
  input.attention = this;
  input.kv = kv_;
  return input;
}

/// Encodes the step's new inputs on the device. Nothing that was queued reads the batch afterwards.
Status ModelRunner::encode_there(const BatchBuilder& batch, Stream& stream) {
  const BatchMeta host = batch.encoder().self_meta();
  const auto encode = [&]() -> Status {
    FOVEA_TRY(meta, encoder_arrays_->upload(host, stream));
    PhaseSplit split;
    split.host_q_offsets = host.q_offsets;
    split.host_kv_lens = host.kv_lens;
    const Status planned = timed([&]() -> Status {
      for (Group& group : groups_)
        if (group.spec.type == AttentionType::encoder)
          FOVEA_RETURN_IF_ERROR(plan(group, meta, split, stream));
      return {};
    });
    FOVEA_RETURN_IF_ERROR(planned);
    return model_.encode(encode_input(batch), stream);
  };
  const Status encoded = encode();
  if (!encoded) (void)options_.ops->device().synchronize(stream);  // else encode() has waited
  return encoded;
}

Status ModelRunner::upload(const BatchBuilder& batch, Stream& stream, const StepArrays::More& more) {
  FOVEA_CHECK(kv_);
  if (encoder_arrays_ && batch.encoder().encodes()) FOVEA_RETURN_IF_ERROR(encode_there(batch, stream));
  const Status copied = arrays_->upload(batch, stream, more);
  logit_rows_ = arrays_->tensors().logit_rows.size(0);
  FOVEA_CHECK(logit_rows_ <= options_.max_logit_rows);
  return copied;
}

Status ModelRunner::launch(Stream& stream) {
  const Status planned = timed([&]() -> Status {
    for (Group& group : groups_) {
      if (group.spec.type == AttentionType::encoder) continue;  // planned where it runs
      const bool cross = group.spec.type == AttentionType::encoder_decoder;
      BatchMeta meta = cross ? arrays_->cross_meta() : arrays_->meta();
      meta.num_pages = kv_->num_pages(0);
      FOVEA_RETURN_IF_ERROR(plan(group, meta, cross ? arrays_->cross_split() : arrays_->split(), stream));
    }
    return {};
  });
  FOVEA_RETURN_IF_ERROR(planned);
  StepTensors step = arrays_->tensors();
  step.attention = this;
  step.kv = kv_;
  step.batch = &arrays_->meta();
  step.lora_slots = lora_;
  const int64_t rows = step.token_ids.size(0), size = model_.config().hidden_size;
  if (states_) step.states = states_.first_rows(rows);
  const int64_t kept = states_ ? logit_rows_ : rows;
  for (int i = 0; i < options_.hidden_states; ++i)
    step.hidden.push_back(hidden_there().first_rows(kept).slice(1, i * size, size));
  return model_.forward_tensors(step, logits(), stream);
}

std::span<float> ModelRunner::logits(int row) const {
  FOVEA_CHECK(on_cpu() && row < logit_rows_);
  const auto vocab = static_cast<size_t>(vocab_size());
  return {logits().as<float>() + static_cast<size_t>(row) * vocab, vocab};
}

double ModelRunner::attention_seconds() const {
  double seconds = 0;
  for (const Group& group : groups_)
    for (const Phase phase : {Phase::prefill, Phase::decode})
      seconds += group.attention.use(phase).seconds;
  return seconds;
}

std::vector<AttentionUse> ModelRunner::attention() const {
  std::vector<AttentionUse> uses;
  for (const Group& group : groups_)
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      const LayerKind kind = kind_of(group.spec);
      if (kind == LayerKind::encoder && phase == Phase::decode) continue;  // encoders only prefill
      // Specs of one kind share their backends, so they get one entry.
      auto at = std::ranges::find_if(
          uses, [&](const AttentionUse& u) { return u.kind == kind && u.phase == phase; });
      if (at == uses.end())
        at = uses.insert(at, {phase, kind, group.backends[static_cast<size_t>(phase)]->label()});
      const PhasedAttention::Use& use = group.attention.use(phase);
      at->calls += use.calls;
      if (on_cpu()) at->seconds += use.seconds;  // elsewhere the calls only queue work
      at->bytes += use.work.bytes;
      at->flops += use.work.flops;
      if (phase != Phase::decode) continue;
      at->calls += group.replayed.calls;
      at->bytes += group.replayed.work.bytes;
      at->flops += group.replayed.work.flops;
    }
  return uses;
}

AttentionWork ModelRunner::Group::work(const StepArrays& arrays) const {
  if (spec.type == AttentionType::encoder) return {};
  const PhaseSplit& split =
      spec.type == AttentionType::encoder_decoder ? arrays.cross_split() : arrays.split();
  BatchMeta meta;
  meta.q_offsets = split.host_q_offsets;
  meta.kv_lens = split.host_kv_lens;
  return fovea::attention_work(spec, meta);
}

std::vector<profile::OpWork> ModelRunner::attention_work() const {
  std::vector<profile::OpWork> out;
  for (const Group& group : groups_) {
    const AttentionWork work = group.work(*arrays_);
    out.push_back({work.bytes, work.flops});
  }
  return out;
}

void ModelRunner::count_replay() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].spec.type == AttentionType::encoder) continue;
    const AttentionWork work = groups_[g].work(*arrays_);
    for (size_t layers = static_cast<size_t>(std::ranges::count(group_of_, g)); layers > 0; --layers) {
      ++groups_[g].replayed.calls;
      groups_[g].replayed.work += work;
    }
  }
}

PhasedAttention* ModelRunner::expanded(int index) {
  PhasedAttention& attention = groups_[group_of_[static_cast<size_t>(index)]].attention;
  return attention.expanded() ? &attention : nullptr;
}

Status ModelRunner::forward(int index, const AttentionArgs& args, Stream& stream) {
  const size_t group = group_of_[static_cast<size_t>(index)];
  const profile::Op op(stream, "attention", index, [] { return profile::OpWork(); }, static_cast<int>(group));
  return groups_[group].attention.forward(args, stream);
}

}  // namespace fovea
