#include "fovea/flex_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/cpu_features.h"
#include "flex/evaluate.h"
#include "flex/examples_test_support.h"
#include "flex/program.h"
#include "flex/random_expression_test_support.h"

namespace fovea::flex {
namespace {

using ::testing::HasSubstr;
using Lengths = std::vector<std::pair<int, int>>;

const ExampleBuffers& buffers() {
  static const ExampleBuffers x;
  return x;
}

void check_examples(const Lengths& lengths, FlexProblem problem, int stride = 1, int from = 0) {
  ThreadPool pool(2);
  const std::vector<Example> all = examples(buffers(), lengths);
  for (size_t i = static_cast<size_t>(from); i < all.size(); i += static_cast<size_t>(stride)) {
    const Example& e = all[i];
    const auto program = FlexProgram::parse(e.mask, e.score, buffers().all());
    ASSERT_TRUE(program.ok()) << e.name << ": " << program.error().message;
    const Status status = problem.run(*program, buffers().all(), pool);
    ASSERT_TRUE(status.ok()) << status.error().message;
    EXPECT_LE(problem.error(e.mask_is, e.score_is), 1) << e.name;
  }
}

TEST(FlexAttention, ExamplesMatchTheirDefinitions) {
  const Lengths lengths = {{300, 300}, {17, 17}, {131, 131}};
  check_examples(lengths, FlexProblem(lengths, 4, 2, 16, 16));
}

TEST(FlexAttention, ExamplesWithCachedKeysAndOddSizes) {
  const Lengths lengths = {{9, 270}, {40, 3}, {1, 500}};
  check_examples(lengths, FlexProblem(lengths, 6, 1, 13, 70, 7));
}

TEST(FlexAttention, ExamplesInHalfPrecision) {
  const Lengths lengths = {{70, 130}, {1, 64}, {5, 5}};
  check_examples(lengths, FlexProblem(lengths, 8, 8, 64, 64, 1, DType::bf16), 3);
  check_examples(lengths, FlexProblem(lengths, 8, 4, 80, 128, 16, DType::f16), 3, 1);
}

TEST(FlexAttention, ExamplesOnEveryInstructionSet) {
  const Isa before = current_isa();
  const Lengths lengths = {{33, 200}, {2, 2}, {0, 9}};
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512})
    if (set_isa(isa)) check_examples(lengths, FlexProblem(lengths, 4, 2, 24, 8, 3), 2);
  set_isa(before);
}

TEST(FlexAttention, RandomExpressionsMatchTheEvaluator) {
  ThreadPool pool(1);
  const ExampleBuffers& x = buffers();
  std::vector<int32_t> grid(40);
  for (int i = 0; i < 40; ++i)
    grid[size_t(i)] = i * 37 % 23 - 7;
  const std::vector<FlexBuffer> given = {integers("doc", x.doc), integers("grid", grid, 5),
                                         reals("bias", x.relative), booleans("flag", x.padding)};
  const Isa before = current_isa();
  int compared = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Isa isas[] = {Isa::generic, Isa::avx2, Isa::avx512};
    if (!set_isa(isas[seed % 3])) continue;
    RandomExpression random(seed);
    const std::string mask = random.condition(1 + random.draw(4)),
                      score = "tanh(" + random.real(1 + random.draw(3)) + ") + s";
    const auto program = FlexProgram::parse(mask, score, given);
    ASSERT_TRUE(program.ok()) << program.error().message;
    FlexProblem problem({{3, 150}}, 2, 1, 4, 4, 16, DType::f32, seed);
    ASSERT_TRUE(problem.run(*program, given, pool).ok());
    std::vector<Buffer> bound = {{x.doc.data(), 1, 640, 640},
                                 {grid.data(), 5, 8, 8},
                                 {x.relative.data(), 1, 1279, 1279},
                                 {x.padding.data(), 1, 1920, 1920}};
    const Program& p = program->program();
    const auto at = [&](const Tree& tree, int b, int h, int q, int k, double s) {
      return evaluate<float>(tree, p.buffers, bound, {b, h, q, k, 3, 150, s});
    };
    bool nan = false;
    const double error =
        problem.error([&](int b, int h, int q, int k) { return !p.mask || at(*p.mask, b, h, q, k, 0) != 0; },
                      [&](double s, int b, int h, int q, int k) {
                        const double y = p.score ? at(*p.score, b, h, q, k, s) : s;
                        nan |= std::isnan(y);
                        return y;
                      });
    // Comparisons of floats may turn on the last bit of a transcendental function, and NaN spreads.
    if (nan || mask.find('.') != std::string::npos || score.find("? ") != std::string::npos) continue;
    if (score.find("int(") != std::string::npos) continue;
    ++compared;
    EXPECT_LE(error, 20) << mask << "\n" << score;
  }
  set_isa(before);
  EXPECT_GT(compared, 150);
}

TEST(FlexAttention, SkipsBlocks) {
  ThreadPool pool(1);
  FlexProblem problem({{512, 512}}, 1, 1, 8, 8);
  // Tiles of 64 rows against blocks of 128 keys.
  const auto causal = FlexProgram::parse("k <= q", "");
  ASSERT_TRUE(problem.run(*causal, {}, pool).ok());
  EXPECT_EQ(problem.blocks.empty, 12);
  EXPECT_EQ(problem.blocks.partial, 8);
  EXPECT_EQ(problem.blocks.full, 12);
  const auto everything = FlexProgram::parse("", "s * 2");
  ASSERT_TRUE(problem.run(*everything, {}, pool).ok());
  EXPECT_EQ(problem.blocks.full, 32);
  // Documents begin at 100, 257 and 300.
  const auto documents = FlexProgram::parse("k <= q && doc[q] == doc[k]", "", buffers().all());
  ASSERT_TRUE(problem.run(*documents, buffers().all(), pool).ok());
  EXPECT_EQ(problem.blocks.empty, 18);
  EXPECT_EQ(problem.blocks.partial, 14);
}

TEST(FlexAttention, HiddenKeysMayBeNan) {
  ThreadPool pool(1);
  FlexProblem problem({{5, 40}}, 2, 1, 8, 8, 4);
  const auto program = FlexProgram::parse("k % 3 != 1", "k == 6 ? -inf : s");
  for (int j = 0; j < 40; ++j)
    if (j % 3 == 1 || j == 6)
      for (int d = 0; d < 8; ++d) {
        problem.k[problem.slot(0, j) * 8 + d] = std::nanf("");
        problem.v[problem.slot(0, j) * 8 + d] = j == 6 ? INFINITY : std::nanf("");
      }
  ASSERT_TRUE(problem.run(*program, {}, pool).ok());
  EXPECT_LE(problem.error([](int, int, int, int k) { return k % 3 != 1 && k != 6; }, {}), 1);
}

TEST(FlexAttention, RowsKeepTheirBits) {
  const std::vector<FlexBuffer> given = buffers().all();
  const auto program =
      FlexProgram::parse("k <= q + klen - qlen && padding[0, k]", "s + slopes[h] * k * 0.01", given);
  FlexProblem whole({{150, 400}, {20, 30}}, 4, 2, 32, 32, 16);
  ThreadPool one(1), three(3);
  ASSERT_TRUE(whole.run(*program, given, one).ok());
  const std::vector<float> o = whole.o, lse = whole.lse;
  ASSERT_TRUE(whole.run(*program, given, three).ok());
  EXPECT_EQ(o, whole.o);
  EXPECT_EQ(lse, whole.lse);
  // Rows 100 to 149 of sequence 0 alone: the same keys, the last 50 rows.
  FlexProblem part({{150, 400}, {20, 30}}, 4, 2, 32, 32, 16);
  part.q.erase(part.q.begin(), part.q.begin() + 100 * 4 * 32);
  part.q_offsets = {0, 50};
  part.meta.q_offsets = part.q_offsets;
  part.kv_lens = {400};
  part.meta.kv_lens = part.kv_lens;
  ASSERT_TRUE(part.run(*program, given, one).ok());
  EXPECT_EQ(part.o, std::vector<float>(o.begin() + 100 * 4 * 32, o.begin() + 150 * 4 * 32));
}

TEST(FlexAttention, RefusesWhatDoesNotFit) {
  ThreadPool pool(1);
  FlexProblem problem({{4, 20}}, 2, 1, 8, 8);
  const std::vector<int32_t> doc(20);
  const std::vector<FlexBuffer> given = {integers("doc", doc)};
  const auto program = FlexProgram::parse("doc[k] == 0", "", given);
  ASSERT_TRUE(program.ok());
  const auto refusal = [&](std::vector<FlexBuffer> buffers) {
    const Status status = problem.run(*program, buffers, pool);
    return status.ok() ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(refusal(given), "accepted");
  EXPECT_EQ(refusal({}), "buffer 'doc' is not given; the program was parsed with it");
  EXPECT_EQ(refusal({integers("doc", doc, 2)}),
            "buffer 'doc' is int with 2 dimensions; the program was parsed with int with 1 dimension");
  EXPECT_EQ(refusal({{"doc", FlexElement::real, doc.data(), 1, 1, 20}}),
            "buffer 'doc' is float with 1 dimension; the program was parsed with int with 1 dimension");
  EXPECT_EQ(refusal({{"doc", FlexElement::integer, doc.data(), 1, 1, 0}}),
            "buffer 'doc' has the shape [0]; every dimension must be 1 or more");
  EXPECT_EQ(refusal({{"doc", FlexElement::integer, nullptr, 1, 1, 4}}), "buffer 'doc' is null");
  problem.spec.mask.causal = true;
  EXPECT_THAT(refusal(given), HasSubstr("takes a spec without causal mask"));
  problem.spec.mask.causal = false;
  problem.kv_lens[0] = 2000;
  EXPECT_THAT(refusal(given), HasSubstr("page table"));
  EXPECT_THAT(FlexProgram::parse("doc[k] == 0", "").error().message, HasSubstr("unknown name 'doc'"));
}

}  // namespace
}  // namespace fovea::flex
