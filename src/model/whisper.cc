// Whisper (transformers' WhisperForConditionalGeneration and WhisperModel): log-mel frames through two
// convolutions, then pre-norm encoder and decoder with learned (the encoder's: sinusoidal) positions from the
// checkpoint. The key projection has no bias.
#include "model/encoder_decoder.h"
#include "model/family.h"

namespace fovea {
namespace {

void configure(Fields& fields, ModelConfig& c) {
  read_encoder_decoder_blocks(fields, c);
  c.norm_placement = NormPlacement::pre;
  c.max_position = fields.integer("max_target_positions", 1, 1 << 30, 448);
  c.encoder->max_position = fields.small("max_source_positions", 1, 1 << 24, 1500);
  c.encoder->mel_bins = fields.small("num_mel_bins", 1, 1024, 80);
  if (fields.boolean("scale_embedding", false))
    fields.refuse("scale_embedding", "only false is supported by this architecture", ErrorCode::unsupported);
}

std::unique_ptr<Model> read(const ModelConfig& c, WeightReader& reader) {
  const std::string prefix = find_prefix(reader, "encoder.conv1.weight", {"model.", ""});
  const std::string encoder = prefix + "encoder.", decoder = prefix + "decoder.";
  const int64_t hidden = c.hidden_size;
  EncoderDecoderWeights w;
  w.audio.emplace();
  w.audio->first =
      reader.convolution(encoder + "conv1", hidden, c.encoder->mel_bins, AudioConvolutions::kWidth);
  w.audio->second = reader.convolution(encoder + "conv2", hidden, hidden, AudioConvolutions::kWidth);
  w.encoder_positions = reader.matrix(encoder + "embed_positions.weight", c.encoder->max_position, hidden);
  w.embedding = reader.matrix(decoder + "embed_tokens.weight", c.vocab_size, hidden);
  w.decoder_positions = reader.matrix(decoder + "embed_positions.weight", c.max_position, hidden);
  read_encoder_decoder_layers(prefix, c, /*key_bias=*/false, reader, w);
  w.encoder_final_norm = read_biased_norm(encoder + "layer_norm", hidden, reader);
  w.decoder_final_norm = read_biased_norm(decoder + "layer_norm", hidden, reader);
  if (c.tie_word_embeddings)
    reader.ignore("proj_out.");
  else
    w.lm_head = reader.matrix("proj_out.weight", c.vocab_size, hidden);
  return make_encoder_decoder(c, std::move(w));
}

}  // namespace

const Family kWhisperFamily = {
    .architectures = {"WhisperForConditionalGeneration", "WhisperModel"},
    .model_type = "whisper",
    .kind = ModelKind::encoder_decoder,
    .read_attention = read_encoder_decoder_sizes,
    .configure = configure,
    .read = read,
};

}  // namespace fovea
