#pragma once
// The CPU kernels of flex_attention(), compiled for each instruction set (cpu_kernels-inl.h): a tile of up to
// kTileRows rows against blocks of kStrip keys, in fp32.
#include <cstddef>
#include <cstdint>

#include "flex/op.h"
#include "fovea/dtype.h"

namespace fovea::flex {

inline constexpr int kStrip = 128;  ///< lanes of a strip; keys of a block
inline constexpr size_t kStripBytes = size_t{kStrip} * 4;
inline constexpr int kTileRows = 64;  ///< (query row, query head) pairs of one KV head
inline constexpr int kPad = 64;       ///< floats; head sizes are rounded up to it in scratch memory

/// One operation of a tree on registers of a file, kStripBytes each. Booleans are 0 and 1 in int32.
struct StripOp {
  Op op;
  Type operand_type;  ///< of a; of b for select; of the elements for reads
  int to, a, b, c;
  int buffer;
};

struct CpuKernels {
  void (*run_strip)(const StripOp* ops, size_t count, const Buffer* buffers, std::byte* file);
  /// n elements widened to fp32, times `factor`. Returns whether all are finite.
  bool (*widen)(const void* from, DType type, int n, float factor, float* to);
  void (*narrow)(const float* from, DType type, int n, void* to);
  /// keys [kStrip, dp] -> [dp, kStrip], dp a multiple of kPad.
  void (*transpose)(const float* keys, int64_t dp, float* to);
  /// s [rows, kStrip] = scale * q [rows, dp] . keys [dp, kStrip]: one chain of fused multiply-adds over d.
  void (*scores)(const float* q, const float* keys, int d, int64_t dp, int rows, float scale, float* s);
  /// s = seen ? s : -inf for lanes below `count`, -inf from there on; `seen` null = all.
  void (*hide)(float* s, const int32_t* seen, int count);
  /// Scores [kStrip] of a row become weights e^(s - max); updates its max and lane sums [16]. Returns the
  /// factor that rescales earlier sums.
  float (*softmax)(float* s, float* max, float* sums);
  float (*total)(const float* sums);
  /// o [rows, dvp] = alpha[row] * o + p [rows, kStrip] . values [kStrip, dvp], keys in ascending order.
  void (*accumulate)(const float* p, const float* values, const float* alpha, int64_t dvp, int rows,
                     float* o);
};

extern const CpuKernels kCpuGeneric, kCpuAvx2, kCpuAvx512;
/// For current_isa().
const CpuKernels& cpu_kernels();

}  // namespace fovea::flex
