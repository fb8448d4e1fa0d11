#pragma once
// The conversation of `fovea chat`.
#include <string>
#include <vector>

#include "cli/json_io.h"
#include "cli/stream_answer.h"

namespace fovea::cli {

class Conversation {
 public:
  Conversation(Engine& engine, const ChatFlags& flags, ChatRequest request);

  /// Appends the question and its answer, which also goes to standard output; on failure appends neither.
  Status ask(const std::string& question, InterruptFlag& interrupt);
  /// Answers the last question again with another seed.
  Status answer_again(InterruptFlag& interrupt);
  /// Removes the last question and its answer.
  Status undo();
  void clear();

  const std::string& system() const { return system_; }
  void set_system(std::string text) { system_ = std::move(text); }  ///< "" = none
  size_t turns() const { return turns_.size(); }

  /// Sets a request field for later answers, `value` as JSON; an error if no request may have it.
  Status set(const std::string& name, const std::string& value);
  /// The fields that were set, one per line.
  std::string describe_settings() const;

  /// A JSON list of messages, the system message first: what --messages takes.
  std::string json() const;
  Status load(const std::string& json, const std::string& where);

 private:
  Status answer(std::vector<ChatTurn> turns, InterruptFlag& interrupt);
  std::vector<ChatTurn> with_system(const std::vector<ChatTurn>& turns) const;
  SamplingParams sampling() const;

  Engine& engine_;
  ChatRequest request_;
  SamplingParams base_;
  std::vector<std::pair<std::string, std::string>> settings_;  // names and JSON, in order
  std::vector<SamplingFlags> changes_;                         // the same, parsed
  uint64_t attempt_ = 0;                                       // answers to the last question, counted from 0
  std::string system_;
  std::vector<ChatTurn> turns_;  // without the system message
};

/// Renders `chat` and writes the answer to standard output.
Result<StreamedAnswer> answer_chat(Engine& engine, const ChatRequest& chat, SamplingParams sampling,
                                   InterruptFlag& interrupt);

}  // namespace fovea::cli
