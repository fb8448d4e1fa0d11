#include "engine/executor.h"

#include <algorithm>
#include <new>

#include "base/check.h"

namespace fovea {

Result<std::unique_ptr<Executor>> Executor::create(Model& model, const Selection& selection,
                                                   const BackendRegistry& registry, const Options& options) {
  std::unique_ptr<Executor> executor(new Executor(model, options));
  const auto vocab = static_cast<size_t>(model.config().vocab_size);
  try {
    for (AttentionSpec spec : attention_specs(model.config())) {
      spec.kv_dtype = options.kv_dtype;
      spec.kv_x_packed = options.kv_x_packed;
      spec.page_size = selection.page_size;
      auto& groups = executor->groups_;
      const auto same =
          std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.spec == spec; });
      executor->group_of_.push_back(static_cast<size_t>(same - groups.begin()));
      if (same != groups.end()) continue;
      FOVEA_TRY(attention, PhasedAttention::create(selection, registry));
      FOVEA_TRY(bytes, attention.workspace_bytes(spec, options.limits));
      groups.push_back({spec, std::move(attention), AlignedArray<std::byte>(bytes)});
    }
    executor->logits_ = AlignedArray<float>(static_cast<size_t>(options.max_logit_rows) * vocab);
    executor->activation_bytes_ = model.reserve(options.limits.max_tokens, options.max_logit_rows);
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "no memory for the activations and the attention workspace of " +
                                               std::to_string(options.limits.max_seqs) + " requests and " +
                                               std::to_string(options.limits.max_tokens) +
                                               " tokens a step; allow fewer of either"};
  }
  return executor;
}

int64_t Executor::scratch_bytes() const {
  size_t bytes = logits_.size() * sizeof(float);
  for (const Group& group : groups_)
    bytes += group.workspace.size();
  return static_cast<int64_t>(bytes) + activation_bytes_;
}

Status Executor::run(const BatchBuilder& batch, Stream& stream) {
  FOVEA_CHECK(kv_ && batch.num_logit_rows() <= options_.max_logit_rows);
  for (Group& group : groups_)
    FOVEA_RETURN_IF_ERROR(group.attention.plan(group.spec, options_.limits, batch.meta(), batch.num_decodes(),
                                               group.workspace, stream));
  ForwardInput input = batch.input();
  input.attention = this;
  input.kv = kv_;
  model_.forward(input, logits_.data(), stream);
  return {};
}

std::span<float> Executor::logits(int row) {
  const auto vocab = static_cast<size_t>(model_.config().vocab_size);
  return {logits_.data() + static_cast<size_t>(row) * vocab, vocab};
}

void Executor::forward(int index, const AttentionArgs& args, Stream& stream) {
  groups_[group_of_[static_cast<size_t>(index)]].attention.forward(args, stream);
}

}  // namespace fovea
