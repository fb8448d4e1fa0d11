#pragma once
// Transcripts of audio: the fields of a form (/v1/audio/transcriptions, /v1/audio/translations), and the
// answers as text. The audio is decoded elsewhere.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/request.h"

namespace fovea::openai {

/// A field of a form.
struct FormField {
  std::string name;
  std::string_view value;  ///< in the request's body
};

enum class TranscriptFormat : uint8_t { json, text, verbose_json, srt, vtt };

struct TranscriptionRequest : RequestBase {
  std::string model;
  std::string_view audio;  ///< the file's bytes, in the request's body
  std::string language;    ///< as given; "" = not given
  std::string prompt;      ///< text that comes before the transcript
  TranscriptFormat format = TranscriptFormat::json;
  float temperature = 0;
  std::optional<uint64_t> seed;
  bool stream = false;

  /// Whether the answer has times.
  bool timed() const { return format != TranscriptFormat::json && format != TranscriptFormat::text; }
};

ApiResult<TranscriptionRequest> parse_transcription(std::span<const FormField> form,
                                                    UnknownFields unknown = UnknownFields::refused);
/// The names that parse_transcription() reads, sorted.
std::span<const std::string_view> transcription_fields();

struct TranscriptSegment {
  int64_t seek = 0;           ///< frames of the features before the segment's window
  double start = 0, end = 0;  /// seconds
  std::string text;
  std::vector<int32_t> tokens;
  double average_logprob = 0;            ///< of the window's tokens, in the model's distribution
  std::optional<double> no_speech_prob;  ///< of the window
};

struct Transcript {
  bool translated = false;
  std::string language;  ///< its name; "" = unknown
  double seconds = 0;    ///< of the audio
  float temperature = 0;
  std::string text;
  std::vector<TranscriptSegment> segments;
};

std::string_view transcript_type(TranscriptFormat format);
std::string transcript_text(TranscriptFormat format, const Transcript& transcript);

/// Events of a stream (SSE).
std::string transcript_delta(std::string_view text);
std::string transcript_done(const Transcript& transcript);

}  // namespace fovea::openai
