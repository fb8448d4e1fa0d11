#include "server/host_rule.h"
#include "fovea/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fovea::server {
namespace {

using ::testing::HasSubstr;

TEST(HostRule, AnyHostByDefault) {
  EXPECT_TRUE(HostRule().any());
  EXPECT_TRUE(HostRule().allows("evil.com"));
}

TEST(HostRule, AddressesAndTheLoopback) {
  const auto rule = HostRule::create({});
  ASSERT_TRUE(rule);
  EXPECT_FALSE(rule->any());
  for (const char* host : {"127.0.0.1", "127.0.0.1:8000", "192.168.1.7:80", "[::1]", "[::1]:8000",
                           "[fe80::1]", "localhost", "LocalHost:8000", "localhost.", "app.localhost:1", ""})
    EXPECT_TRUE(rule->allows(host)) << host;
  for (const char* host :
       {"evil.com", "evil.com:8000", "localhost.evil.com", "notlocalhost", "127.0.0.1.evil.com", "127.1",
        "0x7f000001", "[::1].evil.com", "[evil.com]", "[", "[]", ":8000", "."})
    EXPECT_FALSE(rule->allows(host)) << host;
}

TEST(HostRule, GivenNames) {
  const auto rule = HostRule::create({"llm.example.org", "gpu_box."});
  ASSERT_TRUE(rule);
  for (const char* host : {"llm.example.org", "LLM.Example.org:8000", "llm.example.org.", "gpu_box"})
    EXPECT_TRUE(rule->allows(host)) << host;
  for (const char* host : {"example.org", "x.llm.example.org", "llm.example.org.evil.com"})
    EXPECT_FALSE(rule->allows(host)) << host;
  EXPECT_TRUE(HostRule::create({"a", "*"})->allows("evil.com"));
  for (const char* name : {"", "http://a", "a:8000", "a b", "[::1]", "*.a"}) {
    const auto refused = HostRule::create({name});
    ASSERT_FALSE(refused) << name;
    EXPECT_THAT(refused.error().message, HasSubstr("without a scheme and a port"));
  }
}

}  // namespace
}  // namespace fovea::server
