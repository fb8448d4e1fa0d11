#include "cli/terminal.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace fovea::cli {

std::string human(double value) {
  const char* units[] = {"", " k", " M", " G", " T"};
  int unit = 0;
  while (value >= 1000.0 && unit < 4) {
    value /= 1000.0;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, value >= 100 || unit == 0 ? "%.0f%s" : "%.2f%s", value, units[unit]);
  return text;
}

std::string describe_start(const EngineInfo& info) {
  char kv[160];
  std::snprintf(kv, sizeof kv, "KV cache: %lld tokens, %.2f sequences of the longest length (%d)",
                static_cast<long long>(info.kv_tokens), info.kv_sequences, info.max_seq_len);
  std::string text = explain(info.selection);
  if (!text.empty() && text.back() != '\n') text += '\n';
  text +=
      "page size: " + std::to_string(info.selection.page_size) + " (" + info.selection.page_size_why + ")\n";
  if (!info.rope_choice.empty()) text += info.rope_choice + "\n";
  if (info.gpu_memory_total > 0)
    text += "device: " + info.device_name + ", " + info.selection.device.name + "\n";
  return text + kv + ", " + std::string(to_string(info.kv_dtype)) + "\n";
}

Progress::Progress(std::string what, int64_t total, int64_t before)
    : what_(std::move(what)),
      total_(total),
      before_(before),
      terminal_(::isatty(2) == 1),
      start_(Clock::now()),
      last_(start_) {}

Progress::~Progress() {
  clear();
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::update(int64_t done, const std::string& note) {
  const auto now = Clock::now();
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  if (!terminal_ || elapsed < 1.0 || now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  if (total_ <= 0) {
    std::fprintf(stderr, "\r\033[K%s: %lld  %s", what_.c_str(), static_cast<long long>(done), note.c_str());
    return;
  }
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  std::string bar(30, '.');
  std::fill_n(bar.begin(), static_cast<long>(share * 30), '#');
  char left[32] = "";  // no estimate until something is done
  if (done > before_)
    std::snprintf(left, sizeof left, "%.0f s left  ",
                  elapsed * static_cast<double>(total_ - done) / static_cast<double>(done - before_));
  std::fprintf(stderr, "\r\033[K%s [%s] %lld/%lld  %s%s", what_.c_str(), bar.c_str(),
               static_cast<long long>(done), static_cast<long long>(total_), left, note.c_str());
}

namespace {
std::atomic<bool> g_interrupted{false};
struct sigaction g_previous;
void on_interrupt(int) {
  g_interrupted.store(true, std::memory_order_relaxed);
}
}  // namespace

InterruptFlag::InterruptFlag() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &g_previous);
}

InterruptFlag::~InterruptFlag() {
  sigaction(SIGINT, &g_previous, nullptr);
}

bool InterruptFlag::take() {
  return g_interrupted.exchange(false, std::memory_order_relaxed);
}

}  // namespace fovea::cli
