#pragma once
// Whisper's decoding of long audio, as published: the tokens around a transcript, its languages, and how the
// timestamps of one window's answer become segments and say where the next window begins.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/result_fwd.h"

namespace fovea {

struct WhisperLanguage {
  std::string_view code;  ///< "en", as in the token <|en|>
  std::string_view name;  ///< "english"
};
std::span<const WhisperLanguage> whisper_languages();
/// By code or name, in any letter case; null = none.
const WhisperLanguage* find_whisper_language(std::string_view text);

/// The special tokens of a Whisper model; those that its tokenizer lacks are absent.
struct WhisperTokens {
  std::optional<int32_t> start;       ///< <|startoftranscript|>
  std::optional<int32_t> transcribe;  ///< absent: the model knows English alone, and no tasks
  std::optional<int32_t> translate;
  std::optional<int32_t> previous;    ///< <|startofprev|>, before the text so far
  std::optional<int32_t> no_speech;   ///< <|nospeech|> or <|nocaptions|>
  std::optional<int32_t> no_times;    ///< <|notimestamps|>
  std::optional<int32_t> first_time;  ///< <|0.00|>, if there is one for each of the window's positions
  int32_t text_end = 0;               ///< ids below it are text
  std::map<std::string, int32_t, std::less<>> languages;  ///< by code; empty with an English-only model
};

/// What the encoder takes at a time.
struct WhisperWindow {
  int seconds = 30;
  int steps = 1500;  ///< positions of the encoder's output: as many timestamps follow <|0.00|>
};

/// `id_of`: a special token's id. `text_end`: the end token. `multilingual`: false = the model's files say
/// that it knows English alone.
WhisperTokens find_whisper_tokens(const std::function<std::optional<int32_t>(const std::string&)>& id_of,
                                  int32_t text_end, const WhisperWindow& window, bool multilingual);

/// Whether DIR/generation_config.json, if there is one, says that the model knows other languages than
/// English; true where it does not say.
Result<bool> is_multilingual_whisper(const std::string& dir);

/// A part of a window's answer. Times are in timestamp steps (positions of the encoder) from the window's
/// beginning.
struct WindowSegment {
  int64_t start = 0, end = 0;
  std::vector<int32_t> tokens;  ///< the timestamps included
};

struct WindowResult {
  std::vector<WindowSegment> segments;
  int64_t advance = 0;  ///< from this window's beginning to the next one's, at least 1
};

/// Splits the answer to a window of `length` steps. Where it has pairs of timestamps, what follows the last
/// pair is dropped and decoded again: the next window begins there. A window without a pair, or one that ends
/// with a single timestamp, is done.
WindowResult split_window(std::span<const int32_t> answer, int32_t first_time, int64_t length);

}  // namespace fovea
