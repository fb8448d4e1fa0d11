#pragma once
// Examples of torch's FlexAttention documentation, and what FlashAttention's tests vary: each as expressions,
// and as its definition in C++.
#include <string>
#include <vector>

#include "flex/flex_attention_test_support.h"

namespace fovea::flex {

struct Example {
  std::string name, mask, score;
  MaskFunction mask_is;
  ScoreFunction score_is;
  bool aligned = false;  ///< needs n_q = n_k
};

/// Buffers that the examples read; for up to 640 positions, 3 sequences and 8 heads.
struct ExampleBuffers {
  std::vector<int32_t> doc, prefix, lengths, offsets;
  std::vector<float> bias, slopes, relative;
  std::vector<uint8_t> padding, dense;

  ExampleBuffers() {
    for (int i = 0; i < 640; ++i)
      doc.push_back(i < 100 ? 0 : i < 257 ? 1 : i < 300 ? 2 : 3);
    prefix = {70, 0, 200};
    lengths = {150, 640, 3};
    offsets = {0, 33, 64, 160, 300};
    for (int i = 0; i < 640 * 8; ++i)
      bias.push_back(static_cast<float>(i * 7919 % 1000) / 500.0f - 1.0f);
    for (int h = 0; h < 8; ++h)
      slopes.push_back(std::exp2(-static_cast<float>(h + 1)));
    for (int i = 0; i < 1279; ++i)
      relative.push_back(static_cast<float>(i * 613 % 211) / 100.0f - 1.0f);
    for (int i = 0; i < 3 * 640; ++i)
      padding.push_back(i * 31 % 7 != 0 ? 1 : 0);
    for (int i = 0; i < 640 * 640; ++i)
      dense.push_back(static_cast<uint8_t>(i * 2654435761u >> 29 & 1));
  }
  std::vector<FlexBuffer> all() const {
    return {integers("doc", doc),         integers("prefix", prefix),      integers("lengths", lengths),
            integers("offsets", offsets), reals("bias", bias, 8),          reals("slopes", slopes),
            reals("relative", relative),  booleans("padding", padding, 3), booleans("dense", dense, 640)};
  }
};

/// The offset of the first query is that of bottom-right alignment: n_k - n_q. `lens`: (n_q, n_k) by
/// sequence.
inline std::vector<Example> examples(const ExampleBuffers& x, std::vector<std::pair<int, int>> lens) {
  const auto doc = [&x](int i) { return x.doc[static_cast<size_t>(i)]; };
  const auto shift = [lens](int b) {
    return lens[static_cast<size_t>(b)].second - lens[static_cast<size_t>(b)].first;
  };
  std::vector<Example> all;
  // torch: documentation and attention-gym.
  all.push_back({"noop", "", "", {}, {}});
  all.push_back({"causal", "q >= k", "", [](int, int, int q, int k) { return q >= k; }, {}});
  all.push_back(
      {"causal by score", "", "q >= k ? s : -inf", [](int, int, int q, int k) { return q >= k; }, {}});
  all.push_back({"sliding window",
                 "q >= k && q - k <= 100",
                 "",
                 [](int, int, int q, int k) { return q >= k && q - k <= 100; },
                 {}});
  all.push_back({"prefix LM",
                 "k < prefix[b] || k <= q",
                 "",
                 [&x](int b, int, int q, int k) { return k < x.prefix[size_t(b)] || k <= q; },
                 {}});
  all.push_back(
      {"document", "doc[q] == doc[k]", "", [doc](int, int, int q, int k) { return doc(q) == doc(k); }, {}});
  all.push_back({"document, causal",
                 "k <= q && doc[q] == doc[k]",
                 "",
                 [doc](int, int, int q, int k) { return k <= q && doc(q) == doc(k); },
                 {}});
  all.push_back({"ALiBi", "", "s + slopes[h] * (k - q)", {}, [&x](double s, int, int h, int q, int k) {
                   return s + double{x.slopes[size_t(h)]} * (k - q);
                 }});
  all.push_back({"ALiBi by formula",
                 "",
                 "s + exp2(-((h + 1) * 8.0 / 8)) * (k - q)",
                 {},
                 [](double s, int, int h, int q, int k) { return s + std::exp2(-(h + 1)) * (k - q); }});
  all.push_back({"relative position", "", "s + (q - k)", {}, [](double s, int, int, int q, int k) {
                   return s + (q - k);
                 }});
  all.push_back({"relative position, causal", "q >= k", "s + (q - k)",
                 [](int, int, int q, int k) { return q >= k; },
                 [](double s, int, int, int q, int k) { return s + (q - k); }});
  all.push_back(
      {"learned relative bias", "", "s + relative[k - q + 639]", {}, [&x](double s, int, int, int q, int k) {
         return s + double{x.relative[size_t(k - q + 639)]};
       }});
  all.push_back({"bias by head and key", "", "s + bias[h, k]", {}, [&x](double s, int, int h, int, int k) {
                   return s + double{x.bias[size_t(h * 640 + k)]};
                 }});
  all.push_back({"soft cap", "", "20.0 * tanh(s / 20.0)", {}, [](double s, int, int, int, int) {
                   return 20 * std::tanh(s / 20);
                 }});
  all.push_back({"soft cap, causal", "k <= q", "0.5 * tanh(2 * s)",
                 [](int, int, int q, int k) { return k <= q; },
                 [](double s, int, int, int, int) { return 0.5 * std::tanh(2 * s); }});
  all.push_back({"NATTEN",
                 "abs(q // 20 - k // 20) <= 3 && abs(q % 20 - k % 20) <= 5",
                 "",
                 [](int, int, int q, int k) {
                   return std::abs(q / 20 - k / 20) <= 3 && std::abs(q % 20 - k % 20) <= 5;
                 },
                 {}});
  all.push_back({"NATTEN, clamped centre",
                 "abs(min(max(q // 20, 3), 12) - k // 20) <= 3 && abs(min(max(q % 20, 5), 14) - k % 20) <= 5",
                 "",
                 [](int, int, int q, int k) {
                   const int x0 = std::min(std::max(q / 20, 3), 12), y0 = std::min(std::max(q % 20, 5), 14);
                   return std::abs(x0 - k / 20) <= 3 && std::abs(y0 - k % 20) <= 5;
                 },
                 {}});
  all.push_back({"dilated window",
                 "abs(q - k) <= 60 && (q - k) % 3 == 0",
                 "",
                 [](int, int, int q, int k) { return std::abs(q - k) <= 60 && (q - k) % 3 == 0; },
                 {}});
  all.push_back({"global tokens",
                 "k < 4 || q < 4 || abs(q - k) < 30",
                 "",
                 [](int, int, int q, int k) { return k < 4 || q < 4 || std::abs(q - k) < 30; },
                 {}});
  all.push_back({"padding",
                 "padding[b, k]",
                 "",
                 [&x](int b, int, int, int k) { return x.padding[size_t(b * 640 + k)] != 0; },
                 {}});
  all.push_back({"any mask",
                 "dense[q, k]",
                 "",
                 [&x](int, int, int q, int k) { return x.dense[size_t(q * 640 + k)] != 0; },
                 {}});
  all.push_back({"head by head",
                 "h % 2 == 0 ? k <= q : q - k < 9 && k <= q",
                 "",
                 [](int, int h, int q, int k) { return k <= q && (h % 2 == 0 || q - k < 9); },
                 {}});
  all.push_back({"transfusion",
                 "k <= q || (q >= 40 && q < 170 && k >= 40 && k < 170)",
                 "",
                 [](int, int, int q, int k) { return k <= q || (q >= 40 && q < 170 && k >= 40 && k < 170); },
                 {}});
  all.push_back({"stand-alone causal pairs of bits",
                 "(q & k & 1) == 0",
                 "",
                 [](int, int, int q, int k) { return (q & k & 1) == 0; },
                 {}});
  all.push_back(
      {"squared ReLU logits", "", "max(s, 0.0) * max(s, 0.0)", {}, [](double s, int, int, int, int) {
         return std::max(s, 0.0) * std::max(s, 0.0);
       }});
  all.push_back({"score of a document id",
                 "",
                 "s + sqrt(float(doc[k])) - log2(doc[q] + 1)",
                 {},
                 [doc](double s, int, int, int q, int k) {
                   return s + std::sqrt(double(doc(k))) - std::log2(doc(q) + 1.0);
                 }});
  all.push_back({"hides by score", "", "s < 0 ? -inf : s", {}, [](double s, int, int, int, int) {
                   return s < 0 ? -INFINITY : s;
                 }});
  // FlashAttention: what its tests vary, bottom-right aligned.
  all.push_back({"FA causal",
                 "k <= q + klen - qlen",
                 "",
                 [shift](int b, int, int q, int k) { return k <= q + shift(b); },
                 {}});
  all.push_back(
      {"FA local",
       "k <= q + klen - qlen + 17 && k >= q + klen - qlen - 64",
       "",
       [shift](int b, int, int q, int k) { return k <= q + shift(b) + 17 && k >= q + shift(b) - 64; },
       {}});
  all.push_back({"FA ALiBi",
                 "",
                 "s - slopes[h] * abs(q + klen - qlen - k)",
                 {},
                 [&x, shift](double s, int b, int h, int q, int k) {
                   return s - double{x.slopes[size_t(h)]} * std::abs(q + shift(b) - k);
                 }});
  all.push_back({"FA soft cap, causal, ALiBi", "k <= q + klen - qlen",
                 "15 * tanh(s / 15) - slopes[h] * abs(q + klen - qlen - k)",
                 [shift](int b, int, int q, int k) { return k <= q + shift(b); },
                 [&x, shift](double s, int b, int h, int q, int k) {
                   return 15 * std::tanh(s / 15) - double{x.slopes[size_t(h)]} * std::abs(q + shift(b) - k);
                 }});
  all.push_back({"FA key padding",
                 "k < lengths[b]",
                 "",
                 [&x](int b, int, int, int k) { return k < x.lengths[size_t(b)]; },
                 {}});
  all.push_back(
      {"FA left padding, causal",
       "k <= q + klen - qlen && k >= prefix[b]",
       "",
       [&x, shift](int b, int, int q, int k) { return k <= q + shift(b) && k >= x.prefix[size_t(b)]; },
       {}});
  all.push_back({"FA chunked",
                 "k // 64 == (q + klen - qlen) // 64 && k <= q + klen - qlen",
                 "",
                 [shift](int b, int, int q, int k) {
                   return k <= q + shift(b) && k / 64 == (q + shift(b)) / 64 && q + shift(b) >= 0;
                 },
                 {}});
  all.push_back({"nothing", "false", "", [](int, int, int, int) { return false; }, {}});
  return all;
}

}  // namespace fovea::flex
