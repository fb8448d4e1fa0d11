#pragma once
// A mask and a score with the buffers that they read.
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "flex/tree.h"
#include "fovea/result.h"

namespace fovea::flex {

struct Program {
  std::vector<BufferType> buffers;
  std::optional<Tree> mask;   ///< none: every key is seen
  std::optional<Tree> score;  ///< none: the score is left as it is

  /// A fingerprint of both trees and of the buffers' types; equal programs are equal in all but their texts.
  uint64_t hash() const;
};

/// Parses both expressions; an empty text is none. A mask that is always true and a score that is `s` become
/// none.
Result<Program> make_program(std::string_view mask, std::string_view score, std::vector<BufferType> buffers);

}  // namespace fovea::flex
