// BART (transformers' BartForConditionalGeneration, and BartModel with the embedding as its head): post-norm
// encoder and decoder that share one embedding; learned positions start at row 2.
#include <cmath>

#include "model/encoder_decoder.h"
#include "model/family.h"

namespace fovea {
namespace {

constexpr int kPositionOffset = 2;  // fairseq's table includes the padding positions

void configure(Fields& fields, ModelConfig& c) {
  read_encoder_decoder_blocks(fields, c);
  c.norm_placement = NormPlacement::residual;
  c.position_offset = kPositionOffset;
  c.max_position = fields.integer("max_position_embeddings", 1, 1 << 30, 1024);
  c.encoder->max_position = static_cast<int>(c.max_position);
  if (fields.boolean("scale_embedding", false))
    c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_size));
  for (const char* key : {"normalize_before", "add_final_layer_norm"})
    if (fields.boolean(key, false))
      fields.refuse(key, "only false is supported by this architecture (mBART has it)",
                    ErrorCode::unsupported);
}

std::unique_ptr<Model> read(const ModelConfig& c, WeightReader& reader) {
  const std::string prefix = find_prefix(reader, "decoder.layernorm_embedding.weight", {"model.", ""});
  const std::string encoder = prefix + "encoder.", decoder = prefix + "decoder.";
  const int64_t hidden = c.hidden_size;
  EncoderDecoderWeights w;
  // All are the same matrix, stored under one or more of these names.
  const std::string shared = reader.first_of({prefix + "shared.weight", decoder + "embed_tokens.weight",
                                              encoder + "embed_tokens.weight", "lm_head.weight"});
  for (const std::string& same : {encoder + "embed_tokens.", decoder + "embed_tokens."})
    reader.ignore(same);
  w.embedding = reader.matrix(shared, c.vocab_size, hidden);
  w.encoder_positions =
      reader.matrix(encoder + "embed_positions.weight", kPositionOffset + c.encoder->max_position, hidden);
  w.decoder_positions =
      reader.matrix(decoder + "embed_positions.weight", kPositionOffset + c.max_position, hidden);
  w.encoder_embedding_norm = read_biased_norm(encoder + "layernorm_embedding", hidden, reader);
  w.decoder_embedding_norm = read_biased_norm(decoder + "layernorm_embedding", hidden, reader);
  read_encoder_decoder_layers(prefix, c, /*key_bias=*/true, reader, w);
  if (!c.tie_word_embeddings) w.lm_head = reader.matrix("lm_head.weight", c.vocab_size, hidden);
  if (reader.has("final_logits_bias"))
    w.logit_bias = reader.vector("final_logits_bias", c.vocab_size, 0.0f, /*row=*/true);
  return make_encoder_decoder(c, std::move(w));
}

}  // namespace

const Family kBartFamily = {
    .architectures = {"BartForConditionalGeneration", "BartModel"},
    .model_type = "bart",
    .kind = ModelKind::encoder_decoder,
    .read_attention = read_encoder_decoder_sizes,
    .configure = configure,
    .read = read,
};

}  // namespace fovea
