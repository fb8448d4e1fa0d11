#include "engine/classification_head.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/float16.h"
#include "base/log.h"
#include "base/printable.h"
#include "files/checkpoint.h"
#include "files/json_fields.h"
#include "files/text_file.h"

namespace fovea {
namespace {

constexpr size_t kMaxHeadBytes = 16u << 20;

/// The head's layers by architecture.
struct HeadNames {
  const char* dense;
  const char* out;
  bool relu;
};

HeadNames names_of(std::string_view model_type) {
  if (model_type == "bert") return {"bert.pooler.dense", "classifier", false};
  if (model_type == "distilbert") return {"pre_classifier", "classifier", true};
  return {"classifier.dense", "classifier.out_proj", false};
}

/// A tensor of f32, f16 or bf16 as fp32.
Result<std::vector<float>> read(const CheckpointTensor& tensor, std::vector<uint64_t> shape) {
  const SafetensorsEntry& entry = *tensor.entry;
  if (entry.shape != shape)
    return invalid(tensor.where() + " has shape " + shape_string(entry.shape) +
                   ", but the classification head requires " + shape_string(shape));
  const auto dtype = entry.type.dtype();
  if (!dtype)
    return unsupported(tensor.where() + " has type " + std::string(entry.type.name) +
                       "; F32, F16 and BF16 are supported");
  std::vector<std::byte> bytes(tensor.bytes());
  FOVEA_RETURN_IF_ERROR(tensor.read(0, bytes));
  const size_t size = *dtype == DType::f32 ? 4 : 2;
  std::vector<float> out(bytes.size() / size);
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t half = 0;
    if (size == 4) {
      std::memcpy(&out[i], &bytes[i * size], size);
      continue;
    }
    std::memcpy(&half, &bytes[i * size], size);
    out[i] = *dtype == DType::f16 ? fp16_to_float(half) : bf16_to_float(half);
  }
  return out;
}

struct HeadConfig {
  bool has_head = false;
  std::optional<bool> sigmoid;  ///< sentence-transformers' activation, where it is given
  int token_types = 0;
};

Result<HeadConfig> read_config(const std::string& dir, std::string_view model_type) {
  const std::string file = dir + "/config.json";
  FOVEA_TRY(text, read_text_file(file, kMaxHeadBytes));
  FOVEA_TRY(root, parse_json_object(text, file));
  Status status;
  Fields fields(root, file, status);
  HeadConfig out;
  if (const nlohmann::json* names = fields.find("architectures"); names && names->is_array())
    for (const nlohmann::json& name : *names)
      if (name.is_string() && name.get<std::string>().ends_with("ForSequenceClassification"))
        out.has_head = true;
  if (!out.has_head) return out;
  if (model_type != "distilbert") out.token_types = fields.small("type_vocab_size", 0, 1 << 16, 2);
  const char* key = "sbert_ce_default_activation_function";
  std::string activation = fields.string(key, "");
  if (const nlohmann::json* nested = fields.find("sentence_transformers"); nested && nested->is_object()) {
    const auto name = nested->find("activation_fn");
    if (name != nested->end() && name->is_string()) {
      activation = name->get<std::string>();
      key = "sentence_transformers";
    }
  }
  const std::string kind = activation.substr(activation.rfind('.') + 1);
  if (kind == "Identity" || kind == "Sigmoid")
    out.sigmoid = kind == "Sigmoid";
  else if (!activation.empty())
    fields.refuse(key,
                  "the activation " + printable(activation) + " is not supported; Sigmoid and Identity are",
                  ErrorCode::unsupported);
  FOVEA_RETURN_IF_ERROR(std::move(status));
  return out;
}

}  // namespace

std::vector<float> ClassificationHead::logits(std::span<const float> hidden) const {
  const size_t size = hidden.size();
  const auto layer = [size](std::span<const float> weights, std::span<const float> bias, const auto& input) {
    std::vector<double> sums(bias.size());
    for (size_t row = 0; row < sums.size(); ++row) {
      for (size_t i = 0; i < size; ++i)
        sums[row] += static_cast<double>(weights[row * size + i]) * static_cast<double>(input[i]);
      sums[row] += static_cast<double>(bias[row]);
    }
    return sums;
  };
  std::vector<double> inner = layer(dense, dense_bias, hidden);
  for (double& x : inner)
    x = relu ? std::max(x, 0.0) : std::tanh(x);
  const std::vector<double> sums = layer(out, out_bias, inner);
  return {sums.begin(), sums.end()};
}

float ClassificationHead::score(std::span<const float> hidden) const {
  const double x = static_cast<double>(logits(hidden).front());
  return static_cast<float>(sigmoid ? 1 / (1 + std::exp(-x)) : x);
}

Result<std::optional<ClassificationHead>> load_classification_head(const std::string& dir,
                                                                   const ModelConfig& config) {
  FOVEA_TRY(settings, read_config(dir, config.model_type));
  if (!settings.has_head) return std::optional<ClassificationHead>();
  const HeadNames names = names_of(config.model_type);
  FOVEA_TRY(checkpoint, Checkpoint::open(dir));
  ClassificationHead head;
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const auto find = [&](const char* layer, const char* kind) {
    return checkpoint.find(std::string(layer) + "." + kind);
  };
  const CheckpointTensor* out = find(names.out, "weight");
  for (const auto* tensor :
       {out, find(names.out, "bias"), find(names.dense, "weight"), find(names.dense, "bias")})
    if (tensor == nullptr) {
      FOVEA_LOG(warning) << checkpoint.source() << ": the weights of the classification head (" << names.dense
                         << ", " << names.out << ") are missing; the model makes embeddings only";
      return std::optional<ClassificationHead>();
    }
  const uint64_t labels = out->entry->shape.empty() ? 0 : out->entry->shape.front();
  if (labels < 1 || labels > 1 << 20)
    return invalid(out->where() + " has shape " + shape_string(out->entry->shape) +
                   "; it must be [labels, hidden size]");
  head.labels = static_cast<int>(labels);
  head.relu = names.relu;
  FOVEA_TRY(dense, read(*find(names.dense, "weight"), {hidden, hidden}));
  FOVEA_TRY(dense_bias, read(*find(names.dense, "bias"), {hidden}));
  FOVEA_TRY(weights, read(*out, {labels, hidden}));
  FOVEA_TRY(bias, read(*find(names.out, "bias"), {labels}));
  head.dense = std::move(dense);
  head.dense_bias = std::move(dense_bias);
  head.out = std::move(weights);
  head.out_bias = std::move(bias);
  head.token_types = settings.token_types;
  head.sigmoid = settings.sigmoid.value_or(labels == 1);
  return std::optional(std::move(head));
}

}  // namespace fovea
