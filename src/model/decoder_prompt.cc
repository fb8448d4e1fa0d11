#include "model/decoder_prompt.h"

#include <string>
#include <utility>

#include "fovea/result.h"

namespace fovea {

Result<std::vector<int32_t>> default_decoder_prompt(const ModelConfig& config) {
  if (!config.decoder_start_token_id)
    return invalid(
        "the model's files have no decoder_start_token_id; give the beginning of the answer "
        "(--decoder-prompt)");
  std::vector<int32_t> ids = {*config.decoder_start_token_id};
  if (config.forcing.first) ids.push_back(*config.forcing.first);
  for (const auto& [place, id] : config.forcing.prompt) {
    if (std::cmp_not_equal(place, ids.size()))
      return invalid("forced_decoder_ids leaves place " + std::to_string(ids.size()) +
                     " of the answer open (Whisper: the language); give its beginning "
                     "(--decoder-prompt \"<|startoftranscript|><|en|><|transcribe|><|notimestamps|>\")");
    ids.push_back(id);
  }
  return ids;
}

}  // namespace fovea
