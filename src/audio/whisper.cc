#include "audio/whisper.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/same_name.h"
#include "files/json_fields.h"
#include "files/text_file.h"

namespace fovea {
namespace {

constexpr WhisperLanguage kLanguages[] = {
    {"en", "english"},        {"zh", "chinese"},     {"de", "german"},        {"es", "spanish"},
    {"ru", "russian"},        {"ko", "korean"},      {"fr", "french"},        {"ja", "japanese"},
    {"pt", "portuguese"},     {"tr", "turkish"},     {"pl", "polish"},        {"ca", "catalan"},
    {"nl", "dutch"},          {"ar", "arabic"},      {"sv", "swedish"},       {"it", "italian"},
    {"id", "indonesian"},     {"hi", "hindi"},       {"fi", "finnish"},       {"vi", "vietnamese"},
    {"he", "hebrew"},         {"uk", "ukrainian"},   {"el", "greek"},         {"ms", "malay"},
    {"cs", "czech"},          {"ro", "romanian"},    {"da", "danish"},        {"hu", "hungarian"},
    {"ta", "tamil"},          {"no", "norwegian"},   {"th", "thai"},          {"ur", "urdu"},
    {"hr", "croatian"},       {"bg", "bulgarian"},   {"lt", "lithuanian"},    {"la", "latin"},
    {"mi", "maori"},          {"ml", "malayalam"},   {"cy", "welsh"},         {"sk", "slovak"},
    {"te", "telugu"},         {"fa", "persian"},     {"lv", "latvian"},       {"bn", "bengali"},
    {"sr", "serbian"},        {"az", "azerbaijani"}, {"sl", "slovenian"},     {"kn", "kannada"},
    {"et", "estonian"},       {"mk", "macedonian"},  {"br", "breton"},        {"eu", "basque"},
    {"is", "icelandic"},      {"hy", "armenian"},    {"ne", "nepali"},        {"mn", "mongolian"},
    {"bs", "bosnian"},        {"kk", "kazakh"},      {"sq", "albanian"},      {"sw", "swahili"},
    {"gl", "galician"},       {"mr", "marathi"},     {"pa", "punjabi"},       {"si", "sinhala"},
    {"km", "khmer"},          {"sn", "shona"},       {"yo", "yoruba"},        {"so", "somali"},
    {"af", "afrikaans"},      {"oc", "occitan"},     {"ka", "georgian"},      {"be", "belarusian"},
    {"tg", "tajik"},          {"sd", "sindhi"},      {"gu", "gujarati"},      {"am", "amharic"},
    {"yi", "yiddish"},        {"lo", "lao"},         {"uz", "uzbek"},         {"fo", "faroese"},
    {"ht", "haitian creole"}, {"ps", "pashto"},      {"tk", "turkmen"},       {"nn", "nynorsk"},
    {"mt", "maltese"},        {"sa", "sanskrit"},    {"lb", "luxembourgish"}, {"my", "myanmar"},
    {"bo", "tibetan"},        {"tl", "tagalog"},     {"mg", "malagasy"},      {"as", "assamese"},
    {"tt", "tatar"},          {"haw", "hawaiian"},   {"ln", "lingala"},       {"ha", "hausa"},
    {"ba", "bashkir"},        {"jw", "javanese"},    {"su", "sundanese"},     {"yue", "cantonese"},
};

}  // namespace

std::span<const WhisperLanguage> whisper_languages() {
  return kLanguages;
}

const WhisperLanguage* find_whisper_language(std::string_view text) {
  for (const WhisperLanguage& language : kLanguages)
    if (same_name(text, language.code) || same_name(text, language.name)) return &language;
  return nullptr;
}

WhisperTokens find_whisper_tokens(const std::function<std::optional<int32_t>(const std::string&)>& id_of,
                                  int32_t text_end, const WhisperWindow& window, bool multilingual) {
  WhisperTokens out;
  out.text_end = text_end;
  out.start = id_of("<|startoftranscript|>");
  out.previous = id_of("<|startofprev|>");
  out.no_speech = id_of("<|nospeech|>");
  if (!out.no_speech) out.no_speech = id_of("<|nocaptions|>");
  out.no_times = id_of("<|notimestamps|>");
  // Timestamps have no names of their own in the model's definition: they follow <|notimestamps|>.
  if (const auto first = id_of("<|0.00|>");
      first && out.no_times && *first == *out.no_times + 1 &&
      id_of("<|" + std::to_string(window.seconds) + ".00|>") == *first + window.steps)
    out.first_time = first;
  if (!multilingual) return out;
  out.transcribe = id_of("<|transcribe|>");
  out.translate = id_of("<|translate|>");
  if (!out.transcribe) return out;
  for (const WhisperLanguage& language : kLanguages)
    if (const auto id = id_of("<|" + std::string(language.code) + "|>"))
      out.languages.emplace(language.code, *id);
  return out;
}

Result<bool> is_multilingual_whisper(const std::string& dir) {
  constexpr size_t kMostConfigBytes = 1 << 20;
  const std::string file = dir + "/generation_config.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return true;
  FOVEA_TRY(text, read_text_file(file, kMostConfigBytes));
  FOVEA_TRY(root, parse_json_object(text, file));
  Status status;
  Fields fields(root, file, status);
  const bool multilingual = fields.boolean("is_multilingual", true);
  FOVEA_RETURN_IF_ERROR(std::move(status));
  return multilingual;
}

WindowResult split_window(std::span<const int32_t> answer, int32_t first_time, int64_t length) {
  const auto is_time = [&](size_t i) { return answer[i] >= first_time; };
  const auto time = [&](size_t i) { return int64_t{answer[i]} - first_time; };
  WindowResult out;
  const auto add = [&](size_t from, size_t to, int64_t start, int64_t end) {
    out.segments.push_back({start,
                            end,
                            {answer.begin() + static_cast<std::ptrdiff_t>(from),
                             answer.begin() + static_cast<std::ptrdiff_t>(to)}});
  };
  const size_t size = answer.size();
  const bool single_end = size >= 2 && is_time(size - 1) && !is_time(size - 2);
  size_t begun = 0;
  for (size_t i = 1; i < size; ++i) {
    if (!is_time(i - 1) || !is_time(i)) continue;
    add(begun, i, is_time(begun) ? time(begun) : 0, time(i - 1));
    begun = i;
  }
  if (out.segments.empty()) {
    int64_t end = length;
    for (size_t i = size; i-- > 0;)
      if (is_time(i)) {
        if (time(i) > 0) end = time(i);
        break;
      }
    add(0, size, 0, end);
    out.advance = length;
  } else if (single_end) {
    add(begun, size, time(begun), time(size - 1));
    out.advance = length;
  } else {
    out.advance = time(begun - 1);
  }
  out.advance = std::max<int64_t>(out.advance, 1);
  return out;
}

}  // namespace fovea
