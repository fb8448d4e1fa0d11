#pragma once
// Weights from their sources to a device: threads read slices into host memory, which are copied and packed
// there while others are read.
#include <memory>
#include <span>

#include "model/model.h"
#include "model/weight_source.h"
#include "ops/ops.h"

namespace fovea {

/// A matrix and its place on the device, of a packed_format().
struct WeightTransfer {
  LinearWeight weight;
  std::shared_ptr<const WeightSource> source;
};

/// Takes a slice of host memory for each thread, kTransferMemory together unless a matrix has longer rows,
/// and one slice of the device's memory, until it returns. Progress is reported on the calling thread, in
/// bytes of the sources. Errors: the first of a source, a copy or an operation. Throws std::bad_alloc.
Status read_weights(Ops& ops, Stream& stream, std::span<const WeightTransfer> transfers,
                    const PlaceOptions& options);

/// Bytes: enough of 8 MiB slices for 16 threads; smaller slices cost copies.
inline constexpr int64_t kTransferMemory = int64_t{128} << 20, kTransferSlice = int64_t{8} << 20;

}  // namespace fovea
