#pragma once
// The waiting queue. Active clients get equal shares of the computed tokens: fair queueing with a virtual
// time, where each client is charged the tokens computed for it and the least-charged client is served first.
// Within a client the order is arrival order, so a single client sees a FIFO queue.
#include <cstddef>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/sequence.h"
#include "fovea/engine.h"

namespace fovea {

/// Whether `a` is served before `b` of the same client: a total order that is constant over their lifetime.
struct ServedBefore {
  SchedulingPolicy policy;
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (policy == SchedulingPolicy::priority && a->priority != b->priority) return a->priority < b->priority;
    return a->arrival < b->arrival;
  }
};

/// State of one client, kept while it has sequences or its charge is ahead of the virtual time.
struct ClientShare {
  explicit ClientShare(const ServedBefore& order) : waiting(order) {}
  double charged = 0;  ///< tokens computed for it; raised to the virtual time on becoming active
  int running = 0;
  std::set<Sequence*, ServedBefore> waiting;

  bool is_active() const { return running > 0 || !waiting.empty(); }
};

class FairLine {
 public:
  explicit FairLine(SchedulingPolicy policy) : order_{policy} {}

  /// Adds a new sequence to the queue.
  void add(Sequence& sequence);
  /// Moves a sequence from waiting to running, and back.
  void admit(Sequence& sequence);
  void put_back(Sequence& sequence);
  /// Removes a sequence, waiting or running.
  void remove(Sequence& sequence);

  /// Charges the client for `rows` computed rows.
  void charge(const Sequence& sequence, int rows);
  /// Call after a step's charges: advances the virtual time by the charges divided by the active clients.
  void advance();

  bool empty() const { return waiting_ == 0; }
  size_t size() const { return waiting_; }
  /// Null when the queue is empty.
  Sequence* first() const;
  /// The first of those for which `fits` is true; null if there is none.
  template <class Fits>
  Sequence* first_where(const Fits& fits) const {
    Sequence* first = nullptr;
    for (const auto& [client, share] : clients_)
      for (Sequence* const sequence : share.waiting) {
        if (!fits(*sequence)) continue;
        if (first == nullptr || before(sequence, first)) first = sequence;
        break;
      }
    return first;
  }
  /// The next sequences in order, at most `count`, by current charges.
  std::vector<const Sequence*> first_ones(size_t count) const;
  const ServedBefore& order() const { return order_; }

  /// Whether `a` is served before `b`, by current charges.
  bool before(const Sequence* a, const Sequence* b) const;
  /// Whether the waiting sequence `first` should preempt `running`: its client was charged less and, with it
  /// admitted, would have at most half as many running sequences. Closer counts do not preempt, or clients
  /// would keep preempting each other. Priorities never preempt.
  bool takes_place(const Sequence& first, const Sequence& running) const;

 private:
  void forget(ClientShare& share, const std::string& client);

  const ServedBefore order_;
  std::unordered_map<std::string, ClientShare> clients_;
  double now_ = 0;      // virtual time
  double charges_ = 0;  // since the last advance()
  size_t waiting_ = 0;
  size_t active_ = 0;    // clients
  size_t swept_at_ = 0;  // number of clients after the last sweep of inactive ones
};

}  // namespace fovea
