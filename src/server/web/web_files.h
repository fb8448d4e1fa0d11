#pragma once
// The playground: the files that the server sends for "/" and what it needs. They are the same for everyone
// and hold no secret, so a browser gets them without an API key (it sends none when it opens a page); the
// page then asks for the key and sends it with each call of the API.
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "server/http/server.h"

namespace fovea::server {

struct WebFile {
  std::string_view path;  ///< of the request: "/", "/web/app.js"
  std::string_view content_type;
  std::string_view text;
  std::string_view etag;  ///< strong, with its quotes: other bytes have another one
};

std::span<const WebFile> web_files();
/// nullptr when the playground has no such path.
const WebFile* find_web_file(std::string_view path);

/// The file, or a 304 without a body when the If-None-Match header names its ETag: "*", or a list in which
/// weak tags count too (RFC 9110, 13.1.2). Both with kWebHeaders.
http::Response web_response(const WebFile& file, std::string_view if_none_match);

/// Of each answer with such a file, beside its ETag. The policy allows what this server sends and nothing
/// else: no inline script or style, no other host, no frame around it, and no markup out of strings but by
/// the sanitiser (vendor/purify.min.js).
inline constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kWebHeaders = {{
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
     "trusted-types dompurify"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cache-Control", "no-cache"},  // asks each time, and gets a 304 unless the program is another
}};

}  // namespace fovea::server
