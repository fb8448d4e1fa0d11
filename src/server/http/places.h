#pragma once
// The places of a server's connections: how many there are, and who gives way when they run out. A connection
// without a whole request yields to a new one, the longest idle first; one with a request under way never.
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
  /// Its place is another's now: it is to end. Called on any thread, without a lock.
  virtual void evict() = 0;
};

/// Thread-safe. Outlives its places.
class Places {
  struct Address;

 public:
  enum class Full { no, all, address };

  /// One connection's. Its calls are for one thread at a time.
  class Place {
   public:
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// Until set_busy() `owner` may be told to end; who called this last is the last to be told.
    void set_idle(std::weak_ptr<Evictable> owner);
    /// False: too late, the place is another's.
    bool set_busy();

   private:
    friend class Places;
    Place(Places& places, Address& address) : places_(places), address_(&address) {}

    Places& places_;
    Address* address_;  // null when the place is another's
    bool idle_ = false;
    std::weak_ptr<Evictable> owner_;
    std::list<Place*>::iterator among_all_, among_address_;  // while idle
  };

  Places(int most, int most_of_address) : most_(most), most_of_address_(most_of_address) {}

  /// A place for a connection of `address`, where need be that of an idle one: of the same address, if that
  /// is what has too many. Null when all are busy; `full` says which limit it was.
  std::unique_ptr<Place> enter(const std::string& address, Full& full);
  /// Ends the longest idle connection; false when none is idle.
  bool evict_longest_idle();
  ConnectionCounts counts() const;

 private:
  struct Address {
    std::string name;
    int count = 0;
    std::list<Place*> idle;  // the longest first, as in idle_
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
