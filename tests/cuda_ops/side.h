#pragma once
// The tensors and operations of one device, so that a case runs on two devices from the same host values.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/thread_pool.h"
#include "model/placed_weights.h"
#include "ops/op_queue.h"
#include "tensor/buffer.h"

namespace fovea::test {

using Floats = std::vector<float>;

class Side {
 public:
  Side(Ops& ops, Stream& stream) : ops_(ops), stream_(stream), queue_(ops, stream) {}
  ~Side() { (void)ops_.device().synchronize(stream_); }

  OpQueue& queue() { return queue_; }
  Ops& ops() { return ops_; }
  ElementType act() const { return element_of(ops_.activations()); }

  /// A matrix [rows, width], rounded to `type`; its rows begin at multiples of 16 bytes.
  Tensor matrix(const Floats& values, int64_t rows, ElementType type) {
    const Tensor there = poisoned(rows, static_cast<int64_t>(values.size()) / rows, type);
    const auto width = there.size(1), stride = there.stride(0);
    std::vector<std::byte> host(static_cast<size_t>(rows * stride) * size_of(type), std::byte{0xff});
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < width; ++i) {
        const float value = values[static_cast<size_t>(r * width + i)];
        std::byte* to = host.data() + (r * stride + i) * static_cast<int64_t>(size_of(type));
        if (type == ElementType::f32) {
          std::memcpy(to, &value, sizeof(value));
        } else {
          const uint16_t bits = type == ElementType::f16 ? float_to_fp16(value) : float_to_bf16(value);
          std::memcpy(to, &bits, sizeof(bits));
        }
      }
    send(there.data, host.data(), host.size());
    return there;
  }
  Tensor act_rows(const Floats& values, int64_t rows) { return matrix(values, rows, act()); }
  Tensor f32_rows(const Floats& values, int64_t rows) { return matrix(values, rows, ElementType::f32); }

  /// A matrix whose bytes are all 0xff: NaN, or -1.
  Tensor poisoned(int64_t rows, int64_t width, ElementType type) {
    const int64_t group = size_of(type) == 2 ? 8 : 1, stride = (width + group - 1) / group * group;
    const Buffer& memory = memory_.emplace_back(ops_.device(), dense_bytes(type, {rows, stride}));
    const std::vector<std::byte> host(memory.size(), std::byte{0xff});
    send(memory.data(), host.data(), host.size());
    const Tensor whole = memory.tensor(type, {rows, stride});
    return stride == width ? whole : whole.slice(1, 0, width);
  }
  template <class T>
  Tensor array(const std::vector<T>& values) {
    const Tensor host = host_tensor(std::span(values));
    const Tensor there = memory_.emplace_back(ops_.device(), values.size() * sizeof(T))
                             .tensor(host.dtype, {static_cast<int64_t>(values.size())});
    send(there.data, values.data(), values.size() * sizeof(T));
    return there;
  }

  /// A linear layer of the type of activations; an empty bias = none.
  LinearWeight weight(const Floats& values, int64_t n, const Floats& bias = {},
                      WeightUse use = WeightUse::plain) {
    return weights({values}, n, {bias}, use).front();
  }
  /// Layers of one shape, as the experts have them.
  std::vector<LinearWeight> weights(const std::vector<Floats>& values, int64_t n,
                                    const std::vector<Floats>& biases, WeightUse use) {
    std::deque<Linear> layers;
    std::vector<const Linear*> list;
    ThreadPool pool(1);
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t k = static_cast<int64_t>(values[i].size()) / n;
      PackedMatrix packed(n, k, ops_.activations());
      packed.pack_rows(0, n, values[i].data(), DType::f32, pool);
      Linear& layer = layers.emplace_back();
      layer.weight = WeightMatrix(std::move(packed));
      layer.bias = AlignedArray<float>(biases[i].size());
      std::ranges::copy(biases[i], layer.bias.data());
      list.push_back(&layer);
    }
    int64_t bytes = 0;
    if (ops_.packed_format(use)) {
      WeightPlacement measured = WeightPlacement::measure(ops_);
      (void)measured.linears(list, use);
      bytes = measured.bytes();
    }
    WeightPlacement placement(ops_, stream_, bytes);
    auto placed = placement.linears(list, use);
    ok(placement.finish({}));
    for (Buffer& memory : placement.take_memory())
      memory_.push_back(std::move(memory));
    return placed;
  }

  Floats floats(const Tensor& t) {
    const int64_t rows = t.size(0), width = t.size(1), stride = t.stride(0);
    const auto word = static_cast<int64_t>(size_of(t.dtype));
    std::vector<std::byte> host(static_cast<size_t>(((rows - 1) * stride + width) * word));
    receive(host.data(), t.data, host.size());
    Floats out;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < width; ++i) {
        const std::byte* from = host.data() + (r * stride + i) * word;
        if (t.dtype == ElementType::f32) {
          float value;
          std::memcpy(&value, from, sizeof(value));
          out.push_back(value);
        } else {
          uint16_t bits;
          std::memcpy(&bits, from, sizeof(bits));
          out.push_back(t.dtype == ElementType::f16 ? fp16_to_float(bits) : bf16_to_float(bits));
        }
      }
    return out;
  }
  template <class T>
  std::vector<T> values(const Tensor& t) {
    std::vector<T> host(static_cast<size_t>(t.elements()));
    receive(host.data(), t.data, host.size() * sizeof(T));
    return host;
  }

  void send(void* to, const void* from, size_t bytes) {
    ok(ops_.device().copy_from_host(to, from, bytes, stream_));
    ok(ops_.device().synchronize(stream_));
  }
  void receive(void* to, const void* from, size_t bytes) {
    ok(queue_.status());
    ok(ops_.device().copy_to_host(to, from, bytes, stream_));
    ok(ops_.device().synchronize(stream_));
  }

 private:
  static void ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.error().message; }

  Ops& ops_;
  Stream& stream_;
  OpQueue queue_;
  std::deque<Buffer> memory_;
};

}  // namespace fovea::test
