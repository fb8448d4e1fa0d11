#include "tune/tune_file.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "files/json_fields.h"
#include "files/text_file.h"

namespace fovea::tune {
namespace {

namespace fs = std::filesystem;
using cuda::ClusterShare;
using cuda::LinearChoice;
using cuda::LinearKernel;
using nlohmann::json;

constexpr int64_t kFormat = 1;
/// Raised when kernels change so that older measurements say nothing.
constexpr int kRevision = 1;
constexpr size_t kMostBytes = 4 << 20, kMostEntries = 8192;
constexpr int64_t kMostSide = int64_t{1} << 30;

constexpr std::pair<LinearKernel, const char*> kKernels[] = {
    {LinearKernel::automatic, "automatic"}, {LinearKernel::stream, "stream"}, {LinearKernel::tile, "tile"}};
constexpr std::pair<ClusterShare, const char*> kShares[] = {
    {ClusterShare::none, "none"}, {ClusterShare::x, "x"}, {ClusterShare::weights, "weights"}};

template <class Names, class T>
const char* name_in(const Names& names, T value) {
  for (const auto& [named, name] : names)
    if (named == value) return name;
  return "";
}

/// Sets `out` if the key is there; another name than those listed is an error.
template <class Names, class T>
void read_name(Fields& fields, const char* key, const Names& names, T& out) {
  if (!fields.has(key)) return;
  const std::string given = fields.string(key, "");
  std::string allowed;
  for (const auto& [value, name] : names) {
    if (given == name) {
      out = value;
      return;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(name);
  }
  fields.refuse(key, allowed + " are allowed");
}

TunedLinear read_linear(Fields& f) {
  TunedLinear out;
  LinearChoice& c = out.choice;
  c.n = f.integer("n", 1, kMostSide);
  c.k = f.integer("k", 1, kMostSide);
  c.gated = f.boolean("gated", false);
  c.min_rows = f.integer("min_rows", 1, kMostSide);
  c.max_rows = f.integer("max_rows", c.min_rows, kMostSide);
  read_name(f, "kernel", kKernels, c.kernel);
  if (f.has("share")) {
    c.options.share = ClusterShare::none;
    read_name(f, "share", kShares, *c.options.share);
  }
  if (f.has("halves")) c.options.halves = f.boolean("halves", false);
  if (f.has("groups")) c.options.groups = f.small("groups", 1, 2);
  if (f.has("units")) c.options.units = f.small("units", 1, 16);
  c.options.raster = f.small("raster", 1, 1024, c.options.raster);
  out.seconds = f.number("us", 0, 1e9, 0) * 1e-6;
  out.automatic_seconds = f.number("automatic_us", 0, 1e9, 0) * 1e-6;
  return out;
}

json to_json(const TunedLinear& tuned) {
  const LinearChoice& c = tuned.choice;
  json out = {{"n", c.n},
              {"k", c.k},
              {"gated", c.gated},
              {"min_rows", c.min_rows},
              {"max_rows", c.max_rows},
              {"kernel", name_in(kKernels, c.kernel)},
              {"us", tuned.seconds * 1e6},
              {"automatic_us", tuned.automatic_seconds * 1e6}};
  if (c.options.share) out["share"] = name_in(kShares, *c.options.share);
  if (c.options.halves) out["halves"] = *c.options.halves;
  if (c.options.groups) out["groups"] = *c.options.groups;
  if (c.options.units) out["units"] = *c.options.units;
  if (c.options.raster != cuda::WgmmaOptions().raster) out["raster"] = c.options.raster;
  return out;
}

std::string absolute_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value == '/' ? value : "";
}

}  // namespace

std::string default_tune_file() {
  if (const std::string cache = absolute_variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/fovea/tune.json";
  const std::string home = absolute_variable("HOME");
  return home.empty() ? "" : home + "/.cache/fovea/tune.json";
}

std::string build_name() {
  return "fovea " FOVEA_VERSION ", kernels " + std::to_string(kRevision);
}

Result<TuneFile> parse_tune_file(const std::string& text, const std::string& path) {
  FOVEA_TRY(object, parse_json_object(text, path));
  Status status;
  Fields fields(object, path, status);
  fields.integer("fovea_tune", kFormat, kFormat);
  TuneFile out;
  out.key.device = fields.string("device", "");
  out.key.build = fields.string("build", "");
  out.key.multiprocessors = fields.small("multiprocessors", 1, 1 << 16);
  out.key.driver = fields.small("driver", 1, 1 << 30);
  if (const json* list = fields.find("linear"); status.ok() && list != nullptr) {
    if (!list->is_array() || list->size() > kMostEntries)
      return invalid(path + ": linear is not a list of at most " + std::to_string(kMostEntries) +
                     " choices; run fovea tune again");
    for (const json& entry : *list) {
      if (!entry.is_object())
        return invalid(path + ": linear has an entry that is not an object; run fovea tune again");
      Fields nested(entry, path + ": linear", status);
      out.linear.push_back(read_linear(nested));
      if (!status) break;
    }
  }
  FOVEA_RETURN_IF_ERROR(status);
  return out;
}

Result<TuneFile> read_tune_file(const std::string& path) {
  FOVEA_TRY(text, read_text_file(path, kMostBytes));
  return parse_tune_file(text, path);
}

std::string why_not(const TuneFile& file, const TuneKey& key) {
  if (file.key.device != key.device || file.key.multiprocessors != key.multiprocessors)
    return "it is of " + file.key.device + " with " + std::to_string(file.key.multiprocessors) +
           " multiprocessors; this device is " + key.device + " with " + std::to_string(key.multiprocessors);
  if (file.key.driver != key.driver)
    return "it was measured with a driver for CUDA " + std::to_string(file.key.driver) +
           "; this one is for " + std::to_string(key.driver);
  if (file.key.build != key.build) return "it was measured by " + file.key.build + "; this is " + key.build;
  return "";
}

std::string tune_file_text(const TuneFile& file) {
  json out = {
      {"fovea_tune", kFormat},     {"device", file.key.device}, {"multiprocessors", file.key.multiprocessors},
      {"driver", file.key.driver}, {"build", file.key.build},   {"linear", json::array()}};
  for (const TunedLinear& tuned : file.linear)
    out["linear"].push_back(to_json(tuned));
  return out.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Status write_tune_file(const std::string& path, const TuneFile& file) {
  std::error_code error;
  if (const fs::path folder = fs::path(path).parent_path(); !folder.empty())
    fs::create_directories(folder, error);
  // Renamed at the end: a command that starts meanwhile reads the old file or the new one.
  const std::string partial = path + ".partial", text = tune_file_text(file);
  {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(std::fopen(partial.c_str(), "wb"), std::fclose);
    if (!out || std::fwrite(text.data(), 1, text.size(), out.get()) != text.size() ||
        std::fflush(out.get()) != 0)
      return io_error(partial + " can't be written; is its folder there, and the disk not full?");
  }
  fs::rename(partial, path, error);
  if (error) return io_error(path + " can't be replaced: " + error.message());
  return {};
}

std::string describe(const LinearChoice& c) {
  std::string out = std::to_string(c.n) + " x " + std::to_string(c.k) + (c.gated ? " gated" : "") + ", " +
                    (c.min_rows == c.max_rows ? "" : std::to_string(c.min_rows) + " to ") +
                    std::to_string(c.max_rows) + (c.max_rows == 1 ? " row: " : " rows: ") +
                    name_in(kKernels, c.kernel);
  if (c.options.groups) out += ", " + std::to_string(*c.options.groups) + " warpgroups";
  if (c.options.units) out += ", " + std::to_string(*c.options.units) + " units a part";
  if (c.options.halves) out += *c.options.halves ? ", half panels" : ", whole panels";
  if (c.options.share) out += std::string(", clusters share ") + name_in(kShares, *c.options.share);
  if (c.options.raster != cuda::WgmmaOptions().raster)
    out += ", " + std::to_string(c.options.raster) + " row tiles together";
  return out;
}

}  // namespace fovea::tune
