// Answers a JSON list of questions with our tokenizers and templates, for differential_test.py.
//
// Input:  {"tokenizers": [{"dir", "encode": [{"hex", "add_special", "parse_special"}],
//                          "decode": [{"ids", "skip_special"}]}],
//          "templates": [{"template", "variables": JSON text}]}
// Output: the same shape: lists of ids, lists of texts, and texts or {"error": message}.
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>

#include "fovea/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace {

using nlohmann::json;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

/// Whether `ids` end inside a character: the held-back text then is, or ends with, U+FFFD.
bool ends_unfinished(const fovea::Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special) {
  fovea::Tokenizer::Stream stream(tokenizer, skip_special);
  std::string pushed, held;
  for (const int32_t id : ids)
    stream.push(id, pushed);
  stream.finish(held);
  return held.ends_with("\xEF\xBF\xBD");
}

json answer_tokenizer(const json& job) {
  auto tokenizer = fovea::Tokenizer::load(job.at("dir"));
  if (!tokenizer) return {{"error", tokenizer.error().message}};
  json out = {{"encode", json::array()}, {"decode", json::array()}};
  for (const json& item : job.at("encode")) {
    auto ids =
        (*tokenizer)->encode(from_hex(item.at("hex")), {item.at("add_special"), item.at("parse_special")});
    out["encode"].push_back(ids ? json(*ids) : json{{"error", ids.error().message}});
  }
  for (const json& item : job.at("decode")) {
    const auto ids = item.at("ids").get<std::vector<int32_t>>();
    const std::string whole = (*tokenizer)->decode(ids, item.at("skip_special"));
    // A stream that continues after the first part of the text must produce the rest of it, except for bytes
    // of a character that the first part left incomplete.
    size_t cut = ids.size() / 2;
    while (ends_unfinished(**tokenizer, std::span(ids).first(cut), item.at("skip_special")))
      --cut;
    const std::span<const int32_t> before(ids.data(), cut);
    fovea::Tokenizer::Stream first(**tokenizer, item.at("skip_special"));
    fovea::Tokenizer::Stream second(**tokenizer, item.at("skip_special"), before);
    std::string streamed;
    for (const int32_t id : before)
      first.push(id, streamed);
    for (size_t i = cut; i < ids.size(); ++i)
      second.push(ids[i], streamed);
    second.finish(streamed);
    out["decode"].push_back(streamed == whole ? json(whole) : json{{"error", "streamed: " + streamed}});
  }
  return out;
}

json answer_template(const json& job) {
  auto chat_template = fovea::ChatTemplate::parse(job.at("template").get<std::string>());
  if (!chat_template) return {{"error", chat_template.error().message}};
  auto text = (*chat_template)->render_json(job.at("variables").get<std::string>());
  return text ? json(*text) : json{{"error", text.error().message}};
}

}  // namespace

int main() {
  const std::string input(std::istreambuf_iterator<char>(std::cin), {});
  const json questions = json::parse(input);
  json out = {{"tokenizers", json::array()}, {"templates", json::array()}};
  for (const json& job : questions.at("tokenizers"))
    out["tokenizers"].push_back(answer_tokenizer(job));
  for (const json& job : questions.at("templates"))
    out["templates"].push_back(answer_template(job));
  std::cout << out.dump() << "\n";
}
