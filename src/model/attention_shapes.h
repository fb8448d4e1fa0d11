#pragma once
// What the attentions of a model need, from config.json alone: also of architectures that the engine can't
// run, so that a backend can be chosen, or refused with reasons, for any model and any device.
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention.h"
#include "fovea/result.h"

namespace fovea {

struct AttentionShapes {
  std::string file;          ///< the config.json that was read
  std::string model_type;    ///< of the whole model ("gemma3"), not of its text part ("gemma3_text")
  std::string architecture;  ///< "LlamaForCausalLM"; empty where the file names none
  DType dtype = DType::f32;  ///< of the weights
  /// The distinct attentions in the order of the layers, those of vision and audio towers left out; dtype is
  /// the model's (the CPU engine's activations are fp32), kv_dtype auto, page_size 0. Empty for a model whose
  /// layers all are other_layers.
  std::vector<AttentionSpec> specs;
  std::vector<int> layers;         ///< [specs.size()] how many layers have each
  int other_layers = 0;            ///< state space, convolution: no backend is chosen
  std::vector<std::string> notes;  ///< what was left out or assumed, a line each
  bool runnable = false;           ///< the engine runs this architecture with these settings
  std::string why_not;             ///< why it isn't; empty when it is
};

/// `path`: a model's folder, its config.json (under any name), or a hub id in the local cache. No weights are
/// read. Errors name the file, the key, the value and what is allowed.
Result<AttentionShapes> read_attention_shapes(const std::string& path);

/// The same from the file's text; `file` is for messages.
Result<AttentionShapes> parse_attention_shapes(std::string_view config, const std::string& file);

}  // namespace fovea
