#include "server/http/places.h"

#include <utility>

namespace fovea::http {

std::unique_ptr<Places::Place> Places::enter(const std::string& address, Full& full) {
  std::shared_ptr<Evictable> evicted;  // notified after the lock is released
  std::unique_ptr<Place> place;
  {
    const std::lock_guard lock(mutex_);
    full = Full::no;
    Address& own = addresses_[address];
    own.name = address;
    ++own.count;  // keeps the entry while an eviction leaves it
    if (own.count > most_of_address_)
      full = take_from(own.idle, evicted) ? Full::no : Full::address;
    else if (counts_.open >= most_)
      full = take_from(idle_, evicted) ? Full::no : Full::all;
    if (full == Full::no) {
      ++counts_.open;
      place.reset(new Place(*this, own));
    } else {
      ++counts_.refused;
      if (--own.count == 0) addresses_.erase(address);
    }
  }
  if (evicted) evicted->evict();
  return place;
}

bool Places::evict_longest_idle() {
  std::shared_ptr<Evictable> evicted;
  {
    const std::lock_guard lock(mutex_);
    if (!take_from(idle_, evicted)) return false;
  }
  if (evicted) evicted->evict();
  return true;
}

ConnectionCounts Places::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

bool Places::take_from(const std::list<Place*>& idle, std::shared_ptr<Evictable>& owner) {
  if (idle.empty()) return false;
  Place& place = *idle.front();
  owner = place.owner_.lock();  // null: already ending
  leave(place);
  ++counts_.evicted;
  return true;
}

void Places::stop_idling(Place& place) {
  if (!std::exchange(place.idle_, false)) return;
  idle_.erase(place.among_all_);
  place.address_->idle.erase(place.among_address_);
}

void Places::leave(Place& place) {
  stop_idling(place);
  Address* address = std::exchange(place.address_, nullptr);
  --counts_.open;
  if (--address->count == 0) addresses_.erase(std::string(address->name));
}

Places::Place::~Place() {
  const std::lock_guard lock(places_.mutex_);
  if (address_) places_.leave(*this);
}

void Places::Place::set_idle(std::weak_ptr<Evictable> owner) {
  const std::lock_guard lock(places_.mutex_);
  if (!address_) return;
  places_.stop_idling(*this);
  idle_ = true;
  owner_ = std::move(owner);
  among_all_ = places_.idle_.insert(places_.idle_.end(), this);
  among_address_ = address_->idle.insert(address_->idle.end(), this);
}

bool Places::Place::set_busy() {
  const std::lock_guard lock(places_.mutex_);
  if (!address_) return false;
  places_.stop_idling(*this);
  return true;
}

}  // namespace fovea::http
