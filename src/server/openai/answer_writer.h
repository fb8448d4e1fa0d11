#pragma once
// How an API writes the answer to one request.
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "server/openai/response.h"

namespace fovea::openai {

/// One for each request. Not thread-safe.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  /// The content type of streams.
  virtual std::string_view stream_type() const { return "text/event-stream; charset=utf-8"; }
  /// What a silent stream sends.
  virtual std::string ping() { return ": ping\n\n"; }
  /// Whether whole answers need Choice::blocks, instead of text, reasoning and calls.
  virtual bool wants_blocks() const { return false; }

  // The text of a stream, in the order of the calls. `choice` indices run over all prompts.
  /// Before a choice's first delta().
  virtual std::string first(int choice, std::span<const int32_t> prompt_ids, const Usage& so_far) = 0;
  /// Completions with echo: the prompt.
  virtual std::string echo(int choice, std::string_view text) = 0;
  /// `parts`: what the output adds to an answer that is split; null = it is not split. `calls`: of the answer
  /// so far.
  virtual std::string delta(int choice, const AnswerDelta* parts, int calls, const RequestOutput& output,
                            const Usage& so_far) = 0;
  /// The end, after all choices.
  virtual std::string last(const Usage& usage) = 0;

  /// The body of an answer that is not streamed.
  virtual std::string whole(std::span<const Choice> choices, const Usage& usage) = 0;
};

/// The writer of /v1/completions and /v1/chat/completions.
std::unique_ptr<AnswerWriter> make_openai_writer(const ResponseHead& head, const GenerationRequest& request,
                                                 TokenText words);

}  // namespace fovea::openai
