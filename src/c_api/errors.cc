#include "c_api/errors.h"

#include <exception>
#include <new>
#include <string>

namespace fovea::c_api {
namespace {

/// The thread's last error. `fixed` is used if there was no memory for `text`.
struct LastError {
  std::string text;
  const char* fixed = nullptr;
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

fovea_status code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument: return FOVEA_INVALID_ARGUMENT;
    case ErrorCode::not_found: return FOVEA_NOT_FOUND;
    case ErrorCode::unsupported: return FOVEA_UNSUPPORTED;
    case ErrorCode::out_of_memory: return FOVEA_OUT_OF_MEMORY;
    case ErrorCode::io: return FOVEA_IO;
    case ErrorCode::cancelled: return FOVEA_CANCELLED;
    case ErrorCode::internal: return FOVEA_INTERNAL;
  }
  return FOVEA_INTERNAL;
}

fovea_status remember(fovea_status code, const char* function, const char* what) noexcept {
  LastError& last = last_error();
  try {
    last.text.assign(function).append(": ").append(what);
    last.fixed = nullptr;
  } catch (...) {
    last.fixed = "out of memory, also for the text of the error";
  }
  return code;
}

}  // namespace

fovea_status guard(const char* function, FunctionRef<Status()> body) noexcept {
  try {
    const Status status = body();
    if (status) return FOVEA_OK;
    return remember(code_of(status.error().code), function, status.error().message.c_str());
  } catch (const std::bad_alloc&) {
    return remember(FOVEA_OUT_OF_MEMORY, function,
                    "the system refuses more memory; free some, or use smaller limits");
  } catch (const std::exception& error) {
    return remember(FOVEA_INTERNAL, function, error.what());
  } catch (...) {
    return remember(FOVEA_INTERNAL, function, "an exception of an unknown type");
  }
}

}  // namespace fovea::c_api

const char* fovea_last_error(void) {
  const auto& last = fovea::c_api::last_error();
  return last.fixed != nullptr ? last.fixed : last.text.c_str();
}
