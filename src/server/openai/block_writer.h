#pragma once
// What the writers of APIs share whose answers are lists of blocks: reasoning, text and calls in order.
#include <string>
#include <vector>

#include "server/openai/answer_writer.h"

namespace fovea::openai {

/// Appends to `blocks` what `parts` adds; reasoning only if it is wanted.
void add_to_blocks(std::vector<AnswerBlock>& blocks, const AnswerDelta& parts, bool reasoning);
/// The parts of an answer that is not split.
AnswerDelta plain_parts(const RequestOutput& output);

/// A call's arguments as the text of an object in one line: those that max_tokens cut are "{}".
std::string object_text(const std::string& arguments);

/// Why an answer ended.
struct AnswerEnd {
  FinishReason finish = FinishReason::none;
  std::string stop;  ///< the request's stop string that ended it, "" = another reason
};
AnswerEnd end_of(FinishReason finish, const std::string& stop_reason, const std::optional<int32_t>& token,
                 const SamplingParams& sampling);

/// Keeps the blocks of a stream and calls the functions below in order: one block is open at a time.
class BlockWriter : public AnswerWriter {
 public:
  explicit BlockWriter(const GenerationRequest& request) : request_(request) {}
  bool wants_blocks() const final { return true; }
  std::string first(int choice, std::span<const int32_t> prompt_ids, const Usage& so_far) final;
  std::string echo(int, std::string_view) final { return ""; }
  std::string delta(int choice, const AnswerDelta* parts, int calls, const RequestOutput& output,
                    const Usage& so_far) final;
  std::string last(const Usage& usage) final;
  std::string whole(std::span<const Choice> choices, const Usage& usage) final;

 protected:
  using Blocks = std::vector<AnswerBlock>;
  virtual void begin(std::string& out, const Usage& usage) = 0;
  /// `index`: of the block in the answer.
  virtual void open_block(std::string& out, const AnswerBlock& block, size_t index) = 0;
  /// `text`: the new part of a text or of a call's arguments; `block` has it already.
  virtual void add_text(std::string& out, const AnswerBlock& block, size_t index, std::string_view text) = 0;
  virtual void close_block(std::string& out, const AnswerBlock& block, size_t index) = 0;
  virtual void end(std::string& out, const Blocks& blocks, const AnswerEnd& end, const Usage& usage) = 0;
  virtual std::string body(const Blocks& blocks, const AnswerEnd& end, const Usage& usage) = 0;

  const GenerationRequest& request() const { return request_; }
  /// Known when the last block is closed.
  const AnswerEnd& known_end() const { return end_; }
  static bool has_calls(const Blocks& blocks);

 private:
  const GenerationRequest request_;
  Blocks blocks_;
  AnswerEnd end_;
};

}  // namespace fovea::openai
