// The fovea program: flags in, one command run, errors on one line with exit code 2 (bad input) or 1.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <iostream>

#include "base/edit_distance.h"
#include "base/log.h"
#include "cli/backends.h"
#include "cli/conformance.h"
#include "cli/json_io.h"

namespace fovea::cli {
namespace {

constexpr int kBadInput = 2;

/// The library takes what does not fit for the largest number.
std::string check_uint64(const std::string& text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return {};
  return "Value " + text + " is no integer from 0 to " + std::to_string(UINT64_MAX);
}

void add_model_flags(CLI::App& app, ModelFlags& f) {
  app.add_option(
      "--model,--model-path", f.model,
      "Folder in Hugging Face format, or a hub id found in the local cache (default: the demo model)");
  app.add_option("--attention-backend,--attn", f.attention.backend,
                 "Backend by name, \"auto\", or a pair \"prefill,decode\" (default: auto)");
  app.add_option("--prefill-attention-backend", f.attention.prefill_backend, "Backend of the prefill phase");
  app.add_option("--decode-attention-backend", f.attention.decode_backend, "Backend of the decode phase");
  app.add_option("--page-size,--block-size", f.page_size,
                 "Tokens of a KV page (default: the backend's preferred)");
  app.add_option("--kv-cache-dtype", f.kv_cache_dtype,
                 "auto, float32, float16, bfloat16, fp8 (fp8_e4m3), fp8_e5m2 or int8_per_token_head "
                 "(default: auto, the model's)");
  app.add_option("--kv-layout", f.kv_layout, "Of KV pages: nhd, hnd, x_packed or auto (default: auto, hnd)");
  app.add_option("--dtype", f.dtype, "auto, float32, bfloat16 or float16: weights, and the KV cache on auto");
  app.add_option("--max-running-requests,--max-num-seqs", f.max_running_requests,
                 "Sequences that run together")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens,--chunked-prefill-size", f.max_batched_tokens,
                 "Tokens of one step")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-seq-len-override,--max-model-len,--context-length", f.max_seq_len,
                 "Longest sequence in tokens (default: the model's)")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--num-pages,--num-gpu-blocks-override", f.num_pages,
                 "Pages of the KV cache (default: by memory)")
      ->check(CLI::PositiveNumber);
  app.add_option("--memory-share,--mem-fraction-static", f.memory_share,
                 "Share of the free memory that the KV cache may take")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  app.add_option(
         "--scheduling-policy", f.scheduling_policy,
         "Who is served first: fcfs (who came first) or priority (the lowest \"priority\" of the rows)")
      ->capture_default_str();
  app.add_flag("--disable-radix-cache,--no-enable-prefix-caching", f.no_prefix_cache, "Reuse no prefixes");
  app.add_option("--threads", f.threads, "Threads (default: one per usable CPU)")->check(CLI::Range(1, 1024));
  app.add_option("--seed", f.seed, "Seed of sampling and of dummy weights")
      ->check(check_uint64)
      ->capture_default_str();
  app.add_flag("--dummy-weights", f.dummy_weights, "Random weights from config.json alone");
}

void add_json_flag(CLI::App& app, ModelFlags& f) {
  app.add_flag("--json", f.json, "Results as JSON");
}

void add_sampling_flags(CLI::App& app, SamplingFlags& f, ModelFlags& model) {
  app.add_option(
         "--generation-config", model.generation_config,
         "Where defaults come from: auto (the model's generation_config.json), vllm or none (nowhere), "
         "or a folder or file")
      ->capture_default_str();
  app.add_option("--temperature", f.temperature, "0 = greedy (default: the model's, else 1)")
      ->check(CLI::Range(0.0, 100.0));
  app.add_option("--top-p", f.top_p, "Nucleus")->check(CLI::Range(0.0, 1.0));
  app.add_option("--top-k", f.top_k, "Most probable tokens kept; 0 or -1 = all")
      ->check(CLI::Range(-1, 1 << 30));
  app.add_option("--min-p", f.min_p, "Least probability, relative to the largest")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--max-tokens,--max-new-tokens,-n", f.max_tokens,
                 "New tokens at most (default: the context)")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--min-tokens", f.min_tokens, "No end before so many new tokens")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--repetition-penalty", f.repetition_penalty,
                 "Divides positive logits of tokens of prompt and answer, multiplies others; 1 = off")
      ->check(CLI::PositiveNumber);
  app.add_option("--frequency-penalty", f.frequency_penalty, "Subtracted for each time a token was answered")
      ->check(CLI::Range(-2.0, 2.0));
  app.add_option("--presence-penalty", f.presence_penalty, "Subtracted once from tokens that were answered")
      ->check(CLI::Range(-2.0, 2.0));
  app.add_option_function<std::string>(
      "--logit-bias",
      [&f](const std::string& text) {
        auto bias = parse_logit_bias(text);
        if (!bias) throw CLI::ValidationError(bias.error().message);
        f.logit_bias = *std::move(bias);
      },
      "Added to logits: a JSON object of token ids and -100 to 100, {\"13\": -100}");
  app.add_option("--bad-word", f.bad_words, "Text that is not answered (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--allowed-token-id", f.allowed_token_ids, "The only token ids that are drawn (repeatable)")
      ->allow_extra_args(false);
  app.add_option("--stop", f.stop, "Text that ends the answer (repeatable)")->allow_extra_args(false);
  app.add_option("--stop-token-id", f.stop_token_ids, "Token id that ends the answer (repeatable)")
      ->allow_extra_args(false);
  app.add_flag("--include-stop-str-in-output", f.include_stop_str_in_output,
               "The answer ends with the stop text");
  app.add_flag_callback(
      "--no-skip-special-tokens", [&f] { f.skip_special_tokens = false; },
      "Special tokens appear in the text");
  app.add_flag("--ignore-eos", f.ignore_eos, "Go on past end tokens");
}

void add_template_flags(CLI::App& app, ModelFlags& model, TemplateFlags& f) {
  app.add_option("--chat-template", model.chat_template,
                 "Jinja file or text instead of the model's template");
  app.add_option("--chat-template-name", model.chat_template_name,
                 "One of the model's templates (default: tool_use with tools, else default)");
  app.add_option("--tools", f.tools, "File with a JSON list of tools for the template");
  app.add_option("--documents", f.documents, "File with a JSON list of documents for the template");
  app.add_option("--template-kwargs", f.kwargs,
                 "JSON object of variables for the template, such as {\"enable_thinking\": false}");
}

void add_max_logprobs(CLI::App& app, ModelFlags& f) {
  app.add_option("--max-logprobs", f.max_logprobs, "Most that a row may ask for; -1 = no limit")
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
}

/// What a command line can select.
struct Flags {
  GenerateFlags generate;
  ChatFlags chat;
  ScoreFlags score;
  EmbedFlags embed;
  BenchModelFlags bench_model;
  BenchAttentionFlags bench_attention;
  BenchLinearFlags bench_linear;
  BenchMachineFlags bench_machine;
  BackendsFlags backends;
  ConformanceFlags conformance;
};

void add_generate(CLI::App& root, GenerateFlags& f) {
  auto& app = *root.add_subcommand("generate", "Complete prompts");
  // One option: of two with the same variable the later would win.
  app.add_option("prompts,--prompt,-p", f.prompts, "Prompts (repeatable)");
  app.add_option("--prompt-file", f.prompt_file, "A file that is one prompt");
  app.add_option("--input", f.input,
                 "JSON lines (- = standard input), each with \"prompt\", \"messages\", \"ids\" or \"audio\", "
                 "optionally \"id\", and what else a request has: tools, documents, chat_template_kwargs, " +
                     request_fields());
  app.add_option("--output", f.output, "JSON lines, in the order of the input (default: standard output)");
  app.add_option("--audio", f.audio, "A WAV file that the model hears (Whisper; repeatable)")
      ->allow_extra_args(false);
  app.add_option("--decoder-prompt", f.decoder_prompt,
                 "What an encoder-decoder model's answer begins with, special tokens included (default: the "
                 "model's)");
  app.add_flag("--chat", f.chat, "Prompts are user turns of the chat template");
  app.add_option("--system", f.system, "System message before a chat");
  app.add_flag("--stats", f.stats, "Say at the end what the engine did, on standard error");
  app.add_option("--n", f.sampling.n, "Answers to each prompt")->check(CLI::Range(1, 128));
  app.add_option("--logprobs", f.sampling.logprobs,
                 "Log probability of each new token, and of so many most probable ones; -1 = all (JSON only)")
      ->check(CLI::Range(-1, 1 << 30));
  app.add_option("--prompt-logprobs", f.sampling.prompt_logprobs,
                 "The same of the prompt's tokens (JSON only)")
      ->check(CLI::Range(-1, 1 << 30));
  add_template_flags(app, f.model, f.chat_template);
  add_max_logprobs(app, f.model);
  add_json_flag(app, f.model);
  add_model_flags(app, f.model);
  add_sampling_flags(app, f.sampling, f.model);
}

void add_chat(CLI::App& root, ChatFlags& f) {
  auto& app = *root.add_subcommand("chat", "Talk to the model");
  app.add_option("--system", f.system, "System message");
  app.add_option("--messages", f.messages, "File with a JSON list of messages: answer it and leave");
  app.add_flag("--print-prompt", f.print_prompt, "Print the prompt of --messages instead of an answer");
  app.add_flag("--no-generation-prompt", f.no_generation_prompt, "End --messages without opening an answer");
  app.add_flag("--continue-final-message", f.continue_final_message, "Go on with the last of --messages");
  add_template_flags(app, f.model, f.chat_template);
  add_model_flags(app, f.model);
  add_sampling_flags(app, f.sampling, f.model);
}

void add_score(CLI::App& root, ScoreFlags& f) {
  auto& app = *root.add_subcommand("score", "Log probabilities of given texts");
  app.add_option(
         "--input", f.input,
         "JSON lines, each with \"text\", \"ids\" or \"messages\", and optional \"id\"; - = standard input")
      ->required();
  app.add_option("--output", f.output, "JSON lines (default: standard output)");
  app.add_option("--prompt-logprobs", f.prompt_logprobs, "Also so many most probable tokens; -1 = all")
      ->check(CLI::Range(-1, 1 << 30));
  add_max_logprobs(app, f.model);
  app.add_flag("--last-logits", f.last_logits, "Also the whole logits row after the last token");
  add_model_flags(app, f.model);
}

void add_embed(CLI::App& root, EmbedFlags& f) {
  auto& app = *root.add_subcommand("embed", "Vectors of texts, by an encoder (BERT, RoBERTa, ...)");
  app.add_option("texts", f.texts, "Texts");
  app.add_option(
      "--input", f.input,
      "JSON lines, each with \"input\", \"text\" or \"token_ids\", and optional \"id\"; - = standard "
      "input");
  app.add_option("--output", f.output, "JSON lines, in the order of the input (default: standard output)");
  app.add_option("--pooling", f.pooling, "mean, cls or last (default: the model's modules.json, else mean)");
  app.add_flag("--normalize,!--no-normalize", f.normalize,
               "Vectors of length 1 (default: as the model's modules.json says, else no)");
  app.add_flag("--truncate", f.truncate, "Cut texts that are too long");
  app.add_option("--model,--model-path", f.model.model,
                 "Folder in Hugging Face format, or a hub id found in the local cache")
      ->required();
  app.add_option("--attention-backend,--attn", f.model.attention.backend,
                 "Backend by name, or \"auto\" (default: auto)");
  app.add_option("--dtype", f.model.dtype, "auto, float32, bfloat16 or float16: the weights");
  app.add_option("--max-num-batched-tokens", f.model.max_batched_tokens, "Tokens of one pass")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-seq-len-override,--max-model-len,--context-length", f.model.max_seq_len,
                 "Longest text in tokens (default: the model's)")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--threads", f.model.threads, "Threads (default: one per usable CPU)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seed", f.model.seed, "Seed of dummy weights")->check(check_uint64)->capture_default_str();
  app.add_flag("--dummy-weights", f.model.dummy_weights, "Random weights from config.json alone");
}

void add_bench(CLI::App& root, Flags& f) {
  auto& bench = *root.add_subcommand("bench", "Measure");
  bench.require_subcommand(1);
  auto& model =
      *bench.add_subcommand("model", "Tokens/s and bytes per token, as a share of the read bandwidth");
  model.add_option("--prompt-tokens", f.bench_model.prompt_tokens)
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  model.add_option("--new-tokens", f.bench_model.new_tokens)
      ->check(CLI::Range(2, 1 << 24))
      ->capture_default_str();
  model.add_option("--batch", f.bench_model.batch)->check(CLI::Range(1, 4096))->capture_default_str();
  add_json_flag(model, f.bench_model.model);
  add_model_flags(model, f.bench_model.model);
  auto& attention =
      *bench.add_subcommand("attention", "CPU_ATTN against the FMA peak and the read bandwidth");
  attention.add_option("--phase", f.bench_attention.phase)
      ->check(CLI::IsMember({"prefill", "decode", "both"}))
      ->capture_default_str();
  attention.add_option("--seq-len", f.bench_attention.seq_len, "Keys (default: 2048 prefill, 16384 decode)")
      ->check(CLI::Range(1, 1 << 24));
  attention.add_option("--batch", f.bench_attention.batch, "Sequences (default: 1 prefill, 8 decode)")
      ->check(CLI::Range(1, 4096));
  attention.add_option("--heads", f.bench_attention.num_heads)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  attention.add_option("--kv-heads", f.bench_attention.num_kv_heads)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  attention.add_option("--head-dim", f.bench_attention.head_dim)
      ->check(CLI::Range(16, 512))
      ->capture_default_str();
  attention.add_option("--page-size", f.bench_attention.page_size)
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  attention.add_option("--kv-cache-dtype", f.bench_attention.kv_cache_dtype)->capture_default_str();
  attention.add_option("--kv-layout", f.bench_attention.kv_layout, "nhd, hnd or x_packed")
      ->capture_default_str();
  attention.add_option("--threads", f.bench_attention.threads)->check(CLI::Range(1, 1024));
  attention.add_flag("--json", f.bench_attention.json);
  auto& linear = *bench.add_subcommand("linear", "Linear layers against the read bandwidth and the FMA peak");
  linear.add_option("--rows", f.bench_linear.rows, "Rows M")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  linear.add_option("--dtype", f.bench_linear.dtype, "Of the weights")->capture_default_str();
  linear.add_option("--threads", f.bench_linear.threads)->check(CLI::Range(1, 1024));
  linear.add_flag("--json", f.bench_linear.json);
  auto& machine = *bench.add_subcommand("machine", "FMA rates, and the read bandwidth of each memory level");
  machine.add_option("--threads", f.bench_machine.threads)->check(CLI::Range(1, 1024));
  machine.add_flag("--json", f.bench_machine.json);
}

/// The library takes a positional "[a,b]" for two; it doesn't where something follows the bracket.
constexpr char kNoList = '\x1f';

/// Arguments as the library wants them: the last one first.
std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> out(argv + 1, argv + argc);
  for (std::string& argument : out)
    if (argument.starts_with('[')) argument += kNoList;
  std::reverse(out.begin(), out.end());
  return out;
}

std::string without_mark(std::string value) {
  if (value.starts_with('[') && value.ends_with(kNoList)) value.pop_back();
  return value;
}

/// Takes values as they were given. An empty one is mostly a shell variable that is not set, and the library
/// takes it for a flag not given: it is refused.
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

/// The deepest command that was named.
const CLI::App* active(const CLI::App* app) {
  for (;;) {
    const auto chosen = app->get_subcommands();
    if (chosen.empty()) return app;
    app = chosen.front();
  }
}

std::string command_name(const CLI::App* app) {
  return app->get_parent() ? command_name(app->get_parent()) + " " + app->get_name() : app->get_name();
}

int report(const std::string& message) {
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

int report_parse_error(const CLI::App& root, const CLI::ParseError& error) {
  std::string text = error.what();
  for (char& c : text)
    if (c == '\n') c = ' ';
  return report(text + " (" + command_name(active(&root)) + " --help lists what is allowed)");
}

int finish(const Status& status) {
  if (status) return 0;
  std::string message = status.error().message;
  for (char& c : message)
    if (c == '\n') c = ' ';
  report(message);
  const ErrorCode code = status.error().code;
  return code == ErrorCode::internal || code == ErrorCode::cancelled ? 1 : kBadInput;
}

/// A descriptor that the caller closed would be given to the next file that is opened, and messages would go
/// into it. Read-only: what is written to it fails.
void open_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDONLY);
}

Status check_output(Status status) {
  if (status && (std::fflush(stdout) != 0 || std::ferror(stdout)))
    return io_error("cannot write to standard output: is it closed, or the disk full?");
  return status;
}

Status run_chosen(const CLI::App& root, const Flags& flags) {
  const std::string name = command_name(active(&root));
  if (name == "fovea generate") return run_generate(flags.generate);
  if (name == "fovea chat") return run_chat(flags.chat);
  if (name == "fovea score") return run_score(flags.score);
  if (name == "fovea embed") return run_embed(flags.embed);
  if (name == "fovea backends") return run_backends(flags.backends);
  if (name == "fovea conformance") return run_conformance(flags.conformance);
  if (name == "fovea bench model") return run_bench_model(flags.bench_model);
  if (name == "fovea bench attention") return run_bench_attention(flags.bench_attention);
  if (name == "fovea bench linear") return run_bench_linear(flags.bench_linear);
  return run_bench_machine(flags.bench_machine);
}

int run(int argc, char** argv) {
  CLI::App root("LLM inference with a pluggable, proven attention layer", "fovea");
  root.set_version_flag("--version", "fovea " FOVEA_VERSION);
  root.require_subcommand(1);
  root.fallthrough();
  std::string log = "warning";
  root.add_option("--log-level", log, "debug, info, warning, error or off")
      ->check(CLI::IsMember({"debug", "info", "warning", "error", "off"}))
      ->capture_default_str();
  Flags flags;
  add_generate(root, flags.generate);
  add_chat(root, flags.chat);
  add_score(root, flags.score);
  add_embed(root, flags.embed);
  add_bench(root, flags);
  add_backends(root, flags.backends);
  add_conformance(root, flags.conformance);
  check_values(root);
  try {
    root.parse(arguments(argc, argv));
  } catch (const CLI::ExtrasError&) {
    return report_unknown(root);
  } catch (const CLI::Success& done) {  // --help, --version
    return root.exit(done);
  } catch (const CLI::ParseError& error) {
    if (argc > 1 && active(&root) == &root && argv[1][0] != '-') return report_unknown(root);
    return report_parse_error(root, error);
  }
  set_log_level(*parse_log_level(log));
  return finish(check_output(run_chosen(root, flags)));
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
