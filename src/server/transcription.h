#pragma once
// One transcript: Whisper's windows one after the other, each an engine request, and one answer.
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "audio/resample.h"
#include "audio/wav.h"
#include "server/openai/transcription.h"
#include "server/reply.h"

namespace fovea::server {

struct TranscriptionPlan {
  openai::TranscriptionRequest request;
  WavFile audio;
  Resampler resampler;          ///< to the model's rate
  std::string language;         ///< its code; "" = the first window tells, or the model has none
  std::vector<int32_t> prompt;  ///< text before the transcript, in tokens
  bool translate = false;
  bool times = false;  ///< decode with timestamps; else the audio is one window

  /// The audio's samples at the model's rate.
  int64_t samples() const { return resampler.outputs(audio.samples()); }
};

/// Lives until its answer has ended and the engine holds no reference. Windows are prepared on worker
/// threads, the engine's thread puts outputs into the mailbox, and all else runs on the connection's I/O
/// thread; the two never work on the transcript at the same time.
class Transcription final : public Job, public std::enable_shared_from_this<Transcription> {
 public:
  /// Call on a worker thread.
  static void start(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket,
                    TranscriptionPlan plan);

  Transcription(std::shared_ptr<Reply> reply, std::shared_ptr<Admission::Ticket> ticket,
                TranscriptionPlan plan);
  ~Transcription() override;

  void abort() override;
  void tick(Clock::time_point now) override;

 private:
  const AudioInput& model() const { return *core_.config.audio; }
  /// On a worker: computes the features of the window at seek_, and submits it.
  void next_window();
  std::optional<openai::ApiError> compute_features();
  std::optional<openai::ApiError> submit();
  std::vector<int32_t> decoder_prompt() const;
  GenerateRequest engine_request() const;
  /// On the engine's thread.
  void on_output(const RequestOutput& output);
  void post_delivery();

  // On the connection's thread.
  void deliver();
  std::optional<openai::ApiError> take(const RequestOutput& output);
  void end_window();
  std::optional<openai::ApiError> keep_segments();
  std::optional<double> no_speech_probability() const;
  std::optional<openai::ApiError> emit(std::string_view text);
  void finish();
  void fail(const openai::ApiError& error);
  void cancel();
  void record(FinishReason reason);

  const std::shared_ptr<Reply> reply_;
  Core& core_;
  std::shared_ptr<Admission::Ticket> ticket_;
  TranscriptionPlan plan_;
  const Clock::time_point arrival_ = Clock::now();

  std::mutex mutex_;  // guards the members below, up to cancelled_
  std::vector<RequestOutput> mailbox_;
  std::optional<uint64_t> id_;  // of the window's engine request
  bool posted_ = false;         // deliver() is posted already
  bool cancelled_ = false;
  std::optional<Clock::time_point> last_token_;  // only for the engine's thread

  // The window.
  int64_t seek_ = 0, frames_ = 0;  // frames before it, and in it
  bool detecting_ = false;         // its answer is the language
  int64_t computed_for_ = -1;      // seek_ of features_
  std::vector<float> features_;
  std::vector<int32_t> answer_;
  std::vector<TokenLogprobs> logprobs_, prompt_logprobs_;
  size_t prompt_size_ = 0;

  openai::Transcript transcript_;
  std::vector<int32_t> context_;  // the text so far, in tokens, with the client's prompt
  std::string held_;              // white space that is dropped if it turns out to be the end
  RequestRecord record_;
  std::atomic<Clock::time_point> last_write_{arrival_};
  bool opened_ = false, ended_ = false, recorded_ = false, computed_ = false;
  std::atomic<bool> streams_{false};
};

}  // namespace fovea::server
