#pragma once
// A loaded library: its functions, its row, and calls with errors as Results.
#include <memory>
#include <string>

#include "fovea/result_fwd.h"
#include "plugin/table.h"

namespace fovea::plugin {

class Library {
 public:
  /// `given` was returned by the entry function of `file`. Errors: a struct that is too short or has fields
  /// unknown to this Fovea, missing functions, an invalid table.
  static Result<std::unique_ptr<Library>> create(const fovea_backend* given, const std::string& file);

  const BackendInfo& info() const { return row_->info; }
  const fovea_backend& functions() const { return functions_; }

 private:
  fovea_backend functions_{};
  std::unique_ptr<Row> row_;
};

/// A buffer for one line of text from the library.
class Text {
 public:
  const fovea_backend_error* target() const { return &error_; }
  /// The text written by the library, on one line; "" = none.
  std::string line() const;

  Text() = default;
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

 private:
  char text_[1024] = {};
  fovea_backend_error error_{sizeof(fovea_backend_error), sizeof text_, text_};
};

/// The Status for the code that `function` (such as "plan") of backend `name` returned.
Status status_of(int32_t code, std::string_view name, const char* function, const Text& text);

}  // namespace fovea::plugin
