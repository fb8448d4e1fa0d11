// Appending heads that lanes can hold in registers: a CTA takes one token, or a part of its heads, whose
// place and rotation are found once; 8, 16 or 32 lanes take a head. Included by append.cu alone, after what
// it uses.

struct LaneHead {
  float x[2][4] = {};
};

template <class T>
struct alignas(4 * sizeof(T)) RawFour {
  T x[4];
};

/// The lanes of one head, a power of two: a part of a warp.
struct HeadLanes {
  int count, lane;

  __device__ float sum(float x) const {
    for (int step = count / 2; step > 0; step /= 2)
      x += __shfl_xor_sync(kAll, x, step);
    return x;
  }
  __device__ float max(float x) const {
    for (int step = count / 2; step > 0; step /= 2)
      x = fmaxf(x, __shfl_xor_sync(kAll, x, step));
    return x;
  }
};

__device__ float lane_squares(const LaneHead& head) {
  float sum = 0.0f;
#pragma unroll
  for (int r = 0; r < 2; ++r)
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sum = fmaf(head.x[r][j], head.x[r][j], sum);
  return sum;
}

/// Four rotated pairs of a lane; products and sums are each rounded, as in rotate_row().
struct LaneRotation {
  bool active = false, interleaved = false;
  float c[4], s[4];

  /// `exists`: the table has a row for the position.
  __device__ LaneRotation(const RopeParams& rope, int64_t position, bool exists, int lane)
      : active(exists && 4 * lane < rope.dim / 2), interleaved(rope.interleaved) {
    if (!active) return;
    const int64_t at = position * (rope.dim / 2) + 4 * lane;
    const float4 cos = *reinterpret_cast<const float4*>(rope.cos + at);
    const float4 sin = *reinterpret_cast<const float4*>(rope.sin + at);
    c[0] = cos.x, c[1] = cos.y, c[2] = cos.z, c[3] = cos.w;
    s[0] = sin.x, s[1] = sin.y, s[2] = sin.z, s[3] = sin.w;
  }
  __device__ void apply(LaneHead& head) const {
    if (!active) return;
    const auto rotate = [](float& a, float& b, float cos, float sin) {
      const float first = a, second = b;
      a = __fsub_rn(__fmul_rn(first, cos), __fmul_rn(second, sin));
      b = __fadd_rn(__fmul_rn(second, cos), __fmul_rn(first, sin));
    };
    if (interleaved) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        rotate(head.x[i / 2][i % 2 * 2], head.x[i / 2][i % 2 * 2 + 1], c[i], s[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        rotate(head.x[0][i], head.x[1][i], c[i], s[i]);
    }
  }
};

/// Writes a lane's runs of a K or V head; by the lanes of a warp together.
template <KvCacheDType kCache>
__device__ void store_head(void* data, float* scales, const RowPlace& place, float scale, bool active,
                           const int (&at)[2], const LaneHead& head, const HeadLanes& lanes) {
  if constexpr (kCache == KvCacheDType::int8_per_token_head) {
    float most = 0.0f;
    bool finite = true;
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        most = fmaxf(most, fabsf(head.x[r][j]));
        finite = finite && fabsf(head.x[r][j]) < INFINITY;
      }
    most = lanes.max(finite ? most : INFINITY);
    scale = most < INFINITY ? fmaxf(__fdiv_rn(most, 127.0f), kLeastTokenScale) : __int_as_float(0x7fc00000);
    if (active && lanes.lane == 0) scales[place.scale_at] = scale;
    if (scale != scale) active = false;  // with a NaN scale, any code reads as NaN
  }
  if (!active) return;
  const auto address = reinterpret_cast<uintptr_t>(data) + static_cast<uintptr_t>(place.at) * size_of(kCache);
  const bool by_four =
      place.run % 4 == 0 && place.run_stride % 4 == 0 && address % (4 * size_of(kCache)) == 0;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    uint32_t bits[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      bits[j] = stored_bits(head.x[r][j], scale, kCache);
    if (by_four) {
      store_four(data, place.element(at[r]), kCache, bits);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        store_element(data, place.element(at[r] + j), kCache, bits[j]);
    }
  }
}

constexpr int kHeadWarps = 8, kFewTokens = 64;

template <class T, KvCacheDType kCache>
__global__ void __launch_bounds__(32 * kHeadWarps, kCache == KvCacheDType::int8_per_token_head ? 3 : 4)
    append_heads_kernel(const __grid_constant__ AppendParams p, const __grid_constant__ Extra extra,
                        int lanes_of_head, int token_ctas) {
  const int warp = static_cast<int>(threadIdx.x) / 32, warp_lane = static_cast<int>(threadIdx.x) % 32;
  const HeadLanes lanes{lanes_of_head, warp_lane % lanes_of_head};
  const int part = static_cast<int>(blockIdx.x) % token_ctas;
  const int64_t token = static_cast<int>(blockIdx.x) / token_ctas;
  const int q_heads = p.q == nullptr ? 0 : p.num_heads, kv_heads = p.k == nullptr ? 0 : p.num_kv_heads;
  const int heads = q_heads + 2 * kv_heads, first_v = q_heads + kv_heads;
  const int together = 32 / lanes_of_head;              // heads of a warp
  const int step = together * kHeadWarps * token_ctas;  // of the token's CTAs
  int at[2][2];                                         // of rotated heads, of V
#pragma unroll
  for (int r = 0; r < 2; ++r)
    at[0][r] = lane_run(p.rope, lanes.lane, r), at[1][r] = 8 * lanes.lane + 4 * r;

  grid_launch_dependents();
  grid_dependency_wait();
  RawFour<T> raw[2];
  const auto load = [&](int head) {
    const bool is_q = head < q_heads, is_v = head >= first_v;
    const int n = is_v ? p.v_head_dim : p.head_dim;
    if (head >= heads || 8 * lanes.lane >= n) return;
    const void* base = is_q ? p.q : is_v ? p.v : p.k;
    const int64_t stride = is_q ? p.q_row_stride : is_v ? p.v_row_stride : p.k_row_stride;
    const T* in = static_cast<const T*>(base) + token * stride +
                  (head - (is_q   ? 0
                           : is_v ? first_v
                                  : q_heads)) *
                      n;
#pragma unroll
    for (int r = 0; r < 2; ++r)
      raw[r] = *reinterpret_cast<const RawFour<T>*>(in + (is_v ? at[1][r] : at[0][r]));
  };
  const int first = (part * kHeadWarps + warp) * together;
  load(first + warp_lane / lanes_of_head);
  const TokenPlace place = place_of(p, token, warp_lane);
  // In front of the branches that wait for the slot: the rows of the tables need not wait for it.
  const LaneRotation rotation(p.rope, place.position, !place.unassigned && !place.beyond, lanes.lane);
  const bool has_q = placed(p, place, token, false, threadIdx.x == 0 && q_heads > 0);
  const bool has_kv = placed(p, place, token, true, threadIdx.x == 0 && kv_heads > 0) && place.slot >= 0;
  if (!has_q && !has_kv) return;
  const float factor = extra.temperature_scale != 0 ? temperature(extra, token) : 1.0f;
  const RowPlace k_first = k_place(p.kv, has_kv ? place.slot : 0, 0, p.head_dim);
  const RowPlace v_first = v_place(p.kv, has_kv ? place.slot : 0, 0, p.v_head_dim);
  const bool norms = p.q_norm.weight != nullptr || p.k_norm.weight != nullptr;

#pragma unroll 1
  for (int base = first; base < heads; base += step) {
    const int head = base + warp_lane / lanes_of_head;
    const bool is_q = head < q_heads, is_v = head >= first_v;
    const bool active =
        head < heads && 8 * lanes.lane < (is_v ? p.v_head_dim : p.head_dim) && (is_q ? has_q : has_kv);
    LaneHead x;
    if (active) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          x.x[r][j] = to_float(raw[r].x[j]);
    }
    load(head + step);
    const auto norm = [&] {
      const float sum = lanes.sum(lane_squares(x));
      const HeadNorm& weights = is_q ? p.q_norm : p.k_norm;
      if (!active || is_v || weights.weight == nullptr) return;
      const float by = norm_factor(weights, sum, p.head_dim);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float4 w = *reinterpret_cast<const float4*>(weights.weight + at[0][r]);
        x.x[r][0] = __fmul_rn(__fmul_rn(x.x[r][0], by), w.x),
        x.x[r][1] = __fmul_rn(__fmul_rn(x.x[r][1], by), w.y);
        x.x[r][2] = __fmul_rn(__fmul_rn(x.x[r][2], by), w.z),
        x.x[r][3] = __fmul_rn(__fmul_rn(x.x[r][3], by), w.w);
      }
    };
    if (norms && !extra.norm_after_rope) norm();
    if (!is_v) rotation.apply(x);
    if (norms && extra.norm_after_rope) norm();
    if (is_q && active) {
      T* out = static_cast<T*>(p.q_out) + token * p.q_out_row_stride + head * p.head_dim;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        RawFour<T> four;
#pragma unroll
        for (int j = 0; j < 4; ++j)
          four.x[j] = rounded<T>(extra.temperature_scale != 0 ? __fmul_rn(x.x[r][j], factor) : x.x[r][j]);
        *reinterpret_cast<RawFour<T>*>(out + at[0][r]) = four;
      }
    }
    if (base + together <= q_heads) continue;  // no head of this warp is K or V
    RowPlace to;
    to.at = is_v ? v_first.at : k_first.at, to.run = is_v ? v_first.run : k_first.run;
    to.run_stride = is_v ? v_first.run_stride : k_first.run_stride, to.scale_at = k_first.scale_at;
    const int of = is_v ? head - first_v : head - q_heads;
    to.at += of * (is_v ? p.kv.v_head_stride : p.kv.k_head_stride);
    to.scale_at += of * p.kv.scale_head_stride;
    const int where[2] = {is_v ? at[1][0] : at[0][0], is_v ? at[1][1] : at[0][1]};
    store_head<kCache>(const_cast<void*>(is_v ? p.kv.v : p.kv.k),
                       const_cast<float*>(is_v ? p.kv.v_scales : p.kv.k_scales), to,
                       is_v ? p.kv.v_scale : p.kv.k_scale, active && !is_q, where, x, lanes);
  }
}

/// Whether the kernel above can: whole runs of four in heads, tables and weights.
bool fits_in_lanes(const AppendParams& p, bool by_four) {
  const auto aligned = [](const float* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; };
  return by_four && in_lane_runs(p.head_dim, p.rope.dim) && p.v_head_dim % 8 == 0 && p.v_head_dim <= 256 &&
         aligned(p.rope.cos) && aligned(p.rope.sin) && aligned(p.q_norm.weight) && aligned(p.k_norm.weight);
}

/// False where there is no kernel for the dtypes. `code`: of the launch.
template <class T>
bool launch_heads(const AppendParams& p, const Extra& extra, cudaStream_t stream, cudaError_t& code) {
  constexpr KvCacheDType kOwn = std::is_same_v<T, float>    ? KvCacheDType::float32
                                : std::is_same_v<T, __half> ? KvCacheDType::float16
                                                            : KvCacheDType::bfloat16;
  const auto kernel = p.kv.dtype == kOwn                     ? append_heads_kernel<T, kOwn>
                      : p.kv.dtype == KvCacheDType::fp8_e4m3 ? append_heads_kernel<T, KvCacheDType::fp8_e4m3>
                      : p.kv.dtype == KvCacheDType::int8_per_token_head
                          ? append_heads_kernel<T, KvCacheDType::int8_per_token_head>
                          : nullptr;
  if (kernel == nullptr) return false;
  const int most = p.head_dim > p.v_head_dim ? p.head_dim : p.v_head_dim;
  const int lanes = most <= 64 ? 8 : most <= 128 ? 16 : 32;
  // Of few tokens, each warp takes one round of heads.
  const int heads = (p.q == nullptr ? 0 : p.num_heads) + (p.k == nullptr ? 0 : 2 * p.num_kv_heads);
  const int round = 32 / lanes * kHeadWarps;
  const int token_ctas = p.tokens <= kFewTokens ? std::max(1, (heads + round - 1) / round) : 1;
  code = launch_dependent(kernel, {static_cast<unsigned>(p.tokens * token_ctas), 32 * kHeadWarps}, stream, p,
                          extra, lanes, token_ctas);
  return true;
}
