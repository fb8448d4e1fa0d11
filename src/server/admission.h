#pragma once
// Who may wait. Decided by counting, before a body is read: a queue without an end answers nobody in time.
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace fovea::server {

/// Counts answers (of embeddings: requests, whatever their inputs) from their arrival to their end. Those
/// beyond `slots`, which the engine runs at a time, wait for their turn. Thread-safe.
class Admission {
 public:
  struct Limits {
    int slots = 1;
    int waiting = 0;            ///< answers
    int64_t prompt_tokens = 0;  ///< of requests without a first token while somebody waits; 0 = no limit
  };
  enum class Verdict { admitted, too_many_requests, too_many_tokens };

  /// A request's place. Gives back what it holds when it goes. Its calls are for one thread at a time.
  class Ticket {
   public:
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;

    /// Once it is known how many answers there will be.
    Verdict set_answers(int answers);
    /// Before they are computed.
    Verdict set_prompt_tokens(int64_t tokens);
    /// The prompt is computed: its tokens do not wait any more.
    void prompt_done(int64_t tokens);
    /// One answer is over.
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

  /// Null when the queue is full. `engine_waiting`: the engine's own count, which also knows of those that
  /// wait for pages. A `client` that has nothing here gets one answer in although others fill the queue, as
  /// long as there are not more than `slots` of that kind.
  std::unique_ptr<Ticket> arrive(const std::string& client, int engine_waiting, Verdict& verdict);

  int answers() const;
  int waiting() const;
  /// Of one request: more would not be admitted if nobody else were there.
  int64_t most() const { return int64_t{limits_.slots} + limits_.waiting; }

 private:
  // With mutex_ held.
  bool full(int64_t more, bool is_first) const;
  int64_t answers_of(const std::string& client) const;
  void add(const std::string& client, int64_t answers);

  const Limits limits_;
  mutable std::mutex mutex_;
  int64_t answers_ = 0, tokens_ = 0;
  std::unordered_map<std::string, int64_t> of_client_;  // answers; none is 0
};

}  // namespace fovea::server
