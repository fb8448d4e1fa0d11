// fovea chat: a conversation on the terminal. /reset forgets it, /exit or Ctrl-D leaves, Ctrl-C stops an
// answer. With --messages, one answer to a given conversation, or the prompt that it makes.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "cli/json_io.h"
#include "cli/options.h"
#include "cli/stream_answer.h"

namespace fovea::cli {
namespace {

/// One line of standard input without its newline; nullopt at the end of input. Ctrl-C gives an empty line.
std::optional<std::string> read_line(InterruptFlag& interrupt) {
  std::string line;
  for (;;) {
    // Not a blocking read: a signal just before it, or on another thread, would not end it.
    pollfd input = {0, POLLIN, 0};
    const int ready = ::poll(&input, 1, 100);
    if (interrupt.take()) {
      std::fputs("\n(/exit or Ctrl-D leaves)\n", stderr);
      return "";
    }
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    char c;
    const ssize_t got = ::read(0, &c, 1);
    if (got == 0) return line.empty() ? std::nullopt : std::optional(line);
    if (got < 0) return std::nullopt;
    if (c == '\n') return line;
    line += c;
  }
}

class Conversation {
 public:
  Conversation(Engine& engine, const ChatFlags& flags, ChatRequest request)
      : engine_(engine), flags_(flags), request_(std::move(request)) {
    reset();
  }

  void reset() {
    turns_.clear();
    if (!flags_.system.empty()) turns_.push_back(message_json("system", flags_.system));
  }

  Status ask(const std::string& question, InterruptFlag& interrupt) {
    turns_.push_back(message_json("user", question));
    request_.messages.clear();
    for (const std::string& turn : turns_)
      request_.messages += (request_.messages.empty() ? "[" : ",") + turn;
    request_.messages += "]";
    auto text = answer(engine_, flags_, request_, interrupt);
    if (!text) {
      turns_.pop_back();
      return std::move(text).error();
    }
    turns_.push_back(message_json("assistant", *text));
    return {};
  }

  static Result<std::string> answer(Engine& engine, const ChatFlags& flags, const ChatRequest& chat,
                                    InterruptFlag& interrupt) {
    FOVEA_TRY(text, engine.apply_chat_template(chat));
    FOVEA_TRY(ids, engine.tokenize(text, false));
    GenerateRequest request;
    request.prompt_ids = std::move(ids);
    request.sampling = merge_sampling(engine.default_sampling(), flags.sampling);
    request.sampling.seed = flags.model.seed;
    FOVEA_TRY(answer, stream_answer(engine, std::move(request), interrupt));
    if (answer.last.finish == FinishReason::cancelled && !flags.messages.empty())
      return Error{ErrorCode::cancelled, "interrupted"};
    return std::move(answer.text);
  }

 private:
  Engine& engine_;
  const ChatFlags& flags_;
  ChatRequest request_;
  std::vector<std::string> turns_;  // as JSON
};

/// The conversation of --messages: its answer, or only its prompt.
Status run_once(const ChatFlags& flags, ChatRequest request) {
  FOVEA_TRY(messages, read_file(flags.messages));
  request.messages = with_system(messages, flags.system);
  request.continue_final_message = flags.continue_final_message;
  request.add_generation_prompt = !flags.no_generation_prompt && !flags.continue_final_message;
  if (flags.print_prompt) {
    FOVEA_TRY(config, engine_config(flags.model));
    FOVEA_TRY(prompt, render_chat_prompt(config, request));
    std::fwrite(prompt.data(), 1, prompt.size(), stdout);  // to the byte: no newline of ours
    return {};
  }
  FOVEA_TRY(engine, make_engine(flags.model));
  std::fputs(describe_start(engine->info()).c_str(), stderr);
  InterruptFlag interrupt;
  FOVEA_TRY(text, Conversation::answer(*engine, flags, request, interrupt));
  return {};
}

}  // namespace

Status run_chat(const ChatFlags& flags) {
  FOVEA_TRY(request, chat_request(flags.chat_template));
  if (!flags.messages.empty()) return run_once(flags, std::move(request));
  if (flags.print_prompt || flags.no_generation_prompt || flags.continue_final_message)
    return invalid(
        "--print-prompt, --no-generation-prompt and --continue-final-message are about a given conversation; "
        "give "
        "--messages FILE too");
  FOVEA_TRY(engine, make_engine(flags.model));
  if (!engine->has_chat_template())
    return invalid("this model has no chat template; give --chat-template, or use fovea generate");
  std::fputs(describe_start(engine->info()).c_str(), stderr);
  std::fputs("/reset forgets the conversation, /exit leaves, Ctrl-C stops an answer.\n", stderr);
  Conversation conversation(*engine, flags, std::move(request));
  InterruptFlag interrupt;
  for (;;) {
    if (::isatty(0)) std::fputs("> ", stderr);
    const auto line = read_line(interrupt);
    if (!line || *line == "/exit" || *line == "/quit") return {};
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    if (*line == "/reset") {
      conversation.reset();
      std::fputs("(forgotten)\n", stderr);
    } else if (line->front() == '/') {
      std::fprintf(stderr, "unknown command %s: /reset and /exit are known\n", line->c_str());
    } else if (auto status = conversation.ask(*line, interrupt); !status) {
      std::fprintf(stderr, "fovea: %s (/reset starts again)\n", status.error().message.c_str());
    }
  }
}

}  // namespace fovea::cli
