#include "plugin/library.h"

#include <cstring>

#include "base/sized_struct.h"
#include "device/gpu.h"
#include "plugin/convert.h"
#include "plugin/enums.h"

namespace fovea::plugin {
namespace {

constexpr size_t kBackendSize1 = 120;  // size in the first release of version 1
static_assert(sizeof(fovea_backend) == kBackendSize1);

constexpr std::string_view kNotCompiled =
    "this program was built without CUDA; build it with FOVEA_BUILD_CUDA=1 ./run.sh";

Status check_functions(const fovea_backend& f, const BackendInfo& info) {
  const struct {
    bool there;
    const char* name;
  } needed[] = {{f.create != nullptr, "create"},
                {f.destroy != nullptr, "destroy"},
                {f.workspace_bytes != nullptr, "workspace_bytes"},
                {f.plan != nullptr, "plan"},
                {f.destroy_plan != nullptr, "destroy_plan"},
                {f.forward != nullptr, "forward"}};
  for (const auto& function : needed)
    if (!function.there) return invalid("fovea_backend->" + std::string(function.name) + " is null");
  const bool all = f.graph_workspace_bytes && f.plan_for_capture && f.plan_for_replay;
  if (info.capability.graph != GraphSupport::never && !all)
    return invalid("the table claims graphs " + std::string(to_string(info.capability.graph)) +
                   ", which needs graph_workspace_bytes, plan_for_capture and plan_for_replay: one is null");
  return {};
}

/// Calls the library's supports() during validation.
std::optional<Reason> ask(const fovea_backend& functions, std::string_view name, const AttentionSpec& spec,
                          const DeviceInfo& device) {
  // Refused by the table with other reasons; the ABI may have no number for it.
  if (to_abi(abi_kv_dtypes(), resolve(spec.kv_dtype, spec.dtype)) < 0 ||
      to_abi(abi_devices(), device.kind) < 0)
    return std::nullopt;
  const fovea_backend_spec s = to_abi(spec, spec.page_size);
  const fovea_backend_device d = to_abi(device);
  Text reason, fix;
  const int32_t code = functions.supports(&s, &d, reason.target(), fix.target());
  if (code == FOVEA_BACKEND_OK) return std::nullopt;
  std::string text = reason.line();
  if (text.empty()) text = "combination not supported by " + std::string(name);
  return Reason{std::move(text), fix.line()};
}

}  // namespace

Result<std::unique_ptr<Library>> Library::create(const fovea_backend* given, const std::string& file) {
  FOVEA_TRY(functions, read_struct(given, fovea_backend{}, kBackendSize1, "fovea_backend"));
  auto library = std::make_unique<Library>();
  library->functions_ = functions;
  FOVEA_TRY(row, read_table(functions.table));
  library->row_ = std::move(row);
  BackendInfo& info = library->row_->info;
  FOVEA_RETURN_IF_ERROR(check_functions(functions, info));
  info.library = library->row_->keep(file);
  if (info.capability.device == DeviceKind::cuda && !cuda_built()) info.absent = kNotCompiled;
  if (functions.supports != nullptr)
    info.supports_combination = [functions, name = info.name](const AttentionSpec& spec,
                                                              const DeviceInfo& device) {
      return ask(functions, name, spec, device);
    };
  return library;
}

std::string Text::line() const {
  std::string out(text_, ::strnlen(text_, sizeof text_));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return out;
}

Status status_of(int32_t code, std::string_view name, const char* function, const Text& text) {
  if (code == FOVEA_BACKEND_OK) return {};
  std::string message = text.line();
  if (message.empty())
    message =
        std::string(function) + "() failed with status " + std::to_string(code) + " and without a message";
  message = std::string(name) + ": " + message;
  switch (code) {
    case FOVEA_BACKEND_INVALID_ARGUMENT: return Error{ErrorCode::invalid_argument, message};
    case FOVEA_BACKEND_UNSUPPORTED: return Error{ErrorCode::unsupported, message};
    case FOVEA_BACKEND_OUT_OF_MEMORY: return Error{ErrorCode::out_of_memory, message};
    default: return Error{ErrorCode::internal, message};
  }
}

}  // namespace fovea::plugin
