#pragma once
// Helpers shared by the tests of the whole server.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "fovea/result.h"
#include "server/http/raw_client_test.h"
#include "server/http/server.h"

namespace fovea::http::test {

using Shared = std::shared_ptr<Exchange>;

inline constexpr std::string_view kGet = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";

inline Response page(int status, std::string_view message) {
  return {status, "application/json", "{\"error\":\"" + std::string(message) + "\"}"};
}

/// Answers with a description of the request.
inline void echo(const Shared& exchange) {
  const Request& request = exchange->request();
  exchange->respond({200, "text/plain",
                     request.method + " " + request.path + "?" + request.query + " " +
                         std::to_string(request.body.size()) + " " + request.body});
}

inline std::unique_ptr<Server> serve(Handler handler, Limits limits = {}, int io_threads = 1) {
  ServerConfig config;
  config.port = 0;
  config.io_threads = io_threads;
  config.limits = limits;
  auto server = Server::start(config, std::move(handler), page);
  EXPECT_TRUE(server) << (server ? "" : server.error().message);
  return std::move(server).value();
}

/// Waits up to 10 s.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace fovea::http::test
