#pragma once
// A command line as a user of SGLang, vLLM or Mini-SGLang writes it, taken apart: what is ours is left for
// the command, --attention-config is collected, and what is not ours is answered from the table of foreign
// flags.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result.h"
#include "launch/foreign_flags.h"

namespace fovea {

/// What is said of a flag that was given.
struct FlagNote {
  FlagVerdict verdict = FlagVerdict::noted;
  std::string flag;  ///< as given, with its value: "--tp 8"
  std::string text;
  std::optional<Feature> need = {};  ///< of a refused one: what it would ask of a backend
  bool warn = false;                 ///< a run says so: it has no effect
};

/// One -ac.KEY VALUE, or the whole as JSON (then `path` is empty).
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
/// By a spelling with its dashes; nullopt = the command has none of that name.
using FindOwnFlag = std::function<std::optional<OwnFlag>(std::string_view)>;

struct LaunchLine {
  std::vector<std::string> arguments;  ///< for the command itself, aliases replaced by our flags
  std::vector<AttentionArgument> attention;
  std::vector<FlagNote> notes;
  std::map<std::string, std::string, std::less<>> spelled;  ///< own flag's name -> as it was given
};

/// `arguments` are those after the command's name. Own flags go before foreign ones of the same name. Fails
/// for a foreign flag without its value, and for a value that an alias can't stand for.
Result<LaunchLine> read_launch_line(const std::vector<std::string>& arguments, const FindOwnFlag& own);

/// An error that names all refused flags with what to do; ok when there is none.
Status check_refused(const std::vector<FlagNote>& notes);

}  // namespace fovea
