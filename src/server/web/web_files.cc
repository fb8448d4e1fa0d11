#include "server/web/web_files.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/embedded_file.h"

namespace fovea::server {

std::span<const EmbeddedFile> embedded_files();

namespace {

std::string_view content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  if (name.ends_with(".txt")) return "text/plain; charset=utf-8";
  FOVEA_CHECK(false && "an embedded file of a kind that has no content type here");
  return {};
}

struct Catalog {
  std::vector<std::string> strings;  // storage for the views in `files`
  std::vector<WebFile> files;

  Catalog() {
    const std::span<const EmbeddedFile> embedded = embedded_files();
    strings.reserve(2 * embedded.size());  // no reallocation: it would move short strings
    for (const EmbeddedFile& file : embedded) {
      const std::string& path =
          strings.emplace_back(file.name == "index.html" ? "/" : "/web/" + std::string(file.name));
      const std::string& etag = strings.emplace_back("\"" + std::string(file.sha256.substr(0, 20)) + "\"");
      files.push_back({path, content_type_of(file.name), file.text, etag});
    }
  }
};

bool etag_matches(std::string_view if_none_match, std::string_view etag) {
  constexpr std::string_view kSpace = " \t";
  while (!if_none_match.empty()) {
    const size_t comma = if_none_match.find(',');
    std::string_view tag = if_none_match.substr(0, comma);
    if_none_match.remove_prefix(comma == std::string_view::npos ? if_none_match.size() : comma + 1);
    tag.remove_prefix(std::min(tag.find_first_not_of(kSpace), tag.size()));
    tag = tag.substr(0, tag.find_last_not_of(kSpace) + 1);
    if (tag == "*") return true;
    if (tag.starts_with("W/")) tag.remove_prefix(2);
    if (tag == etag) return true;
  }
  return false;
}

const Catalog& catalog() {
  static const Catalog files;
  return files;
}

}  // namespace

std::span<const WebFile> web_files() {
  return catalog().files;
}

const WebFile* find_web_file(std::string_view path) {
  for (const WebFile& file : web_files())
    if (file.path == path) return &file;
  return nullptr;
}

http::Response web_response(const WebFile& file, std::string_view if_none_match) {
  const bool known = etag_matches(if_none_match, file.etag);
  http::Response response{known ? 304 : 200, std::string(file.content_type),
                          known ? "" : std::string(file.text)};
  response.headers.emplace_back("ETag", file.etag);
  for (const auto& [name, value] : kWebHeaders)
    response.headers.emplace_back(name, value);
  return response;
}

}  // namespace fovea::server
