#pragma once
// The playground: the files of the page at "/". They hold no secrets, so a browser gets them without an API
// key (it sends none when it opens a page); the page then prompts for the key and sends it with each API
// call.
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "server/http/server.h"

namespace fovea::server {

struct WebFile {
  std::string_view path;  ///< the request's path: "/", "/web/app.js"
  std::string_view content_type;
  std::string_view text;
  std::string_view etag;  ///< a strong ETag, with its quotes
};

std::span<const WebFile> web_files();
/// Null when the playground has no such path.
const WebFile* find_web_file(std::string_view path);

/// The file, or a 304 without a body when the If-None-Match header names its ETag: "*", or a list in which
/// weak tags count too (RFC 9110, 13.1.2). Both with kWebHeaders.
http::Response web_response(const WebFile& file, std::string_view if_none_match);

/// Headers of each such answer, beside its ETag. The policy allows only what this server sends: no inline
/// script or style, no other host, no embedding in a frame, and markup from strings only through the
/// sanitiser (vendor/purify.min.js).
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kWebHeaders = {{
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
     "trusted-types dompurify"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cache-Control", "no-cache"},  // revalidated each time: 304 unless the program changed
}};

}  // namespace fovea::server
