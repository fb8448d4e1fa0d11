#pragma once
// The answer to one request, between whoever makes it (any thread) and the connection that sends it.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "server/http/places.h"
#include "server/http/server.h"
#include "server/http/tasks.h"

namespace fovea::http {

/// What all connections of a server share; exchanges keep it beyond the server's end.
struct Site {
  explicit Site(ServerConfig c)
      : config(std::move(c)),
        places(config.limits.connections,
               config.uds.empty() ? config.limits.connections_per_address : config.limits.connections) {}

  const ServerConfig config;
  Handler handler;
  ErrorPage error_page;
  std::atomic<bool> draining = false;  ///< connections close after their answers
  std::atomic<bool> stopped = false;   ///< no handler is called any more
  Places places;
  std::atomic<size_t> body_bytes = 0;  ///< of bodies that are being received
};

/// Bytes for the socket, in this order; the body is moved, not copied.
struct Piece {
  std::string prefix;
  std::string body;
  std::string suffix;
  std::shared_ptr<const void> held;  ///< Response::held
};

/// How an answer must be framed for its request.
struct Framing {
  bool is_head = false;     ///< HEAD: no body
  bool chunked = true;      ///< HTTP/1.1; else a streamed body ends with the connection
  bool keep_alive = false;  ///< unless the server drains, or the stream has no other end
};

class Answer final : public Flushable, public std::enable_shared_from_this<Answer> {
 public:
  /// `sink` flushes the connection; called on the I/O thread, while the connection lives.
  Answer(std::shared_ptr<Site> site, std::shared_ptr<TaskQueue> tasks, std::weak_ptr<Flushable> sink,
         Framing framing);

  // As in Exchange, on any thread.
  void respond(Response response);
  void start_stream(int status, std::string_view content_type, const Headers& headers);
  bool write(std::string bytes);
  void end();
  void abort();
  size_t buffered() const;
  void on_close(std::function<void()> closed);
  void post(std::function<void()> work);
  /// The last reference has gone: 500 if there is no answer, abort if a stream has no end.
  void drop();

  // For the connection, on the I/O thread.
  void flush() override;
  /// What can be sent now; false when there is nothing.
  bool take(Piece& piece);
  /// Bytes of what was taken that still wait.
  void set_in_flight(size_t bytes) { in_flight_ = bytes; }
  bool is_whole() const;    ///< handed over whole
  bool is_sent() const;     ///< whole, and all of it was taken
  bool is_aborted() const;  ///< the connection is to be closed
  bool keeps_connection() const;
  /// The connection has ended: calls what on_close() has left, unless the answer is whole.
  void close();

 private:
  enum class State { waiting, streaming, whole, dead };

  std::string head(int status, std::string_view content_type, const Headers& headers,
                   std::string_view framing);
  void wake(bool idle);
  void die();  // with mutex_ held

  const std::shared_ptr<Site> site_;
  const std::shared_ptr<TaskQueue> tasks_;
  const std::weak_ptr<Flushable> sink_;
  const Framing framing_;
  std::atomic<size_t> in_flight_ = 0;

  mutable std::mutex mutex_;
  State state_ = State::waiting;
  bool keep_alive_ = false;
  bool body_in_chunks_ = false;
  bool final_taken_ = false;
  bool flush_queued_ = false;
  bool closed_ = false;  // close() was called
  std::string head_;
  std::string pending_;
  std::shared_ptr<const void> held_;
  std::function<void()> on_close_;
};

/// The exchange that a handler gets; its end is drop().
std::shared_ptr<Exchange> make_exchange(Request request, std::shared_ptr<Answer> answer);

}  // namespace fovea::http
