#pragma once
// One request for generated text, of any API: one or more engine requests, one answer.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/openai/answer_size.h"
#include "server/openai/answer_writer.h"
#include "server/openai/request.h"
#include "server/openai/response.h"
#include "server/reply.h"

namespace fovea::server {

/// A prompt in tokens, and as text if the answer echoes it.
struct TokenizedPrompt {
  std::vector<int32_t> ids;          ///< the tokens that the answer continues
  std::vector<int32_t> encoder_ids;  ///< encoder-decoder models: the encoder's input
  std::string text;

  /// The client's prompt.
  const std::vector<int32_t>& read() const { return encoder_ids.empty() ? ids : encoder_ids; }
};

/// Lives until its answer has ended and the engine holds no reference. Three threads use it: the one that
/// starts it, the engine's, which puts outputs into the mailbox, and the connection's I/O thread, which turns
/// them into the response.
class Generation final : public Job, public std::enable_shared_from_this<Generation> {
 public:
  /// Submits the prompts, or answers with an error. Nothing is sent before all prompts are submitted.
  /// `writer`: null = OpenAI's of `kind`.
  static void start(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket,
                    openai::ApiKind kind, openai::GenerationRequest request,
                    std::vector<TokenizedPrompt> prompts, const openai::AnswerSize& size,
                    std::unique_ptr<openai::AnswerWriter> writer = nullptr);

  Generation(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket, openai::ApiKind kind,
             openai::GenerationRequest request, std::vector<TokenizedPrompt> prompts,
             const openai::AnswerSize& size, std::unique_ptr<openai::AnswerWriter> writer);
  ~Generation() override;

  void abort() override;
  void tick(Clock::time_point now) override;

 private:
  struct Arrived {
    size_t prompt;
    RequestOutput output;
  };
  /// The state of a prompt on the engine's thread.
  struct Progress {
    std::vector<std::optional<Clock::time_point>> last_token;  // one for each answer
    bool computed = false;
    int unfinished = 0;
    RequestRecord record;
  };

  size_t n() const { return static_cast<size_t>(request_.sampling.n); }
  std::optional<openai::ApiError> submit();
  openai::ApiError refused(const Error& error) const;
  GenerateRequest engine_request(size_t prompt) const;
  /// On the engine's thread.
  void on_output(size_t prompt, const RequestOutput& output);
  void count(size_t prompt, const RequestOutput& output);
  /// Posts deliver() to the connection's thread, which runs the functions below.
  void post_delivery();
  void deliver();
  bool open();
  /// Reserves memory for `tokens` more tokens of an answer that is not streamed.
  std::optional<openai::ApiError> grow(size_t tokens);
  std::optional<openai::ApiError> take(const Arrived& arrived, std::string& events);
  /// Splits an output's text, if answers are split, into what it adds.
  openai::AnswerDelta split(size_t choice, const RequestOutput& output);
  void count_reasoning(size_t choice, const RequestOutput& output);
  void close();
  void fail(const openai::ApiError& error);
  /// Cancels the engine requests. Thread-safe.
  void cancel();

  const std::shared_ptr<Reply> reply_;
  Core& core_;
  const openai::ApiKind kind_;
  const openai::GenerationRequest request_;
  std::vector<TokenizedPrompt> prompts_;
  const openai::AnswerSize size_;
  const std::shared_ptr<AnswerShare> share_;  // of Core::answers
  const Clock::time_point arrival_ = Clock::now();

  std::mutex mutex_;  // guards the members below, up to cancelled_
  std::vector<Arrived> mailbox_;
  std::vector<uint64_t> ids_;  // the engine's ids, one for each submitted prompt
  bool begun_ = false;         // outputs may be delivered
  bool posted_ = false;        // deliver() is posted already
  bool cancelled_ = false;

  // Only for the engine's thread, once submitted.
  std::shared_ptr<Admission::Ticket> ticket_;
  std::vector<Progress> progress_;  // one for each prompt
  int unfinished_prompts_ = 0;

  // Only for the connection's thread.
  const std::unique_ptr<openai::AnswerWriter> writer_;
  std::vector<openai::Choice> choices_;
  std::vector<std::unique_ptr<openai::AnswerParser>> parsers_;  // by choice; none = answers are not split
  /// By choice: follows the reasoning token by token, as outputs may have several, whose number must not
  /// depend on drafts; null = there is none, or it is over.
  std::vector<std::unique_ptr<openai::AnswerParser>> counters_;
  std::vector<bool> introduced_;  // whether the choice's first event is sent
  openai::Usage usage_;
  std::vector<int> cached_tokens_, completion_tokens_;  // for each prompt; for each choice
  int unfinished_ = 0;
  std::atomic<Clock::time_point> last_write_{arrival_};  // also read by the ticker thread
  bool opened_ = false, streams_ = false, ended_ = false;
};

}  // namespace fovea::server
