#include "compat/pages/devices.h"

#include "compat/pages/markdown.h"
#include "fovea/attention.h"

namespace fovea::docs {

std::string device_table() {
  Table table({"`--device`", "such as", "what it is", "shared memory of a block"});
  for (const std::string_view name : device_names()) {
    const DeviceInfo device = *parse_device(name);
    table.row({code(name), device.name, describe(device),
               device.shared_bytes == 0 ? "" : std::to_string(device.shared_bytes) + " bytes"});
  }
  return table.text();
}

}  // namespace fovea::docs
