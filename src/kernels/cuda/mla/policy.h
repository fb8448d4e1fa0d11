#pragma once
// Constants of the kernels for absorbed MLA. A key is a record of a latent cache: 512 latent elements, which
// are also its value, then 64 that carry the position (rope). All query heads share the one KV head.
#include "kernels/cuda/common/half_types.h"
#include "kernels/cuda/common/params.h"

namespace fovea::cuda::mla {

/// Elements of a record and of a query row, and of a value and of an output row: DeepSeek's and its like.
inline constexpr int kD = 576, kDv = 512;
/// MiniCPM3's: 256 latent elements and 32 of rope; the sm80 kernel alone has it.
inline constexpr int kSmallD = 288, kSmallDv = 256;
/// Bytes of a record of fp8_ds_mla: kDv codes of e4m3, an fp32 scale for each kDsMlaScaled of them, then the
/// other elements in bf16.
inline constexpr int kDsMlaScaled = 128;
inline constexpr int kDsMlaRope = kDv + kDv / kDsMlaScaled * 4, kDsMlaBytes = kDsMlaRope + (kD - kDv) * 2;
inline constexpr int kRowTile = 64;  ///< packed rows of the larger tiles, by which row tiles are counted

/// Tensor cores through mma.sync, for sm_80 and later. A group of four warps has 16 packed rows; a CTA has
/// one group or two, which share the keys in shared memory. Each warp multiplies its quarter of the 576 dims
/// for the scores, sums the four quarters in order, and has a quarter of the columns of V.
/// DsMla: the records are those of fp8_ds_mla (kernels/cache/ds_mla.h), and Kv is e4m3.
template <class Query, KvType Kv, int Record = mla::kD, bool DsMla = false>
struct Sm80Policy {
  using Q = Query;
  static constexpr int kD = Record, kDv = Record / 9 * 8;
  static constexpr KvType kKv = Kv;
  static constexpr bool kEightBit = Kv != KvType::same, kDsMla = DsMla;
  static constexpr int kRecordBytes = DsMla ? kDsMlaBytes : kD * kv_bytes(Kv);
  static constexpr int kGroupRows = 16, kGroupWarps = 4, kMostGroups = 2;
  static constexpr int kTileKeys = 32;
  /// Steps of 16 dims of a warp's part of the scores. What they have beyond kD is 0, in queries and keys.
  static constexpr int kSteps = (kD / 16 + kGroupWarps - 1) / kGroupWarps;
  static constexpr int kPaddedD = kSteps * kGroupWarps * 16;
  static constexpr int kPitch = kPaddedD * 2 + 16;  ///< bytes between keys: ldmatrix without bank conflicts
  static constexpr int kTileBytes = kTileKeys * kPitch;
  /// Two tiles of 16-bit keys; or two of 8-bit keys as they are stored, and one that they are widened to,
  /// which is exact (of fp8_ds_mla: rounded once).
  static constexpr int kRawBytes = kEightBit ? 2 * kTileKeys * kRecordBytes : 0;
  static constexpr int kTiles = kEightBit ? 1 : 2;
  static constexpr int kScoreBytes = kGroupWarps * kGroupRows * kTileKeys * 4;  ///< of a group
  static constexpr int threads(int groups) { return groups * kGroupWarps * 32; }
  static constexpr int shared_bytes(int groups) {
    return kRawBytes + kTiles * kTileBytes + groups * kScoreBytes;
  }
};

/// How the Hopper kernel loads keys: by TMA in boxes of neighbouring slots; or one by one, as lists name
/// them, by cp.async or, from records of fp8_ds_mla, through registers. Pairs: a cluster of two CTAs, whose
/// row tiles have the same list, widens each record once. (Records of 16 bits are slower so: 0.48 of the rate
/// of products instead of 0.59.)
enum class KeySource : uint8_t { boxes, records, ds_mla, ds_mla_pairs };
constexpr bool gathers(KeySource source) {
  return source != KeySource::boxes;
}
constexpr bool is_pairs(KeySource source) {
  return source == KeySource::ds_mla_pairs;
}

/// Hopper: wgmma, TMA. A producer warpgroup; a warpgroup that computes the scores of 64 packed rows and the
/// left half of their O; one for the right half of O.
struct Sm90Policy {
  static constexpr int kRows = kRowTile, kTileKeys = 64, kStages = 2, kThreads = 384;
  struct Registers {
    int producer, consumer;  ///< of a thread; the first and twice the second are at most 504, what a CTA has
  };
  static constexpr Registers registers(KeySource source) {
    switch (source) {
      case KeySource::boxes: return {40, 232};
      case KeySource::records: return {56, 224};
      case KeySource::ds_mla:
      case KeySource::ds_mla_pairs: return {88, 208};
    }
    return {};
  }
  /// Panels of 64 dims, 128 bytes a row: of Q, and of a tile of keys.
  static constexpr int kPanels = kD / 64, kPanelBytes = 64 * 128;
  static constexpr int kTileBytes = kPanels * kPanelBytes;
  static constexpr int kKeysOffset = kTileBytes;  ///< after Q
  static constexpr int kProbabilitiesOffset = kKeysOffset + kStages * kTileBytes;
  static constexpr int kFactorsOffset = kProbabilitiesOffset + kPanelBytes;
  static constexpr int kTargetsOffset = kFactorsOffset + kRows * 4;
  static constexpr int kBarriersOffset = kTargetsOffset + kRows * 8;
  static constexpr int kBarrierBytes = (2 + 4 * kStages) * 8;
  /// 1024 more, to align the tiles.
  static constexpr int kSharedBytes = kBarriersOffset + kBarrierBytes + 1024;
};

}  // namespace fovea::cuda::mla
