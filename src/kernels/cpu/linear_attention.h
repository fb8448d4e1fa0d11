#pragma once
// Attention without softmax on the CPU; fovea/linear_attention.h defines the calls. Sums are fp32, one chain
// for each output; a row's bits do not depend on other sequences and heads, on the number of threads, nor on
// how its sequence is divided into calls.
#include "fovea/linear_attention.h"

namespace fovea {

class ThreadPool;

Status lightning_attention_cpu(const LightningAttention& call, ThreadPool& pool);
Status gated_delta_rule_cpu(const GatedDeltaRule& call, ThreadPool& pool);
Status hstu_attention_cpu(const HstuAttention& call, ThreadPool& pool);

/// What all devices refuse: sizes, null pointers, strides. Reads no array.
Status check_call(const LightningAttention& call);
Status check_call(const GatedDeltaRule& call);
Status check_call(const HstuAttention& call);

/// A lightning call as a gated delta rule, which has more fields; its decays are `log_decay`.
GatedDeltaRule recurrence_of(const LightningAttention& call);

}  // namespace fovea
