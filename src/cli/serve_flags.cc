// Flags of fovea serve.
#include "cli/flags.h"

namespace fovea::cli {
namespace {

/// CLI11's own range check accepts NaN.
CLI::Validator seconds_of(double least) {
  static constexpr double kMost = 86400;  // a day
  return CLI::Validator(
      [least](const std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= kMost) return "";
        return "must be a number of seconds from " + CLI::detail::to_string(least) + " to " +
               CLI::detail::to_string(kMost) + ", not " + text;
      },
      "");
}

void add_network_flags(CLI::App& app, ServeFlags& f) {
  start_group(app, "Network");
  app.add_option("--host", f.host,
                 "Address or name to listen on; give --api-key if other machines can reach it")
      ->capture_default_str();
  app.add_option("--port", f.port, "0 = any free one")->check(CLI::Range(0, 65535))->capture_default_str();
  takes_file(app.add_option("--uds", f.uds, "A UNIX socket's path, instead of --host and --port"));
  app.add_option("--served-model-name", f.served_names,
                 "Name of the model in the API (repeatable, the first is in answers; default: as --model)")
      ->allow_extra_args(false);
  app.add_flag("--no-playground", f.no_playground, "No page at /");
}

void add_access_flags(CLI::App& app, ServeFlags& f) {
  start_group(app, "Access");
  app.add_option(
         "--api-key", f.api_keys,
         "A key that clients must send (repeatable). A command line can be seen by others: FOVEA_API_KEY "
         "or VLLM_API_KEY in the environment can not")
      ->allow_extra_args(false);
  app.add_option("--allowed-origins", f.allowed_origins,
                 "Origins of web pages that may use the server (repeatable; * = all; default: none)")
      ->allow_extra_args(false);
  app.add_option("--allowed-host", f.allowed_hosts,
                 "A name in Host headers, beside addresses and localhost, that is served on the loopback "
                 "without a key (repeatable; * = any)")
      ->allow_extra_args(false);
  app.add_flag("--ignore-unknown-fields", f.ignore_unknown_fields,
               "Accept requests with unknown fields; the header X-Ignored-Fields names them (default: 400)");
}

void add_answer_flags(CLI::App& app, ServeFlags& f) {
  start_group(app, "Tools and reasoning");
  app.add_option(
         "--tool-call-parser", f.tool_call_parser,
         "How the model writes tool calls: auto (as its chat template shows), none, hermes, llama3_json, "
         "pythonic, mistral, qwen3_coder, deepseek_v3, deepseek_v31, deepseek_v32, kimi_k2, glm4, "
         "minimax, gemma, functiongemma or harmony; other servers' names too")
      ->capture_default_str();
  app.add_option("--reasoning-parser", f.reasoning_parser,
                 "How the model marks its reasoning: auto, none, qwen3, deepseek_r1, glm45, kimi_k2, "
                 "minimax_m2, mistral, cohere, seed_oss, gemma4 or harmony")
      ->capture_default_str();
  app.add_option(
      "--template-kwargs", f.template_kwargs,
      "JSON object of variables for the chat template, such as {\"enable_thinking\": false}, where a "
      "request does not set them");
}

void add_load_flags(CLI::App& app, ServeFlags& f) {
  start_group(app, "Queue and shutdown");
  app.add_option("--max-queued-requests,--max-num-queued-reqs", f.max_queued_requests,
                 "Answers that may wait in the queue; more are refused with 503")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-queued-tokens,--max-num-queued-tokens", f.max_queued_tokens,
                 "Prompt tokens that may wait; 0 = no limit")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  app.add_option("--request-timeout", f.request_timeout,
                 "Seconds from a request's arrival to the end of its answer, then 504; clients may ask for "
                 "less with the header X-Request-Timeout; 0 = no limit")
      ->check(seconds_of(0))
      ->capture_default_str();
  app.add_option("--queue-timeout", f.queue_timeout,
                 "Seconds that a request may wait in the queue, then 503; 0 = no limit")
      ->check(seconds_of(0))
      ->capture_default_str();
  app.add_option("--shutdown-timeout", f.shutdown_timeout,
                 "Seconds for running answers to finish after SIGTERM; afterwards they end with an error")
      ->check(seconds_of(0))
      ->capture_default_str();
  app.add_option("--sse-keepalive", f.sse_keepalive, "Seconds after which a silent stream sends a comment")
      ->check(seconds_of(0.01))
      ->capture_default_str();
}

void add_http_flags(CLI::App& app, ServeFlags& f) {
  suggest(app.add_option("--per-request-spec-decode-metrics", f.draft_metrics,
                         "How drafts fared, beside the usage of answers with one choice: none, summary, "
                         "detailed (by place)"),
          {"none", "summary", "detailed"})
      ->check(CLI::IsMember({"none", "summary", "detailed"}))
      ->capture_default_str();
  start_group(app, "HTTP limits");
  app.add_option("--io-threads", f.io_threads, "Threads that carry connections")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--max-body-bytes", f.max_body_bytes, "Largest request body")
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--max-answer-bytes", f.max_answer_bytes,
                 "Largest answer that is not streamed, as estimated before it is computed; all answers in "
                 "memory may have 16 times that")
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--max-header-bytes", f.max_header_bytes, "Largest request line and headers together")
      ->check(CLI::Range(int64_t{1} << 10, int64_t{1} << 20))
      ->capture_default_str();
  app.add_option("--max-connections", f.max_connections,
                 "Maximum open connections; above it, idle ones are closed for new ones, or new ones get 503")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--max-connections-per-address", f.max_connections_per_address,
                 "Connections of one client address at a time; 0 = half of --max-connections")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  const auto seconds = [&app](const char* name, double& value, const char* text) {
    app.add_option(name, value, text)->check(seconds_of(0.1))->capture_default_str();
  };
  seconds("--header-timeout", f.header_timeout, "Seconds that a request's headers may take");
  seconds("--body-timeout", f.body_timeout, "Seconds that may pass without a byte of a body");
  seconds("--keep-alive-timeout,--timeout-keep-alive", f.keep_alive_timeout, "Seconds between two requests");
  seconds("--write-timeout", f.write_timeout, "Seconds that a client may read no byte of its answer");
}

}  // namespace

void add_serve(CLI::App& root, ServeFlags& f) {
  auto& app = *root.add_subcommand("serve", "Serve the OpenAI API over HTTP");
  add_network_flags(app, f);
  add_access_flags(app, f);
  add_answer_flags(app, f);
  add_load_flags(app, f);
  add_http_flags(app, f);
  start_group(app, "Requests");
  takes_file(
      app.add_option("--chat-template", f.model.chat_template, "A file or the text, instead of the model's"));
  app.add_option("--chat-template-name", f.model.chat_template_name, "Of those that the model has");
  app.add_option("--generation-config", f.model.generation_config,
                 "Where defaults of requests come from: auto (the model's), vllm (nowhere), or a folder");
  add_max_logprobs(app, f.model);
  add_profile_flags(app, f.model);
  add_lora_flags(app, f.model);
  app.add_flag("--allow-lora-updating", f.allow_lora_updating,
               "Clients may load adapters from this machine's disk, and unload them (also by "
               "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)");
  add_model_flags(app, f.model, "MODEL,--model,--model-path");
}

}  // namespace fovea::cli
