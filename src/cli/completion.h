#pragma once
// fovea completion: scripts for shells, which ask the program what may follow the words that are there.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "fovea/result.h"

namespace fovea::cli {

struct CompletionFlags {
  std::string shell;
};

void add_completion(CLI::App& root, CompletionFlags& flags);
Status run_completion(const CompletionFlags& flags);

/// Whether these arguments are a script's question: completion --words WORD...
bool is_completion_request(const std::vector<std::string>& arguments);

/// The answer to it. Its first line is what follows: "names" (then a line "NAME<tab>DESCRIPTION" each),
/// "files", "folders" or "none". The last word is what was typed so far of the one that is wanted.
std::string complete(const CLI::App& root, const std::vector<std::string>& arguments);

}  // namespace fovea::cli
