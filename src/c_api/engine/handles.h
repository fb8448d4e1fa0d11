#pragma once
// Handles of objects that several threads use: numbers in the form of pointers, which are never used twice,
// so that a destroyed handle is an error and not a crash.
#include <pthread.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fovea/result.h"

namespace fovea::c_api {

/// The live objects of type T behind handles of type H. One per pair of types, never destroyed: a library
/// gets no notice before the process exits. A child of fork() has none of its parent's, as their threads are
/// gone; they are leaked there.
template <class H, class T>
class Handles {
 public:
  static H* add(std::shared_ptr<T> object) {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    const uintptr_t number = all.next;
    all.next += kStep;
    all.live.emplace(number, std::move(object));
    return reinterpret_cast<H*>(number);  // NOLINT(performance-no-int-to-ptr): it is never followed
  }

  /// `name` is for the error. The result keeps the object alive, also when it is removed meanwhile.
  static Result<std::shared_ptr<T>> find(const H* handle, const char* name) {
    if (handle == nullptr) return invalid(std::string(name) + " is null");
    State& all = state();
    const std::lock_guard lock(all.mutex);
    const auto found = all.live.find(reinterpret_cast<uintptr_t>(handle));
    if (found == all.live.end())
      return invalid(std::string(name) + " is not a live one of this process: it was destroyed, was never " +
                     "created, or was created before fork(); create one here");
    return found->second;
  }

  /// Null for an unknown handle.
  static std::shared_ptr<T> remove(const H* handle) {
    State& all = state();
    const std::lock_guard lock(all.mutex);
    const auto found = all.live.find(reinterpret_cast<uintptr_t>(handle));
    if (found == all.live.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    all.live.erase(found);
    return object;
  }

 private:
  static constexpr uintptr_t kFirst = 0x1000, kStep = 0x10;

  struct State {
    std::mutex mutex;
    std::map<uintptr_t, std::shared_ptr<T>> live;
    uintptr_t next = kFirst;
  };

  /// In the child of a fork(): the parent's mutex may be locked, so that `next` is read without it.
  static void renew() {
    State* const fresh = new State;
    fresh->next = current_->next + (kStep << 16);
    current_ = fresh;
  }

  static State& state() {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] {
      current_ = new State;
      pthread_atfork(nullptr, nullptr, renew);
    });
    return *current_;
  }

  static inline State* current_ = nullptr;
};

}  // namespace fovea::c_api
