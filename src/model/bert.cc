// BERT, RoBERTa with XLM-RoBERTa and CamemBERT, and DistilBERT (transformers' BertModel, RobertaModel,
// DistilBertModel, and models that hold one as "bert.", "roberta." or "distilbert."): post-norm encoders with
// learned positions. Their heads (masked language model, pooler, classifier) are not used; the output is
// hidden states.
#include "model/encoder_model.h"
#include "model/family.h"

namespace fovea {
namespace {

constexpr BlockNames kBertNames = {.q = "attention.self.query",
                                   .k = "attention.self.key",
                                   .v = "attention.self.value",
                                   .out = "attention.output.dense",
                                   .attention_norm = "attention.output.LayerNorm",
                                   .in = "intermediate.dense",
                                   .mlp_out = "output.dense",
                                   .mlp_norm = "output.LayerNorm"};

constexpr BlockNames kDistilBertNames = {.q = "attention.q_lin",
                                         .k = "attention.k_lin",
                                         .v = "attention.v_lin",
                                         .out = "attention.out_lin",
                                         .attention_norm = "sa_layer_norm",
                                         .in = "ffn.lin1",
                                         .mlp_out = "ffn.lin2",
                                         .mlp_norm = "output_layer_norm"};

/// ModelConfig::family.
struct BertSettings {
  int token_types = 0;                       ///< rows of the segment embedding; 0 = none
  std::optional<int32_t> pad_token_id = {};  ///< RoBERTa: padding tokens all share one position row
};

/// Properties without a config key.
void set_blocks(ModelConfig& c) {
  c.norm = NormKind::layer;
  c.norm_placement = NormPlacement::residual;
  c.qkv_bias = c.o_bias = c.mlp_bias = true;
}

void read_attention(Fields& fields, ModelConfig& c) {
  read_sizes(fields, c);
  c.layers.assign(c.layers.size(), {.rope = -1});
  if (fields.string("position_embedding_type", "absolute") != "absolute")
    fields.refuse("position_embedding_type", "supported is absolute", ErrorCode::unsupported);
  if (fields.boolean("is_decoder", false))
    fields.refuse("is_decoder", "only encoders are supported by this architecture", ErrorCode::unsupported);
  if (c.num_kv_heads != c.num_heads)
    fields.refuse("num_key_value_heads", "in this architecture it must equal num_attention_heads");
  if (int64_t{c.num_heads} * c.head_dim != c.hidden_size)
    fields.refuse("head_dim", "num_attention_heads x head_dim must be hidden_size");
}

void configure(Fields& fields, ModelConfig& c) {
  set_blocks(c);
  c.norm_eps = static_cast<float>(fields.number("layer_norm_eps", 0, 1, 1e-12));
  c.activation = read_activation(fields, "hidden_act", Activation::gelu);
  c.family = BertSettings{.token_types = fields.small("type_vocab_size", 0, 1 << 16, 2)};
}

void read_attention_distilbert(Fields& fields, ModelConfig& c) {
  c.vocab_size = fields.small("vocab_size", 1, 10'000'000);
  c.hidden_size = fields.small("dim", 1, 1 << 20);
  c.intermediate_size = fields.small("hidden_dim", 1, 1 << 22);
  c.num_layers = fields.small("n_layers", 1, 10'000);
  c.num_heads = c.num_kv_heads = fields.small("n_heads", 1, 1 << 16);
  c.head_dim = c.hidden_size / c.num_heads;
  if (c.hidden_size % c.num_heads != 0)
    fields.refuse("n_heads", "it must divide dim = " + std::to_string(c.hidden_size));
  c.max_position = fields.integer("max_position_embeddings", 1, 1 << 30);
  c.layers.assign(static_cast<size_t>(c.num_layers), {.rope = -1});
}

void configure_distilbert(Fields& fields, ModelConfig& c) {
  set_blocks(c);
  c.norm_eps = 1e-12f;
  c.activation = read_activation(fields, "activation", Activation::gelu);
}

/// Positions start after the padding row; max_position_embeddings counts the rows before them too.
void configure_roberta(Fields& fields, ModelConfig& c) {
  configure(fields, c);
  auto own = family_settings<BertSettings>(c);
  own.pad_token_id = fields.small("pad_token_id", 0, 1 << 20, 1);
  c.family = own;
  c.position_offset = *own.pad_token_id + 1;
  c.max_position -= c.position_offset;
  if (c.max_position < 1)
    fields.refuse("max_position_embeddings",
                  "it must be above pad_token_id + 1 = " + std::to_string(c.position_offset));
}

std::unique_ptr<Model> read_as(std::string_view name, const std::string& layers, const BlockNames& names,
                               const ModelConfig& c, WeightReader& reader) {
  const std::string prefix = find_prefix(reader, "embeddings.word_embeddings.weight", {"", name});
  for (const char* unused : {"pooler.", "embeddings.position_ids", "embeddings.token_type_ids"})
    reader.ignore(prefix + unused);
  for (const char* head : {"cls.", "lm_head.", "classifier.", "pre_classifier.", "vocab_"})
    reader.ignore(head);
  const std::string embeddings = prefix + "embeddings.";
  const auto own = family_settings<BertSettings>(c);
  EncoderModelWeights w;
  w.words = reader.matrix(embeddings + "word_embeddings.weight", c.vocab_size, c.hidden_size);
  w.positions = reader.matrix(embeddings + "position_embeddings.weight", c.position_offset + c.max_position,
                              c.hidden_size);
  if (own.token_types > 0)
    w.types = reader.matrix(embeddings + "token_type_embeddings.weight", own.token_types, c.hidden_size);
  w.embedding_norm = read_biased_norm(embeddings + "LayerNorm", c.hidden_size, reader);
  for (int i = 0; i < c.num_layers && reader.status(); ++i) {
    const std::string layer = prefix + layers + std::to_string(i) + ".";
    w.layers.push_back({read_self_attention(layer, names, c.hidden_size, /*key_bias=*/true, reader),
                        read_feed_forward(layer, names, c.hidden_size, c.intermediate_size, reader)});
  }
  return make_encoder_model(c, std::move(w), own.pad_token_id);
}

std::unique_ptr<Model> read_bert(const ModelConfig& c, WeightReader& reader) {
  return read_as("bert.", "encoder.layer.", kBertNames, c, reader);
}
std::unique_ptr<Model> read_roberta(const ModelConfig& c, WeightReader& reader) {
  return read_as("roberta.", "encoder.layer.", kBertNames, c, reader);
}
std::unique_ptr<Model> read_distilbert(const ModelConfig& c, WeightReader& reader) {
  return read_as("distilbert.", "transformer.layer.", kDistilBertNames, c, reader);
}

}  // namespace

const Family kBertFamily = {
    .architectures = {"BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"},
    .model_type = "bert",
    .kind = ModelKind::encoder,
    .read_attention = read_attention,
    .configure = configure,
    .read = read_bert,
};

const Family kDistilBertFamily = {
    .architectures = {"DistilBertModel", "DistilBertForMaskedLM", "DistilBertForSequenceClassification"},
    .model_type = "distilbert",
    .kind = ModelKind::encoder,
    .read_attention = read_attention_distilbert,
    .configure = configure_distilbert,
    .read = read_distilbert,
};

const Family kRobertaFamily = {
    .architectures = {"RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"},
    .model_type = "roberta",
    .kind = ModelKind::encoder,
    .read_attention = read_attention,
    .configure = configure_roberta,
    .read = read_roberta,
};

const Family kXlmRobertaFamily = {
    .architectures = {"XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"},
    .model_type = "xlm-roberta",
    .kind = ModelKind::encoder,
    .read_attention = read_attention,
    .configure = configure_roberta,
    .read = read_roberta,
};

const Family kCamembertFamily = {
    .architectures = {"CamembertModel", "CamembertForMaskedLM", "CamembertForSequenceClassification"},
    .model_type = "camembert",
    .kind = ModelKind::encoder,
    .read_attention = read_attention,
    .configure = configure_roberta,
    .read = read_roberta,
};

}  // namespace fovea
