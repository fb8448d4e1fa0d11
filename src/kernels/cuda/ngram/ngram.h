#pragma once
// N-gram drafts on the device: each sequence's tokens lie in a slot there, so that the next step's rows can
// be filled in although the host does not know yet how many drafts the step before accepts.
//
// A step of the engine is place(), forward pass, sampler, follow():
// - place() gives the rows of a sequence their tokens, positions and places in the KV cache. The host has
//   filled in those that follow if all drafts in flight are accepted.
// - follow() counts the drafts that the sampler's tokens accept, appends what the step gave to the slot, and
//   looks up the next drafts by vLLM's rule: what followed the earliest occurrence of the longest suffix of
//   min to max tokens that occurred before.
// All parameters are in device memory but sizes and addresses, and grids depend on the number of rows alone:
// both can be captured.
#include <cstdint>

#include "fovea/result_fwd.h"
#include "kernels/cuda/sample/sample.h"

namespace fovea::cuda {

inline constexpr int kMostNgramDrafts = 15;

/// A slot's state (POD, 64 bytes). Its tokens are i32 [capacity].
struct NgramState {
  int32_t length;                    ///< tokens
  int32_t drafts[kMostNgramDrafts];  ///< after them; -1 = none, and none after it
};
static_assert(sizeof(NgramState) == 64);

/// A row of a step (POD): that of the slot's last token or, after it, of one of its drafts.
struct PlacedRow {
  int32_t slot = -1;       ///< -1 = the row is as the host has it
  int32_t ahead = 0;       ///< 0: of the last token; i: of draft i - 1
  int32_t sequence = 0;    ///< of the batch
  int32_t logit_row = -1;  ///< of the row; -1 = it has no logits
};

/// A row with logits (POD).
struct FollowedRow {
  int32_t slot = -1;   ///< the first sampling row of a chunk, else -1
  int32_t drafts = 0;  ///< rows of drafts after it
};

struct NgramSlots {
  int32_t* tokens = nullptr;  ///< [slots, capacity]
  NgramState* states = nullptr;
  int64_t capacity = 0;
};

struct PlaceArgs {
  NgramSlots slots;
  const PlacedRow* rows = nullptr;  ///< [num_rows]
  int32_t num_rows = 0, page_size = 0;
  int32_t *token_ids = nullptr, *positions = nullptr;         ///< [num_rows]
  int64_t* kv_slots = nullptr;                                ///< [num_rows]
  int32_t* kv_lens = nullptr;                                 ///< [sequences]
  const int32_t *kv_indptr = nullptr, *kv_indices = nullptr;  ///< pages of each
  const int32_t* q_offsets = nullptr;                         ///< [sequences + 1]
  SampleRow* sample_rows = nullptr;                           ///< SampleRow::position
};

struct FollowArgs {
  NgramSlots slots;
  const FollowedRow* rows = nullptr;  ///< [num_rows]
  int32_t num_rows = 0;
  int32_t min = 0, max = 0, most = 0;      ///< tokens that are looked up; drafts
  const SampleRow* sample_rows = nullptr;  ///< [num_rows], with `dice`
  SampleResult* results = nullptr;         ///< [num_rows]; SampleResult::draft is set
  /// For load tests: draft i is accepted with probability dice[i] if those before it are, whatever was
  /// sampled (LogitRows::roll_dice()); where nothing matches the drafts are made up, below `vocab`.
  bool rolls = false;
  double dice[kMostNgramDrafts] = {};
  int32_t vocab = 0;
};

/// Errors: sizes out of range.
Status launch_place(const PlaceArgs& args, CudaStream& stream);
Status launch_follow(const FollowArgs& args, CudaStream& stream);

}  // namespace fovea::cuda
