#include <charconv>

#include "base/printable.h"
#include "base/same_name.h"
#include "device/gpu.h"
#include "engine/engine_gpu.h"
#include "fovea/engine.h"
#include "ops/cuda/cuda_ops.h"
#include "profile/nvtx.h"
#include "tensor/cuda_device.h"

namespace fovea {
namespace {

/// N of "cuda:N", 0 for "cuda"; nullopt for other names.
std::optional<int> gpu_index(std::string_view name) {
  if (!same_name(name.substr(0, 4), "cuda")) return std::nullopt;
  if (name.size() == 4) return 0;
  int index = 0;
  const char* const end = name.data() + name.size();
  if (name[4] != ':' || name.size() == 5) return std::nullopt;
  const auto got = std::from_chars(name.data() + 5, end, index);
  return got.ec == std::errc() && got.ptr == end && index >= 0 ? std::optional(index) : std::nullopt;
}

}  // namespace

Result<EngineDevice> find_device(std::string_view name) {
  if (same_name(name, "cpu")) return EngineDevice{};
  if (name.empty() || same_name(name, "auto")) {
    EngineDevice device;
    if (!cuda_built()) return device;
    if (auto info = gpu_info(0)) device.info = *std::move(info);
    return device;
  }
  const auto index = gpu_index(name);
  if (!index)
    return invalid("device is \"" + printable(std::string(name)) +
                   "\"; it must be auto, cpu, cuda or cuda:N");
  FOVEA_TRY(info, gpu_info(*index));
  return EngineDevice{std::move(info), *index};
}

Result<EngineGpu> EngineGpu::open(int index, DType activations) {
  EngineGpu gpu;
  gpu.index = index;
  FOVEA_TRY(device, make_cuda_device(index));
  gpu.device = std::move(device);
  FOVEA_TRY(stream, make_cuda_stream(index));
  gpu.stream = std::move(stream);
  FOVEA_TRY(ops, make_cuda_ops(*gpu.device, activations));
  gpu.ops = std::move(ops);
  FOVEA_TRY(queue, make_gpu_queue(*gpu.device, *gpu.stream, index));
  gpu.queue = std::move(queue);
  gpu.queue->begin_thread();
  profile::attach_nvtx();
  return gpu;
}

}  // namespace fovea
