// fovea pull: a model from the hub into the local cache, with a bar where a person looks.
#include "cli/pull.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "files/model_folder.h"
#include "fovea/result.h"
#include "hub/pull.h"

namespace fovea::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// "1.2 GiB"
std::string amount(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit)
    value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
  return text;
}

class Bar {
 public:
  explicit Bar(bool terminal) : terminal_(terminal) {}
  ~Bar() { clear(); }

  void show(const hub::PullProgress& now) {
    if (!now.finished.empty()) {
      clear();
      std::fprintf(stderr, "%d of %d  %s\n", now.files, now.total_files, now.finished.c_str());
    }
    if (!terminal_ || now.total_bytes == 0) return;
    constexpr int kWidth = 30;
    const double share = static_cast<double>(now.bytes) / static_cast<double>(now.total_bytes);
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    const double rate = seconds > 0.5 ? static_cast<double>(now.new_bytes) / seconds : 0;
    std::string line = "[";
    for (int i = 0; i < kWidth; ++i)
      line += i < static_cast<int>(share * kWidth) ? '#' : '.';
    line += "] " + std::to_string(static_cast<int>(share * 100)) + "%  " + amount(now.bytes) + " of " +
            amount(now.total_bytes);
    if (rate > 0) {
      const double left = static_cast<double>(now.total_bytes - now.bytes) / rate;
      line += "  " + amount(static_cast<int64_t>(rate)) + "/s";
      if (left < 360'000) line += "  " + std::to_string(static_cast<int>(left)) + " s left";
    }
    std::fprintf(stderr, "\r%s\x1b[K", line.c_str());
    drawn_ = true;
  }

 private:
  void clear() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
  }

  const bool terminal_;
  bool drawn_ = false;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace

Status run_pull(const PullFlags& flags) {
  hub::PullRequest request;
  request.id = flags.model;
  request.revision = flags.revision;
  request.all = flags.all;
  request.jobs = flags.jobs;
  request.token = variable("HF_TOKEN");
  request.cache = hub_cache_folder();
  if (std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty()) {
    while (endpoint.ends_with('/'))
      endpoint.pop_back();
    if (!endpoint.starts_with("http://") && !endpoint.starts_with("https://"))
      return invalid("HF_ENDPOINT is " + endpoint + "; it must begin with https:// or http://");
    request.endpoint = std::move(endpoint);
  }
  for (const char c : request.token)
    if (static_cast<unsigned char>(c) <= 0x20 || static_cast<unsigned char>(c) >= 0x7F)
      return invalid("HF_TOKEN has a character that a token can't have; set it to the token alone");
  Bar bar(::isatty(STDERR_FILENO) != 0);
  request.progress = [&bar](const hub::PullProgress& now) { bar.show(now); };
  FOVEA_TRY(folder, hub::pull(request));
  std::printf("%s\n", folder.c_str());
  return {};
}

}  // namespace fovea::cli
