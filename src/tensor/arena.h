#pragma once
// Scratch memory of a step: tensors are taken and released in stack order. A dry run of the same code
// measures its peak size, so that it is allocated once; equal calls then get tensors at the same addresses in
// every step, as a captured graph requires.
#include <cstddef>
#include <initializer_list>

#include "tensor/buffer.h"

namespace fovea {

class Arena {
 public:
  /// A dry run: tensors have shapes and no data.
  static Arena dry_run(Device& device) { return Arena(device); }
  /// Allocates `bytes`: the peak() of a dry run. Throws std::bad_alloc.
  Arena(Device& device, size_t bytes) : device_(&device), memory_(device, bytes), dry_(false) {}

  bool dry() const { return dry_; }
  size_t bytes() const { return memory_.size(); }
  /// Maximum of the bytes taken at one time.
  size_t peak() const { return peak_; }

  /// A dense tensor, uninitialised, aligned to Device::kAlignment, valid until its Scope ends. Taking more
  /// than the dry run did is an internal error: shapes must follow from declared limits, not from the step.
  Tensor take(ElementType dtype, std::initializer_list<int64_t> shape);

  /// Its destructor releases what was taken since its constructor.
  class Scope {
   public:
    explicit Scope(Arena& arena) : arena_(arena), begin_(arena.used_) {}
    ~Scope() { arena_.used_ = begin_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    size_t begin_;
  };

 private:
  explicit Arena(Device& device) : device_(&device) {}

  Device* device_;
  Buffer memory_;
  bool dry_ = true;
  size_t used_ = 0, peak_ = 0;
};

}  // namespace fovea
