#include "model/draft_head.h"

#include <cstring>
#include <new>
#include <optional>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "files/checkpoint.h"
#include "model/decoder.h"

namespace fovea {
namespace {

/// Reads a head's weights; called twice, as Family::read.
class HeadWeights {
 public:
  HeadWeights(const DraftHeadConfig& head, const Model& model, WeightReader& reader)
      : h_(head), c_(head.layer), model_(model), reader_(reader) {}

  std::unique_ptr<Model> read() {
    DecoderWeights weights;
    if (h_.method == DraftMethod::mtp)
      weights = read_mtp();
    else if (h_.method == DraftMethod::eagle3)
      weights = read_eagle3();
    else
      weights = read_eagle();
    return make_decoder(c_, std::move(weights));
  }

 private:
  Norm norm(const std::string& name, int64_t size) { return read_norm(name, size, c_, reader_); }

  /// The head's own matrices where it has them, else the model's.
  void read_ends(const std::string& embedding, const std::string& head, DecoderWeights& weights) {
    const bool shares = c_.hidden_size == model_.config().hidden_size;
    if (reader_.has(embedding) || !shares)
      weights.embedding = reader_.matrix(embedding, h_.model_vocab, c_.hidden_size);
    else
      weights.shared_embedding = model_.embedding_weight();
    if (reader_.has(head) || !shares || c_.vocab_size != h_.model_vocab)
      weights.lm_head = reader_.matrix(head, c_.vocab_size, c_.hidden_size);
    else
      weights.shared_head = model_.head_weight();
  }

  DecoderWeights read_eagle3() {
    const std::string first =
        reader_.first_of({"midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight"});
    const std::string prefix = first.substr(0, first.size() - std::string("hidden_norm.weight").size());
    const int64_t hidden = c_.hidden_size;
    DecoderWeights weights;
    DraftInput& draft = weights.draft.emplace();
    draft.joins_in_attention = true;
    draft.norm_before_residual = h_.norm_before_residual;
    draft.embedding_norm = norm(prefix + "input_layernorm", hidden);
    draft.state_norm = norm(prefix + "hidden_norm", hidden);
    if (h_.has_fc) draft.fc = reader_.fused("", {{"fc", hidden}}, h_.states_width, reader_.has("fc.bias"));
    if (h_.norm_before_fc) draft.fc_norm = norm("input_norm", h_.states_width);
    for (size_t i = 0; h_.norms_of_parts && i < h_.hidden.size(); ++i)
      draft.part_norms.push_back(norm("fc_norm." + std::to_string(i), model_.config().hidden_size));
    DecoderLayer& layer = weights.layers.emplace_back();
    layer.attention = read_joined_attention(prefix + "self_attn.");
    layer.mlp_input_norm = norm(prefix + "post_attention_layernorm", hidden);
    layer.mlp = read_gated_mlp(prefix + "mlp.", c_, reader_);
    weights.final_norm = norm("norm", hidden);
    read_ends("embed_tokens.weight", "lm_head.weight", weights);
    return weights;
  }

  /// Attention whose input is [embedding, state].
  AttentionBlock read_joined_attention(const std::string& prefix) {
    const int64_t q_size = int64_t{c_.num_heads} * c_.head_dim;
    const int64_t kv_size = int64_t{c_.num_kv_heads} * c_.head_dim;
    AttentionBlock block;
    block.qkv = reader_.fused(prefix, {{"q_proj", q_size}, {"k_proj", kv_size}, {"v_proj", kv_size}},
                              2 * int64_t{c_.hidden_size}, c_.qkv_bias);
    block.out = reader_.fused(prefix, {{"o_proj", c_.hidden_size}}, q_size, c_.o_bias);
    if (c_.qk_norm == QkNorm::head) {
      block.q_norm = norm(prefix + "q_norm", c_.head_dim);
      block.k_norm = norm(prefix + "k_norm", c_.head_dim);
    }
    return block;
  }

  /// EAGLE-1: a Llama layer without its first norm, and no norm before the LM head.
  DecoderWeights read_eagle() {
    DecoderWeights weights;
    weights.draft.emplace().fc =
        reader_.fused("", {{"fc", c_.hidden_size}}, 2 * int64_t{c_.hidden_size}, reader_.has("fc.bias"));
    DecoderLayer& layer = weights.layers.emplace_back();
    layer.attention = read_attention("layers.0.self_attn.", c_, reader_);
    layer.mlp_input_norm = norm("layers.0.post_attention_layernorm", c_.hidden_size);
    layer.mlp = read_gated_mlp("layers.0.mlp.", c_, reader_);
    read_ends("embed_tokens.weight", "lm_head.weight", weights);
    return weights;
  }

  /// The layer after the model's last one.
  DecoderWeights read_mtp() {
    const int64_t hidden = c_.hidden_size;
    const std::string prefix = "model.layers." + std::to_string(model_.config().num_layers) + ".";
    DecoderWeights weights;
    DraftInput& draft = weights.draft.emplace();
    draft.embedding_norm = norm(prefix + "enorm", hidden);
    draft.state_norm = norm(prefix + "hnorm", hidden);
    draft.fc = reader_.fused(prefix, {{"eh_proj", hidden}}, 2 * hidden, false);
    DecoderLayer& layer = weights.layers.emplace_back();
    layer.attention_input_norm = norm(prefix + "input_layernorm", hidden);
    if (c_.mla)
      layer.latent = read_latent(prefix + "self_attn.", c_, reader_, c_.sparse);
    else
      layer.attention = read_attention(prefix + "self_attn.", c_, reader_);
    layer.mlp_input_norm = norm(prefix + "post_attention_layernorm", hidden);
    if (c_.layers.front().moe)
      layer.mlp = read_moe(prefix, c_, reader_);
    else
      layer.mlp = read_gated_mlp(prefix + "mlp.", c_, reader_);
    weights.final_norm = norm(prefix + "shared_head.norm", hidden);
    read_ends(prefix + "embed_tokens.weight", prefix + "shared_head.head.weight", weights);
    return weights;
  }

  const DraftHeadConfig& h_;
  const ModelConfig& c_;
  const Model& model_;
  WeightReader& reader_;
};

/// d2t: what is added to each logit's number for the model's token.
Result<std::vector<int32_t>> read_tokens(const DraftHeadConfig& head, const Checkpoint& checkpoint) {
  const CheckpointTensor* tensor = checkpoint.find("d2t");
  const int64_t count = head.layer.vocab_size;
  if (tensor == nullptr) {
    if (count == head.model_vocab) return std::vector<int32_t>();
    return invalid(checkpoint.source() + ": the tensor d2t is missing; a head of " + std::to_string(count) +
                   " tokens (draft_vocab_size) for a model of " + std::to_string(head.model_vocab) +
                   " needs it");
  }
  if (tensor->entry->type.name != "I64" ||
      tensor->entry->shape != std::vector<uint64_t>{static_cast<uint64_t>(count)})
    return invalid(tensor->where() + ": it must be int64 [" + std::to_string(count) + "]");
  std::vector<int64_t> offsets(static_cast<size_t>(count));
  FOVEA_RETURN_IF_ERROR(tensor->read(0, std::as_writable_bytes(std::span(offsets))));
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t offset = offsets[static_cast<size_t>(i)];
    if (offset < -i || offset >= head.model_vocab - i)
      return invalid(tensor->where() + ": the offset " + std::to_string(offset) + " of token " +
                     std::to_string(i) + " leads out of the model's " + std::to_string(head.model_vocab) +
                     " tokens");
    tokens.push_back(static_cast<int32_t>(i + offset));
  }
  return tokens;
}

/// Names that say nothing about the head's forward pass.
bool harmless(std::string_view name) {
  return name == "d2t" || name == "t2d" || name.starts_with("verifier_") ||
         name.ends_with("rotary_emb.inv_freq");
}

void report_unused(const WeightReader& reader, const Checkpoint& checkpoint) {
  for (const std::string_view name : reader.unused()) {
    if (harmless(name)) continue;
    FOVEA_LOG(warning) << checkpoint.source() << ": the draft head doesn't use " << printable(name)
                       << " and perhaps others";
    return;
  }
}

}  // namespace

Result<DraftHead> load_draft_head(const DraftHeadConfig& config, const ModelLoadOptions& options,
                                  const Model& model, Stream& stream) {
  DraftHeadConfig head = config;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const DummyWeights> dummy;
  if (options.dummy_weights) {
    dummy = std::make_shared<DummyWeights>(options.seed, head.layer.dtype);
  } else {
    FOVEA_TRY(opened, Checkpoint::open(head.dir));
    checkpoint = std::make_shared<Checkpoint>(std::move(opened));
  }
  WeightReader reader(checkpoint, dummy, options.dtype, stream.pool());
  if (head.method == DraftMethod::mtp && checkpoint)
    head.layer.layers.front().moe =
        reader.has("model.layers." + std::to_string(model.config().num_layers) + ".mlp.gate.weight");
  DraftHead out;
  if (checkpoint && head.method == DraftMethod::eagle3) {
    FOVEA_TRY(tokens, read_tokens(head, *checkpoint));
    out.tokens = std::move(tokens);
  }
  HeadWeights weights(head, model, reader);
  weights.read();
  FOVEA_RETURN_IF_ERROR(reader.status());
  if (checkpoint && head.method != DraftMethod::mtp) report_unused(reader, *checkpoint);
  reader.set_mode(options.deferred ? WeightReader::Mode::describe : WeightReader::Mode::load);
  try {
    out.model = weights.read();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "no memory for the draft head " + head.dir + " of " +
                                               std::to_string(reader.planned_bytes() >> 20) +
                                               " MiB; use a smaller one"};
  }
  FOVEA_RETURN_IF_ERROR(reader.status());
  return out;
}

}  // namespace fovea
