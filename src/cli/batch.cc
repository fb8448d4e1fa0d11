#include "cli/batch.h"

namespace fovea::cli {
namespace {

Error named(const std::string& name, Error error) {
  if (!name.empty()) error.message = name + ": " + error.message;
  return error;
}

}  // namespace

Result<std::vector<int32_t>> prompt_ids(const Engine& engine, const InputRow& row, bool as_chat,
                                        const ChatRequest& defaults, const std::string& system) {
  if (row.ids) return *row.ids;
  if (!row.chat && !as_chat) return engine.tokenize(*row.text, true);
  if (!engine.has_chat_template())
    return invalid("this model has no chat template; give plain prompts without --chat");
  ChatRequest request = row.chat ? *row.chat : ChatRequest{};
  if (request.tools.empty()) request.tools = defaults.tools;
  if (request.documents.empty()) request.documents = defaults.documents;
  if (request.template_kwargs.empty()) request.template_kwargs = defaults.template_kwargs;
  if (!row.chat) request.messages = "[" + message_json("user", *row.text) + "]";
  request.messages = with_system(request.messages, system);
  FOVEA_TRY(text, engine.apply_chat_template(request));
  return engine.tokenize(text, false);
}

Status BatchRunner::submit(size_t row, GenerateRequest request, const std::string& name) {
  auto sink = [this, row](const RequestOutput& output) {
    const std::lock_guard lock(mutex_);
    RowResult& result = results_[row];
    result.text += output.text;
    result.token_ids.insert(result.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
    if (output.finish == FinishReason::none) return;
    result.last = output;
    result.done = true;
    ++done_;
    changed_.notify_all();
  };
  results_[row].name = name;
  auto id = engine_.submit(std::move(request), std::move(sink));
  if (!id) return named(name, std::move(id).error());
  ids_.push_back(*id);
  return {};
}

BatchRunner::~BatchRunner() {
  for (const uint64_t id : ids_)
    engine_.cancel(id);  // does nothing to one that is done
  engine_.wait_idle();
}

Status BatchRunner::drain(const std::function<Status(size_t, RowResult&)>& write) {
  for (size_t row = 0; row < results_.size(); ++row) {
    std::unique_lock lock(mutex_);
    while (!results_[row].done) {
      changed_.wait_for(lock, std::chrono::milliseconds(200));
      progress_.update(done_);
    }
    RowResult result = std::move(results_[row]);
    lock.unlock();
    if (result.last.finish == FinishReason::error) return named(result.name, std::move(result.last.error));
    FOVEA_RETURN_IF_ERROR(write(row, result));
  }
  return {};
}

}  // namespace fovea::cli
