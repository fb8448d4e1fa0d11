// Which attention backends serve a model, and why: for layers like gpt-oss's and for DeepSeek-V3's, on a CPU
// and on devices that this machine need not have. Nothing is run.
#include <fovea/attention.h>
#include <fovea/attention_backend.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

/// Half of the layers have full attention, half a window of 128; every head has a learned sink.
std::vector<fovea::AttentionSpec> gpt_oss() {
  fovea::AttentionSpec full;
  full.num_heads = 64;
  full.num_kv_heads = 8;
  full.head_dim = full.v_head_dim = 64;
  full.scale = 0.125f;
  full.dtype = fovea::DType::bf16;
  full.has_sink = true;
  fovea::AttentionSpec window = full;
  window.mask.window_left = 127;
  return {full, window};
}

/// Absorbed MLA: one KV head, 512 dimensions of the latent and 64 with RoPE.
std::vector<fovea::AttentionSpec> deepseek_v3() {
  fovea::AttentionSpec mla;
  mla.num_heads = 128;
  mla.num_kv_heads = 1;
  mla.head_dim = 576;
  mla.v_head_dim = 512;
  mla.mla_nope_head_dim = mla.mla_v_head_dim = 128;
  mla.mla_rope_head_dim = 64;
  mla.scale = 0.1352f;
  mla.dtype = fovea::DType::bf16;
  mla.use_mla = true;
  return {mla};
}

void show(const char* title, const fovea::AttentionConfig& config,
          const std::vector<fovea::AttentionSpec>& specs, const char* device) {
  std::printf("== %s on %s\n", title, device);
  const auto info = fovea::parse_device(device);
  if (!info) return void(std::printf("%s\n", info.error().message.c_str()));
  // select() requires a backend for every phase of every kind of layer ...
  const auto selection = fovea::select(config, specs, *info, fovea::builtin_backends());
  if (selection) return void(std::printf("%s\n\n", fovea::explain(*selection).c_str()));
  std::printf("%s\n", selection.error().message.c_str());
  // ... consider() also lists the other candidates, with every reason.
  if (const auto all = fovea::consider(config, specs, *info, fovea::builtin_backends()))
    std::printf("%s\n", fovea::explain_in_full(*all).c_str());
}

}  // namespace

int main() {
  using enum fovea::AttentionBackendEnum;
  show("gpt-oss, automatic", {}, gpt_oss(), "cpu");
  show("gpt-oss, a name for one kind",
       {.backend = CPU_ATTN, .backend_per_kind = {{fovea::LayerKind::full, TORCH_NATIVE}}}, gpt_oss(), "cpu");
  fovea::AttentionConfig config;
  config.backend = "prefill=fa,decode=fi,swa=triton";
  config.page_size = 64;
  config.sources = {{"backend", "--attention-backend"}, {"page_size", "--page-size"}};
  show("gpt-oss, a list", config, gpt_oss(), "sm90");
  show("DeepSeek-V3, TRTLLM_MLA and its partner", {.backend = TRTLLM_MLA}, deepseek_v3(), "sm100");
  show("DeepSeek-V3, a misspelt name", {.backend = "flash-mla"}, deepseek_v3(), "sm90");
}
