#include "docs/peers.h"

#include <algorithm>
#include <set>

#include "attention/columns.h"
#include "docs/markdown.h"
#include "docs/marks.h"
#include "docs/scenes.h"

namespace fovea::docs {
namespace {

constexpr std::string_view kFiveColumns[] = {"native_page", "verify", "mla", "window", "spans"};

struct SglangRow {
  std::string_view title;
  std::string_view backend, version;  ///< ours
  std::string_view ticks;             ///< 'y' or 'n' in each of kFiveColumns, of SGLang's later page
};

/// SGLang's docs/backend/attention_backend.md of summer 2025, whose Wave row is of a later page.
constexpr SglangRow kSglang[] = {
    {"FlashInfer", "FLASHINFER", "Native", "nyyyy"},
    {"FA3", "FLASH_ATTN", "FA3", "yyyyy"},
    {"Triton", "TRITON_ATTN", "", "nyyyn"},
    {"Torch Native", "TORCH_NATIVE", "", "nnnnn"},
    {"FlashMLA", "FLASHMLA", "", "yyynn"},
    {"TRTLLM MLA", "TRTLLM_MLA", "", "ynyyn"},
    {"Ascend", "ASCEND", "", "ynnnn"},
    {"Wave", "WAVE", "", "ynnnn"},
};

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

/// Our mark, and SGLang's tick where it says something else.
std::string compared(Mark ours, bool theirs) {
  const bool claimed = ours == Mark::proven || ours == Mark::declared;
  const std::string mark(symbol(ours));
  if (ours != Mark::unstated && claimed == theirs) return mark;
  return mark + " (SGLang " + (theirs ? "✅" : "❌") + ")";
}

/// An MLA model takes another row of the family: its name says yes better than a mark.
std::string mla_cell(const BackendInfo& info, Mark ours, bool theirs) {
  if (info.mla_sibling.empty()) return compared(ours, theirs);
  return "☑ as " + code(info.mla_sibling) + (theirs ? "" : " (SGLang ❌)");
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
    {"fa", "Mini-SGLang"},
    {"fi", "Mini-SGLang"},
    {"trtllm", "Mini-SGLang"},
};

/// "`FLASH_ATTN (FA2)`; on sm_90 `FLASH_ATTN (FA3)`": where another device than sm_80 means another row.
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
  Table table(
      {"SGLang's name", "Here", "Page Size > 1", "Spec Decoding", "MLA", "Sliding Window", "MultiModal"});
  for (const SglangRow& row : kSglang) {
    const BackendInfo* info = find_row(backends, row.backend, row.version);
    if (info == nullptr) continue;
    std::vector<std::string> cells = {std::string(row.title), code(info->name)};
    if (!row.version.empty()) cells.back() += " " + std::string(row.version);
    for (size_t i = 0; i < std::size(kFiveColumns); ++i) {
      const Mark ours = column_marks(*info, column(kFiveColumns[i]), proofs).overall();
      const bool theirs = row.ticks[i] == 'y';
      cells.push_back(kFiveColumns[i] == "mla" ? mla_cell(*info, ours, theirs) : compared(ours, theirs));
    }
    table.row(std::move(cells));
  }
  // Backends of this build that SGLang has no row for.
  for (const BackendRegistry::Entry& entry : backends.entries()) {
    const BackendInfo& info = *entry.info;
    if (!info.absent.empty() ||
        std::ranges::find(kSglang, info.name, &SglangRow::backend) != std::end(kSglang))
      continue;
    std::vector<std::string> cells = {"", code(info.name)};
    for (const std::string_view id : kFiveColumns)
      cells.emplace_back(symbol(column_marks(info, column(id), proofs).overall()));
    table.row(std::move(cells));
  }
  return table.text();
}

std::string mini_sglang_table(const BackendRegistry& backends) {
  struct Row {
    std::string_view name, backend, version, documented;
  };
  constexpr Row kRows[] = {
      {"fa", "FLASH_ATTN", "FA3", "any; 1 recommended"},
      {"fi", "FLASHINFER", "Native", "1 only: the kernel's view; the flag takes any"},
      {"trtllm", "TRTLLM_MHA", "", "16, 32, 64; another is changed to 64"},
  };
  const Column& pages = column("page_sizes");
  Table table({"Mini-SGLang's name", "It documents", "Here", "Page sizes here", "Preferred"});
  for (const Row& row : kRows) {
    const BackendInfo* info = find_row(backends, row.backend, row.version);
    if (info == nullptr) continue;
    table.row({code(row.name), std::string(row.documented), code(info->name),
               cell_text(info->capability, pages), std::to_string(info->capability.preferred_page_size)});
  }
  for (const BackendRegistry::Entry& entry : backends.entries())
    if (entry.info->absent.empty())
      table.row({"", "", code(entry.info->name), cell_text(entry.info->capability, pages),
                 std::to_string(entry.info->capability.preferred_page_size)});
  return table.text();
}

std::string peer_priority_table() {
  Table table({"Device", "SGLang, other models", "SGLang, MLA", "Mini-SGLang"});
  table.row({"Blackwell (sm_10x)", "`trtllm_mha`", "`flashinfer`; `trtllm_mla` for DeepSeek V3", "`trtllm`"});
  table.row({"Hopper (sm_90)", "`fa3`", "`fa3`", "`fa,fi`"});
  table.row(
      {"other NVIDIA GPUs", "`flashinfer`; `triton` with sinks, or without the library", "`triton`", "`fi`"});
  table.row({"AMD", "`aiter`", "`aiter` with 16 or 128 heads, else `triton`", ""});
  table.row({"CPU", "`intel_amx`; `torch_native` without AMX", "", ""});
  return table.text();
}

Result<std::string> name_table(const BackendRegistry& backends) {
  Table table({"Name", "Whose", "Stands for", "On an MLA model"});
  std::set<std::string_view> listed;
  for (const PeerName& peer : kPeerNames) {
    if (backends.find(peer.name) == nullptr)
      return invalid("no backend has the name " + std::string(peer.name) + " of " + std::string(peer.whose) +
                     "; give it to the row that it stands for");
    name_row(table, peer.name, peer.whose);
    listed.insert(peer.name);
  }
  for (const BackendRegistry::Entry& entry : backends.entries())
    for (const std::string_view alias : entry.info->aliases)
      if (listed.insert(alias).second) name_row(table, alias, "");
  return table.text();
}

}  // namespace fovea::docs
