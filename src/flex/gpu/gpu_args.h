// The kernel's arguments: included by the host, and by NVRTC as text. No includes.
#ifndef FOVEA_FLEX_GPU_GPU_ARGS_H_
#define FOVEA_FLEX_GPU_GPU_ARGS_H_

namespace flex_gpu {

struct Buffer {
  const void* data;
  int rows, columns;
  long long stride;
};
/// Offsets in elements, lengths in rows and keys; `token`: its first row of the LSE.
struct Seq {
  long long q, out, k, v, token;
  int qlen, klen;
};
/// 64 rows of a sequence from `first` on.
struct Tile {
  int b, first;
};
/// Entries of Args::blocks.
struct Range {
  int begin, end;
};
struct Args {
  const void *q, *k, *v;
  void* out;
  float* lse;
  const Seq* seqs;
  const Tile* tiles;
  const Range* ranges;  ///< [tiles], or [tiles, heads] when heads_in_ranges
  const int* blocks;    ///< the first of 64 keys times 2, plus 1 where the mask is true everywhere
  const int* page_table;
  long long page_table_stride, k_page_stride, v_page_stride;
  long long q_row_stride, q_head_stride, out_row_stride, out_head_stride;
  long long k_row_stride, k_head_stride, v_row_stride, v_head_stride;
  int page_size, group, heads_in_ranges;
  float scale;
  Buffer buffers[16];
};

}  // namespace flex_gpu

#endif
