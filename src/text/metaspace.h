#pragma once
// Metaspace: a blank becomes a visible character (SentencePiece's U+2581) in front of the next word.
#include <string>

#include "fovea/result_fwd.h"
#include "text/json_value.h"

namespace fovea::text {

struct Metaspace {
  enum class Prepend { always, first, never };
  std::string replacement = "\u2581";  ///< one character
  Prepend prepend = Prepend::always;   ///< which pieces get one in front: all, the text's first, none
  bool split = true;                   ///< pre-tokenizer only: cut in front of every replacement
};

/// The settings that a pre-tokenizer or decoder of this type has; the old add_prefix_space is read as well.
Result<Metaspace> parse_metaspace_settings(const Json& spec);

}  // namespace fovea::text
