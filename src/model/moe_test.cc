#include "model/moe.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "base/thread_pool.h"
#include "model/decoder_forward.h"
#include "model/moe_test_support.h"
#include "ops/cpu_ops.h"

namespace fovea {
namespace {

using test::Floats;
using test::kMoePrefix;
using test::MoeWriter;
using test::PlainMoe;

struct Variant {
  const char* name;
  MoeLayout layout;
  MoeRouter router;
  bool fused, renormalize, mxfp4;
  DType dtype;
};

constexpr auto kSoftmax = MoeRouter::softmax_then_top;
const Variant kVariants[] = {
    {"mixtral", MoeLayout::mixtral, kSoftmax, false, true, false, DType::bf16},
    {"mixtral_fused", MoeLayout::mixtral, kSoftmax, true, true, false, DType::f16},
    {"qwen3", MoeLayout::qwen3, kSoftmax, false, true, false, DType::bf16},
    {"qwen3_plain_weights", MoeLayout::qwen3, kSoftmax, false, false, false, DType::f32},
    {"qwen3_fused", MoeLayout::qwen3, kSoftmax, true, true, false, DType::bf16},
    {"gpt_oss", MoeLayout::gpt_oss, MoeRouter::top_then_softmax, true, false, false, DType::bf16},
    {"gpt_oss_fp32", MoeLayout::gpt_oss, MoeRouter::top_then_softmax, true, false, false, DType::f32},
    {"gpt_oss_mxfp4", MoeLayout::gpt_oss, MoeRouter::top_then_softmax, true, false, true, DType::bf16},
    {"llama4", MoeLayout::llama4, MoeRouter::sigmoid_top, true, false, false, DType::bf16},
};

ModelConfig config_of(const Variant& v) {
  ModelConfig c;
  c.hidden_size = v.mxfp4 ? 96 : 70;  // beyond one tile of a transposed tensor
  c.moe.num_experts = 9;
  c.moe.experts_per_token = 3;
  c.moe.intermediate_size = v.mxfp4 ? 64 : 51;
  c.moe.router = v.router;
  c.moe.layout = v.layout;
  c.moe.renormalize = v.renormalize;
  c.moe.mxfp4 = v.mxfp4;
  c.moe.swiglu_limit = v.layout == MoeLayout::gpt_oss ? 1.5f : 0;  // low, so that it clamps often
  c.moe.shared_intermediate_size = v.layout == MoeLayout::llama4 ? 61 : 0;
  return c;
}

struct Loaded {
  Status status;
  MoeBlock block;
  int64_t planned = 0;
  std::vector<std::string> unused;
};

Loaded load(const ModelConfig& config, const std::string& dir, std::optional<DType> dtype = {}) {
  ThreadPool pool(3);
  Loaded out;
  auto checkpoint = Checkpoint::open(dir);
  if (!checkpoint) {
    out.status = checkpoint.error();
    return out;
  }
  WeightReader reader(std::make_shared<Checkpoint>(*std::move(checkpoint)), nullptr, dtype, pool);
  read_moe(kMoePrefix, config, reader);
  out.planned = reader.planned_bytes();
  for (const auto name : reader.unused())
    out.unused.emplace_back(name);
  reader.set_mode(WeightReader::Mode::load);
  out.block = read_moe(kMoePrefix, config, reader);
  out.status = reader.status();
  return out;
}

Floats random_rows(size_t rows, const ModelConfig& config, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats x(rows * static_cast<size_t>(config.hidden_size));
  for (float& v : x)
    v = normal(random);
  return x;
}

/// A layer with scratch for up to `max_rows` rows.
class MoeRunner {
 public:
  MoeRunner(const MoeBlock& block, const ModelConfig& config, int64_t max_rows, int threads)
      : hidden_(config.hidden_size), max_rows_(max_rows), pool_(threads), stream_(pool_) {
    WeightPlacement host;
    placed_ = place(block, host);
    Arena dry = Arena::dry_run(cpu_device());
    OpQueue queue = OpQueue::dry_run(cpu_ops());
    const Tensor rows = Tensor::dense(nullptr, cpu_device(), ElementType::f32, {max_rows, hidden_});
    moe_forward(placed_, rows, rows, max_rows, dry, queue);
    arena_.emplace(cpu_device(), dry.peak());
  }
  Floats run(const Floats& x) {
    const auto rows = static_cast<int64_t>(x.size()) / hidden_;
    Floats out(x.size(), std::numeric_limits<float>::quiet_NaN());
    OpQueue queue(cpu_ops(), stream_);
    moe_forward(placed_, host_tensor(x.data(), rows, hidden_), host_tensor(out.data(), rows, hidden_),
                max_rows_, *arena_, queue);
    EXPECT_TRUE(queue.status().ok());
    return out;
  }
  size_t scratch_bytes() const { return arena_->bytes(); }

 private:
  int64_t hidden_, max_rows_;
  ThreadPool pool_;
  Stream stream_;
  PlacedMoe placed_;
  std::optional<Arena> arena_;
};

Floats run(const MoeBlock& block, const ModelConfig& config, const Floats& x, int threads) {
  return MoeRunner(block, config, static_cast<int64_t>(x.size()) / config.hidden_size, threads).run(x);
}

Floats row_of(const Floats& values, const ModelConfig& config, size_t row) {
  const auto hidden = static_cast<std::ptrdiff_t>(config.hidden_size);
  const auto first = values.begin() + static_cast<std::ptrdiff_t>(row) * hidden;
  return Floats(first, first + hidden);
}

void expect_near(const Floats& got, const Floats& x, const PlainMoe& plain) {
  const auto hidden = static_cast<size_t>(plain.config.hidden_size);
  double spread = 0;
  for (size_t row = 0; row * hidden < x.size(); ++row) {
    const auto expected = test::plain_moe(plain, x.data() + row * hidden);
    for (size_t i = 0; i < hidden; ++i) {
      ASSERT_NEAR(got[row * hidden + i], expected[i], 1e-5 * std::max(1.0, std::fabs(expected[i])))
          << row << " " << i;
      spread = std::max(spread, std::fabs(expected[i]));
    }
  }
  EXPECT_GT(spread, 0.3);  // otherwise the comparison is meaningless
}

class MoeTest : public testing::TestWithParam<Variant> {
 protected:
  MoeTest() : config_(config_of(GetParam())), plain_(test::random_moe(config_, 1)) {}
  MoeWriter writer() const { return MoeWriter(plain_, GetParam().dtype, GetParam().fused); }
  MoeBlock good(std::optional<DType> dtype = {}) {
    writer().write(dir_);
    Loaded loaded = load(config_, dir_.path(), dtype);
    EXPECT_TRUE(loaded.status.ok()) << loaded.status.error().message;
    EXPECT_TRUE(loaded.unused.empty());
    return std::move(loaded.block);
  }

  test::TempDir dir_;
  ModelConfig config_;
  PlainMoe plain_;
};
INSTANTIATE_TEST_SUITE_P(Variants, MoeTest, testing::ValuesIn(kVariants),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST_P(MoeTest, MatchesTheDefinition) {
  const MoeBlock block = good();
  const Floats x = random_rows(37, config_, 2);
  expect_near(run(block, config_, x, 2), x, plain_);
}

TEST_P(MoeTest, ARowsBitsDependOnTheRowOnly) {
  const MoeBlock block = good();
  const Floats row = random_rows(1, config_, 3);
  const Floats expected = run(block, config_, row, 1);
  std::mt19937 random(4);
  for (const size_t rows : {2u, 5u, 60u, 700u}) {
    Floats x = random_rows(rows, config_, 5 + static_cast<uint32_t>(rows));
    std::vector<size_t> places = {0, rows - 1, random() % rows};
    for (const size_t place : places)
      std::ranges::copy(row, x.begin() + static_cast<std::ptrdiff_t>(place * row.size()));
    for (const int threads : {1, 3}) {
      const Floats out = run(block, config_, x, threads);
      for (const size_t place : places)
        ASSERT_EQ(row_of(out, config_, place), expected) << rows << " rows, " << threads << " threads";
    }
  }
}

TEST_P(MoeTest, AllRowsToTheSameExperts) {
  // 600 equal rows: three experts get more than two blocks of rows each, six get none.
  const MoeBlock block = good();
  const Floats row = random_rows(1, config_, 6);
  const Floats expected = run(block, config_, row, 1);
  expect_near(expected, row, plain_);
  Floats x;
  for (int i = 0; i < 600; ++i)
    x.insert(x.end(), row.begin(), row.end());
  const Floats out = run(block, config_, x, 3);
  for (size_t i = 0; i < 600; ++i)
    ASSERT_EQ(row_of(out, config_, i), expected) << i;
}

TEST_P(MoeTest, EqualLogitsGoToTheLowerIds) {
  std::ranges::fill(plain_.router, 0.0f);
  std::ranges::fill(plain_.router_bias, 0.25f);
  const MoeBlock block = good();
  const Floats x = random_rows(5, config_, 7);
  const Floats out = run(block, config_, x, 2);
  expect_near(out, x, plain_);
  // The weights of unused experts have no effect.
  for (size_t e = 3; e < plain_.experts.size(); ++e)
    std::ranges::fill(plain_.experts[e].down, 0.5f);
  if (!config_.moe.mxfp4) {
    EXPECT_EQ(run(good(), config_, x, 2), out);
  }
}

TEST_P(MoeTest, ScratchIsReused) {
  const MoeBlock block = good();
  MoeRunner runner(block, config_, 40, 2);
  EXPECT_GT(runner.scratch_bytes(), 40u * 4 * 9);
  for (const size_t rows : {40u, 1u, 17u, 2u}) {
    const Floats x = random_rows(rows, config_, 8 + static_cast<uint32_t>(rows));
    EXPECT_EQ(runner.run(x), run(block, config_, x, 1)) << rows;
  }
}

TEST_P(MoeTest, NanStaysInItsRow) {
  const MoeBlock block = good();
  Floats x = random_rows(3, config_, 9);
  const Floats before = run(block, config_, x, 1);
  x[static_cast<size_t>(config_.hidden_size) + 4] = NAN;
  const Floats out = run(block, config_, x, 1);
  EXPECT_EQ(row_of(out, config_, 0), row_of(before, config_, 0));
  EXPECT_EQ(row_of(out, config_, 2), row_of(before, config_, 2));
  for (const float v : row_of(out, config_, 1))
    EXPECT_TRUE(std::isnan(v));
}

TEST_P(MoeTest, CountsTheActiveExpertsOnly) {
  writer().write(dir_);
  const Loaded loaded = load(config_, dir_.path());
  const MoeBlock& block = loaded.block;
  const int64_t fixed = block.router.bytes() + block.shared.bytes(), all = block.bytes() - fixed;
  EXPECT_EQ(block.bytes_per_token() - fixed, all * 3 / 9);
  EXPECT_LE(loaded.planned, block.bytes());  // packing pads
  EXPECT_GT(loaded.planned, block.bytes() / 3);
}

TEST_P(MoeTest, OtherDtypes) {
  const Floats x = random_rows(11, config_, 10);
  const Floats stored = run(good(), config_, x, 2);
  EXPECT_EQ(run(good(DType::f32), config_, x, 2), stored);
  EXPECT_EQ(run(good(DType::bf16), config_, x, 2), stored);  // bf16 represents the weights exactly
  const Floats half = run(good(DType::f16), config_, x, 2);
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(half[i], stored[i], 2e-2) << i;
}

TEST_P(MoeTest, DummyWeightsDiffer) {
  ThreadPool pool(2);
  WeightReader reader(nullptr, std::make_shared<DummyWeights>(1, DType::bf16), {}, pool);
  read_moe(kMoePrefix, config_, reader);
  EXPECT_GT(reader.planned_bytes(), 0);
  reader.set_mode(WeightReader::Mode::load);
  const MoeBlock block = read_moe(kMoePrefix, config_, reader);
  ASSERT_TRUE(reader.status().ok());
  Floats first(static_cast<size_t>(config_.hidden_size)), second(first.size());
  block.experts[0].gate_up.weight.unpack_row(0, first.data());
  block.experts[1].gate_up.weight.unpack_row(0, second.data());
  EXPECT_NE(first, second);
  for (const float y : run(block, config_, random_rows(4, config_, 11), 2))
    EXPECT_TRUE(std::isfinite(y));
}

testing::AssertionResult refused(const Loaded& loaded, const std::vector<std::string>& parts) {
  if (loaded.status) return testing::AssertionFailure() << "was loaded";
  const std::string& message = loaded.status.error().message;
  if (message.find('\n') != message.npos) return testing::AssertionFailure() << message;
  for (const auto& part : parts)
    if (message.find(part) == message.npos)
      return testing::AssertionFailure() << "\"" << message << "\" doesn't mention \"" << part << "\"";
  return testing::AssertionSuccess();
}

TEST_P(MoeTest, MissingAndMisshapenTensorsAreNamed) {
  for (const auto& raw : writer().tensors) {
    MoeWriter without = writer();
    without.erase(raw.name);
    without.write(dir_);
    EXPECT_TRUE(refused(load(config_, dir_.path()), {"missing", raw.name}));

    MoeWriter bent = writer();
    std::swap(bent.at(raw.name).shape.front(), bent.at(raw.name).shape.back());
    if (raw.shape.front() == raw.shape.back()) bent.at(raw.name).shape.push_back(1);
    bent.write(dir_);
    EXPECT_TRUE(refused(load(config_, dir_.path()), {raw.name, "shape"}));

    MoeWriter typed = writer();
    typed.at(raw.name).type = raw.type == "U8" ? "I8" : raw.type == "F32" ? "I32" : "I16";
    typed.write(dir_);
    EXPECT_TRUE(refused(load(config_, dir_.path()), {raw.name, "dtype I"}));
  }
}

Loaded load_with(const ModelConfig& config, const MoeWriter& writer, std::optional<DType> dtype = {}) {
  test::TempDir dir;
  writer.write(dir);
  return load(config, dir.path(), dtype);
}

TEST(MoeLayouts, OneModelHasTheSameBitsInAnyLayout) {
  for (const size_t v : {0u, 2u}) {  // mixtral, qwen3
    const ModelConfig config = config_of(kVariants[v]);
    const PlainMoe plain = test::random_moe(config, 12);
    const Floats x = random_rows(7, config, 13);
    const Loaded single = load_with(config, MoeWriter(plain, DType::bf16, false)),
                 fused = load_with(config, MoeWriter(plain, DType::bf16, true));
    EXPECT_EQ(run(single.block, config, x, 2), run(fused.block, config, x, 2));
  }
}

class Mxfp4Experts : public testing::Test {
 protected:
  Mxfp4Experts() : config_(config_of(kVariants[7])), plain_(test::random_moe(config_, 14)) {}
  MoeWriter writer() const { return MoeWriter(plain_, DType::bf16, true); }
  ModelConfig config_;
  PlainMoe plain_;
};

TEST_F(Mxfp4Experts, HaveTheBitsOfTheirDecodedForm) {
  const Floats x = random_rows(7, config_, 15);
  const Floats out = run(load_with(config_, writer()).block, config_, x, 2);
  ModelConfig decoded = config_;
  decoded.moe.mxfp4 = false;
  PlainMoe plain = plain_;
  plain.config = decoded;
  EXPECT_EQ(run(load_with(decoded, MoeWriter(plain, DType::bf16, true)).block, decoded, x, 2), out);
  // The config declares MXFP4 but the experts are unquantised (modules_to_not_convert).
  EXPECT_EQ(run(load_with(config_, MoeWriter(plain, DType::bf16, true)).block, config_, x, 2), out);
}

TEST_F(Mxfp4Experts, ScalesThatAreNoNumberAreErrors) {
  for (const std::string name : {"gate_up_proj_scales", "down_proj_scales"}) {
    MoeWriter nan = writer();
    nan.at(name).bytes[100] = static_cast<char>(255);
    EXPECT_TRUE(refused(load_with(config_, nan), {name, "holds 255 for block 100"}));
  }
  MoeWriter large = writer();
  large.at("down_proj_scales").bytes[5] = static_cast<char>(254);
  large.at("down_proj_blocks").bytes[5 * 16] = 0x07;
  EXPECT_TRUE(refused(load_with(config_, large), {"down_proj_scales", "holds 254 for block 5", "bfloat16"}));
}

TEST_F(Mxfp4Experts, OverflowInFloat16IsAnError) {
  MoeWriter large = writer();
  large.at("down_proj_scales").bytes[5] = static_cast<char>(127 + 14);
  large.at("down_proj_blocks").bytes[5 * 16] = 0x06;  // 4 * 2^14 = 65536
  EXPECT_TRUE(load_with(config_, large).status.ok());
  EXPECT_TRUE(refused(load_with(config_, large, DType::f16), {"down_proj_blocks", "float16", "bfloat16"}));
}

TEST(MoeLoad, OverflowInOneExpertIsAnError) {
  const ModelConfig config = config_of(kVariants[8]);
  PlainMoe plain = test::random_moe(config, 16);
  plain.experts[7].up[3] = 70000.0f;
  const MoeWriter writer(plain, DType::f32, true);
  EXPECT_TRUE(load_with(config, writer).status.ok());
  EXPECT_TRUE(refused(load_with(config, writer, DType::f16), {"gate_up_proj", "70000", "float16"}));
}

}  // namespace
}  // namespace fovea
