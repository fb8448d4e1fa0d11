// Flags of a request: sampling, the chat template, log probabilities.
#include <filesystem>
#include <memory>

#include "cli/flags.h"
#include "cli/json_io.h"

namespace fovea::cli {
namespace {

/// One of the flags that say which form answers have.
void add_form(CLI::App& app, SamplingFlags& f, const char* name, OutputConstraint::Kind kind,
              const char* help) {
  CLI::Option* option = app.add_option_function<std::string>(
      name,
      [&f, kind, name](const std::string& given) {
        if (f.constraint)
          throw CLI::ValidationError(name, "answers have one form; leave out all but one of these flags");
        OutputConstraint form;
        form.kind = kind;
        std::error_code error;  // a long text is not the name of a file
        if (std::filesystem::is_regular_file(given, error)) {
          auto text = read_file(given);
          if (!text) throw CLI::ValidationError(name, text.error().message);
          form.text = *std::move(text);
        } else {
          form.text = given;
        }
        f.constraint = std::make_shared<const OutputConstraint>(std::move(form));
      },
      help);
  takes_file(option);
}

void add_forms(CLI::App& app, SamplingFlags& f) {
  using Kind = OutputConstraint::Kind;
  start_group(app, "Form of answers");
  add_form(app, f, "--json-schema", Kind::json_schema,
           "Answers are JSON that a schema (file or text) allows");
  app.add_flag_callback(
      "--json-object", [&f] { f.constraint = std::make_shared<const OutputConstraint>(); },
      "Answers are JSON objects");
  add_form(app, f, "--regex", Kind::regex, "Answers match a regular expression as a whole");
  add_form(app, f, "--grammar", Kind::grammar, "Answers follow a grammar, GBNF or Lark (file or text)");
  add_form(app, f, "--structural-tag", Kind::structural_tag,
           "Answers are free text with structured parts between tags (JSON, file or text)");
  app.add_option_function<std::vector<std::string>>(
         "--choice",
         [&f](const std::vector<std::string>& texts) {
           OutputConstraint form;
           form.kind = Kind::choice;
           form.choices = texts;
           f.constraint = std::make_shared<const OutputConstraint>(std::move(form));
         },
         "A possible answer (repeatable)")
      ->allow_extra_args(false);
}

}  // namespace

void add_sampling_flags(CLI::App& app, SamplingFlags& f, ModelFlags& model) {
  start_group(app, "Sampling");
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
  add_forms(app, f);
  start_group(app, "Length and stops");
  app.add_option("--max-tokens,--max-new-tokens,-n", f.max_tokens,
                 "New tokens at most (default: the context)")
      ->check(CLI::Range(1, 1 << 30));
  app.add_option("--min-tokens", f.min_tokens, "Minimum number of new tokens")->check(CLI::NonNegativeNumber);
  app.add_option("--stop", f.stop, "Text that ends the answer (repeatable)")->allow_extra_args(false);
  app.add_option("--stop-token-id", f.stop_token_ids, "Token id that ends the answer (repeatable)")
      ->allow_extra_args(false);
  app.add_flag("--include-stop-str-in-output", f.include_stop_str_in_output,
               "The answer ends with the stop text");
  app.add_flag_callback(
      "--no-skip-special-tokens", [&f] { f.skip_special_tokens = false; },
      "Special tokens appear in the text");
  app.add_flag("--ignore-eos", f.ignore_eos, "Continue past end tokens");
}

void add_template_flags(CLI::App& app, ModelFlags& model, TemplateFlags& f) {
  takes_file(app.add_option("--chat-template", model.chat_template,
                            "Jinja file or text instead of the model's template"));
  app.add_option("--chat-template-name", model.chat_template_name,
                 "One of the model's templates (default: tool_use with tools, else default)");
  takes_file(app.add_option("--tools", f.tools, "File with a JSON list of tools for the template"));
  takes_file(
      app.add_option("--documents", f.documents, "File with a JSON list of documents for the template"));
  app.add_option("--template-kwargs", f.kwargs,
                 "JSON object of variables for the template, such as {\"enable_thinking\": false}");
}

void add_max_logprobs(CLI::App& app, ModelFlags& f) {
  app.add_option("--max-logprobs", f.max_logprobs, "Most that a row may ask for; -1 = no limit")
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
}

}  // namespace fovea::cli
