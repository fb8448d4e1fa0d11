#pragma once
// Tables of SGLang's and Mini-SGLang's documents and code in their own wording, for display beside our
// tables.
#include <span>
#include <string_view>
#include <vector>

namespace fovea {

struct PeerRow {
  std::string_view title;                    ///< the document's: "FA3", "trtllm"
  std::string_view backend = {};             ///< our name; empty = none
  std::string_view version = {};             ///< ours, if the row describes one version
  std::vector<std::string_view> cells = {};  ///< per column: "yes", "no", "-" (not mentioned), or a text
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
/// The table with this id, which must exist.
const PeerTable& peer_table(std::string_view id);

}  // namespace fovea
