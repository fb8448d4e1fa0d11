// fovea tune: measures alternatives of kernels that keep the bits, and writes the tune file.
#include "tune/tune.h"

#include <algorithm>
#include <cstdio>

#include "cli/json_io.h"
#include "cli/tuning.h"
#include "files/model_folder.h"

namespace fovea::cli {
namespace {

std::string join(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names)
    out += (out.empty() ? "" : ", ") + name;
  return out;
}

void print(const tune::LinearShape& shape, int64_t rows, int tried, const tune::TunedLinear& best) {
  const bool usual = best.choice.kernel == cuda::LinearKernel::automatic;
  std::printf("%-12s %6lld x %-6lld %5lld rows  %9.1f us  %9.1f us  %3d tried  %s\n",
              join(shape.names).c_str(), static_cast<long long>(shape.n), static_cast<long long>(shape.k),
              static_cast<long long>(rows), best.automatic_seconds * 1e6, best.seconds * 1e6, tried,
              usual ? "the usual one" : tune::describe(best.choice).c_str());
  std::fflush(stdout);
}

/// Keeps the choices of a file of the same device and build for other shapes.
void keep_others(const std::string& path, std::span<const tune::LinearShape> shapes, tune::TuneFile& out) {
  const auto old = tune::read_tune_file(path);
  if (!old || !why_not(*old, out.key).empty()) return;
  for (const tune::TunedLinear& tuned : old->linear) {
    const auto measured = [&](const tune::LinearShape& shape) {
      return shape.n == tuned.choice.n && shape.k == tuned.choice.k && shape.gated == tuned.choice.gated;
    };
    if (std::ranges::none_of(shapes, measured)) out.linear.push_back(tuned);
  }
}

}  // namespace

Status run_tune(const TuneFlags& flags) {
  FOVEA_TRY(device, read_device(flags.model.device));
  if (device.info.kind != DeviceKind::cuda)
    return invalid("fovea tune measures kernels of a GPU; give --device cuda on a machine that has one");
  const std::string path = flags.model.tune_file.empty() ? tune::default_tune_file() : flags.model.tune_file;
  if (path.empty() || path == "none")
    return invalid("there is no file to keep the choices in: give --tune-file FILE, or set HOME");
  FOVEA_TRY(config, engine_config(flags.model));
  FOVEA_TRY(dir, resolve_model_dir(config.model));
  FOVEA_TRY(model, load_model_config(dir));
  tune::TuneOptions options;
  options.device = device.index;
  options.dtype = config.dtype.value_or(model.dtype);
  options.most_rows = flags.max_rows;
  if (options.dtype == DType::f32)
    return invalid("float32 layers have one kernel; give --dtype bfloat16 or float16");
  if (!flags.model.json) options.report = print;
  const auto shapes = tune::linear_shapes(model);
  tune::TuneFile out;
  FOVEA_TRY(key, tune::key_of_device(device.index));
  out.key = std::move(key);
  FOVEA_TRY(measured, tune::measure(shapes, options));
  const size_t count = measured.size();
  out.linear = std::move(measured);
  keep_others(path, shapes, out);
  FOVEA_RETURN_IF_ERROR(write_tune_file(path, out));
  if (flags.model.json)
    std::fputs(tune_file_text(out).c_str(), stdout);
  else
    std::printf("%s: %zu choices for this model, %zu in all; other shapes and rows use the usual ones\n",
                path.c_str(), count, out.linear.size());
  return {};
}

}  // namespace fovea::cli
