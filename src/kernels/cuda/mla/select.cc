#include "kernels/cuda/mla/select.h"

#include <algorithm>
#include <bit>
#include <string>

#include "fovea/result.h"
#include "kernels/cuda/mla/policy.h"

namespace fovea::cuda::mla {
namespace {

/// Keys of a split. Few row tiles need many splits to fill a device; for many, partial results cost more than
/// they gain: the average sequence of the largest step is one split. For any number of tiles: a middle. (An
/// H200 has 132 SMs, each with one CTA of the sm90 kernel or two of the sm80 kernel.)
int split_keys(const Problem& p, Hardware hardware) {
  const int64_t tiles = p.row_tiles;
  if (tiles > 0 && tiles <= 4) return p.mean_keys > 0 && p.mean_keys <= 4096 ? 128 : 256;
  if (tiles > 0 && tiles < 32) return 512;
  if (hardware == Hardware::sm80) return tiles > 0 && tiles < 96 ? 512 : 1024;
  if (tiles < 64) return 1024;
  if (tiles < 96) return 2048;
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(p.mean_keys, 1024, 8192))));
}

/// The same for lists of keys, of which none is longer than topk. A multiple of a tile.
int listed_split_keys(const Problem& p) {
  constexpr int kTile = 64;
  const int64_t tiles = p.row_tiles, whole = (int64_t{p.topk} + kTile - 1) / kTile * kTile;
  const int64_t keys = tiles == 0 ? whole : tiles <= 4 ? 256 : tiles <= 16 ? 512 : tiles <= 64 ? 1024 : whole;
  return static_cast<int>(std::min(keys, whole));
}

std::string missing(const Problem& p) {
  const MaskSpec& m = p.mask;
  if (m.spans) return "spans";
  if (m.packed) return "packed masks";
  if (m.tree) return "tree masks";
  if (m.window_left >= 0 || m.window_right >= 0) return "windows";
  if (m.chunk > 0) return "chunks";
  if (p.other_scores) return "soft caps, ALiBi, sinks or scales of each head";
  return {};
}

template <class P>
KernelInfo info_of(int groups) {
  KernelInfo info;
  info.rows = groups * P::kGroupRows;
  info.tile_keys = P::kTileKeys;
  info.threads = P::threads(groups);
  info.shared_bytes = P::shared_bytes(groups);
  info.blocks_per_sm = blocks_within(kMaxSharedBytes, info.shared_bytes);
  return info;
}

template <int Record>
KernelInfo sm80_info(const Problem& p) {
  const int groups = p.group > 16 ? 2 : 1;
  if (p.ds_mla) return info_of<Sm80Policy<__nv_bfloat16, KvType::e4m3, Record, true>>(groups);
  return p.kv == KvType::same ? info_of<Sm80Policy<__half, KvType::same, Record>>(groups)
                              : info_of<Sm80Policy<__half, KvType::e4m3, Record>>(groups);
}

KernelInfo sm90_info() {
  KernelInfo info;
  info.rows = Sm90Policy::kRows;
  info.tile_keys = Sm90Policy::kTileKeys;
  info.threads = Sm90Policy::kThreads;
  info.shared_bytes = Sm90Policy::kSharedBytes;
  info.blocks_per_sm = 1;
  return info;
}

}  // namespace

Result<KernelInfo> select(const Problem& p, Hardware hardware, KernelKind kind) {
  const std::string kernels = hardware == Hardware::sm80 ? "the sm80 MLA kernels" : "the sm90 MLA kernels";
  if (p.q == QueryType::f32) return unsupported("queries are fp32; " + kernels + " take fp16 and bf16");
  const bool small = p.head_dim == kSmallD && p.v_head_dim == kSmallDv && hardware == Hardware::sm80;
  if (!small && (p.head_dim != kD || p.v_head_dim != kDv))
    return unsupported("absorbed head sizes are " + std::to_string(p.head_dim) + " and " +
                       std::to_string(p.v_head_dim) + "; " + kernels + " take 576 and 512" +
                       (hardware == Hardware::sm80 ? " or 288 and 256" : ""));
  if (p.kv_heads != 1)
    return unsupported("there are " + std::to_string(p.kv_heads) + " KV heads; " + kernels +
                       " take 1, which all query heads share");
  if (p.kv != KvType::same && (p.kv != KvType::e4m3 || (hardware == Hardware::sm90 && !p.ds_mla)))
    return unsupported("the latent cache has another type than the queries; " + kernels + " take theirs" +
                       (hardware == Hardware::sm80 ? " or fp8_e4m3" : ""));
  const bool lists = p.topk > 0;
  if (p.ds_mla && (p.q != QueryType::bf16 || small || !lists))
    return unsupported(
        "a cache of fp8_ds_mla; " + kernels +
        " read it with queries in bfloat16, absorbed head sizes of 576 and 512, and lists of keys");
  if (lists && p.kv != KvType::same && !p.ds_mla)
    return unsupported("a latent cache of fp8_e4m3 and rows that list their keys; " + kernels +
                       " take fp8_ds_mla or the queries' type");
  if (lists && hardware == Hardware::sm90 && p.q != QueryType::bf16)
    return unsupported("rows list their keys; " + kernels + " do so with queries in bfloat16");
  if (p.negative_scale && hardware == Hardware::sm90)
    return unsupported(kernels + " have no negative softmax scales");
  if (const std::string what = missing(p); !what.empty()) return unsupported(kernels + " have no " + what);
  KernelInfo info = hardware == Hardware::sm90 ? sm90_info()
                    : small                    ? sm80_info<kSmallD>(p)
                                               : sm80_info<kD>(p);
  info.kind = kind == KernelKind::extend_small ? KernelKind::extend : kind;
  info.q = p.q;
  info.kv = p.kv;
  info.head_dim = p.head_dim;
  info.v_head_dim = p.v_head_dim;
  info.split_keys = p.topk > 0 ? listed_split_keys(p) : split_keys(p, hardware);
  return info;
}

}  // namespace fovea::cuda::mla
