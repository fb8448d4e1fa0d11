#include "cli/conformance.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <future>
#include <set>

#include "backends/cuda/device_facts.h"
#include "base/edit_distance.h"
#include "base/same_name.h"
#include "base/thread_pool.h"
#include "cli/flags.h"
#include "cli/output_file.h"
#include "conformance/prove.h"

namespace fovea::cli {
namespace {

using namespace conformance;

/// All versions of a backend name, or the single row that an alias denotes.
Result<BackendRows> rows_of(const std::string& name, const BackendRegistry& registry) {
  BackendRows rows;
  for (const auto& entry : registry.entries())
    if (same_name(entry.info->name, name)) rows.push_back(&entry);
  if (!rows.empty()) return rows;
  if (const auto* entry = registry.find(name)) return BackendRows{entry};
  const std::string_view near = registry.nearest(name);
  return invalid("--backend " + name + " is not known" +
                 (near.empty() ? "" : "; did you mean " + std::string(near) + "?") +
                 " (fovea conformance --list lists them)");
}

/// The rows of each name, in the registry's order; all rows where there are no names.
Result<BackendRows> named_rows(const std::vector<std::string>& names, const BackendRegistry& registry) {
  std::set<const BackendRegistry::Entry*> wanted;
  for (const std::string& name : names) {
    FOVEA_TRY(rows, rows_of(name, registry));
    wanted.insert(rows.begin(), rows.end());
  }
  BackendRows rows;
  for (const auto& entry : registry.entries())
    if (names.empty() || wanted.contains(&entry)) rows.push_back(&entry);
  return rows;
}

/// The device under test: the CPU, or this machine's GPU.
struct Place {
  std::string name;  ///< in the form of parse_device()
  DeviceInfo device;
  Gpu gpu;  ///< empty = on the CPU
};

Result<Place> open_place(const std::string& flag, const cuda::DeviceLimits& limits) {
  Place place{flag, {}, {}};
  const bool any_gpu = flag == "cuda";
  if (!any_gpu) {
    FOVEA_TRY(device, parse_device(flag));
    place.device = device;
    if (device.kind == DeviceKind::cpu) return place;
    if (device.kind != DeviceKind::cuda)
      return unsupported("--device " + flag +
                         ": this build has no backend that runs there, so there is nothing to prove; --list "
                         "shows what is declared");
  }
  cuda::limit_devices(limits);
  auto gpu = open_gpu();
  if (!gpu) return unsupported("--device " + flag + ": there is no GPU to run on: " + gpu.error().message);
  const DeviceInfo& found = gpu->machine->device();
  const std::string name = "sm" + std::to_string(found.compute_capability);
  if (!any_gpu && found.compute_capability != place.device.compute_capability)
    return unsupported("--device " + flag + ": the GPU of this machine is " + found.name + ", which is " +
                       name + "; give --device cuda");
  place.name = name;
  place.device = found;
  if (limits.shared_bytes > 0)
    place.device.name +=
        ", held to " + std::to_string(found.shared_bytes) + " bytes of shared memory a block";
  place.gpu = *std::move(gpu);
  return place;
}

bool runs_on(const Capability& c, const DeviceInfo& device) {
  const int cc = device.compute_capability;
  return c.device == device.kind && cc >= c.min_compute_capability &&
         (c.max_compute_capability == 0 || cc <= c.max_compute_capability);
}

/// The selected rows that are built and run on `device`.
Result<BackendRows> rows_to_prove(const ConformanceFlags& flags, const DeviceInfo& device,
                                  const BackendRegistry& registry) {
  FOVEA_TRY(rows, named_rows(flags.backends, registry));
  BackendRows built;
  for (const auto* row : rows)
    if (row->create && runs_on(row->info->capability, device)) built.push_back(row);
  if (!built.empty()) return built;
  if (flags.backends.empty())
    return unsupported("--device " + flags.device +
                       ": this build has no backend that runs there, so there is nothing to prove; --list "
                       "shows what is declared");
  const BackendInfo& info = *rows.front()->info;
  if (info.absent.empty())
    return unsupported(info.label() + " does not run on " + describe(device) + "; give --device " +
                       std::string(to_string(info.capability.device)));
  return unsupported(info.label() + " is not in this build: " + std::string(info.absent) +
                     "; nothing proves it, and --list shows what is declared");
}

/// Parses COLUMN=VALUE into a cell of the matrix.
Result<Cell> find_cell(const std::string& text, const Capability& capability) {
  std::string values;
  const std::string column = text.substr(0, text.find('='));
  for (const Cell& cell : cells(capability)) {
    if (cell.id() == text) return cell;
    if (cell.column == column) values += (values.empty() ? "" : ", ") + cell.value;
  }
  if (!values.empty()) return invalid("--cell " + text + ": values of " + column + " are " + values);
  std::vector<std::string_view> names;
  for (const Column& c : columns())
    names.push_back(c.id);
  const std::string_view near = nearest_name(column, names);
  return invalid("--cell " + text + ": there is no column " + column +
                 (near.empty() ? "" : "; did you mean " + std::string(near) + "=...?") +
                 " (fovea conformance --list lists them)");
}

/// The first line of a shell command's output; "" on failure.
std::string first_line_of(const char* command) {
  std::string line;
  FILE* pipe = ::popen(command, "r");
  if (pipe == nullptr) return line;
  char buffer[256];
  if (std::fgets(buffer, sizeof buffer, pipe) != nullptr) line = buffer;
  if (::pclose(pipe) != 0) return "";
  while (!line.empty() && line.back() == '\n')
    line.pop_back();
  return line;
}

/// The commit of the working directory, with "-dirty" appended if code differs from it; "" = unknown.
std::string commit_here() {
  std::string head = first_line_of("git rev-parse HEAD 2>/dev/null");
  if (head.empty()) return head;
  const std::string changed = first_line_of("git status --porcelain -uno -- include src 2>/dev/null");
  return changed.empty() ? head : head + "-dirty";
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  return "unknown";
}

std::string compiler() {
#if defined(__clang__)
  return "clang++ " + std::to_string(__clang_major__) + "." + std::to_string(__clang_minor__) + "." +
         std::to_string(__clang_patchlevel__);
#else
  return "g++ " + std::to_string(__GNUC__) + "." + std::to_string(__GNUC_MINOR__) + "." +
         std::to_string(__GNUC_PATCHLEVEL__);
#endif
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::tm utc{};
  std::strftime(text, sizeof text, "%Y-%m-%d", ::gmtime_r(&now, &utc));
  return text;
}

std::string isas(const BackendInfo& info) {
  if (info.capability.device != DeviceKind::cpu) return "GPU";  // new_proof() records which
  std::string text;
  for (const Isa isa : isas_of(info))
    text.append(text.empty() ? "" : ", ").append(to_string(isa));
  return text;
}

/// A proof's header: device, machine and sources.
Proof new_proof(const Place& place, const BackendRows& rows, int threads, const std::string& commit) {
  Proof proof;
  proof.device = place.name;
  proof.device_name = place.gpu.machine != nullptr ? place.device.name : cpu_name();
  for (const auto* row : rows)
    if (const std::string text = isas(*row->info); text.size() > proof.isa.size()) proof.isa = text;
  if (place.gpu.machine != nullptr) proof.isa = "sm_" + std::to_string(place.device.compute_capability);
  proof.driver = place.gpu.driver;
  proof.compiler = compiler() + (place.gpu.compiler.empty() ? "" : ", " + place.gpu.compiler);
  proof.commit = commit.empty() ? commit_here() : commit;
  proof.date = today();
  proof.threads = threads;
  return proof;
}

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", value);
  return text;
}

std::string joined(const std::vector<std::string>& texts, size_t most) {
  std::string out;
  for (size_t i = 0; i < std::min(texts.size(), most); ++i)
    out += (i == 0 ? "" : ", ") + texts[i];
  return texts.size() > most ? out + " and " + std::to_string(texts.size() - most) + " more" : out;
}

/// The --backend value that selects this row alone: the alias equal to its version, otherwise its name.
std::string flag_of(const BackendInfo& info) {
  for (const std::string_view alias : info.aliases)
    if (same_name(alias, info.version)) return std::string(alias);
  return std::string(info.name);
}

/// Where failures are printed: not amid JSON.
std::FILE* failures_to(const ConformanceFlags& flags) {
  return flags.json ? stderr : stdout;
}

void print_failure(const ConformanceFlags& flags, const BackendInfo& info, const CaseFailure& failure) {
  // For a kernel that never ran, both are empty.
  const std::string cells = failure.cells.empty() ? "" : " " + joined(failure.cells, 6);
  const std::string number = failure.number == 0 ? "" : "case " + std::to_string(failure.number) + " ";
  std::FILE* const out = failures_to(flags);
  std::fprintf(out, "FAILED %s%s: %son %s: %s\n", info.label().c_str(), cells.c_str(), number.c_str(),
               failure.isa.c_str(), failure.what.c_str());
  std::fprintf(out, "  conditions: %s\n", failure.levels.c_str());
  if (failure.number > 0)
    std::fprintf(out, "  again: fovea conformance --device %s --backend %s%s%s --case %llu%s\n",
                 flags.device.c_str(), flag_of(info).c_str(),
                 info.library.empty() ? "" : (" --backend-library " + std::string(info.library)).c_str(),
                 failure.fixed ? (" --cell " + failure.fixed->id()).c_str() : "",
                 static_cast<unsigned long long>(failure.number),
                 failure.row.empty() ? "" : (" --row " + failure.row).c_str());
  std::fflush(out);
}

void print_failures(const ConformanceFlags& flags, const BackendInfo& info, const BackendReport& report) {
  const std::string label = info.label();
  for (const CellProof& cell : report.proof.cells)
    if (cell.status == CellStatus::failed || cell.status == CellStatus::too_few)
      std::fprintf(failures_to(flags), "FAILED %s %s: %s\n", label.c_str(), cell.cell.c_str(),
                   cell.reason.c_str());
}

void print_kernels(const BackendReport& report) {
  for (const KernelProof& k : report.proof.kernels)
    std::printf("  %s %s: %lld cases, %lld of several splits, %lld cells of at least %lld\n",
                k.family.c_str(), k.instance.c_str(), static_cast<long long>(k.cases),
                static_cast<long long>(k.split_cases), static_cast<long long>(k.cells),
                static_cast<long long>(k.least));
}

/// Prints the criterion that the counts below satisfy.
void print_rule(bool quick) {
  std::printf("A cell is proven by %d right cases, in each phase %d of them on kernels of the row's own",
              cases_needed(quick), cases_needed_of_phase(quick));
  if (const int each = cases_needed_of_kernel(quick); each > 0)
    std::printf(", and %d on each of these kernels that any of its cases reaches", each);
  std::puts(".");
}

void print_summary(const BackendInfo& info, const BackendReport& report) {
  const auto count = [&](CellStatus status) { return static_cast<long long>(report.count(status)); };
  std::printf(
      "%s: %lld cells proven, %lld by other kernels, %lld refused, %lld not requested, %lld failed; %lld "
      "cases, %lld failed (%s), in %.1f s",
      info.label().c_str(), count(CellStatus::proven), count(CellStatus::other_kernels),
      count(CellStatus::refused), count(CellStatus::unasked),
      count(CellStatus::failed) + count(CellStatus::too_few), static_cast<long long>(report.cases),
      static_cast<long long>(report.failed_cases), isas(info).c_str(), report.seconds);
  if (report.cases > report.failed_cases)
    std::printf("; worst error of O %s (case %llu), of the LSE %s", short_number(report.worst.o).c_str(),
                static_cast<unsigned long long>(report.worst_case), short_number(report.worst.lse).c_str());
  std::putchar('\n');
}

/// On a terminal, one line that is overwritten; with --progress, one line for each report; otherwise nothing.
std::function<void(int64_t, int64_t)> progress_of(const ConformanceFlags& flags, const BackendInfo& info) {
  if (flags.progress)
    return [label = info.label(), start = std::chrono::steady_clock::now()](int64_t done, int64_t total) {
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      std::fprintf(stderr, "%s: %lld of %lld cases after %.1f s\n", label.c_str(),
                   static_cast<long long>(done), static_cast<long long>(total), seconds.count());
    };
  if (::isatty(STDERR_FILENO) == 0) return {};
  return [label = info.label()](int64_t done, int64_t total) {
    std::fprintf(stderr, "\r%s: %lld of %lld cases", label.c_str(), static_cast<long long>(done),
                 static_cast<long long>(total));
    if (done == total) std::fputs("\r\033[K", stderr);
  };
}

/// Whether both rows claim the same cells for the same kernels, so that one run proves both.
bool same_claims(const BackendInfo& a, const BackendInfo& b) {
  using Check = std::optional<Reason> (*)(const AttentionSpec&, const DeviceInfo&);
  const Check* check = a.supports_combination.target<Check>();
  const Check* other = b.supports_combination.target<Check>();
  const bool same_check = (!a.supports_combination && !b.supports_combination) ||
                          (check != nullptr && other != nullptr && *check == *other);
  return !a.families.empty() && a.families == b.families && a.capability == b.capability && same_check &&
         a.check_kernels == b.check_kernels;
}

Status check_flags(const ConformanceFlags& flags) {
  if (flags.list + flags.perf > 1) return invalid("--list and --perf exclude each other; give one of them");
  if (flags.replay && flags.backends.empty())
    return invalid("--case " + std::to_string(*flags.replay) +
                   " needs --backend: cases are numbered for each");
  if (!flags.row.empty() && !flags.replay)
    return invalid("--row " + flags.row + " needs --case: give both as a failure printed them");
  if (flags.replay && flags.quick) return invalid("--case and --quick exclude each other; drop --quick");
  if (!flags.write.empty() && (!flags.backends.empty() || !flags.libraries.empty() || !flags.cell.empty() ||
                               flags.quick || flags.list || flags.perf))
    return invalid(
        "--write " + flags.write +
        " is for a whole run; drop --backend, --backend-library, --cell, --case, --quick, --list and --perf");
  const auto is_hex = [](char c) {
    return std::string_view("0123456789abcdef").find(c) != std::string_view::npos;
  };
  if (!flags.commit.empty() && (flags.commit.size() != 40 || !std::ranges::all_of(flags.commit, is_hex)))
    return invalid("--commit " + flags.commit + ": it must have 40 digits of 0 to 9 and a to f");
  if ((flags.shared_memory > 0 || flags.multiprocessors > 0) && flags.device == "cpu")
    return invalid("--shared-memory and --multiprocessors apply to GPUs only; give --device cuda");
  if (flags.seed >> 44 != 0)
    return invalid("--seed " + std::to_string(flags.seed) + ": allowed are 0 to " +
                   std::to_string((uint64_t{1} << 44) - 1));
  return {};
}

/// The run of one row, or the row whose proof it shares.
struct RowRun {
  const BackendRegistry::Entry* row = nullptr;
  const BackendRegistry::Entry* same = nullptr;
  Gpu gpu;  ///< separate if several rows run at once
  std::future<Result<BackendReport>> report;
};

/// Runs the cases of all rows and returns their proof. `all_right` is false if any case failed.
Result<Proof> prove_rows(const ConformanceFlags& flags, const Place& place, const BackendRows& rows,
                         bool& all_right) {
  all_right = true;
  ProveOptions options;
  options.device = place.device;
  options.machine = place.gpu.machine.get();
  options.seed = flags.seed;
  options.quick = flags.quick;
  options.threads = ThreadPool(flags.threads).size();
  options.replay = flags.replay;
  options.replay_row = flags.row;
  Proof proof = new_proof(place, rows, options.threads, flags.commit);
  proof.needed = cases_needed(flags.quick);
  proof.needed_of_phase = cases_needed_of_phase(flags.quick);
  proof.needed_of_kernel = cases_needed_of_kernel(flags.quick);
  if (!flags.json && !flags.replay) print_rule(flags.quick);
  // On a GPU all rows run concurrently, each on its own stream: a case spends most of its time waiting.
  const bool gpu = place.gpu.machine != nullptr;
  std::vector<RowRun> runs;
  for (const auto* row : rows) {
    const auto same = std::ranges::find_if(
        runs, [&](const RowRun& other) { return same_claims(*other.row->info, *row->info); });
    runs.push_back({row, same == runs.end() ? nullptr : same->row, {}, {}});
  }
  const auto at_once = std::ranges::count(runs, nullptr, &RowRun::same);
  if (gpu) options.threads = std::max(1, options.threads / static_cast<int>(std::max<int64_t>(at_once, 1)));
  for (RowRun& run : runs) {
    if (run.same != nullptr) continue;
    ProveOptions own = options;
    if (!flags.cell.empty()) {
      FOVEA_TRY(cell, find_cell(flags.cell, run.row->info->capability));
      own.only_cell = cell;
    }
    if (gpu && at_once > 1) {
      FOVEA_TRY(opened, open_gpu());
      run.gpu = std::move(opened);
      own.machine = run.gpu.machine.get();
    }
    own.progress = progress_of(flags, *run.row->info);
    own.failed = [&flags, row = run.row](const CaseFailure& failure) {
      print_failure(flags, *row->info, failure);
    };
    run.report = std::async(gpu ? std::launch::async : std::launch::deferred,
                            [row = run.row, own] { return prove(*row->info, row->create, own); });
  }
  for (RowRun& run : runs) {
    const BackendInfo& info = *run.row->info;
    if (run.same != nullptr) {
      const std::string label = run.same->info->label();
      proof.backends.push_back({std::string(info.name), std::string(info.version), label, {}, 0, {}, {}});
      if (!flags.json) std::printf("%s: the claims and kernels of %s\n", info.label().c_str(), label.c_str());
      continue;
    }
    auto proven = run.report.get();
    if (!proven) return proven.error();
    BackendReport& report = *proven;
    proof.seconds = gpu ? std::max(proof.seconds, report.seconds) : proof.seconds + report.seconds;
    all_right = all_right && report.all_right();
    print_failures(flags, info, report);
    if (!flags.json) {
      if (!flags.quick && !flags.replay) print_kernels(report);
      print_summary(info, report);
      std::fflush(stdout);
    }
    if (flags.replay && report.failed_cases > 0) {
      CellProof cell;
      cell.cell = "case=" + std::to_string(*flags.replay);
      cell.status = CellStatus::failed;
      cell.reason = report.failures.front().what;
      report.proof.cells = {std::move(cell)};
    }
    proof.backends.push_back(std::move(report.proof));
  }
  return proof;
}

}  // namespace

void add_conformance(CLI::App& root, ConformanceFlags& f) {
  auto& app = *root.add_subcommand(
      "conformance", "Prove each cell of the matrix: claims by cases in fp64, the others by their refusal");
  start_group(app, "What to prove");
  app.add_option("--backend", f.backends,
                 "A backend by name or alias (repeatable; default: all that run on the device)")
      ->allow_extra_args(false);
  add_backend_library(app, f.libraries);
  app.add_option("--device", f.device,
                 "cpu, cuda (the first GPU of this machine), or what that GPU must be: sm80, sm90, ...")
      ->capture_default_str();
  app.add_option("--cell", f.cell, "One cell, COLUMN=VALUE, such as kv_dtypes=fp8_e4m3");
  app.add_option("--case", f.replay, "Run one case again: the number that a failure printed");
  app.add_option("--row", f.row, "The row of that case, where the failure printed one");
  app.add_option("--seed", f.seed, "Other rows, values and lengths")->capture_default_str();
  app.add_option("--threads", f.threads, "Cases at a time (default: one per usable CPU)")
      ->check(CLI::Range(1, 1024));
  app.add_option(
         "--shared-memory", f.shared_memory,
         "Bytes of shared memory a block, to prove a smaller GPU's kernels: 166912 as on sm80, 101376 "
         "as on sm86, sm89 and sm120 (default: what the GPU has)")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--multiprocessors", f.multiprocessors,
                 "Multiprocessors that tiles of a prefill are to fill; 1: always the large ones, so that "
                 "kernels with "
                 "small ones are reported as never run (default: the GPU's)")
      ->check(CLI::Range(1, 1 << 16));
  start_group(app, "Run and results");
  app.add_flag("--quick", f.quick, "Each value twice, rather than each pair of values; seconds");
  app.add_flag("--progress", f.progress, "Print progress lines to stderr");
  app.add_flag("--list", f.list, "List the cells to prove and the cells only declared");
  app.add_flag("--perf", f.perf, "Time each phase of each backend");
  app.add_flag("--json", f.json, "As JSON: the proof file, or rows of --list and --perf");
  takes_file(app.add_option(
      "--write", f.write,
      "Write the proof to this file, proof/cpu.json; run in the source tree, whose commit it names"));
  app.add_option("--commit", f.commit,
                 "The commit that this program was built from, where git can't tell it");
}

Status run_conformance(const ConformanceFlags& flags) {
  FOVEA_RETURN_IF_ERROR(check_flags(flags));
  const BackendRegistry& registry = backends_or_builtin(flags.registry);
  if (flags.list) {
    FOVEA_TRY(rows, named_rows(flags.backends, registry));
    list_cells(rows, flags.json);
    return {};
  }
  FOVEA_TRY(place, open_place(flags.device, {flags.shared_memory, flags.multiprocessors}));
  FOVEA_TRY(rows, rows_to_prove(flags, place.device, registry));
  if (flags.perf) {
    if (place.gpu.machine != nullptr)
      return unsupported(
          "--perf times backends of the CPU; the programs of tests/cuda and bench/ time a GPU's");
    print_speed(rows, flags.threads, flags.json);
    return {};
  }
  std::optional<OutputFile> file;  // opened first: errors appear before a run of minutes
  if (!flags.write.empty()) {
    FOVEA_TRY(opened, OutputFile::open({flags.write}));
    file.emplace(std::move(opened));
  }
  bool all_right = true;
  FOVEA_TRY(proof, prove_rows(flags, place, rows, all_right));
  std::string json = to_json(proof);
  if (flags.json) std::fputs(json.c_str(), stdout);
  if (file) {
    json.pop_back();  // line() appends the newline
    FOVEA_RETURN_IF_ERROR(file->line(json));
    FOVEA_RETURN_IF_ERROR(file->commit());
  }
  if (all_right) return {};
  int64_t failed = 0;
  for (const BackendProof& backend : proof.backends)
    failed += std::ranges::count_if(backend.cells, [](const CellProof& cell) {
      return cell.status == CellStatus::failed || cell.status == CellStatus::too_few;
    });
  const std::string what = flags.replay ? "1 case" : failed > 0 ? std::to_string(failed) + " cells" : "cases";
  return Error{ErrorCode::internal, what + " failed; each is named above"};
}

}  // namespace fovea::cli
