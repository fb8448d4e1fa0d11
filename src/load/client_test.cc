// Tests the client against sockets of this process.
#include "load/client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <thread>

#include "../tests/support/temp_dir.h"
#include "fovea/result.h"

namespace fovea::load {
namespace {

/// Calls `serve` on each connection, one after another, then closes it.
class Listener {
 public:
  Listener(const std::string& unix_path, std::function<void(int)> serve) : serve_(std::move(serve)) {
    fd_ = ::socket(unix_path.empty() ? AF_INET : AF_UNIX, SOCK_STREAM, 0);
    if (unix_path.empty()) {
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
      socklen_t size = sizeof address;
      EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
      url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    } else {
      sockaddr_un address = {};
      address.sun_family = AF_UNIX;
      std::strncpy(address.sun_path, unix_path.c_str(), sizeof address.sun_path - 1);
      EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
      url = "unix:" + unix_path;
    }
    EXPECT_EQ(::listen(fd_, unix_path.empty() ? 128 : 2), 0);  // with TCP a full backlog costs a second
    thread_ = std::thread([this] {
      for (;;) {
        const int connection = ::accept(fd_, nullptr, nullptr);
        if (stopping_) {
          if (connection >= 0) ::close(connection);
          return;
        }
        if (connection < 0) continue;
        serve_(connection);
        ::close(connection);
      }
    });
  }
  ~Listener() {
    stopping_ = true;
    ::shutdown(fd_, SHUT_RDWR);
    thread_.join();
    ::close(fd_);
  }

  std::string url;

 private:
  std::function<void(int)> serve_;
  int fd_ = -1;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

void read_head(int fd) {
  std::string head;
  char byte = 0;
  while (!head.ends_with("\r\n\r\n") && ::recv(fd, &byte, 1, 0) == 1)
    head += byte;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

Result<Fetched> get(const std::string& url, double timeout = 30) {
  FOVEA_TRY(target, parse_target(url));
  FOVEA_TRY(client, Client::create(target));
  return fetch(client, request_bytes(target, "GET", "/a", "", ""), timeout, [] { return false; });
}

TEST(Client, FetchesByteByByte) {
  Listener listener("", [](int fd) {
    read_head(fd);
    for (const char c :
         std::string("HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
      write_all(fd, {&c, 1});
  });
  const auto answer = get(listener.url);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "abc");
}

TEST(Client, FetchesThroughAUnixSocket) {
  const test::TempDir dir;
  Listener listener(dir.path() + "/s", [](int fd) {
    read_head(fd);
    write_all(fd, "HTTP/1.0 200 OK\r\n\r\nold style");
  });
  const auto answer = get(listener.url);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body, "old style");
}

TEST(Client, SaysWhyThereIsNoAnswer) {
  std::string url;
  {
    Listener listener("", [](int fd) { read_head(fd); });
    url = listener.url;
    EXPECT_NE(get(url).error().message.find("without an answer"), std::string::npos);
  }
  EXPECT_NE(get(url).error().message.find("Connection refused"), std::string::npos);
  EXPECT_NE(get("unix:/nowhere/at/all").error().message.find("No such file"), std::string::npos);
}

TEST(Client, ASilentServerIsLeft) {
  Listener listener("", [](int fd) {
    char byte = 0;
    read_head(fd);
    (void)!::recv(fd, &byte, 1, 0);  // until the client disconnects
  });
  EXPECT_NE(get(listener.url, 0.3).error().message.find("no bytes received"), std::string::npos);
}

TEST(Client, AnAnswerBeforeTheWholeRequestIsRead) {
  Listener listener("", [](int fd) {
    write_all(fd, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig");
    ::shutdown(fd, SHUT_WR);
    char bytes[4096];
    for (int i = 0; i < 100 && ::recv(fd, bytes, sizeof bytes, 0) > 0; ++i) {
    }
  });
  const auto target = *parse_target(listener.url);
  auto client = *Client::create(target);
  const auto answer = fetch(client, request_bytes(target, "POST", "/a", "", std::string(8 << 20, 'x')), 30,
                            [] { return false; });
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 413);
}

struct Count final : Receiver {
  void on_start(double now) override {
    started = now;
    most = std::max(most, ++running);
  }
  Status on_head(const ResponseHead&, double) override { return {}; }
  Status on_body(std::string_view, double) override { return {}; }
  void on_end(double) override {
    ++ended;
    --running;
  }
  void on_failure(const std::string& why, double) override {
    ++failed;
    --running;
    failure = why;
  }
  static inline int running = 0, most = 0;
  int ended = 0, failed = 0;
  double started = -1;
  std::string failure;
};

void answer_empty(int fd) {
  read_head(fd);
  write_all(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

TEST(Client, RunsManyWithALimitAndInTime) {
  // A UNIX socket's backlog of 2 fills at once; refused connections are retried.
  const test::TempDir dir;
  for (const std::string& path : {std::string(), dir.path() + "/s"}) {
    Listener listener(path, answer_empty);
    const auto target = *parse_target(listener.url);
    auto client = *Client::create(target);
    std::deque<Count> counts(50);
    Count::running = Count::most = 0;
    size_t progress = 0;
    Plan plan;
    plan.starts.assign(50, 0);
    plan.starts.back() = 0.3;
    plan.max_concurrency = 7;
    plan.bytes = [&](size_t) { return request_bytes(target, "GET", "/", "", ""); };
    plan.receiver = [&](size_t i) -> Receiver& { return counts[i]; };
    plan.progress = [&](size_t done) { progress = done; };
    ASSERT_TRUE(client.run(plan));
    for (const Count& count : counts)
      EXPECT_TRUE(count.ended == 1 && count.failed == 0) << count.failure;
    EXPECT_LE(Count::most, 7);
    EXPECT_GT(Count::most, 1);
    EXPECT_GE(counts.back().started, 0.3);
    EXPECT_EQ(progress, 50u);
  }
}

TEST(Client, StopsWhenAskedTo) {
  std::atomic<bool> stop = false;
  Listener listener("", [&](int fd) {
    char byte = 0;
    read_head(fd);
    stop = true;
    (void)!::recv(fd, &byte, 1, 0);
  });
  const auto target = *parse_target(listener.url);
  auto client = *Client::create(target);
  const auto answer =
      fetch(client, request_bytes(target, "GET", "/", "", ""), 30, [&] { return stop.load(); });
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace fovea::load
