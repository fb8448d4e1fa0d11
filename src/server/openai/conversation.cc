#include "server/openai/conversation.h"

#include <algorithm>
#include <utility>

#include "server/openai/json_writer.h"

namespace fovea::openai {
namespace {

using text::Json;
using Role = Turn::Role;

void join(std::string& text, std::string_view more, std::string_view between) {
  if (!text.empty() && !more.empty()) text += between;
  text += more;
}

const char* name_of(Role role) {
  switch (role) {
    case Role::system: return "system";
    case Role::user: return "user";
    case Role::assistant: return "assistant";
    case Role::tool: return "tool";
  }
  return "";
}

}  // namespace

Json tool_call(std::string id, std::string name, Json arguments) {
  Json::Object function{{"name", Json(std::move(name))}, {"arguments", std::move(arguments)}};
  return Json(Json::Object{{"id", Json(std::move(id))},
                           {"type", Json(std::string("function"))},
                           {"function", Json(std::move(function))}});
}

void add_turn(std::vector<Turn>& turns, Turn turn) {
  const bool joins = !turns.empty() && turns.back().role == turn.role && turn.role != Role::tool;
  if (!joins) return turns.push_back(std::move(turn));
  Turn& last = turns.back();
  join(last.text, turn.text, turn.role == Role::assistant ? "\n" : "\n\n");
  join(last.reasoning, turn.reasoning, "\n");
  std::ranges::move(turn.calls, std::back_inserter(last.calls));
}

std::vector<Turn> place_system_turns(std::vector<Turn> turns, bool anywhere) {
  std::vector<Turn> out;
  std::string held;  // the text of system turns that wait for the end of tools' results, or for a user
  bool results_open = false;
  const auto place_held = [&](bool at_end) {
    if (held.empty()) return;
    if (anywhere) {
      add_turn(out, {.role = Role::system, .text = std::exchange(held, "")});
      return;
    }
    Turn* last = out.empty() ? nullptr : &out.back();
    if (last && (last->role == Role::user || last->role == Role::tool))
      join(last->text, std::exchange(held, ""), "\n\n");
    else if (at_end)
      out.push_back({.role = Role::user, .text = std::exchange(held, "")});
  };
  for (size_t i = 0; i < turns.size(); ++i) {
    Turn& turn = turns[i];
    if (turn.role == Role::system && (out.empty() || (out.size() == 1 && out[0].role == Role::system))) {
      add_turn(out, std::move(turn));
      continue;
    }
    if (turn.role == Role::system) {
      join(held, turn.text, "\n\n");
      if (!results_open) place_held(false);
      continue;
    }
    if (turn.role != Role::tool) {
      results_open = false;
      if (anywhere || turn.role == Role::assistant) place_held(false);
      if (turn.role == Role::user && !held.empty()) {  // behind an assistant's turn, or behind results
        if (!out.empty() && out.back().role == Role::tool)
          place_held(false);
        else
          turn.text = std::exchange(held, "") + (turn.text.empty() ? "" : "\n\n" + turn.text);
      }
    }
    if (!turn.calls.empty()) results_open = true;
    add_turn(out, std::move(turn));
  }
  place_held(true);
  return out;
}

std::string messages_json(const std::vector<Turn>& turns) {
  Json::Array messages;
  for (const Turn& turn : turns) {
    Json::Object message{{"role", Json(std::string(name_of(turn.role)))}, {"content", Json(turn.text)}};
    if (!turn.reasoning.empty()) message.emplace_back("reasoning_content", Json(turn.reasoning));
    if (!turn.calls.empty()) message.emplace_back("tool_calls", Json(turn.calls));
    if (turn.role == Role::tool) {
      message.emplace_back("tool_call_id", Json(turn.call_id));
      if (!turn.name.empty()) message.emplace_back("name", Json(turn.name));
    }
    messages.emplace_back(std::move(message));
  }
  return to_text(Json(std::move(messages)));
}

}  // namespace fovea::openai
