#include <optional>
#include <utility>

#include "server/openai/answer_writer.h"

namespace fovea::openai {
namespace {

class OpenAiWriter final : public AnswerWriter {
 public:
  OpenAiWriter(const ResponseHead& head, const GenerationRequest& request, TokenText words)
      : head_(head), request_(request), words_(std::move(words)), stream_(head_, request_, words_) {}

  std::string first(int choice, std::span<const int32_t> prompt_ids, const Usage&) override {
    return stream_.first(choice, prompt_ids);
  }
  std::string echo(int choice, std::string_view text) override { return stream_.echo(choice, text); }
  std::string delta(int choice, const AnswerDelta* parts, int calls, const RequestOutput& output,
                    const Usage& so_far) override {
    return parts ? stream_.delta(choice, *parts, calls, output, so_far)
                 : stream_.delta(choice, output, so_far);
  }
  std::string last(const Usage& usage) override { return stream_.last(usage); }
  std::string whole(std::span<const Choice> choices, const Usage& usage) override {
    return response_json(head_, choices, usage, request_, words_);
  }

 private:
  const ResponseHead head_;
  const GenerationRequest request_;
  const TokenText words_;
  StreamWriter stream_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_openai_writer(const ResponseHead& head, const GenerationRequest& request,
                                                 TokenText words) {
  return std::make_unique<OpenAiWriter>(head, request, std::move(words));
}

}  // namespace fovea::openai
