#pragma once
// Bodies of /v1/load_lora_adapter and /v1/unload_lora_adapter, vLLM's.
#include <string>
#include <string_view>

#include "server/openai/request.h"

namespace fovea::openai {

struct LoraRequest : RequestBase {
  std::string name;  ///< "lora_name"
  std::string path;  ///< "lora_path", to load
};

ApiResult<LoraRequest> parse_load_lora(std::string_view body, UnknownFields unknown = UnknownFields::refused);
ApiResult<LoraRequest> parse_unload_lora(std::string_view body,
                                         UnknownFields unknown = UnknownFields::refused);

}  // namespace fovea::openai
