#include "compat/pages/peers.h"

#include <algorithm>
#include <set>

#include "attention/columns.h"
#include "base/check.h"
#include "compat/pages/example_layers.h"
#include "compat/pages/markdown.h"
#include "compat/pages/marks.h"
#include "compat/rows/peer_tables.h"

namespace fovea::docs {
namespace {

/// SGLang's five columns in our terms.
constexpr std::string_view kFiveColumns[] = {"native_page", "verify", "mla", "window", "spans"};

const BackendInfo* find_row(const BackendRegistry& backends, std::string_view name,
                            std::string_view version) {
  const BackendInfo* first = nullptr;
  for (const BackendRegistry::Entry& entry : backends.entries()) {
    if (entry.info->name != name) continue;
    if (entry.info->version == version) return entry.info;
    if (first == nullptr) first = entry.info;
  }
  return first;
}

const Column& column(std::string_view id) {
  return *std::ranges::find(columns(), id, &Column::id);
}

/// A document's value: a symbol for yes, no and "-".
std::string tick(std::string_view text) {
  if (text == "yes") return "✅";
  if (text == "no") return "❌";
  return text == "-" ? "–" : std::string(text);
}

/// Our mark, and the document's value where it differs.
std::string compared(Mark ours, std::string_view theirs) {
  const bool claimed = ours == Mark::proven || ours == Mark::proven_by_others || ours == Mark::declared;
  const bool same = ours != Mark::unstated && theirs == (claimed ? "yes" : "no");
  const std::string mark(symbol(ours));
  return same || theirs == "-" ? mark : mark + " (SGLang " + tick(theirs) + ")";
}

/// An MLA model uses another row of the family: its name is clearer than a mark.
std::string mla_cell(const BackendInfo& info, Mark ours, std::string_view theirs) {
  if (info.mla_sibling.empty()) return compared(ours, theirs);
  return "☑ as " + code(info.mla_sibling) + (theirs == "yes" ? "" : " (SGLang " + tick(theirs) + ")");
}

struct PeerName {
  std::string_view name, whose;
};

/// The choices of --attention-backend of SGLang's launch_server and of Mini-SGLang.
constexpr PeerName kPeerNames[] = {
    {"fa3", "SGLang"},
    {"fa4", "SGLang"},
    {"flashinfer", "SGLang"},
    {"triton", "SGLang"},
    {"torch_native", "SGLang"},
    {"flex_attention", "SGLang"},
    {"flashmla", "SGLang"},
    {"cutlass_mla", "SGLang"},
    {"trtllm_mla", "SGLang"},
    {"trtllm_mha", "SGLang"},
    {"tokenspeed_mla", "SGLang"},
    {"cutedsl_mla", "SGLang"},
    {"dsa", "SGLang"},
    {"nsa", "SGLang"},
    {"dsv4", "SGLang"},
    {"dual_chunk_flash_attn", "SGLang"},
    {"hpc_ops", "SGLang"},
    {"aiter", "SGLang"},
    {"wave", "SGLang"},
    {"intel_amx", "SGLang"},
    {"ascend", "SGLang"},
    {"intel_xpu", "SGLang"},
    {"compressed", "SGLang"},
    {"minicpm_flashattn", "SGLang"},
    {"minicpm_flashinfer", "SGLang"},
    {"fa", "Mini-SGLang"},
    {"fi", "Mini-SGLang"},
    {"trtllm", "Mini-SGLang"},
};

/// "`FLASH_ATTN (FA2)`; on sm_90 `FLASH_ATTN (FA3)`": where a device other than sm_80 gets another row.
std::string stands_for(std::string_view name, const AttentionSpec& spec) {
  const auto on = [&](int compute_capability) {
    return resolved(name, spec, {DeviceKind::cuda, compute_capability, ""});
  };
  const std::string usual = on(80);
  std::string out = code(usual);
  for (const int cc : {90, 100, 120})
    if (const std::string row = on(cc); row != usual)
      out += "; on sm_" + std::to_string(cc) + " " + code(row);
  return out;
}

void name_row(Table& table, std::string_view name, std::string_view whose) {
  const std::string usual = stands_for(name, llama_8b()), mla = stands_for(name, deepseek_v3());
  table.row({code(name), std::string(whose), usual, mla == usual ? "" : mla});
}

}  // namespace

std::string sglang_table(const BackendRegistry& backends, Proofs proofs) {
  const PeerTable& sglang = peer_table("sglang");
  FOVEA_CHECK(sglang.columns.size() == std::size(kFiveColumns));
  std::vector<std::string> titles = {"SGLang's name", "Here"};
  titles.insert(titles.end(), sglang.columns.begin(), sglang.columns.end());
  Table table(titles);
  const auto marks = [&](const BackendInfo& info, size_t column_number) {
    return column_marks(info, column(kFiveColumns[column_number]), proofs).overall();
  };
  for (const PeerRow& row : sglang.rows) {
    const BackendInfo* info = find_row(backends, row.backend, row.version);
    FOVEA_CHECK(info != nullptr);
    std::vector<std::string> cells = {std::string(row.title), code(info->label())};
    for (size_t i = 0; i < std::size(kFiveColumns); ++i)
      cells.push_back(kFiveColumns[i] == "mla" ? mla_cell(*info, marks(*info, i), row.cells[i])
                                               : compared(marks(*info, i), row.cells[i]));
    table.row(std::move(cells));
  }
  for (const BackendRegistry::Entry& entry : backends.entries()) {
    const BackendInfo& info = *entry.info;
    if (!info.absent.empty() ||
        std::ranges::find(sglang.rows, info.name, &PeerRow::backend) != sglang.rows.end())
      continue;  // only built backends without a row of SGLang's follow
    std::vector<std::string> cells = {"", code(info.name)};
    for (size_t i = 0; i < std::size(kFiveColumns); ++i)
      cells.emplace_back(symbol(marks(info, i)));
    table.row(std::move(cells));
  }
  return table.text();
}

std::string mini_sglang_table(const BackendRegistry& backends) {
  const PeerTable& theirs = peer_table("mini_sglang_pages");
  std::vector<std::string> titles = {"Mini-SGLang's name"};
  titles.insert(titles.end(), theirs.columns.begin(), theirs.columns.end());
  titles.insert(titles.end(), {"Here", "Page sizes here", "Preferred here"});
  Table table(titles);
  const auto add = [&](std::vector<std::string> cells, const BackendInfo& info) {
    cells.insert(cells.end(), {code(info.name), cell_text(info.capability, column("page_sizes")),
                               std::to_string(info.capability.preferred_page_size)});
    table.row(std::move(cells));
  };
  for (const PeerRow& row : theirs.rows) {
    std::vector<std::string> cells = {code(row.title)};
    cells.insert(cells.end(), row.cells.begin(), row.cells.end());
    const BackendInfo* info = find_row(backends, row.backend, row.version);
    FOVEA_CHECK(info != nullptr);
    add(std::move(cells), *info);
  }
  for (const BackendRegistry::Entry& entry : backends.entries())
    if (entry.info->absent.empty()) add(std::vector<std::string>(1 + theirs.columns.size()), *entry.info);
  return table.text();
}

std::string documented_table(std::string_view id) {
  const PeerTable& theirs = peer_table(id);
  std::vector<std::string> titles = {std::string(theirs.rows_are)};
  titles.insert(titles.end(), theirs.columns.begin(), theirs.columns.end());
  Table table(titles);
  for (const PeerRow& row : theirs.rows) {
    std::vector<std::string> cells = {std::string(row.title)};
    for (const std::string_view cell : row.cells)
      cells.push_back(tick(cell));
    table.row(std::move(cells));
  }
  return table.text();
}

Result<std::string> name_table(const BackendRegistry& backends) {
  Table table({"Name", "Project", "Maps to", "On an MLA model"});
  std::set<std::string_view> listed;
  for (const PeerName& peer : kPeerNames) {
    if (backends.find(peer.name) == nullptr)
      return invalid("no backend has the name " + std::string(peer.name) + " of " + std::string(peer.whose) +
                     "; add it as an alias of the row that it maps to");
    name_row(table, peer.name, peer.whose);
    listed.insert(peer.name);
  }
  for (const BackendRegistry::Entry& entry : backends.entries())
    for (const std::string_view alias : entry.info->aliases)
      if (listed.insert(alias).second) name_row(table, alias, "");
  return table.text();
}

}  // namespace fovea::docs
