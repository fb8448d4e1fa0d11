#include "compat/pages/template.h"
#include "fovea/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fovea::docs {
namespace {

using testing::HasSubstr;

std::string error_of(std::string_view text, const Values& values) {
  const auto filled = fill_template("page.md", text, values);
  return filled ? "no error: " + *filled : filled.error().message;
}

TEST(Template, FillsEveryPlace) {
  const auto filled =
      fill_template("page.md", "a {{x}}b\n{{y:z}}{{x}}\n{ {}} }", {{"x", "1"}, {"y:z", "{{x}}"}});
  ASSERT_TRUE(filled) << filled.error().message;
  EXPECT_EQ(*filled, "a 1b\n{{x}}1\n{ {}} }");
}

TEST(Template, NamesTheLineOfAPlaceWithoutValue) {
  EXPECT_EQ(error_of("a\nb {{tabel}}", {{"table", ""}}),
            "page.md:2: {{tabel}} has no value; did you mean {{table}}?");
  EXPECT_EQ(error_of("{{x}}", {}), "page.md:1: {{x}} has no value");
}

TEST(Template, RefusesAValueWithoutPlace) {
  EXPECT_THAT(error_of("{{x}}", {{"x", ""}, {"y", ""}}), HasSubstr("it has no place {{y}}"));
}

TEST(Template, RefusesBracesThatDoNotCloseOnTheirLine) {
  for (const std::string_view text : {"{{x", "{{x\n}}", "a\n{{", "{{x}"})
    EXPECT_THAT(error_of(text, {{"x", ""}}), HasSubstr("is not closed by }} on its line")) << text;
}

}  // namespace
}  // namespace fovea::docs
