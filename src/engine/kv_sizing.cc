#include "engine/kv_sizing.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

#include "fovea/result.h"

namespace fovea {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxPages = std::numeric_limits<int32_t>::max();  // page tables hold int32

std::optional<int64_t> parse(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

/// Reads a file that holds one number; nullopt for "max" or a missing file.
std::optional<int64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  if (!(file >> word)) return std::nullopt;
  return parse(word);
}

/// The number after `key` in a file of "key number" lines.
std::optional<int64_t> read_key(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name, number;
    if (words >> name >> number && name == key) return parse(number);
  }
  return std::nullopt;
}

/// Bytes left under the limit of the cgroup at `folder`; reclaimable page cache counts as free.
int64_t group_room(const std::string& folder, const char* limit_file, const char* usage_file,
                   const char* cache_key) {
  const auto limit = read_number(folder + "/" + limit_file);
  if (!limit) return kUnlimited;
  const int64_t used = read_number(folder + "/" + usage_file).value_or(0);
  const int64_t cache = read_key(folder + "/memory.stat", cache_key).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, used - cache));
}

/// The minimum over the cgroup at `path` and its ancestors.
int64_t groups_room(const std::string& mount, std::string path, const char* limit_file,
                    const char* usage_file, const char* cache_key) {
  int64_t room = kUnlimited;
  for (;;) {
    while (!path.empty() && path.back() == '/')
      path.pop_back();
    room = std::min(room, group_room(mount + path, limit_file, usage_file, cache_key));
    if (path.empty()) return room;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

int64_t cgroup_room(const std::string& root) {
  int64_t room = kUnlimited;
  std::ifstream file(root + "/proc/self/cgroup");  // lines "id:controllers:path"; v2 has "0::path"
  std::string line;
  while (std::getline(file, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      room = std::min(
          room, groups_room(root + "/sys/fs/cgroup", path, "memory.max", "memory.current", "inactive_file"));
    if (("," + controllers + ",").find(",memory,") != std::string::npos)
      room = std::min(room, groups_room(root + "/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                        "memory.usage_in_bytes", "total_inactive_file"));
  }
  return room;
}

std::string text_of(int64_t v) {
  return std::to_string(v);
}

}  // namespace

int64_t available_memory(const std::string& root) {
  int64_t bytes = kUnlimited;
  if (const auto kib = read_key(root + "/proc/meminfo", "MemAvailable:"); kib && *kib < (kUnlimited >> 10))
    bytes = *kib << 10;
  return std::min(bytes, cgroup_room(root));
}

Result<int64_t> choose_num_pages(const KvSizing& s) {
  // Without a window or an encoder, a shorter sequence needs fewer pages; a window or an encoder's rows set a
  // floor.
  const bool by_length = s.sequence_pages == (int64_t{s.max_seq_len} + s.page_size - 1) / s.page_size;
  const int64_t affordable = s.available / s.bytes_per_page;
  auto too_small = [&](int64_t pages, const std::string& what, const std::string& more) {
    std::string message =
        what + " holds " + text_of(pages * s.page_size) +
        " tokens, less than one sequence of the longest length (" + text_of(s.max_seq_len) +
        (by_length ? ")" : ") holds at a time (" + text_of(s.sequence_pages * s.page_size) + ")") + "; ";
    if (pages > 0 && by_length)
      message += "set the maximum sequence length to " + text_of(pages * s.page_size) + " or less, or ";
    return Error{ErrorCode::out_of_memory, message + more};
  };
  if (s.num_pages) {
    const int64_t pages = *s.num_pages;
    const std::string what =
        "KV cache of " + text_of(pages) + " pages of " + text_of(s.page_size) + " tokens";
    if (pages < 1 || pages > kMaxPages)
      return invalid(what + ": the number of pages must be 1 to " + text_of(kMaxPages));
    if (pages < s.sequence_pages)
      return too_small(pages, what, "raise the number of pages to " + text_of(s.sequence_pages));
    if (pages > affordable)
      return Error{ErrorCode::out_of_memory, what + " exceeds the " + text_of(s.available >> 20) +
                                                 " MiB of memory that are free; " + text_of(affordable) +
                                                 " pages would fit"};
    return pages;
  }
  if (!(s.memory_share > 0 && s.memory_share <= 1))
    return invalid("the KV cache's share of memory is " + std::to_string(s.memory_share) +
                   "; it must be above 0 and at most 1");
  const int64_t held = static_cast<int64_t>(s.memory_share * static_cast<double>(s.available) /
                                            static_cast<double>(s.bytes_per_page));
  // The running sequences cannot use more pages than this; further ones would only cache prefixes of finished
  // requests.
  const int64_t pages = std::min({held, s.max_running * s.sequence_pages, kMaxPages});
  if (pages < s.sequence_pages)
    return too_small(pages,
                     "KV cache in " + std::to_string(s.memory_share).substr(0, 4) + " of the " +
                         text_of(s.available >> 20) + " MiB of free memory",
                     "give it a larger share of memory");
  return pages;
}

}  // namespace fovea
