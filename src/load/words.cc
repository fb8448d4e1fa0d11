// Common English words; each is usually one token including the space before it.
#include "load/dataset.h"

namespace fovea::load {

const std::vector<std::string_view>& common_words() {
  static const std::vector<std::string_view> words = {
      "the",      "of",         "and",       "to",      "in",     "is",       "that",    "for",
      "it",       "as",         "was",       "with",    "be",     "by",       "on",      "not",
      "he",       "this",       "are",       "or",      "his",    "from",     "at",      "which",
      "but",      "have",       "an",        "had",     "they",   "you",      "were",    "their",
      "one",      "all",        "we",        "can",     "her",    "has",      "there",   "been",
      "if",       "more",       "when",      "will",    "would",  "who",      "so",      "no",
      "said",     "what",       "up",        "its",     "about",  "into",     "than",    "them",
      "only",     "other",      "new",       "some",    "could",  "time",     "these",   "two",
      "may",      "then",       "do",        "first",   "any",    "my",       "now",     "such",
      "like",     "our",        "over",      "man",     "me",     "even",     "most",    "made",
      "after",    "also",       "did",       "many",    "before", "must",     "through", "back",
      "years",    "where",      "much",      "your",    "way",    "well",     "down",    "should",
      "because",  "each",       "just",      "those",   "people", "how",      "too",     "little",
      "state",    "good",       "very",      "make",    "world",  "still",    "own",     "see",
      "men",      "work",       "long",      "get",     "here",   "between",  "both",    "life",
      "being",    "under",      "never",     "day",     "same",   "another",  "know",    "while",
      "last",     "might",      "us",        "great",   "old",    "year",     "off",     "come",
      "since",    "against",    "go",        "came",    "right",  "used",     "take",    "three",
      "states",   "himself",    "few",       "house",   "use",    "during",   "without", "again",
      "place",    "around",     "however",   "home",    "small",  "found",    "thought", "went",
      "say",      "part",       "once",      "general", "high",   "upon",     "school",  "every",
      "does",     "got",        "united",    "left",    "number", "course",   "war",     "until",
      "always",   "away",       "something", "fact",    "water",  "though",   "less",    "public",
      "put",      "think",      "almost",    "hand",    "enough", "far",      "took",    "head",
      "yet",      "government", "system",    "set",     "better", "told",     "nothing", "night",
      "end",      "why",        "called",    "eyes",    "find",   "going",    "look",    "asked",
      "later",    "point",      "knew",      "next",    "city",   "business", "case",    "group",
      "give",     "days",       "young",     "let",     "room",   "present",  "order",   "second",
      "possible", "rather",     "given",     "side",    "face",   "large",    "best",    "power",
      "often",    "white",      "black",     "open",    "light",  "country",  "early",   "money",
      "music",    "paper",      "river",     "stone",   "summer", "table",    "voice",   "winter",
      "window",   "garden",     "market",    "letter"};
  return words;
}

std::string all_words() {
  std::string text;
  for (const std::string_view word : common_words())
    text.append(" ").append(word);
  return text;
}

}  // namespace fovea::load
