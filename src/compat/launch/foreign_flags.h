#pragma once
// The flags of SGLang's launch_server, vLLM's serve and Mini-SGLang, as data: those that Fovea has under the
// same or another name, those with no meaning here, and those refused because they would change the result
// and are not built. The command line and docs/coming_from.md use this table.
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/capability.h"

namespace fovea {

enum class Peer : uint8_t { sglang, vllm, mini_sglang };
/// "SGLang", "vLLM", "Mini-SGLang"
std::string_view to_string(Peer peer);

enum class FlagVerdict : uint8_t {
  same,     ///< Fovea's flag has the same name
  alias,    ///< replaced by ForeignFlag::ours
  noted,    ///< accepted without effect; the text gives the reason
  refused,  ///< not built; accepted with a neutral value
};
/// "same", "alias", "no meaning here", "refused"
std::string_view to_string(FlagVerdict verdict);

/// The arguments that follow a flag on the command line.
enum class FlagValue : uint8_t {
  none,
  one,
  numbers,  ///< all the integers that follow
};

struct ForeignFlag {
  EnumSet<Peer> peers;
  /// Including dashes. A spelling that ends with '*' matches every name with that prefix.
  std::vector<std::string_view> spellings;
  FlagValue value = FlagValue::none;
  FlagVerdict verdict = FlagVerdict::noted;
  /// For `same` and `alias`: Fovea's flag, which gets the value if there is one; empty if `values` applies.
  std::string_view ours = {};
  /// One line for messages: its meaning here, or why it is refused and what to use instead.
  std::string_view text = {};
  /// For `refused`: values accepted because they have no effect, in any letter case.
  std::vector<std::string_view> neutral = {};
  /// For an alias: the replacement of each allowed value; empty = none.
  std::vector<std::pair<std::string_view, std::string_view>> values = {};
  /// For `refused`: the feature a backend would need, so that explain can show which backends have it.
  std::optional<Feature> need = {};
};

/// In the order of docs/coming_from.md: attention, cache, scheduling, parallelism, graphs, model, server.
std::span<const ForeignFlag> foreign_flags();

/// Finds a flag by a spelling as given on the command line without "=value"; null if unknown. vLLM's
/// underscores are accepted for dashes.
const ForeignFlag* find_foreign_flag(std::string_view spelling);

}  // namespace fovea
