// Loads a backend library from a file into a registry.
#include <dlfcn.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>

#include "fovea/backend_library.h"
#include "plugin/backend.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;
using plugin::Library;

constexpr const char* kEntry = "fovea_backend_v1";
constexpr int kVersionsLookedFor = 64;

/// Closes a handle that was refused; a library in use is never closed.
struct Handle {
  explicit Handle(void* opened) : value(opened) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (value != nullptr) ::dlclose(value);
  }
  void* release() { return std::exchange(value, nullptr); }
  void* value;
};

/// The dynamic linker's last error, which names the file.
std::string linker_error() {
  const char* text = ::dlerror();
  return text == nullptr ? "no reason given" : text;
}

/// Other entry versions that the library exports: "fovea_backend_v2".
std::string other_entries(void* handle) {
  std::string names;
  for (int version = 0; version <= kVersionsLookedFor; ++version) {
    const std::string name = "fovea_backend_v" + std::to_string(version);
    if (::dlsym(handle, name.c_str()) != nullptr) names += (names.empty() ? "" : " and ") + name;
  }
  return names;
}

Status check_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) return not_found("there is no such file");
  if (!fs::is_regular_file(status)) return invalid("it is not a file; give the path of a shared library");
  return {};
}

/// Opens a library whose row is not in any registry yet.
Result<std::unique_ptr<Library>> open_library(void* handle, const std::string& file) {
  using Entry = decltype(fovea_backend_v1);
  auto* entry = reinterpret_cast<Entry*>(::dlsym(handle, kEntry));
  if (entry == nullptr) {
    const std::string others = other_entries(handle);
    if (!others.empty())
      return unsupported("it exports " + others + "; this Fovea loads " + kEntry +
                         ": build it with this Fovea's fovea/backend_abi.h");
    return invalid(std::string("it has no function ") + kEntry +
                   ", the entry of attention backends (fovea/backend_abi.h)");
  }
  const fovea_backend_host host{sizeof(fovea_backend_host), FOVEA_BACKEND_ABI, FOVEA_VERSION};
  const fovea_backend* backend = nullptr;
  plugin::Text text;
  const int32_t code = entry(&host, &backend, text.target());
  FOVEA_RETURN_IF_ERROR(plugin::status_of(code, kEntry, kEntry, text));
  return Library::create(backend, file);
}

/// The libraries of this process by handle, which is the same each time a file is opened. Never destroyed:
/// threads may run their code until the process ends.
struct Loaded {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<Library>> libraries;
};

Loaded& loaded() {
  static auto& all = *new Loaded;
  return all;
}

Result<const Library*> load(const std::string& file) {
  std::error_code error;
  const fs::path path = fs::absolute(file, error);  // dlopen() would search for a bare name elsewhere
  if (error) return io_error(error.message());
  FOVEA_RETURN_IF_ERROR(check_file(path));
  const std::lock_guard lock(loaded().mutex);
  ::dlerror();
  Handle handle(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle.value == nullptr) return invalid("it can't be loaded: " + linker_error());
  auto& libraries = loaded().libraries;
  if (const auto at = libraries.find(handle.value); at != libraries.end()) return at->second.get();
  FOVEA_TRY(library, open_library(handle.value, file));
  return libraries.emplace(handle.release(), std::move(library)).first->second.get();
}

Status add(const std::string& file, BackendRegistry& registry) {
  if (file.empty()) return invalid("the name of the file is empty");
  FOVEA_TRY(library, load(file));
  FOVEA_RETURN_IF_ERROR(plugin::check_names(library->info(), registry));
  if (library->info().absent.empty())
    registry.add(library->info(), [library] { return plugin::make_backend(*library); });
  else
    registry.add(library->info(), nullptr);
  return {};
}

}  // namespace

Status load_backend_library(const std::string& file, BackendRegistry& registry) {
  Status status = add(file, registry);
  if (status) return status;
  return Error{status.error().code, "backend library " + file + ": " + status.error().message};
}

Result<BackendRegistry> with_backend_libraries(const BackendRegistry& base,
                                               std::span<const std::string> files) {
  BackendRegistry registry = base;
  for (const std::string& file : files)
    FOVEA_RETURN_IF_ERROR(load_backend_library(file, registry));
  return registry;
}

}  // namespace fovea
