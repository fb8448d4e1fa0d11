// fovea chat: a conversation on the terminal, or line by line from a pipe. With --messages, one answer to a
// given conversation, or the prompt that it makes.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "cli/chat_commands.h"
#include "cli/chat_history.h"
#include "cli/conversation.h"
#include "cli/line_editor.h"

namespace fovea::cli {
namespace {

/// Reads one line of standard input when it is not an editable terminal, without its newline; nullopt at the
/// end of input. Ctrl-C gives an empty line.
std::optional<std::string> read_line(InterruptFlag& interrupt) {
  std::string line;
  for (;;) {
    // Polls: a signal just before a blocking read, or on another thread, would not interrupt it.
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

/// Reads the next message: one line, or several if it ends with a backslash or begins with """.
/// nullopt when the user leaves.
std::optional<std::string> read_message(LineEditor& editor, InterruptFlag& interrupt) {
  constexpr std::string_view kQuotes = "\"\"\"";
  std::string text;
  bool quoted = false;
  for (const char* prompt = "> ";; prompt = "... ") {
    const LineEditor::Line line = editor.read(prompt, interrupt);
    if (line.end == LineEditor::End::closed) return std::nullopt;
    if (line.end == LineEditor::End::interrupted) return "";
    std::string_view part = line.text;
    const bool first = *prompt == '>';
    if (first && part.starts_with(kQuotes)) {
      quoted = true;
      part.remove_prefix(kQuotes.size());
    }
    const bool more = quoted ? !part.ends_with(kQuotes) : part.ends_with('\\');
    if (quoted && !more) part.remove_suffix(kQuotes.size());
    if (!quoted && more) part.remove_suffix(1);
    text += (first || (quoted && text.empty()) ? "" : "\n") + std::string(part);
    if (!more) return text;
  }
}

/// Runs the conversation of --messages: prints its answer, or only its prompt.
Status run_once(const ChatFlags& flags, ChatRequest request) {
  FOVEA_TRY(messages, read_file(flags.messages));
  request.messages = with_system(messages, flags.system);
  request.continue_final_message = flags.continue_final_message;
  request.add_generation_prompt = !flags.no_generation_prompt && !flags.continue_final_message;
  if (flags.print_prompt) {
    FOVEA_TRY(config, engine_config(flags.model));
    FOVEA_TRY(prompt, render_chat_prompt(config, request));
    std::fwrite(prompt.data(), 1, prompt.size(), stdout);  // exact bytes, no newline added
    return {};
  }
  FOVEA_TRY(engine, make_engine(flags.model));
  std::fputs(describe_start(engine->info()).c_str(), stderr);
  InterruptFlag interrupt;
  SamplingParams sampling = merge_sampling(engine->default_sampling(), flags.sampling);
  sampling.seed = flags.model.seed;
  FOVEA_TRY(answer, answer_chat(*engine, request, std::move(sampling), interrupt));
  if (answer.last.finish == FinishReason::cancelled) return Error{ErrorCode::cancelled, "interrupted"};
  return {};
}

/// Opens the input history for the up arrow; nullopt without a path, or after a printed error.
std::optional<ChatHistory> open_history(LineEditor& editor) {
  const std::string path = ChatHistory::default_path();
  if (path.empty()) return std::nullopt;
  auto history = ChatHistory::open(path);
  if (!history) {
    std::fprintf(stderr, "fovea: %s\n", history.error().message.c_str());
    return std::nullopt;
  }
  for (const std::string& entry : history->entries())
    editor.remember(entry);
  return *std::move(history);
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
  Conversation conversation(*engine, flags, std::move(request));
  InterruptFlag interrupt;
  ChatCommands commands(conversation, interrupt);
  const auto editor = LineEditor::create(ChatCommands::names());
  auto history = editor && !flags.no_history ? open_history(*editor) : std::nullopt;
  std::fputs(editor ? "/help lists the commands; Ctrl-C stops an answer, Ctrl-D leaves.\n"
                    : "/reset forgets the conversation, /exit leaves, Ctrl-C stops an answer.\n",
             stderr);
  for (;;) {
    if (!editor && ::isatty(0)) std::fputs("> ", stderr);
    const auto text = editor ? read_message(*editor, interrupt) : read_line(interrupt);
    if (!text) return {};
    if (text->find_first_not_of(" \t\r\n") == std::string::npos) continue;
    if (editor) editor->remember(*text);
    if (history)
      if (const Status kept = history->add(*text); !kept) {
        std::fprintf(stderr, "fovea: %s\n", kept.error().message.c_str());
        history.reset();
      }
    if (ChatCommands::is_command(*text)) {
      const auto next = commands.run(*text);
      if (!next)
        std::fprintf(stderr, "fovea: %s\n", next.error().message.c_str());
      else if (*next == ChatCommands::Next::leave)
        return {};
    } else if (auto status = conversation.ask(commands.take_attachments() + *text, interrupt); !status) {
      std::fprintf(stderr, "fovea: %s (/undo takes a turn back, /clear starts again)\n",
                   status.error().message.c_str());
    }
  }
}

}  // namespace fovea::cli
