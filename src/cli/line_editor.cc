#include "cli/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <signal.h>
#include <termcap.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <string_view>
#include <utility>

namespace fovea::cli {
namespace {

constexpr std::string_view kPasteOn = "\033[?2004h", kPasteOff = "\033[?2004l";
constexpr std::wstring_view kPasteEnd = L"\033[201~";
constexpr size_t kLongestPaste = size_t{1} << 20;  // characters; the rest is dropped

// On signals that end the program, an async-signal-safe handler must restore the terminal.
constexpr int kEndingSignals[] = {SIGTERM, SIGHUP, SIGQUIT};
termios g_terminal;
volatile sig_atomic_t g_resized = 0, g_continued = 0;

void say(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void on_end(int signal) {
  ::tcsetattr(STDIN_FILENO, TCSADRAIN, &g_terminal);
  say(kPasteOff);
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

void on_change(int signal) {
  (signal == SIGWINCH ? g_resized : g_continued) = 1;
}

/// Installs the signal handlers while a line is edited.
class Signals {
 public:
  Signals() {
    for (const int signal : kEndingSignals)
      set(signal, on_end);
    for (const int signal : {SIGWINCH, SIGCONT})
      set(signal, on_change);
  }
  ~Signals() {
    for (size_t i = 0; i < count_; ++i)
      ::sigaction(saved_[i].signal, &saved_[i].action, nullptr);
  }

 private:
  void set(int signal, void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    saved_[count_].signal = signal;
    ::sigaction(signal, &action, &saved_[count_++].action);
  }

  struct Saved {
    int signal;
    struct sigaction action;
  };
  Saved saved_[5];
  size_t count_ = 0;
};

/// Sets a UTF-8 locale, which models need whatever the user's locale is.
bool use_utf8() {
  if (std::setlocale(LC_CTYPE, "") && std::string_view(nl_langinfo(CODESET)) == "UTF-8") return true;
  return std::setlocale(LC_CTYPE, "C.UTF-8") != nullptr;
}

bool terminal_can_edit() {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1) return false;
  const char* name = std::getenv("TERM");
  if (name == nullptr || std::string_view(name) == "dumb") return false;
  return ::tgetent(nullptr, name) == 1;
}

class LibeditLine final : public LineEditor {
 public:
  explicit LibeditLine(std::vector<std::string> words) : words_(std::move(words)) {
    const int copy = ::dup(STDERR_FILENO);
    screen_ = copy < 0 ? nullptr : ::fdopen(copy, "w");  // buffered: stderr would write every character
    history_ = ::history_init();
    edit_ = screen_ ? ::el_init("fovea", stdin, screen_, screen_) : nullptr;
    if (!edit_ || !history_) return;
    HistEvent event;
    ::history(history_, &event, H_SETSIZE, kHistoryEntries);
    ::history(history_, &event, H_SETUNIQUE, 1);
    ::el_set(edit_, EL_CLIENTDATA, this);
    ::el_set(edit_, EL_EDITOR, "emacs");
    ::el_set(edit_, EL_SIGNAL, 0);
    ::el_set(edit_, EL_PROMPT, +[](EditLine* edit) { return const_cast<char*>(self(edit).prompt_); });
    ::el_set(edit_, EL_HIST, ::history, history_);
    ::el_set(edit_, EL_GETCFN, +[](EditLine* edit, wchar_t* out) { return self(edit).next(out); });
    add(L"fovea-paste", L"Insert what is pasted", &LibeditLine::paste, L"\\e[200~");
    add(L"fovea-newline", L"Begin a new line", &LibeditLine::newline, L"\\e^J");  // Enter sends ^J
    add(L"fovea-complete", L"Complete a command", &LibeditLine::complete, L"^I");
    ::el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    ::el_set(edit_, EL_BIND, "^W", "ed-delete-prev-word", nullptr);
    ::el_set(edit_, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
    for (const char* left : {"\\e[1;5D", "\\e[1;3D"})
      ::el_set(edit_, EL_BIND, left, "ed-prev-word", nullptr);
    for (const char* right : {"\\e[1;5C", "\\e[1;3C"})
      ::el_set(edit_, EL_BIND, right, "em-next-word", nullptr);
    ::el_source(edit_, nullptr);  // the user's ~/.editrc
  }

  ~LibeditLine() override {
    if (edit_) ::el_end(edit_);
    if (history_) ::history_end(history_);
    if (screen_) std::fclose(screen_);
  }

  bool ready() const { return edit_ && history_; }

  Line read(const char* prompt, InterruptFlag& interrupt) override {
    prompt_ = prompt;
    interrupt_ = &interrupt;
    why_ = End::closed;
    ::tcgetattr(STDIN_FILENO, &g_terminal);
    const Signals signals;
    ::el_set(edit_, EL_PREP_TERM, 1);  // before bracketed paste is enabled
    say(kPasteOn);
    int count = 0;
    const char* text = ::el_gets(edit_, &count);
    say(kPasteOff);
    if (text == nullptr || count <= 0) {
      say(why_ != End::interrupted ? "\n" : empty_ ? "^C\n(/exit or Ctrl-D leaves)\n" : "^C\n");
      return {"", why_};
    }
    Line line{std::string(text, static_cast<size_t>(count)), End::entered};
    if (line.text.back() == '\n') line.text.pop_back();
    return line;
  }

  void remember(const std::string& text) override {
    HistEvent event;
    ::history(history_, &event, H_ENTER, text.c_str());
  }

 private:
  static LibeditLine& self(EditLine* edit) {
    void* data = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<LibeditLine*>(data);
  }

  using Action = unsigned char (*)(EditLine*, int);
  /// The names must outlive the editor: el_set() would make copies that are never freed.
  void add(const wchar_t* name, const wchar_t* help, Action action, const wchar_t* keys) {
    ::el_wset(edit_, EL_ADDFN, name, help, action);
    ::el_wset(edit_, EL_BIND, keys, name, nullptr);
  }

  /// Reads one byte. False at the end of input and on Ctrl-C.
  bool next_byte(char& out) {
    for (;;) {
      // Polls: a signal just before a blocking read, or on another thread, would not interrupt it.
      pollfd input = {STDIN_FILENO, POLLIN, 0};
      const int ready = ::poll(&input, 1, 100);
      if (interrupt_->take()) {
        why_ = End::interrupted;
        const LineInfo* line = ::el_line(edit_);
        empty_ = line->lastchar == line->buffer;
        return false;
      }
      if (std::exchange(g_continued, 0)) {  // the shell may have changed the terminal modes
        ::el_set(edit_, EL_PREP_TERM, 0);
        ::el_set(edit_, EL_PREP_TERM, 1);
        say(kPasteOn);
        ::el_set(edit_, EL_REFRESH);
      }
      if (std::exchange(g_resized, 0)) {
        ::el_resize(edit_);
        ::el_set(edit_, EL_REFRESH);
      }
      if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
      const ssize_t got = ::read(STDIN_FILENO, &out, 1);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      return got == 1;
    }
  }

  /// Character source for libedit: 1 with a character, 0 at the end of input, -1 to abandon the line.
  int next(wchar_t* out) {
    std::mbstate_t state = {};
    for (;;) {
      char byte;
      if (!next_byte(byte)) return why_ == End::interrupted ? -1 : 0;
      const size_t length = std::mbrtowc(out, &byte, 1, &state);
      if (length == static_cast<size_t>(-2)) continue;  // more bytes follow
      if (length == static_cast<size_t>(-1)) *out = 0xfffd;
      return 1;
    }
  }

  static unsigned char paste(EditLine* edit, int) {
    std::wstring text;
    for (size_t matched = 0; matched < kPasteEnd.size();) {
      wchar_t c;
      if (const int got = self(edit).next(&c); got <= 0) return CC_EOF;
      if (c == kPasteEnd[matched] || c == kPasteEnd[0]) {
        matched = c == kPasteEnd[matched] ? matched + 1 : 1;
        continue;
      }
      matched = 0;
      if (c == L'\r') c = L'\n';  // libedit's terminal mode swaps \r and \n
      const bool readable = (c >= L' ' && c != 0x7f) || c == L'\n' || c == L'\t';
      if (readable && text.size() < kLongestPaste) text += c;
    }
    ::el_winsertstr(edit, text.c_str());
    return CC_REFRESH;
  }

  static unsigned char newline(EditLine* edit, int) {
    ::el_winsertstr(edit, L"\n");
    return CC_REFRESH;
  }

  static unsigned char complete(EditLine* edit, int) {
    const LineInfo* line = ::el_line(edit);
    const std::string_view typed(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
    if (typed.empty() || line->cursor != line->lastchar) return CC_ERROR;
    std::string_view common;
    bool found = false;
    for (const std::string& word : self(edit).words_) {
      if (!word.starts_with(typed)) continue;
      const std::string_view whole = word;
      const auto end = std::mismatch(common.begin(), common.end(), whole.begin(), whole.end()).first;
      common = found ? common.substr(0, static_cast<size_t>(end - common.begin())) : whole;
      found = true;
    }
    if (common.size() <= typed.size()) return CC_ERROR;
    ::el_insertstr(edit, std::string(common.substr(typed.size())).c_str());
    return CC_REFRESH;
  }

  std::vector<std::string> words_;
  std::FILE* screen_ = nullptr;
  History* history_ = nullptr;
  EditLine* edit_ = nullptr;
  const char* prompt_ = "";
  InterruptFlag* interrupt_ = nullptr;
  End why_ = End::closed;  // reason why the last line has no text
  bool empty_ = true;      // nothing had been typed at Ctrl-C
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::create(std::vector<std::string> words) {
  if (!terminal_can_edit() || !use_utf8()) return nullptr;
  auto editor = std::make_unique<LibeditLine>(std::move(words));
  if (!editor->ready()) return nullptr;
  return editor;
}

}  // namespace fovea::cli
