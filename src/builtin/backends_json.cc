// Yes-or-no columns are true, false or null (the document does not mention it).
#include "builtin/backends_json.h"

#include <nlohmann/json.hpp>

#include "attention/columns.h"
#include "attention/priorities.h"
#include "compat/rows/peer_tables.h"
#include "compat/rows/rows.h"

namespace fovea {
namespace {

using Json = nlohmann::ordered_json;

Json set_json(const IntSet& set) {
  Json out;
  out["text"] = set.to_string();
  out["values"] = set.listed();
  out["range"] = nullptr;
  if (set.first() <= set.last()) {
    out["range"] = {{"first", set.first()}, {"last", set.last()}, {"step", set.step()}};
    if (set.last() == INT_MAX) out["range"]["last"] = nullptr;
  }
  return out;
}

Json compute_capability_json(const Capability& c) {
  if (c.device != DeviceKind::cuda) return nullptr;
  const auto number = [](int cc) -> Json {
    if (cc == 0) return nullptr;
    return std::to_string(cc / 10) + "." + std::to_string(cc % 10);
  };
  return {{"min", number(c.min_compute_capability)}, {"max", number(c.max_compute_capability)}};
}

/// Columns whose cells are only a sample of the set; the JSON has the whole set.
const IntSet* int_set(const Capability& c, std::string_view id) {
  if (id == "page_sizes") return &c.page_sizes;
  if (id == "head_dims") return &c.head_dims;
  if (id == "v_head_dims") return &c.v_head_dims;
  return id == "gqa_ratios" ? &c.gqa_ratios : nullptr;
}

Json column_json(const Capability& c, const Column& column, const std::vector<Cell>& all) {
  if (const IntSet* set = int_set(c, column.id)) return set_json(*set);
  if (column.id == "compute_capability") {
    Json out = compute_capability_json(c);
    if (out.is_object()) out["text"] = cell_text(c, column);
    return out;
  }
  Json claimed = Json::array();
  for (const Cell& cell : all) {
    if (cell.column != column.id) continue;
    if (!cell.stated) return nullptr;
    if (cell.value == "yes") return cell.claimed;
    if (cell.claimed) claimed.push_back(cell.value);
  }
  return {{"text", cell_text(c, column)}, {"values", std::move(claimed)}};
}

Json columns_json(const Capability& c) {
  const std::vector<Cell> all = cells(c);
  Json out = Json::object();
  for (const Column& column : columns())
    out[std::string(column.id)] = column_json(c, column, all);
  return out;
}

Json row_json(const BackendInfo& info) {
  Json out;
  out["name"] = info.name;
  out["version"] = info.version;
  out["aliases"] = info.aliases;
  out["description"] = info.description;
  out["built"] = info.absent.empty();
  if (!info.absent.empty()) out["why_not"] = info.absent;
  if (!info.library.empty()) out["library"] = info.library;
  if (!info.mla_sibling.empty()) out["mla_sibling"] = info.mla_sibling;
  if (!info.prefill_partner.empty()) out["prefill_partner"] = info.prefill_partner;
  out["preferred_page_size"] = info.capability.preferred_page_size;
  out["columns"] = columns_json(info.capability);
  if (info.documented != nullptr) out["documented"] = columns_json(*info.documented);
  return out;
}

/// The documents' rows. `built`: with kernels for some version.
Json mla_prefill_json(const BackendRegistry& registry) {
  Json out = Json::array();
  for (const MlaPrefillRow& row : mla_prefill_rows()) {
    Json item = row_json(row.info);
    for (const auto& entry : registry.mla_prefill()) {
      if (entry.info->name != row.info.name || !entry.info->absent.empty()) continue;
      item["built"] = true;
      item.erase("why_not");
    }
    item["title"] = row.title;
    item["enable"] = row.enable;
    item["disable"] = row.disable;
    item["notes"] = row.notes;
    out.push_back(std::move(item));
  }
  return out;
}

Json priorities_json() {
  Json out = Json::array();
  for (const PriorityList& list : priority_lists())
    out.push_back({{"on", list.title},
                   {"mla", list.mla},
                   {"backends", std::vector<std::string_view>(list.names.begin(), list.names.end())}});
  return out;
}

Json peers_json() {
  Json out = Json::object();
  for (const PeerTable& table : peer_tables()) {
    Json& item = out[std::string(table.id)];
    item["title"] = table.title;
    item["rows"] = Json::array();
    for (const PeerRow& row : table.rows) {
      Json values = Json::object();
      for (size_t i = 0; i < table.columns.size(); ++i)
        values[std::string(table.columns[i])] = row.cells[i];
      Json line = {{"title", row.title}};
      if (!row.backend.empty()) line["backend"] = row.backend;
      if (!row.version.empty()) line["version"] = row.version;
      line["values"] = std::move(values);
      item["rows"].push_back(std::move(line));
    }
  }
  return out;
}

}  // namespace

std::string backends_json(const BackendRegistry& registry) {
  Json out;
  out["columns"] = Json::array();
  for (const Column& column : columns())
    out["columns"].push_back(
        {{"id", column.id}, {"title", column.title}, {"description", column.description}});
  out["backends"] = Json::array();
  for (const auto& entry : registry.entries())
    out["backends"].push_back(row_json(*entry.info));
  out["mla_prefill"] = mla_prefill_json(registry);
  out["priorities"] = priorities_json();
  out["peers"] = peers_json();
  return out.dump(2);
}

}  // namespace fovea
