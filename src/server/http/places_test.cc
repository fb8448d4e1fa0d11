#include "server/http/places.h"

#include <gtest/gtest.h>

#include <vector>

#include "server/http/listen.h"

namespace fovea::http {
namespace {

using Full = Places::Full;

struct Owner final : Evictable {
  int evicted = 0;
  void evict() override { ++evicted; }
};

TEST(Places, TheLongestIdleGivesWayAndItsPlaceIsGone) {
  Places places(2, 2);
  Full full = Full::no;
  const auto first = places.enter("a", full), second = places.enter("b", full);
  EXPECT_EQ(places.enter("c", full), nullptr);
  EXPECT_EQ(full, Full::all);
  const auto one = std::make_shared<Owner>(), two = std::make_shared<Owner>();
  first->set_idle(one);
  second->set_idle(two);
  first->set_idle(one);  // active again
  auto third = places.enter("c", full);
  EXPECT_NE(third, nullptr);
  EXPECT_EQ(two->evicted, 1);
  EXPECT_FALSE(second->set_busy());
  EXPECT_TRUE(first->set_busy());
  EXPECT_EQ(places.enter("d", full), nullptr);
  third.reset();
  EXPECT_NE(places.enter("d", full), nullptr);
  const ConnectionCounts counts = places.counts();
  EXPECT_EQ(counts.open, 1);  // the one of "d" left at once
  EXPECT_EQ(counts.refused, 2);
  EXPECT_EQ(counts.evicted, 1);
}

TEST(Places, AnAddressWithTooManyGivesUpItsOwn) {
  Places places(10, 2);
  Full full = Full::no;
  const auto other = places.enter("other", full);
  const auto others = std::make_shared<Owner>(), own = std::make_shared<Owner>();
  other->set_idle(others);
  const auto first = places.enter("a", full), second = places.enter("a", full);
  EXPECT_EQ(places.enter("a", full), nullptr);
  EXPECT_EQ(full, Full::address);
  first->set_idle(own);
  EXPECT_NE(places.enter("a", full), nullptr);
  EXPECT_EQ(own->evicted, 1);
  EXPECT_EQ(others->evicted, 0);
}

TEST(Places, IsNotConfusedByAnOwnerThatIsEnding) {
  Places places(1, 1);
  Full full = Full::no;
  const auto place = places.enter("a", full);
  place->set_idle(std::make_shared<Owner>());  // already destroyed
  EXPECT_NE(places.enter("b", full), nullptr);
  EXPECT_FALSE(places.evict_longest_idle());
}

TEST(Places, AnIpv6ClientIsItsNetwork) {
  EXPECT_EQ(address_group("192.0.2.7"), "192.0.2.7");
  EXPECT_EQ(address_group("unix"), "unix");
  EXPECT_EQ(address_group("2001:db8:1:2::5"), address_group("2001:db8:1:2:ffff::9"));
  EXPECT_NE(address_group("2001:db8:1:2::5"), address_group("2001:db8:1:3::5"));
  EXPECT_EQ(address_group("fe80::1%eth0"), "fe80::/64");
}

}  // namespace
}  // namespace fovea::http
