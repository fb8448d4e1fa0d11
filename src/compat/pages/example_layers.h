#pragma once
// Layers and devices of the pages' examples: attention of real models.
#include <string>
#include <vector>

#include "fovea/attention_config.h"
#include "fovea/attention_spec.h"
#include "fovea/result_fwd.h"

namespace fovea::docs {

AttentionSpec llama_8b();        ///< Llama 3.1 8B: 32 query heads, 8 KV heads of 128
AttentionSpec gpt_oss_window();  ///< gpt-oss: learned sinks, window of 128
AttentionSpec deepseek_v3();     ///< MLA
AttentionSpec deepseek_v32();    ///< sparse MLA

/// The message of a selection that must fail, in lines of at most 110 columns; an error when it succeeds.
Result<std::string> refusal(const AttentionConfig& config, const AttentionSpec& spec,
                            std::string_view device);

/// The row that `name` stands for, "FLASH_ATTN (FA3)"; empty when the name is unknown.
std::string resolved(std::string_view name, const AttentionSpec& spec, const DeviceInfo& device);

}  // namespace fovea::docs
