#pragma once
// The least work of each operation, from the shapes of its operands: the floor of its time on any device.
#include <cstdint>

#include "ops/ops.h"
#include "profile/records.h"

namespace fovea {

/// Weights, x and y once.
profile::OpWork linear_work(const LinearWeight& weight, const Tensor& x, const Tensor& y);

/// These tensors, each read or written once; for one that is read and written, name it twice.
profile::OpWork rows_work(std::initializer_list<const Tensor*> tensors);

/// One row of the table for each id.
profile::OpWork embed_work(const LinearWeight& table, const Tensor& y);

/// qkv, q where it changes, and the keys and values that are written.
profile::OpWork append_work(const AttentionInput& in);

/// All heads' matrices, x and y once.
profile::OpWork head_linear_work(std::span<const LinearWeight> weights, const Tensor& x, const Tensor& y);

/// The matrices, and x and y of as many rows.
profile::OpWork lora_work(const LoraWeights& weights, int64_t rows);

/// One adapter's matrices of the largest rank, and x and y of all rows: which rows have which adapter, the
/// host does not know.
profile::OpWork lora_work(const Ops::LoraInput& in, const Tensor& y);

/// The queries' rotated parts, and the records, read and written.
profile::OpWork latent_append_work(const LatentInput& in);

/// The shared MLP, and the weights of as many experts as uniformly drawn ones touch: which ones do, the host
/// does not know.
profile::OpWork experts_work(const ExpertWeights& weights, const Tensor& x, int64_t experts_per_token,
                             const Tensor& out);

}  // namespace fovea
