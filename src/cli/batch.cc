#include "cli/batch.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "cli/run_settings.h"

namespace fovea::cli {
namespace {

// Answers in flight or waiting to be written, per running slot: enough that one long answer at the head of
// the queue does not leave the engine idle.
constexpr size_t kWindowFactor = 4;

Error named(const std::string& name, Error error) {
  if (!name.empty()) error.message = name + ": " + error.message;
  return error;
}

/// The number of rows; an error if the engine would refuse one of them.
Result<int64_t> check_rows(const Engine& engine, RowSource& source, const Batch& batch) {
  for (int64_t rows = 0;; ++rows) {
    FOVEA_TRY(row, source.next());
    if (!row) return rows;
    auto request = batch.request(*row);
    if (!request) return named(source.name(*row), std::move(request).error());
    if (auto status = engine.check(*request); !status) return named(source.name(*row), status.error());
  }
}

}  // namespace

Result<std::vector<int32_t>> prompt_ids(const Engine& engine, const InputRow& row, bool as_chat,
                                        const ChatRequest& defaults, const std::string& system) {
  if (row.ids || (!row.chat && !as_chat)) {
    if (!system.empty())
      return invalid("a system message is part of a chat; give \"messages\", or --chat and a text");
    if (!(defaults.tools.empty() && defaults.documents.empty() && defaults.template_kwargs.empty()))
      return invalid(
          "--tools, --documents and --template-kwargs are part of a chat; give \"messages\", or --chat and a "
          "text");
    if (row.ids) return *row.ids;
    return engine.tokenize(*row.text, true);
  }
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

BatchRunner::BatchRunner(Engine& engine, Options options, Write write)
    : engine_(engine),
      progress_(options.what, options.rows, options.first),
      options_(std::move(options)),
      write_(std::move(write)),
      submitted_(options_.first),
      written_(options_.first),
      writer_([this] { write_rows(); }) {}

BatchRunner::~BatchRunner() {
  join(true);
  for (const auto& row : rows_)
    engine_.cancel(row->request);  // no effect on a finished request
  engine_.wait_idle();
}

Status BatchRunner::wait_for_room(size_t answers) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || held_ == 0 || held_ + answers <= options_.window; });
  if (failure_) return *failure_;
  return {};
}

void BatchRunner::add(std::unique_ptr<RowResult> row, size_t answers) {
  ++submitted_;
  {
    const std::lock_guard lock(mutex_);
    rows_.push_back(std::move(row));  // may have finished already
    held_ += answers;
  }
  changed_.notify_all();
}

Status BatchRunner::submit(GenerateRequest request, RowTag tag) {
  const auto answers = static_cast<size_t>(std::clamp(request.sampling.n, 1, kMaxChoices));
  FOVEA_RETURN_IF_ERROR(wait_for_room(answers));
  auto row = std::make_unique<RowResult>();
  row->index = submitted_;
  row->tag = std::move(tag);
  if (request.prompt_logprobs) row->prompt_ids = request.prompt_ids;
  row->logprobs = request.sampling.logprobs.has_value();
  auto sink = [this, result = row.get()](const RequestOutput& output) {
    const std::lock_guard lock(mutex_);
    Choice& choice = result->choices[static_cast<size_t>(output.index)];
    choice.text += output.text;
    choice.token_ids.insert(choice.token_ids.end(), output.token_ids.begin(), output.token_ids.end());
    choice.logprobs.insert(choice.logprobs.end(), output.logprobs.begin(), output.logprobs.end());
    if (output.finish == FinishReason::none) return;
    choice.last = output;
    if (--result->unfinished == 0) changed_.notify_all();
  };
  row->choices.resize(answers);
  row->unfinished = answers;
  auto id = engine_.submit(std::move(request), std::move(sink));
  if (!id && options_.keep_going) return refuse(std::move(id).error(), std::move(row->tag));
  if (!id) return named(row->tag.name, std::move(id).error());
  row->request = *id;
  add(std::move(row), answers);
  return {};
}

Status BatchRunner::refuse(Error error, RowTag tag) {
  FOVEA_RETURN_IF_ERROR(wait_for_room(1));
  auto row = std::make_unique<RowResult>();
  row->index = submitted_;
  row->refused = std::move(error);
  row->tag = std::move(tag);
  add(std::move(row), 1);
  return {};
}

Status BatchRunner::status() {
  const std::lock_guard lock(mutex_);
  if (failure_) return *failure_;
  return {};
}

Status BatchRunner::drain() {
  join(false);
  return status();
}

void BatchRunner::join(bool abandon) {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    abandoned_ = abandon;
  }
  changed_.notify_all();
  if (writer_.joinable()) writer_.join();
}

std::unique_ptr<RowResult> BatchRunner::next_done() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (abandoned_ || (closed_ && rows_.empty())) return nullptr;
    if (!rows_.empty() && rows_.front()->unfinished == 0) break;
    changed_.wait_for(lock, std::chrono::milliseconds(200));
    progress_.update(written_);
  }
  std::unique_ptr<RowResult> row = std::move(rows_.front());
  rows_.pop_front();
  return row;
}

Status BatchRunner::write_row(RowResult& row) const {
  for (Choice& choice : row.choices) {
    if (choice.last.finish != FinishReason::error) continue;
    if (!options_.keep_going) return named(row.tag.name, std::move(choice.last.error));
    row.refused = std::move(choice.last.error);
  }
  try {
    return write_(row);
  } catch (const std::bad_alloc&) {  // not caught above this thread
    return named(row.tag.name, {ErrorCode::out_of_memory,
                                "out of memory while writing the result; ask for fewer log probabilities"});
  }
}

void BatchRunner::write_rows() {
  while (const auto row = next_done()) {
    const Status status = write_row(*row);
    {
      const std::lock_guard lock(mutex_);
      held_ -= std::max<size_t>(1, row->choices.size());
      ++written_;
      if (!status) failure_ = status.error();
    }
    changed_.notify_all();
    if (!status) return;
  }
}

namespace {

/// Submits the row unless `output` already has it.
Status submit_row(const RowSource& source, const Batch& batch, const OutputFile& output, InputRow row,
                  int64_t index, BatchRunner& runner) {
  RowTag tag{source.name(row), std::move(row.id_json), {row.digest, 0}};
  Result<GenerateRequest> request = row.refused ? *std::move(row.refused) : batch.request(row);
  if (!request && !source.keeps_going()) return named(tag.name, std::move(request).error());
  if (request) tag.key.request = request_digest(*request);
  if (index < output.kept()) return output.check_kept(index, tag.key, tag.name);
  if (request) return runner.submit(*std::move(request), std::move(tag));
  return runner.refuse(std::move(request).error(), std::move(tag));
}

}  // namespace

Status run_batch(Engine& engine, RowSource& source, const Batch& batch, OutputFile& output) {
  FOVEA_RETURN_IF_ERROR(output.begin(run_settings(batch.what, engine)));
  BatchRunner::Options options;
  options.what = batch.what;
  options.first = output.kept();
  options.window = kWindowFactor * static_cast<size_t>(batch.max_running);
  options.keep_going = source.keeps_going();
  if (!options.keep_going) {
    FOVEA_TRY(counted, check_rows(engine, source, batch));
    options.rows = counted;
    if (!source.rewind()) return io_error("cannot read the input again from its start");
    output.expect(counted);
  }
  std::atomic<int64_t> refused = 0;
  BatchRunner runner(engine, options, [&](RowResult& result) -> Status {
    refused += result.refused.has_value();
    return output.line(
        result.refused ? error_row(result.index, result.tag.id_json, *result.refused) : batch.line(result),
        result.tag.key);
  });
  for (int64_t index = 0;; ++index) {
    while (!source.ready(100))  // the sender of the rows may be waiting for a row that has failed
      FOVEA_RETURN_IF_ERROR(runner.status());
    FOVEA_TRY(row, source.next());
    if (!row && index < output.kept()) return output.more_kept(index);
    if (!row) break;
    FOVEA_RETURN_IF_ERROR(submit_row(source, batch, output, *std::move(row), index, runner));
  }
  FOVEA_RETURN_IF_ERROR(runner.drain());
  FOVEA_RETURN_IF_ERROR(output.commit());
  return refused_rows(refused);
}

std::string prompt_logprobs_json(const Engine& engine, const RowResult& result) {
  std::string json = "[null";
  for (const TokenLogprobs& token : result.choices.front().last.prompt_logprobs)
    json += ", " + logprobs_json(engine, token);
  return json + "]";
}

}  // namespace fovea::cli
