// The fovea program: flags in, one command run, errors on one line with exit code 2 (bad input) or 1.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iostream>

#include "base/edit_distance.h"
#include "base/log.h"
#include "cli/backends.h"
#include "cli/command_line.h"
#include "cli/completion.h"
#include "cli/configuration.h"
#include "cli/conformance.h"
#include "cli/docs.h"
#include "cli/flags.h"
#include "fovea/backend_library.h"

namespace fovea::cli {
namespace {

constexpr int kBadInput = 2;

/// The flags of every command.
struct Flags {
  GenerateFlags generate;
  ChatFlags chat;
  ScoreFlags score;
  EmbedFlags embed;
  ServeFlags serve;
  ExplainFlags explain;
  TuneFlags tune;
  PullFlags pull;
  BenchFlags bench;
  BackendsFlags backends;
  ConformanceFlags conformance;
  DocsFlags docs;
  CompletionFlags completion;
  BackendRegistry registry;  ///< includes backends loaded by --backend-library

  /// The model flags of the named command; null if it loads no model.
  ModelFlags* model_of(std::string_view command) {
    if (command == "fovea generate") return &generate.model;
    if (command == "fovea chat") return &chat.model;
    if (command == "fovea score") return &score.model;
    if (command == "fovea embed") return &embed.model;
    if (command == "fovea serve") return &serve.model;
    if (command == "fovea explain") return &explain.model;
    if (command == "fovea bench model") return &bench.model.model;
    return nullptr;
  }
};

/// CLI11 splits a positional "[a,b]" into two, unless a character follows the bracket.
constexpr char kNoList = '\x1f';

/// Arguments in the order that CLI11 expects: last one first.
std::vector<std::string> for_library(std::vector<std::string> out) {
  for (std::string& argument : out)
    if (argument.starts_with('[')) argument += kNoList;
  std::reverse(out.begin(), out.end());
  return out;
}

/// Splits "--host=" into the flag and an empty value; CLI11 would take the next argument as its value.
std::vector<std::string> split_empty_values(const CLI::App& root, const std::vector<std::string>& arguments) {
  const CLI::App* command = find_command(root, arguments).app;
  std::vector<std::string> out;
  bool flags = true;
  for (const std::string& argument : arguments) {
    flags = flags && argument != "--";
    out.push_back(argument);
    if (!flags || !argument.starts_with("--") || argument.find('=') + 1 != argument.size()) continue;
    const std::string name = argument.substr(0, argument.size() - 1);
    const CLI::Option* option = find_option(command, name);
    if (option == nullptr || !takes_value(*option)) continue;
    out.back() = name;
    out.emplace_back();
  }
  return out;
}

std::string without_mark(std::string value) {
  if (value.starts_with('[') && value.ends_with(kNoList)) value.pop_back();
  return value;
}

/// Removes kNoList from values and refuses empty ones: most come from an unset shell variable, and CLI11
/// treats them as a flag not given.
void check_values(CLI::App& app) {
  constexpr std::string_view kMayBeEmpty[] = {"prompts", "--prompt", "texts", "--system"};
  for (CLI::Option* option : app.get_options()) {
    option->transform(without_mark);
    const auto is = [option](std::string_view name) { return option->check_name(std::string(name)); };
    if (option->get_type_size_max() == 0 || std::any_of(std::begin(kMayBeEmpty), std::end(kMayBeEmpty), is))
      continue;
    option->check([](const std::string& value) -> std::string {
      return value.empty() ? "the value is empty; give one, or leave the flag out" : "";
    });
  }
  for (CLI::App* command : app.get_subcommands({}))
    check_values(*command);
}

/// The innermost subcommand that was named.
const CLI::App* active(const CLI::App* app) {
  for (;;) {
    const auto chosen = app->get_subcommands();
    if (chosen.empty()) return app;
    app = chosen.front();
  }
}

/// Reads what CLI11 does not parse: attention settings and other engines' flags.
Result<LaunchLine> read_line(const Command& command, const std::vector<std::string>& arguments,
                             const Configuration& configuration) {
  const auto own = [&](std::string_view name) -> std::optional<OwnFlag> {
    const CLI::Option* option = find_option(command.app, std::string(name));
    if (option == nullptr || option->get_lnames().empty()) return std::nullopt;
    return OwnFlag{first_name(*option), takes_value(*option)};
  };
  const auto first = arguments.begin() + static_cast<ptrdiff_t>(command.first);
  const bool serves = command.app->get_name() == "explain" && arguments.end() - first > 1 &&
                      *first == "serve" && !first[1].starts_with('-');  // vllm serve MODEL
  FOVEA_TRY(line, read_launch_line({first + (serves ? 1 : 0), arguments.end()}, own));
  line.arguments.insert(line.arguments.begin(), arguments.begin(), first);
  for (const FlagSource& source : configuration.sources)
    if (source.option != nullptr)
      line.spelled[first_name(*source.option)] =
          source.variable.empty() ? source.place : "env " + source.variable;
  return line;
}

int report(const std::string& message) {
  if (log_format() == LogFormat::json)
    write_log_line(LogLevel::error, message);
  else
    std::cerr << "fovea: " << message << '\n';
  return kBadInput;
}

int report_unknown(const CLI::App& root) {
  const CLI::App* app = active(&root);
  const auto extras = root.remaining(true);
  const std::string first = extras.empty() ? "" : without_mark(extras.front());
  const std::string given = first.substr(0, first.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : app->get_options())
    for (const std::string& name : option->get_lnames())
      names.push_back("--" + name);
  for (const CLI::App* sub : app->get_subcommands({}))
    names.push_back(sub->get_name());
  const std::string_view near = nearest_name(given, {names.begin(), names.end()});
  return report(std::string(given.starts_with('-') ? "unknown flag " : "unknown argument ") +
                (given.empty() ? "\"\"" : given) +
                (near.empty() ? "" : "; did you mean " + std::string(near) + "?") + " (" + command_name(app) +
                " --help lists what is allowed)");
}

int report_parse_error(const CLI::App& root, const CLI::ParseError& error,
                       const Configuration& configuration) {
  std::string text = error.what();
  for (char& c : text)
    if (c == '\n') c = ' ';
  return report(
      configuration.explained(text + " (" + command_name(active(&root)) + " --help lists what is allowed)"));
}

int finish(const Status& status, const Configuration& configuration) {
  if (status) return 0;
  std::string message = status.error().message;
  for (char& c : message)
    if (c == '\n') c = ' ';
  report(configuration.explained(message));
  const ErrorCode code = status.error().code;
  return code == ErrorCode::internal || code == ErrorCode::cancelled ? 1 : kBadInput;
}

/// Opens closed standard descriptors: otherwise the next opened file would get such a number and messages
/// would be written into it. Read-only, so that writes fail.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDONLY);
}

Status check_output(Status status) {
  if (status && (std::fflush(stdout) != 0 || std::ferror(stdout)))
    return io_error("cannot write to standard output: is it closed, or the disk full?");
  return status;
}

/// Adds the backends of --backend-library to the command's registry.
Status load_libraries(const std::vector<std::string>& files, const BackendRegistry*& registry, Flags& flags) {
  if (files.empty()) return {};
  FOVEA_TRY(loaded, with_backend_libraries(builtin_backends(), files));
  flags.registry = std::move(loaded);
  registry = &flags.registry;
  return {};
}

/// Applies the settings that CLI11 does not parse; a command that runs a model refuses those not built.
Status prepare(const CLI::App& command, LaunchLine line, const std::vector<std::string>& environment,
               Flags& flags) {
  BackendsFlags& backends = flags.backends;
  FOVEA_RETURN_IF_ERROR(load_libraries(backends.libraries, backends.registry, flags));
  ConformanceFlags& conformance = flags.conformance;
  FOVEA_RETURN_IF_ERROR(load_libraries(conformance.libraries, conformance.registry, flags));
  ModelFlags* model = flags.model_of(command_name(&command));
  if (model == nullptr) return {};
  FOVEA_RETURN_IF_ERROR(load_libraries(model->backend_libraries, model->registry, flags));
  FOVEA_RETURN_IF_ERROR(take_settings(std::move(line), environment, *model));
  return model == &flags.explain.model ? Status() : check_settings(*model);
}

Status run_chosen(const CLI::App& root, const Flags& flags) {
  const std::string name = command_name(active(&root));
  if (name == "fovea generate") return run_generate(flags.generate);
  if (name == "fovea chat") return run_chat(flags.chat);
  if (name == "fovea score") return run_score(flags.score);
  if (name == "fovea embed") return run_embed(flags.embed);
  if (name == "fovea serve") return run_serve(flags.serve);
  if (name == "fovea explain") return run_explain(flags.explain);
  if (name == "fovea tune") return run_tune(flags.tune);
  if (name == "fovea pull") return run_pull(flags.pull);
  if (name == "fovea backends") return run_backends(flags.backends);
  if (name == "fovea conformance") return run_conformance(flags.conformance);
  if (name == "fovea docs") return run_docs(flags.docs);
  if (name == "fovea completion") return run_completion(flags.completion);
  if (name == "fovea bench model") return run_bench_model(flags.bench.model);
  if (name == "fovea bench attention") return run_bench_attention(flags.bench.attention);
  if (name == "fovea bench linear") return run_bench_linear(flags.bench.linear);
  if (name == "fovea bench serve") return run_bench_serve(flags.bench.serve);
  return run_bench_machine(flags.bench.machine);
}

/// Reads the log format first, so that errors of other flags are reported in it.
void take_log_format(const std::vector<std::string>& arguments, const std::vector<std::string>& environment) {
  const auto take = [](std::string_view entry, std::string_view start) {
    if (!entry.starts_with(start)) return;
    if (const auto format = parse_log_format(entry.substr(start.size()))) set_log_format(*format);
  };
  for (const std::string& entry : environment)
    take(entry, "FOVEA_LOG_FORMAT=");
  for (size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    take(arguments[i], "--log-format=");
    if (arguments[i] == "--log-format" && i + 1 < arguments.size()) take(arguments[i + 1], "");
  }
}

int run(int argc, char** argv) {
  CLI::App root("LLM inference with a pluggable, proven attention layer", "fovea");
  use_help_format(root);
  root.set_version_flag("--version", "fovea " FOVEA_VERSION);
  root.require_subcommand(1);
  root.fallthrough();
  std::string log = "warning", log_as = "text", config;  // read before CLI11 parses
  one_of(root.add_option("--log-level", log, "Minimum log level"),
         {"debug", "info", "warning", "error", "off"})
      ->capture_default_str();
  one_of(root.add_option("--log-format", log_as, "Log lines as text, or each as a JSON object"),
         {"text", "json"})
      ->capture_default_str();
  takes_file(root.add_option("--config", config,
                             "A TOML file of flags, in a section for each command; FOVEA_* variables go "
                             "before it, and flags before both"));
  Flags flags;
  add_generate(root, flags.generate);
  add_chat(root, flags.chat);
  add_score(root, flags.score);
  add_embed(root, flags.embed);
  add_serve(root, flags.serve);
  add_explain(root, flags.explain);
  add_tune(root, flags.tune);
  add_pull(root, flags.pull);
  add_bench(root, flags.bench);
  add_backends(root, flags.backends);
  add_conformance(root, flags.conformance);
  add_docs(root, flags.docs);
  add_completion(root, flags.completion);
  check_values(root);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (is_completion_request(arguments)) {
    std::fputs(complete(root, arguments).c_str(), stdout);
    return 0;
  }
  const std::vector<std::string> environment = process_environment();
  take_log_format(arguments, environment);
  arguments = split_empty_values(root, arguments);
  const Command command = find_command(root, arguments);
  Configuration configuration;
  auto configured = read_configuration(root, command, arguments, environment);
  if (!configured) return finish(configured.error(), configuration);
  configuration = *std::move(configured);
  arguments.insert(arguments.begin() + static_cast<ptrdiff_t>(command.first), configuration.arguments.begin(),
                   configuration.arguments.end());
  take_log_format(arguments, {});
  LaunchLine line;
  if (flags.model_of(command_name(command.app))) {
    auto read = read_line(command, arguments, configuration);
    if (!read) return finish(read.error(), configuration);
    line = *std::move(read);
    arguments = line.arguments;
  }
  try {
    root.parse(for_library(std::move(arguments)));
  } catch (const CLI::ExtrasError&) {
    return report_unknown(root);
  } catch (const CLI::Success& done) {  // --help, --version
    return root.exit(done);
  } catch (const CLI::ParseError& error) {
    if (argc > 1 && active(&root) == &root && argv[1][0] != '-') return report_unknown(root);
    return report_parse_error(root, error, configuration);
  }
  set_log_level(*parse_log_level(log));
  set_log_format(*parse_log_format(log_as));
  for (const std::string& warning : unknown_variables(environment, flag_variables(root)))
    FOVEA_LOG(warning) << warning;
  if (const Status ready = prepare(*active(&root), std::move(line), environment, flags); !ready)
    return finish(ready, configuration);
  return finish(check_output(run_chosen(root, flags)), configuration);
}

}  // namespace
}  // namespace fovea::cli

int main(int argc, char** argv) {
  try {
    fovea::cli::open_standard_streams();
    return fovea::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    std::cerr << "fovea: out of memory; use a smaller model, --num-pages or --max-running-requests\n";
  } catch (const std::exception& error) {
    std::cerr << "fovea: internal error: " << error.what() << '\n';
  }
  return 1;
}
