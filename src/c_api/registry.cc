#include "c_api/registry.h"

#include <map>
#include <mutex>

#include "builtin/backends_json.h"
#include "fovea/backend_library.h"

namespace fovea::c_api {
namespace {

struct State {
  std::mutex mutex;
  BackendRegistry registry = builtin_backends();
  std::map<size_t, std::string> texts;  // by number of backends; callers may hold pointers to earlier texts
};

/// Never destroyed: other threads may use it until the process ends.
State& state() {
  static auto& all = *new State;
  return all;
}

}  // namespace

BackendRegistry loaded_backends() {
  const std::lock_guard lock(state().mutex);
  return state().registry;
}

Status load_backend(const std::string& file) {
  const std::lock_guard lock(state().mutex);
  return load_backend_library(file, state().registry);
}

const std::string& backends_text() {
  const std::lock_guard lock(state().mutex);
  std::string& text = state().texts[state().registry.entries().size()];
  if (text.empty()) text = backends_json(state().registry);
  return text;
}

}  // namespace fovea::c_api
