#include "kv/radix_tree.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace fovea {
namespace {

using Tokens = std::vector<int32_t>;
using Pages = std::vector<int32_t>;

class RadixTreeTest : public ::testing::Test {
 protected:
  Pages take(int64_t n) {
    Pages pages;
    EXPECT_TRUE(pool_.allocate(n, pages));
    return pages;
  }
  /// Stores tokens in new pages and unlocks them.
  Pages store(const Tokens& tokens) {
    Pages pages = take(static_cast<int64_t>(tokens.size()) / 2);
    tree_.unlock(tree_.insert(tokens, pages));
    return pages;
  }
  Pages look_up(const Tokens& tokens) {
    auto match = tree_.match(tokens);
    tree_.unlock(match.node);
    return match.pages;
  }
  PagePool pool_{20};
  RadixTree tree_{2, pool_};
};

TEST_F(RadixTreeTest, MatchesWholePagesOnly) {
  const Pages pages = store({1, 2, 3, 4, 5, 6});
  EXPECT_EQ(look_up({1, 2, 3, 4, 5, 6, 7}), pages);
  EXPECT_EQ(look_up({1, 2, 3, 4, 5}), (Pages{pages[0], pages[1]}));
  EXPECT_EQ(look_up({1, 2, 3, 9, 5, 6}), (Pages{pages[0]}));
  EXPECT_EQ(look_up({1}), Pages{});
  EXPECT_EQ(look_up({1, 9, 3, 4}), Pages{});
  EXPECT_TRUE(tree_.consistent({}));
}

TEST_F(RadixTreeTest, ForgetsTheEndOfAPath) {
  const Pages pages = store({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(tree_.forget(Tokens{1, 2, 9, 9}, 1), 0) << "not there";
  EXPECT_EQ(tree_.forget(Tokens{1, 2, 3, 4, 5, 6, 7, 8}, 4), 0) << "nothing from there on";
  EXPECT_EQ(tree_.forget(Tokens{1, 2, 3, 4, 5, 6, 7, 8}, 2), 2);
  EXPECT_EQ(look_up({1, 2, 3, 4, 5, 6, 7, 8}), (Pages{pages[0], pages[1]}));
  EXPECT_EQ(pool_.free_pages(), 18);
  EXPECT_TRUE(tree_.consistent({}));
  // In several nodes, up to one that another path shares.
  store({1, 2, 5, 5});
  store({1, 2, 3, 4, 6, 6});
  store({1, 2, 3, 4, 6, 6, 7, 7});
  EXPECT_EQ(tree_.forget(Tokens{1, 2, 3, 4, 6, 6, 7, 7}, 0), 3);
  EXPECT_EQ(look_up({1, 2, 5, 5}).size(), 2u);
  EXPECT_EQ(look_up({1, 2, 3, 4}).size(), 1u);
  EXPECT_TRUE(tree_.consistent({}));
  // What is locked, or has a longer path behind it, stays.
  const auto lock = tree_.match(Tokens{1, 2, 5, 5});
  EXPECT_EQ(tree_.forget(Tokens{1, 2, 5, 5}, 0), 0);
  EXPECT_EQ(tree_.forget(Tokens{1, 2}, 0), 0);
  tree_.unlock(lock.node);
  EXPECT_EQ(tree_.forget(Tokens{1, 2, 5, 5}, 0), 2);
  EXPECT_EQ(tree_.pages(), 0);
  EXPECT_TRUE(tree_.consistent({}));
}

TEST_F(RadixTreeTest, OverviewFindsTheLongestPaths) {
  EXPECT_EQ(tree_.overview(10, 10).nodes, 0);
  EXPECT_TRUE(tree_.overview(10, 10).longest.empty());
  store({1, 2, 3, 4});
  store({1, 2, 5, 6, 7, 8});  // diverges from the first after one page: three nodes
  store({9, 9});
  const auto lock = tree_.match(Tokens{1, 2, 3, 4});
  const auto all = tree_.overview(10, 10);
  EXPECT_EQ(all.nodes, 4);
  EXPECT_TRUE(all.complete);
  ASSERT_EQ(all.longest.size(), 3u);
  EXPECT_EQ(all.longest[0].tokens, 6);
  EXPECT_FALSE(all.longest[0].locked);
  EXPECT_EQ(all.longest[1].tokens, 4);
  EXPECT_TRUE(all.longest[1].locked);
  EXPECT_EQ(all.longest[2].tokens, 2);
  EXPECT_EQ(tree_.overview(10, 1).longest.size(), 1u);
  EXPECT_TRUE(tree_.overview(4, 10).complete);
  tree_.unlock(lock.node);
}

TEST_F(RadixTreeTest, OverviewStopsAtTheMaximumNumberOfNodes) {
  for (int i = 0; i < 10; ++i)
    store({i, i});
  const auto some = tree_.overview(4, 10);
  EXPECT_EQ(some.nodes, 4);
  EXPECT_FALSE(some.complete);
  EXPECT_EQ(some.longest.size(), 4u);
}

TEST_F(RadixTreeTest, DuplicatePagesAreReleasedAndRenamed) {
  const Pages first = store({1, 2, 3, 4});
  Pages second = take(3);
  const Pages given = second;
  auto* node = tree_.insert(Tokens{1, 2, 3, 4, 5, 6}, second);
  EXPECT_EQ(second, (Pages{first[0], first[1], given[2]}));
  EXPECT_FALSE(pool_.taken(given[0]));
  EXPECT_FALSE(pool_.taken(given[1]));
  EXPECT_EQ(tree_.pages(), 3);
  EXPECT_EQ(tree_.evictable_pages(), 0);
  EXPECT_TRUE(tree_.consistent(std::vector{node}));
  tree_.unlock(node);
  EXPECT_EQ(tree_.evictable_pages(), 3);
}

TEST_F(RadixTreeTest, InsertOfItsOwnPagesChangesNothing) {
  Pages pages = store({1, 2, 3, 4});
  const Pages before = pages;
  tree_.unlock(tree_.insert(Tokens{1, 2, 3, 4}, pages));
  EXPECT_EQ(pages, before);
  EXPECT_EQ(tree_.pages(), 2);
}

TEST_F(RadixTreeTest, TheEndOfAPrefixIsStoredBehindItsBeginningOnly) {
  const Pages begin = store({1, 2, 3, 4});
  Pages end = take(1);
  const Pages given = end;
  tree_.unlock(tree_.insert(Tokens{1, 2, 3, 4, 5, 6}, end));  // extends the leaf, which is not locked
  EXPECT_TRUE(tree_.consistent({}));
  EXPECT_EQ(look_up({1, 2, 3, 4, 5, 6}), (Pages{begin[0], begin[1], given[0]}));
  Pages again = take(1);
  tree_.unlock(tree_.insert(Tokens{1, 2, 3, 4, 5, 6}, again));
  EXPECT_EQ(again, given);
  Pages other = take(1);
  EXPECT_EQ(tree_.insert(Tokens{1, 2, 9, 9, 5, 6}, other), nullptr);  // its second page was never stored
  EXPECT_TRUE(pool_.taken(other[0]));
  auto match = tree_.match(Tokens{1, 2, 3, 4, 5, 6});
  Pages beyond = take(1);
  tree_.unlock(tree_.insert(Tokens{1, 2, 3, 4, 5, 6, 7, 8}, beyond));
  EXPECT_EQ(tree_.evictable_pages(), 1);  // after a locked path: a separate leaf
  EXPECT_TRUE(tree_.consistent(std::vector{match.node}));
  tree_.unlock(match.node);
  EXPECT_EQ(tree_.evict(1), 1);
  EXPECT_EQ(look_up({1, 2, 3, 4, 5, 6, 7, 8}).size(), 3u);
  EXPECT_EQ(tree_.evict(2), 2);
  EXPECT_EQ(tree_.insert(Tokens{1, 2, 3, 4, 5, 6}, other), nullptr);  // its prefix was evicted
  EXPECT_TRUE(tree_.consistent({}));
}

TEST_F(RadixTreeTest, EvictsTheLeastRecentlyUsedFromItsEnd) {
  const Pages a = store({1, 1, 2, 2, 3, 3});
  const Pages b = store({5, 5, 6, 6});
  const Pages c = store({7, 7});
  look_up({1, 1, 2, 2, 3, 3});  // a is now the youngest
  EXPECT_EQ(tree_.evict(1), 1);
  EXPECT_EQ(look_up({5, 5, 6, 6}), (Pages{b[0]}));  // makes b the youngest
  EXPECT_EQ(tree_.evict(3), 3);                     // c, then two of a
  EXPECT_EQ(look_up({7, 7}), Pages{});
  EXPECT_EQ(look_up({1, 1, 2, 2}), (Pages{a[0]}));
  EXPECT_EQ(tree_.evict(10), 2);
  EXPECT_EQ(tree_.pages(), 0);
  EXPECT_EQ(pool_.free_pages(), pool_.total());
  EXPECT_TRUE(tree_.consistent({}));
}

TEST_F(RadixTreeTest, LockedPathsStay) {
  store({1, 1, 2, 2, 3, 3});
  const auto held = tree_.match(Tokens{1, 1, 2, 2, 9, 9});
  EXPECT_EQ(held.pages.size(), 2u);
  EXPECT_EQ(tree_.evict(10), 1);
  EXPECT_TRUE(tree_.consistent(std::vector{held.node}));
  tree_.unlock(held.node);
  EXPECT_EQ(tree_.evict(10), 2);
}

TEST_F(RadixTreeTest, ALockSurvivesASplitBelowAndAboveIt) {
  store({1, 1, 2, 2, 3, 3, 4, 4});
  const auto whole = tree_.match(Tokens{1, 1, 2, 2, 3, 3, 4, 4});
  const auto half = tree_.match(Tokens{1, 1, 2, 2});
  EXPECT_TRUE(tree_.consistent(std::vector{whole.node, half.node}));
  EXPECT_EQ(tree_.evict(10), 0);
  tree_.unlock(whole.node);
  EXPECT_EQ(tree_.evict(10), 2);
  tree_.unlock(half.node);
  EXPECT_EQ(tree_.evict(10), 2);
}

/// Compares the tree with a map from every cached prefix to its last page.
void random_use(int page_size, uint32_t seed) {
  constexpr int kPages = 40, kSteps = 1500;
  std::mt19937 rng(seed);
  PagePool pool(kPages);
  RadixTree tree(page_size, pool);
  std::map<Tokens, int32_t> model;
  struct Held {
    RadixTree::Node* node;
    Tokens prefix;  // what the lock covers
  };
  std::vector<Held> held;

  auto prefix = [&](const Tokens& t, size_t pages) {
    return Tokens(t.begin(), t.begin() + static_cast<std::ptrdiff_t>(pages * static_cast<size_t>(page_size)));
  };
  auto random_tokens = [&] {
    // Two symbols, and mostly the first: many shared prefixes of many lengths.
    Tokens tokens(rng() % static_cast<size_t>(8 * page_size) + 1);
    for (auto& t : tokens)
      t = rng() % 8 == 0 ? 1 : 0;
    return tokens;
  };
  auto expected_match = [&](const Tokens& tokens) {
    Pages pages;
    for (size_t n = 1; n * static_cast<size_t>(page_size) <= tokens.size(); ++n) {
      const auto it = model.find(prefix(tokens, n));
      if (it == model.end()) break;
      pages.push_back(it->second);
    }
    return pages;
  };
  auto locked = [&](const Tokens& t) {
    return std::any_of(held.begin(), held.end(), [&](const Held& h) {
      return h.prefix.size() >= t.size() && std::equal(t.begin(), t.end(), h.prefix.begin());
    });
  };

  for (int step = 0; step < kSteps; ++step) {
    const Tokens tokens = random_tokens();
    switch (rng() % 5) {
      case 0:
      case 1: {  // match, sometimes keeping the lock
        const auto match = tree.match(tokens);
        ASSERT_EQ(match.pages, expected_match(tokens));
        if (rng() % 2 && held.size() < 4)
          held.push_back({match.node, prefix(tokens, match.pages.size())});
        else
          tree.unlock(match.node);
        break;
      }
      case 2: {  // insert as a sequence does: matched pages, then its own
        const size_t want = tokens.size() / static_cast<size_t>(page_size);
        const auto match = tree.match(tokens);
        Pages pages = match.pages;
        // Sometimes without using the match: then all pages are duplicates or new.
        if (rng() % 2) pages.clear();
        const size_t first =
            rng() % (pages.size() + 1);  // pages before it are the tree's and need not be passed
        if (pool.allocate(static_cast<int64_t>(want - pages.size()), pages)) {
          const Pages known = expected_match(tokens);
          Pages expected = pages;
          std::copy(known.begin(), known.end(), expected.begin());
          RadixTree::Node* node = tree.insert(prefix(tokens, want), std::span(pages).subspan(first));
          ASSERT_EQ(pages, expected);
          for (size_t n = 1; n <= want; ++n)
            model[prefix(tokens, n)] = pages[n - 1];
          tree.unlock(node);
        }
        tree.unlock(match.node);
        break;
      }
      case 3: {
        int64_t evictable = 0;
        for (const auto& [t, page] : model)
          evictable += !locked(t);
        ASSERT_EQ(tree.evictable_pages(), evictable);
        const auto count = static_cast<int64_t>(rng() % 6);
        ASSERT_EQ(tree.evict(count), std::min(count, evictable));
        for (auto it = model.begin(); it != model.end();)
          it = pool.taken(it->second) ? std::next(it) : model.erase(it);
        for (const auto& [t, page] : model) {  // what remains is closed under prefixes
          const size_t pages = t.size() / static_cast<size_t>(page_size);
          if (pages > 1) {
            ASSERT_TRUE(model.contains(prefix(t, pages - 1)));
          }
        }
        break;
      }
      case 4:
        if (!held.empty()) {
          const size_t i = rng() % held.size();
          tree.unlock(held[i].node);
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(i));
        }
        break;
    }
    ASSERT_EQ(tree.pages(), static_cast<int64_t>(model.size()));
    ASSERT_EQ(tree.pages() + pool.free_pages(), pool.total());
    std::vector<RadixTree::Node*> locks;
    for (const Held& h : held)
      locks.push_back(h.node);
    ASSERT_TRUE(tree.consistent(locks)) << "step " << step;
    ASSERT_TRUE(pool.consistent());
  }
  EXPECT_GT(model.size(), 0u);
}

TEST(RadixTreeProperty, AgreesWithAMapOfPrefixes) {
  for (int page_size : {1, 2, 3, 5})
    for (uint32_t seed = 0; seed < 4; ++seed) {
      SCOPED_TRACE(testing::Message() << "page size " << page_size << ", seed " << seed);
      random_use(page_size, seed);
      if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace
}  // namespace fovea
