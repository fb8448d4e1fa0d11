#pragma once
// Parses a command line as a user of SGLang, vLLM or Mini-SGLang writes it: Fovea's flags are passed on to
// the command, --attention-config is collected, and other flags are looked up in the table of foreign flags.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compat/launch/foreign_flags.h"
#include "fovea/result_fwd.h"

namespace fovea {

/// The message about a flag that was given.
struct FlagNote {
  FlagVerdict verdict = FlagVerdict::noted;
  std::string flag;  ///< as given, with its value: "--tp 8"
  std::string text;
  std::optional<Feature> need = {};  ///< for a refused flag: the required feature
  bool warn = false;                 ///< warn at run time that it has no effect
};

/// One -ac.KEY VALUE, or the whole configuration as JSON (then `path` is empty).
struct AttentionArgument {
  std::string spelling;  ///< "-ac" or "--attention-config"
  std::string path;      ///< "backend", "backend_per_kind.swa"
  std::string value;
  /// "-ac.backend", "--attention-config"
  std::string name() const { return path.empty() ? spelling : spelling + "." + path; }
};

/// One of the command's own flags.
struct OwnFlag {
  std::string name;  ///< its first spelling
  bool takes_value = false;
};
/// Finds a flag by a spelling including dashes; nullopt = the command has no such flag.
using FindOwnFlag = std::function<std::optional<OwnFlag>(std::string_view)>;

struct LaunchLine {
  std::vector<std::string> arguments;  ///< for the command, with aliases replaced by Fovea's flags
  std::vector<AttentionArgument> attention;
  std::vector<FlagNote> notes;
  std::map<std::string, std::string, std::less<>> spelled;  ///< own flag's name -> spelling given
};

/// `arguments` are those after the command's name. Own flags take precedence over foreign ones of the same
/// name. Fails for a foreign flag without its value, and for a value that an alias has no replacement for.
Result<LaunchLine> read_launch_line(const std::vector<std::string>& arguments, const FindOwnFlag& own);

/// An error that lists all refused flags and what to do about each; ok if there are none.
Status check_refused(const std::vector<FlagNote>& notes);

}  // namespace fovea
