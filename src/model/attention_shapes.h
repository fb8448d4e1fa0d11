#pragma once
// The attention specs of a model, from config.json alone. Covers architectures that the engine cannot run, so
// that a backend can be selected, or rejected with reasons, for any model and device.
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_spec.h"
#include "fovea/result_fwd.h"

namespace fovea {

struct AttentionShapes {
  std::string file;          ///< the config.json that was read
  std::string model_type;    ///< of the whole model ("gemma3"), not the text part ("gemma3_text")
  std::string architecture;  ///< "LlamaForCausalLM"; empty if the file has none
  DType dtype = DType::f32;  ///< of the weights
  /// The distinct specs in layer order, without vision and audio towers. dtype is the model's (the CPU
  /// engine's activations are fp32), kv_dtype auto, page_size 0. Empty when all layers are other_layers.
  std::vector<AttentionSpec> specs;
  std::vector<int> layers;         ///< [specs.size()] number of layers with each spec
  int other_layers = 0;            ///< state space, convolution: no attention backend
  std::vector<std::string> notes;  ///< what was omitted or assumed, one line each
  bool runnable = false;           ///< the engine supports this architecture with these settings
  std::string why_not;             ///< why not runnable; empty when it is
};

/// `path`: a model's folder, its config.json (under any name), or a hub id in the local cache. No weights are
/// read. Errors name the file, the key, the value and what is allowed.
Result<AttentionShapes> read_attention_shapes(const std::string& path);

/// The same from the file's text; `file` is for messages.
Result<AttentionShapes> parse_attention_shapes(std::string_view config, const std::string& file);

}  // namespace fovea
