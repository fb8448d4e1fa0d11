#pragma once
// Who waits, and whose turn it is. Clients share what is computed equally, in tokens, as long as they want it
// (fair queueing with a virtual time: each client is charged what is computed for it, and the one that was
// charged least is first). Within a client who came first is first, so one client alone is a plain queue.
#include <cstddef>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/sequence.h"
#include "fovea/engine.h"

namespace fovea {

/// Whether `a` is served before `b` of the same client: a total order that never changes while they live.
struct ServedBefore {
  SchedulingPolicy policy;
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (policy == SchedulingPolicy::priority && a->priority != b->priority) return a->priority < b->priority;
    return a->arrival < b->arrival;
  }
};

/// What is known of one client while it has sequences, or was charged beyond the others.
struct ClientShare {
  explicit ClientShare(const ServedBefore& order) : waiting(order) {}
  double charged = 0;  ///< tokens computed, from the virtual time at which it last began to want any
  int running = 0;
  std::set<Sequence*, ServedBefore> waiting;

  bool is_active() const { return running > 0 || !waiting.empty(); }
};

class FairLine {
 public:
  explicit FairLine(SchedulingPolicy policy) : order_{policy} {}

  /// A new sequence gets in line.
  void add(Sequence& sequence);
  /// From the line to those that run, and back.
  void admit(Sequence& sequence);
  void put_back(Sequence& sequence);
  /// One that ends, wherever it is.
  void remove(Sequence& sequence);

  /// `rows` were computed for it.
  void charge(const Sequence& sequence, int rows);
  /// After a step's charges: time goes on by an equal share of them.
  void advance();

  bool empty() const { return waiting_ == 0; }
  size_t size() const { return waiting_; }
  /// Null when nobody waits.
  Sequence* first() const;
  /// The next `count` at most, as charges are now.
  std::vector<const Sequence*> first_ones(size_t count) const;
  const ServedBefore& order() const { return order_; }

  /// Whether `a` is served before `b`, as charges are now.
  bool before(const Sequence* a, const Sequence* b) const;
  /// Whether `first`, which waits, is to have the place of `running`: its client was charged less, and would
  /// still have at most half as many that run. Closer than that, clients wait for each other's answers to
  /// end, or they would take turns at pushing each other out. Priorities interrupt nobody.
  bool takes_place(const Sequence& first, const Sequence& running) const;

 private:
  void forget(ClientShare& share, const std::string& client);

  const ServedBefore order_;
  std::unordered_map<std::string, ClientShare> clients_;
  double now_ = 0;      // virtual time
  double charges_ = 0;  // since it went on
  size_t waiting_ = 0;
  size_t active_ = 0;    // clients
  size_t swept_at_ = 0;  // clients when those that need not be known were forgotten last
};

}  // namespace fovea
