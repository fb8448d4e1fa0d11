// fovea conformance --list and --perf.
#include <cstdio>

#include "attention/columns.h"
#include "backends/cpu_attn/bench.h"
#include "base/thread_pool.h"
#include "cli/conformance.h"
#include "cli/json_io.h"

namespace fovea::cli {
namespace {

/// "to prove" or "to refuse" for a row that is built, else "declared".
const char* status(const BackendInfo& info, const Cell& cell) {
  if (!cell.stated) return "not stated";
  if (!info.absent.empty()) return cell.claimed ? "declared" : "declared without";
  return cell.claimed ? "to prove" : "to refuse";
}

void list_as_json(const BackendInfo& info) {
  for (const Cell& cell : cells(info.capability)) {
    JsonRow row;
    row.add("backend", info.name)
        .add("version", info.version)
        .add("device", to_string(info.capability.device))
        .add("cell", cell.id())
        .add("status", status(info, cell));
    if (!info.absent.empty()) row.add("absent", info.absent);
    std::puts(row.str().c_str());
  }
}

/// One line for each column: values claimed and values not claimed.
void list_as_text(const BackendInfo& info) {
  const std::vector<Cell> all = cells(info.capability);
  if (!info.absent.empty())
    std::printf("%s: %zu cells declared; not in this build: %s\n", info.label().c_str(), all.size(),
                std::string(info.absent).c_str());
  else
    std::printf("%s: %zu cells to prove or to refuse\n", info.label().c_str(), all.size());
  for (const Column& column : columns()) {
    std::string claimed, others;
    for (const Cell& cell : all) {
      if (cell.column != column.id) continue;
      std::string& list = cell.claimed ? claimed : others;
      list += (list.empty() ? "" : ", ") + cell.value;
    }
    std::printf("  %-22s claimed: %s\n", std::string(column.id).c_str(),
                claimed.empty() ? "-" : claimed.c_str());
    if (!others.empty()) std::printf("  %-22s not:     %s\n", "", others.c_str());
  }
}

}  // namespace

void list_cells(const BackendRows& rows, bool json) {
  for (const auto* row : rows) {
    const BackendInfo& info = *row->info;
    if (json)
      list_as_json(info);
    else if (info.absent.empty() || rows.size() < 8)
      list_as_text(info);
    else
      std::printf("%s: %zu cells declared; not in this build: %s\n", info.label().c_str(),
                  cells(info.capability).size(), std::string(info.absent).c_str());
  }
}

void print_speed(const BackendRows& rows, int threads, bool json) {
  ThreadPool pool(threads);
  if (!json)
    std::printf(
        "%-16s %-8s %14s %10s %10s   8/2 heads, D 128 (MLA: 8 heads, D 576), bf16 cache, %d threads\n",
        "backend", "phase", "us", "GFLOP/s", "KV GB/s", pool.size());
  for (const auto* row : rows)
    for (const Phase phase : {Phase::prefill, Phase::decode}) {
      if (!row->info->capability.phases.has(phase)) continue;
      AttentionBenchCase c;
      c.num_heads = 8;
      c.num_kv_heads = 2;
      if (row->info->capability.features.has(Feature::mla)) {
        c.mla = true;
        c.num_kv_heads = 1;
        c.head_dim = 576;
        c.v_head_dim = 512;
      }
      const bool decode = phase == Phase::decode;
      c.kv_len = decode ? 4096 : 512;
      c.q_len = decode ? 1 : c.kv_len;
      c.batch = decode ? 8 : 1;
      c.page_size = row->info->capability.preferred_page_size;
      const auto backend = row->create();
      const AttentionBenchResult r = bench_attention(*backend, c, pool);
      const double us = r.seconds * 1e6, gflops = r.flops / r.seconds * 1e-9,
                   gbps = r.kv_bytes / r.seconds * 1e-9;
      if (json) {
        JsonRow out;
        out.add("backend", row->info->name).add("version", row->info->version).add("phase", to_string(phase));
        out.add("batch", c.batch).add("q_len", c.q_len).add("kv_len", c.kv_len).add("threads", pool.size());
        out.add("us", us).add("gflops", gflops).add("kv_gb_s", gbps);
        std::puts(out.str().c_str());
        continue;
      }
      std::printf("%-16s %-8s %14.1f %10.2f %10.2f   %d x %d rows, %d keys\n",
                  std::string(row->info->name).c_str(), std::string(to_string(phase)).c_str(), us, gflops,
                  gbps, c.batch, c.q_len, c.kv_len);
    }
}

}  // namespace fovea::cli
