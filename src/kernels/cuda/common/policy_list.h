#pragma once
// The policies for which a kernel family is compiled.

namespace fovea::cuda {

template <class... P>
struct PolicyList {
  /// Calls f.template operator()<P>() in order until one returns true.
  template <class F>
  static constexpr bool any(F&& f) {
    return (f.template operator()<P>() || ...);
  }
};

}  // namespace fovea::cuda
