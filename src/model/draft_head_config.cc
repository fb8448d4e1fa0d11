#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "files/model_folder.h"
#include "files/text_file.h"
#include "model/config_fields.h"
#include "model/draft_head.h"

namespace fovea {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxHeadConfigBytes = 16u << 20;

/// config.json of an EAGLE head.
class HeadReader {
 public:
  HeadReader(DraftMethod method, const std::string& dir, const ModelConfig& model) : model_(model) {
    head_.method = method;
    head_.dir = dir;
  }

  Result<DraftHeadConfig> read() {
    FOVEA_TRY(file, find_config(head_.dir));
    FOVEA_TRY(text, read_text_file(file, kMaxHeadConfigBytes));
    FOVEA_TRY(root, parse_json_object(text, file));
    root_ = std::move(root);
    file_ = file;
    FOVEA_RETURN_IF_ERROR(check_method());
    FOVEA_RETURN_IF_ERROR(read_layer());
    Status status;
    Fields fields(root_, file_, status);
    if (head_.method == DraftMethod::eagle3)
      read_eagle3(fields);
    else
      head_.hidden = {model_.num_layers + 1};
    FOVEA_RETURN_IF_ERROR(std::move(status));
    FOVEA_RETURN_IF_ERROR(check_width());
    return head_;
  }

 private:
  bool speculators() const { return root_.contains("speculators_model_type"); }

  /// Names in the file that tell EAGLE-3 from EAGLE-1.
  bool is_eagle3() const {
    if (speculators()) return root_["speculators_model_type"] == "eagle3";
    if (root_.contains("draft_vocab_size")) return true;
    const auto names = root_.find("architectures");
    return names != root_.end() && names->is_array() && std::ranges::any_of(*names, [](const Json& name) {
             return name.is_string() && name.get_ref<const std::string&>().find("agle3") != std::string::npos;
           });
  }

  Status check_method() const {
    const bool eagle3 = is_eagle3(), wanted = head_.method == DraftMethod::eagle3;
    if (speculators() && !eagle3)
      return unsupported(file_ + ": speculators_model_type is " + root_["speculators_model_type"].dump() +
                         "; of this format eagle3 is supported");
    if (eagle3 == wanted) return {};
    return invalid("the head " + head_.dir +
                   (eagle3 ? " is one of EAGLE-3; give the method eagle3"
                           : " is none of EAGLE-3; give the method eagle"));
  }

  /// The decoder layer: the file's own keys, or those of transformer_layer_config.
  Status read_layer() {
    Json layer = root_;
    if (speculators()) {
      const auto found = root_.find("transformer_layer_config");
      if (found == root_.end() || !found->is_object())
        return invalid(file_ + ": transformer_layer_config is missing; it describes the head's layer");
      layer = *found;
      for (const char* key : {"dtype", "torch_dtype"})
        if (root_.contains(key) && !layer.contains(key)) layer[key] = root_[key];
    }
    const Json type = layer.value("model_type", Json("llama"));
    const bool qwen3 = type == "qwen3";
    if (type != "llama" && !qwen3)
      return unsupported(file_ + ": model_type is " + type.dump() +
                         "; heads with a layer of llama and of qwen3 are supported");
    layer["architectures"] = Json::array({qwen3 ? "Qwen3ForCausalLM" : "LlamaForCausalLM"});
    FOVEA_TRY(config, parse_model_config(layer, file_));
    if (config.num_layers != 1)
      return unsupported(file_ + ": num_hidden_layers is " + std::to_string(config.num_layers) +
                         "; heads of one layer are supported");
    if (config.vocab_size != model_.vocab_size)
      return invalid("the head " + head_.dir + " is for " + std::to_string(config.vocab_size) +
                     " tokens (vocab_size), the model has " + std::to_string(model_.vocab_size) +
                     "; give a head that was trained for this model");
    head_.model_vocab = config.vocab_size;
    head_.layer = std::move(config);
    return {};
  }

  void read_eagle3(Fields& fields) {
    head_.layer.vocab_size = fields.small("draft_vocab_size", 1, head_.model_vocab, head_.model_vocab);
    head_.norm_before_residual = fields.boolean("norm_before_residual", false);
    const Json* nested = fields.find("eagle_config");
    const bool has_nested = nested != nullptr && nested->is_object();
    head_.norm_before_fc = fields.boolean(
        "norm_before_fc", has_nested && nested->value("norm_before_fc", Json(false)) == Json(true));
    head_.norms_of_parts = fields.boolean("fc_norm", false);
    head_.own_hidden = fields.boolean("norm_output", false) ? 2 : 1;
    if (has_nested && nested->value("use_aux_hidden_state", Json(true)) == Json(false)) {
      head_.has_fc = false;
      head_.hidden = {model_.num_layers + 1};
      return;
    }
    read_hidden(fields, has_nested ? nested : nullptr);
  }

  /// The layers whose inputs the head reads. Those that EAGLE-3 was published with, unless the file has
  /// others.
  void read_hidden(Fields& fields, const Json* nested) {
    constexpr char kKey[] = "eagle_aux_hidden_state_layer_ids";
    const int last = model_.num_layers;
    const Json* list = fields.find(kKey);
    if (list == nullptr && nested != nullptr && nested->contains(kKey)) list = &(*nested)[kKey];
    if (list == nullptr) {
      head_.hidden = {2, last / 2, last - 3};
      if (last < 6)
        fields.refuse(kKey,
                      "the model has " + std::to_string(last) +
                          " layers, too few for the usual 2, half and last but 3; list the layers whose "
                          "inputs the head reads");
      return;
    }
    const auto fits = [&](const Json& id) { return id.is_number_integer() && id >= 0 && id <= last; };
    if (!list->is_array() || list->empty() || !std::ranges::all_of(*list, fits))
      return fields.refuse(kKey,
                           "a list of layers, 0 to the model's " + std::to_string(last) + ", is needed");
    head_.hidden = list->get<std::vector<int>>();
    std::ranges::sort(head_.hidden);
    if (std::ranges::adjacent_find(head_.hidden) != head_.hidden.end())
      fields.refuse(kKey, "a layer is listed twice");
  }

  /// The model's states must be those that the head reads.
  Status check_width() {
    const ModelConfig& layer = head_.layer;
    const Json of_model = root_.value("target_hidden_size", Json(nullptr));
    const Json width = of_model.is_null() ? Json(layer.hidden_size) : of_model;
    if (width != model_.hidden_size)
      return invalid("the head " + head_.dir + " reads hidden states of width " + width.dump() +
                     (of_model.is_null() ? " (hidden_size)" : " (target_hidden_size)") +
                     ", the model's have " + std::to_string(model_.hidden_size) +
                     "; give a head that was trained for this model");
    if (!head_.has_fc && layer.hidden_size != model_.hidden_size)
      return invalid(file_ + ": hidden_size is " + std::to_string(layer.hidden_size) +
                     "; without eagle_config.use_aux_hidden_state it must be the model's " +
                     std::to_string(model_.hidden_size));
    head_.states_width = static_cast<int>(head_.hidden.size()) * model_.hidden_size;
    return {};
  }

  const ModelConfig& model_;
  DraftHeadConfig head_;
  Json root_;
  std::string file_;
};

Result<DraftHeadConfig> mtp_config(const std::string& dir, const ModelConfig& model) {
  if (model.extra_layers == 0)
    return invalid(
        dir + ": " + printable(model.architecture) +
        " has no layer that predicts further tokens (num_nextn_predict_layers); use another method");
  DraftHeadConfig head;
  head.method = DraftMethod::mtp;
  head.dir = dir;
  head.layer = model;
  head.layer.num_layers = 1;
  head.layer.layers = {model.layers.back()};
  head.layer.indexer.full = {true};
  head.model_vocab = model.vocab_size;
  head.hidden = {model.num_layers + 1};
  head.states_width = model.hidden_size;
  return head;
}

}  // namespace

Result<DraftHeadConfig> load_draft_head_config(DraftMethod method, const std::string& dir,
                                               const ModelConfig& model) {
  if (model.kind != ModelKind::decoder)
    return unsupported(printable(model.architecture) + " is no decoder; the method " +
                       std::string(to_string(method)) + " reads a decoder's hidden states");
  if (method == DraftMethod::mtp) return mtp_config(dir, model);
  return HeadReader(method, dir, model).read();
}

}  // namespace fovea
