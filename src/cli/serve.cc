// fovea serve: the OpenAI API over HTTP, until a signal ends it.
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/log.h"
#include "base/same_name.h"
#include "cli/explain.h"
#include "cli/json_io.h"
#include "cli/profile_file.h"
#include "cli/terminal.h"
#include "cli/tuning.h"
#include "files/model_folder.h"
#include "model/config.h"
#include "model/decoder_prompt.h"
#include "server/openai/error.h"
#include "server/pages.h"
#include "server/service.h"
#include "server/web/web_files.h"

namespace fovea::cli {
namespace {

using std::chrono::milliseconds;

std::atomic<int> g_signals{0};

/// Time limit for sending the errors of aborted requests to clients; they normally take far less.
constexpr double kErrorSeconds = 3;

/// The first signal starts a graceful shutdown, the second ends the program.
void on_signal(int number) {
  if (g_signals.fetch_add(1) == 0) return;
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void catch_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT})
    sigaction(number, &action, nullptr);
}

/// systemd's Type=notify: sends a datagram to the socket that $NOTIFY_SOCKET names.
void notify_system(const char* state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path == nullptr || (path[0] != '/' && path[0] != '@') || std::strlen(path) >= sizeof address.sun_path)
    return;
  std::memcpy(address.sun_path, path, std::strlen(path));
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + std::strlen(path));
  if (path[0] == '@') address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  (void)::sendto(fd, state, std::strlen(state), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                 length);
  ::close(fd);
}

milliseconds to_ms(double seconds) {
  return milliseconds(static_cast<int64_t>(seconds * 1e3));
}

/// Receives requests from the start. Until the model is loaded they get 503 with Retry-After, except the
/// playground page, which shows the loading progress.
struct Door {
  http::Handler handler;
  http::ErrorPage error_page;
  server::HostRule hosts;
  bool playground = false;
  std::atomic<bool> open{false};
  std::atomic<int> loaded_permille{0};
  const Clock::time_point start = Clock::now();

  void operator()(std::shared_ptr<http::Exchange> exchange) const {
    if (open.load(std::memory_order_acquire)) return handler(std::move(exchange));
    if (const auto host = exchange->request().header("host"); !hosts.allows(host))
      return exchange->respond(
          {403, "application/json",
           openai::error_json({403, server::HostRule::refusal(host), "", "host_not_allowed"})});
    const http::Request& request = exchange->request();
    if (playground && (request.method == "GET" || request.method == "HEAD"))
      if (const server::WebFile* file = server::find_web_file(request.path))
        return exchange->respond(server::web_response(*file, request.header("if-none-match")));
    exchange->respond({503,
                       "application/json",
                       server::loading_json(loaded_permille.load() / 1000.0, seconds_since(start)),
                       {{"Retry-After", "1"}}});
  }

  LoadProgress progress() {
    return [this](int64_t read, int64_t total) {
      const double share = total > 0 ? static_cast<double>(read) / static_cast<double>(total) : 0.0;
      loaded_permille.store(static_cast<int>(share * 1000));
    };
  }

  http::Response error(int status, std::string_view message) const {
    if (open.load(std::memory_order_acquire)) return error_page(status, message);
    return {status, "application/json", openai::error_json({status, std::string(message), "", ""})};
  }
};

http::ServerConfig server_config(const ServeFlags& flags) {
  http::ServerConfig config;
  config.host = flags.host;
  config.port = flags.port;
  config.uds = flags.uds;
  config.io_threads = flags.io_threads;
  config.limits.header_bytes = static_cast<size_t>(flags.max_header_bytes);
  config.limits.body_bytes = static_cast<size_t>(flags.max_body_bytes);
  config.limits.connections = flags.max_connections;
  // By default half, so that no single address can use all connections.
  config.limits.connections_per_address = flags.max_connections_per_address > 0
                                              ? flags.max_connections_per_address
                                              : (flags.max_connections + 1) / 2;
  config.limits.header_timeout = to_ms(flags.header_timeout);
  config.limits.body_timeout = to_ms(flags.body_timeout);
  config.limits.keep_alive_timeout = to_ms(flags.keep_alive_timeout);
  config.limits.write_timeout = to_ms(flags.write_timeout);
  return config;
}

/// From the flag, which FOVEA_API_KEY sets too, otherwise from vLLM's variable.
Result<std::vector<std::string>> api_keys(const ServeFlags& flags) {
  for (const char* name : {"FOVEA_API_KEY", "VLLM_API_KEY"})
    if (const char* value = std::getenv(name); value != nullptr && *value == '\0')
      // Usually a secret that was not filled in; serving without a key would be wrong.
      return invalid(std::string(name) + " is empty; set it to a key, or unset it");
  if (flags.api_keys.empty())
    if (const char* value = std::getenv("VLLM_API_KEY")) return std::vector<std::string>{value};
  return flags.api_keys;
}

/// Given one by one, or as the JSON list that vLLM accepts.
Result<std::vector<std::string>> allowed_origins(const ServeFlags& flags) {
  std::vector<std::string> origins;
  for (const std::string& given : flags.allowed_origins) {
    if (!given.starts_with('[')) {
      origins.push_back(given);
      continue;
    }
    FOVEA_TRY(list, parse_string_list(given, "--allowed-origins"));
    origins.insert(origins.end(), list.begin(), list.end());
  }
  return origins;
}

/// Model names that clients may use: the given name, preceded by its last component if it is a folder.
std::vector<std::string> served_names(const ServeFlags& flags) {
  if (!flags.served_names.empty()) return flags.served_names;
  const std::string& given = flags.model.model;
  if (given.empty()) return {"demo"};
  std::error_code ignored;
  if (!std::filesystem::is_directory(given, ignored)) return {given};
  std::filesystem::path path = std::filesystem::weakly_canonical(given, ignored);
  const std::string name = path.filename().string();
  if (name.empty() || name == given) return {given};
  return {name, given};
}

/// vLLM's variable.
bool vllm_allows_lora_updating() {
  const char* value = std::getenv("VLLM_ALLOW_RUNTIME_LORA_UPDATING");
  return value != nullptr && (std::string_view(value) == "1" || same_name(value, "true"));
}

/// Adapters need an engine, and names of their own.
Status check_adapters(const ServeFlags& flags, const EngineConfig& config, const ModelConfig& model) {
  if (!config.lora.on()) return {};
  if (model.kind == ModelKind::encoder)
    return unsupported(model.architecture +
                       " is an encoder, which can't have LoRA adapters; start without --lora-modules and "
                       "--enable-lora");
  for (const LoraModule& module : config.lora.modules)
    for (const std::string& name : served_names(flags))
      if (module.name == name)
        return invalid("--lora-modules has an adapter named \"" + name +
                       "\", as the model is; give it another name, or the model by --served-model-name");
  return {};
}

/// The loaded model: either an engine or an embedder.
struct Model {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Embedder> embedder;
  std::optional<server::TextEncoder> encoder;  ///< for encoder-decoder models
  std::optional<server::AudioInput> audio;     ///< likewise, with audio input
  std::string info;                            ///< JSON
};

/// What an encoder-decoder model needs for text to text.
Result<server::TextEncoder> text_encoder(const ModelConfig& model) {
  FOVEA_TRY(prompt, default_decoder_prompt(model));
  return server::TextEncoder{std::move(prompt), static_cast<size_t>(model.encoder->max_position)};
}

/// What a model with audio input needs. `input` is from its files.
Result<server::AudioInput> audio_input(const Engine& engine, const ModelConfig& model, LogMelConfig input) {
  const auto id_of = [&](const std::string& name) -> std::optional<int32_t> {
    const auto ids = engine.tokenize(name, false);
    return ids && ids->size() == 1 ? std::optional(ids->front()) : std::nullopt;
  };
  FOVEA_TRY(multilingual, is_multilingual_whisper(engine.info().model_dir));
  server::AudioInput audio;
  audio.input = input;
  audio.steps = model.encoder->max_position;
  const auto end = id_of("<|endoftext|>");
  const int32_t text_end = end                           ? *end
                           : model.eos_token_ids.empty() ? model.vocab_size
                                                         : model.eos_token_ids.front();
  audio.tokens = find_whisper_tokens(id_of, text_end, {input.chunk_length, audio.steps}, multilingual);
  if (!audio.tokens.start) {
    FOVEA_TRY(prompt, default_decoder_prompt(model));
    audio.decoder_prompt = std::move(prompt);
  }
  return audio;
}

Result<Model> load(const ServeFlags& flags, LoadProgress progress) {
  FOVEA_TRY(device, read_device(flags.model.device));
  const std::string device_from =
      same_name(flags.model.device, "auto") ? "this machine" : "--device " + flags.model.device;
  FOVEA_TRY(explanation, make_explanation(flags.model, device.info, device_from, device.index));
  // Clients see the served name of the model, not its path.
  explanation.model = served_names(flags).front();
  explanation.shapes.file = std::filesystem::path(explanation.shapes.file).filename().string();
  FOVEA_TRY(config, engine_config(flags.model));
  use_tuning(flags.model, config);
  config.load_progress = progress;
  config.report = [](const std::string& line) { write_log_line(LogLevel::info, line); };
  FOVEA_TRY(dir, resolve_model_dir(config.model));
  FOVEA_TRY(model_config, load_model_config(dir, config.generation_config));
  if (flags.allow_lora_updating) config.lora.enabled = true;
  FOVEA_RETURN_IF_ERROR(check_adapters(flags, config, model_config));
  Model model;
  std::optional<LogMelConfig> audio_config;
  if (model_config.kind == ModelKind::encoder_decoder && model_config.encoder->mel_bins > 0) {
    FOVEA_TRY(input,
              load_log_mel_config(dir, {model_config.encoder->mel_bins, model_config.encoder->max_position}));
    audio_config = input;
  } else if (model_config.kind == ModelKind::encoder_decoder) {
    FOVEA_TRY(encoder, text_encoder(model_config));
    model.encoder = std::move(encoder);
  }
  if (model_config.kind != ModelKind::encoder) {
    FOVEA_TRY(engine, Engine::create(config));
    model.engine = std::move(engine);
    if (audio_config) {
      FOVEA_TRY(audio, audio_input(*model.engine, model_config, *audio_config));
      model.audio = std::move(audio);
    }
    explanation.selection = model.engine->info().selection;
    std::optional<AudioFacts> facts;
    if (model.audio) facts = {model.audio->input.chunk_length, model.audio->tokens.first_time.has_value()};
    model.info = server_info_json(explanation, model.engine->info(), facts);
    return model;
  }
  EmbedConfig embed;
  embed.model = config.model;
  embed.device = config.device;
  embed.device_index = config.device_index;
  embed.dtype = config.dtype;
  embed.attention = config.attention;
  embed.registry = config.registry;
  embed.max_seq_len = config.max_seq_len;
  if (config.device.kind == DeviceKind::cuda) embed.max_batched_tokens = 8192;
  if (config.max_batched_tokens) embed.max_batched_tokens = *config.max_batched_tokens;
  embed.threads = config.threads;
  embed.seed = config.seed;
  embed.dummy_weights = config.dummy_weights;
  embed.load_progress = std::move(progress);
  FOVEA_TRY(embedder, Embedder::create(embed));
  model.embedder = std::move(embedder);
  explanation.selection = model.embedder->info().selection;
  model.info = server_info_json(explanation, model.embedder->info());
  return model;
}

std::string describe(const Model& model) {
  if (!model.engine) {
    const EmbedInfo& info = model.embedder->info();
    return explain(info.selection) + "\nmemory: weights " + human(static_cast<double>(info.weight_bytes)) +
           "B; " + std::to_string(info.dimensions) + " dimensions, at most " +
           std::to_string(info.max_seq_len) + " tokens\n";
  }
  const EngineInfo& info = model.engine->info();
  const auto bytes = [](int64_t count) { return human(static_cast<double>(count)) + "B"; };
  return describe_start(info) + "memory: weights " + bytes(info.weight_bytes) + ", KV cache " +
         bytes(info.kv_bytes) + " (" + bytes(info.kv_bytes_per_token) + " a token), workspace " +
         bytes(info.workspace_bytes) + ", " +
         (info.cuda_graph_bs.empty()
              ? "no graphs"
              : "graphs for up to " + std::to_string(info.cuda_graph_bs.back()) + " requests") +
         "; " + bytes(info.weight_bytes + info.kv_bytes + info.workspace_bytes) + " in all\n";
}

/// Logs the text line by line at any log level; programs that start a server wait for these lines.
void announce(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    write_log_line(LogLevel::info, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool is_local(const ServeFlags& flags) {
  return flags.host == "localhost" || flags.host == "::1" || flags.host.starts_with("127.");
}

/// On a local address without an API key, a page in a browser may connect (DNS rebinding), so the Host header
/// is checked. Network addresses, UNIX sockets and servers with a key need no check.
Result<server::HostRule> host_rule(const ServeFlags& flags, bool keys) {
  FOVEA_TRY(rule, server::HostRule::create(flags.allowed_hosts));  // bad names are errors in any case
  if (!is_local(flags) || !flags.uds.empty()) return server::HostRule();
  return keys ? server::HostRule() : rule;
}

std::string describe_hosts(const server::HostRule& rule, const ServeFlags& flags) {
  if (rule.any()) return "hosts: any Host header is served\n";
  std::string names;
  for (const std::string& name : flags.allowed_hosts)
    names += ", " + name;
  return "hosts: addresses, localhost" + names + "; others get 403 (--allowed-host NAME, or an API key)\n";
}

void warn_if_open(const ServeFlags& flags, bool keys) {
  if (keys || is_local(flags) || !flags.uds.empty()) return;
  FOVEA_LOG(warning) << "--host " << flags.host
                     << " without --api-key: anyone who can reach this address can use the model";
}

/// Waits for a signal or the engine's failure, then for requests in flight, up to `shutdown_timeout` seconds.
void run_until_signal(http::Server& server, server::Service& service, const Engine* engine,
                      double shutdown_timeout) {
  while (g_signals.load() == 0 && !(engine != nullptr && engine->failure()))
    std::this_thread::sleep_for(milliseconds(20));
  notify_system("STOPPING=1");
  const auto start = Clock::now();
  service.drain();
  server.stop_accepting();
  char text[128];
  std::snprintf(text, sizeof text,
                "stopping: %d requests in flight, waiting at most %g s; a second signal exits immediately",
                service.in_flight(), shutdown_timeout);
  announce(text);
  const auto left = [&] { return service.in_flight() > 0 || server.connections().open > 0; };
  while (left() && seconds_since(start) < shutdown_timeout)
    std::this_thread::sleep_for(milliseconds(10));
  if (left()) {
    service.abort_all();
    // Lets the errors reach the clients.
    const auto aborted = Clock::now();
    while (left() && seconds_since(aborted) < kErrorSeconds)
      std::this_thread::sleep_for(milliseconds(10));
  }
  server.stop();
}

}  // namespace

Status run_serve(const ServeFlags& flags) {
  const auto start = Clock::now();
  FOVEA_TRY(keys, api_keys(flags));
  FOVEA_TRY(origins, allowed_origins(flags));
  FOVEA_TRY(hosts, host_rule(flags, !keys.empty()));
  warn_if_open(flags, !keys.empty());
  const auto door = std::make_shared<Door>();
  door->hosts = hosts;
  door->playground = !flags.no_playground;
  // Before the model is loaded, so that an address in use is reported at once.
  FOVEA_TRY(server,
            http::Server::start(
                server_config(flags),
                [door](std::shared_ptr<http::Exchange> exchange) { (*door)(std::move(exchange)); },
                [door](int status, std::string_view message) { return door->error(status, message); }));
  FOVEA_TRY(profile, ProfileFile::start(flags.model, "serve"));
  FOVEA_TRY(model, load(flags, door->progress()));
  server::ServiceConfig config;
  config.served_names = served_names(flags);
  config.api_keys = std::move(keys);
  config.cors_origins = std::move(origins);
  config.hosts = hosts;
  config.max_logprobs = flags.model.max_logprobs;
  config.lora_updates = flags.allow_lora_updating || vllm_allows_lora_updating();
  if (model.engine) {
    const EngineInfo& info = model.engine->info();
    config.max_running_requests = std::min(info.max_running_requests, info.max_batched_tokens);
  }
  config.max_queued_requests = flags.max_queued_requests;
  config.max_queued_tokens = flags.max_queued_tokens;
  config.max_answer_bytes = flags.max_answer_bytes;
  config.request_timeout = to_ms(flags.request_timeout);
  config.queue_timeout = to_ms(flags.queue_timeout);
  config.sse_ping = to_ms(flags.sse_keepalive);
  config.version = FOVEA_VERSION;
  config.server_info = model.info;
  config.encoder = model.encoder;
  config.audio = model.audio;
  config.playground = !flags.no_playground;
  config.tool_call_parser = flags.tool_call_parser;
  config.reasoning_parser = flags.reasoning_parser;
  config.template_kwargs = flags.template_kwargs;
  config.draft_metrics = flags.draft_metrics != "none";
  config.draft_positions = flags.draft_metrics == "detailed";
  if (flags.ignore_unknown_fields) config.unknown_fields = openai::UnknownFields::ignored;
  config.connections = [&server = *server] { return server.connections(); };
  FOVEA_TRY(service, server::Service::create(config, model.engine.get(), model.embedder.get()));
  catch_signals();
  door->handler = service->handler();
  door->error_page = service->error_page();
  service->set_ready();
  door->open.store(true, std::memory_order_release);
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.2f s", seconds_since(start));
  announce(describe(model) + describe_hosts(hosts, flags) + "ready: " + server->address() + " serves " +
           config.served_names.front() + " after " + seconds);
  notify_system("READY=1");
  run_until_signal(*server, *service, model.engine.get(), flags.shutdown_timeout);
  server.reset();  // first: its threads call the service, which uses the model
  if (model.engine)
    if (const auto failure = model.engine->failure()) {
      // Not by way of destructors: calls to a device that stands still do not return.
      announce("fovea: the engine has failed: " + failure->message);
      std::_Exit(1);
    }
  return profile.finish({});
}

}  // namespace fovea::cli
