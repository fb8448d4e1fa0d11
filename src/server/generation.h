#pragma once
// One request of /v1/completions or /v1/chat/completions: some engine requests, one answer.
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "server/openai/answer_size.h"
#include "server/openai/request.h"
#include "server/openai/response.h"
#include "server/reply.h"

namespace fovea::server {

/// A prompt in tokens, and as text where that is wanted back.
struct TokenizedPrompt {
  std::vector<int32_t> ids;          ///< what the answer goes on from
  std::vector<int32_t> encoder_ids;  ///< of an encoder-decoder model: what it reads first
  std::string text;

  /// What the client gave.
  const std::vector<int32_t>& read() const { return encoder_ids.empty() ? ids : encoder_ids; }
};

/// Lives until its answer is over and the engine has forgotten it. Three kinds of threads meet here: one that
/// starts it, the engine's, which leaves outputs in the mailbox, and the connection's I/O thread, which turns
/// them into what the client gets.
class Generation final : public Job, public std::enable_shared_from_this<Generation> {
 public:
  /// Submits the prompts, or answers with an error. Nothing is sent before all of them are admitted.
  static void start(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket,
                    openai::ApiKind kind, openai::GenerationRequest request,
                    std::vector<TokenizedPrompt> prompts, const openai::AnswerSize& size);

  Generation(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket, openai::ApiKind kind,
             openai::GenerationRequest request, std::vector<TokenizedPrompt> prompts,
             const openai::AnswerSize& size);
  ~Generation() override;

  void abort() override;
  void tick(Clock::time_point now) override;

 private:
  struct Arrived {
    size_t prompt;
    RequestOutput output;
  };
  /// What the engine's thread knows of a prompt.
  struct Progress {
    std::vector<std::optional<Clock::time_point>> last_token;  // of each answer
    bool computed = false;
    int unfinished = 0;
    RequestRecord record;
  };

  size_t n() const { return static_cast<size_t>(request_.sampling.n); }
  std::optional<openai::ApiError> submit();
  GenerateRequest engine_request(size_t prompt) const;
  /// On the engine's thread.
  void on_output(size_t prompt, const RequestOutput& output);
  void count(size_t prompt, const RequestOutput& output);
  /// On the connection's thread.
  void post_delivery();
  void deliver();
  bool open();
  /// Room for so many tokens more of an answer that is not streamed.
  std::optional<openai::ApiError> grow(size_t tokens);
  std::optional<openai::ApiError> take(const Arrived& arrived, std::string& events);
  void close();
  void fail(const openai::ApiError& error);
  /// From any thread: the engine stops working on it.
  void cancel();

  const std::shared_ptr<Reply> reply_;
  Core& core_;
  const openai::ApiKind kind_;
  const openai::GenerationRequest request_;
  std::vector<TokenizedPrompt> prompts_;
  const openai::AnswerSize size_;
  const std::shared_ptr<AnswerShare> share_;  // of the memory of answers
  const Clock::time_point arrival_ = Clock::now();
  openai::ResponseHead head_;
  openai::TokenText words_;

  std::mutex mutex_;  // of this paragraph
  std::vector<Arrived> mailbox_;
  std::vector<uint64_t> ids_;  // of the engine, one for each prompt that is submitted
  bool begun_ = false;         // outputs may be delivered
  bool posted_ = false;        // somebody is on the way to the mailbox
  bool cancelled_ = false;

  // The engine's thread alone, once it is submitted.
  std::shared_ptr<Admission::Ticket> ticket_;
  std::vector<Progress> progress_;  // of each prompt
  int unfinished_prompts_ = 0;

  // The connection's thread alone.
  std::optional<openai::StreamWriter> writer_;
  std::vector<openai::Choice> choices_;
  std::vector<bool> introduced_;  // choices whose first event is sent
  openai::Usage usage_;
  std::vector<int> cached_tokens_, completion_tokens_;  // by prompt, by choice
  int unfinished_ = 0;
  std::atomic<Clock::time_point> last_write_{arrival_};  // read by the ticker too
  bool opened_ = false, ended_ = false;
};

}  // namespace fovea::server
