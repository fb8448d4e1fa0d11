#include "server/service.h"

#include <algorithm>
#include <condition_variable>
#include <thread>

#include "base/check.h"
#include "base/log.h"
#include "profile/scopes.h"
#include "server/anthropic/writer.h"
#include "server/deadlines.h"
#include "server/endpoint_steps.h"
#include "server/endpoints.h"
#include "server/ollama/writer.h"
#include "server/openai/response.h"
#include "server/pages.h"
#include "server/routes.h"
#include "server/snapshot_json.h"
#include "server/text.h"
#include "server/web/web_files.h"

namespace fovea::server {
namespace {

// Bodies up to this size, in bytes, are parsed on the I/O thread, as a hand-over would cost more: 8 KiB are
// parsed and tokenised in about 1 ms.
constexpr size_t kSmallBody = 8 << 10;
/// The memory limit of all answers, in answers of the maximum size.
constexpr int64_t kAnswersAtATime = 16;

bool is_json(std::string_view content_type) {
  return same_letters(trimmed(content_type.substr(0, content_type.find(';'))), "application/json");
}

http::Response json(std::string body) {
  return {200, "application/json", std::move(body)};
}

bool for_anthropic(const Reply& reply) {
  return !reply.request().header("anthropic-version").empty();
}

/// The request routing of the service, without its threads.
class Router {
 public:
  Router(std::shared_ptr<Core> core, WorkQueue& queue) : core_(std::move(core)), queue_(queue) {}

  void handle(std::shared_ptr<http::Exchange> exchange) {
    const auto reply = Reply::create(core_, std::move(exchange));
    guarded(reply, [&] {
      if (const auto host = reply->request().header("host"); !core_->config.hosts.allows(host))
        return reply->error({403, HostRule::refusal(host), "", "host_not_allowed"});
      route(reply);
    });
  }

 private:
  void route(const std::shared_ptr<Reply>& reply);
  void get(Reply& reply, Route route);
  void post(const std::shared_ptr<Reply>& reply, const RouteInfo& route);
  void post_admitted(const std::shared_ptr<Reply>& reply, Route route);
  /// Runs `task` at once, or with `elsewhere` on a worker thread.
  void work(const std::shared_ptr<Reply>& reply, bool elsewhere, std::function<void(Reply&)> task);
  void preflight(Reply& reply, const RouteInfo* route);
  void web(Reply& reply, const WebFile& file);
  void health(Reply& reply);
  http::ConnectionCounts connections() const {
    return core_->config.connections ? core_->config.connections() : http::ConnectionCounts();
  }

  std::shared_ptr<Core> core_;
  WorkQueue& queue_;
};

void Router::route(const std::shared_ptr<Reply>& reply) {
  const http::Request& request = reply->request();
  const RouteInfo* route = find_route(request.path);
  const bool options = request.method == "OPTIONS";
  // A browser sends a preflight request without the key.
  if (options && !core_->config.cors_origins.empty() &&
      !request.header("access-control-request-method").empty())
    return preflight(*reply, route);
  // A browser sends no key when it opens a page, and these files hold no secrets: the page itself prompts for
  // the key.
  if (core_->config.playground)
    if (const WebFile* file = find_web_file(request.path)) return web(*reply, *file);
  if (const std::string key = Core::credential(request); !(route && route->open) && !core_->keys.allows(key))
    return reply->error({401,
                         key.empty() ? "no API key is given; send it as \"Authorization: Bearer KEY\""
                                     : "the API key is not valid",
                         "", "invalid_api_key"});
  if (!route)
    return reply->error({404, "there is no such path; see /v1/models, /v1/chat/completions, /v1/completions",
                         "", "not_found"});
  if (options) return preflight(*reply, route);
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (route->post ? request.method != "POST" : !reads) {
    http::Response response = error_response(
        {405, "this path takes " + std::string(route->post ? "POST" : "GET"), "", "method_not_allowed"},
        reply->style(), request.id);
    response.headers.emplace_back("Allow", allowed_methods(*route));
    return reply->respond(std::move(response));
  }
  if (route->post)
    post(reply, *route);
  else
    get(*reply, route->route);
}

void Router::web(Reply& reply, const WebFile& file) {
  const std::string& method = reply.request().method;
  if (method == "GET" || method == "HEAD")
    return reply.respond(web_response(file, reply.request().header("if-none-match")));
  http::Response response = method == "OPTIONS"
                                ? http::Response{204, "", ""}
                                : error_response({405, "this path takes GET", "", "method_not_allowed"});
  response.headers.emplace_back("Allow", "GET, HEAD, OPTIONS");
  reply.respond(std::move(response));
}

void Router::preflight(Reply& reply, const RouteInfo* route) {
  http::Response response{204, "", ""};
  if (route) response.headers.emplace_back("Allow", allowed_methods(*route));
  if (!core_->config.cors_origins.empty()) {
    response.headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    response.headers.emplace_back("Access-Control-Allow-Headers",
                                  "authorization, x-api-key, anthropic-version, anthropic-beta, "
                                  "anthropic-dangerous-direct-browser-access, content-type, x-request-id, "
                                  "x-stainless-arch, "
                                  "x-stainless-lang, x-stainless-os, x-stainless-package-version, "
                                  "x-stainless-retry-count, x-stainless-runtime, "
                                  "x-stainless-runtime-version, x-stainless-timeout, x-request-timeout");
    response.headers.emplace_back("Access-Control-Max-Age", "600");
  }
  reply.respond(std::move(response));
}

void Router::health(Reply& reply) {
  if (core_->draining.load()) return reply.error(shutting_down());
  if (!core_->ready.load())
    return reply.error({503, "the server is starting; try again later", "", "starting", 1});
  reply.respond({200, "", ""});
}

void Router::get(Reply& reply, Route route) {
  switch (route) {
    case Route::health:
    case Route::ping: return health(reply);
    case Route::ollama_tags:
    case Route::ollama_ps: return get_ollama_models(reply, route == Route::ollama_ps);
    case Route::ollama_version: return reply.respond(json(version_json(ollama::kVersion)));
    case Route::version: return reply.respond(json(version_json(core_->config.version)));
    case Route::openapi: return reply.respond(json(openapi_json(core_->config.version)));
    case Route::models:
      return reply.respond(json(for_anthropic(reply)
                                    ? anthropic::models_json(core_->model_names(), core_->created)
                                    : models_json(*core_)));
    case Route::model: {
      const std::string name = reply.request().path.substr(kModelPrefix.size());
      if (const auto error = check_model(*core_, name)) return reply.error(*error);
      return reply.respond(json(for_anthropic(reply) ? anthropic::model_json(name, core_->created)
                                                     : model_json(*core_, name)));
    }
    case Route::server_info: {
      const EngineStats stats = core_->engine ? core_->engine->stats() : EngineStats();
      return reply.respond(
          json(server_info_json(core_->config.server_info, core_->engine ? &stats : nullptr,
                                core_->in_flight.load(), core_->admission.waiting(), connections())));
    }
    case Route::server_state:
      if (!core_->engine)
        return reply.error({404, "/server_state is not available for embedding models", "", "not_found"});
      // snapshot() may block (kSnapshotPatience).
      return queue_.add(core_->client_of(reply.request()), [reply = reply.shared_from_this()] {
        guarded(reply, [&] { reply->respond(json(snapshot_json(reply->core().engine->snapshot()))); });
      });
    case Route::metrics: {
      if (!core_->metrics)
        return reply.error({404, "metrics are only available for generative models", "", "not_found"});
      return reply.respond({200, "text/plain; version=0.0.4; charset=utf-8",
                            core_->metrics->text(*core_->engine, connections())});
    }
    default: FOVEA_CHECK(false && "a route that is not of GET");
  }
}

void Router::work(const std::shared_ptr<Reply>& reply, bool elsewhere, std::function<void(Reply&)> task) {
  if (!elsewhere) return task(*reply);
  queue_.add(reply->client(), [reply, task = std::move(task)] {
    guarded(reply, [&] {
      if (reply->core().aborted.load()) return reply->error(shutting_down());
      if (!reply->done()) task(*reply);  // done: the client has disconnected
    });
  });
}

/// Whether a browser sent the request for a page of another site: forms need no preflight.
bool is_foreign(const ServiceConfig& config, const http::Request& request) {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return false;
  const size_t host = origin.find("://");
  if (host != std::string_view::npos && same_letters(origin.substr(host + 3), request.header("host")))
    return false;
  const auto& allowed = config.cors_origins;
  return std::ranges::find(allowed, "*") == allowed.end() &&
         std::ranges::find(allowed, origin) == allowed.end();
}

/// A 415 or 403 for a body that is not what the path takes.
std::optional<openai::ApiError> check_type(const Core& core, const http::Request& request, bool form) {
  const std::string_view type = request.header("content-type");
  // A page of another site can send some other types without a preflight.
  if (!form && !is_json(type))
    return openai::ApiError{415, "the body must be JSON; send \"Content-Type: application/json\"", "",
                            "unsupported_media_type"};
  if (!form) return std::nullopt;
  if (!same_letters(trimmed(type.substr(0, type.find(';'))), "multipart/form-data"))
    return openai::ApiError{415,
                            "the body must be a form with a file; send \"Content-Type: multipart/form-data; "
                            "boundary=...\"",
                            "", "unsupported_media_type"};
  if (is_foreign(core.config, request))
    return openai::ApiError{403, "pages of this Origin may not send forms; start with --allowed-origins", "",
                            "origin_not_allowed"};
  return std::nullopt;
}

void Router::post(const std::shared_ptr<Reply>& reply, const RouteInfo& info) {
  if (const auto error = check_type(*core_, reply->request(), info.form)) return reply->error(*error);
  const Route route = info.route;
  if (const auto coding = trimmed(reply->request().header("content-encoding"));
      !coding.empty() && !same_letters(coding, "identity"))
    return reply->error({415, "the body must not be compressed; send it without Content-Encoding", "",
                         "unsupported_media_type"});
  if (core_->draining.load()) return reply->error(shutting_down());
  const bool large = reply->request().body.size() > kSmallBody;
  switch (route) {
    case Route::completions:
    case Route::chat_completions:
    case Route::messages:
    case Route::responses:
    case Route::ollama_chat:
    case Route::ollama_generate:
    case Route::transcriptions:
    case Route::translations:
    case Route::score:
    case Route::rerank:
    case Route::ollama_embed:
    case Route::ollama_embeddings:
    case Route::embeddings: return post_admitted(reply, route);
    case Route::count_tokens: return work(reply, large, post_count_tokens);
    case Route::ollama_show: return post_ollama_show(*reply);
    case Route::tokenize: return work(reply, large, post_tokenize);
    case Route::detokenize: return work(reply, large, post_detokenize);
    case Route::load_lora: return work(reply, true, post_load_lora);
    case Route::unload_lora: return work(reply, large, post_unload_lora);
    default: FOVEA_CHECK(false && "a route that is not of POST");
  }
}

using Task = void (*)(std::shared_ptr<Reply>, std::shared_ptr<Admission::Ticket>);

Task task_of(Route route) {
  switch (route) {
    case Route::embeddings: return post_embedding;
    case Route::chat_completions: return post_chat_completion;
    case Route::messages: return post_message;
    case Route::responses: return post_response;
    case Route::ollama_chat: return post_ollama_chat;
    case Route::ollama_generate: return post_ollama_generate;
    case Route::score: return post_score;
    case Route::rerank: return post_rerank;
    case Route::ollama_embed: return post_ollama_embed;
    case Route::ollama_embeddings: return post_ollama_embeddings;
    case Route::transcriptions: return post_transcription;
    case Route::translations: return post_translation;
    default: return post_completion;
  }
}

/// Whether the route needs an encoder.
bool is_of_encoders(Route route) {
  return route == Route::embeddings || route == Route::score || route == Route::rerank ||
         route == Route::ollama_embed || route == Route::ollama_embeddings;
}

void Router::post_admitted(const std::shared_ptr<Reply>& reply, Route route) {
  const bool embeds = is_of_encoders(route);
  const bool takes_audio = route == Route::transcriptions || route == Route::translations;
  if (takes_audio != core_->config.audio.has_value())
    return reply->error(
        openai::bad_request(takes_audio ? "this model takes no audio; transcripts are made by Whisper models"
                                        : "this model takes audio, not text; use /v1/audio/transcriptions"));
  if (!core_->engine && !embeds)
    return reply->error(
        openai::bad_request("this model is an encoder, which generates no text; use /v1/embeddings, "
                            "/v1/score or /v1/rerank"));
  if (!core_->embedder && embeds)
    return reply->error(openai::bad_request(
        "this model generates text and has no embeddings and scores; use /v1/completions"));
  if (takes_audio) {
    // Uploads are large, and stay in memory until they are answered.
    reply->hold(std::make_shared<AnswerShare>(core_->answers));
    if (!reply->share()->grow(static_cast<int64_t>(reply->request().body.size()))) {
      if (core_->metrics) core_->metrics->refused(503);
      return reply->error(answers_full());
    }
  }
  const auto deadlines = Deadlines::of(core_->config, reply->request().header("x-request-timeout"));
  if (!deadlines) return reply->error(deadlines.error());
  reply->set_deadlines(*deadlines);
  auto verdict = Admission::Verdict::admitted;
  std::shared_ptr<Admission::Ticket> ticket =
      core_->admission.arrive(reply->client(), core_->engine ? core_->engine->stats().waiting : 0, verdict);
  if (!ticket) {
    if (core_->metrics) core_->metrics->refused(503);
    return reply->error(overloaded(verdict));
  }
  const auto task = task_of(route);
  work(reply, embeds || takes_audio || reply->request().body.size() > kSmallBody,
       [reply, task, ticket = std::move(ticket)](Reply&) mutable { task(reply, std::move(ticket)); });
}

class ServiceImpl final : public Service {
 public:
  ServiceImpl(std::shared_ptr<Core> core, int workers)
      : core_(std::move(core)),
        queue_(workers),
        router_(std::make_shared<Router>(core_, queue_)),
        ticker_([this] { tick(); }) {
    core_->workers = &queue_;
  }

  ~ServiceImpl() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    stopped_.notify_all();
    ticker_.join();
  }

  http::Handler handler() override {
    return [router = router_](std::shared_ptr<http::Exchange> exchange) {
      const profile::Range range("HTTP request");
      router->handle(std::move(exchange));
    };
  }

  http::ErrorPage error_page() override {
    return [core = core_](int status, std::string_view message) {
      if (core->metrics) core->metrics->http_response(status);
      return error_response({status, std::string(message), "", "", status == 503 ? 1 : 0});
    };
  }

  void set_ready() override { core_->ready.store(true); }
  void drain() override { core_->draining.store(true); }
  int in_flight() const override { return core_->in_flight.load(); }

  void abort_all() override {
    core_->draining.store(true);
    core_->aborted.store(true);
    for (const auto& job : core_->jobs())
      job->abort();
  }

 private:
  void tick() {
    using std::chrono::milliseconds;
    const auto period = std::clamp(core_->config.sse_ping / 4, milliseconds(5), milliseconds(50));
    std::unique_lock lock(mutex_);
    while (!stopped_.wait_for(lock, period, [&] { return stop_; })) {
      lock.unlock();
      const auto now = Clock::now();
      for (const auto& job : core_->jobs())
        job->tick(now);
      lock.lock();
    }
  }

  std::shared_ptr<Core> core_;
  WorkQueue queue_;
  std::shared_ptr<Router> router_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread ticker_;
};

/// The machine's peak rates; nullopt if they cannot be measured.
std::optional<MachineFloor> measure_floor(const Engine& engine) {
  if (engine.info().threads == 0 || engine.info().gpu_memory_total > 0) return std::nullopt;
  auto floor = engine.measure_floor();
  if (floor) return *floor;
  FOVEA_LOG(warning) << "metrics: " << floor.error().message;
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<Service>> Service::create(const ServiceConfig& config, Engine* engine,
                                                 Embedder* embedder) {
  FOVEA_CHECK((engine == nullptr) != (embedder == nullptr));
  FOVEA_CHECK(!config.served_names.empty());
  FOVEA_TRY(keys, ApiKeys::create(config.api_keys));
  // With an embedder, each worker thread computes one request at a time.
  const int slots = engine ? config.max_running_requests : config.workers;
  auto core =
      std::make_shared<Core>(Admission::Limits{slots, config.max_queued_requests, config.max_queued_tokens});
  core->config = config;
  core->answers = std::make_shared<AnswerMemory>(kAnswersAtATime * config.max_answer_bytes);
  core->engine = engine;
  core->embedder = embedder;
  core->keys = std::move(keys);
  if (engine) {
    if (!config.template_kwargs.empty()) {
      const auto variables = text::parse_json(config.template_kwargs, "--template-kwargs");
      if (!variables) return variables.error();
      if (!variables->object())
        return invalid("--template-kwargs is " + variables->describe() +
                       "; it must be a JSON object of the chat template's variables");
    }
    Render render;
    if (engine->has_chat_template())
      render = [&core](const ChatRequest& chat) { return render_chat(*core, chat); };
    FOVEA_TRY(formats, find_answer_formats(render, config.tool_call_parser, config.reasoning_parser));
    core->formats = std::move(formats);
  }
  // Measures before any request runs: later it would take threads and memory from running requests.
  if (engine)
    core->metrics = Metrics::create(engine->info(), config.served_names.front(), measure_floor(*engine));
  core->created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  return std::unique_ptr<Service>(std::make_unique<ServiceImpl>(std::move(core), config.workers));
}

}  // namespace fovea::server
