#pragma once
// The default decoder prompt of an encoder-decoder model.
#include <cstdint>
#include <vector>

#include "fovea/result_fwd.h"
#include "model/config.h"

namespace fovea {

/// decoder_start_token_id and the tokens forced right after it: the decoder's input when the request has
/// none. Errors name what the model's files leave undefined.
Result<std::vector<int32_t>> default_decoder_prompt(const ModelConfig& config);

}  // namespace fovea
