#include "server/openai/transcription.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "server/openai/json_writer.h"
#include "text/utf8.h"

namespace fovea::openai {
namespace {

using text::Json;

constexpr size_t kMostValueBytes = 64 << 10;  // of a field that is not a file

constexpr std::string_view kFormFields[] = {
    "file",   "language",        "model",
    "prompt", "response_format", "seed",
    "stream", "temperature",     "timestamp_granularities",
};

constexpr std::pair<std::string_view, TranscriptFormat> kFormats[] = {
    {"json", TranscriptFormat::json},
    {"text", TranscriptFormat::text},
    {"verbose_json", TranscriptFormat::verbose_json},
    {"srt", TranscriptFormat::srt},
    {"vtt", TranscriptFormat::vtt},
};

/// Without the brackets that forms append to the names of lists.
std::string_view bare(std::string_view name) {
  return name.ends_with("[]") ? name.substr(0, name.size() - 2) : name;
}

class FormReader {
 public:
  FormReader(std::span<const FormField> form, UnknownFields unknown) : unknown_(unknown) {
    for (const FormField& field : form)
      take(field);
    if (!error && !has_file_)
      refuse("file is missing; send the audio as the form's field \"file\", a WAV file", "file");
    if (!error && out.stream && out.timed())
      refuse("stream is true, and response_format is not json or text; a stream has no times", "stream");
    if (!error && !granularities_.empty() && out.format != TranscriptFormat::verbose_json)
      refuse("timestamp_granularities needs response_format verbose_json", "timestamp_granularities");
  }

  TranscriptionRequest out;
  std::optional<ApiError> error;

 private:
  void refuse(std::string message, std::string_view param, std::string code = {}) {
    if (!error) error = bad_request(std::move(message), std::string(param), std::move(code));
  }
  void refuse_value(std::string_view name, std::string_view value, std::string_view allowed) {
    refuse(
        std::string(name) + " is " + shown(Json(std::string(value))) + "; it must be " + std::string(allowed),
        name);
  }

  void take(const FormField& field) {
    if (error) return;
    const std::string_view name = bare(field.name);
    const auto known = std::ranges::find(kFormFields, name);
    if (known == std::end(kFormFields)) return take_unknown(name, field.value);
    const bool list = *known == "timestamp_granularities";
    bool& given = given_[static_cast<size_t>(known - std::begin(kFormFields))];
    if (std::exchange(given, true) && !list)
      return refuse("the field " + std::string(*known) + " is given twice; give it once", *known);
    if (*known == "file") {
      has_file_ = true;
      out.audio = field.value;
      return;
    }
    if (field.value.size() > kMostValueBytes)
      return refuse(std::string(*known) + " has " + std::to_string(field.value.size()) + " bytes; at most " +
                        std::to_string(kMostValueBytes) + " are allowed",
                    *known);
    if (!text::is_valid_utf8(field.value)) return refuse(std::string(*known) + " is not UTF-8", *known);
    read(*known, field.value);
  }

  void read(std::string_view name, std::string_view value) {
    if (name == "model") {
      out.model = value;
    } else if (name == "language") {
      out.language = value;
    } else if (name == "prompt") {
      out.prompt = value;
    } else if (name == "response_format") {
      const auto format = std::ranges::find(kFormats, value, [](const auto& pair) { return pair.first; });
      if (format == std::end(kFormats))
        return refuse_value(name, value, R"("json", "text", "verbose_json", "srt" or "vtt")");
      out.format = format->second;
    } else if (name == "temperature") {
      const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), out.temperature);
      if (status != std::errc() || end != value.data() + value.size() ||
          !(out.temperature >= 0 && out.temperature <= 1))
        refuse_value(name, value, "a number from 0 to 1");
    } else if (name == "seed") {
      uint64_t seed = 0;
      const auto [end, status] = std::from_chars(value.data(), value.data() + value.size(), seed);
      if (status != std::errc() || end != value.data() + value.size())
        return refuse_value(name, value, "an integer of 0 or more");
      out.seed = seed;
    } else if (name == "stream") {
      out.stream = value == "true" || value == "1";
      if (!out.stream && value != "false" && value != "0") refuse_value(name, value, "true or false");
    } else {
      if (value == "word")
        return refuse(
            "timestamp_granularities has \"word\"; this server gives times of segments: send \"segment\"",
            name, "unsupported_parameter");
      if (value != "segment") return refuse_value(name, value, "\"segment\"");
      granularities_ = value;
    }
  }

  void take_unknown(std::string_view given, std::string_view value) {
    constexpr size_t kMostShown = 40, kMostListed = 16;
    std::string name(given.substr(0, kMostShown));
    std::ranges::replace_if(name, [](char c) { return c <= 0x20 || c >= 0x7F || c == ',' || c == '"'; }, '?');
    if (const FieldRule* rule = find_rule(given)) {
      const Json json = Json(std::string(value.substr(0, kMostValueBytes)));
      if (rule->kind == FieldRule::Kind::refused && value != "false" && !is_off(*rule, json))
        refuse(refusal(*rule, name, shown(json)), name, "unsupported_parameter");
      return;
    }
    if (unknown_ == UnknownFields::refused)
      return refuse(unknown_field(name, given.size() <= kMostShown ? given : "", kFormFields) +
                        "; leave it out, or start the server with --ignore-unknown-fields",
                    name, "unknown_parameter");
    if (out.ignored.size() < kMostListed) out.ignored.push_back(std::move(name));
  }

  const UnknownFields unknown_;
  std::array<bool, std::size(kFormFields)> given_{};
  bool has_file_ = false;
  std::string granularities_;
};

void append_number(std::string& out, const char* format, double value) {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  out += text;
}

/// Milliseconds, without trailing zeros: 1.5
void append_seconds(std::string& out, double value) {
  append_number(out, "%.3f", value);
  while (out.ends_with('0') && !out.ends_with(".0"))
    out.pop_back();
}

void append_duration(std::string& out, double seconds) {
  out += R"("usage":{"type":"duration","seconds":)";
  append_integer(out, static_cast<int64_t>(std::ceil(seconds)));
  out += '}';
}

void append_segment(std::string& out, size_t id, const TranscriptSegment& segment, float temperature) {
  out += R"({"id":)";
  append_integer(out, static_cast<int64_t>(id));
  out += R"(,"seek":)";
  append_integer(out, segment.seek);
  out += R"(,"start":)";
  append_seconds(out, segment.start);
  out += R"(,"end":)";
  append_seconds(out, segment.end);
  out += R"(,"text":)";
  append_string(out, segment.text);
  out += R"(,"tokens":)";
  append_ids(out, segment.tokens);
  out += R"(,"temperature":)";
  append_float(out, temperature);
  out += R"(,"avg_logprob":)";
  append_float(out, static_cast<float>(segment.average_logprob));
  out += R"(,"compression_ratio":null,"no_speech_prob":)";
  if (segment.no_speech_prob)
    append_float(out, static_cast<float>(*segment.no_speech_prob));
  else
    out += "null";
  out += '}';
}

std::string verbose_json(const Transcript& transcript) {
  std::string out = R"({"task":")" + std::string(transcript.translated ? "translate" : "transcribe") + "\"";
  out += R"(,"language":)";
  if (transcript.language.empty())
    out += "null";
  else
    append_string(out, transcript.language);
  out += R"(,"duration":)";
  append_seconds(out, transcript.seconds);
  out += R"(,"text":)";
  append_string(out, transcript.text);
  out += R"(,"segments":[)";
  for (size_t i = 0; i < transcript.segments.size(); ++i) {
    if (i > 0) out += ',';
    append_segment(out, i, transcript.segments[i], transcript.temperature);
  }
  out += "],";
  append_duration(out, transcript.seconds);
  return out + "}";
}

/// "00:00:01.500", with `point` before the milliseconds
std::string clock_time(double seconds, char point) {
  const auto ms = static_cast<int64_t>(std::llround(seconds * 1000));
  char text[64];
  std::snprintf(text, sizeof text, "%02lld:%02lld:%02lld%c%03lld", static_cast<long long>(ms / 3'600'000),
                static_cast<long long>(ms / 60'000 % 60), static_cast<long long>(ms / 1000 % 60), point,
                static_cast<long long>(ms % 1000));
  return text;
}

/// A cue's text is one line, and must not look like its times.
std::string cue(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  std::string out(text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1));
  std::ranges::replace_if(out, [](char c) { return c == '\r' || c == '\n'; }, ' ');
  for (size_t at = 0; (at = out.find("-->", at)) != std::string::npos;)
    out.erase(at, 1);
  return out;
}

std::string subtitles(const Transcript& transcript, bool srt) {
  std::string out = srt ? "" : "WEBVTT\n\n";
  const char point = srt ? ',' : '.';
  for (size_t i = 0; i < transcript.segments.size(); ++i) {
    const TranscriptSegment& segment = transcript.segments[i];
    if (srt) out += std::to_string(i + 1) + "\n";
    out += clock_time(segment.start, point) + " --> " + clock_time(segment.end, point) + "\n" +
           cue(segment.text) + "\n\n";
  }
  return out;
}

}  // namespace

ApiResult<TranscriptionRequest> parse_transcription(std::span<const FormField> form, UnknownFields unknown) {
  FormReader reader(form, unknown);
  if (reader.error) return *std::move(reader.error);
  return std::move(reader.out);
}

std::span<const std::string_view> transcription_fields() {
  return kFormFields;
}

std::string_view transcript_type(TranscriptFormat format) {
  switch (format) {
    case TranscriptFormat::json:
    case TranscriptFormat::verbose_json: return "application/json";
    case TranscriptFormat::vtt: return "text/vtt; charset=utf-8";
    case TranscriptFormat::text:
    case TranscriptFormat::srt: break;
  }
  return "text/plain; charset=utf-8";
}

std::string transcript_text(TranscriptFormat format, const Transcript& transcript) {
  std::string out;
  switch (format) {
    case TranscriptFormat::json:
      out = R"({"text":)";
      append_string(out, transcript.text);
      out += ',';
      append_duration(out, transcript.seconds);
      return out + "}";
    case TranscriptFormat::text: return transcript.text + "\n";
    case TranscriptFormat::verbose_json: return verbose_json(transcript);
    case TranscriptFormat::srt:
    case TranscriptFormat::vtt: break;
  }
  return subtitles(transcript, format == TranscriptFormat::srt);
}

std::string transcript_delta(std::string_view text) {
  std::string out = R"(data: {"type":"transcript.text.delta","delta":)";
  append_string(out, text);
  return out + "}\n\n";
}

std::string transcript_done(const Transcript& transcript) {
  std::string out = R"(data: {"type":"transcript.text.done","text":)";
  append_string(out, transcript.text);
  out += ',';
  append_duration(out, transcript.seconds);
  return out + "}\n\ndata: [DONE]\n\n";
}

}  // namespace fovea::openai
