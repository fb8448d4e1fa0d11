// Flags of each command that loads a model.
#include "cli/flags.h"
#include "cli/json_io.h"

namespace fovea::cli {
namespace {

void add_row_flags(CLI::App& app, OutputFlags& f, bool& ignore_unknown) {
  takes_file(app.add_option("--output", f.output,
                            "JSON lines, in the order of the input (default: standard output)"));
  app.add_flag("--resume", f.resume,
               "Keep the rows of an interrupted run in OUTPUT.partial and continue after them");
  app.add_flag("--ignore-unknown-fields", ignore_unknown,
               "Unknown fields in rows give a warning, not an error");
}

}  // namespace

void add_generate(CLI::App& root, GenerateFlags& f) {
  auto& app = *root.add_subcommand("generate", "Complete prompts");
  start_group(app, "Input and output");
  // A single option: of two options with the same variable, the later would win.
  app.add_option("prompts,--prompt,-p", f.prompts, "Prompts (repeatable)");
  takes_file(app.add_option("--prompt-file", f.prompt_file, "A file that is one prompt"));
  takes_file(app.add_option(
      "--input", f.input,
      "JSON lines (- = standard input), each with \"prompt\", \"messages\", \"ids\" or \"audio\", "
      "optionally \"id\", and what else a request has: tools, documents, chat_template_kwargs, " +
          request_fields()));
  add_row_flags(app, f.output, f.ignore_unknown);
  takes_file(app.add_option("--audio", f.audio, "A WAV file as input of the model (Whisper; repeatable)"))
      ->allow_extra_args(false);
  app.add_option("--decoder-prompt", f.decoder_prompt,
                 "What an encoder-decoder model's answer begins with, special tokens included (default: the "
                 "model's)");
  app.add_flag("--stats", f.stats, "Print statistics of the engine to standard error at the end");
  add_json_flag(app, f.model);
  start_group(app, "Chat");
  app.add_flag("--chat", f.chat, "Prompts are user turns of the chat template");
  app.add_option("--system", f.system, "System message before a chat");
  add_template_flags(app, f.model, f.chat_template);
  start_group(app, "Answers");
  app.add_option("--n", f.sampling.n, "Answers to each prompt")->check(CLI::Range(1, 128));
  app.add_option(
         "--logprobs", f.sampling.logprobs,
         "Log probabilities of each new token and of the N most probable tokens; -1 = all (JSON only)")
      ->check(CLI::Range(-1, 1 << 30));
  app.add_option("--prompt-logprobs", f.sampling.prompt_logprobs,
                 "The same of the prompt's tokens (JSON only)")
      ->check(CLI::Range(-1, 1 << 30));
  add_max_logprobs(app, f.model);
  add_profile_flags(app, f.model);
  add_lora_flags(app, f.model);
  app.add_option("--lora", f.lora, "Adapter of prompts and rows that name none (default: none)");
  add_model_flags(app, f.model);
  add_sampling_flags(app, f.sampling, f.model);
}

void add_chat(CLI::App& root, ChatFlags& f) {
  auto& app = *root.add_subcommand("chat", "Talk to the model");
  start_group(app, "Chat");
  app.add_option("--system", f.system, "System message");
  takes_file(
      app.add_option("--messages", f.messages, "File with a JSON list of messages: answer it and exit"));
  app.add_flag("--print-prompt", f.print_prompt, "Print the prompt of --messages instead of an answer");
  app.add_flag("--no-generation-prompt", f.no_generation_prompt, "End --messages without opening an answer");
  app.add_flag("--continue-final-message", f.continue_final_message,
               "Continue the last message of --messages");
  app.add_flag("--no-history", f.no_history,
               "Don't read or keep what is typed (default: $XDG_STATE_HOME/fovea/chat_history, "
               "~/.local/state without it)");
  add_template_flags(app, f.model, f.chat_template);
  add_model_flags(app, f.model);
  add_sampling_flags(app, f.sampling, f.model);
}

void add_score(CLI::App& root, ScoreFlags& f) {
  auto& app = *root.add_subcommand("score", "Log probabilities of given texts");
  start_group(app, "Input and output");
  takes_file(app.add_option("--input", f.input,
                            "JSON lines, each with \"text\", \"ids\" or \"messages\", and optional \"id\"; "
                            "- = standard input"))
      ->required();
  add_row_flags(app, f.output, f.ignore_unknown);
  app.add_option("--prompt-logprobs", f.prompt_logprobs, "Also the N most probable tokens; -1 = all")
      ->check(CLI::Range(-1, 1 << 30));
  add_max_logprobs(app, f.model);
  app.add_flag("--last-logits", f.last_logits, "Also the whole logits row after the last token");
  add_model_flags(app, f.model);
}

void add_embed(CLI::App& root, EmbedFlags& f) {
  auto& app = *root.add_subcommand("embed", "Vectors of texts, by an encoder (BERT, RoBERTa, ...)");
  start_group(app, "Input and output");
  app.add_option("texts", f.texts, "Texts");
  takes_file(app.add_option("--input", f.input,
                            "JSON lines, each with \"input\", \"text\" or \"token_ids\", and optional "
                            "\"id\"; - = standard input"));
  add_row_flags(app, f.output, f.ignore_unknown);
  suggest(
      app.add_option("--pooling", f.pooling,
                     "mean, cls (the first token) or last (default: the model's modules.json, else mean)"),
      {"mean", "cls", "last"});
  app.add_flag_function(
      "--normalize,!--no-normalize", [&f](int64_t on) { f.normalize = on > 0; },
      "Vectors of length 1 (default: from the model's modules.json, otherwise no)");
  app.add_flag("--truncate", f.truncate, "Cut texts that are too long");
  start_group(app, "Model");
  takes_folder(app.add_option("--model,--model-path", f.model.model,
                              "Folder in Hugging Face format, or a hub id found in the local cache"))
      ->required();
  add_attention_flags(app, f.model);
  start_group(app, "Model");
  add_dtype(app, f.model, "Of the weights");
  add_device(app, f.model);
  app.add_option("--max-num-batched-tokens", f.model.max_batched_tokens, "Tokens of one pass (default: 512)")
      ->check(CLI::Range(1, 1 << 20));
  app.add_option("--max-seq-len-override,--max-model-len,--context-length", f.model.max_seq_len,
                 "Longest text in tokens (default: the model's)")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--threads", f.model.threads,
                 "Threads (default: one per CPU that the affinity mask and the cgroup allow)")
      ->check(CLI::Range(1, 1024));
  app.add_option("--seed", f.model.seed, "Seed of dummy weights")->check(check_uint64)->capture_default_str();
  app.add_flag("--dummy-weights", f.model.dummy_weights, "Random weights from config.json alone");
}

void add_explain(CLI::App& root, ExplainFlags& f) {
  auto& app = *root.add_subcommand(
      "explain",
      "Show which attention backends are selected for a model on a device, and why others are not");
  start_group(app, "Question");
  add_json_flag(app, f.model);
  add_tune_file(app, f.model);
  app.add_option(
      "--device", f.device,
      "cpu, sm75 to sm120, rocm, npu or xpu (default: this machine's); the device need not exist here");
  add_model_flags(app, f.model, "MODEL,--model,--model-path");
}

}  // namespace fovea::cli
