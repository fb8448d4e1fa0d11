// Models whose indexer chooses keys, on a GPU: the CPU's logits over the same records, and with records of
// fp8_ds_mla and index keys of codes answers whose bits depend on nothing but the request.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fovea/engine.h"
#include "tests/engine/gpu_requests.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace fovea {
namespace {

using namespace test;
using nlohmann::json;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Case {
  const char *model, *backend;
};

class SparseModel : public EngineOnGpu, public ::testing::WithParamInterface<Case> {
 protected:
  EngineConfig records(const EngineDevice& device) const {
    EngineConfig c = config(GetParam().model, DType::bf16);
    c.device = device.info;
    c.device_index = device.index;
    if (device.info.kind == DeviceKind::cuda) c.attention.backend = GetParam().backend;
    c.kv_cache_dtype = KvCacheDType::fp8_ds_mla;
    return c;
  }

  /// The model's first layer alone. Later ones have routers, which the rounding of a record makes choose
  /// other experts, so that logits of correct engines may differ by 5.
  std::string first_layer() {
    const fs::path from = fixtures() / GetParam().model;
    json fields = json::parse(bytes_of(from / "config.json"), nullptr, /*allow_exceptions=*/false);
    fields["num_hidden_layers"] = 1;
    for (const char* list : {"layer_types", "mlp_layer_types", "indexer_types"})
      if (const auto types = fields.find(list); types != fields.end())
        types->get_ref<json::array_t&>().resize(1);
    folder_.write("config.json", fields.dump());
    for (const char* name : {"generation_config.json", "tokenizer.json", "tokenizer_config.json"})
      folder_.write(name, bytes_of(from / name));
    const std::string all = bytes_of(from / "model.safetensors");
    uint64_t length = 0;
    std::memcpy(&length, all.data(), sizeof length);
    const json header = json::parse(all.substr(8, length), nullptr, /*allow_exceptions=*/false);
    SafetensorsWriter weights;
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__" ||
          (name.starts_with("model.layers.") && !name.starts_with("model.layers.0.")))
        continue;
      const auto range = tensor.at("data_offsets").get<std::array<uint64_t, 2>>();
      weights.add(name, tensor.at("dtype"), tensor.at("shape").get<std::vector<int64_t>>(),
                  all.substr(8 + length + range[0], range[1] - range[0]));
    }
    folder_.write("model.safetensors", weights.bytes());
    return folder_.path();
  }

  /// The last prompt tokens' logits.
  static std::vector<std::vector<float>> logits(const EngineConfig& c) {
    std::vector<GenerateRequest> requests(40);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].prompt_ids = prompt_of(static_cast<int>(1 + i * 7), static_cast<uint32_t>(i));
      requests[i].sampling.max_tokens = 1;
      requests[i].last_logits = true;
    }
    std::vector<std::vector<float>> rows;
    const auto engine = open(c);
    if (!engine) return rows;
    for (const Answers& answers : run(*engine, requests, false)) {
      EXPECT_EQ(answers[0].error, "");
      rows.push_back(answers[0].last_logits);
    }
    return rows;
  }

 private:
  TempDir folder_;
};

struct Differences {
  double median = 0, most = 0;  // of the prompts' largest differences
};

Differences compare(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b) {
  std::vector<double> rows;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    double worst = a[i].size() == b[i].size() && !a[i].empty() ? 0 : INFINITY;
    for (size_t t = 0; t < std::min(a[i].size(), b[i].size()); ++t) {
      const double difference = std::abs(double{a[i][t]} - double{b[i][t]});
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
    rows.push_back(worst);
  }
  if (rows.empty()) return {INFINITY, INFINITY};
  std::ranges::sort(rows);
  return {rows[rows.size() / 2], rows.back()};
}

/// A key, a scale or an element in the wrong place moves the median by more than 1. Rounding alone makes rows
/// choose other keys, which shows in the largest difference.
TEST_P(SparseModel, GivesTheCpusLogits) {
  const auto cpu = find_device("cpu");
  ASSERT_TRUE(cpu.ok());
  EngineConfig c = records(*cpu), on_gpu = records(device_);
  c.model = on_gpu.model = first_layer();
  for (const KvCacheDType dtype : {KvCacheDType::bfloat16, KvCacheDType::fp8_ds_mla}) {
    c.kv_cache_dtype = on_gpu.kv_cache_dtype = dtype;
    const Differences got = compare(logits(on_gpu), logits(c));
    std::printf("%-28s %-22s %-10s median %.3g, most %.3g\n", GetParam().model, GetParam().backend,
                std::string(to_string(dtype)).c_str(), got.median, got.most);
    EXPECT_LT(got.median, 0.4) << to_string(dtype);
  }
}

TEST_P(SparseModel, RecordsOfBytesDependOnNothingButTheRequest) {
  EngineConfig c = records(device_);
  const auto requests = mixed_requests(24, 9);
  std::vector<Answers> want;
  {
    const auto engine = open(c);
    ASSERT_NE(engine, nullptr);
    EXPECT_EQ(engine->info().kv_dtype, KvCacheDType::fp8_ds_mla);
    want = run(*engine, requests, true);
  }
  c.max_batched_tokens = 48;
  const auto engine = open(c);
  ASSERT_NE(engine, nullptr);
  EXPECT_EQ(run(*engine, requests, false), want);
}

constexpr const char *kV32 = "deepseekv32_topk16_mla4_bf16", *kGlm = "glmdsa_topk16_mla4_bf16";

/// On Hopper FLASHINFER_MLA_SPARSE runs the kernels of compute capability 8.0.
INSTANTIATE_TEST_SUITE_P(Models, SparseModel,
                         ::testing::Values(Case{kV32, "FLASHMLA_SPARSE"}, Case{kV32, "FLASHINFER_MLA_SPARSE"},
                                           Case{kGlm, "FLASHMLA_SPARSE"},
                                           Case{kGlm, "FLASHINFER_MLA_SPARSE"}),
                         [](const auto& test) {
                           return std::string(test.param.model) + "_" + test.param.backend;
                         });

}  // namespace
}  // namespace fovea
