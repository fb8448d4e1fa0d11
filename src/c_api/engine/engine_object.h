#pragma once
// The object behind a fovea_engine: the engine, the queue of its outputs, and requests from their C form.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "c_api/engine/output_queue.h"
#include "fovea/attention_backend.h"
#include "fovea/c_engine.h"
#include "fovea/engine.h"

namespace fovea::c_api {

class EngineObject {
 public:
  static Result<std::shared_ptr<EngineObject>> create(const char* options);

  Engine& engine() { return *engine_; }
  OutputQueue& queue() { return *queue_; }

  Result<uint64_t> submit(const fovea_request* request);
  Status check(const fovea_request* request) const;
  Status cancel(uint64_t id);

 private:
  Result<GenerateRequest> to_request(const fovea_request& given) const;

  /// The sinks have it too, and a sink may outlive every other user.
  std::shared_ptr<OutputQueue> queue_ = std::make_shared<OutputQueue>();
  BackendRegistry backends_;  ///< as of the engine's creation
  std::unique_ptr<Engine> engine_;
  /// Prompt of requests without one; encoder-decoder models only.
  std::optional<Result<std::vector<int32_t>>> decoder_prompt_;
};

/// The structs' sizes in ABI 3, which introduced them: what read_struct() demands at least.
inline constexpr size_t kRequestSize3 = 104, kChatSize3 = 56;
static_assert(sizeof(fovea_request) >= kRequestSize3 && sizeof(fovea_chat) >= kChatSize3);

}  // namespace fovea::c_api
