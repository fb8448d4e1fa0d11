#pragma once
// Cumulative statistics of the engine (EngineStats), and its current state (EngineSnapshot).
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fovea/attention_config.h"
#include "fovea/capability.h"
#include "fovea/speculative.h"

namespace fovea {

/// The work of one backend in one phase of one kind of layers. A mixed step served by a single backend counts
/// as prefill.
struct AttentionUse {
  Phase phase = Phase::prefill;
  LayerKind kind = LayerKind::full;
  std::string backend;  ///< with its version: "FLASH_ATTN (FA3)"
  int64_t calls = 0;    ///< one per layer and step
  double seconds = 0;   ///< of the calls, measured on the engine's thread; 0 on a GPU, where they only queue
  /// Minimum memory traffic: each visible key and value once per sequence, queries and outputs.
  double bytes = 0;
  double flops = 0;  ///< 2 (D + Dv) for each query head and visible key
};

/// Inclusive upper bounds of the bins of EngineStats::step_tokens; one more bin holds larger values.
inline constexpr std::array<int, 13> kStepTokenBounds = {1,   8,    16,   32,   64,   128,  256,
                                                         512, 1024, 2048, 4096, 8192, 16384};

struct EngineStats {
  int64_t steps = 0, prefill_tokens = 0, decode_tokens = 0;
  double busy_seconds = 0;
  double plan_seconds = 0;  ///< part of busy_seconds spent planning attention
  int running = 0, waiting = 0;
  int64_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_in_use = 0;
  int64_t prefix_queries = 0, prefix_hits = 0;  ///< tokens looked up, tokens found
  int64_t preemptions = 0;                      ///< requests preempted because pages ran out
  int max_step_tokens = 0;                      ///< maximum rows of a step
  /// Inter-token latency of running requests: seconds from the end of one step to the end of the next, over
  /// steps that decode. Quantiles are upper bounds, at most 10 % above the true values.
  double token_gap_p50 = 0, token_gap_p99 = 0, token_gap_max = 0;
  /// Rows and seconds of steps with prefill rows; their ratio is the measured prefill rate.
  int64_t prefill_step_tokens = 0;
  double prefill_step_seconds = 0;
  /// Prompt tokens of requests whose prefill is complete, including cached ones, counted once per request;
  /// and generated tokens, including end tokens.
  int64_t prompt_tokens = 0, generated_tokens = 0;
  /// Histogram of steps by the tokens of these two kinds that each step completed (bins: kStepTokenBounds).
  /// Steps that complete none, such as the first chunks of a long prefill, are not counted.
  std::array<int64_t, kStepTokenBounds.size() + 1> step_tokens{};
  SpeculativeCounts speculative;
  std::vector<AttentionUse> attention;  ///< one for each backend, phase and kind of layers, used or not
};

/// The engine between two steps.
struct EngineSnapshot {
  enum class State : uint8_t { waiting, prefill, decode };
  struct Sequence {
    uint64_t id = 0;  ///< the request's
    int index = 0;    ///< which of its answers
    State state = State::waiting;
    int prompt_tokens = 0;
    int computed_tokens = 0;  ///< leading tokens with keys and values in the cache; 0 while waiting
    int generated_tokens = 0;
    int cached_tokens = 0;     ///< prompt tokens found in the prefix cache at first admission
    int64_t pages = 0;         ///< held now, including shared and cross-attention pages
    int64_t shared_pages = 0;  ///< those of them that belong to the prefix tree
    int preemptions = 0;
  };
  /// A path of the prefix tree from the root to a leaf.
  struct Prefix {
    int64_t tokens = 0, pages = 0;
    bool locked = false;  ///< a running sequence uses the leaf, so it can't be evicted
  };
  struct Step {
    double seconds = 0, attention_seconds = 0, plan_seconds = 0;
    int prefill_rows = 0, decode_rows = 0;  ///< draft tokens are rows too
  };

  std::chrono::steady_clock::time_point made;
  int64_t steps_total = 0;
  int page_size = 0;
  /// free + cached + in use = total, where cached = evictable.
  int64_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_in_use = 0;
  int64_t generated_tokens = 0;     ///< since the start, as EngineStats counts them
  SpeculativeCounts speculative;    ///< since the start
  int running = 0, waiting = 0;     ///< totals, also beyond kSnapshotSequences
  std::vector<Sequence> sequences;  ///< running in scheduling order, then waiting
  int64_t prefix_nodes = 0, prefix_pages = 0, prefix_locked_pages = 0;
  /// False = the tree has more nodes than kSnapshotNodes, and `prefix_nodes` and `prefixes` cover only those.
  bool prefixes_complete = true;
  std::vector<Prefix> prefixes;  ///< the longest ones, longest first
  std::vector<Step> steps;       ///< the newest, oldest first
};

inline constexpr size_t kSnapshotSequences = 64, kSnapshotNodes = 4096, kSnapshotPrefixes = 8;
inline constexpr size_t kSnapshotSteps = 120;
/// Snapshots are taken for this long after a call of Engine::snapshot() ...
inline constexpr std::chrono::milliseconds kSnapshotInterest{2000};
/// ... at intervals of at least this.
inline constexpr std::chrono::milliseconds kSnapshotPeriod{50};
inline constexpr std::chrono::milliseconds kSnapshotPatience{10};

}  // namespace fovea
