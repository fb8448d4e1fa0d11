#pragma once
// The numbers of the decode kernels.
#include "kernels/cuda/sm80/policy.h"

namespace fovea::cuda::sm90 {

/// Rows of keys or values in shared memory as boxes of a tensor map with a swizzle leave them: of `box` keys at
/// a time (8 or more), panel after panel of kPanel bytes of each row; or, kRowMajor, row after row. Tiles begin
/// at multiples of 1024 bytes, and the swizzle goes by the bits of the address.
template <int RowBytes, int Keys, bool kRowMajor_>
struct PanelLayout {
  static constexpr bool kRowMajor = kRowMajor_;
  static constexpr int kPanel = RowBytes % 128 == 0 ? 128 : RowBytes % 64 == 0 ? 64 : 32;
  static constexpr int kChunks = RowBytes / 16, kPanelChunks = kPanel / 16;
  static constexpr int kPanels = RowBytes / kPanel;
  static constexpr int kBytes = Keys * RowBytes;
  static_assert(RowBytes % 32 == 0);

  FOVEA_HOST_DEVICE static constexpr unsigned swizzled(unsigned address) {
    return address ^ ((address >> 7 & (kPanelChunks - 1)) << 4);
  }
  /// Bytes from a panel of a row to its next.
  FOVEA_HOST_DEVICE static constexpr unsigned step(unsigned box) { return kRowMajor ? kPanel : box * kPanel; }
  /// Bytes from a key to the one 16 further on.
  FOVEA_HOST_DEVICE static constexpr unsigned next16(unsigned box) {
    return 16 * (kRowMajor || box <= 16 ? RowBytes : kPanel);
  }
  FOVEA_HOST_DEVICE static constexpr unsigned offset(unsigned row, unsigned chunk, unsigned box) {
    const unsigned start =
        kRowMajor ? row * RowBytes : row / box * box * RowBytes + row % box * kPanel;
    return swizzled(start + chunk / kPanelChunks * step(box) + chunk % kPanelChunks * 16);
  }
  /// offset(row, chunk + chunks) from offset(row, chunk), with chunk < 2 and an even, constant `chunks`.
  FOVEA_HOST_DEVICE static constexpr unsigned moved(unsigned address, unsigned chunks, unsigned step) {
    const unsigned panel = chunks / kPanelChunks, flip = kRowMajor ? panel & (kPanelChunks - 1) : 0;
    return (address ^ ((chunks % kPanelChunks ^ flip) << 4)) + panel * step;
  }
};

/// Up to kRows packed query rows against many keys. Warps of a producer fill a ring of tiles of keys and
/// values; each of the other warps takes its own keys of a tile (kKeyGroups), its own 16 rows (kRowTiles) and
/// its own columns of V and O (kValueParts).
template <int HeadDim, int ValueDim, class Query, KvType Kv_, int RowTiles, int KeyGroups, int ValueParts,
          int TileKeys, int Stages, int ChunkKeys, bool RowMajor>
struct DecodePolicy {
  using Q = Query;
  /// Of the products. All 8-bit types widen to fp16 exactly and in the fewest instructions; bf16 queries
  /// follow, each row brought into fp16's range by a power of two.
  using Compute = std::conditional_t<Kv_ == KvType::same, Query, __half>;
  static constexpr KvType kKv = Kv_;
  static constexpr bool kEightBit = Kv_ != KvType::same;
  static constexpr int kD = HeadDim, kDv = ValueDim;
  static constexpr int kRowTiles = RowTiles, kKeyGroups = KeyGroups, kValueParts = ValueParts;
  static constexpr int kRows = 16 * RowTiles;
  static constexpr int kPartDv = ValueDim / ValueParts;
  static_assert(kD % 32 == 0 && kPartDv % 32 == 0);
  static constexpr int kConsumerWarps = RowTiles * KeyGroups * ValueParts;
  static constexpr int kConsumers = 32 * kConsumerWarps;
  static constexpr int kProducerWarps = 4;
  static constexpr int kThreads = kConsumers + 32 * kProducerWarps;
  static constexpr int kTileKeys = TileKeys;
  static constexpr int kWarpKeys = TileKeys / KeyGroups;
  static_assert(kWarpKeys % 16 == 0);
  static constexpr int kStages = Stages;
  /// Keys of a chunk and of a group of chunks, both at absolute multiples: a row's sums are those of its
  /// chunks, added in order to sums of groups, added in order.
  static constexpr int kChunkKeys = ChunkKeys, kGroupChunks = 8;
  static_assert(kChunkKeys % kTileKeys == 0);

  using KTile = PanelLayout<kD * kv_bytes(Kv_), TileKeys, RowMajor>;
  using VTile = PanelLayout<kDv * kv_bytes(Kv_), TileKeys, RowMajor>;
  static constexpr int kStageBytes = KTile::kBytes + VTile::kBytes;
  static_assert(KTile::kBytes % 1024 == 0 && VTile::kBytes % 1024 == 0);
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr bool kQueryShared = kD / 4 + kPartDv / 2 > 128;
  using QTile = sm80::TileLayout<kD * 2>;
  static constexpr int kQueryBytes = kQueryShared ? kRows * QTile::kPitch + kRows * 4 : 0;
  /// fp32 rows of the merge of the key groups, 8 at a time, padded by 8 floats so that the fragments' stores
  /// meet no bank twice; and states, two copies, used in turn.
  static constexpr int kPassRows = 8, kPasses = kRows / kPassRows;
  static constexpr int kMergePitch = kDv + 8;
  static constexpr int kMergeBytes = kKeyGroups * kPassRows * kMergePitch * 4;
  static constexpr int kStateBytes = 2 * kKeyGroups * kRows * 8;
  static constexpr int kBarrierBytes = kStages * 16 + 16;
  /// The ring begins at a multiple of 1024.
  static constexpr int kSharedBytes =
      kRingBytes + kQueryBytes + kMergeBytes + kStateBytes + kBarrierBytes + 1024;
  static_assert(kSharedBytes <= sm80::kMaxSharedBytes);
  /// Groups of four columns of O that a thread sums, of 8 rows.
  static constexpr int kPassCells = (kPassRows * kDv / 4 + kConsumers - 1) / kConsumers;
};

}  // namespace fovea::cuda::sm90
