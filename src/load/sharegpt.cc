// Streaming parser of ShareGPT files: of hundreds of megabytes, only two strings per conversation are kept.
#include <istream>
#include <nlohmann/json.hpp>
#include <utility>

#include "fovea/result.h"
#include "load/dataset.h"

namespace fovea::load {
namespace {

using Json = nlohmann::json;

/// Depths: 1 the list, 2 a conversation's object, 3 its "conversations", 4 a message.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  std::vector<Turn> turns;
  std::string error;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool string(std::string& text) override {
    if (depth_ == 4 && in_conversations_ && key_ == "value") {
      if (values_ == 0)
        turn_.question = std::move(text);
      else if (values_ == 1)
        turn_.answer = std::move(text);
      ++values_;
    }
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 0) return refuse("it is an object, not a list");
    return open();
  }
  bool key(std::string& name) override {
    if (depth_ == 2) in_conversations_ = name == "conversations";
    if (depth_ == 2 || depth_ == 4) key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    if (--depth_ != 1) return true;
    if (values_ >= 2) turns.push_back(std::move(turn_));
    turn_ = {};
    values_ = 0;
    in_conversations_ = false;
    return true;
  }
  bool start_array(size_t) override { return open(); }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return refuse("it is not JSON at byte " + std::to_string(position));
  }

 private:
  bool open() {
    constexpr int kDeepest = 100;
    return ++depth_ <= kDeepest || refuse("it nests deeper than 100 levels");
  }
  bool refuse(std::string why) {
    error = std::move(why);
    return false;
  }

  int depth_ = 0, values_ = 0;
  bool in_conversations_ = false;
  std::string key_;
  Turn turn_;
};

}  // namespace

Result<std::vector<Turn>> read_sharegpt(std::istream& file, const std::string& name) {
  Reader reader;
  if (!Json::sax_parse(file, &reader))
    return invalid(
        name + ": " + (reader.error.empty() ? "it cannot be read" : reader.error) +
        "; a ShareGPT file is a list of {\"conversations\": [{\"from\": ..., \"value\": ...}, ...]}");
  if (reader.turns.empty())
    return invalid(name +
                   ": no conversation of two turns; a ShareGPT file is a list of {\"conversations\": "
                   "[{\"from\": ..., \"value\": ...}, ...]}");
  return std::move(reader.turns);
}

}  // namespace fovea::load
