#include "server/http/multipart.h"

#include <gmock/gmock.h>

#include "fovea/result.h"

namespace fovea::http {
namespace {

using testing::HasSubstr;

constexpr char kName[] = "Content-Disposition: form-data; name=";

std::string part(const std::string& head, const std::string& data) {
  return "--XX\r\n" + head + "\r\n\r\n" + data + "\r\n";
}

std::string refusal(const std::string& body, const std::string& boundary = "XX") {
  const auto parts = parse_form(body, boundary);
  if (parts) return "";
  EXPECT_EQ(parts.error().message.find_first_of("\r\n"), std::string::npos);
  return parts.error().message;
}

TEST(Multipart, FieldsAndFilesInOrder) {
  const std::string bytes("\r\n--X\0\r\n--XY\r\n\r\n", 16);
  const std::string body =
      "ignored before\r\n" + part(std::string(kName) + "\"model\"", "whisper") +
      part("content-type: audio/wav\r\n" + std::string(kName) + "file; filename=\"a \\\"b\\\" c:\\d.wav\"",
           bytes) +
      part(std::string(kName) + "\"empty\"", "") + "--XX--\r\nignored after";
  const auto parts = parse_form(body, "XX");
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[0].name, "model");
  EXPECT_EQ((*parts)[0].data, "whisper");
  EXPECT_FALSE((*parts)[0].filename);
  EXPECT_EQ((*parts)[1].name, "file");
  EXPECT_EQ((*parts)[1].filename, "a \"b\" c:\\d.wav");
  EXPECT_EQ((*parts)[1].content_type, "audio/wav");
  EXPECT_EQ((*parts)[1].data, bytes);
  EXPECT_EQ((*parts)[2].data, "");
}

TEST(Multipart, PartsMayHaveNoDataLine) {
  // The empty line's end is that of the delimiter.
  const auto parts = parse_form("--XX \t\r\n" + std::string(kName) + "a\r\n\r\n--XX--", "XX");
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->front().data, "");
}

TEST(Multipart, EveryCutIsAnError) {
  const std::string body =
      part(std::string(kName) + "\"a\"", "1") + part(std::string(kName) + "\"b\"", "2") + "--XX--";
  ASSERT_TRUE(parse_form(body, "XX"));
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_NE(refusal(body.substr(0, size)), "") << size;
}

TEST(Multipart, RefusalsSayWhy) {
  const std::string named = std::string(kName) + "a";
  EXPECT_THAT(refusal(""), HasSubstr("no part"));
  EXPECT_THAT(refusal("--XX--"), HasSubstr("no part"));
  EXPECT_THAT(refusal(part(named, "x")), HasSubstr("part 1 of the form does not end"));
  EXPECT_THAT(refusal(part(named, "x") + "--XX"), HasSubstr("inside a boundary"));
  EXPECT_THAT(refusal(part(named, "x") + "--XXX\r\n"), HasSubstr("inside a boundary"));
  EXPECT_THAT(refusal("--XX\r\n" + named + "\r\n\r\nx"), HasSubstr("part 1 of the form does not end"));
  EXPECT_THAT(refusal(part("X: y", "x") + "--XX--"), HasSubstr("part 1 of the form has no name"));
  EXPECT_THAT(refusal("--XX\r\n\r\nx\r\n--XX--"), HasSubstr("has no name"));
  EXPECT_THAT(refusal(part("Content-Disposition: attachment; name=a", "x") + "--XX--"), HasSubstr("no name"));
  EXPECT_THAT(refusal(part("Content-Disposition: form-data; name=\"a", "x") + "--XX--"),
              HasSubstr("no name"));
  EXPECT_THAT(refusal(part("Content-Disposition: form-data; filename=a", "x") + "--XX--"),
              HasSubstr("no name"));
  EXPECT_THAT(refusal(part(named + "\r\n" + named, "x") + "--XX--"), HasSubstr("two Content-Disposition"));
  EXPECT_THAT(refusal(part(named, "1") + part("no colon", "x") + "--XX--"),
              HasSubstr("part 2 of the form has a header"));
  EXPECT_THAT(refusal(part(named + "\r\nContent-Transfer-Encoding: base64", "x") + "--XX--"),
              HasSubstr("encoded"));
  EXPECT_THAT(refusal(part(named + "\r\nX: " + std::string(kMostPartHeadBytes, 'x'), "x") + "--XX--"),
              HasSubstr("do not end within"));
  std::string many;
  for (size_t i = 0; i < kMostFormParts; ++i)
    many += part(named, "x");
  EXPECT_EQ(refusal(many + "--XX--"), "");
  EXPECT_THAT(refusal(many + part(named, "x") + "--XX--"), HasSubstr("more than the allowed 64 parts"));
}

TEST(Multipart, Boundaries) {
  EXPECT_EQ(*form_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(*form_boundary("Multipart/Form-Data; charset=utf-8; Boundary=\"a b\" ; x=y"), "a b");
  EXPECT_EQ(*form_boundary("multipart/form-data;boundary=----WebKitFormBoundary7MA4YWxk"),
            "----WebKitFormBoundary7MA4YWxk");
  const auto refused = [](const std::string& type) { return form_boundary(type).error().message; };
  EXPECT_THAT(refused("application/json"), HasSubstr("must be a form"));
  EXPECT_THAT(refused("multipart/form-data"), HasSubstr("no boundary"));
  EXPECT_THAT(refused("multipart/form-data; boundary"), HasSubstr("no boundary"));
  EXPECT_THAT(refused("multipart/form-data; boundary=\"abc"), HasSubstr("no boundary"));
  for (const std::string& bad :
       {std::string(), std::string(71, 'a'), std::string("a\x01"), std::string("\"a \"")})
    EXPECT_THAT(refused("multipart/form-data; boundary=" + bad), HasSubstr("1 to 70")) << bad;
  EXPECT_TRUE(form_boundary("multipart/form-data; boundary=" + std::string(70, 'a')));
}

}  // namespace
}  // namespace fovea::http
