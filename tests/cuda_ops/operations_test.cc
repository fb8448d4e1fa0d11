// Every operation of the CPU and of a GPU, with activations of each type, against the plain loops of the
// reference device, from the same host values.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <set>

#include "kv/kv_cache.h"
#include "model/kv_groups.h"
#include "ops/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "tensor/cuda_device.h"
#include "tests/cuda_ops/side.h"
#include "tests/reference_device/reference_ops.h"

namespace fovea {
namespace {

using test::Floats;
using test::GuardedDevice;
using test::ReferenceOps;
using test::Side;

Floats normal(int64_t count, uint32_t seed, float scale = 1, float mean = 0) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> draw(mean, scale);
  Floats values(static_cast<size_t>(count));
  std::ranges::generate(values, [&] { return draw(rng); });
  return values;
}

/// The CPU's operations, or a GPU's with activations of a type.
struct Table {
  bool cuda = false;
  DType type = DType::f32;
};

class Operations : public testing::TestWithParam<Table> {
 protected:
  void SetUp() override {
    if (!GetParam().cuda) return;
    auto device = make_cuda_device(0);
    if (!device.ok()) GTEST_SKIP() << "SKIPPED: no CUDA device (" << device.error().message << ")";
    device_ = *std::move(device);
    auto stream = make_cuda_stream(0);
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    cuda_stream_ = *stream;
    auto ops = make_cuda_ops(*device_, GetParam().type);
    ASSERT_TRUE(ops.ok()) << ops.error().message;
    cuda_ops_ = *std::move(ops);
  }
  Ops& ops() { return cuda_ops_ ? *cuda_ops_ : cpu_ops(); }

  /// Runs f(side) -> Floats on both devices and compares: the largest difference, in units of the root of the
  /// mean square, is at most a few roundings.
  template <class F>
  void expect_same(const F& f) {
    Floats got, expected;
    {
      Side tested(ops(), cuda_stream_ ? *cuda_stream_ : host_stream_), reference(reference_, host_stream_);
      got = f(tested);
      expected = f(reference);
    }
    ASSERT_EQ(got.size(), expected.size());
    double squares = 0, worst = 0;
    size_t numbers = 0, at = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::isnan(got[i]), std::isnan(expected[i])) << "element " << i;
      if (std::isnan(expected[i])) continue;
      ++numbers;
      squares += std::pow(expected[i], 2);
      if (const double error = std::fabs(got[i] - expected[i]); error > worst) worst = error, at = i;
    }
    const double size = std::sqrt(squares / static_cast<double>(std::max<size_t>(numbers, 1)));
    EXPECT_LE(worst, tolerance() * size) << "element " << at << ": " << got[at] << ", not " << expected[at];
  }
  double tolerance() const {
    return GetParam().type == DType::f32 ? 2e-5 : GetParam().type == DType::f16 ? 6e-3 : 4.5e-2;
  }

  std::unique_ptr<Device> device_;
  std::shared_ptr<Stream> cuda_stream_;
  std::unique_ptr<Ops> cuda_ops_;
  ThreadPool pool_{1};
  Stream host_stream_{pool_};
  GuardedDevice guarded_{size_t{1} << 30};
  ReferenceOps reference_{guarded_, test::Stored::as_given, GetParam().type};
};

INSTANTIATE_TEST_SUITE_P(Tables, Operations,
                         testing::Values(Table{}, Table{true, DType::f32}, Table{true, DType::f16},
                                         Table{true, DType::bf16}),
                         [](const auto& table) {
                           return (table.param.cuda ? "cuda_" : "cpu_") +
                                  std::string(to_string(table.param.type));
                         });

constexpr std::array<int64_t, 4> kRows = {1, 5, 33, 130};
struct Shape {
  int64_t n, k;
};
constexpr std::array<Shape, 4> kShapes = {{{40, 24}, {77, 200}, {160, 64}, {272, 520}}};

TEST_P(Operations, Embed) {
  for (const int64_t width : {40, 64, 200})
    expect_same([&](Side& s) {
      const LinearWeight table = s.weight(normal(77 * width, 1), 77);
      const Tensor ids = s.array(std::vector<int32_t>{0, 76, 16, 15, 76, 31});
      const Tensor y = s.poisoned(6, width, ElementType::f32);
      s.queue().embed(table, ids, 1.5f, y);
      return s.floats(y);
    });
}

TEST_P(Operations, Cast) {
  if (GetParam().type == DType::f32) return;  // never called
  expect_same([&](Side& s) {
    const Tensor y = s.poisoned(5, 40, s.act());
    s.queue().cast(s.f32_rows(normal(5 * 40, 2), 5), y);
    return s.floats(y);
  });
}

TEST_P(Operations, Rotations) {
  for (const double factor : {1.0, 0.7})
    expect_same([&](Side& s) {
      const std::vector<double> frequencies = {1.0, 0.3, 0.01, 1e-5, 2.5};
      const std::vector<int32_t> positions = {0, 1, 7, 100000, 3};
      const RopeTable table{s.poisoned(5, 5, ElementType::f32), s.poisoned(5, 5, ElementType::f32)};
      s.queue().rope_table(s.array(frequencies), factor, s.array(positions), table);
      Floats all = s.floats(table.cos);
      for (const float x : s.floats(table.sin))
        all.push_back(x);
      return all;
    });
}

TEST_P(Operations, Norms) {
  for (const int64_t dim : {40, 51, 4096})
    for (const bool layer : {false, true})
      for (const int form : {0, 1, 2, 3}) {  // f32 to act, act to act, in place, f32 in place
        SCOPED_TRACE(std::to_string(dim) + (layer ? " layer " : " rms ") + std::to_string(form));
        expect_same([&](Side& s) {
          const NormWeight weight{s.array(normal(dim, 3, 0.3f, 1)),
                                  layer ? s.array(normal(dim, 4)) : Tensor(), 1e-5f};
          const Floats values = normal(7 * dim, 5, 2, 0.5f);
          const Tensor x = form % 3 == 0 ? s.f32_rows(values, 7) : s.act_rows(values, 7);
          const Tensor y = form >= 2 ? x : s.poisoned(7, dim, s.act());
          s.queue().norm(weight, x, y);
          return s.floats(y);
        });
      }
}

TEST_P(Operations, Additions) {
  for (const int64_t dim : {40, 51, 4096})
    for (const bool fused : {false, true})
      expect_same([&](Side& s) {
        const Tensor x = s.f32_rows(normal(7 * dim, 5), 7);
        const Tensor y = s.matrix(normal(7 * dim, 6), 7, dim == 51 && !fused ? ElementType::f32 : s.act());
        const Tensor out = s.poisoned(7, dim, s.act());
        const NormWeight weight{s.array(normal(dim, 3, 0.3f, 1)), {}, 1e-5f};
        if (fused)
          s.queue().add_norm(x, y, 0.3f, weight, out);
        else
          s.queue().add(x, y, 0.3f);
        Floats all = s.floats(x);
        for (const float v : s.floats(out))
          all.push_back(v);
        return all;
      });
}

TEST_P(Operations, Linears) {
  for (const Shape& shape : kShapes)
    for (const int64_t rows : kRows)
      for (const bool wide : {false, true}) {
        const int64_t n = shape.n, k = shape.k;
        SCOPED_TRACE(std::to_string(n) + " x " + std::to_string(k) + ", " + std::to_string(rows));
        expect_same([&](Side& s) {
          const LinearWeight weight = s.weight(normal(n * k, 1, 1 / std::sqrt(static_cast<float>(k))), n,
                                               wide ? Floats() : normal(n, 2));
          const Tensor x = s.act_rows(normal(rows * k, 3), rows);
          const Tensor y = s.poisoned(rows, n, wide ? ElementType::f32 : s.act());
          s.queue().linear(weight, x, y);
          return s.floats(y);
        });
      }
}

TEST_P(Operations, GatedLinears) {
  const GatedActivation activations[] = {{Activation::silu},
                                         {Activation::gelu_tanh},
                                         {Activation::gelu},
                                         {Activation::relu},
                                         {Activation::silu, 7}};
  for (const Shape& shape : {Shape{2 * 20, 24}, Shape{2 * 51, 200}, Shape{2 * 64, 264}})
    for (const int64_t rows : kRows)
      for (const GatedActivation& activation : activations)
        expect_same([&](Side& s) {
          const int64_t n = shape.n, k = shape.k;
          const LinearWeight weight = s.weight(normal(n * k, 1, 2 / std::sqrt(static_cast<float>(k))), n,
                                               normal(n, 2), WeightUse::gated);
          const Tensor x = s.act_rows(normal(rows * k, 3), rows), out = s.poisoned(rows, n / 2, s.act());
          const Tensor wide = s.queue().needs_wide() ? s.poisoned(rows, n, s.act()) : Tensor();
          s.queue().gated_linear(weight, activation, x, wide, out);
          return s.floats(out);
        });
}

TEST_P(Operations, Activations) {
  for (const Activation f : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu})
    for (const int64_t dim : {40, 51, 20000})
      expect_same([&](Side& s) {
        const Tensor x = s.act_rows(normal(3 * dim, 4, 3), 3);
        s.queue().activate(f, x);
        return s.floats(x);
      });
}

TEST_P(Operations, Logits) {
  for (const LogitRule rule : {LogitRule{}, LogitRule{0.25f}, LogitRule{1.0f, 30.0f}, LogitRule{2.0f, 5.0f}})
    expect_same([&](Side& s) {
      const LinearWeight head = s.weight(normal(300 * 64, 1), 300);
      const Tensor x = s.act_rows(normal(9 * 64, 3), 9), y = s.poisoned(9, 300, ElementType::f32);
      s.queue().logits(head, x, rule, y);
      return s.floats(y);
    });
}

TEST_P(Operations, GatheredRows) {
  for (const bool residual : {false, true})
    expect_same([&](Side& s) {
      const Tensor x = s.matrix(normal(9 * 40, 3), 9, residual ? ElementType::f32 : s.act());
      const Tensor y = s.poisoned(3, 40, x.dtype);
      s.queue().gather_rows(x, s.array(std::vector<int32_t>{0, 4, 8}), y);
      return s.floats(y);
    });
}

struct AttentionCase {
  int heads, kv_heads, head_dim, pairs;
  int norm;  // 0 none, 1 each head, 2 all heads together
  bool interleaved, after_rope, temperature;
};

/// The prepared q and all of the cache; K and V of the qkv rows are not compared, as they may stay.
Floats run_attention_input(Side& s, const AttentionCase& c) {
  constexpr int kTokens = 7, kPage = 8, kPages = 3;
  ModelConfig config;
  config.num_layers = 1;
  config.layers.resize(1);
  config.num_heads = c.heads;
  config.num_kv_heads = c.kv_heads;
  config.head_dim = c.head_dim;
  auto cache = KvCache::create(kv_groups(config, KvCacheDType::float32, KvLayout::hnd, kPage), {kPages},
                               s.ops().device());
  EXPECT_TRUE(cache.ok());
  AttentionInput in;
  in.kv = cache->layer(0);
  const int64_t elements = kPages * in.kv.k_page_stride;
  const Floats unwritten(static_cast<size_t>(elements), NAN);
  for (const void* memory : {in.kv.k, in.kv.v})
    s.send(const_cast<void*>(memory), unwritten.data(), unwritten.size() * sizeof(float));
  in.qkv = s.act_rows(normal(int64_t{kTokens} * (c.heads + 2 * c.kv_heads) * c.head_dim, 9), kTokens);
  in.heads = c.heads;
  in.kv_heads = c.kv_heads;
  in.head_dim = c.head_dim;
  if (c.norm > 0) {
    const int of_q = c.norm == 1 ? 1 : c.heads, of_k = c.norm == 1 ? 1 : c.kv_heads;
    in.q_norm = {s.array(normal(of_q * c.head_dim, 3, 0.3f, 1)), {}, 1e-5f};
    in.k_norm = {s.array(normal(of_k * c.head_dim, 4, 0.3f, 1)), {}, 1e-5f};
    in.norm_after_rope = c.after_rope;
  }
  const std::vector<int32_t> positions = {5, 6, 7, 8, 30000, 0, 1};
  in.positions = s.array(positions);
  if (c.pairs > 0) {
    std::vector<double> frequencies;
    for (int i = 0; i < c.pairs; ++i)
      frequencies.push_back(std::pow(10000.0, -i / static_cast<double>(c.pairs)));
    in.rope = {s.poisoned(kTokens, c.pairs, ElementType::f32), s.poisoned(kTokens, c.pairs, ElementType::f32),
               c.interleaved};
    s.queue().rope_table(s.array(frequencies), 1.0, in.positions, in.rope);
  }
  if (c.temperature) {
    in.temperature_scale = 0.1;
    in.temperature_floor = 8;
  }
  in.slots = s.array(std::vector<int64_t>{5, 6, 7, 16, 17, -1, 23});
  s.queue().norm_rope_append(in);
  Floats all = s.floats(in.qkv.slice(1, 0, int64_t{c.heads} * c.head_dim));
  for (const void* memory : {in.kv.k, in.kv.v}) {
    Floats part(unwritten.size());
    s.receive(part.data(), memory, part.size() * sizeof(float));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST_P(Operations, AttentionInputs) {
  const AttentionCase cases[] = {
      {4, 2, 24, 12, 0, false, false, false},  {4, 4, 64, 32, 0, true, false, false},
      {8, 2, 128, 64, 1, false, false, false}, {4, 2, 16, 4, 2, false, false, false},
      {4, 2, 32, 16, 1, true, true, false},    {4, 1, 64, 0, 0, false, false, true},
      {4, 1, 80, 0, 0, false, false, false},   {2, 2, 256, 128, 1, false, false, false},
      {0, 4, 64, 0, 0, false, false, false}};
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE("head size " + std::to_string(c.head_dim) + ", norm " + std::to_string(c.norm));
    expect_same([&](Side& s) { return run_attention_input(s, c); });
  }
}

struct LatentCase {
  int heads, nope, rope, rank;
  bool interleaved;
};

/// The queries as they meet records, and all of the cache. Queries and records are parts of wider rows.
Floats run_latent(Side& s, const LatentCase& c) {
  constexpr int kTokens = 7, kPage = 8, kPages = 3;
  ModelConfig config;
  config.num_layers = 1;
  config.layers.resize(1);
  config.num_heads = c.heads;
  config.num_kv_heads = 1;
  config.mla = {c.rank, 0, c.nope, c.rope, 16};
  config.head_dim = config.mla.record();
  auto cache = KvCache::create(kv_groups(config, KvCacheDType::float32, KvLayout::hnd, kPage), {kPages},
                               s.ops().device());
  EXPECT_TRUE(cache.ok());
  const auto heads_of = [&](Tensor rows, int64_t dim) {
    rows.rank = 3;
    rows.shape = {kTokens, c.heads, dim};
    rows.strides = {rows.stride(0), dim, 1};
    return rows;
  };
  LatentInput in;
  in.kv = cache->layer(0);
  const Floats unwritten(static_cast<size_t>(kPages * in.kv.k_page_stride), NAN);
  s.send(const_cast<void*>(in.kv.k), unwritten.data(), unwritten.size() * sizeof(float));
  const int64_t queries = int64_t{c.heads} * (c.nope + c.rope);
  const Tensor rows = s.act_rows(normal(kTokens * (queries + config.head_dim), 9), kTokens);
  in.q = heads_of(rows.slice(1, 0, queries), c.nope + c.rope);
  in.record = rows.slice(1, queries, config.head_dim);
  const Tensor absorbed = s.poisoned(kTokens, int64_t{c.heads} * config.head_dim, s.act());
  in.absorbed = heads_of(absorbed, config.head_dim);
  std::vector<Floats> matrices;
  for (int h = 0; h < c.heads; ++h)
    matrices.push_back(normal(int64_t{c.rank} * c.nope, 20 + static_cast<uint32_t>(h), 0.2f));
  const auto up = s.weights(matrices, c.rank, std::vector<Floats>(matrices.size()), WeightUse::plain);
  s.queue().head_linear(up, in.q.slice(2, 0, c.nope), in.absorbed.slice(2, 0, c.rank));
  in.norm = {s.array(normal(c.rank, 3, 0.3f, 1)), {}, 1e-6f};
  std::vector<double> frequencies;
  for (int i = 0; i < c.rope / 2; ++i)
    frequencies.push_back(std::pow(10000.0, -2.0 * i / c.rope));
  const Tensor positions = s.array(std::vector<int32_t>{5, 6, 7, 8, 30000, 0, 1});
  in.rope = {s.poisoned(kTokens, c.rope / 2, ElementType::f32),
             s.poisoned(kTokens, c.rope / 2, ElementType::f32), c.interleaved};
  s.queue().rope_table(s.array(frequencies), 1.0, positions, in.rope);
  in.slots = s.array(std::vector<int64_t>{5, 6, 7, 16, 17, -1, 23});
  s.queue().latent_append(in);
  Floats all = s.floats(absorbed), records(unwritten.size());
  s.receive(records.data(), in.kv.k, records.size() * sizeof(float));
  all.insert(all.end(), records.begin(), records.end());
  return all;
}

TEST_P(Operations, LatentInputs) {
  for (const LatentCase& c : {LatentCase{4, 128, 64, 512, true}, LatentCase{3, 24, 32, 256, false},
                              LatentCase{16, 64, 64, 512, true}, LatentCase{1, 192, 64, 512, true}}) {
    SCOPED_TRACE("rank " + std::to_string(c.rank) + ", heads " + std::to_string(c.heads));
    expect_same([&](Side& s) { return run_latent(s, c); });
  }
}

// Choices among groups, with a bias, by scores of either kind.
TEST_P(Operations, RoutesAmongGroups) {
  struct Case {
    int experts, chosen, groups, top_groups, group_best;
    bool bias, renormalize;
  };
  for (const MoeRouter router : {MoeRouter::softmax_then_top, MoeRouter::sigmoid_then_top})
    for (const Case& c : {Case{256, 8, 8, 4, 2, true, true}, Case{160, 6, 8, 3, 1, false, false},
                          Case{384, 8, 1, 1, 2, true, true}, Case{12, 4, 4, 2, 2, true, false},
                          Case{64, 6, 1, 1, 1, false, false}, Case{1024, 32, 64, 16, 2, true, true}})
      expect_same([&](Side& s) {
        Floats values = normal(40 * c.experts, 3, 2), bias = normal(c.experts, 4, 0.5f, -0.4f);
        for (int i = 0; i < 4; ++i)
          values[static_cast<size_t>(i)] = 9, bias[static_cast<size_t>(i)] = 0.25f;  // ties
        RouteRule rule{.router = router,
                       .num_experts = c.experts,
                       .experts_per_token = c.chosen,
                       .renormalize = c.renormalize,
                       .bias = {},
                       .scale = 2.5f,
                       .groups = c.groups,
                       .top_groups = c.top_groups,
                       .group_best = c.group_best};
        if (c.bias) rule.bias = s.array(bias);
        const Routing routing{s.poisoned(40, c.chosen, ElementType::i32),
                              s.poisoned(40, c.chosen, ElementType::f32)};
        s.queue().route(rule, s.f32_rows(values, 40), routing);
        Floats all = s.floats(routing.weights);
        for (const int32_t id : s.values<int32_t>(routing.experts))
          all.push_back(static_cast<float>(id));
        return all;
      });
}

TEST_P(Operations, Routes) {
  for (const MoeRouter router :
       {MoeRouter::softmax_then_top, MoeRouter::top_then_softmax, MoeRouter::sigmoid_top})
    for (const auto& sizes : {std::pair{8, 2}, std::pair{128, 8}, std::pair{32, 4}, std::pair{16, 1}})
      for (const bool renormalize : {false, true})
        expect_same([&](Side& s) {
          const auto [experts, chosen] = sizes;
          Floats values = normal(40 * experts, 3, 2);
          for (int i = 0; i < 4; ++i)
            values[static_cast<size_t>(i)] = 9;  // ties
          const Routing routing{s.poisoned(40, chosen, ElementType::i32),
                                s.poisoned(40, chosen, ElementType::f32)};
          s.queue().route({.router = router,
                           .num_experts = experts,
                           .experts_per_token = chosen,
                           .renormalize = renormalize,
                           .bias = {}},
                          s.f32_rows(values, 40), routing);
          Floats all = s.floats(routing.weights);
          for (const int32_t id : s.values<int32_t>(routing.experts))
            all.push_back(static_cast<float>(id));
          return all;
        });
}

struct ExpertCase {
  int experts, chosen;
  int64_t hidden, intermediate, shared;  // shared 0 = none
  bool bias, scales_input;
  float limit;
};

Floats run_experts(Side& s, const ExpertCase& c, int64_t rows) {
  std::vector<Floats> gate_up, down, gate_up_bias, down_bias;
  const float in = 1.5f / std::sqrt(static_cast<float>(c.hidden)),
              between = 1.5f / std::sqrt(static_cast<float>(c.intermediate));
  for (uint32_t e = 0; e < static_cast<uint32_t>(c.experts); ++e) {
    gate_up.push_back(normal(2 * c.intermediate * c.hidden, 10 + e, in));
    down.push_back(normal(c.hidden * c.intermediate, 1000 + e, between));
    gate_up_bias.push_back(c.bias ? normal(2 * c.intermediate, 2000 + e, 0.3f) : Floats());
    down_bias.push_back(c.bias ? normal(c.hidden, 3000 + e, 0.3f) : Floats());
  }
  const auto placed_gate_up = s.weights(gate_up, 2 * c.intermediate, gate_up_bias, WeightUse::gated);
  const auto placed_down = s.weights(down, c.hidden, down_bias, WeightUse::plain);
  std::vector<GatedMlpWeights> experts;
  for (size_t e = 0; e < placed_down.size(); ++e)
    experts.push_back({placed_gate_up[e], placed_down[e]});
  ExpertWeights weights;
  weights.experts = experts;
  weights.activation.limit = c.limit;
  weights.scales_input = c.scales_input;
  if (c.shared > 0)
    weights.shared = {s.weight(normal(2 * c.shared * c.hidden, 5, in), 2 * c.shared, {}, WeightUse::gated),
                      s.weight(normal(c.hidden * c.shared, 6, between), c.hidden)};
  const Tensor x = s.act_rows(normal(rows * c.hidden, 7), rows), out = s.poisoned(rows, c.hidden, s.act());
  const Routing routing{s.poisoned(rows, c.chosen, ElementType::i32),
                        s.poisoned(rows, c.chosen, ElementType::f32)};
  Floats logits = normal(rows * c.experts, 8, 2);
  for (int64_t r = 0; r < rows; r += 3)
    logits[static_cast<size_t>(r * c.experts)] = 20;  // one expert gets many rows
  s.queue().route({.router = MoeRouter::top_then_softmax,
                   .num_experts = c.experts,
                   .experts_per_token = c.chosen,
                   .renormalize = true,
                   .bias = {}},
                  s.f32_rows(logits, rows), routing);
  const int64_t bytes = s.queue().expert_scratch(weights, c.chosen, rows);
  const Tensor scratch = s.poisoned(1, std::max<int64_t>(bytes, 1), ElementType::u8);
  s.queue().experts(weights, x, routing,
                    Tensor::dense(scratch.data, s.ops().device(), ElementType::u8, {bytes}), out);
  return s.floats(out);
}

TEST_P(Operations, Experts) {
  const ExpertCase cases[] = {{8, 2, 64, 48, 0, false, false, 0},
                              {16, 4, 128, 72, 0, true, false, 7},
                              {4, 1, 64, 64, 40, false, true, 0},
                              {32, 8, 256, 64, 96, false, false, 0}};
  for (const ExpertCase& c : cases)
    for (const int64_t rows : kRows) {
      SCOPED_TRACE(std::to_string(c.experts) + " experts, " + std::to_string(rows) + " rows");
      expect_same([&](Side& s) { return run_experts(s, c, rows); });
    }
}

TEST_P(Operations, Draws) {
  constexpr int64_t kDraws = 200, kVocab = 67, kWidth = 70, kSlots = 256;
  Floats logits = normal(kDraws * kWidth, 5, 3), temperature, top_p, min_p;
  std::vector<int32_t> slot, top_k;
  std::vector<int64_t> seed, position;
  for (int r = 0; r < kDraws; ++r) {
    slot.push_back(r % 10 == 9 ? -1 : static_cast<int>(kDraws) - r);
    temperature.push_back(std::array{0.0f, 1.0f, 0.4f, 1.7f}[static_cast<size_t>(r) % 4]);
    top_k.push_back(std::array{0, -1, 1, 5, 1000}[static_cast<size_t>(r) % 5]);
    top_p.push_back(std::array{1.0f, 0.9f, 0.3f}[static_cast<size_t>(r) % 3]);
    min_p.push_back(r % 7 == 0 ? 0.05f : 0.0f);
    seed.push_back(r / 3 - 20);
    position.push_back(r * int64_t{1} << 30);
    logits[static_cast<size_t>(r * kWidth + kVocab)] = NAN;
  }
  logits[13 * kWidth + 5] = NAN;
  logits[24 * kWidth] = INFINITY;
  std::fill_n(logits.begin() + 35 * kWidth, kVocab, -INFINITY);
  std::fill_n(logits.begin() + 40 * kWidth, kVocab, 1.0f);
  expect_same([&](Side& s) {
    const SampleRows rows{s.array(slot),  s.array(temperature), s.array(top_p),   s.array(min_p),
                          s.array(top_k), s.array(seed),        s.array(position)};
    const Tensor tokens = s.array(std::vector<int32_t>(kSlots, -7));
    s.queue().sample(s.f32_rows(logits, kDraws), kVocab, rows, tokens);
    std::vector<int32_t> from(kSlots, -1);
    for (int32_t i = 0; i < kSlots; i += 2)
      from[static_cast<size_t>(i)] = (i * 5) % kSlots;
    const Tensor taken = s.array(std::vector<int32_t>(kSlots, 99));
    s.queue().take_tokens(tokens, s.array(from), taken);
    Floats all;
    for (const Tensor& t : {tokens, taken})
      for (const int32_t id : s.values<int32_t>(t))
        all.push_back(static_cast<float>(id) * 1e3f);  // any other token is more than a rounding
    return all;
  });
}

TEST_P(Operations, WhatIsNotSupportedHasReasons) {
  if (!GetParam().cuda) return;
  for (const WeightUse use : {WeightUse::plain, WeightUse::gated})
    EXPECT_EQ(ops().supports(*ops().packed_format(use)).size(), 0u);
  WeightFormat format;
  format.stored = ElementType::i8;
  format.layout = WeightLayout::panels;
  format.scaled = true;
  EXPECT_EQ(ops().supports(format).size(), 3u);
  EXPECT_FALSE(make_cuda_ops(cpu_device(), GetParam().type).ok());
}

}  // namespace
}  // namespace fovea
