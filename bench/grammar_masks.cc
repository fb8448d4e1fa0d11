// Times of constraints: compiling a schema of 100 properties, and the mask of each token of an answer, with a
// vocabulary of 128,000 tokens: made of common words, or one that is given (grammar_masks [FILE], one token a
// line as base64 and a number, as tiktoken writes it).
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

#include "grammar/compile.h"

namespace {

using namespace fovea;

/// CPU time of this thread in microseconds: other programs do not count.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) * 1e-3;
}

std::string decode64(const std::string& text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const auto d =
        std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/").find(c);
    if (d == std::string_view::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(d);
    if ((count += 6) < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count & 0xFF);
  }
  return out;
}

std::vector<std::string> made_vocabulary(size_t size) {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b)
    tokens.emplace_back(1, static_cast<char>(b));
  for (const char* text : {"{\"",  "\":",    "\": \"", "\",\"", "\", \"", "\"}",   "}}",   "}]",   "]}",
                           "},",   "\":{\"", "\":[",   "null",  "true",   "false", "\n\n", "\n  ", "\\n",
                           "\\\"", "\\u",    "),",     ");\n",  "=\"",    "\">",   "</"})
    tokens.emplace_back(text);
  uint64_t random = 1;
  const auto draw = [&](uint64_t below) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return (random >> 33) % below;
  };
  static const char* const kParts[] = {
      "a",  "er",  "in", "on", "th", "str", "ing",      "con",      "tion",         "e",           "o", "u",
      "ly", "pre", "s",  "t",  "r",  "m",   "\xC3\xA9", "\xD0\xB0", "\xE4\xB8\xAD", "\xE3\x81\xAE"};
  while (tokens.size() < size) {
    std::string token = draw(2) == 0 ? " " : "";
    if (draw(20) == 0) token = static_cast<char>("\"\\{}[]:,.<>()\n\t"[draw(15)]);
    if (draw(100) == 0) token += std::to_string(draw(1000));
    for (uint64_t i = 1 + draw(5); i > 0; --i)
      token += kParts[draw(std::size(kParts))];
    if (draw(25) == 0) token += static_cast<char>("\"\\{}[]:,.<>()\n\t"[draw(15)]);
    tokens.push_back(token);
  }
  return tokens;
}

std::string schema_of(int properties) {
  std::string names, required;
  for (int i = 0; i < properties; ++i) {
    const std::string name = "\"property_" + std::to_string(i) + "\"";
    static const char* const kTypes[] = {
        R"({"type":"string"})",
        R"({"type":"integer","minimum":0,"maximum":1000000})",
        R"({"type":"string","maxLength":80})",
        R"({"enum":["red","green","blue"]})",
        R"({"type":"array","items":{"type":"number"},"maxItems":5})",
        R"({"type":"object","properties":{"x":{"type":"number"},"y":{"type":["string","null"]}}})",
        R"({"type":"string","format":"date-time"})",
        R"({"type":"string","pattern":"^[a-z]+(-[a-z]+)*$"})"};
    names += (i > 0 ? "," : "") + name + ":" + kTypes[i % 8];
    if (i % 2 == 0) required += (required.empty() ? "" : ",") + name;
  }
  return R"({"type":"object","properties":{)" + names + R"(},"required":[)" + required +
         R"(],"additionalProperties":false})";
}

double quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

/// Answers whose tokens are drawn from the masks, so that all parts of the schema are reached.
void measure(const char* name, const grammar::ConstraintSpec& spec,
             const std::shared_ptr<const grammar::TokenTrie>& trie) {
  std::vector<double> compiles, masks, accepts;
  std::shared_ptr<grammar::Constraint> constraint;
  for (int i = 0; i < 5; ++i) {
    const double start = now();
    constraint = *grammar::compile_constraint(spec, trie);
    compiles.push_back(now() - start);
  }
  uint64_t random = 3;
  std::vector<uint32_t> mask(trie->mask_words());
  for (int answer = 0; answer < 8; ++answer) {
    grammar::Matcher matcher(constraint);
    for (int step = 0; step < 500 && !matcher.ended(); ++step) {
      double start = now();
      matcher.fill_mask(mask);
      masks.push_back(now() - start);
      random = random * 6364136223846793005u + 1442695040888963407u;
      auto token = static_cast<int32_t>((random >> 33) % static_cast<uint64_t>(trie->vocab()));
      for (int tried = 0; tried < trie->vocab(); ++tried, token = (token + 1) % trie->vocab())
        if ((mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0) break;
      start = now();
      if (!matcher.accept(token)) break;
      accepts.push_back(now() - start);
    }
  }
  double sum = 0;
  for (const double m : masks)
    sum += m;
  std::printf(
      "%-34s compile %7.2f ms | mask of %5zu tokens: mean %6.1f us, p50 %6.1f, p99 %7.1f, max %7.1f | accept "
      "p99 %5.1f us\n",
      name, quantile(compiles, 0.5) / 1000, masks.size(), sum / static_cast<double>(masks.size()),
      quantile(masks, 0.5), quantile(masks, 0.99), quantile(masks, 1), quantile(accepts, 0.99));
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> tokens;
  if (argc > 1) {
    std::ifstream file(argv[1]);
    for (std::string line; std::getline(file, line);)
      tokens.push_back(decode64(line.substr(0, line.find(' '))));
  } else {
    tokens = made_vocabulary(128'000);
  }
  tokens.emplace_back("<|end|>");
  const auto count = static_cast<int32_t>(tokens.size());
  const double start = now();
  const auto trie = std::make_shared<const grammar::TokenTrie>(
      count, [&](int32_t id) { return tokens[static_cast<size_t>(id)]; },
      [&](int32_t id) { return id == count - 1; }, std::vector<int32_t>{count - 1});
  std::printf("vocabulary of %d tokens: trie made in %.1f ms (CPU time of one thread, here and below)\n",
              count, (now() - start) / 1000);
  grammar::ConstraintSpec spec;
  measure("json_object", spec, trie);
  spec.kind = grammar::ConstraintSpec::Kind::json_schema;
  spec.text = schema_of(8);
  measure("schema, 8 properties", spec, trie);
  spec.text = schema_of(100);
  measure("schema, 100 properties", spec, trie);
  spec.text = R"({"type":"array","minItems":3,"items":{"type":"string","minLength":20,"maxLength":60}})";
  measure("strings of 20 to 60 characters", spec, trie);
  spec.kind = grammar::ConstraintSpec::Kind::regex;
  spec.text = "([A-Z][a-z]+ ){3,10}[0-9]{4}";
  measure("regex", spec, trie);
  spec.kind = grammar::ConstraintSpec::Kind::grammar;
  spec.text = "root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= [0-9]+ | [a-z]+ | \"(\" expr \")\"";
  measure("GBNF, expressions", spec, trie);
  return 0;
}
