#pragma once
// The contract's C++ structs as those of the ABI. They refer to the same arrays.
#include "fovea/attention_backend.h"
#include "fovea/backend_abi.h"

namespace fovea::plugin {

/// `spec` is served by the backend (check_supported) and `page_size` resolved.
fovea_backend_spec to_abi(const AttentionSpec& spec, int page_size);
fovea_backend_limits to_abi(const AttentionLimits& limits);
/// `meta` has sequences.
fovea_backend_batch to_abi(const BatchMeta& meta);
fovea_backend_args to_abi(const AttentionArgs& args, const AttentionSpec& spec);
/// Of a CPU or a CUDA device.
fovea_backend_device to_abi(const DeviceInfo& device);

/// Of the calling thread, until the next call: `parallel_for` refers to the stream's team.
fovea_backend_stream to_abi(Stream& stream);
/// The queue of a GPU stream; nothing in a program without CUDA, which has no such streams.
void put_cuda_stream(Stream& stream, fovea_backend_stream& out);

}  // namespace fovea::plugin
