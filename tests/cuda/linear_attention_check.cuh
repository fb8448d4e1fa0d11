#pragma once
// Checks of the linear attention kernels against the fp64 recurrence on the host.
#include "linear_attention_device.cuh"

namespace fovea::cuda {

struct DeltaCase {
  std::string name;
  std::vector<int32_t> lengths;
  int heads = 4, k_heads = 2, dk = 128, dv = 128;
  DType dtype = DType::bf16;
  LinearForm form = LinearForm::chunked;
  bool normalize = true, gates = true, state = true, lightning = false;
  float gate = 0;  // not 0: all gates
};

/// The arrays of a case.
struct DeltaArrays {
  explicit DeltaArrays(const DeltaCase& x)
      : c(x),
        offsets(ends(x.lengths)),
        rows(offsets.host.back()),
        q(x.dtype, rows, x.k_heads, x.dk, 1, x.normalize ? 1.0f : 0.09f),
        k(x.dtype, rows, x.k_heads, x.dk, 2, x.normalize ? 1.0f : 0.09f),
        v(x.dtype, rows, x.heads, x.dv, 3, 1),
        out(x.dtype, rows, x.heads, x.dv, 4, 1),
        g(gates(x, rows, 5, true)),
        beta(gates(x, rows, 6, false)),
        decay(std::vector<float>(static_cast<size_t>(x.heads), -0.05f)),
        in(states(x)),
        after(std::vector<float>(in.host.size())) {
    for (size_t h = 0; h < decay.host.size(); ++h)
      decay.host[h] = x.gate != 0 ? x.gate : -0.9f / static_cast<float>(1 + 20 * h);
    decay.upload();
    poison();
  }
  void poison() const {
    out.bytes.poison();
    after.poison();
  }
  static std::vector<int32_t> ends(const std::vector<int32_t>& lengths) {
    std::vector<int32_t> out{0};
    for (const int32_t n : lengths)
      out.push_back(out.back() + n);
    return out;
  }
  static std::vector<float> gates(const DeltaCase& x, int64_t rows, uint32_t seed, bool log) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    std::vector<float> out(static_cast<size_t>(rows * (x.heads + 1)));
    for (float& y : out) {
      const float u = uniform(random);
      y = !log          ? u
          : x.gate != 0 ? x.gate
          : u < 0.01f   ? -std::numeric_limits<float>::infinity()
                        : -0.5f * u * u;
    }
    return out;
  }
  static std::vector<float> states(const DeltaCase& x) {
    std::mt19937 random(9);
    std::normal_distribution<float> normal(0.0f, 0.5f);
    std::vector<float> out(x.lengths.size() * static_cast<size_t>(x.heads * x.dk * x.dv));
    for (float& y : out)
      y = normal(random);
    return out;
  }
  /// On the device, or with `host` for the reference.
  GatedDeltaRule call(bool host) const {
    GatedDeltaRule r;
    r.dtype = c.dtype;
    r.heads = c.heads;
    r.k_heads = c.k_heads;
    r.dk = c.dk;
    r.dv = c.dv;
    r.q = host ? q.on_host() : q.on_device();
    r.k = host ? k.on_host() : k.on_device();
    r.v = host ? v.on_host() : v.on_device();
    r.out = out.written();
    r.sequences = {static_cast<int>(c.lengths.size()), static_cast<int>(rows), 0,
                   host ? offsets.host.data() : offsets.device};
    if (c.gates) {
      r.g = host ? g.host.data() : g.device;
      r.beta = host ? beta.host.data() : beta.device;
      r.g_stride = r.beta_stride = c.heads + 1;
    }
    r.normalize_qk = c.normalize;
    if (c.state) r.states.in = host ? in.host.data() : in.device;
    r.states.out = after.device;
    r.states.slots = static_cast<int>(c.lengths.size());
    r.form = c.form;
    return r;
  }
  LightningAttention lightning(bool host) const {
    const GatedDeltaRule r = call(host);
    LightningAttention l;
    l.dtype = r.dtype;
    l.heads = r.heads;
    l.dk = r.dk;
    l.dv = r.dv;
    l.q = r.q;
    l.k = r.k;
    l.v = r.v;
    l.out = r.out;
    l.sequences = r.sequences;
    l.states = r.states;
    l.form = r.form;
    l.log_decay = host ? decay.host.data() : decay.device;
    return l;
  }
  Status launch(CudaStream& stream) const {
    return c.lightning ? launch_lightning(lightning(false), stream) : launch_gated_delta(call(false), stream);
  }

  DeltaCase c;
  Both<int32_t> offsets;
  int64_t rows;
  Rows q, k, v, out;
  Both<float> g, beta, decay, in, after;
};

inline void launched(const Status& status, CudaStream& stream, const std::string& name) {
  expect(status.ok(), name + ": " + (status.ok() ? "" : status.error().message));
  const cudaError_t code = cudaStreamSynchronize(stream.handle());
  expect(code == cudaSuccess, name + ": " + cudaGetErrorString(code));
  if (code != cudaSuccess) std::exit(1);
}

/// Rows of NaN in every other sequence leave the other sequences' bits, `bytes`, as they were.
inline void check_neighbours(DeltaArrays& a, const std::vector<unsigned char>& bytes, CudaStream& stream) {
  const auto with_nan = [&](const Rows& rows, int64_t token) {
    std::vector<unsigned char> x = rows.bytes.host;
    for (size_t b = 1; b < a.c.lengths.size(); b += 2)
      std::fill(x.begin() + a.offsets.host[b] * token * static_cast<int64_t>(size_of(a.c.dtype)),
                x.begin() + a.offsets.host[b + 1] * token * static_cast<int64_t>(size_of(a.c.dtype)), 0xff);
    copy_to_device(rows.bytes.device, x.data(), x.size());
  };
  for (const Rows* rows : {&a.q, &a.k, &a.v})
    with_nan(*rows, rows->token);
  a.poison();
  launched(a.launch(stream), stream, a.c.name);
  const auto now = a.out.bytes.download();
  for (size_t b = 0; b < a.c.lengths.size(); b += 2) {
    const auto size = static_cast<size_t>(a.out.token) * size_of(a.c.dtype);
    const size_t first = static_cast<size_t>(a.offsets.host[b]) * size,
                 last = static_cast<size_t>(a.offsets.host[b + 1]) * size;
    expect(std::equal(now.begin() + static_cast<int64_t>(first), now.begin() + static_cast<int64_t>(last),
                      bytes.begin() + static_cast<int64_t>(first)),
           a.c.name + ": other bits beside a sequence of NaN");
  }
  for (const Rows* rows : {&a.q, &a.k, &a.v})
    rows->bytes.upload();
}

inline void check_delta(const DeltaCase& c, CudaStream& stream) {
  DeltaArrays a(c);
  launched(a.launch(stream), stream, c.name);
  LinearReference r =
      c.lightning ? reference_lightning(a.lightning(true)) : reference_gated_delta(a.call(true));
  const auto got = a.out.values(c.name);
  const auto after = widened(a.after.download());
  const auto dv = static_cast<size_t>(c.dv);
  const Difference of_out = difference(got, r.out, dv), of_state = difference(after, r.states, dv);
  const bool exact = c.form == LinearForm::recurrent;
  const double rounding = c.dtype == DType::f32 ? 0 : c.dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
  const double most = exact ? rounding + 1e-5 : 3 * rounding, most_state = exact ? 1e-5 : 3 * rounding;
  std::printf("%-44s out %.2e, its worst row %.2e; state %.2e\n", c.name.c_str(), of_out.all, of_out.row,
              of_state.all);
  expect(of_out.all < most && of_out.row < 8 * most, c.name + ": out differs");
  expect(of_state.all < most_state && of_state.row < 8 * most_state, c.name + ": state differs");
  if (a.rows > 60 && c.gates &&
      !(c.lightning && c.gate != 0)) {  // defects of one part of the formula must show
    for (auto& y : r.out)
      y *= 1.03;
    expect(difference(got, r.out, dv).all > most, c.name + ": another scale passed");
    const int64_t other = a.rows / 2;
    for (int h = 0; h < c.heads && !c.lightning; ++h)
      a.beta.host[static_cast<size_t>(other * (c.heads + 1) + h)] += 1.0f;
    a.decay.host.back() -= 0.1f;
    const LinearReference planted =
        c.lightning ? reference_lightning(a.lightning(true)) : reference_gated_delta(a.call(true));
    expect(difference(got, planted.out, dv).row > 8 * most, c.name + ": one other gate passed");
  }
  const auto bytes = a.out.bytes.download();
  const auto state = a.after.download();
  for (int i = 0; i < 3; ++i) {  // a race would show
    a.poison();
    launched(a.launch(stream), stream, c.name);
    expect(a.out.bytes.download() == bytes, c.name + ": other bits in another run");
    expect(std::memcmp(a.after.download().data(), state.data(), state.size() * sizeof(float)) == 0,
           c.name + ": another state in another run");
  }
  check_neighbours(a, bytes, stream);
  // The longest sequence alone, in calls of 64 rows and the rest, its state in place.
  size_t b = 0;
  for (size_t i = 0; i < c.lengths.size(); ++i)
    if (c.lengths[i] > c.lengths[b]) b = i;
  a.poison();
  const size_t block = static_cast<size_t>(c.heads * c.dk * c.dv);
  Both<float> own{std::vector<float>(block)};
  if (c.state) std::copy_n(a.in.host.begin() + static_cast<int64_t>(b * block), block, own.host.begin());
  own.upload();
  for (int32_t at = 0; at < c.lengths[b];) {
    const int32_t n = std::min<int32_t>(at == 0 ? 64 : 128, c.lengths[b] - at),
                  first = a.offsets.host[b] + at;
    const Both<int32_t> part({0, n});
    GatedDeltaRule call = a.call(false);
    call.q = a.q.on_device(first);
    call.k = a.k.on_device(first);
    call.v = a.v.on_device(first);
    call.out = a.out.written(first);
    if (call.g != nullptr) call.g += first * call.g_stride;
    if (call.beta != nullptr) call.beta += first * call.beta_stride;
    call.sequences = {1, n, n, part.device};
    call.states = {own.device, own.device, nullptr, nullptr, 1};
    if (!c.lightning) {
      launched(launch_gated_delta(call, stream), stream, c.name);
    } else {
      LightningAttention l = a.lightning(false);
      l.q = call.q;
      l.k = call.k;
      l.v = call.v;
      l.out = call.out;
      l.sequences = call.sequences;
      l.states = call.states;
      launched(launch_lightning(l, stream), stream, c.name);
    }
    at += n;
  }
  expect(std::memcmp(own.download().data(), state.data() + b * block, block * sizeof(float)) == 0,
         c.name + ": another state in several calls");
  std::vector<unsigned char> alone = a.out.bytes.download();
  std::vector<unsigned char> among = bytes;
  const auto bytes_of = static_cast<size_t>(c.lengths[b] * a.out.token) * size_of(c.dtype);
  expect(std::memcmp(a.out.at(alone, a.offsets.host[b], 0, 0), a.out.at(among, a.offsets.host[b], 0, 0),
                     bytes_of) == 0,
         c.name + ": other bits alone and in several calls");
}

inline void check_recurrences(CudaStream& stream) {
  const std::vector<int32_t> lengths = {0, 1, 63, 64, 65, 0, 200};
  for (const bool lightning : {false, true})
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
      for (const LinearForm form : {LinearForm::chunked, LinearForm::recurrent}) {
        if (form == LinearForm::chunked && dtype == DType::f32) continue;
        DeltaCase c;
        c.lengths = lengths;
        c.dtype = dtype;
        c.form = form;
        c.lightning = lightning;
        c.normalize = !lightning;
        if (lightning) c.k_heads = c.heads;
        const std::string name = std::string(lightning ? "lightning " : "gated delta ") +
                                 (form == LinearForm::chunked ? "chunked " : "recurrent ") +
                                 std::string(to_string(dtype));
        c.name = name;
        check_delta(c, stream);
        if (dtype == DType::bf16) {
          c.name = name + ", decays of 0";
          c.gate = -std::numeric_limits<float>::infinity();
          check_delta(c, stream);
          c.name = name + ", strong decays";
          c.gate = -20;
          check_delta(c, stream);
          c.gate = 0;
          c.state = false;
          c.gates = false;
          c.normalize = false;
          c.name = name + ", no state and gates, as they are";
          check_delta(c, stream);
        }
        if (form == LinearForm::recurrent && dtype != DType::f16)
          for (const auto& [dk, dv] : {std::pair(64, 64), {96, 40}, {256, 256}, {7, 4}, {130, 132}}) {
            c.state = c.gates = true;
            c.normalize = !lightning;
            c.dk = dk;
            c.dv = dv;
            c.lengths = {3, 0, 66};
            c.name = name + ", " + std::to_string(dk) + " and " + std::to_string(dv);
            check_delta(c, stream);
          }
      }
}

struct HstuCase {
  int dim, contextual, window, full;
  bool targets, biases, last;
  DType dtype = DType::bf16;
};

inline void check_hstu(const HstuCase& h, CudaStream& stream) {
  const std::vector<int32_t> lengths = {0, 1, 64, 7, 129, 300};
  const Both<int32_t> offsets(DeltaArrays::ends(lengths)), targets({0, 1, 3, 0, 20, 290}),
      queries(h.last ? std::vector<int32_t>{0, 0, 1, 1, 4, 104, 301} : offsets.host);
  const int64_t rows = offsets.host.back(), asked = queries.host.back();
  constexpr int kMost = 320;
  const Rows q(h.dtype, asked, 3, h.dim, 1, 1), k(h.dtype, rows, 3, h.dim, 2, 1),
      v(h.dtype, rows, 3, h.dim, 3, 1), out(h.dtype, asked, 3, h.dim, 4, 1);
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  std::vector<float> position(2 * kMost - 1), time(65);
  std::vector<int64_t> times(static_cast<size_t>(rows)), bounds(64);
  for (float& x : position)
    x = normal(random);
  for (float& x : time)
    x = normal(random);
  int64_t now = 1700000000;
  for (int64_t& t : times)
    t = now += static_cast<int64_t>(random() % 100 * (random() % 1000));
  hstu_time_bounds(64, bounds.data());
  const Both<float> positions(position), time_bias(time);
  const Both<int64_t> all_times(times), all_bounds(bounds);
  const auto call = [&](bool host) {
    HstuAttention c;
    c.dtype = h.dtype;
    c.heads = 3;
    c.dk = c.dv = h.dim;
    c.q = host ? q.on_host() : q.on_device();
    c.k = host ? k.on_host() : k.on_device();
    c.v = host ? v.on_host() : v.on_device();
    c.out = out.written();
    c.sequences = {6, static_cast<int>(rows), 0, host ? offsets.host.data() : offsets.device};
    if (h.last) {
      c.q_offsets = host ? queries.host.data() : queries.device;
      c.q_tokens = static_cast<int>(asked);
    }
    c.max_seq_len = kMost;
    if (h.targets) c.num_targets = host ? targets.host.data() : targets.device;
    c.contextual = h.contextual;
    c.max_attn_len = h.window;
    c.min_full = h.full;
    if (h.biases) {
      c.position_bias = host ? position.data() : positions.device;
      c.time_bias = host ? time.data() : time_bias.device;
      c.time_bounds = host ? bounds.data() : all_bounds.device;
      c.time_buckets = 64;
      c.times = host ? times.data() : all_times.device;
    }
    return c;
  };
  const std::string name = "HSTU " + std::to_string(h.dim) + " " + std::string(to_string(h.dtype)) + ", " +
                           std::to_string(h.contextual) + " contextual, window " + std::to_string(h.window) +
                           ", full " + std::to_string(h.full) + (h.targets ? ", targets" : "") +
                           (h.biases ? ", biases" : "") + (h.last ? ", last rows" : "");
  out.bytes.poison();
  launched(launch_hstu(call(false), stream), stream, name);
  const auto got = out.values(name);
  const auto width = static_cast<size_t>(h.dim);
  const double most = h.dtype == DType::f16 ? 3 * 0x1p-11 : 3 * 0x1p-8;
  const Difference d = difference(got, reference_hstu(call(true)), width);
  std::printf("%-70s out %.2e, its worst row %.2e\n", name.c_str(), d.all, d.row);
  expect(d.all < most && d.row < 8 * most, name + ": out differs");
  HstuAttention other = call(true);
  other.max_attn_len = h.window == 0 ? 100 : h.window + 1;
  if (h.full == 0)
    expect(difference(got, reference_hstu(other), width).row > 8 * most, name + ": another window passed");
  const auto bytes = out.bytes.download();
  out.bytes.poison();
  launched(launch_hstu(call(false), stream), stream, name);
  expect(out.bytes.download() == bytes, name + ": other bits in another run");
}

inline void check_all_hstu(CudaStream& stream) {
  for (const int dim : {64, 128}) {
    check_hstu({dim, 0, 0, 0, false, false, false}, stream);
    check_hstu({dim, 0, 0, 0, false, false, false, DType::f16}, stream);
    check_hstu({dim, 0, 0, 0, true, false, true}, stream);
    check_hstu({dim, 5, 0, 0, true, true, false}, stream);
    check_hstu({dim, 0, 9, 0, true, true, true}, stream);
    check_hstu({dim, 3, 70, 11, false, false, false}, stream);
  }
}

}  // namespace fovea::cuda
