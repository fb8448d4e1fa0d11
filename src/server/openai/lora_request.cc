#include "server/openai/lora_request.h"

#include <cstdint>
#include <utility>

namespace fovea::openai {
namespace {

ApiResult<LoraRequest> parse_lora(std::string_view body, UnknownFields unknown, bool loads) {
  auto json = parse_body(body);
  if (!json) return std::move(json).error();
  Fields fields(*json);
  LoraRequest out;
  if (!fields.read("lora_name", out.name))
    fields.fail("lora_name", "lora_name is missing; give the adapter's name");
  if (loads) {
    if (!fields.read("lora_path", out.path))
      fields.fail("lora_path", "lora_path is missing; give a folder of the server, or a hub id in its cache");
    if (bool replaces = false; fields.read("load_inplace", replaces) && replaces)
      fields.fail("load_inplace", "load_inplace is true; unload the adapter first, and leave this field out");
  }
  int number = 0;  // vLLM's own number of the adapter
  fields.read("lora_int_id", number, INT32_MIN);
  fields.close();
  if (auto error = fields.outcome(unknown)) return *std::move(error);
  out.ignored = fields.unknown();
  return out;
}

}  // namespace

ApiResult<LoraRequest> parse_load_lora(std::string_view body, UnknownFields unknown) {
  return parse_lora(body, unknown, true);
}

ApiResult<LoraRequest> parse_unload_lora(std::string_view body, UnknownFields unknown) {
  return parse_lora(body, unknown, false);
}

}  // namespace fovea::openai
