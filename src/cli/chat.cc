// fovea chat: a conversation on the terminal. /reset forgets it, /exit or Ctrl-D leaves, Ctrl-C stops an
// answer.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

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
  Conversation(Engine& engine, const ChatFlags& flags) : engine_(engine), flags_(flags) { reset(); }

  void reset() {
    turns_.clear();
    if (!flags_.system.empty()) turns_.push_back({"system", flags_.system});
  }

  Status ask(const std::string& question, InterruptFlag& interrupt) {
    turns_.push_back({"user", question});
    auto answer = generate(interrupt);
    if (!answer) {
      turns_.pop_back();
      return std::move(answer).error();
    }
    turns_.push_back({"assistant", *answer});
    return {};
  }

 private:
  Result<std::string> generate(InterruptFlag& interrupt) {
    FOVEA_TRY(text, engine_.apply_chat_template(turns_, true));
    FOVEA_TRY(ids, engine_.tokenize(text, false));
    GenerateRequest request;
    request.prompt_ids = std::move(ids);
    request.sampling = merge_sampling(engine_.default_sampling(), flags_.sampling);
    request.sampling.seed = flags_.model.seed;
    FOVEA_TRY(answer, stream_answer(engine_, std::move(request), interrupt));
    return std::move(answer.text);
  }

  Engine& engine_;
  const ChatFlags& flags_;
  std::vector<ChatTurn> turns_;
};

}  // namespace

Status run_chat(const ChatFlags& flags) {
  FOVEA_TRY(engine, make_engine(flags.model));
  if (!engine->has_chat_template())
    return invalid("this model has no chat template; use fovea generate for plain completions");
  std::fputs(describe_start(engine->info()).c_str(), stderr);
  std::fputs("/reset forgets the conversation, /exit leaves, Ctrl-C stops an answer.\n", stderr);
  Conversation conversation(*engine, flags);
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
