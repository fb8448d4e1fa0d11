#include "profile/nvtx.h"

#include <nvtx3/nvToolsExt.h>

#include "profile/active.h"

namespace fovea::profile {
namespace {

nvtxDomainHandle_t g_domain = nullptr;

}  // namespace

void attach_nvtx() {
  if (g_domain != nullptr) return;
  g_domain = nvtxDomainCreateA("fovea");  // null where no tool is attached
  if (g_domain != nullptr) g_watched.fetch_or(kNvtx);
}

void push_nvtx(const char* name, int layer) {
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  if (layer >= 0) {
    event.payloadType = NVTX_PAYLOAD_TYPE_INT32;
    event.payload.iValue = layer;
  }
  nvtxDomainRangePushEx(g_domain, &event);
}

void pop_nvtx() {
  nvtxDomainRangePop(g_domain);
}

}  // namespace fovea::profile
