#include "c_api/device.h"

#include <pthread.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "fovea/stream.h"

namespace fovea::c_api {
namespace {

/// The threads of the process, created by the first call that needs them and never stopped: a library gets no
/// notice before the process exits.
struct Team {
  std::mutex mutex;
  std::shared_ptr<Stream> stream;
};
Team* team = nullptr;
pthread_once_t team_once = PTHREAD_ONCE_INIT;

/// Also called in a child of fork(), which has none of its parent's threads and perhaps a locked mutex.
void new_team() {
  team = new Team;
}

Result<int> threads_asked_for() {
  const char* text = std::getenv("FOVEA_NUM_THREADS");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < 0 || value > 4096)
    return invalid("FOVEA_NUM_THREADS is '" + std::string(text) + "'; it must be 0 (one per CPU) to 4096");
  return static_cast<int>(value);
}

Status on_team(FunctionRef<Status(Stream&)> body) {
  pthread_once(&team_once, [] {
    new_team();
    pthread_atfork(nullptr, nullptr, new_team);
  });
  const std::lock_guard lock(team->mutex);
  if (team->stream == nullptr) {
    FOVEA_TRY(threads, threads_asked_for());
    FOVEA_TRY(stream, make_cpu_stream(threads));
    team->stream = std::move(stream);
  }
  return body(*team->stream);
}

}  // namespace

Result<DeviceInfo> open_device(fovea_device device) {
  switch (device.type) {
    case FOVEA_CPU: return DeviceInfo{};
    case FOVEA_CUDA: return open_cuda_device_info(device.id);
    default:
      return invalid("device is " + to_string(device) + "; it must be cpu (type " +
                     std::to_string(FOVEA_CPU) + ") or cuda (type " + std::to_string(FOVEA_CUDA) + ")");
  }
}

Result<Arguments> arguments_of(const fovea_tensor* tensor, const char* name) {
  if (tensor == nullptr) return invalid(std::string(name) + " is null; it is needed");
  fovea_device device = tensor->device;
  if (device.type == FOVEA_CUDA_HOST) device = {FOVEA_CPU, 0};
  FOVEA_TRY(info, open_device(device));
  (void)info;
  return Arguments(device);
}

Status on_stream(fovea_device device, void* handle, FunctionRef<Status(Stream&)> body) {
  return device.type == FOVEA_CUDA ? on_cuda_stream(device.id, handle, body) : on_team(body);
}

Result<Memory> allocate(fovea_device device, size_t bytes) {
  if (device.type == FOVEA_CUDA) return allocate_cuda(device.id, bytes);
  constexpr size_t kAlignment = 256;
  void* data = nullptr;
  if (posix_memalign(&data, kAlignment, bytes == 0 ? kAlignment : bytes) != 0)
    return Error{ErrorCode::out_of_memory,
                 "the system refuses " + std::to_string(bytes) + " bytes of workspace"};
  return Memory(static_cast<std::byte*>(data), [](std::byte* p) { std::free(p); });
}

}  // namespace fovea::c_api
