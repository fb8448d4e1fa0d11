#include "compat/launch/launch_line.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "base/printable.h"
#include "base/same_name.h"
#include "fovea/result.h"

namespace fovea {
namespace {

bool is_integer(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// "--attention-config" or "-ac", alone or with a dot path.
std::string_view attention_spelling(std::string_view name) {
  for (const std::string_view spelling : {"--attention-config", "--attention_config", "-ac"})
    if (name == spelling || (name.starts_with(spelling) && name[spelling.size()] == '.')) return spelling;
  return {};
}

class Reader {
 public:
  Reader(const std::vector<std::string>& arguments, const FindOwnFlag& own)
      : arguments_(arguments), own_(own) {}

  Result<LaunchLine> run() {
    while (at_ < arguments_.size()) {
      const std::string& argument = arguments_[at_++];
      if (argument == "--") {
        line_.arguments.insert(line_.arguments.end(), arguments_.begin() + static_cast<ptrdiff_t>(at_) - 1,
                               arguments_.end());
        break;
      }
      FOVEA_RETURN_IF_ERROR(read(argument));
    }
    return std::move(line_);
  }

 private:
  Status read(const std::string& argument) {
    if (argument.size() < 2 || argument[0] != '-') {
      line_.arguments.push_back(argument);
      return {};
    }
    const size_t equals = argument.find('=');
    name_ = argument.substr(0, equals);
    inline_value_.reset();
    if (equals != std::string::npos) inline_value_ = argument.substr(equals + 1);
    if (const std::string_view spelling = attention_spelling(name_); !spelling.empty())
      return read_attention(std::string(spelling));
    if (const auto own = find_own(argument)) {
      line_.arguments.push_back(argument);
      line_.spelled[own->name] = name_;
      if (own->takes_value && !has_value_inside(argument) && at_ < arguments_.size())
        line_.arguments.push_back(arguments_[at_++]);
      return {};
    }
    const ForeignFlag* flag = find_foreign_flag(name_);
    // A Fovea flag of another command, or a replacement that this command lacks, is unknown here.
    if (flag != nullptr && (flag->ours.empty() || own_(flag->ours)) && flag->verdict != FlagVerdict::same)
      return read_foreign(*flag);
    line_.arguments.push_back(argument);
    return {};
  }

  /// "-n4" means the flag -n, unless a flag is named "-n4".
  std::optional<OwnFlag> find_own(const std::string& argument) const {
    if (argument.starts_with("--")) return own_(name_);
    if (name_.size() > 2 && find_foreign_flag(name_) != nullptr) return std::nullopt;
    return own_(name_.substr(0, 2));
  }

  bool has_value_inside(const std::string& argument) const {
    return inline_value_.has_value() || (!argument.starts_with("--") && argument.size() > 2);
  }

  Result<std::string> value() {
    if (inline_value_) return *inline_value_;
    if (at_ < arguments_.size()) return arguments_[at_++];
    return invalid(name_ + " needs a value, and is the last argument");
  }

  Status read_attention(const std::string& spelling) {
    AttentionArgument argument;
    if (name_.size() > spelling.size()) argument.path = name_.substr(spelling.size() + 1);
    if (argument.path.empty() && name_.size() > spelling.size())
      return invalid(name_ + " names no key; write " + name_ + "KEY VALUE");
    argument.spelling = spelling == "-ac" ? spelling : "--attention-config";
    FOVEA_TRY(text, value());
    argument.value = text;
    line_.attention.push_back(std::move(argument));
    return {};
  }

  Status read_foreign(const ForeignFlag& flag) {
    std::string text, shown = printable(name_);
    if (flag.value == FlagValue::none && inline_value_)
      return invalid(shown + " takes no value, but " + printable(*inline_value_) + " was given");
    if (flag.value == FlagValue::one) {
      FOVEA_TRY(given, value());
      text = given;
    } else if (flag.value == FlagValue::numbers) {
      if (inline_value_) text = *inline_value_;
      while (at_ < arguments_.size() && is_integer(arguments_[at_]))
        text += (text.empty() ? "" : " ") + arguments_[at_++];
    }
    if (!text.empty()) shown += " " + printable(text);
    if (flag.verdict == FlagVerdict::alias) return replace(flag, text, shown);
    FlagNote note{flag.verdict, shown, std::string(flag.text), flag.need, flag.verdict == FlagVerdict::noted};
    if (flag.verdict == FlagVerdict::refused &&
        std::ranges::any_of(flag.neutral, [&](std::string_view n) { return same_name(n, text); }))
      note = {FlagVerdict::noted, shown, "already the default"};
    line_.notes.push_back(std::move(note));
    return {};
  }

  Status replace(const ForeignFlag& flag, const std::string& text, const std::string& shown) {
    std::string ours(flag.ours);
    if (!flag.values.empty()) {
      const auto at =
          std::ranges::find_if(flag.values, [&](const auto& v) { return same_name(v.first, text); });
      if (at == flag.values.end()) {
        std::string allowed;
        for (const auto& [given, stands_for] : flag.values)
          allowed.append(allowed.empty() ? "" : ", ").append(given);
        return invalid(shown + ": allowed are " + allowed);
      }
      ours = at->second;
    } else if (flag.value == FlagValue::one) {
      ours += "=" + text;
    }
    const std::string name = ours.substr(0, ours.find('='));
    const auto own = ours.empty() ? std::nullopt : own_(name);
    if (!own) {  // the value is already the default, or has no effect on this command
      line_.notes.push_back({FlagVerdict::noted, shown, std::string(flag.text)});
      return {};
    }
    line_.arguments.push_back(ours);
    if (flag.value == FlagValue::numbers) {  // one argument each
      std::istringstream numbers(text);
      for (std::string number; numbers >> number;)
        line_.arguments.push_back(number);
    }
    line_.spelled[own->name] = name_;
    line_.notes.push_back({FlagVerdict::alias, shown, "taken for " + printable(ours)});
    return {};
  }

  const std::vector<std::string>& arguments_;
  const FindOwnFlag& own_;
  size_t at_ = 0;
  std::string name_;                         ///< of the current argument, without "=value"
  std::optional<std::string> inline_value_;  ///< the text after "="
  LaunchLine line_;
};

}  // namespace

Result<LaunchLine> read_launch_line(const std::vector<std::string>& arguments, const FindOwnFlag& own) {
  return Reader(arguments, own).run();
}

Status check_refused(const std::vector<FlagNote>& notes) {
  std::string all;
  for (const FlagNote& note : notes)
    if (note.verdict == FlagVerdict::refused)
      all += (all.empty() ? "" : "; ") + note.flag + " is refused: " + note.text;
  if (all.empty()) return {};
  return unsupported(all);
}

}  // namespace fovea
