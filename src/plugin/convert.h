#pragma once
// Converts the C++ structs of the backend interface to those of the ABI. Both reference the same arrays.
#include "fovea/attention_spec.h"
#include "fovea/attention_step.h"
#include "fovea/backend_abi.h"

namespace fovea {
class Stream;
}

namespace fovea::plugin {

/// `spec` is supported by the backend (check_supported) and `page_size` is resolved.
fovea_backend_spec to_abi(const AttentionSpec& spec, int page_size);
fovea_backend_limits to_abi(const AttentionLimits& limits);
/// `meta` has at least one sequence.
fovea_backend_batch to_abi(const BatchMeta& meta);
fovea_backend_args to_abi(const AttentionArgs& args, const AttentionSpec& spec);
/// For a CPU or a CUDA device.
fovea_backend_device to_abi(const DeviceInfo& device);

/// For the calling thread, valid until its next call: `parallel_for` references the stream's team.
fovea_backend_stream to_abi(Stream& stream);
/// Sets the queue of a GPU stream; does nothing in a build without CUDA, which has no such streams.
void put_cuda_stream(Stream& stream, fovea_backend_stream& out);

}  // namespace fovea::plugin
