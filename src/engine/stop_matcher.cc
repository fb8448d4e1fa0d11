#include "engine/stop_matcher.h"

#include <algorithm>

namespace fovea {

StopMatcher::StopMatcher(const std::vector<std::string>& stops, bool include) : include_(include) {
  for (const std::string& stop : stops) {
    Automaton a{stop, std::vector<size_t>(stop.size() + 1, 0)};
    for (size_t k = 1; k < stop.size(); ++k) {
      a.state = a.step(stop[k]);
      a.failure[k + 1] = a.state;
    }
    a.state = 0;
    automata_.push_back(std::move(a));
  }
}

size_t StopMatcher::Automaton::step(char byte) const {
  size_t k = state;
  while (k > 0 && pattern[k] != byte)
    k = failure[k];
  return pattern[k] == byte ? k + 1 : 0;
}

bool StopMatcher::push(std::string_view text, std::string& out, bool may_stop) {
  if (automata_.empty()) {
    out += text;
    return false;
  }
  for (char byte : text) {
    held_ += byte;
    const Automaton* found = nullptr;
    size_t hold = 0;
    for (Automaton& a : automata_) {
      a.state = a.step(byte);
      if (!may_stop && a.state == a.pattern.size()) a.state = a.failure[a.state];
      hold = std::max(hold, a.state);
      if (a.state == a.pattern.size() && (!found || found->pattern.size() < a.state)) found = &a;
    }
    if (found) {
      matched_ = found->pattern;
      out.append(held_, 0, include_ ? held_.size() : held_.size() - matched_.size());
      held_.clear();
      return true;
    }
    out.append(held_, 0, held_.size() - hold);
    held_.erase(0, held_.size() - hold);
  }
  return false;
}

void StopMatcher::finish(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace fovea
