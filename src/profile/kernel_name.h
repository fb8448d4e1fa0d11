#pragma once
#include <string>
#include <string_view>

namespace fovea::profile {

/// A kernel's mangled name as it is read: without return type, namespaces, arguments and types of one value;
/// template arguments stay. Other names are returned as they are.
std::string short_kernel_name(std::string_view name);

}  // namespace fovea::profile
