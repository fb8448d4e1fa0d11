#include "cli/backends.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <vector>

#include "attention/columns.h"
#include "attention/priorities.h"
#include "builtin/backends_json.h"
#include "cli/flags.h"
#include "fovea/attention_backend.h"

namespace fovea::cli {
namespace {

using Line = std::vector<std::string>;

size_t width(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

/// Prints aligned columns; the last column is not padded.
void print_lines(const std::vector<Line>& lines) {
  std::vector<size_t> widths(lines.front().size(), 0);
  for (const Line& line : lines)
    for (size_t i = 0; i < line.size(); ++i)
      widths[i] = std::max(widths[i], width(line[i]));
  for (const Line& line : lines) {
    std::string out;
    for (size_t i = 0; i < line.size(); ++i) {
      out += line[i];
      if (i + 1 < line.size()) out.append(widths[i] - width(line[i]) + 2, ' ');
    }
    std::puts(out.c_str());
  }
}

std::string join(const auto& names) {
  std::string out;
  for (const std::string_view name : names)
    out.append(out.empty() ? "" : ", ").append(name);
  return out;
}

std::string text(const Capability& c, std::string_view id) {
  return cell_text(c, *std::ranges::find(columns(), id, &Column::id));
}

std::string device(const Capability& c) {
  std::string out(to_string(c.device));
  if (c.device == DeviceKind::cuda) out += " " + text(c, "compute_capability");
  return out;
}

std::string built(const BackendInfo& info) {
  if (!info.absent.empty()) return "no: " + std::string(info.absent);
  return info.library.empty() ? "yes" : "yes, in " + std::string(info.library);
}

Line line_of(const BackendInfo& info) {
  const Capability& c = info.capability;
  return {std::string(info.name), std::string(info.version), join(info.aliases),   device(c),
          text(c, "dtypes"),      text(c, "page_sizes"),     text(c, "head_dims"), built(info)};
}

}  // namespace

void add_backends(CLI::App& root, BackendsFlags& flags) {
  auto& app = *root.add_subcommand("backends", "Every attention backend, built or not, and what it can do");
  start_group(app, "Table");
  add_backend_library(app, flags.libraries);
  app.add_flag("--json", flags.json,
               "All columns of all rows, MLA prefill, priorities and other engines' tables, as JSON");
}

Status run_backends(const BackendsFlags& flags) {
  const BackendRegistry& registry = backends_or_builtin(flags.registry);
  if (flags.json) {
    std::puts(backends_json(registry).c_str());
    return {};
  }
  std::vector<Line> lines = {
      {"NAME", "VERSION", "ALSO CALLED", "DEVICE", "DTYPES", "PAGE SIZES", "HEAD SIZES", "BUILT"}};
  for (const auto& entry : registry.entries())
    lines.push_back(line_of(*entry.info));
  print_lines(lines);
  lines = {{"MLA PREFILL", "DEVICE", "BUILT"}};
  for (const auto& entry : registry.mla_prefill())
    lines.push_back({std::string(entry.info->name), device(entry.info->capability), built(*entry.info)});
  std::puts("");
  print_lines(lines);
  lines = {{"AUTOMATIC CHOICE ON", "OF", "TRIES"}};
  for (const PriorityList& list : priority_lists())
    lines.push_back({std::string(list.title), list.mla ? "MLA" : "standard", join(list.names)});
  std::puts("");
  print_lines(lines);
  std::puts("\nfovea backends --json has all columns.");
  return {};
}

}  // namespace fovea::cli
