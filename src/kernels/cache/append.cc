#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/float16.h"
#include "fovea/result.h"
#include "kernels/cache/cache_rows.h"
#include "kernels/cache/kv_writer.h"
#include "kernels/cpu/for_rows.h"
#include "kernels/cpu/ops.h"

namespace fovea {
namespace {

std::string str(int64_t x) {
  return std::to_string(x);
}

/// Where a token is stored.
struct Place {
  int64_t slot = -1;        // below 0 = nowhere
  int64_t position = 0;     // its row of the rotary tables
  bool unassigned = false;  // no sequence has it
};

Status place_in_sequences(const AppendParams& p, std::vector<Place>& places) {
  const SequenceRows& s = p.sequences;
  const int64_t page_size = p.kv.page_size;
  int64_t end = 0;
  for (int b = 0; b < s.seqs; ++b) {
    const int64_t first = s.q_offsets[b];
    if (first != end)
      return invalid("append: q_offsets[" + str(b) + "] is " + str(first) + "; it must be " + str(end));
    end = s.q_offsets[b + 1];
    if (end < first || end > p.tokens)
      return invalid("append: q_offsets[" + str(b + 1) + "] is " + str(end) + "; it must be " + str(first) +
                     " to " + str(p.tokens));
    const int64_t n_k = s.kv_lens[b];
    if (n_k < end - first || n_k > s.columns * page_size)
      return invalid("append: kv_lens[" + str(b) + "] is " + str(n_k) + "; it must be from " +
                     str(end - first) + ", its new tokens, to " + str(s.columns * page_size) +
                     ", what a row of the page table holds");
    for (int64_t t = first; t < end; ++t) {
      Place& place = places[static_cast<size_t>(t)];
      place.unassigned = false;
      place.position = n_k - (end - t);
      if (p.k == nullptr) continue;
      const int64_t column = place.position / page_size;
      const int64_t page = s.page_table[b * s.page_table_stride + column];
      if (page < 0 || page >= p.num_slots / page_size)
        return invalid("append: page_table[" + str(b) + ", " + str(column) + "] is " + str(page) +
                       "; the cache has " + str(p.num_slots / page_size) + " pages");
      place.slot = page * page_size + place.position % page_size;
    }
  }
  return {};
}

Result<std::vector<Place>> place_rows(const AppendParams& p) {
  const bool in_sequences = p.sequences.q_offsets.data != nullptr;
  std::vector<Place> places(static_cast<size_t>(p.tokens));
  for (int64_t t = 0; t < p.tokens; ++t)
    places[static_cast<size_t>(t)] = {-1, t, in_sequences};
  if (in_sequences) FOVEA_RETURN_IF_ERROR(place_in_sequences(p, places));
  for (int64_t t = 0; t < p.tokens; ++t) {
    Place& place = places[static_cast<size_t>(t)];
    if (place.unassigned) continue;
    if (p.slots.data != nullptr) place.slot = p.slots[t];
    if (p.k != nullptr && place.slot >= p.num_slots)
      return invalid("append: slots[" + str(t) + "] is " + str(place.slot) + "; the cache has " +
                     str(p.num_slots));
    if (p.rope.dim == 0) continue;
    if (p.rope.positions.data != nullptr) place.position = p.rope.positions[t];
    if (place.position < 0 || place.position >= p.rope.rows)
      return invalid("append: the position of token " + str(t) + " is " + str(place.position) +
                     "; cos and sin have " + str(p.rope.rows) + " rows");
  }
  return places;
}

void load(const void* data, DType dtype, int64_t at, int n, float* row) {
  if (dtype == DType::f32) {
    std::memcpy(row, static_cast<const float*>(data) + at, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  const uint16_t* in = static_cast<const uint16_t*>(data) + at;
  for (int i = 0; i < n; ++i)
    row[i] = dtype == DType::f16 ? fp16_to_float(in[i]) : bf16_to_float(in[i]);
}

void store(void* data, DType dtype, int64_t at, int n, const float* row) {
  if (dtype == DType::f32) {
    std::memcpy(static_cast<float*>(data) + at, row, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  uint16_t* out = static_cast<uint16_t*>(data) + at;
  for (int i = 0; i < n; ++i)
    out[i] = dtype == DType::f16 ? float_to_fp16(row[i]) : float_to_bf16(row[i]);
}

/// One head at a time: a row of kMaxRowElements is below kSharedElements, so it stays on its thread.
void norm_and_rotate(const AppendParams& p, const HeadNorm& norm, int64_t position, float* row,
                     ThreadPool& pool) {
  static_assert(kMaxRowElements < kSharedElements);
  const int d = p.head_dim;
  if (norm.weight != nullptr) rms_norm(row, d, norm.weight, norm.eps, row, d, 1, d, pool);
  if (p.rope.dim == 0) return;
  const int32_t first = 0;  // of the tables from the position's row on
  const int64_t at = position * (p.rope.dim / 2);
  (p.rope.interleaved ? rope_interleaved : rope_neox)(row, d, 1, d, p.rope.dim, std::span(&first, 1),
                                                      p.rope.cos + at, p.rope.sin + at, pool);
}

void append_row(const AppendParams& p, const KvWriter& writer, int64_t t, const Place& place,
                ThreadPool& pool) {
  if (place.unassigned) return;
  alignas(64) float row[kMaxRowElements];
  const int d = p.head_dim, dv = p.v_head_dim;
  if (p.q != nullptr)
    for (int h = 0; h < p.num_heads; ++h) {
      load(p.q, p.dtype, t * p.q_row_stride + int64_t{h} * d, d, row);
      norm_and_rotate(p, p.q_norm, place.position, row, pool);
      store(p.q_out, p.dtype, t * p.q_out_row_stride + int64_t{h} * d, d, row);
    }
  if (p.k == nullptr || place.slot < 0) return;
  for (int h = 0; h < p.num_kv_heads; ++h) {
    load(p.k, p.dtype, t * p.k_row_stride + int64_t{h} * d, d, row);
    norm_and_rotate(p, p.k_norm, place.position, row, pool);
    writer.k(place.slot, h, row);
    load(p.v, p.dtype, t * p.v_row_stride + int64_t{h} * dv, dv, row);
    writer.v(place.slot, h, row);
  }
}

}  // namespace

Status check_append(const AppendParams& p) {
  const bool kv = p.k != nullptr, placed = p.sequences.q_offsets.data != nullptr;
  if (p.tokens < 0 || (p.q != nullptr && p.num_heads < 1) ||
      (kv && (p.num_kv_heads < 1 || p.v_head_dim < 1)) || p.head_dim < 1)
    return invalid("append: " + str(p.tokens) + " tokens, " + str(p.num_heads) + " query and " +
                   str(p.num_kv_heads) + " KV heads of " + str(p.head_dim) + "/" + str(p.v_head_dim) +
                   " are given; sizes must be positive");
  if (p.head_dim > kMaxRowElements || (kv && p.v_head_dim > kMaxRowElements))
    return unsupported("append: head sizes " + str(p.head_dim) + "/" + str(p.v_head_dim) + " exceed " +
                       str(kMaxRowElements));
  if (placed &&
      (p.slots.data != nullptr || p.sequences.kv_lens.data == nullptr ||
       (kv && p.sequences.page_table.data == nullptr) || p.sequences.seqs < 0 || p.kv.page_size < 1))
    return invalid("append: rows are placed by slots, or by q_offsets with kv_lens and a page table");
  if (kv != (p.v != nullptr) ||
      (kv && ((p.slots.data == nullptr && !placed) || p.kv.k == nullptr || p.kv.v == nullptr)))
    return invalid("append: K needs V, slots and a cache to write to");
  if (p.q != nullptr && p.q_out == nullptr) return invalid("append: Q is given without q_out");
  if (p.rope.dim < 0 || p.rope.dim % 2 != 0 || p.rope.dim > p.head_dim)
    return invalid("append: rotary dim " + str(p.rope.dim) + " must be even and at most the head size " +
                   str(p.head_dim));
  if (p.rope.dim > 0 && (p.rope.cos == nullptr || p.rope.sin == nullptr))
    return invalid("append: a rotation needs cos and sin");
  if (!kv) return {};
  if (size_of(p.kv.dtype) == 0 || p.kv.dtype == KvCacheDType::fp8_ds_mla)
    return unsupported("append: KV cache dtype " + std::string(to_string(p.kv.dtype)) + " can't be stored");
  if (has_token_scales(p.kv.dtype) != (p.kv.k_scales != nullptr) ||
      has_token_scales(p.kv.dtype) != (p.kv.v_scales != nullptr))
    return invalid("append: KV cache dtype " + std::string(to_string(p.kv.dtype)) +
                   (has_token_scales(p.kv.dtype) ? " needs" : " takes no") + " scales for each token");
  if (p.kv.form == KvForm::x_packed && p.head_dim % x_of(p.kv.dtype) != 0)
    return unsupported("append: x_packed needs a head size that is a multiple of " + str(x_of(p.kv.dtype)) +
                       ", not " + str(p.head_dim));
  if (p.kv.v_chunk_stride != 0 && p.kv.page_size % x_of(p.kv.dtype) != 0)
    return unsupported("append: the shuffle layout needs a page size that is a multiple of " +
                       str(x_of(p.kv.dtype)) + ", not " + str(p.kv.page_size));
  return {};
}

Status append_rows(const AppendParams& p, ThreadPool& pool) {
  FOVEA_RETURN_IF_ERROR(check_append(p));
  if (p.tokens == 0) return {};
  FOVEA_TRY(places, place_rows(p));
  const KvWriter writer(p.kv, p.head_dim, p.v_head_dim);
  const int64_t heads =
      (p.q == nullptr ? 0 : p.num_heads) + (p.k == nullptr ? 0 : 2 * int64_t{p.num_kv_heads});
  for_rows(p.tokens, p.tokens * heads * std::max(p.head_dim, p.v_head_dim), pool,
           [&](int64_t t) { append_row(p, writer, t, places[static_cast<size_t>(t)], pool); });
  return {};
}

}  // namespace fovea
