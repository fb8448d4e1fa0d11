#include "flex/kernel_cache.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/digest.h"

namespace fovea::flex {
namespace {

constexpr std::string_view kMagic = "fovea flex kernel 1";

std::string hex(uint64_t x) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(x));
  return text;
}

std::string path_of(const std::string& folder, const KernelKey& key) {
  return folder + "/" + hex(key.hash) + "-" + key.arch + ".cubin";
}

/// The lines before the code.
std::string header(const KernelKey& key, std::string_view cubin) {
  return std::string(kMagic) + "\n" + key.version + "\n" + key.arch + "\n" + hex(key.hash) + "\n" +
         std::to_string(cubin.size()) + " " + hex(Digest().add(cubin).value()) + "\n";
}

std::string absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && value[0] == '/' ? value : "";
}

}  // namespace

std::string kernel_cache_folder() {
  if (const std::string cache = absolute_variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/fovea/flex";
  if (const std::string home = absolute_variable("HOME"); !home.empty()) return home + "/.cache/fovea/flex";
  return "";
}

std::optional<std::string> read_kernel(const std::string& folder, const KernelKey& key, std::string& note) {
  if (folder.empty()) return std::nullopt;
  const std::string path = path_of(folder, key);
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream all;
  all << file.rdbuf();
  const std::string bytes = std::move(all).str();
  std::istringstream lines(bytes.substr(0, 512));
  std::string magic, version, arch, hash, rest;
  std::getline(lines, magic);
  std::getline(lines, version);
  std::getline(lines, arch);
  std::getline(lines, hash);
  std::getline(lines, rest);
  const auto ignored = [&](const std::string& why) {
    note = path + " is ignored: " + why + "; the kernel is compiled again";
    return std::nullopt;
  };
  if (magic != kMagic) return ignored("it is not a kernel that this version wrote");
  if (version != key.version)
    return ignored("it is of version " + version.substr(0, 40) + ", not " + key.version);
  if (arch != key.arch) return ignored("it is for " + arch.substr(0, 40) + ", not " + key.arch);
  const size_t begin = magic.size() + version.size() + arch.size() + hash.size() + rest.size() + 5;
  if (begin >= bytes.size()) return ignored("it is cut off");
  std::string cubin = bytes.substr(begin);
  if (bytes.substr(0, begin) != header(key, cubin)) return ignored("it is corrupt");
  return cubin;
}

void write_kernel(const std::string& folder, const KernelKey& key, std::string_view cubin,
                  std::string& note) {
  if (folder.empty()) return;
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  const std::string path = path_of(folder, key), part = path + "." + std::to_string(getpid());
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    file << header(key, cubin) << cubin;
    if (!file.flush()) note = part + " can't be written; the kernel is compiled again next time";
  }
  std::filesystem::rename(part, path, failed);
  if (failed) std::filesystem::remove(part, failed);
}

}  // namespace fovea::flex
