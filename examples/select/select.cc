// Asks which attention backend serves a layer of Llama 3.1 8B, and why.
//
//   select [BACKEND [DEVICE]]     as --attention-backend and --device of `fovea explain` take them
#include <fovea/attention.h>
#include <fovea/attention_backend.h>

#include <cstdio>

int main(int argc, char** argv) {
  fovea::AttentionSpec layer;
  layer.num_heads = 32;
  layer.num_kv_heads = 8;
  layer.head_dim = layer.v_head_dim = 128;
  layer.scale = 0.088388f;  // 1 / sqrt(128)
  layer.dtype = fovea::DType::bf16;

  fovea::AttentionConfig config;
  config.backend = fovea::AttentionBackendEnum::CPU_ATTN;  // or "cpu", "auto", "fa,fi", "swa=triton"
  config.page_size = 16;                                   // a constraint; unset = the backend's preferred
  if (argc > 1) config.backend = argv[1];

  const auto device = fovea::parse_device(argc > 2 ? argv[2] : "cpu");
  if (!device) return std::fprintf(stderr, "error: %s\n", device.error().message.c_str()), 2;
  const auto chosen = fovea::select(config, layer, *device, fovea::builtin_backends());
  if (!chosen) return std::fprintf(stderr, "error: %s\n", chosen.error().message.c_str()), 2;
  std::printf("%s\npage size %d: %s\n", fovea::explain(*chosen).c_str(), chosen->page_size,
              chosen->page_size_why.c_str());
  return 0;
}
