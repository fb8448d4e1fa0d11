#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace fovea {

/// `text` on one line and at most `limit` bytes long, for quoting a file's or a user's text in a message.
std::string printable(std::string_view text, size_t limit = 80);

}  // namespace fovea
