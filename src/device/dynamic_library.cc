#include "device/dynamic_library.h"

#include <dlfcn.h>

#include <utility>

namespace fovea {

Result<DynamicLibrary> DynamicLibrary::open(const std::string& what, std::initializer_list<const char*> names,
                                            const std::string& fix) {
  std::string reasons;
  for (const char* name : names) {
    // RTLD_LOCAL: its symbols must not replace those of another version that the process uses.
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return DynamicLibrary(handle, name);
    const char* reason = dlerror();
    reasons += (reasons.empty() ? "" : "; ") + std::string(reason == nullptr ? name : reason);
  }
  return not_found(what + " is not found (" + reasons + "); " + fix);
}

DynamicLibrary::DynamicLibrary(DynamicLibrary&& other) noexcept
    : handle_(std::exchange(other.handle_, nullptr)), name_(std::move(other.name_)) {}

DynamicLibrary& DynamicLibrary::operator=(DynamicLibrary&& other) noexcept {
  std::swap(handle_, other.handle_);
  std::swap(name_, other.name_);
  return *this;
}

DynamicLibrary::~DynamicLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

Result<void*> DynamicLibrary::address(const char* name) const {
  dlerror();
  void* found = dlsym(handle_, name);
  if (found == nullptr)
    return unsupported(name_ + " has no function " + name + "; another version of the library is needed");
  return found;
}

}  // namespace fovea
