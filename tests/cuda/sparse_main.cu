// Device program of sparse MLA: `check` tests index keys, scores, choices and records against the CPU's (or
// one part of it: `rows`, `scores`, `choose`, `records`); `bench` prints times, `bench indexer` those of the
// indexer.
#include <functional>
#include <iterator>
#include <random>

#include "base/float8.h"
#include "device/cuda/cuda_stream.h"
#include "kernels/cache/ds_mla.h"
#include "kernels/cpu/indexer.h"
#include "kernels/cuda/append/append.h"
#include "kernels/cuda/index/index.h"
#include "kernels/cuda/mla/launch.h"
#include "kernels/cuda/mla/lists.h"
#include "kernels/cuda/mla/select.h"
#include "sm80_bench.cuh"

using namespace fovea;
using namespace fovea::cuda;

namespace {

int failures = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  if (++failures <= 40) std::printf("FAIL %s\n", what.c_str());
}

void ok(const Status& status) {
  if (status.ok()) return;
  std::printf("%s\n", status.error().message.c_str());
  std::exit(1);
}

std::vector<float> normal(size_t n, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0, scale);
  std::vector<float> out(n);
  constexpr size_t kOwn = 1 << 20;  // more repeat
  for (size_t i = 0; i < n; ++i)
    out[i] = i < kOwn ? values(random) : out[i - kOwn];
  return out;
}

std::vector<uint16_t> to_bf16(const std::vector<float>& x) {
  std::vector<uint16_t> out(x.size());
  std::ranges::transform(x, out.begin(), float_to_bf16);
  return out;
}

/// cos and sin [tokens, pairs] on the host and the device.
struct Rotation {
  std::vector<float> c, s;
  DeviceArray<float> cos, sin;
  Rotation(int tokens, int pairs) {
    for (int i = 0; i < tokens * pairs; ++i)
      c.push_back(std::cos(static_cast<float>(i % 97))), s.push_back(std::sin(static_cast<float>(i % 97)));
    cos = DeviceArray<float>(c), sin = DeviceArray<float>(s);
  }
  void apply(float* x, int token, int pairs, bool interleaved) const {
    for (int t = 0; t < pairs; ++t) {
      const int i = interleaved ? 2 * t : t, j = interleaved ? 2 * t + 1 : t + pairs;
      const float cs = c[token * pairs + t], sn = s[token * pairs + t], a = x[i], b = x[j];
      const float ac = a * cs, bs = b * sn, bc = b * cs, as = a * sn;
      x[i] = ac - bs, x[j] = bc + as;
    }
  }
};

constexpr int kDim = kIndexDim, kPairs = 32;

/// Codes, scales and weights of queries, and the bytes of a cache of index keys.
void check_rows(bool codes, bool interleaved, int heads) {
  constexpr int kTokens = 37, kPage = 64, kPages = 3;
  const std::string name = std::string("index rows, codes ") + (codes ? "1" : "0") + ", interleaved " +
                           (interleaved ? "1" : "0") + ", heads " + std::to_string(heads);
  std::vector<float> q = normal(static_cast<size_t>(kTokens) * heads * kDim, 1, 3),
                     key = normal(kTokens * kDim, 2), w = normal(kTokens * heads, 3);
  for (int i = 0; i < kDim; ++i)
    key[5 * kDim + i] = 0, key[6 * kDim + i] *= 1e-6f, key[7 * kDim + i] *= 1e6f, q[i] = 0;
  const std::vector<uint16_t> q16 = to_bf16(q), key16 = to_bf16(key), w16 = to_bf16(w);
  for (size_t i = 0; i < q.size(); ++i)
    q[i] = bf16_to_float(q16[i]);
  for (size_t i = 0; i < key.size(); ++i)
    key[i] = bf16_to_float(key16[i]);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = bf16_to_float(w16[i]);
  std::vector<int64_t> slots;
  for (int t = 0; t < kTokens; ++t)
    slots.push_back(t == 3 ? -1 : t == 4 ? kPage * kPages : (t * 5 + 40) % (kPage * kPages));
  const int64_t element = codes ? 1 : 2, page_bytes = kPage * (kDim * element + (codes ? 4 : 0));
  std::vector<uint8_t> want(static_cast<size_t>(page_bytes * kPages), 0xff);
  DeviceArray<uint8_t> cache(want), q_codes(std::vector<uint8_t>(q.size(), 0xff));
  DeviceArray<uint16_t> q_there(q16), key_there(key16), w_there(w16);
  DeviceArray<float> w_out(std::vector<float>(w.size(), NAN));
  DeviceArray<int64_t> slots_there(slots);
  const Rotation rotation(kTokens, kPairs);
  IndexRows p;
  p.tokens = kTokens, p.heads = heads;
  p.q = q_there.data, p.q_row_stride = heads * kDim;
  p.key = key_there.data, p.key_row_stride = kDim;
  p.weights = w_there.data, p.weights_row_stride = heads;
  p.scale = 0.0123f;
  p.cos = rotation.cos.data, p.sin = rotation.sin.data, p.pairs = kPairs, p.interleaved = interleaved;
  p.slots = slots_there.data, p.num_slots = kPage * kPages;
  KvView& kv = p.keys;
  kv.k = cache.data, kv.page_size = kPage;
  kv.dtype = codes ? KvCacheDType::fp8_e4m3 : KvCacheDType::bfloat16;
  kv.k_page_stride = page_bytes / element, kv.k_slot_stride = kDim;
  if (codes) {
    kv.k_scales = reinterpret_cast<const float*>(cache.data + kPage * kDim);
    kv.scale_page_stride = page_bytes / 4, kv.scale_slot_stride = 1;
    p.codes = q_codes.data;
  }
  p.weights_out = w_out.data;
  CudaStream stream = CudaStream::borrow(nullptr, 0);
  ok(launch_index_rows(p, stream));
  CUDA_CHECK(cudaDeviceSynchronize());
  const auto got_codes = q_codes.host();
  const auto got_q = q_there.host();
  const auto got_w = w_out.host();
  for (int t = 0; t < kTokens; ++t) {
    for (int h = 0; h < heads; ++h) {
      float* x = q.data() + (t * heads + h) * kDim;
      rotation.apply(x, t, kPairs, interleaved);
      float scale = p.scale;
      if (codes) {
        hadamard(x, kDim);
        scale *= round_to_index_codes(x, kDim);
      }
      const size_t at = static_cast<size_t>(t * heads + h);
      expect(got_w[at] == w[at] * scale, name + ": weight");
      for (int i = 0; i < kDim; ++i)
        expect(codes ? got_codes[at * kDim + i] == float_to_e4m3(x[i])
                     : got_q[at * kDim + i] == float_to_bf16(x[i]),
               name + ": query element");
    }
    if (slots[t] < 0 || slots[t] >= kPage * kPages) continue;
    float* x = key.data() + t * kDim;
    rotation.apply(x, t, kPairs, interleaved);
    uint8_t* page = want.data() + slots[t] / kPage * page_bytes;
    if (codes) {
      hadamard(x, kDim);
      const float scale = round_to_index_codes(x, kDim);
      std::memcpy(page + kPage * kDim + slots[t] % kPage * 4, &scale, 4);
    }
    for (int i = 0; i < kDim; ++i) {
      const uint16_t bits = codes ? float_to_e4m3(x[i]) : float_to_bf16(x[i]);
      std::memcpy(page + (slots[t] % kPage * kDim + i) * element, &bits, element);
    }
  }
  expect(cache.host() == want, name + ": bytes of the cache");
}

/// A step of sequences with pages in shuffled order, and index queries and keys.
struct IndexCase {
  std::vector<int32_t> offsets{0}, lens, table;
  int page, pages_of_seq, topk, heads;
  bool codes;
  std::vector<float> q, weights, keys;  ///< what the codes mean; keys [slot, dim], with scales
  DeviceArray<int32_t> d_offsets, d_lens, d_table;
  DeviceArray<uint8_t> d_q, cache;
  DeviceArray<float> d_weights;
  IndexQueries in;

  IndexCase(std::vector<std::pair<int, int>> seqs, int heads_, int topk_, bool codes_, int page_ = 64)
      : page(page_), topk(topk_), heads(heads_), codes(codes_) {
    int longest = 1;
    for (const auto& [n_q, n_k] : seqs)
      offsets.push_back(offsets.back() + n_q), lens.push_back(n_k), longest = std::max(longest, n_k);
    pages_of_seq = (longest + page - 1) / page;
    const int pages = pages_of_seq * static_cast<int>(seqs.size()), rows = offsets.back();
    table.resize(static_cast<size_t>(pages));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(7));
    weights = normal(static_cast<size_t>(rows) * heads, 11);
    q = normal(static_cast<size_t>(rows) * heads * kDim, 12, 8);
    keys = normal(static_cast<size_t>(pages) * page * kDim, 13, codes ? 20.0f : 1.0f);
    const size_t element = codes ? 1 : 2,
                 page_bytes = static_cast<size_t>(page) * (kDim * element + (codes ? 4 : 0));
    std::vector<uint8_t> q_bytes(q.size() * element), bytes(page_bytes * static_cast<size_t>(pages), 0xff);
    const auto store = [&](float& x, uint8_t* to) {
      const uint16_t bits = codes ? float_to_e4m3(x) : float_to_bf16(x);
      std::memcpy(to, &bits, element);
      x = codes ? e4m3_to_float(static_cast<uint8_t>(bits)) : bf16_to_float(bits);
    };
    for (size_t i = 0; i < q.size(); ++i)
      store(q[i], q_bytes.data() + i * element);
    // Slots past the end of a sequence hold NaN.
    for (size_t b = 0; b < seqs.size(); ++b)
      for (int j = 0; j < lens[b]; ++j) {
        const auto at = static_cast<size_t>(table[b * static_cast<size_t>(pages_of_seq) + j / page]);
        const float scale = std::ldexp(1.0f, j % 5 - 6);
        uint8_t* to = bytes.data() + at * page_bytes;
        for (int i = 0; i < kDim; ++i) {
          float& x = keys[(at * page + j % page) * kDim + i];
          store(x, to + (j % page * kDim + i) * element);
          if (codes) x *= scale;
        }
        if (codes) std::memcpy(to + page * kDim + j % page * 4, &scale, 4);
      }
    d_offsets = DeviceArray<int32_t>(offsets), d_lens = DeviceArray<int32_t>(lens);
    d_table = DeviceArray<int32_t>(table), d_q = DeviceArray<uint8_t>(q_bytes);
    cache = DeviceArray<uint8_t>(bytes), d_weights = DeviceArray<float>(weights);
    in.heads = heads, in.topk = topk;
    in.q = d_q.data, in.q_row_stride = heads * kDim, in.weights = d_weights.data;
    in.keys.k = cache.data, in.keys.page_size = page, in.keys.num_pages = pages;
    in.keys.dtype = codes ? KvCacheDType::fp8_e4m3 : KvCacheDType::bfloat16;
    in.keys.k_page_stride = static_cast<int64_t>(page_bytes / element), in.keys.k_slot_stride = kDim;
    if (codes) {
      in.keys.k_scales = reinterpret_cast<const float*>(cache.data + page * kDim);
      in.keys.scale_page_stride = static_cast<int64_t>(page_bytes / 4), in.keys.scale_slot_stride = 1;
    }
    in.batch.tokens = rows;
    in.batch.q_offsets = {d_offsets.data, offsets.size()}, in.batch.kv_lens = {d_lens.data, lens.size()};
    in.batch.page_table = {d_table.data, table.size()}, in.batch.page_table_stride = pages_of_seq;
    in.rows = rows, in.max_keys = longest + 7;
  }
  int row_keys(int b, int row) const { return lens[b] - (offsets[b + 1] - row) + 1; }
  double score(int b, int row, int key) const {
    const size_t slot =
        static_cast<size_t>(table[static_cast<size_t>(b) * pages_of_seq + key / page]) * page + key % page;
    double sum = 0;
    for (int h = 0; h < heads; ++h) {
      double dot = 0;
      for (int i = 0; i < kDim; ++i)
        dot += double{q[(static_cast<size_t>(row) * heads + h) * kDim + i]} * keys[slot * kDim + i];
      sum += weights[static_cast<size_t>(row) * heads + h] * std::max(0.0, dot);
    }
    return sum;
  }
  std::vector<float> scores(int first, int rows, int64_t stride) {
    DeviceArray<float> out(std::vector<float>(static_cast<size_t>(rows * stride), NAN));
    IndexQueries part = in;
    part.first = first, part.rows = rows;
    part.q = d_q.data + static_cast<size_t>(first) * heads * kDim * (codes ? 1 : 2);
    part.weights = d_weights.data + static_cast<size_t>(first) * heads;
    CudaStream stream = CudaStream::borrow(nullptr, 0);
    ok(launch_index_scores(part, out.data, stride, stream));
    CUDA_CHECK(cudaDeviceSynchronize());
    return out.host();
  }
};

bool is_hopper() {
  int major = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  return major == 9;
}

/// Hopper's products of codes are rounded coarsely where they are summed.
void check_scores(bool codes, int heads, bool before_hopper, std::vector<std::pair<int, int>> seqs,
                  int page = 64) {
  const bool wgmma = codes && !before_hopper && is_hopper();
  const std::string name = "scores, codes " + std::to_string(codes) + ", heads " + std::to_string(heads) +
                           (wgmma ? ", wgmma" : "");
  IndexCase c(std::move(seqs), heads, 16, codes, page);
  c.in.before_hopper = before_hopper;
  const int64_t stride = c.in.max_keys + 9;
  const std::vector<float> all = c.scores(0, c.in.rows, stride);
  double worst = 0;
  for (size_t b = 0; b < c.lens.size(); ++b)
    for (int row = c.offsets[b]; row < c.offsets[b + 1]; ++row) {
      const int n = c.row_keys(static_cast<int>(b), row);
      for (int64_t j = 0; j < stride; ++j) {
        const float got = all[static_cast<size_t>(row * stride + j)];
        if (j >= n || n <= c.topk) {
          expect(std::isnan(got), name + ": written beyond the row's keys");
        } else if (j % 17 == row % 17 || j + 3 > n) {
          const double want = c.score(static_cast<int>(b), row, static_cast<int>(j));
          double size = 0;
          for (int h = 0; h < heads; ++h)
            size += std::abs(c.weights[static_cast<size_t>(row * heads + h)]);
          const double error = std::abs(got - want) / (size * 8 * (codes ? 6 : 1) * 11);
          worst = std::isnan(got) ? INFINITY : std::max(worst, error);
        }
      }
    }
  expect(worst < (wgmma ? 1e-3 : 2e-6), name + ": error " + std::to_string(worst));
  std::printf("%s: worst %.2g\n", name.c_str(), worst);
  // Alone, and with other rows beside it.
  for (const auto& [first, rows] : {std::pair{0, 1}, {3, 2}, {c.in.rows - 5, 5}, {1, 9}}) {
    const std::vector<float> part = c.scores(first, rows, stride);
    expect(std::memcmp(part.data(), all.data() + first * stride, part.size() * 4) == 0,
           name + ": differ with the rows of a pass");
  }
}

/// The rows of one sequence, and of as many sequences with the same pages, of a row each: CTAs have other
/// rows and products then, and the same sums.
void check_rows_of_blocks(bool codes, int heads) {
  constexpr int kRows = 8, kKeys = 700;
  IndexCase c({{kRows, kKeys}}, heads, 16, codes);
  const int64_t stride = c.in.max_keys + 5;
  const std::vector<float> together = c.scores(0, kRows, stride);
  std::vector<int32_t> offsets(kRows + 1), lens(kRows);
  std::iota(offsets.begin(), offsets.end(), 0);
  std::iota(lens.begin(), lens.end(), kKeys - kRows + 1);
  const DeviceArray<int32_t> there(offsets), lens_there(lens);
  c.in.batch.q_offsets = {there.data, offsets.size()}, c.in.batch.kv_lens = {lens_there.data, lens.size()};
  c.in.batch.page_table_stride = 0;
  const std::vector<float> apart = c.scores(0, kRows, stride);
  expect(std::memcmp(apart.data(), together.data(), together.size() * sizeof(float)) == 0,
         "scores, codes " + std::to_string(codes) + ", heads " + std::to_string(heads) +
             ": differ with the rows of a sequence");
}

void check_choose(int n, int topk, int kind) {
  const std::string name =
      "choose " + std::to_string(topk) + " of " + std::to_string(n) + ", kind " + std::to_string(kind);
  constexpr int kRows = 3;
  std::mt19937 random(static_cast<uint32_t>(n + kind));
  const int64_t stride = kind % 2 == 0 ? (n + 3) / 4 * 4 : n + 3;
  std::vector<float> scores(static_cast<size_t>(kRows * stride), NAN);
  // The keys that a sample of a row takes: kind 5 hides larger ones from it, kind 6 smaller ones.
  std::vector<bool> sampled(static_cast<size_t>(n));
  const int groups = n < 65536 ? 512 : 1536;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = g * n / groups / 4 * 4; i < std::min<int64_t>(n, g * n / groups / 4 * 4 + 4); ++i)
      sampled[static_cast<size_t>(i)] = true;
  for (int r = 0; r < kRows; ++r) {
    std::vector<float> row = normal(static_cast<size_t>(n), static_cast<uint32_t>(r + kind));
    for (int i = 0; i < n; ++i) {
      float& x = row[static_cast<size_t>(i)];
      if (kind == 1) x = std::max(0.0f, x - 2);             // mostly zeros
      if (kind == 2) x = 5;                                 // all equal
      if (kind == 3) x = static_cast<float>(random() % 7);  // few values
      if (kind == 4) {
        const uint32_t bits = static_cast<uint32_t>(random());  // any bits, NaN and infinity too
        std::memcpy(&x, &bits, 4);
        if (x == 0) x = 0;
      }
      if (kind == 5 || kind == 6) x = std::abs(x) * (sampled[static_cast<size_t>(i)] == (kind == 6) ? 1 : -1);
      if (kind == 7) x = static_cast<float>(i) - 0.5f * static_cast<float>(n);
      if (kind == 8) x = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : -INFINITY;
      if (kind == 9) x = std::max(0.0f, x);  // half of them zeros
      scores[static_cast<size_t>(r * stride + i)] = x;
    }
  }
  const std::vector<int32_t> offsets = {0, 1, 3}, lens = {n, n};
  DeviceArray<int32_t> d_offsets(offsets), d_lens(lens),
      chosen(std::vector<int32_t>(static_cast<size_t>(kRows * topk), -7));
  DeviceArray<float> there(scores);
  IndexQueries q;
  q.topk = topk, q.rows = kRows, q.max_keys = n;
  q.batch.tokens = kRows;
  q.batch.q_offsets = {d_offsets.data, 3}, q.batch.kv_lens = {d_lens.data, 2};
  CudaStream stream = CudaStream::borrow(nullptr, 0);
  ok(launch_choose_largest(q, there.data, stride, chosen.data, stream));
  CUDA_CHECK(cudaDeviceSynchronize());
  const auto got = chosen.host();
  for (int r = 0; r < kRows; ++r) {
    std::vector<int32_t> want(static_cast<size_t>(topk));
    choose_largest(scores.data() + r * stride, r == 1 ? n - 1 : n, topk, want.data());
    expect(std::equal(want.begin(), want.end(), got.begin() + r * topk), name + ", row " + std::to_string(r));
  }
}

/// Records of fp8_ds_mla, bit for bit, with an identity in place of the norm.
void check_records() {
  constexpr int kRank = 512, kRope = 64, kTokens = 9, kHeads = 2, kPage = 64, kPages = 2;
  const int64_t bytes = ds_mla_bytes(kRank, kRope);
  std::vector<float> x = normal(kTokens * (kRank + kRope), 4);
  for (int i = 0; i < 128; ++i)
    x[i] = 0, x[kRank + kRope + i] *= 1e-9f, x[2 * (kRank + kRope) + 128 + i] *= 1e4f;
  DeviceArray<float> record(x), q(normal(kTokens * kHeads * kRope, 5)),
      q_out(std::vector<float>(kTokens * kHeads * kRope, NAN)), weight(std::vector<float>(kRank, 1.0f));
  std::vector<int64_t> slots = {3, 4, 70, -1, 127, 0, 64, 128, 9};
  DeviceArray<int64_t> d_slots(slots);
  DeviceArray<uint8_t> cache(std::vector<uint8_t>(static_cast<size_t>(bytes * kPage * kPages), 0xff)),
      plain(std::vector<uint8_t>(static_cast<size_t>(kPage * kPages * (kRank + kRope) * 4), 0xff));
  const Rotation rotation(kTokens, kRope / 2);
  LatentAppendParams p;
  p.tokens = kTokens, p.heads = kHeads, p.rank = kRank, p.rope = kRope, p.dtype = DType::f32;
  p.q = q.data, p.q_row_stride = kHeads * kRope, p.q_head_stride = kRope;
  p.q_out = q_out.data, p.q_out_row_stride = kHeads * kRope, p.q_out_head_stride = kRope;
  p.record = record.data, p.record_row_stride = kRank + kRope;
  p.norm = {weight.data, 1e-6f};
  p.cos = rotation.cos.data, p.sin = rotation.sin.data, p.interleaved = true;
  p.slots = d_slots.data, p.num_slots = kPage * kPages;
  CudaStream stream = CudaStream::borrow(nullptr, 0);
  const auto append = [&](DeviceArray<uint8_t>& to, KvCacheDType dtype, int64_t record_stride) {
    p.kv = {};
    p.kv.k = p.kv.v = to.data, p.kv.dtype = dtype, p.kv.page_size = kPage, p.kv.num_pages = kPages;
    p.kv.k_slot_stride = record_stride, p.kv.k_page_stride = record_stride * kPage;
    ok(launch_latent_append(p, stream));
    CUDA_CHECK(cudaDeviceSynchronize());
    return to.host();
  };
  const auto got = append(cache, KvCacheDType::fp8_ds_mla, bytes);
  const auto floats = append(plain, KvCacheDType::float32, kRank + kRope);
  std::vector<uint8_t> want(got.size(), 0xff);
  for (const int64_t slot : slots) {
    if (slot < 0 || slot >= kPage * kPages) continue;
    std::vector<float> row(kRank + kRope);
    std::memcpy(row.data(), floats.data() + slot * (kRank + kRope) * 4, row.size() * 4);
    store_ds_mla(row.data(), kRank, kRope, reinterpret_cast<std::byte*>(want.data()) + slot * bytes);
  }
  expect(got == want, "records of fp8_ds_mla");
}

__global__ void repeat_records(const uint32_t* from, uint32_t* to, size_t words, size_t total) {
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < total; i += stride)
    to[i] = from[i % words];
}

/// Fills a pool with records of fp8_ds_mla.
void fill_records(Pool& pool) {
  constexpr int kRecords = 997, kBytes = 656;
  const std::vector<float> x = normal(static_cast<size_t>(kRecords) * 576, 21);
  std::vector<uint32_t> host(kRecords * kBytes / 4);
  for (int i = 0; i < kRecords; ++i)
    store_ds_mla(x.data() + i * 576, 512, 64, reinterpret_cast<std::byte*>(host.data()) + i * kBytes);
  const DeviceArray<uint32_t> there(host);
  repeat_records<<<2048, 256>>>(there.data, pool.memory.data, host.size(), pool.memory.count);
  CUDA_CHECK(cudaDeviceSynchronize());
}

/// Decode of `batch` tokens that list `topk` of their `keys` keys; or prefill, where all are of one sequence.
void bench_attention(mla::Hardware hardware, int heads, int batch, int keys, int topk, bool ds_mla,
                     Pool& pool, std::vector<uint16_t>& result, bool prefill = false) {
  const bool hopper = hardware == mla::Hardware::sm90;
  mla::Problem problem;
  problem.kv = ds_mla ? KvType::e4m3 : KvType::same;
  problem.head_dim = 576, problem.v_head_dim = 512, problem.group = heads;
  problem.topk = topk, problem.ds_mla = ds_mla;
  problem.row_tiles = int64_t{batch} * ((heads + 63) / 64);
  const auto kernel = mla::select(problem, hardware, KernelKind::decode);
  if (!kernel.ok()) {
    std::printf("%s\n", kernel.error().message.c_str());
    std::exit(1);
  }
  constexpr int kPage = 64;
  const int64_t record = ds_mla ? 656 : 1152;
  const int pages_of_seq = (keys + kPage - 1) / kPage, pages = pages_of_seq * (prefill ? 1 : batch);
  std::vector<int32_t> table(static_cast<size_t>(pages)), chosen;
  std::iota(table.begin(), table.end(), 0);
  std::shuffle(table.begin(), table.end(), std::mt19937(3));
  std::mt19937 random(9);
  std::vector<int32_t> all(static_cast<size_t>(keys)), list;
  std::iota(all.begin(), all.end(), 0);
  std::vector<WorkItem> tokens;
  for (int b = 0; b < batch; ++b) {
    list.clear();
    std::ranges::sample(all, std::back_inserter(list), topk, random);
    list.resize(static_cast<size_t>(topk), -1);
    chosen.insert(chosen.end(), list.begin(), list.end());
    WorkItem w{};
    w.seq = b, w.q_first = b, w.n_q = 1, w.n_k = keys, w.pages = int64_t{b} * pages_of_seq;
    if (prefill) w.seq = 0, w.q_first = 0, w.row_first = b, w.n_q = batch, w.pages = 0;
    tokens.push_back(w);
  }
  mla::SparseLists lists;
  lists.topk = lists.chosen_row_stride = topk;
  lists.heads = heads, lists.tile_rows = kernel->rows, lists.split_keys = kernel->split_keys;
  lists.splits = (topk + kernel->split_keys - 1) / kernel->split_keys, lists.max_split_tokens = 16;
  const int items = batch * lists.tiles() * lists.splits;
  DeviceArray<int32_t> d_table(table), d_chosen(chosen), count(std::vector<int32_t>{batch}),
      slots(static_cast<size_t>(batch) * topk), num_items(1);
  DeviceArray<WorkItem> d_tokens(tokens), d_items(static_cast<size_t>(items));
  const size_t parts =
      static_cast<size_t>(prefill ? 1 : batch) * 16 * lists.tiles() * lists.splits * kernel->rows;
  DeviceArray<float> partial_out(lists.splits > 1 ? parts * 512 : 1);
  DeviceArray<PartialState> partial_state(lists.splits > 1 ? parts : 1);
  DeviceArray<uint32_t> q(static_cast<size_t>(batch) * heads * 576 / 2);
  fill_normal<<<256, 256>>>(q.data, q.count, 5, 0);
  DeviceArray<uint16_t> out(static_cast<size_t>(batch) * heads * 512);
  lists.chosen = d_chosen.data, lists.tokens = d_tokens.data, lists.num_tokens = count.data;
  lists.pages = d_table.data, lists.page_size = FastDivisor(kPage), lists.page_units = kPage;
  lists.slots = slots.data, lists.items = d_items.data, lists.num_items = num_items.data;
  AttentionParams a;
  a.q = q.data, a.out = out.data;
  a.q_rows.row_stride = int64_t{heads} * 576, a.q_rows.head_stride = 576;
  a.out_rows.row_stride = int64_t{heads} * 512, a.out_rows.head_stride = 512;
  a.num_kv_heads = 1, a.group = FastDivisor(static_cast<uint32_t>(heads)), a.kv_heads = FastDivisor(1);
  a.head_dim = 576, a.v_head_dim = 512, a.scale = 1.0f / std::sqrt(192.0f);
  a.mask.causal = false;
  a.kv.k = a.kv.v = reinterpret_cast<const char*>(pool.memory.data);
  a.kv.k_page_stride = a.kv.k_slot_stride = record, a.kv.page_size = FastDivisor(1), a.kv.pages = slots.data;
  a.items = d_items.data, a.num_items = num_items.data, a.partial_rows = kernel->rows;
  if (lists.splits > 1) a.partial_out = partial_out.data, a.partial_state = partial_state.data;
  const double lists_us =
      graph_time(4, [&](int, cudaStream_t stream) { ok(mla::launch_lists(lists, batch, stream)); });
  const double us = graph_time(4, [&](int, cudaStream_t stream) {
    ok(mla::launch_lists(lists, batch, stream));
    ok((hopper ? mla::launch_sparse_sm90 : mla::launch_sparse_sm80)(*kernel, a, items, stream, nullptr));
  });
  const std::vector<uint16_t> got = out.host();
  if (hopper && !prefill) {
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double x = bf16_to_float(got[i]), y = bf16_to_float(result[i]);
      worst = std::isfinite(x) ? std::max(worst, std::abs(x - y)) : INFINITY;
    }
    std::printf("differs from sm80's by %.3g\n", worst);
  }
  result = got;
  const double flops = 2.0 * batch * heads * (576 + 512) * topk;
  std::printf(
      "%s sparse %s %s H%d B%d top-k %d of %d, split %d: %.1f us (lists %.1f), %.1f TFLOP/s, of 800: "
      "%.3f\n",
      hopper ? "sm90" : "sm80", prefill ? "prefill" : "decode", ds_mla ? "fp8_ds_mla" : "bf16", heads, batch,
      topk, keys, kernel->split_keys, us, lists_us, flops / us * 1e-6, flops / us * 1e-6 / 800);
  std::fflush(stdout);
}

void bench_indexer(int rows, int keys, int seqs, int heads, bool codes, bool before_hopper = false) {
  std::vector<std::pair<int, int>> all(static_cast<size_t>(seqs), {rows / seqs, keys});
  IndexCase c(all, heads, 2048, codes);
  c.in.before_hopper = before_hopper;
  const int64_t stride = (c.in.max_keys + 3) / 4 * 4, pass = index_pass_rows(rows, stride);  // as the engine
  DeviceArray<float> scores(static_cast<size_t>(pass * stride));
  DeviceArray<int32_t> chosen(static_cast<size_t>(rows) * 2048);
  const auto time = [&](bool score, bool choose) {
    return graph_time(2, [&](int, cudaStream_t handle) {
      CudaStream stream = CudaStream::borrow(handle, 0);
      for (int64_t first = 0; first < rows; first += pass) {
        IndexQueries q = c.in;
        q.first = static_cast<int>(first), q.rows = static_cast<int>(std::min<int64_t>(pass, rows - first));
        q.q = c.d_q.data + static_cast<size_t>(first) * heads * kDim * (codes ? 1 : 2);
        q.weights = c.d_weights.data + static_cast<size_t>(first) * heads;
        if (score) ok(launch_index_scores(q, scores.data, stride, stream));
        if (choose) ok(launch_choose_largest(q, scores.data, stride, chosen.data + first * 2048, stream));
      }
    });
  };
  const double score_us = time(true, false), choose_us = time(false, true);
  double products = 0;
  for (int i = 0; i < rows / seqs; ++i)
    products += static_cast<double>(seqs) * (keys - i) * heads * kDim * 2;
  const double read_us = graph_time(2, [&](int, cudaStream_t handle) {
    for (int64_t first = 0; first < rows; first += pass)
      read_bytes<<<sm_count() * 4, 512, 0, handle>>>(
          reinterpret_cast<const uint4*>(scores.data),
          static_cast<size_t>(std::min<int64_t>(pass, rows - first) * stride / 4),
          reinterpret_cast<uint32_t*>(chosen.data));
  });
  std::printf(
      "indexer %s H%d, %d rows of %d sequences over %d keys: scores %.1f us, %.1f TFLOP/s; top-k %.1f us, "
      "read "
      "of the scores %.1f us: %.2f reads\n",
      !codes          ? "bf16"
      : before_hopper ? "codes by mma.sync"
                      : "codes",
      heads, rows, seqs, keys, score_us, products / score_us * 1e-6, choose_us, read_us, choose_us / read_us);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device\n");
    return 77;  // skipped
  }
  const std::string what = argc > 1 ? argv[1] : "check";
  const auto runs = [&](const char* part) { return what == "check" || what == part; };
  if (runs("rows"))
    for (const bool codes : {true, false})
      for (const bool interleaved : {true, false})
        check_rows(codes, interleaved, interleaved ? 4 : 64);
  if (runs("scores"))
    for (const bool codes : {true, false})
      for (const int heads : {3, 4, 32, 64})
        for (const bool before_hopper : {true, false})
          if (codes || before_hopper)
            check_scores(codes, heads, before_hopper,
                         {{1, 300}, {7, 700}, {33, 40}, {1, 10}, {2, 1025}, {20, 20}, {1, 256}},
                         heads == 3 ? 16 : 64);
  if (runs("scores"))
    for (const bool codes : {true, false})
      for (const int heads : {4, 32, 33, 64})
        check_rows_of_blocks(codes, heads);
  if (runs("choose"))
    for (int kind = 0; kind < 10; ++kind)
      for (const auto& [n, topk] : {std::pair{1, 4},
                                    {17, 16},
                                    {16, 16},
                                    {100, 1},
                                    {2049, 2048},
                                    {5000, 2048},
                                    {7001, 4000},
                                    {8192, 2048},
                                    {20480, 512},
                                    {20481, 2048},
                                    {49152, 2048},
                                    {49153, 2048},
                                    {200000, 2048}})
        check_choose(n, topk, kind);
  if (runs("records")) check_records();
  if (what == "bench") {
    const bool attention = argc <= 2 || std::string(argv[2]) != "indexer";
    Pool pool(size_t{5} << 30, 0);
    struct Shape {
      int heads, batch, keys;
    };
    for (const bool ds_mla : {false, true}) {
      if (!attention) break;
      if (ds_mla) fill_records(pool);
      for (const Shape& x : {Shape{128, 128, 8192}, {64, 128, 8192}, {16, 128, 8192}, {128, 1, 65536}}) {
        std::vector<uint16_t> result;
        for (const auto hardware : {mla::Hardware::sm80, mla::Hardware::sm90})
          bench_attention(hardware, x.heads, x.batch, x.keys, 2048, ds_mla, pool, result);
      }
      std::vector<uint16_t> result;
      bench_attention(mla::Hardware::sm90, 128, 4096, 32768, 2048, ds_mla, pool, result, true);
    }
    bench_indexer(128, 8192, 128, 64, true);
    bench_indexer(1, 65536, 1, 64, true);
    bench_indexer(4096, 32768, 1, 64, true);
    bench_indexer(4096, 32768, 1, 64, true, true);
    bench_indexer(4096, 32768, 1, 64, false);
    return 0;
  }
  std::printf("%s %s: %d failures\n", failures == 0 ? "PASS" : "FAIL", what.c_str(), failures);
  return failures == 0 ? 0 : 1;
}
