#include "compat/pages/refusals.h"

#include <functional>
#include <utility>

#include "compat/pages/example_layers.h"
#include "fovea/attention_config.h"
#include "fovea/result.h"

namespace fovea::docs {
namespace {

struct Example {
  std::string_view name;
  AttentionConfig config;
  AttentionSpec spec;
  std::string_view device;
};

AttentionConfig named(BackendName backend) {
  AttentionConfig config;
  config.backend = std::move(backend);
  config.sources["backend"] = "--attention-backend";
  return config;
}

AttentionConfig with_page(AttentionConfig config, int page_size) {
  config.page_size = page_size;
  config.sources["page_size"] = "--page-size";
  return config;
}

AttentionSpec with_kv(AttentionSpec spec, KvCacheDType dtype) {
  spec.kv_dtype = dtype;
  return spec;
}

std::vector<Example> examples() {
  return {
      {"flashmla", named("FLASHMLA"), deepseek_v3(), "sm80"},
      {"absent", named("fa4"), llama_8b(), "sm100"},
      {"unknown", named("FlashAttn"), llama_8b(), "cpu"},
      {"page_size", with_page(named("CPU_ATTN"), 2048), llama_8b(), "cpu"},
      {"kv_dtype", named("CPU_ATTN"), with_kv(llama_8b(), KvCacheDType::nvfp4), "cpu"},
      {"sink", named("FLEX_ATTENTION"), gpt_oss_window(), "sm90"},
      {"pair", named("auto,fi"), llama_8b(), "cpu"},
      {"mla", named("CPU_ATTN"), deepseek_v3(), "cpu"},
  };
}

}  // namespace

Status add_refusals(Values& values) {
  for (const Example& example : examples()) {
    FOVEA_TRY(text, refusal(example.config, example.spec, example.device));
    values["error:" + std::string(example.name)] = text;
  }
  return {};
}

}  // namespace fovea::docs
