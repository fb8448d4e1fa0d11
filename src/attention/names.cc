#include "fovea/attention.h"

namespace fovea {

std::string_view to_string(Phase phase) {
  return phase == Phase::prefill ? "prefill" : "decode";
}

std::string_view to_string(AttentionType type) {
  switch (type) {
    case AttentionType::decoder: return "decoder";
    case AttentionType::encoder: return "encoder";
    case AttentionType::encoder_only: return "encoder_only";
    case AttentionType::encoder_decoder: return "encoder_decoder";
  }
  return "?";
}

std::string_view to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cpu: return "cpu";
    case DeviceKind::cuda: return "cuda";
    case DeviceKind::rocm: return "rocm";
    case DeviceKind::ascend: return "ascend";
  }
  return "?";
}

}  // namespace fovea
