#pragma once
// The answer to one request. Any thread produces it; the connection's I/O thread sends it.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "server/http/places.h"
#include "server/http/server.h"
#include "server/http/tasks.h"

namespace fovea::http {

/// State shared by all connections of a server. Exchanges keep it alive after the server has stopped.
struct Site {
  explicit Site(ServerConfig c)
      : config(std::move(c)),
        places(config.limits.connections,
               config.uds.empty() ? config.limits.connections_per_address : config.limits.connections) {}

  const ServerConfig config;
  Handler handler;
  ErrorPage error_page;
  std::atomic<bool> draining = false;  ///< connections close after their current answers
  std::atomic<bool> stopped = false;   ///< no more handler calls
  Places places;
  std::atomic<size_t> body_bytes = 0;  ///< total size of bodies being received
};

/// Bytes for the socket, in this order; the body is moved, not copied.
struct Piece {
  std::string prefix;
  std::string body;
  std::string suffix;
  std::shared_ptr<const void> held;  ///< Response::held
};

/// Framing of an answer, which its request determines.
struct Framing {
  bool is_head = false;     ///< HEAD: no body
  bool chunked = true;      ///< HTTP/1.1; false: a streamed body ends with the connection
  bool keep_alive = false;  ///< ignored when draining, or if only the close ends a stream
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
  /// The last reference to the exchange is released: 500 if unanswered; aborts an unfinished stream.
  void drop();

  // For the connection, on the I/O thread.
  void flush() override;
  /// Moves out what can be sent now; false when there is nothing.
  bool take(Piece& piece);
  /// The number of bytes taken but not sent yet.
  void set_in_flight(size_t bytes) { in_flight_ = bytes; }
  bool is_whole() const;    ///< the producer has completed it
  bool is_sent() const;     ///< complete, and all of it was taken
  bool is_aborted() const;  ///< the connection must be closed
  bool keeps_connection() const;
  /// The connection has ended: calls the on_close() callback unless the answer is complete.
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

/// The exchange that a handler gets; its destructor calls Answer::drop().
std::shared_ptr<Exchange> make_exchange(Request request, std::shared_ptr<Answer> answer);

}  // namespace fovea::http
