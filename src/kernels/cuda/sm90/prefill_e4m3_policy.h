#pragma once
// Compile-time constants of the prefill kernels whose queries, keys and values are e4m3.
#include "kernels/cuda/sm90/prefill_policy.h"

namespace fovea::cuda::sm90 {

/// consumers, stages and promote_keys in shared memory; tile_keys and promote_keys change a row's bits.
struct PrefillE4m3Shape {
  int consumers;
  int tile_keys;
  int stages;
  bool ping_pong;    ///< as in PrefillShape
  int promote_keys;  ///< O goes from wgmma's accumulators, which keep 14 bits, to fp32 totals so often
};

/// What the producer and the barriers see: a row of 128 bytes is 64 words of 16 bits, and a tile of values is
/// as many bytes as one of keys. The values of a tile are transposed in front of the kernel.
template <PrefillE4m3Shape kShape, class Out>
struct PrefillE4m3Words : PrefillPolicy<PrefillShape{.head_dim = 64,
                                                     .v_head_dim = 64,
                                                     .consumers = kShape.consumers,
                                                     .tile_keys = kShape.tile_keys,
                                                     .stages = kShape.stages,
                                                     .query_stages = 2},
                                        Out> {
  using Base = PrefillPolicy<PrefillShape{.head_dim = 64,
                                          .v_head_dim = 64,
                                          .consumers = kShape.consumers,
                                          .tile_keys = kShape.tile_keys,
                                          .stages = kShape.stages,
                                          .query_stages = 2},
                             Out>;
  static constexpr bool kTransposedValues = true;
  static constexpr int kTotalBytes = 128 * 64 * 4;  ///< of a consumer: O in fp32
  static constexpr int kTotalsOffset = (Base::kSharedBytes - 1024 + 127) / 128 * 128;
  static constexpr int kSharedBytes = kTotalsOffset + kShape.consumers * kTotalBytes + 1024;
  static_assert(kSharedBytes <= kMaxSharedBytes);
  static constexpr int kProducerRegisters = kShape.consumers == 3 ? 32 : 40;
  static constexpr int kConsumerRegisters = kShape.consumers == 3 ? 160 : 232;
};

template <PrefillE4m3Shape kShape, class Out>
struct PrefillE4m3Policy {
  using Q = Out;  ///< of O
  using Words = PrefillE4m3Words<kShape, Out>;
  static constexpr bool kTokenScales = true;  // no kHasHeadScales: descales are the consumer's
  static constexpr int kD = 128, kDv = 128;
  static constexpr bool kWide = false;
  static constexpr int kConsumers = kShape.consumers, kTileKeys = kShape.tile_keys, kStages = kShape.stages;
  static constexpr bool kPingPong = kShape.ping_pong;
  static constexpr int kPromoteKeys = kShape.promote_keys;
  static_assert(kTileKeys % 32 == 0 && kPromoteKeys % kTileKeys == 0);
  static constexpr int kRows = 64 * kConsumers, kThreads = 128 * (kConsumers + 1);
};

}  // namespace fovea::cuda::sm90
