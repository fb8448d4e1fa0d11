#include "server/web/web_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace fovea::server {
namespace {

using testing::Contains;
using testing::Pair;

std::string source_text(std::string_view name) {
  std::ifstream in(std::string(FOVEA_SOURCE_DIR) + "/src/server/web/" + std::string(name), std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::set<std::string> matches(const std::string& text, const char* pattern) {
  std::set<std::string> out;
  const std::regex regex(pattern);
  for (std::sregex_iterator it(text.begin(), text.end(), regex), end; it != end; ++it)
    out.insert((*it)[1]);
  return out;
}

TEST(WebFiles, AreTheFilesOfTheSourceTree) {
  ASSERT_NE(find_web_file("/"), nullptr);
  EXPECT_EQ(find_web_file("/")->text, source_text("index.html"));
  EXPECT_EQ(find_web_file("/")->content_type, "text/html; charset=utf-8");
  std::set<std::string_view> etags;
  for (const WebFile& file : web_files()) {
    if (file.path.starts_with("/web/")) {
      EXPECT_EQ(file.text, source_text(file.path.substr(5))) << file.path;
    }
    EXPECT_FALSE(file.text.empty()) << file.path;
    EXPECT_TRUE(std::regex_match(std::string(file.etag), std::regex("\"[0-9a-f]{20}\""))) << file.etag;
    etags.insert(file.etag);
  }
  EXPECT_EQ(etags.size(), web_files().size());
  EXPECT_EQ(find_web_file("/web/app.js")->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(find_web_file("/web/style.css")->content_type, "text/css; charset=utf-8");
  EXPECT_EQ(find_web_file("/web/icon.svg")->content_type, "image/svg+xml");
}

TEST(WebFiles, HasNothingElse) {
  for (const char* path : {"", "/index.html", "/web/", "/web/index.html", "/web/../app.js", "/app.js", "//"})
    EXPECT_EQ(find_web_file(path), nullptr) << path;
}

// Each file that another one references must be served.
TEST(WebFiles, AreComplete) {
  for (const WebFile& file : web_files()) {
    const std::string text(file.text);
    const bool html = file.path == "/";
    if (file.path.starts_with("/web/vendor/")) continue;
    const std::set<std::string> wanted = html ? matches(text, "(?:src|href)=\"([^\"#]+)\"")
                                              : matches(text, "(?:from|import) \"\\./([^\"]+)\"");
    for (const std::string& name : wanted)
      EXPECT_NE(find_web_file((html ? "/" : "/web/") + name), nullptr) << file.path << " wants " << name;
  }
  EXPECT_THAT(matches(std::string(find_web_file("/")->text), "(?:src|href)=\"([^\"#]+)\""),
              testing::IsSupersetOf({"web/app.js", "web/style.css", "web/icon.svg"}));
}

// The policy in kWebHeaders would block it silently.
TEST(WebFiles, KeepsToItsContentSecurityPolicy) {
  for (const WebFile& file : web_files()) {
    if (file.path.starts_with("/web/vendor/"))
      continue;  // the sanitiser parses markup in a separate document
    const std::string text(file.text);
    for (const char* banned : {"<style", " style=\"", " onclick=", "javascript:", "innerHTML", "outerHTML",
                               "insertAdjacentHTML", "document.write", "eval(", "@import"})
      EXPECT_EQ(text.find(banned), std::string::npos) << file.path << " has " << banned;
    EXPECT_THAT(matches(text, "(<script(?![^>]* src=)[^>]*>)"), testing::IsEmpty()) << file.path;
    for (const std::string& url : matches(text, "(https?://[^\"' )]+)"))
      EXPECT_EQ(url, "http://www.w3.org/2000/svg") << file.path;  // a namespace, not a resource
  }
}

TEST(WebFiles, HasPackagesAsTheyWerePublished) {
  const std::string readme = source_text("vendor/README.md");
  for (const char* name : {"marked", "purify"}) {
    const std::string file = std::string(name) + (name[0] == 'm' ? ".esm.js" : ".min.js");
    const WebFile* found = find_web_file("/web/vendor/" + file);
    ASSERT_NE(found, nullptr) << file;
    const std::string hash(found->etag.substr(1, found->etag.size() - 2));
    EXPECT_TRUE(std::regex_search(readme, std::regex("`" + file + "`.*`" + hash)))
        << file << " is not in the README";
    const WebFile* license = find_web_file("/web/vendor/" + std::string(name) + ".license.txt");
    ASSERT_NE(license, nullptr) << file;
    EXPECT_EQ(license->content_type, "text/plain; charset=utf-8");
  }
}

TEST(WebFiles, AreNotSentAgain) {
  const WebFile file{"/", "text/html", "<p>", "\"a\""};
  for (const char* known : {"\"a\"", "\"b\" ,\t\"a\"", "W/\"a\"", " * "}) {
    const http::Response response = web_response(file, known);
    EXPECT_EQ(response.status, 304) << known;
    EXPECT_EQ(response.body, "") << known;
    EXPECT_THAT(response.headers, Contains(Pair("ETag", "\"a\"")));
  }
  for (const char* other : {"", " , ,", "a", "\"ab\"", "\""}) {
    const http::Response response = web_response(file, other);
    EXPECT_EQ(response.status, 200) << other;
    EXPECT_EQ(response.body, "<p>") << other;
    EXPECT_EQ(response.content_type, "text/html");
    EXPECT_THAT(response.headers, Contains(Pair("ETag", "\"a\"")));
    EXPECT_THAT(response.headers,
                Contains(Pair("Content-Security-Policy", testing::HasSubstr("script-src 'self'"))));
    EXPECT_THAT(response.headers, Contains(Pair("X-Content-Type-Options", "nosniff")));
  }
}

}  // namespace
}  // namespace fovea::server
