#pragma once
// Errors at the boundary of the C ABI: codes and one line of text, never an exception.
#include "base/thread_pool.h"
#include "fovea/c_api.h"
#include "fovea/result.h"

namespace fovea::c_api {

/// Runs the body of a call. An Error's message becomes fovea_last_error(), prefixed with `function: `;
/// std::bad_alloc gives FOVEA_OUT_OF_MEMORY, any other exception FOVEA_INTERNAL.
fovea_status guard(const char* function, FunctionRef<Status()> body) noexcept;

}  // namespace fovea::c_api
