#include "kernels/cuda/sm90/select.h"

#include <gtest/gtest.h>

namespace fovea::cuda::sm90 {
namespace {

std::string refusal(const Problem& p, KernelKind kind) {
  const auto info = select(p, kind);
  return info.ok() ? "" : info.error().message;
}

TEST(Sm90Select, SaysWhatItLacks) {
  struct Case {
    const char* what;
    void (*change)(Problem&);
  };
  for (const Case& c : {Case{"spans", [](Problem& p) { p.mask.spans = true; }},
                        Case{"packed masks", [](Problem& p) { p.mask.packed = true, p.mask.causal = false; }},
                        Case{"tree masks", [](Problem& p) { p.mask.tree = true; }},
                        Case{"ALiBi", [](Problem& p) { p.alibi = true; }},
                        Case{"scales of each head", [](Problem& p) { p.per_head_scales = true; }},
                        Case{"negative softmax scales", [](Problem& p) { p.negative_scale = true; }},
                        Case{"sink tokens below a window", [](Problem& p) {
                               p.mask.window_left = 9, p.mask.sink_tokens = 4;
                             }}}) {
    Problem p{QueryType::bf16, KvType::same, 128, 128, {}};
    c.change(p);
    EXPECT_EQ(refusal(p, KernelKind::decode), "the sm90 decode kernels have no " + std::string(c.what));
    EXPECT_EQ(refusal(p, KernelKind::extend), "the sm90 prefill kernels have no " + std::string(c.what));
  }
  EXPECT_EQ(refusal({QueryType::f32, KvType::same, 128, 128, {}}, KernelKind::extend_small),
            "queries are fp32; the sm90 prefill kernels take fp16 and bf16");
}

}  // namespace
}  // namespace fovea::cuda::sm90
