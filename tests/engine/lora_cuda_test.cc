// LoRA adapters on a GPU: logits are the CPU's, and bits depend on the request and its adapter alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "tests/engine/adapter_fixture.h"
#include "tests/engine/gpu_variants.h"
#include "tests/support/temp_dir.h"

namespace fovea {
namespace {

using namespace test;
using ::testing::HasSubstr;

class LoraOnGpu : public EngineOnGpu {
 protected:
  static bool latent(const std::string& model) { return model.find("_mla") != model.npos; }

  /// Adapters "a" to "e" of a model, of different ranks and modules.
  void write_adapters(const std::string& model) {
    const Weights weights = weights_of((fixtures() / model).string());
    const auto write = [&](const std::string& name, std::vector<std::string> modules,
                           const AdapterOptions& options) {
      if (latent(model)) {
        const std::vector<std::string> all = {"q_a_proj",  "q_b_proj", "kv_a_proj_with_mqa", "o_proj",
                                              "gate_proj", "up_proj",  "down_proj"};
        modules = name == "b"   ? std::vector<std::string>{"q_a_proj", "up_proj"}
                  : name == "c" ? std::vector<std::string>{"q_b_proj", "o_proj"}
                  : name == "e" ? std::vector<std::string>{"kv_a_proj_with_mqa", "down_proj"}
                                : all;
      }
      if (model.starts_with("mixtral"))
        for (std::string& module : modules)  // of experts
          module = module == "gate_proj"   ? "w1"
                   : module == "up_proj"   ? "w3"
                   : module == "down_proj" ? "w2"
                                           : module;
      (void)write_adapter(temp_, name, modules_of(weights, modules), options);
    };
    const std::string all = R"("all-linear")";
    write("a", kAll, {.targets = all});
    write("b", {"q_proj", "v_proj"}, {.rank = 16, .dtype = DType::bf16, .seed = 2, .targets = all});
    write("c", {"down_proj", "gate_proj"}, {.rank = 7, .seed = 3, .targets = all});
    write("d", kAll, {.rank = 64, .seed = 4, .targets = all});
    write("e", {"o_proj", "up_proj", "k_proj"}, {.rank = 33, .seed = 5, .targets = all});
  }
  void add_adapters(EngineConfig& c) const {
    for (const char* name : {"a", "b", "c", "d", "e"})
      c.lora.modules.push_back({name, temp_.path() + "/" + name});
  }
  /// Adapters in turn, and none.
  static std::vector<GenerateRequest> with_adapters(std::vector<GenerateRequest> requests) {
    const std::array<std::string, 6> names = {"", "a", "b", "c", "d", "e"};
    for (size_t i = 0; i < requests.size(); ++i)
      requests[i].lora = names[i % names.size()];
    return requests;
  }

  TempDir temp_;
};

/// Differences of the last logits, with an adapter and without.
struct Errors {
  double adapted = 0, base = 0, change = 0, size = 0;
};

double farthest(const std::vector<float>& a, const std::vector<float>& b) {
  double most = a.size() == b.size() && !a.empty() ? 0 : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    most = std::isnan(difference) ? INFINITY : std::max(most, difference);
  }
  return most;
}

Errors compare(Engine& cpu, Engine& gpu, const std::string& lora, uint32_t text) {
  GenerateRequest request;
  request.prompt_ids = prompt_of(37, text);
  for (int32_t& id : request.prompt_ids)
    id %= 90;
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 1;
  request.last_logits = true;
  const auto logits = [&](Engine& engine, const std::string& name) {
    request.lora = name;
    return run(engine, {request}, true)[0][0].last_logits;
  };
  const std::vector<float> base = logits(cpu, ""), want = logits(cpu, lora);
  Errors out;
  out.base = farthest(logits(gpu, ""), base);
  out.adapted = farthest(logits(gpu, lora), want);
  out.change = farthest(base, want);
  for (const float x : want)
    out.size = std::max(out.size, static_cast<double>(std::abs(x)));
  return out;
}

TEST_F(LoraOnGpu, LogitsAreTheCpus) {
  for (const char* name :
       {"llama3_gqa4_d16_bf16", "llama_bias_gqa2_d16_fp32", "llama32_gqa4_d64_fp16", "qwen3_gqa7_d128_bf16",
        "phi3_short_gqa2_d24_bf16", "gemma2_gqa2_d16_bf16", "granite_gqa2_d16_bf16", "olmo2_mha_d16_bf16",
        "mixtral_gqa2_d16_bf16", "qwen3moe_gqa2_d16_bf16", "deepseekv2_mla4_bf16", "deepseekv3_mla4_bf16"}) {
    write_adapters(name);
    EngineConfig host = config(name);
    host.device = {};
    host.kv_cache_dtype = KvCacheDType::float32;
    host.max_batched_tokens = 64;
    host.max_seq_len = 64;
    host.num_pages = 64;
    const bool experts = std::string(name).starts_with("mixtral") ||
                         std::string(name).find("moe") != std::string::npos || latent(name);
    // Phi-3 has none of the modules of the other adapters.
    const bool all = !std::string(name).starts_with("phi3");
    const std::vector<std::string> adapters =
        all ? std::vector<std::string>{"a", "b", "c", "d", "e"} : std::vector<std::string>{"a", "d"};
    for (const std::string& adapter : adapters)
      host.lora.modules.push_back({adapter, temp_.path() + "/" + adapter});
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      if (latent(name) && dtype != DType::bf16) continue;
      if (std::string(name).starts_with("gemma")) host.dtype = dtype;  // of its embeddings' factor
      const auto cpu = open(host);
      ASSERT_NE(cpu, nullptr);
      EngineConfig c = config(name, dtype);
      c.max_seq_len = 64;
      if (dtype == DType::f32) c.attention.backend = "TRITON_ATTN";
      c.lora = host.lora;
      const auto gpu = open(c);
      ASSERT_NE(gpu, nullptr);
      for (const std::string& adapter : adapters) {
        Errors e = compare(*cpu, *gpu, adapter, 3);
        // Where two experts have nearly equal scores, rounding can choose the other one: not in both texts.
        if (experts && dtype != DType::f32)
          if (const Errors other = compare(*cpu, *gpu, adapter, 4); other.adapted < e.adapted) e = other;
        std::printf("%-26s %-4s %s: logits up to %.3g, changed by %.3g, off by %.3g, without adapter %.3g\n",
                    name, std::string(to_string(dtype)).c_str(), adapter.c_str(), e.size, e.change, e.adapted,
                    e.base);
        const double unit = dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 0.01 : 0.06;
        EXPECT_LT(e.adapted, unit * e.size + 6 * e.base) << name << " " << adapter;
        EXPECT_GT(e.change, 0.05 * e.size);  // else the test could not fail
        EXPECT_LT(6 * e.base, e.change) << "in " << to_string(dtype) << " of " << name;
      }
    }
  }
}

const std::vector<Variant> kVariants = {
    {"as it is", [](EngineConfig&) {}},
    {"neither overlap nor graphs", [](EngineConfig& c) { c.overlap = c.cuda_graphs = false; }},
    {"graphs of 3 and 12", [](EngineConfig& c) { c.cuda_graph_bs = {3, 12}; }},
    {"chunks of 16, no cache",
     [](EngineConfig& c) {
       c.max_batched_tokens = 16;
       c.prefix_cache = false;
     }},
    {"chunks of 8192", [](EngineConfig& c) { c.max_batched_tokens = 8192; }},
    {"few pages, chunks of 33",
     [](EngineConfig& c) {
       c.num_pages = 768 / *c.attention.page_size;
       c.max_batched_tokens = 33;
     }},
    {"two slots", [](EngineConfig& c) { c.lora.max_loras = 2; }},
    {"one slot, few pages",
     [](EngineConfig& c) {
       c.lora.max_loras = 1;
       c.num_pages = 768 / *c.attention.page_size;
     }},
    {"ranks up to 512", [](EngineConfig& c) { c.lora.max_rank = 512; }},
    {"3 drafts of a model",
     [](EngineConfig& c) {
       c.speculative.method = DraftMethod::draft_model;
       c.speculative.model = c.model;
       c.speculative.num_tokens = 3;
       c.speculative.adaptive = false;
     }},
    {"5 drafts",
     [](EngineConfig& c) {
       c.speculative.method = DraftMethod::ngram;
       c.speculative.num_tokens = 5;
       c.speculative.prompt_lookup_min = 1;
       c.speculative.prompt_lookup_max = 4;
       c.speculative.adaptive = false;
     }},
};

TEST_F(LoraOnGpu, BitsDependOnTheRequestAndItsAdapterAlone) {
  for (const char* name :
       {"qwen3_gqa7_d128_bf16", "llama32_gqa4_d64_fp16", "deepseekv3_mla4_bf16", "mixtral_gqa2_d16_bf16"}) {
    write_adapters(name);
    const auto requests = with_adapters(mixed_requests(60, 5));
    EngineConfig base = config(name);
    add_adapters(base);
    const std::vector<Answers> want = answers_alone(base, requests);
    ASSERT_FALSE(HasFailure());
    expect_bytes(name, base, kVariants, requests, want, {.storm = true});
    // Rows without an adapter have the bits of an engine without adapters.
    EngineConfig plain = base;
    plain.lora = {};
    const auto engine = open(plain);
    ASSERT_NE(engine, nullptr);
    std::vector<GenerateRequest> without = requests;
    for (GenerateRequest& request : without)
      request.lora.clear();
    const auto got = run(*engine, without, false);
    int same = 0;
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i].lora.empty())
        EXPECT_EQ(got[i], want[i]) << "request " << i << " without an adapter";
      else
        same += got[i] == want[i];
    EXPECT_LT(same, 5);  // most requests are changed by their adapters
  }
}

TEST_F(LoraOnGpu, DraftHeadsChangeNoBit) {
  const std::string name = "llama3_gqa4_d16_bf16";
  write_adapters(name);
  const auto requests = with_adapters(mixed_requests(60, 5));
  EngineConfig base = config(name);
  add_adapters(base);
  const std::vector<Answers> want = answers_alone(base, requests);
  ASSERT_FALSE(HasFailure());
  std::vector<Variant> variants;
  for (const auto& [head, method] :
       {std::pair{"eagle3_bf16", DraftMethod::eagle3}, {"eagle1_bf16", DraftMethod::eagle}})
    variants.push_back({head, [folder = head, kind = method](EngineConfig& c) {
                          c.speculative.method = kind;
                          c.speculative.model = (source_folder("tests/draft_heads") / folder).string();
                          c.speculative.num_tokens = 4;
                          c.speculative.adaptive = false;
                        }});
  expect_bytes(name, base, variants, requests, want, {.storm = true});
}

TEST_F(LoraOnGpu, AdaptersComeAndGoWhileRequestsRun) {
  const std::string name = "qwen3_gqa7_d128_bf16";
  write_adapters(name);
  EngineConfig c = config(name);
  c.lora.enabled = true;
  c.lora.max_loras = 2;
  const auto engine = open(c);
  ASSERT_NE(engine, nullptr);
  const auto load = [&](const std::string& as, const std::string& folder) {
    const Status status = engine->load_lora({as, temp_.path() + "/" + folder});
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  };
  for (const char* folder : {"a", "b", "c", "d", "e"})
    load(folder, folder);
  GenerateRequest request;
  request.prompt_ids = prompt_of(30, 9);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  request.sampling.max_tokens = 100;
  request.sampling.logprobs = 2;
  std::vector<GenerateRequest> requests;
  for (const char* adapter : {"a", "b", "c", "d", "e"}) {
    request.lora = adapter;
    requests.push_back(request);
  }
  const auto want = run(*engine, requests, true);
  for (size_t i = 1; i < want.size(); ++i)
    EXPECT_NE(want[i][0].ids, want[0][0].ids);
  // Names change their folders while requests with the old ones run.
  std::vector<Answers> got(requests.size(), Answers(1));
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_TRUE(engine->submit(requests[i], into(got[i])).ok());
  for (const char* adapter : {"a", "b", "c", "d", "e"})
    EXPECT_TRUE(engine->unload_lora(adapter).ok());
  const std::string order = "bcdea";
  for (size_t i = 0; i < order.size(); ++i)
    load(requests[i].lora, order.substr(i, 1));
  const auto other = run(*engine, requests, false);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(got[i], want[i]) << i;
    EXPECT_EQ(other[i], want[(i + 1) % want.size()]) << i;
  }
  EngineConfig big = config(name);
  big.lora.enabled = true;
  big.lora.max_rank = 512;
  big.lora.max_loras = 1 << 16;
  big.max_running_requests = 1 << 16;
  big.max_batched_tokens = 1 << 16;
  const auto refused = Engine::create(big);
  if (!refused.ok()) {
    EXPECT_THAT(refused.error().message, HasSubstr("; "));
  }
}

}  // namespace
}  // namespace fovea
