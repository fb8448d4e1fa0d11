#pragma once
// A rule that restricts which tokens an answer may continue with, as a state that follows the answer's
// tokens: the interface between structured output and the engine.
#include <cstddef>
#include <cstdint>
#include <span>

namespace fovea {

/// One answer's state. The engine calls it from one thread at a time: its own, or a worker that evaluates the
/// rows of the answer. Between steps the state is that after the answer's tokens. Within a step that verifies
/// drafts it is advanced over drafts and rolled back before the step ends.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  /// Words of a mask for `vocab` tokens.
  static constexpr size_t mask_words(size_t vocab) { return (vocab + 31) / 32; }

  /// Sets bit id % 32 of mask[id / 32] for every token that may follow, end tokens included, and clears all
  /// other bits. `mask` has mask_words(vocab) words; bits from `vocab` on are ignored. False = every token
  /// may follow, and `mask` is not written. After a token that advance() refused, nobody uses the mask.
  virtual bool fill_mask(std::span<uint32_t> mask) = 0;

  /// `token` follows. False, with the state unchanged: it may not, or it ends the answer, so that nothing
  /// follows it.
  virtual bool advance(int32_t token) = 0;

  /// Takes back the last `tokens` calls of advance() that returned true. The engine takes back at most
  /// kMaxRollBack.
  virtual void roll_back(int tokens) = 0;

  static constexpr int kMaxRollBack = 64;
};

}  // namespace fovea
