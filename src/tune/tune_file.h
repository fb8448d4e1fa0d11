#pragma once
// The file in which fovea tune keeps measured choices of one device, and which commands read.
#include <string>
#include <vector>

#include "fovea/result.h"
#include "kernels/cuda/linear/linear_choice.h"

namespace fovea::tune {

/// What measurements are of: choices of another device, driver or build are not used.
struct TuneKey {
  std::string device;  ///< its name
  int multiprocessors = 0;
  int driver = 0;     ///< CUDA version of the driver: 13000 is 13.0
  std::string build;  ///< of the program, with a number that changes when kernels do
  bool operator==(const TuneKey&) const = default;
};

/// A choice and its times.
struct TunedLinear {
  cuda::LinearChoice choice;
  double seconds = 0, automatic_seconds = 0;  ///< of one launch with max_rows rows
};

struct TuneFile {
  TuneKey key;
  std::vector<TunedLinear> linear;
};

/// $XDG_CACHE_HOME/fovea/tune.json, or that of ~/.cache; "" without a home.
std::string default_tune_file();

/// The key's build, of this program.
std::string build_name();

/// Errors, in one line: no such file (not_found), not a file of this kind, a value out of range.
Result<TuneFile> read_tune_file(const std::string& path);
Result<TuneFile> parse_tune_file(const std::string& text, const std::string& path);

/// Why choices of `file` are not used with `key`; "" = they are.
std::string why_not(const TuneFile& file, const TuneKey& key);

/// Writes it in the place of another, with its folder. Error: it can't be written.
Status write_tune_file(const std::string& path, const TuneFile& file);
std::string tune_file_text(const TuneFile& file);

/// "6144 x 4096, 2 to 8 rows: stream, 4 units a part".
std::string describe(const cuda::LinearChoice& choice);

}  // namespace fovea::tune
