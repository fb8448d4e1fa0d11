#pragma once
// EngineSnapshot as JSON, for the live view of the playground. It has lengths and counts only, no tokens
// or text of prompts.
#include <chrono>
#include <string>

#include "fovea/engine_stats.h"

namespace fovea::server {

/// One object. All numbers are finite; counts are whole, seconds are fractions.
///
///   {
///     "age_seconds": 0.013,     since the snapshot was taken
///     "steps_total": 4211,      steps since the start
///     "generated_tokens": 5120,  since the start
///     "drafts": {"steps": 900, "draft_tokens": 4500, "accepted_tokens": 2700},
///                               of speculative decoding since the start: steps of a sequence that verified
///                               drafts, tokens that were verified, those of them that were accepted
///     "page_size": 16,          tokens a page
///     "pages": {"total": 2048, "free": 1800, "cached": 200, "in_use": 48},
///                               free + cached + in_use = total; cached: evictable pages of the prefix cache
///     "running": 3,             all, including those beyond the limit of "sequences"
///     "waiting": 70,
///     "sequences": [            at most 64: running in scheduling order, then waiting
///       {
///         "id": 17,             the request's; its n answers share it
///         "index": 0,           of the answer, below n
///         "state": "decode",    "waiting" | "prefill" | "decode"
///         "prompt_tokens": 31,
///         "computed_tokens": 40,  prompt and answer tokens in the KV cache; 0 while waiting
///         "generated_tokens": 10,
///         "cached_tokens": 16,    prompt tokens found in the prefix cache at the first admission
///         "pages": 3,             held now, including shared ones; 0 while waiting
///         "shared_pages": 1,      of these, pages of the prefix cache
///         "preemptions": 0        number of times it was preempted
///       }
///     ],
///     "prefixes": {
///       "nodes": 12,            of the radix tree, without the root
///       "pages": 208,           owned by the tree
///       "locked_pages": 8,      of these, in use by running sequences
///       "complete": true,       false: "nodes" and "longest" cover the first 4096 nodes only
///       "longest": [            at most 8 root-to-leaf paths, longest first; prefixes are shared
///         {"tokens": 1024, "pages": 64, "locked": false}
///       ]
///     },
///     "steps": [                the newest 120 at most, oldest first
///       {
///         "seconds": 0.0021,    the whole step, including sampling
///         "attention_seconds": 0.0004,  of this, attention kernels
///         "plan_seconds": 0.00001,      of this, planning attention
///         "prefill_rows": 0,    prompt tokens computed
///         "decode_rows": 3      of decoding sequences: one each, and their drafts
///       }
///     ]
///   }
std::string snapshot_json(const EngineSnapshot& snapshot,
                          std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

}  // namespace fovea::server
