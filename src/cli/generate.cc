// fovea generate: prompts from flags, a file or JSON lines; answers streamed to a person or written as JSON
// lines.
#include <cstdio>

#include "cli/batch.h"
#include "cli/output_file.h"
#include "cli/stream_answer.h"

namespace fovea::cli {
namespace {

Result<std::vector<InputRow>> rows_of_flags(const GenerateFlags& flags) {
  if (!flags.input.empty()) {
    if (!flags.prompts.empty() || !flags.prompt_file.empty())
      return invalid("--input " + flags.input + " has the prompts already; give no others");
    return read_rows(flags.input);
  }
  if (!flags.system.empty() && !flags.chat) return invalid("--system is part of a chat; give --chat too");
  const TemplateFlags& given = flags.chat_template;
  if (!flags.chat && !(given.tools.empty() && given.documents.empty() && given.kwargs.empty()))
    return invalid("--tools, --documents and --template-kwargs are part of a chat; give --chat too");
  std::vector<InputRow> rows;
  for (const std::string& prompt : flags.prompts) {
    rows.emplace_back();
    rows.back().text = prompt;
  }
  if (!flags.prompt_file.empty()) {
    FOVEA_TRY(text, read_file(flags.prompt_file));
    rows.emplace_back();
    rows.back().text = std::move(text);
  }
  if (rows.empty())
    return invalid("no prompt: give it as an argument, --prompt-file FILE or --input FILE.jsonl");
  return rows;
}

Result<GenerateRequest> make_request(const Engine& engine, const InputRow& row, const GenerateFlags& flags,
                                     const ChatRequest& chat) {
  GenerateRequest request;
  FOVEA_TRY(ids, prompt_ids(engine, row, flags.chat, chat, flags.system));
  request.prompt_ids = std::move(ids);
  request.sampling = merge_sampling(engine.default_sampling(), flags.sampling, flags.model.seed);
  request.sampling = merge_sampling(request.sampling, row.sampling, row.seed.value_or(flags.model.seed));
  return request;
}

std::string to_row(size_t index, const InputRow& row, const RowResult& result) {
  JsonRow out;
  out.add("index", static_cast<int64_t>(index));
  if (!row.id_json.empty()) out.add_raw("id", row.id_json);
  out.add("text", result.text).add("token_ids", result.token_ids);
  out.add("finish_reason", to_string(result.last.finish));
  if (!result.last.stop_reason.empty()) out.add("stop_reason", result.last.stop_reason);
  out.add("prompt_tokens", result.last.prompt_tokens).add("cached_tokens", result.last.cached_tokens);
  return out.add("completion_tokens", result.last.completion_tokens).str();
}

Status run_rows(Engine& engine, const GenerateFlags& flags, const ChatRequest& chat,
                const std::vector<InputRow>& rows, OutputFile& output) {
  BatchRunner runner(engine, "generate", rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string name = rows[i].line ? flags.input + " line " + std::to_string(rows[i].line) : "";
    auto request = make_request(engine, rows[i], flags, chat);
    if (!request)
      return Error{request.error().code, (name.empty() ? "" : name + ": ") + request.error().message};
    FOVEA_RETURN_IF_ERROR(runner.submit(i, std::move(*request), name));
  }
  FOVEA_RETURN_IF_ERROR(runner.drain([&](size_t i, RowResult& result) -> Status {
    output.line(to_row(i, rows[i], result));
    return {};
  }));
  return output.commit();
}

Status stream_prompt(Engine& engine, const InputRow& row, const GenerateFlags& flags, const ChatRequest& chat,
                     InterruptFlag& interrupt) {
  FOVEA_TRY(request, make_request(engine, row, flags, chat));
  FOVEA_TRY(answer, stream_answer(engine, std::move(request), interrupt));
  const RequestOutput& last = answer.last;
  const double decode = answer.seconds - answer.first_token_seconds;
  std::fprintf(
      stderr, "%d prompt tokens (%d cached), first token after %.1f ms; %d tokens, %.1f tokens/s (%s)\n",
      last.prompt_tokens, last.cached_tokens, answer.first_token_seconds * 1e3, last.completion_tokens,
      last.completion_tokens > 1 && decode > 0 ? (last.completion_tokens - 1) / decode
                                               : last.completion_tokens / std::max(answer.seconds, 1e-9),
      std::string(to_string(last.finish)).c_str());
  if (last.finish == FinishReason::cancelled) return Error{ErrorCode::cancelled, "interrupted"};
  return {};
}

}  // namespace

Status run_generate(const GenerateFlags& flags) {
  FOVEA_TRY(rows, rows_of_flags(flags));
  FOVEA_TRY(chat, chat_request(flags.chat_template));
  FOVEA_TRY(output, OutputFile::open(flags.output));
  FOVEA_TRY(engine, make_engine(flags.model));
  std::fputs(describe_start(engine->info()).c_str(), stderr);
  if (!flags.input.empty() || !flags.output.empty() || flags.model.json)
    return run_rows(*engine, flags, chat, rows, output);
  InterruptFlag interrupt;
  for (const InputRow& row : rows)
    FOVEA_RETURN_IF_ERROR(stream_prompt(*engine, row, flags, chat, interrupt));
  return {};
}

}  // namespace fovea::cli
