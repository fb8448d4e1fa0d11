#include "cli/docs.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "builtin/project_backends.h"
#include "cli/help.h"
#include "cli/json_io.h"
#include "cli/output_file.h"
#include "compat/pages/pages.h"
#include "files/text_file.h"

namespace fovea::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxProofBytes = 16u << 20;  // a proof has about 100 kB

/// All *.json files of the folder, sorted by name.
Result<std::vector<conformance::Proof>> read_proofs(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> files;
  for (auto at = fs::directory_iterator(folder, error); !error && at != fs::directory_iterator();
       at.increment(error))
    if (at->path().extension() == ".json") files.push_back(at->path().string());
  if (error)
    return io_error("--proof " + folder + " cannot be read (" + error.message() +
                    "): start in the repository, or name its folder proof");
  std::ranges::sort(files);
  std::vector<conformance::Proof> proofs;
  for (const std::string& file : files) {
    FOVEA_TRY(text, read_text_file(file, kMaxProofBytes));
    FOVEA_TRY(proof, conformance::parse_proof(text, file));
    proofs.push_back(std::move(proof));
  }
  return proofs;
}

Status write_page(const std::string& path, const docs::Page& page) {
  FOVEA_TRY(file, OutputFile::open({path}));
  FOVEA_RETURN_IF_ERROR(file.line(page.text.substr(0, page.text.size() - 1)));  // line() appends the newline
  FOVEA_RETURN_IF_ERROR(file.commit());
  std::printf("%s: written\n", path.c_str());
  return {};
}

}  // namespace

void add_docs(CLI::App& root, DocsFlags& f) {
  auto& app = *root.add_subcommand(
      "docs", "Write docs/attention_backends.md, docs/coming_from.md and docs/request_fields.md");
  start_group(app, "Pages");
  takes_folder(app.add_option("--out", f.out, "Folder of the pages"))->capture_default_str();
  takes_folder(app.add_option("--proof", f.proof, "Folder of the proof files of fovea conformance"))
      ->capture_default_str();
  app.add_flag("--check", f.check, "Write nothing; exit with 1 where a page differs, and name the line");
}

Status run_docs(const DocsFlags& flags) {
  FOVEA_TRY(proofs, read_proofs(flags.proof));
  FOVEA_TRY(pages, docs::render_pages(project_backends(), proofs));
  for (const docs::Page& page : pages) {
    const std::string path = (fs::path(flags.out) / page.file).string();
    if (!flags.check) {
      FOVEA_RETURN_IF_ERROR(write_page(path, page));
      continue;
    }
    std::error_code unknown;  // then read_file() reports the error
    const bool missing = !fs::exists(path, unknown) && !unknown;
    FOVEA_TRY(have, missing ? Result<std::string>("") : read_file(path));
    FOVEA_RETURN_IF_ERROR(docs::check_page(path, have, page));
  }
  return {};
}

}  // namespace fovea::cli
