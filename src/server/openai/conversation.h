#pragma once
// A conversation of any API, as the list of messages that chat templates take.
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "server/openai/request.h"
#include "text/json_value.h"

namespace fovea::openai {

struct Turn {
  enum class Role : uint8_t { system, user, assistant, tool };
  Role role = Role::user;
  std::string text = {};
  std::string reasoning = {};    ///< assistant
  text::Json::Array calls = {};  ///< assistant: {"id", "type", "function": {"name", "arguments"}} each
  std::string call_id = {};      ///< tool: the call that it answers
  std::string name = {};         ///< tool: "" = not known
};

/// {"id", "type", "function"}; `arguments` is an object.
text::Json tool_call(std::string id, std::string name, text::Json arguments);

/// Appends a turn. Turns of a user or an assistant in a row are one, as templates want it.
void add_turn(std::vector<Turn>& turns, Turn turn);

/// Places system turns behind the first turn where a prompt's beginning does not depend on them.
///  - `anywhere`: the template renders them as turns of their own; they stay, but never between calls and
///    their results.
///  - else their text joins the message of the user or the tool before them, or of the user behind them.
std::vector<Turn> place_system_turns(std::vector<Turn> turns, bool anywhere);

/// ChatRequest::messages
std::string messages_json(const std::vector<Turn>& turns);

/// A parsed request of an API whose turns are not messages of OpenAI's form.
struct ConversationRequest : RequestBase {
  GenerationRequest common;
  std::vector<Turn> turns;
  ChatRequest chat;  ///< all but the messages
  ToolRequest tools;
};

}  // namespace fovea::openai
