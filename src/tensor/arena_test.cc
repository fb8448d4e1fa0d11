#include "tensor/arena.h"
#include "fovea/result.h"

#include <gtest/gtest.h>
#include <utility>

#include <cstdlib>
#include <map>
#include <new>
#include <vector>

namespace fovea {
namespace {

/// Tracks its live allocations, which are host memory.
class CountingDevice final : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::cpu; }
  std::string_view name() const override { return "counting"; }
  void* allocate(size_t bytes) override {
    if (bytes > limit) throw std::bad_alloc();
    void* data = cpu_device().allocate(bytes);
    live[data] = bytes;
    return data;
  }
  void release(void* data, size_t bytes) override {
    EXPECT_EQ(live.at(data), bytes);
    live.erase(data);
    cpu_device().release(data, bytes);
  }
  Status copy_from_host(void*, const void*, size_t, Stream&) const override { return {}; }
  Status copy_to_host(void*, const void*, size_t, Stream&) const override { return {}; }
  Status synchronize(Stream&) const override { return {}; }

  std::map<void*, size_t> live;
  size_t limit = size_t{1} << 30;
};

TEST(BufferTest, OwnsItsMemory) {
  CountingDevice device;
  {
    Buffer a(device, 100);
    ASSERT_EQ(device.live.size(), 1u);
    EXPECT_EQ(a.size(), 100u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % Device::kAlignment, 0u);
    Buffer b = std::move(a);
    EXPECT_EQ(a.size(), 0u);
    EXPECT_EQ(b.size(), 100u);
    Buffer c(device, 50);
    c = std::move(b);
    EXPECT_EQ(c.size(), 100u);
  }
  EXPECT_TRUE(device.live.empty());
  const Buffer nothing(device, 0);
  EXPECT_EQ(nothing.data(), nullptr);
  EXPECT_TRUE(device.live.empty());
  device.limit = 10;
  EXPECT_THROW(Buffer(device, 11), std::bad_alloc);
}

TEST(BufferTest, TensorsEndInside) {
  CountingDevice device;
  const Buffer buffer(device, 48);
  const Tensor t = buffer.tensor(ElementType::f32, {2, 4}, 16);
  EXPECT_EQ(t.as<std::byte>(), buffer.data() + 16);
  EXPECT_EQ(t.device, &device);
  EXPECT_DEATH((void)buffer.tensor(ElementType::f32, {2, 4}, 20), "internal error");
  EXPECT_DEATH((void)buffer.tensor(ElementType::f32, {1}, 46), "internal error");
  EXPECT_THROW(dense_bytes(ElementType::f32, {int64_t{1} << 40, int64_t{1} << 40}), std::bad_alloc);
}

/// Takes memory as a model's step does: some tensors live at the same time, others reuse the same memory.
std::vector<Tensor> step(Arena& arena, int64_t rows) {
  std::vector<Tensor> taken;
  const Arena::Scope whole(arena);
  taken.push_back(arena.take(ElementType::f32, {rows, 5}));
  {
    const Arena::Scope first(arena);
    taken.push_back(arena.take(ElementType::f32, {rows, 40}));
  }
  {
    const Arena::Scope second(arena);
    taken.push_back(arena.take(ElementType::i32, {rows}));
    taken.push_back(arena.take(ElementType::u8, {1}));
  }
  return taken;
}

TEST(ArenaTest, ADryRunFindsItsSize) {
  CountingDevice device;
  Arena dry = Arena::dry_run(device);
  EXPECT_TRUE(dry.dry());
  for (const Tensor& t : step(dry, 7))
    EXPECT_EQ(t.data, nullptr);
  EXPECT_TRUE(device.live.empty());
  EXPECT_EQ(dry.peak(), 192u + 1152u);  // 140 and 1120 bytes in cache lines

  Arena arena(device, dry.peak());
  EXPECT_FALSE(arena.dry());
  EXPECT_EQ(device.live.size(), 1u);
  const std::vector<Tensor> first = step(arena, 7), second = step(arena, 7);
  ASSERT_EQ(first.size(), 4u);
  for (size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].data, second[i].data);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first[i].data) % Device::kAlignment, 0u);
    EXPECT_EQ(first[i].device, &device);
  }
  EXPECT_EQ(first[1].data, first[2].data);  // the scopes don't overlap
  EXPECT_NE(first[2].data, first[3].data);
  EXPECT_EQ(arena.peak(), dry.peak());
  EXPECT_EQ(device.live.size(), 1u);
}

// A shape computed from the step instead of the limits must fail; the arena does not grow.
TEST(ArenaTest, TakingMoreThanTheDryRunIsAnInternalError) {
  CountingDevice device;
  Arena dry = Arena::dry_run(device);
  step(dry, 7);
  Arena arena(device, dry.peak());
  EXPECT_DEATH(step(arena, 9), "internal error");
}

TEST(ArenaTest, SizesBeyond64BitsAreNoMemory) {
  CountingDevice device;
  Arena dry = Arena::dry_run(device);
  EXPECT_THROW(dry.take(ElementType::f32, {int64_t{1} << 40, int64_t{1} << 40}), std::bad_alloc);
}

}  // namespace
}  // namespace fovea
