#pragma once
// EngineSnapshot as JSON, for the live view of the playground. It has lengths and counts only: no token and
// no text of anybody's prompt.
#include <chrono>
#include <string>

#include "fovea/engine_stats.h"

namespace fovea::server {

/// One object. All numbers are finite; counts are whole, seconds are fractions.
///
///   {
///     "age_seconds": 0.013,     since this view was made
///     "steps_total": 4211,      steps since the start
///     "page_size": 16,          tokens a page
///     "pages": {"total": 2048, "free": 1800, "cached": 200, "in_use": 48},
///                               free + cached + in_use = total; cached = of the prefix cache and evictable
///     "running": 3,             all of them, also those that "sequences" has no room for
///     "waiting": 70,
///     "sequences": [            at most 64: running in the order of service, then waiting
///       {
///         "id": 17,             of the request; its n answers share it
///         "index": 0,           which answer
///         "state": "decode",    "waiting" | "prefill" | "decode"
///         "prompt_tokens": 31,
///         "computed_tokens": 40,  prompt and answer tokens in the KV cache; 0 while waiting
///         "generated_tokens": 10,
///         "cached_tokens": 16,    of the prompt, found in the prefix cache when it was first admitted
///         "pages": 3,             that it holds now, shared ones too; 0 while waiting
///         "shared_pages": 1,      of them the prefix cache's
///         "preemptions": 0        how often it was put back in line
///       }
///     ],
///     "prefixes": {
///       "nodes": 12,            of the prefix tree, without the root
///       "pages": 208,           that the tree owns
///       "locked_pages": 8,      of them in use by running sequences
///       "complete": true,       false: "nodes" and "longest" are of the first 4096 nodes only
///       "longest": [            at most 8 paths from the root to a leaf, longest first; they share
///       beginnings
///         {"tokens": 1024, "pages": 64, "locked": false}
///       ]
///     },
///     "steps": [                the newest 120 at most, oldest first
///       {
///         "seconds": 0.0021,    of the whole step, sampling too
///         "attention_seconds": 0.0004,  of it in attention kernels
///         "plan_seconds": 0.00001,      of it planning them
///         "prefill_rows": 0,    tokens computed that are (part of) a prompt
///         "decode_rows": 3      sequences that got their next token
///       }
///     ]
///   }
std::string snapshot_json(const EngineSnapshot& snapshot,
                          std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now());

}  // namespace fovea::server
