#pragma once
// The way back: the bytes that a token's spelling stands for.
#include <string>
#include <string_view>

#include "fovea/result.h"
#include "text/json_value.h"

namespace fovea::text {

/// Accepts tokenizer.json's "decoder": ByteLevel, or a Sequence of exactly that.
Status check_decoder(const Json* spec);

/// Bytes of a byte-level token; a spelling with characters outside the alphabet stands for itself.
std::string decode_byte_level(std::string_view token);

}  // namespace fovea::text
