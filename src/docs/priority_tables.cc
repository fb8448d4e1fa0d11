#include "docs/priority_tables.h"

#include <algorithm>
#include <vector>

#include "attention/priorities.h"
#include "docs/markdown.h"

namespace fovea::docs {
namespace {

/// Devices, as --device names them, whose order is the same.
struct DeviceClass {
  std::vector<std::string> devices;
  std::vector<std::string_view> order;
};

std::vector<DeviceClass> device_classes(const AttentionSpec& spec) {
  std::vector<DeviceClass> classes;
  for (const std::string_view name :
       {"sm75", "sm80", "sm86", "sm89", "sm90", "sm100", "sm103", "sm120", "rocm", "npu", "xpu", "cpu"}) {
    const auto device = parse_device(name);
    if (!device) continue;
    const std::vector<std::string_view> order = priorities(*device, spec);
    auto at = std::ranges::find(classes, order, &DeviceClass::order);
    if (at == classes.end()) at = classes.insert(at, {{}, order});
    at->devices.emplace_back(name);
  }
  std::erase_if(classes, [](const DeviceClass& c) { return c.order.empty(); });
  return classes;
}

}  // namespace

std::string priority_table(const AttentionSpec& spec) {
  const std::vector<DeviceClass> classes = device_classes(spec);
  std::vector<std::string> titles = {"Priority"};
  size_t longest = 0;
  for (const DeviceClass& c : classes) {
    titles.push_back(join(c.devices));
    longest = std::max(longest, c.order.size());
  }
  Table table(titles);
  for (size_t i = 0; i < longest; ++i) {
    std::vector<std::string> cells = {std::to_string(i + 1)};
    for (const DeviceClass& c : classes)
      cells.push_back(i < c.order.size() ? code(c.order[i]) : "");
    table.row(std::move(cells));
  }
  return table.text();
}

}  // namespace fovea::docs
