// Any text as an answer with tool calls and reasoning, in a form that the first byte names, split into pieces
// whose length the second byte sets. It gives the same blocks as the whole text, and the streams of all APIs
// that are made from it are well formed.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "fovea/result.h"
#include "server/anthropic/writer.h"
#include "server/ollama/writer.h"
#include "server/openai/block_writer.h"
#include "server/responses/writer.h"
#include "text/json_value.h"
#include "text/utf8.h"

namespace {

using namespace fovea;
using namespace fovea::openai;

constexpr ToolFormat kFormats[] = {
    ToolFormat::none,         ToolFormat::hermes,      ToolFormat::llama3_json, ToolFormat::pythonic,
    ToolFormat::mistral,      ToolFormat::qwen3_coder, ToolFormat::deepseek_v3, ToolFormat::deepseek_v31,
    ToolFormat::deepseek_v32, ToolFormat::kimi_k2,     ToolFormat::glm4,        ToolFormat::minimax,
    ToolFormat::gemma,        ToolFormat::harmony,     ToolFormat::json_array,  ToolFormat::json_named};

AnswerFormat format_of(uint8_t byte) {
  AnswerFormat format;
  format.tools = kFormats[byte % 16];
  if (format.tools == ToolFormat::gemma && (byte & 128)) format.tools = ToolFormat::functiongemma;
  format.named = "f";
  format.one_call = (byte & 16) != 0;
  if (byte & 32) {
    format.think_begin = "<think>";
    format.think_end = "</think>";
  }
  format.thinking = (byte & 64) != 0;
  format.types["f"] = {{"n", "integer"}, {"s", "string"}};
  return format;
}

/// The end of a piece that begins at `at`: the engine's outputs end between characters.
size_t piece_end(std::string_view text, size_t at, size_t piece) {
  size_t end = std::min(text.size(), at + piece);
  while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80)
    ++end;
  return end;
}

/// Feeds the text in pieces to the parser, and what it gives to `use`.
template <class Use>
void split(const AnswerFormat& format, std::string_view text, size_t piece, const Use& use) {
  AnswerParser parser(format, [] { return std::string("id"); });
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(text, at, piece);
    AnswerDelta delta;
    parser.push(text.substr(at, end - at), delta);
    use(delta, parser.calls(), false);
    at = end;
  }
  AnswerDelta delta;
  parser.finish(delta);
  use(delta, parser.calls(), true);
}

std::vector<AnswerBlock> blocks_of(const AnswerFormat& format, std::string_view text, size_t piece) {
  std::vector<AnswerBlock> blocks;
  split(format, text, piece,
        [&](const AnswerDelta& delta, int, bool) { add_to_blocks(blocks, delta, true); });
  return blocks;
}

void check_json(std::string_view json) {
  const auto parsed = text::parse_json(json, "output");
  if (!parsed || !parsed->object()) std::abort();
}

void check_stream(std::string_view stream, bool lines) {
  while (!stream.empty()) {
    const size_t end = stream.find(lines ? "\n" : "\n\n");
    if (end == std::string_view::npos) std::abort();
    std::string_view event = stream.substr(0, end);
    if (!lines) {
      const size_t data = event.find("\ndata: ");
      if (!event.starts_with("event: ") || data == std::string_view::npos) std::abort();
      event.remove_prefix(data + 7);
    }
    check_json(event);
    stream.remove_prefix(end + (lines ? 1 : 2));
  }
}

void check_writer(AnswerWriter& writer, const AnswerFormat& format, std::string_view text, size_t piece,
                  const std::vector<AnswerBlock>& blocks, bool lines) {
  std::string stream = writer.first(0, {}, {});
  split(format, text, piece, [&](const AnswerDelta& delta, int calls, bool last) {
    RequestOutput output;
    if (last) output.finish = FinishReason::stop;
    stream += writer.delta(0, &delta, calls, output, {});
  });
  stream += writer.last({});
  check_stream(stream, lines);
  Choice choice;
  choice.blocks = blocks;
  choice.finish = FinishReason::stop;
  check_json(writer.whole({&choice, 1}, {}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const AnswerFormat format = format_of(data[0]);
  const size_t piece = size_t{1} + data[1] % 32;
  // The engine gives UTF-8.
  const std::string text = text::to_valid_utf8({reinterpret_cast<const char*>(data) + 2, size - 2});
  const auto whole = blocks_of(format, text, text.size() + 1), cut = blocks_of(format, text, piece);
  if (whole.size() != cut.size()) std::abort();
  for (size_t i = 0; i < whole.size(); ++i)
    if (whole[i].kind != cut[i].kind || whole[i].text != cut[i].text || whole[i].name != cut[i].name ||
        whole[i].id != cut[i].id)
      std::abort();
  GenerationRequest request;
  request.include_reasoning = (data[1] & 32) == 0;
  check_writer(*anthropic::make_message_writer({"msg_1", "m"}, request), format, text, piece, whole, false);
  check_writer(*responses::make_responses_writer({"1", "m", 1}, {}, request), format, text, piece, whole,
               false);
  check_writer(*ollama::make_ollama_writer({"m", (data[1] & 64) != 0}, request), format, text, piece, whole,
               true);
  return 0;
}
