#include "model/moe_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "model/mxfp4.h"

namespace fovea {

void read_expert_counts(Fields& fields, ModelConfig& c, int default_top) {
  // Twice that of the largest published model.
  constexpr int kMostExperts = 1024;
  const char* key = fields.find("num_experts") ? "num_experts" : "num_local_experts";
  c.moe.num_experts = fields.small(key, 1, kMostExperts);
  c.moe.experts_per_token = fields.small("num_experts_per_tok", 1, kMostExperts, default_top);
  if (c.moe.experts_per_token > c.moe.num_experts)
    fields.refuse("num_experts_per_tok",
                  "it may be at most " + std::string(key) + " = " + std::to_string(c.moe.num_experts));
}

void read_mxfp4(Fields& fields, ModelConfig& c) {
  const nlohmann::json* object = fields.find("quantization_config");
  if (!object || !object->is_object()) return;
  Fields quantization = fields.nested("quantization_config");
  if (quantization.string("quant_method", "") != "mxfp4") return;
  c.moe.mxfp4 = true;
  // The tensor names show which modules are unquantised; only the type of the list is checked.
  if (const nlohmann::json* kept = quantization.find("modules_to_not_convert"))
    if (!kept->is_array() || !std::ranges::all_of(*kept, [](const auto& name) { return name.is_string(); }))
      quantization.refuse("modules_to_not_convert", "a list of names is needed");
  for (const char* key : {"hidden_size", "intermediate_size"})
    if (fields.integer(key, 1, 1 << 22) % kMxfp4BlockValues != 0)
      fields.refuse(key, "MXFP4 blocks hold 32 values of a row: a multiple of 32 is needed");
}

}  // namespace fovea
