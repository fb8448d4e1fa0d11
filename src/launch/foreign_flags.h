#pragma once
// The flags of SGLang's launch_server, vLLM's serve and Mini-SGLang, as data: which of them this program has
// under the same or another name, which mean nothing here, and which it refuses because they would change the
// result and are not built. The command line and docs/coming_from.md read this table.
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
  same,     ///< ours has this name too
  alias,    ///< taken for ForeignFlag::ours
  noted,    ///< accepted, does nothing; the text says why
  refused,  ///< not built; with a neutral value it is accepted
};
/// "same", "alias", "no meaning here", "refused"
std::string_view to_string(FlagVerdict verdict);

/// What follows a flag on the command line.
enum class FlagValue : uint8_t {
  none,
  one,
  numbers,  ///< all the integers that follow
};

struct ForeignFlag {
  EnumSet<Peer> peers;
  /// With their dashes. One that ends with '*' stands for all that begin so.
  std::vector<std::string_view> spellings;
  FlagValue value = FlagValue::none;
  FlagVerdict verdict = FlagVerdict::noted;
  /// Of `same` and `alias`: our flag, which is given the value if there is one; empty where `values` decides.
  std::string_view ours = {};
  /// One line for people: what it means here, or why it is refused and what to do instead.
  std::string_view text = {};
  /// Of `refused`: values that ask for nothing, in any letter case.
  std::vector<std::string_view> neutral = {};
  /// Of an alias: what each allowed value stands for; empty = nothing.
  std::vector<std::pair<std::string_view, std::string_view>> values = {};
  /// Of `refused`: what a backend would need for it, so that explain can show who has it.
  std::optional<Feature> need = {};
};

/// In the order of the documents: attention, cache, scheduling, parallelism, graphs, model, server.
std::span<const ForeignFlag> foreign_flags();

/// By one of its spellings, as given on the command line without "=value"; null when unknown. vLLM's
/// underscores for dashes are taken too.
const ForeignFlag* find_foreign_flag(std::string_view spelling);

}  // namespace fovea
