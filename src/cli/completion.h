#pragma once
// fovea completion: shell scripts that ask the program for the possible continuations of a command line.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea::cli {

struct CompletionFlags {
  std::string shell;
};

void add_completion(CLI::App& root, CompletionFlags& flags);
Status run_completion(const CompletionFlags& flags);

/// Whether these arguments are a completion request from a script: completion --words WORD...
bool is_completion_request(const std::vector<std::string>& arguments);

/// The answer to such a request. Its first line is the kind: "names" (followed by a line
/// "NAME<tab>DESCRIPTION" for each), "files", "folders" or "none". The last word is the part typed so far of
/// the word to complete.
std::string complete(const CLI::App& root, const std::vector<std::string>& arguments);

}  // namespace fovea::cli
