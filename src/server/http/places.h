#pragma once
// Connection slots of a server, and eviction when they run out. A connection without a complete request is
// evicted for a new one, the longest idle first; a connection with a request in flight is never evicted.
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "server/http/server.h"

namespace fovea::http {

class Evictable {
 public:
  virtual ~Evictable() = default;
  /// The slot was given to another connection: end this one. Called on any thread, without a lock held.
  virtual void evict() = 0;
};

/// Thread-safe. Must outlive its Place objects.
class Places {
  struct Address;

 public:
  enum class Full { no, all, address };

  /// The slot of one connection. Call from one thread at a time.
  class Place {
   public:
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// Until set_busy() `owner` may be evicted; the most recent caller is evicted last.
    void set_idle(std::weak_ptr<Evictable> owner);
    /// False when the slot has already been taken away.
    bool set_busy();

   private:
    friend class Places;
    Place(Places& places, Address& address) : places_(places), address_(&address) {}

    Places& places_;
    Address* address_;  // null once evicted
    bool idle_ = false;
    std::weak_ptr<Evictable> owner_;
    std::list<Place*>::iterator among_all_, among_address_;  // while idle
  };

  Places(int most, int most_of_address) : most_(most), most_of_address_(most_of_address) {}

  /// A slot for a connection from `address`. At a limit it evicts an idle connection, from the same address
  /// if the per-address limit was reached. Null when all are busy; `full` is the limit reached.
  std::unique_ptr<Place> enter(const std::string& address, Full& full);
  /// Evicts the longest idle connection; false when none is idle.
  bool evict_longest_idle();
  ConnectionCounts counts() const;

 private:
  struct Address {
    std::string name;
    int count = 0;
    std::list<Place*> idle;  // longest idle first, as in idle_
  };

  // With mutex_ held.
  bool take_from(const std::list<Place*>& idle, std::shared_ptr<Evictable>& owner);
  void stop_idling(Place& place);
  void leave(Place& place);

  const int most_, most_of_address_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Address> addresses_;
  std::list<Place*> idle_;
  ConnectionCounts counts_;
};

}  // namespace fovea::http
