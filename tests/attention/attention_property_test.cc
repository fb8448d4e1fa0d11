// Random problems within what each backend claims, against TORCH_NATIVE in fp64.
#include <gtest/gtest.h>

#include <cstdlib>

#include "attention_case.h"

namespace fovea::test {
namespace {

/// FOVEA_SEED=n runs that seed alone.
std::pair<uint64_t, uint64_t> seeds(uint64_t count) {
  if (const char* given = std::getenv("FOVEA_SEED")) {
    const uint64_t seed = std::strtoull(given, nullptr, 10);
    return {seed, seed + 1};
  }
  return {0, count};
}

TEST(AttentionProperty, RandomProblemsMatchTheReference) {
  ThreadPool one(1), three(3);
  for (const auto* entry : cpu_backends()) {
    const auto backend = entry->create();
    const auto [first, last] = seeds(400);
    for (uint64_t seed = first; seed < last; ++seed) {
      const Problem problem = random_problem(seed, entry->info->capability);
      const std::string failure =
          conform(*backend, problem, random_layout(seed), seed % 4 == 0 ? three : one);
      EXPECT_EQ(failure, "") << "FOVEA_SEED=" << seed;
    }
  }
}

}  // namespace
}  // namespace fovea::test
