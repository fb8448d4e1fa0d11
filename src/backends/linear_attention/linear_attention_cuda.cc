#include "backends/linear_attention/cuda.h"
#include "fovea/result.h"

namespace fovea {
namespace {

Error absent() {
  return unsupported("device is cuda, and linear attention has no kernels for it yet; compute it on the CPU");
}

}  // namespace

Status lightning_attention_cuda(const LightningAttention&, Stream&) {
  return absent();
}

Status gated_delta_rule_cuda(const GatedDeltaRule&, Stream&) {
  return absent();
}

Status hstu_attention_cuda(const HstuAttention&, Stream&) {
  return absent();
}

}  // namespace fovea
