#include "compat/pages/flag_tables.h"

#include <vector>

#include "compat/launch/attention_keys.h"
#include "compat/launch/environment.h"
#include "compat/pages/markdown.h"

namespace fovea::docs {
namespace {

std::vector<std::string> codes(const std::vector<std::string_view>& texts) {
  std::vector<std::string> out;
  for (const std::string_view text : texts)
    out.push_back(code(text));
  return out;
}

/// "the same", "`--page-size`", "`naive`: `--disable-radix-cache`".
std::string taken(const ForeignFlag& flag) {
  if (flag.verdict == FlagVerdict::same) return "the same";
  if (flag.values.empty()) return code(flag.ours);
  std::vector<std::string> each;
  for (const auto& [value, ours] : flag.values)
    each.push_back(code(value) + ": " + (ours.empty() ? "unchanged" : code(ours)));
  return join(each, "; ");
}

std::string here(const ForeignFlag& flag) {
  switch (flag.verdict) {
    case FlagVerdict::same:
    case FlagVerdict::alias: return taken(flag);
    case FlagVerdict::noted: return "no meaning";
    case FlagVerdict::refused: break;
  }
  return flag.neutral.empty() ? "refused" : "refused, except " + join(codes(flag.neutral), " or ");
}

}  // namespace

std::string flag_table(Peer peer) {
  Table table({"Flag", "Here", "To know"});
  for (const auto& verdicts : {std::vector{FlagVerdict::same, FlagVerdict::alias},
                               std::vector{FlagVerdict::noted}, std::vector{FlagVerdict::refused}})
    for (const ForeignFlag& flag : foreign_flags())
      if (flag.peers.has(peer))
        for (const FlagVerdict verdict : verdicts)
          if (flag.verdict == verdict)
            table.row({join(codes(flag.spellings)), here(flag), std::string(flag.text)});
  return table.text();
}

std::string key_table() {
  Table table({"Key", "Takes", "Means"});
  for (const KeyStatus status : {KeyStatus::acts, KeyStatus::deprecated, KeyStatus::refused})
    for (const AttentionKey& key : attention_keys()) {
      if (key.status != status) continue;
      const char* before = status == KeyStatus::acts         ? ""
                           : status == KeyStatus::deprecated ? "deprecated: "
                                                             : "refused: ";
      table.row({code(key.name), std::string(key.allowed), before + std::string(key.text)});
    }
  return table.text();
}

std::string environment_table() {
  Table table({"Variable", "Here"});
  for (const EnvironmentVariable& variable : environment_variables()) {
    if (variable.use == VariableUse::tool) continue;
    const bool acts = variable.use != VariableUse::replaced;
    table.row({code(variable.name), acts ? std::string(variable.text)
                                         : "not applied, with a warning: use " + code(variable.text)});
  }
  return table.text();
}

}  // namespace fovea::docs
