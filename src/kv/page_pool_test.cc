#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace fovea {
namespace {

TEST(PagePoolTest, AllOrNothing) {
  PagePool pool(3);
  std::vector<int32_t> pages{7};
  EXPECT_FALSE(pool.allocate(4, pages));
  EXPECT_EQ(pages, std::vector<int32_t>{7});
  EXPECT_TRUE(pool.allocate(3, pages));
  EXPECT_EQ(pages.size(), 4u);
  EXPECT_EQ(pool.free_pages(), 0);
  EXPECT_TRUE(pool.allocate(0, pages));
  EXPECT_FALSE(pool.allocate(1, pages));
}

TEST(PagePoolTest, RandomUseNeverHandsAPageOutTwice) {
  std::mt19937 rng(3);
  PagePool pool(50);
  std::vector<int32_t> held;
  for (int step = 0; step < 3000; ++step) {
    const auto n = static_cast<int64_t>(rng() % 12);
    if (rng() % 2) {
      const int64_t before = pool.free_pages();
      EXPECT_EQ(pool.allocate(n, held), n <= before);
    } else {
      std::shuffle(held.begin(), held.end(), rng);
      const size_t drop = std::min(held.size(), static_cast<size_t>(n));
      pool.release(std::span(held).last(drop));
      held.resize(held.size() - drop);
    }
    ASSERT_EQ(std::set<int32_t>(held.begin(), held.end()).size(), held.size());
    ASSERT_EQ(pool.free_pages() + static_cast<int64_t>(held.size()), pool.total());
    for (int32_t page : held)
      ASSERT_TRUE(pool.taken(page));
    ASSERT_TRUE(pool.consistent());
  }
}

TEST(PagePoolDeathTest, DoubleReleaseEndsTheProgram) {
  PagePool pool(2);
  std::vector<int32_t> pages;
  ASSERT_TRUE(pool.allocate(1, pages));
  pool.release(pages);
  EXPECT_DEATH(pool.release(pages), "internal error");
}

}  // namespace
}  // namespace fovea
