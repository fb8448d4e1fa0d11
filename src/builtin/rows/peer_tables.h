#pragma once
// What SGLang's and Mini-SGLang's documents and code say, as they say it, to be shown beside our tables.
#include <span>
#include <string_view>
#include <vector>

namespace fovea {

struct PeerRow {
  std::string_view title;                    ///< the document's: "FA3", "trtllm"
  std::string_view backend = {};             ///< our name; empty = none
  std::string_view version = {};             ///< ours, where the row is of one version
  std::vector<std::string_view> cells = {};  ///< one for each column: "yes", "no", "-" (not said), or a text
};

struct PeerTable {
  std::string_view
      id;  ///< "sglang", "sglang_mha", "sglang_mla", "mini_sglang_pages", "mini_sglang", "orders"
  std::string_view title;
  std::string_view rows_are;  ///< title of the first column
  std::vector<std::string_view> columns;
  std::vector<PeerRow> rows;
};

std::span<const PeerTable> peer_tables();
/// By id; one that is not there is our own bug.
const PeerTable& peer_table(std::string_view id);

}  // namespace fovea
