// Random problems within the claims of a backend.
#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/problem.h"
#include "fovea/attention_spec.h"

namespace fovea::conformance {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Multiply-adds of one problem (per head and head dimension); bounds the time of a case.
constexpr int64_t kBudget = 6'000'000;

template <class T, class Keep>
T pick_if(Random& random, const std::vector<T>& from, Keep keep, T otherwise) {
  std::vector<T> kept;
  std::copy_if(from.begin(), from.end(), std::back_inserter(kept), keep);
  return kept.empty() ? otherwise : random.pick(kept);
}

class Drawer {
 public:
  Drawer(uint64_t seed, const Capability& c) : random_(seed), c_(c) {}

  Problem draw() {
    draw_types();
    draw_heads();
    draw_mask();
    draw_extras();
    draw_lengths();
    for (size_t b = 0; b < problem_.seqs.size(); ++b)
      fill(problem_.seqs[b]);
    if (spec().mask.tree) draw_tree();
    return std::move(problem_);
  }

 private:
  AttentionSpec& spec() { return problem_.spec; }
  bool maybe(Feature feature, int percent) { return random_.chance(percent) && c_.features.has(feature); }

  void draw_types() {
    spec().dtype = pick_if<DType>(
        random_, {DType::f32, DType::f32, DType::f16, DType::bf16}, [&](DType d) { return c_.dtypes.has(d); },
        DType::f32);
    using enum KvCacheDType;
    spec().kv_dtype = pick_if<KvCacheDType>(
        random_, {auto_, auto_, auto_, float32, float16, bfloat16, fp8_e4m3, fp8_e5m2, int8_per_token_head},
        [&](KvCacheDType d) { return c_.kv_dtypes.has(d); }, auto_);
    spec().page_size = pick_if<int>(
        random_, {1, 2, 3, 7, 16, 16, 16, 64, 128, 544}, [&](int p) { return c_.page_sizes.has(p); },
        c_.preferred_page_size);
  }

  void draw_heads() {
    struct Dims {
      int qk, v;
    };
    const std::vector<Dims> dims = {{16, 16},   {24, 24},   {32, 32},   {64, 64},   {64, 64},   {72, 72},
                                    {80, 80},   {96, 96},   {112, 112}, {128, 128}, {128, 128}, {160, 160},
                                    {192, 192}, {192, 128}, {256, 256}, {64, 256},  {512, 512}, {576, 512},
                                    {1, 1},     {5, 3},     {33, 40},   {288, 256}, {48, 32}};
    const bool mla = c_.features.has(Feature::mla);
    const Dims d = pick_if<Dims>(
        random_, dims,
        [&](Dims x) { return c_.head_dims.has(x.qk) && c_.v_head_dims.has(x.v) && (!mla || x.v <= x.qk); },
        {c_.head_dims.smallest(), c_.v_head_dims.smallest()});
    spec().head_dim = d.qk;
    spec().v_head_dim = d.v;
    struct Heads {
      int q, kv;
    };
    const Heads h = random_.pick(std::vector<Heads>{{1, 1},
                                                    {2, 1},
                                                    {4, 2},
                                                    {3, 3},
                                                    {8, 8},
                                                    {8, 1},
                                                    {5, 1},
                                                    {10, 2},
                                                    {7, 1},
                                                    {14, 2},
                                                    {12, 1},
                                                    {6, 2},
                                                    {32, 8},
                                                    {16, 16},
                                                    {64, 32}});
    spec().num_heads = h.q;
    spec().num_kv_heads = mla ? 1 : h.kv;
    spec().use_mla = mla;
    spec().use_sparse = c_.features.has(Feature::sparse);
    if (spec().use_sparse) spec().sparse_topk = random_.pick(std::vector<int>{1, 16, 70, 1100});
    spec().scale = 1.0f / std::sqrt(static_cast<float>(spec().head_dim)) *
                   random_.pick(std::vector<float>{1, 1, 1, 0.7f, 0.4f, 1.7f, -0.8f});
  }

  void draw_mask() {
    MaskSpec& mask = spec().mask;
    const std::vector<AttentionType> types = {AttentionType::decoder, AttentionType::encoder,
                                              AttentionType::encoder_only, AttentionType::encoder_decoder};
    if (random_.chance(15))
      spec().type = pick_if<AttentionType>(
          random_, types, [&](AttentionType t) { return c_.types.has(t); }, AttentionType::decoder);
    mask.causal = spec().type == AttentionType::decoder;
    if (mask.causal && maybe(Feature::non_causal, 8)) mask.causal = false;
    if (mask.causal && maybe(Feature::packed_mask, 10)) {
      mask.packed = true;
      mask.causal = false;
    }
    if (maybe(Feature::window, 30)) {
      mask.window_left = random_.pick(std::vector<int>{0, 1, 3, 15, 16, 63, 127, 300});
      if (!mask.causal && random_.chance(60)) mask.window_right = random_.below(40);
      if (mask.causal && random_.chance(10)) mask.window_right = random_.below(3);
      if (maybe(Feature::sink_tokens, 40)) mask.sink_tokens = random_.pick(std::vector<int>{1, 4, 17});
    }
    if (maybe(Feature::chunk, 12)) mask.chunk = random_.pick(std::vector<int>{1, 4, 33, 64, 200});
    if (mask.causal && maybe(Feature::spans, 15)) mask.spans = true;
    if (mask.causal && maybe(Feature::tree_mask, 10)) mask.tree = true;
  }

  void draw_extras() {
    spec().has_sink = maybe(Feature::sink, 20);
    spec().lse_includes_sink = spec().has_sink && random_.chance(40);
    if (maybe(Feature::softcap, 15))
      spec().softcap = random_.chance(50) ? 50.0f : 3.0f;
    else
      spec().has_alibi = maybe(Feature::alibi, 15);
    const int heads = spec().num_heads;
    for (int h = 0; h < heads && spec().has_sink; ++h)
      problem_.sinks.push_back(random_.chance(10) ? (random_.chance(70) ? -kInf : kInf)
                                                  : 2 * random_.normal());
    if (spec().has_alibi)
      problem_.slopes = random_.chance(30) ? canonical_slopes(heads) : drawn_slopes(heads, random_);
    values_.qk_gain = random_.pick(std::vector<float>{1, 1, 1, 1, 4, 4, 0, 2, 30});
    values_.coded_v = random_.chance(25);
  }

  /// n_k from the edges of pages and of likely tiles; n_q from the edges of row blocks.
  void draw_lengths() {
    const int page = spec().page_size;
    const std::vector<int> n_ks = {0,   1,   2,   page - 1, page, page + 1, 2 * page + 1, 15,   16,  17,
                                   31,  33,  63,  64,       65,   100,      127,          128,  129, 255,
                                   257, 500, 511, 513,      700,  1023,     1024,         1025, 2049};
    const std::vector<int> n_qs = {0, 1, 1, 2, 3, 7, 8, 16, 17, 31, 64, 65, 127, 129};
    const bool decode = spec().type == AttentionType::decoder && random_.chance(40);
    problem_.phase = decode ? Phase::decode : Phase::prefill;
    if (!c_.phases.has(problem_.phase)) problem_.phase = decode ? Phase::prefill : Phase::decode;
    const int seqs = random_.chance(3) ? 0 : 1 + random_.below(decode ? 6 : 4);
    const int rows = random_.chance(70) ? 1 : 2 + random_.below(6);  // decode rows; more than one = drafts
    int64_t budget = kBudget / (int64_t{spec().num_heads} * (spec().head_dim + spec().v_head_dim));
    for (int b = 0; b < seqs; ++b) {
      Sequence s;
      s.n_k = random_.pick(n_ks);
      s.n_q = decode ? std::min(rows, std::max(1, s.n_k)) : random_.pick(n_qs);
      if (decode && random_.chance(5)) s.n_q = 0;
      // Usually the new tokens are among the keys; a few sequences have more rows than keys.
      if (!decode && s.n_q > s.n_k && spec().type == AttentionType::decoder && random_.chance(80))
        s.n_q = s.n_k;
      if (spec().type == AttentionType::encoder || spec().type == AttentionType::encoder_only)
        s.n_k = s.n_q = std::min(s.n_k, 260);
      while (int64_t{s.n_q} * s.n_k > budget) {
        s.n_k = s.n_k * 3 / 4;
        s.n_q = std::max(1, std::min(s.n_q, s.n_k) * 3 / 4);
        if (s.n_k < 4) break;
      }
      budget -= int64_t{s.n_q} * s.n_k;
      problem_.seqs.push_back(s);
      if (budget <= 0) break;
    }
  }

  void fill(Sequence& s) {
    const Sequence shape = s;
    s = make_sequence(spec(), shape.n_q, shape.n_k, random_.bits(), values_);
    if (spec().mask.spans)
      for (int at = random_.below(20); at < s.n_k && random_.chance(80);) {
        const int length = 1 + random_.below(60);
        s.spans.push_back({at, std::min(at + length, s.n_k) - 1});
        at += length + 1 + random_.below(80);
      }
    if (spec().mask.packed) {
      s.packed.resize((int64_t{s.n_q} * s.n_k + 7) / 8);
      const int percent = random_.pick(std::vector<int>{0, 3, 50, 90, 100});
      for (int64_t bit = 0; bit < int64_t{s.n_q} * s.n_k; ++bit)
        if (random_.chance(percent)) s.packed[bit / 8] |= static_cast<uint8_t>(1u << (bit % 8));
    }
  }

  /// Every node sees itself and its ancestors; a parent comes before its children.
  void draw_tree() {
    const int64_t n = 1 + random_.below(12);
    problem_.tree_size = static_cast<int>(n);
    problem_.tree_bias.assign(n * n, -kInf);
    for (int node = 0; node < n; ++node) {
      float* row = problem_.tree_bias.data() + node * n;
      if (node > 0) {
        const float* parent = problem_.tree_bias.data() + random_.below(node) * n;
        std::copy_n(parent, n, row);
      }
      row[node] = 0.0f;
    }
  }

  Random random_;
  const Capability& c_;
  Problem problem_;
  Values values_;
};

}  // namespace

Problem random_problem(uint64_t seed, const Capability& capability) {
  return Drawer(seed, capability).draw();
}

}  // namespace fovea::conformance
