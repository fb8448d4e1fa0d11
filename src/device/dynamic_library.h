#pragma once
// A shared library opened at run time, so that the program also starts without it.
#include <initializer_list>
#include <string>

#include "fovea/result.h"

namespace fovea {

class DynamicLibrary {
 public:
  /// The first of `names` that the dynamic linker finds (a library that is already loaded counts). `what`
  /// names the library in errors, `fix` tells how to get it. Error: none is found, with the linker's reason
  /// for each.
  static Result<DynamicLibrary> open(const std::string& what, std::initializer_list<const char*> names,
                                     const std::string& fix);

  DynamicLibrary(DynamicLibrary&& other) noexcept;
  DynamicLibrary& operator=(DynamicLibrary&& other) noexcept;
  ~DynamicLibrary();

  /// Sets `function` to symbol `name`. Error: the library has none of that name.
  template <class Function>
  Status find(const char* name, Function*& function) const {
    auto found = address(name);
    if (!found) return std::move(found).error();
    function = reinterpret_cast<Function*>(*found);
    return {};
  }

  const std::string& name() const { return name_; }

 private:
  DynamicLibrary(void* handle, std::string name) : handle_(handle), name_(std::move(name)) {}
  Result<void*> address(const char* name) const;

  void* handle_ = nullptr;
  std::string name_;
};

}  // namespace fovea
