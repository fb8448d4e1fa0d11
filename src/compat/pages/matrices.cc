#include "compat/pages/matrices.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <vector>

#include "attention/columns.h"
#include "base/check.h"
#include "compat/pages/markdown.h"
#include "compat/pages/marks.h"
#include "compat/rows/rows.h"

namespace fovea::docs {
namespace {

const Column& column(std::string_view id) {
  const auto at = std::ranges::find(columns(), id, &Column::id);
  FOVEA_CHECK(at != columns().end());
  return *at;
}

/// Its one value is "yes".
bool is_yes_or_no(const ColumnMarks& marks) {
  return marks.values.size() == 1 && marks.values.front().text == "yes";
}

bool is_built(const BackendInfo& info) {
  return info.absent.empty();
}

/// A claim as one cell: its mark alone, or its mark and what is claimed.
std::string cell(const BackendInfo& info, const Column& column, Proofs proofs) {
  const ColumnMarks marks = column_marks(info, column, proofs);
  std::string mark(symbol(marks.overall()));
  if (is_yes_or_no(marks)) return mark;
  const std::string text = cell_text(info.capability, column);
  if (!is_built(info)) return text == "-" ? "–" : text;  // all declared: marks would be noise
  return marks.overall() == Mark::refused ? text : mark + " " + text;
}

/// The claim of a built backend's document where it differs from ours; empty = the same.
std::string documented_cell(const BackendInfo& info, const Column& column) {
  const std::string theirs = cell_text(*info.documented, column);
  if (theirs == cell_text(info.capability, column) || theirs == "-") return {};
  return theirs == "yes" ? "✅" : theirs == "no" ? "❌" : theirs;
}

/// Rows of one name are adjacent, in order of registration; built backends come first.
std::vector<const BackendInfo*> rows(const BackendRegistry& backends,
                                     const std::function<bool(const BackendInfo&)>& wanted) {
  std::vector<const BackendInfo*> out;
  for (const BackendRegistry::Entry& entry : backends.entries())
    if (wanted(*entry.info)) out.push_back(entry.info);
  std::ranges::stable_sort(out, [](const BackendInfo* a, const BackendInfo* b) {
    if (is_built(*a) != is_built(*b)) return is_built(*a);
    return !is_built(*a) && a->name < b->name;
  });
  return out;
}

std::string vllm_table(std::span<const BackendInfo* const> infos, std::initializer_list<std::string_view> ids,
                       Proofs proofs) {
  std::vector<std::string> titles = {"Backend", "Version"};
  for (const std::string_view id : ids)
    titles.emplace_back(column(id).title);
  Table table(titles);
  for (const BackendInfo* info : infos) {
    std::vector<std::string> cells = {code(info->name), std::string(info->version)};
    for (const std::string_view id : ids)
      cells.push_back(cell(*info, column(id), proofs));
    table.row(std::move(cells));
    if (info->documented == nullptr) continue;
    std::vector<std::string> differs = {"*documented*", ""};
    for (const std::string_view id : ids)
      differs.push_back(documented_cell(*info, column(id)));
    table.row(std::move(differs));
  }
  return table.text();
}

/// Softmax over keys of a KV cache: the scope of vLLM's two tables.
bool has_softmax(const BackendInfo& info) {
  return !info.capability.head_dims.empty();
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1e", value);
  return text;
}

/// The mark, and the machines where the claim is proven: "✅ CPU".
std::string mark_and_place(Mark mark, const std::string& where) {
  return std::string(symbol(mark)) + (where.empty() ? "" : " " + where);
}

/// Each mark and where it is proven, with its values. A long list, which is a sample of a set, is replaced by
/// the name of the set.
std::string union_cell(const BackendInfo& info, const Column& column, Proofs proofs) {
  const ColumnMarks marks = column_marks(info, column, proofs);
  if (is_yes_or_no(marks)) return mark_and_place(marks.values.front().mark, marks.values.front().where);
  constexpr size_t kLongest = 60;
  std::map<std::pair<Mark, std::string>, std::vector<std::string>> groups;
  for (const ColumnMarks::Value& value : marks.values)
    groups[{value.mark, value.where}].push_back(value.text);
  std::vector<std::string> parts;
  for (const Mark mark : {Mark::proven, Mark::proven_by_others, Mark::declared, Mark::failed, Mark::refused})
    for (const auto& [key, values] : groups) {
      if (key.first != mark) continue;
      const std::string n = std::to_string(values.size());
      std::string text = join(values);
      if (text.size() > kLongest)
        text =
            mark == Mark::refused ? n + " others" : cell_text(info.capability, column) + " (" + n + " cells)";
      parts.push_back(mark_and_place(mark, key.second) + (key.second.empty() ? " " : ": ") + text);
    }
  return join(parts, "; ");
}

/// "AMD EPYC, avx2, avx512"; "NVIDIA H200, driver 580.95.05, CUDA 13.0".
std::string place_text(const conformance::Proof& proof) {
  return proof.device_name + ", " + (proof.driver.empty() ? proof.isa : "driver " + proof.driver);
}

std::string label_of(const conformance::BackendProof& backend) {
  return backend.name + (backend.version.empty() ? "" : " (" + backend.version + ")");
}

/// The row that was run, and those that claim the same with the same kernels.
std::string rows_of_proof(const conformance::Proof& proof, const conformance::BackendProof& backend) {
  std::string text = code(label_of(backend));
  for (const conformance::BackendProof& other : proof.backends)
    if (other.same_as == label_of(backend)) text += ", " + code(label_of(other));
  return text;
}

std::string flag_or_words(std::string_view text) {
  return text.starts_with('-') ? code(text) : std::string(text);
}

}  // namespace

std::string standard_table(const BackendRegistry& backends, Proofs proofs) {
  const auto infos = rows(backends, [](const BackendInfo& info) {
    return has_softmax(info) && !info.capability.features.has(Feature::mla);
  });
  return vllm_table(infos,
                    {"dtypes", "kv_dtypes", "page_sizes", "head_dims", "sink", "sink_tokens", "non_causal",
                     "spans", "dcp", "types", "compute_capability"},
                    proofs);
}

std::string mla_decode_table(const BackendRegistry& backends, Proofs proofs) {
  const auto infos =
      rows(backends, [](const BackendInfo& info) { return info.capability.features.has(Feature::mla); });
  return vllm_table(infos,
                    {"dtypes", "kv_dtypes", "page_sizes", "head_dims", "sink", "sparse", "spans", "dcp",
                     "types", "compute_capability"},
                    proofs);
}

std::string union_table(const BackendRegistry& backends, Proofs proofs) {
  const auto infos = rows(backends, is_built);
  std::vector<std::string> titles = {"Column"};
  for (const BackendInfo* info : infos) {
    const bool alone = std::ranges::count(infos, info->name, &BackendInfo::name) == 1;
    titles.push_back(code(alone ? std::string(info->name) : info->label()));
  }
  Table table(titles);
  for (const Column& column : columns()) {
    std::vector<std::string> cells = {std::string(column.title)};
    for (const BackendInfo* info : infos)
      cells.push_back(union_cell(*info, column, proofs));
    table.row(std::move(cells));
  }
  return table.text();
}

std::string mla_prefill_table() {
  Table table({"Backend", "Name", "Description", "Compute Cap.", "Enable", "Disable", "Notes"});
  for (const MlaPrefillRow& row : mla_prefill_rows())
    table.row({std::string(row.title), code(row.info.name), std::string(row.info.description),
               cell_text(row.info.capability, column("compute_capability")), flag_or_words(row.enable),
               flag_or_words(row.disable), std::string(row.notes)});
  return table.text();
}

std::string column_table() {
  Table table({"Column", "Id", "Meaning"});
  for (const Column& column : columns())
    table.row({"**" + std::string(column.title) + "**", code(column.id), std::string(column.description)});
  return table.text();
}

std::string built_table(const BackendRegistry& backends) {
  Table table({"Backend", "Also called", "Device", "What it is"});
  for (const BackendInfo* info : rows(backends, is_built)) {
    std::vector<std::string> names;
    for (const std::string_view alias : info->aliases)
      names.push_back(code(alias));
    table.row({code(info->name), join(names), std::string(to_string(info->capability.device)),
               std::string(info->description)});
  }
  return table.text();
}

std::string absent_table(const BackendRegistry& backends) {
  Table table({"Backend", "Version", "Also called", "Device", "Not in this build"});
  for (const BackendInfo* info : rows(backends, [](const BackendInfo& i) { return !is_built(i); })) {
    std::vector<std::string> names;
    for (const std::string_view alias : info->aliases)
      names.push_back(code(alias));
    std::string device(to_string(info->capability.device));
    if (info->capability.device == DeviceKind::cuda)
      device += " " + cell_text(info->capability, column("compute_capability"));
    table.row({code(info->name), std::string(info->version), join(names), device, std::string(info->absent)});
  }
  return table.text();
}

std::string partner_list(const BackendRegistry& backends) {
  std::vector<std::string> each;
  for (const BackendRegistry::Entry& entry : backends.entries())
    if (!entry.info->prefill_partner.empty())
      each.push_back(code(entry.info->label()) + " (" + code(entry.info->prefill_partner) + ")");
  return join(each);
}

std::string proof_table(const BackendRegistry& backends, Proofs proofs) {
  if (proofs.empty()) return "No proof file is committed yet; all claims are only declared.";
  Table table({"Backend", "Proven on", "Compiler", "Commit", "Date", "Proven", "By other kernels", "Refused",
               "Unasked", "Too few", "Failed", "Stale", "Cases", "Worst error of O", "of LSE"});
  for (const conformance::Proof& proof : proofs)
    for (const conformance::BackendProof& backend : proof.backends) {
      const auto count = [&](conformance::CellStatus status) {
        return std::to_string(std::ranges::count(backend.cells, status, &conformance::CellProof::status));
      };
      if (!backend.same_as.empty()) continue;
      double error = 0, lse_error = 0;
      for (const conformance::CellProof& cell : backend.cells) {
        error = std::max(error, cell.worst_error);
        lse_error = std::max(lse_error, cell.worst_lse_error);
      }
      table.row({rows_of_proof(proof, backend), place_text(proof), proof.compiler,
                 code((backend.commit.empty() ? proof.commit : backend.commit).substr(0, 12)),
                 backend.date.empty() ? proof.date : backend.date, count(conformance::CellStatus::proven),
                 count(conformance::CellStatus::other_kernels), count(conformance::CellStatus::refused),
                 count(conformance::CellStatus::unasked), count(conformance::CellStatus::too_few),
                 count(conformance::CellStatus::failed),
                 std::to_string(count_stale(backend, row_of(backend, backends))),
                 std::to_string(backend.cases), number(error), number(lse_error)});
    }
  return table.text();
}

std::string kernel_table(Proofs proofs) {
  struct Sum {
    int64_t kernels = 0, cases = 0, split = 0, least = 0;
  };
  Table table({"Backend", "On", "Kernels of", "Kind", "Instances reached", "Cases", "Of several splits",
               "Fewest cases of a cell on one instance"});
  for (const conformance::Proof& proof : proofs)
    for (const conformance::BackendProof& backend : proof.backends) {
      std::map<std::pair<std::string, std::string>, Sum> sums;  // by family and first word of the instance
      for (const conformance::KernelProof& k : backend.kernels) {
        Sum& sum = sums[{k.family, k.instance.substr(0, k.instance.find(' '))}];
        ++sum.kernels;
        sum.cases += k.cases;
        sum.split += k.split_cases;
        sum.least = sum.least == 0 ? k.least : std::min(sum.least, k.least);
      }
      for (const auto& [key, sum] : sums) {
        const bool own = std::ranges::find(backend.families, key.first) != backend.families.end();
        table.row({rows_of_proof(proof, backend), place_of(proof),
                   code(key.first) + (own ? "" : " (another family's)"), key.second,
                   std::to_string(sum.kernels), std::to_string(sum.cases), std::to_string(sum.split),
                   std::to_string(sum.least)});
      }
    }
  return table.text();
}

}  // namespace fovea::docs
