#pragma once
// Text to typed trees. docs/flex-attention.md has the language.
#include <string_view>
#include <vector>

#include "flex/tree.h"
#include "fovea/result.h"

namespace fovea::flex {

inline constexpr size_t kMaxText = 8192;  ///< bytes of an expression
inline constexpr int kMaxDepth = 64;      ///< parentheses, brackets and prefix operators within one another
inline constexpr size_t kMaxNodes = 512;  ///< of a tree

/// What an expression is for: a mask is a bool (true = the key is seen) and can't read `s`; a score is a
/// number, the new score.
enum class Role : uint8_t { mask, score };

/// Parses `text`, folds constants, and checks types. Every error has the column and what was expected.
/// `buffers` are the names that may be read; check_buffers() must have accepted them.
Result<Tree> parse(Role role, std::string_view text, const std::vector<BufferType>& buffers);

/// Refuses names that are not names, that mean something else in the language, or that occur twice, and
/// dimensions other than 1 and 2.
Status check_buffers(const std::vector<BufferType>& buffers);

}  // namespace fovea::flex
