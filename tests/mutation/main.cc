// mutation_test: plants one defect after another and checks that a case of conformance catches it. Exits with
// 1 when one survives, with 2 when it can't run.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "attention/selection_context.h"
#include "base/edit_distance.h"
#include "base/same_name.h"
#include "conformance/machine.h"
#include "conformance/prove.h"
#include "fovea/attention.h"
#include "hunt.h"

namespace fovea::conformance {
namespace {

struct Flags {
  std::string device = "cpu", backend, mutant, write, commit;
  int threads = 0;
};

constexpr const char* kUsage =
    "mutation_test [--device cpu|cuda] [--backend NAME] [--mutant NAME|list] [--threads N] [--write FILE] "
    "[--commit HASH]";

Result<Flags> parse(int argc, char** argv) {
  Flags f;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (value.empty()) return invalid(flag + " needs a value: " + kUsage);
    if (flag == "--device" && (value == "cpu" || value == "cuda"))
      f.device = value;
    else if (flag == "--backend")
      f.backend = value;
    else if (flag == "--mutant")
      f.mutant = value;
    else if (flag == "--write")
      f.write = value;
    else if (flag == "--commit")
      f.commit = value;
    else if (flag == "--threads" && std::atoi(value.c_str()) > 0)
      f.threads = std::atoi(value.c_str());
    else
      return invalid(flag + " " + value + " is not known: " + kUsage);
  }
  return f;
}

Result<std::vector<const Defect*>> named(const std::string& name) {
  std::vector<const Defect*> out;
  std::vector<std::string_view> names;
  for (const Defect& d : defects()) {
    names.push_back(d.name);
    if (name.empty() || d.name == name) out.push_back(&d);
  }
  if (!out.empty()) return out;
  const std::string_view near = nearest_name(name, names);
  return invalid("mutant " + name + " is not known" +
                 (near.empty() ? "" : "; did you mean " + std::string(near) + "?") +
                 " (--mutant list lists them)");
}

void list() {
  for (const Defect& d : defects()) {
    std::string where = d.shared ? "all, and the reference" : d.inside == Mutation::none ? "all" : "";
    if (d.reads_arrays) where = "CPU_ATTN";
    for (const std::string_view family : d.families)
      where.append(where.empty() ? "" : ", ").append(family);
    std::printf("%-22s %s (%s)\n", std::string(d.name).c_str(), std::string(d.breaks).c_str(), where.c_str());
  }
}

/// The rows to test: on a CPU those with their own kernels.
Result<std::vector<const BackendRegistry::Entry*>> rows_of(const Flags& f, const DeviceInfo& device) {
  std::vector<const BackendRegistry::Entry*> rows;
  for (const auto& entry : builtin_backends().entries()) {
    const BackendInfo& info = *entry.info;
    const Capability& c = info.capability;
    if (!entry.create || c.device != device.kind || info.name == "TORCH_NATIVE") continue;
    if (c.max_compute_capability != 0 && device.compute_capability > c.max_compute_capability) continue;
    if (device.compute_capability < c.min_compute_capability) continue;
    // The wrappers break what MLA does not have (several KV heads, windows): name such a row to test it.
    if (f.backend.empty() && c.features.has(Feature::mla)) continue;
    // Rows that share another row's kernels; and expressions, which take minutes and have no defects of their
    // own here.
    if (f.backend.empty() &&
        (info.name == "FLASH_ATTN_DIFFKV" || info.name == "TREE_ATTN" || info.name == "FLEX_ATTENTION"))
      continue;
    if (f.backend.empty() || same_name(info.name, f.backend) || info.label() == f.backend)
      rows.push_back(&entry);
  }
  if (rows.empty())
    return invalid("--backend " + f.backend + ": no such backend runs on " + describe(device));
  return rows;
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::tm utc{};
  std::strftime(text, sizeof text, "%Y-%m-%d", ::gmtime_r(&now, &utc));
  return text;
}

/// Checks that prove()'s case of this number fails with the defect and is right without it.
Status confirm(const BackendRegistry::Entry& row, const Hunted& h, const HuntOptions& o) {
  ProveOptions options;
  options.device = o.device;
  options.machine = o.machine;
  options.threads = 1;
  options.replay = h.caught->number;
  options.replay_row = h.caught->row;
  const auto fails = [&](const Defect* defect) -> Result<bool> {
    const BackendRegistry::Factory create = [&]() -> std::unique_ptr<AttentionBackend> {
      auto made = std::make_unique<Mutant>(row.create());
      if (defect != nullptr) defect->around(*made);
      return made;
    };
    set_mutation(defect != nullptr ? defect->inside : Mutation::none);
    const auto report = prove(*row.info, create, options);
    set_mutation(Mutation::none);
    if (!report) return report.error();
    return report->failed_cases > 0;
  };
  FOVEA_TRY(with, fails(h.defect));
  FOVEA_TRY(without, fails(nullptr));
  if (with && !without) return {};
  return Error{ErrorCode::internal, std::string(h.defect->name) + ": case " +
                                        std::to_string(h.caught->number) + " of prove() " +
                                        (without ? "is wrong without the defect" : "does not find it")};
}

nlohmann::json json_of(const BackendInfo& info, const HuntReport& report) {
  nlohmann::json rows = nlohmann::json::array();
  for (const Hunted& h : report.defects) {
    nlohmann::json row = {{"mutant", h.defect->name},
                          {"breaks", h.defect->breaks},
                          {"backend", info.label()},
                          {"caught", h.caught.has_value()}};
    if (h.caught)
      row.update({{"case", h.caught->number},
                  {"row", h.caught->row},
                  {"levels", h.caught->levels},
                  {"how", h.caught->how}});
    rows.push_back(std::move(row));
  }
  return rows;
}

void print(const BackendInfo& info, const HuntReport& report) {
  std::printf("%s: %lld cases, each right without a defect, in %.1f s\n", info.label().c_str(),
              static_cast<long long>(report.cases), report.seconds);
  for (const Hunted& h : report.defects) {
    if (!h.caught) {
      std::printf("  SURVIVED %s: %s\n", std::string(h.defect->name).c_str(),
                  std::string(h.defect->breaks).c_str());
      continue;
    }
    std::printf("  %-22s case %llu: %s\n  %22s by: %s\n", std::string(h.defect->name).c_str(),
                static_cast<unsigned long long>(h.caught->number), h.caught->how.c_str(), "",
                h.caught->levels.c_str());
  }
  std::fflush(stdout);
}

/// Whether every defect was caught.
Result<bool> run(const Flags& f) {
  FOVEA_TRY(wanted, named(f.mutant));
  HuntOptions options;
  options.threads = f.threads;
  Gpu gpu;
  if (f.device == "cuda") {
#ifndef FOVEA_MUTATED_LIBRARIES
    if (std::ranges::any_of(wanted, [](const Defect* d) { return d->inside != Mutation::none; }))
      return unsupported(
          "--device cuda: the CUDA kernels of this build have no defects; configure with -DFOVEA_CUDA=ON "
          "-DFOVEA_MUTATIONS=ON, or name a --mutant that is no change of a kernel");
#endif
    FOVEA_TRY(opened, open_gpu());
    gpu = std::move(opened);
    options.machine = gpu.machine.get();
    options.device = gpu.machine->device();
  }
  FOVEA_TRY(rows, rows_of(f, options.device));
  std::ofstream out;
  if (!f.write.empty()) {  // first: an unwritable path is reported before a run of minutes
    std::error_code ignored;
    const std::filesystem::path folder = std::filesystem::path(f.write).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
    out.open(f.write);
    if (!out) return invalid("--write " + f.write + ": can't be written");
  }
  nlohmann::json results = nlohmann::json::array();
  int caught = 0, survived = 0;
  double seconds = 0;
  for (const auto* row : rows) {
    std::vector<const Defect*> mine;
    for (const Defect* d : wanted)
      if (concerns(*d, *row->info)) mine.push_back(d);
    if (mine.empty()) continue;
    FOVEA_TRY(report, hunt(*row->info, row->create, mine, options));
    print(*row->info, report);
    bool confirmed = false;
    for (const Hunted& h : report.defects) {
      h.caught ? ++caught : ++survived;
      if (!h.caught || confirmed) continue;
      FOVEA_RETURN_IF_ERROR(confirm(*row, h, options));
      confirmed = true;
    }
    seconds += report.seconds;
    for (nlohmann::json& line : json_of(*row->info, report))
      results.push_back(std::move(line));
  }
  if (caught + survived == 0) return invalid("mutant " + f.mutant + " applies to none of these backends");
  std::printf("%d defects caught, %d survived\n", caught, survived);
  if (!f.write.empty()) {
    const nlohmann::json all = {{"device", describe(options.device)},
                                {"driver", gpu.driver},
                                {"compiler", gpu.compiler},
                                {"commit", f.commit},
                                {"date", today()},
                                {"seconds", seconds},
                                {"mutants", std::move(results)}};
    out << all.dump(1) << '\n';
    if (!out.flush()) return invalid("--write " + f.write + ": can't be written");
  }
  return survived == 0;
}

}  // namespace
}  // namespace fovea::conformance

int main(int argc, char** argv) {
  using namespace fovea::conformance;
  const auto flags = parse(argc, argv);
  if (flags && flags->mutant == "list") return list(), 0;
  const auto right = flags ? run(*flags) : fovea::Result<bool>(flags.error());
  if (right) return *right ? 0 : 1;
  std::fprintf(stderr, "mutation_test: %s\n", right.error().message.c_str());
  return 2;
}
