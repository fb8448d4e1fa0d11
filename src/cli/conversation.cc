#include "cli/conversation.h"

#include <algorithm>

namespace fovea::cli {
namespace {

ChatTurn make_turn(std::string_view role, std::string_view text) {
  return {std::string(role), std::string(text), message_json(role, text)};
}

}  // namespace

Result<StreamedAnswer> answer_chat(Engine& engine, const ChatRequest& chat, SamplingParams sampling,
                                   InterruptFlag& interrupt) {
  FOVEA_TRY(text, engine.apply_chat_template(chat));
  FOVEA_TRY(ids, engine.tokenize(text, false));
  GenerateRequest request;
  request.prompt_ids = std::move(ids);
  request.sampling = std::move(sampling);
  return stream_answer(engine, std::move(request), interrupt);
}

Conversation::Conversation(Engine& engine, const ChatFlags& flags, ChatRequest request)
    : engine_(engine),
      request_(std::move(request)),
      base_(merge_sampling(engine.default_sampling(), flags.sampling)),
      system_(flags.system) {
  base_.seed = flags.model.seed;
}

void Conversation::clear() {
  turns_.clear();
  attempt_ = 0;
}

std::vector<ChatTurn> Conversation::with_system(const std::vector<ChatTurn>& turns) const {
  std::vector<ChatTurn> all;
  if (!system_.empty()) all.push_back(make_turn("system", system_));
  all.insert(all.end(), turns.begin(), turns.end());
  return all;
}

SamplingParams Conversation::sampling() const {
  SamplingParams params = base_;
  for (const SamplingFlags& change : changes_)
    params = merge_sampling(std::move(params), change);
  if (params.seed) *params.seed += attempt_;
  return params;
}

Status Conversation::answer(std::vector<ChatTurn> turns, InterruptFlag& interrupt) {
  request_.messages = turns_json(with_system(turns));
  FOVEA_TRY(answer, answer_chat(engine_, request_, sampling(), interrupt));
  turns.push_back(make_turn("assistant", answer.text));
  turns_ = std::move(turns);
  return {};
}

Status Conversation::ask(const std::string& question, InterruptFlag& interrupt) {
  const uint64_t attempt = std::exchange(attempt_, 0);
  std::vector<ChatTurn> turns = turns_;
  turns.push_back(make_turn("user", question));
  Status status = answer(std::move(turns), interrupt);
  if (!status) attempt_ = attempt;
  return status;
}

Status Conversation::answer_again(InterruptFlag& interrupt) {
  std::vector<ChatTurn> turns = turns_;
  while (!turns.empty() && turns.back().role == "assistant")
    turns.pop_back();
  if (turns.empty()) return invalid("there is no question to answer again");
  if (turns.size() < turns_.size()) ++attempt_;
  return answer(std::move(turns), interrupt);
}

Status Conversation::undo() {
  const auto question =
      std::find_if(turns_.rbegin(), turns_.rend(), [](const ChatTurn& turn) { return turn.role == "user"; });
  if (question == turns_.rend()) return invalid("there is no question to take back");
  turns_.erase(std::prev(question.base()), turns_.end());
  attempt_ = 0;
  return {};
}

Status Conversation::set(const std::string& name, const std::string& value) {
  for (const char* meaningless :
       {"n", "logprobs", "prompt_logprobs", "top_logprobs", "priority", "id", "text", "lora"})
    if (name == meaningless) return invalid("a chat has no " + name);
  InputRow row;
  FOVEA_RETURN_IF_ERROR(parse_row(R"({"text": "", )" + json_string(name) + ": " + value + "}", "/set",
                                  {RowKind::generate}, row));
  GenerateRequest request;
  FOVEA_TRY(ids, engine_.tokenize("a", false));
  request.prompt_ids = std::move(ids);
  request.sampling = merge_sampling(sampling(), row.sampling);
  FOVEA_RETURN_IF_ERROR(engine_.check(request));
  changes_.push_back(row.sampling);
  std::erase_if(settings_, [&](const auto& setting) { return setting.first == name; });
  settings_.emplace_back(name, value);
  return {};
}

std::string Conversation::describe_settings() const {
  std::string text;
  for (const auto& [name, value] : settings_)
    text += name + " " + value + "\n";
  return text;
}

std::string Conversation::json() const {
  return turns_json(with_system(turns_));
}

Status Conversation::load(const std::string& json, const std::string& where) {
  FOVEA_TRY(turns, parse_turns(json, where));
  std::string system;
  if (!turns.empty() && turns[0].role == "system" && !turns[0].text.empty()) {
    system = turns[0].text;
    turns.erase(turns.begin());
  }
  system_ = std::move(system);
  turns_ = std::move(turns);
  attempt_ = 0;
  return {};
}

}  // namespace fovea::cli
