#pragma once
// The problems of the device tests: lengths, groups, pages, masks.
#include <algorithm>

#include "device_case.h"

namespace fovea::cuda {

inline std::vector<Problem> decode_problems() {
  std::vector<Problem> all;
  Problem p;
  p.name = "decode lengths";
  for (const int n :
       {0, 1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1000, 1024, 1025, 0, 8191, 9000})
    p.seqs.push_back({1, n, static_cast<int>(p.seqs.size())});
  all.push_back(p);
  for (const int g : {1, 2, 3, 5, 7, 8, 12, 16}) {
    Problem x = p;
    x.name = "decode G=" + std::to_string(g);
    x.group = g;
    x.kv_heads = g == 1 ? 5 : 2;
    x.seqs = {{1, 100, 0}, {1, 1500, 1}, {1, 0, 2}, {1, 513, 3}};
    all.push_back(x);
  }
  for (const int page : {1, 3, 16, 64, 544}) {
    Problem x = p;
    x.name = "decode page " + std::to_string(page);
    x.page_size = page;
    x.heads_first = page == 64;
    x.sharp = 4;
    x.seqs = {{1, 777, 0}, {1, 1, 1}, {1, 2000, 2}};
    all.push_back(x);
  }
  Problem x = p;
  x.name = "decode of several tokens";
  x.seqs = {{4, 700, 0}, {3, 2, 1}, {0, 9, 2}, {4, 4, 3}, {2, 1500, 4}};
  all.push_back(x);
  x.name = "decode ragged, D 120";
  x.ragged = true;
  x.head_dim = x.v_head_dim = 120;
  all.push_back(x);
  return all;
}

inline std::vector<Problem> extend_problems(int head_dim) {
  std::vector<Problem> all;
  Problem p;
  p.head_dim = p.v_head_dim = head_dim;
  p.name = "extend mixed";
  p.seqs = {{1, 1, 0}, {7, 7, 1}, {64, 64, 2},   {65, 130, 3}, {0, 40, 4},
            {3, 0, 5}, {5, 2, 6}, {129, 400, 7}, {17, 513, 8}};
  for (const int g : {1, 3, 4, 8, 16}) {
    Problem x = p;
    x.group = g;
    x.name = "extend G=" + std::to_string(g);
    all.push_back(x);
  }
  for (const int page : {1, 3, 544}) {
    Problem x = p;
    x.page_size = page;
    x.heads_first = page == 3;
    x.name = "extend page " + std::to_string(page);
    all.push_back(x);
  }
  Problem x = p;
  x.ragged = true;
  x.sharp = 4;
  x.name = "extend ragged, sharp";
  all.push_back(x);
  x.mask.causal = false;
  x.name = "extend ragged, not causal";
  all.push_back(x);
  x.sinks = true;
  x.lse_includes_sink = true;
  x.name = "extend ragged, sinks";
  all.push_back(x);
  return all;
}

inline std::vector<Problem> with_dims(std::vector<Problem> all, int d, int dv) {
  for (Problem& p : all)
    p.head_dim = d, p.v_head_dim = dv;
  return all;
}

/// The heads of latent attention without absorption: each has keys of its own, K and V side by side. Contexts
/// are computed in chunks without a mask, some of them empty, and can have fewer keys than there are rows.
inline std::vector<Problem> latent_problems(int d, int dv) {
  std::vector<Problem> all;
  Problem p;
  p.head_dim = d, p.v_head_dim = dv;
  p.kv_heads = 5, p.group = 1;
  p.ragged = p.joined = true;
  p.seqs = {{200, 200, 0}, {1, 1, 1},     {0, 30, 2}, {65, 301, 3},
            {191, 192, 4}, {385, 400, 5}, {3, 0, 6},  {70, 9, 7}};
  p.name = "heads with their own keys, causal";
  all.push_back(p);
  p.mask.causal = false;
  p.name = "heads with their own keys, a chunk of the context";
  all.push_back(p);
  p.joined = false;
  p.sharp = 4;
  p.name = "heads with their own keys, K apart from V";
  all.push_back(p);
  p.mask.causal = true;
  p.kv_heads = 16;
  p.seqs = {{577, 577, 0}, {130, 700, 1}};
  p.name = "16 heads with their own keys";
  all.push_back(p);
  return all;
}

/// Every fourth problem, for kernel instances that differ in few lines.
inline std::vector<Problem> few(std::vector<Problem> all) {
  std::vector<Problem> some;
  for (size_t i = 0; i < all.size(); i += 4)
    some.push_back(all[i]);
  return some;
}

inline std::vector<Problem> eight_bit(std::vector<Problem> all, Element kv, bool scales) {
  for (Problem& p : all) {
    p.kv = kv;
    p.scales_per_token = scales;
    p.k_scale = scales ? 1.0f : 0.037f;
    p.v_scale = scales ? 1.0f : 0.021f;
    if (kv == Element::e4m3 && !scales) p.k_scale = 0.5f, p.v_scale = 0.25f;
    p.name += kv == Element::int8 ? " int8" : kv == Element::e4m3 ? " e4m3" : " e5m2";
    if (p.head_dim % 16 != 0) p.head_dim = p.v_head_dim = 112;
  }
  return all;
}

/// Every mask and every score modification, on a few shapes.
inline std::vector<Problem> general_problems(int n_q) {
  std::vector<Problem> all;
  Problem p;
  p.kv_heads = 2;
  p.group = 3;
  p.seqs = {{std::min(n_q, 1), 300, 0}, {n_q, 700, 1}, {n_q, n_q, 2}, {n_q, 2, 3}, {n_q, 0, 4}, {0, 5, 5}};
  auto add = [&](const char* name, auto&& change) {
    Problem x = p;
    x.name = std::string("general ") + name;
    change(x);
    all.push_back(x);
  };
  add("causal", [](Problem&) {});
  add("window 33, 0", [](Problem& x) { x.mask.window_left = 33; });
  add("window 5, 9",
      [](Problem& x) { x.mask.causal = false, x.mask.window_left = 5, x.mask.window_right = 9; });
  add("window and sink tokens", [](Problem& x) { x.mask.window_left = 40, x.mask.sink_tokens = 4; });
  // Tiles of all sizes that hold the keys of a chunk and sink tokens that the chunk hides.
  for (const int chunk : {40, 10})
    add("window, chunk and hidden sink tokens", [=](Problem& x) {
      x.page_size = 4;
      x.mask.window_left = 99, x.mask.chunk = chunk, x.mask.sink_tokens = 4;
      x.seqs = {{1, 15, 0}, {1, 60, 1}, {n_q, 60, 2}, {1, 100, 3}, {n_q, 100, 4}, {1, 300, 5}};
    });
  add("more sink tokens than a chunk", [](Problem& x) {
    x.page_size = 4;
    x.mask.window_left = 5, x.mask.chunk = 40, x.mask.sink_tokens = 90;
    x.seqs = {{1, 60, 0}, {1, 100, 1}, {1, 130, 2}};
  });
  add("chunk 100", [](Problem& x) { x.mask.chunk = 100; });
  add("softcap", [](Problem& x) { x.softcap = 5, x.sharp = 8; });
  add("sinks", [](Problem& x) { x.sinks = true; });
  add("sinks in lse", [](Problem& x) { x.sinks = x.lse_includes_sink = true; });
  add("alibi", [](Problem& x) { x.alibi = true; });
  add("alibi both ways", [](Problem& x) { x.alibi = true, x.mask.causal = false; });
  add("spans", [](Problem& x) { x.mask.spans = true; });
  add("spans and window", [](Problem& x) { x.mask.spans = true, x.mask.window_left = 20; });
  add("tree", [n_q](Problem& x) { x.mask.tree = true, x.tree_size = n_q; });
  add("packed mask", [](Problem& x) { x.mask.packed = true, x.mask.causal = false; });
  return all;
}

/// Values in the thousands, and scores that grow after the first tile: with 8-bit keys, their products with
/// the scales are near the limit of fp16.
inline std::vector<Problem> large_value_problems() {
  Problem p;
  p.name = "extend of large values";
  p.large = 1000;
  p.sharp = 4;
  p.seqs = {{70, 700, 0}, {5, 2000, 1}, {130, 130, 2}};
  return {p};
}

/// Long enough that the extend kernel splits its keys.
inline std::vector<Problem> split_problems() {
  Problem p;
  p.name = "extend in splits";
  p.kv_heads = 1;
  p.group = 2;
  p.seqs = {{3, 40000, 0}, {2, 16385, 1}, {5, 16384, 2}};
  return {p};
}

}  // namespace fovea::cuda
