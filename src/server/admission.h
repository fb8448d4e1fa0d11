#pragma once
// Admission control for the request queue. It counts answers before a body is read: with an unbounded queue
// no request would be answered in time.
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace fovea::server {

/// Counts answers (for embeddings: requests, regardless of their number of inputs) from arrival to
/// completion. The engine runs `slots` answers at a time; the others wait. Thread-safe.
class Admission {
 public:
  struct Limits {
    int slots = 1;
    int waiting = 0;            ///< answers
    int64_t prompt_tokens = 0;  ///< of prompts not computed yet, over all requests; 0 = no limit
  };
  enum class Verdict { admitted, too_many_requests, too_many_tokens };

  /// The reservation of one request, released by the destructor. Call from one thread at a time.
  class Ticket {
   public:
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

    /// Call when the number of answers is known.
    Verdict set_answers(int answers);
    /// Call before the prompts are computed; `tokens` over all prompts of the request.
    Verdict set_prompt_tokens(int64_t tokens);
    /// A prompt of `tokens` tokens is computed and no longer waits.
    void prompt_done(int64_t tokens);
    /// One answer has ended.
    void answer_done();

   private:
    friend class Admission;
    Ticket(Admission& admission, std::string client) : admission_(admission), client_(std::move(client)) {}
    Admission& admission_;
    const std::string client_;
    int answers_ = 1;
    int64_t tokens_ = 0;
  };

  explicit Admission(const Limits& limits) : limits_(limits) {}

  /// Null when the queue is full. `engine_waiting`: the engine's own count, which includes requests that wait
  /// for pages. A `client` without answers here may add one although others fill the queue; at most
  /// min(slots, waiting) answers exceed the limit this way.
  std::unique_ptr<Ticket> arrive(const std::string& client, int engine_waiting, Verdict& verdict);

  int answers() const;
  int waiting() const;
  /// The largest number of answers that one request may have; more are refused even on an idle server.
  int64_t most() const { return int64_t{limits_.slots} + limits_.waiting; }

 private:
  // With mutex_ held.
  bool full(int64_t more, bool is_first) const;
  int64_t answers_of(const std::string& client) const;
  void add(const std::string& client, int64_t answers);

  const Limits limits_;
  mutable std::mutex mutex_;
  int64_t answers_ = 0, tokens_ = 0;
  std::unordered_map<std::string, int64_t> of_client_;  // number of answers; no entry is 0
};

}  // namespace fovea::server
