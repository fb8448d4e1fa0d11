// The server on an engine without a model, to measure the server alone: `serve_stub --port P`, load from
// `fovea bench serve`, then SIGTERM or SIGINT; it then prints the cost of its process per streamed token.
#include <signal.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "../tests/serve/stub_engine.h"
#include "server/service.h"

namespace {

using namespace fovea;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double cpu_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int serve(const StubEngine::Options& options, http::ServerConfig config) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // the server's threads too

  StubEngine engine(options);
  server::ServiceConfig service_config;
  service_config.served_names = {"stub"};
  service_config.version = "stub";
  service_config.server_info = "{}";
  service_config.max_running_requests = options.slots;
  auto created = server::Service::create(service_config, &engine, nullptr);
  if (!created) {
    std::fprintf(stderr, "serve_stub: %s\n", created.error().message.c_str());
    return 2;
  }
  const auto service = *std::move(created);
  auto server = http::Server::start(config, service->handler(), service->error_page());
  if (!server) {
    std::fprintf(stderr, "serve_stub: %s\n", server.error().message.c_str());
    return 2;
  }
  service->set_ready();
  std::printf("%s\n", (*server)->address().c_str());
  std::fflush(stdout);
  const double before = cpu_seconds();
  int signal = 0;
  ::sigwait(&signals, &signal);
  const double cpu = cpu_seconds() - before;
  const auto tokens = engine.stats().generated_tokens;
  std::printf("%lld tokens, %.3f s of CPU, %.2f us a token\n", static_cast<long long>(tokens), cpu,
              tokens > 0 ? cpu * 1e6 / static_cast<double>(tokens) : 0.0);
  (*server)->stop();
  service->abort_all();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  StubEngine::Options options;
  options.slots = 1 << 16;
  options.tokens_per_second = 50;
  http::ServerConfig config;
  CLI::App app("The server on an engine without a model", "serve_stub");
  app.add_option("--port", config.port)->capture_default_str();
  app.add_option("--uds", config.uds);
  app.add_option("--io-threads", config.io_threads)->capture_default_str();
  app.add_option("--slots", options.slots, "Answers that run together")->capture_default_str();
  app.add_option("--tokens-per-second", options.tokens_per_second, "Per answer; 0 = unlimited")
      ->capture_default_str();
  app.add_option("--max-seq-len", options.max_seq_len)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return serve(options, config);
}
