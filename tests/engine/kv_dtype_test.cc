// How much the KV cache's dtype and layout may change the logits of a whole model.
#include <cmath>
#include <fstream>
#include <sstream>

#include "files/safetensors.h"
#include "tests/engine/fixture.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace fovea::test {
namespace {

using enum KvCacheDType;

EngineConfig config_of(const std::string& model, KvCacheDType dtype,
                       const std::string& backend = "CPU_ATTN") {
  EngineConfig config = fixture_config(model, backend);
  config.kv_cache_dtype = dtype;
  return config;
}

/// The last logits of four prompts of 40 to 100 tokens, one row after the other.
std::vector<float> logits_of(const EngineConfig& config) {
  std::vector<float> all;
  const auto engine = make_engine(config);
  if (!engine) return all;
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < 4; ++i) {
    requests.push_back(greedy(prompt_of(40 + 20 * i, static_cast<uint32_t>(i + 1)), 0));
    requests.back().last_logits = true;
  }
  for (const Answer& answer : run_all(*engine, requests))
    all.insert(all.end(), answer.last.last_logits.begin(), answer.last.last_logits.end());
  return all;
}

double rms(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  EXPECT_FALSE(a.empty());
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    sum += std::pow(static_cast<double>(a[i]) - b[i], 2);
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, a.size())));
}

/// To first order the logits change in proportion to the errors of K and V, whose sizes the formats
/// determine. With 3, 2 and 7 bits of mantissa, the errors of e4m3 are 2^4 and those of e5m2 2^5 times those
/// of bf16. The rms error of an int8 row is amax / 127 / sqrt(12), against 2^-7 x 0.7 / sqrt(12) for bf16
/// (0.7: the mean of 1 / mantissa), and amax is at most sqrt(D) times the rms of the row: 1.4 sqrt(D) times
/// as much, 16 for D = 128 and 34 for a latent record of 576. Twice that is allowed.
TEST(KvDtype, LogitsAreAsNearToFp32AsTheFormatIs) {
  constexpr char kLatent[] = "deepseekv3_mla4_bf16";
  for (const std::string model : {kLlama, kQwen, kLatent}) {
    SCOPED_TRACE(model);
    const bool latent = model == kLatent;
    const std::string backend = latent ? "CPU_MLA" : "CPU_ATTN";
    const std::vector<float> exact = logits_of(config_of(model, float32, backend));
    const double bf16 = rms(logits_of(config_of(model, bfloat16, backend)), exact);
    ASSERT_GT(bf16, 0);
    for (const auto& [dtype, ratio] :
         {std::pair{fp8_e4m3, 16.0}, {fp8_e5m2, 32.0}, {int8_per_token_head, latent ? 34.0 : 16.0}}) {
      const double error = rms(logits_of(config_of(model, dtype, backend)), exact);
      EXPECT_LT(error, 2 * ratio * bf16) << to_string(dtype);
      EXPECT_GT(error, bf16) << to_string(dtype) << " can't be nearer than bf16: what was stored?";
    }
  }
}

/// Both backends read the same codes. Their rounding may occasionally flip a code of the next layer.
TEST(KvDtype, BackendsAgree) {
  const std::vector<float> exact = logits_of(config_of(kQwen, float32));
  for (const KvCacheDType dtype : {fp8_e4m3, fp8_e5m2, int8_per_token_head}) {
    const std::vector<float> cpu = logits_of(config_of(kQwen, dtype));
    EXPECT_LT(rms(cpu, logits_of(config_of(kQwen, dtype, "TORCH_NATIVE"))), 0.1 * rms(cpu, exact))
        << to_string(dtype);
  }
}

/// Records of bytes with index keys of bytes. A code that rounds the other way may change a choice of keys.
TEST(KvDtype, BackendsAgreeOnSparseRecords) {
  constexpr char kSparse[] = "deepseekv32_topk16_mla4_bf16";
  const std::vector<float> exact = logits_of(config_of(kSparse, float32, "CPU_MLA_SPARSE"));
  EngineConfig config = config_of(kSparse, fp8_ds_mla, "CPU_MLA_SPARSE");
  const std::vector<float> cpu = logits_of(config);
  const double error = rms(cpu, exact);
  EXPECT_GT(error, rms(logits_of(config_of(kSparse, bfloat16, "CPU_MLA_SPARSE")), exact));
  EXPECT_LT(error, 2.0) << "of logits with a deviation of about 3";
  EXPECT_LT(rms(cpu, logits_of(config_of(kSparse, fp8_ds_mla, "TORCH_NATIVE_MLA_SPARSE"))), 0.5 * error);
  config.attention.page_size = 3;
  EXPECT_TRUE(logits_of(config) == cpu) << "bits depend on the page size";
  const auto engine = make_engine(config);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->info().kv_bytes_per_token, 3 * (656 + 132));
}

TEST(KvDtype, LayoutsAndPagesChangeNoBit) {
  for (const KvCacheDType dtype : {float16, fp8_e4m3, int8_per_token_head}) {
    EngineConfig config = config_of(kQwen, dtype);
    const std::vector<float> want = logits_of(config);
    for (const KvLayout layout : {KvLayout::nhd, KvLayout::hnd, KvLayout::x_packed, KvLayout::shuffle})
      for (const int page : {1, 3, 16}) {
        if (layout == KvLayout::shuffle && page != 16) continue;
        config.kv_layout = layout;
        config.attention.page_size = page;
        EXPECT_TRUE(logits_of(config) == want) << to_string(dtype) << ' ' << to_string(layout) << ' ' << page;
      }
  }
}

TEST(KvDtype, InfoAndSizes) {
  const auto engine = make_engine(config_of(kLlama, fp8_e5m2));
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(engine->info().kv_dtype, fp8_e5m2);
  EXPECT_EQ(engine->info().kv_layout, KvLayout::hnd);
  const auto wide = make_engine(config_of(kLlama, bfloat16));
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(2 * engine->info().kv_bytes_per_token, wide->info().kv_bytes_per_token);
}

TEST(KvDtype, PackedLayoutNeedsADivisibleHeadSize) {
  EngineConfig config = config_of("llama_linear_gqa3_d24_fp16", fp8_e4m3);
  config.kv_layout = KvLayout::x_packed;
  const auto engine = Engine::create(config);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.error().message.find("multiple of 16"), std::string::npos) << engine.error().message;
  EXPECT_NE(engine.error().message.find("--kv-layout hnd"), std::string::npos) << engine.error().message;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The Llama fixture with one K and one V scale for all of its layers.
void write_scaled(const TempDir& dir, float k, float v) {
  const std::string from = fixture_dir(kLlama) + "/";
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"})
    dir.write(name, read_file(from + name));
  const std::string bytes = read_file(from + "model.safetensors");
  const auto entries = parse_safetensors(std::as_bytes(std::span(bytes)), "fixture");
  ASSERT_TRUE(entries.ok());
  SafetensorsWriter writer;
  for (const SafetensorsEntry& e : *entries)
    writer.add(e.name, std::string(e.type.name), {e.shape.begin(), e.shape.end()},
               bytes.substr(e.begin, e.end - e.begin));
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".self_attn.";
    writer.add(prefix + "k_scale", {}, {k}, DType::f32);
    writer.add(prefix + "v_scale", {}, {v}, DType::f32);
  }
  dir.write("model.safetensors", writer.bytes());
}

TEST(KvDtype, TheCheckpointsScalesAreUsed) {
  const std::vector<float> exact = logits_of(config_of(kLlama, float32));
  const double plain = rms(logits_of(config_of(kLlama, fp8_e4m3)), exact);
  const auto error = [&](float k, float v, KvCacheDType dtype) {
    TempDir dir;
    write_scaled(dir, k, v);
    EngineConfig config = config_of(kLlama, dtype);
    config.model = dir.path();
    return rms(logits_of(config), exact);
  };
  EXPECT_LT(error(0.03f, 0.011f, fp8_e4m3), 2 * plain) << "sensible scales only move the codes";
  EXPECT_GT(error(0.03f, 1e6f, fp8_e4m3), 3 * plain) << "every V becomes 0";
  EXPECT_GT(error(1e-6f, 0.03f, fp8_e4m3), 3 * plain) << "every K is cut off";
  EXPECT_EQ(error(1e-6f, 1e6f, float32), 0) << "fp32 has no scales";
  EXPECT_LT(error(1e-6f, 1e6f, int8_per_token_head), 2 * plain) << "nor does int8 with its own";
}

}  // namespace
}  // namespace fovea::test
