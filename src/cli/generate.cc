// fovea generate: prompts from flags, a file or JSON lines; answers as streamed text or JSON lines.
#include <cstdio>

#include "cli/batch.h"
#include "cli/encoder_rows.h"
#include "cli/engine_stats.h"
#include "cli/profile_file.h"
#include "cli/stream_answer.h"

namespace fovea::cli {
namespace {

Result<RowSource> rows_of_flags(const GenerateFlags& flags) {
  if (!flags.input.empty()) {
    if (!flags.prompts.empty() || !flags.prompt_file.empty() || !flags.audio.empty())
      return invalid("--input " + flags.input + " has the prompts already; give no others");
    return RowSource::open(flags.input, {RowKind::generate, flags.ignore_unknown});
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
  for (const std::string& path : flags.audio) {
    rows.emplace_back();
    rows.back().audio = path;
  }
  if (rows.empty())
    return invalid(
        "no prompt: give it as an argument, --prompt-file FILE, --audio FILE or --input FILE.jsonl");
  return RowSource(std::move(rows));
}

/// Turns rows into requests.
struct RequestMaker {
  const Engine& engine;
  const GenerateFlags& flags;
  const EncoderRows& encoder;
  const ChatRequest& chat;  ///< for rows without "messages", with --chat

  Result<GenerateRequest> operator()(const InputRow& row) const;
};

Result<GenerateRequest> RequestMaker::operator()(const InputRow& row) const {
  GenerateRequest request;
  if (encoder.active()) {
    const TemplateFlags& given = flags.chat_template;
    if (flags.chat || !flags.system.empty() ||
        !(given.tools.empty() && given.documents.empty() && given.kwargs.empty()))
      return invalid(
          "--chat, --system, --tools, --documents and --template-kwargs: this model reads one text or sound, "
          "not a chat; leave them out");
    FOVEA_RETURN_IF_ERROR(
        encoder.fill(engine, row, row.decoder_prompt.value_or(flags.decoder_prompt), request));
  } else {
    if (row.audio) return invalid(*row.audio + ": this model reads text, not audio");
    if (row.decoder_prompt || !flags.decoder_prompt.empty())
      return invalid("a decoder prompt is for encoder-decoder models; give a plain prompt to this one");
    FOVEA_TRY(ids, prompt_ids(engine, row, flags.chat, chat, flags.system));
    request.prompt_ids = std::move(ids);
  }
  request.sampling = merge_sampling(engine.default_sampling(), flags.sampling);
  request.priority = row.priority.value_or(0);
  request.lora = row.lora.value_or(flags.lora);
  request.sampling.seed = flags.model.seed;
  request.sampling = merge_sampling(request.sampling, row.sampling);
  if (row.no_logprobs) request.sampling.logprobs.reset();
  request.prompt_logprobs =
      row.sampling.prompt_logprobs ? row.sampling.prompt_logprobs : flags.sampling.prompt_logprobs;
  return request;
}

void add_answer(JsonRow& out, const Engine& engine, const Choice& choice, bool logprobs) {
  out.add("text", choice.text).add("token_ids", choice.token_ids);
  out.add("finish_reason", to_string(choice.last.finish));
  if (!choice.last.stop_reason.empty()) out.add("stop_reason", choice.last.stop_reason);
  if (!logprobs) return;
  std::string content = "[";
  for (size_t i = 0; i < choice.logprobs.size(); ++i)
    content += (i ? ", " : "") + logprobs_json(engine, choice.logprobs[i]);
  out.add_raw("logprobs", "{\"content\": " + content + "]}");
}

/// A single answer's fields are the row's members; several answers are an array "choices".
std::string to_row(const Engine& engine, const RowResult& result) {
  const RequestOutput& first = result.choices.front().last;
  JsonRow out;
  out.add("index", result.index);
  if (!result.tag.id_json.empty()) out.add_raw("id", result.tag.id_json);
  int64_t completion_tokens = first.completion_tokens;
  if (result.choices.size() == 1) {
    add_answer(out, engine, result.choices.front(), result.logprobs);
  } else {
    std::string choices = "[";
    completion_tokens = 0;
    for (const Choice& choice : result.choices) {
      JsonRow one;
      one.add("index", choice.last.index);
      add_answer(one, engine, choice, result.logprobs);
      one.add("completion_tokens", choice.last.completion_tokens);
      choices += (choices.size() > 1 ? ", " : "") + one.str();
      completion_tokens += choice.last.completion_tokens;
    }
    out.add_raw("choices", choices + "]");
  }
  if (!result.prompt_ids.empty()) out.add_raw("prompt_logprobs", prompt_logprobs_json(engine, result));
  out.add("prompt_tokens", first.prompt_tokens).add("cached_tokens", first.cached_tokens);
  return out.add("completion_tokens", completion_tokens).str();
}

Status stream_prompt(Engine& engine, const RequestMaker& make, const InputRow& row,
                     InterruptFlag& interrupt) {
  FOVEA_TRY(request, make(row));
  FOVEA_TRY(answer, stream_answer(engine, std::move(request), interrupt));
  const RequestOutput& last = answer.last;
  // With one token, or all tokens in one output, there is no interval to measure.
  const int later = last.completion_tokens - answer.first_tokens;
  const double decode = answer.last_token_seconds - answer.first_token_seconds;
  char rate[48] = "";
  if (later > 0 && decode > 0) std::snprintf(rate, sizeof rate, ", then %.1f tokens/s", later / decode);
  std::fprintf(stderr, "%d prompt tokens (%d cached), first token after %.1f ms%s; %d tokens (%s)\n",
               last.prompt_tokens, last.cached_tokens, answer.first_token_seconds * 1e3, rate,
               last.completion_tokens, std::string(to_string(last.finish)).c_str());
  if (last.finish == FinishReason::cancelled) return Error{ErrorCode::cancelled, "interrupted"};
  return {};
}

/// Prints several answers as text, one after the other.
Status print_answers(Engine& engine, const RequestMaker& make, RowSource& source) {
  BatchRunner runner(engine, {.what = "generate"}, [](RowResult& result) -> Status {
    for (const Choice& choice : result.choices) {
      const std::string line = "[" + std::to_string(choice.last.index) + "] " + choice.text + "\n";
      std::fwrite(line.data(), 1, line.size(), stdout);  // text may contain NUL bytes
    }
    std::fflush(stdout);
    return {};
  });
  for (;;) {
    FOVEA_TRY(row, source.next());
    if (!row) return runner.drain();
    FOVEA_TRY(request, make(*row));
    FOVEA_RETURN_IF_ERROR(runner.submit(std::move(request)));
  }
}

Status run_rows(Engine& engine, const RequestMaker& make, RowSource& source, OutputFile& output) {
  Batch batch;
  batch.what = "generate";
  batch.max_running = engine.info().max_running_requests;
  batch.request = make;
  batch.line = [&](const RowResult& result) { return to_row(engine, result); };
  return run_batch(engine, source, batch, output);
}

/// Streams each answer as text.
Status stream_prompts(Engine& engine, const RequestMaker& make, RowSource& source) {
  InterruptFlag interrupt;
  for (;;) {
    FOVEA_TRY(row, source.next());
    if (!row) return {};
    FOVEA_RETURN_IF_ERROR(stream_prompt(engine, make, *row, interrupt));
  }
}

}  // namespace

Status run_generate(const GenerateFlags& flags) {
  const bool rows =
      !flags.input.empty() || !flags.output.output.empty() || flags.output.resume || flags.model.json;
  if (!rows && (flags.sampling.logprobs || flags.sampling.prompt_logprobs))
    return invalid("--logprobs and --prompt-logprobs are part of JSON rows; give --json or --output too");
  FOVEA_TRY(source, rows_of_flags(flags));
  FOVEA_TRY(chat, chat_request(flags.chat_template));
  FOVEA_TRY(output, OutputFile::open(flags.output, flags.input.empty() ? flags.prompt_file : flags.input));
  FOVEA_TRY(profile, ProfileFile::start(flags.model, "generate"));
  FOVEA_TRY(engine, make_engine(flags.model));
  FOVEA_TRY(encoder, EncoderRows::create(*engine, flags.model.generation_config));
  std::fputs(describe_start(engine->info()).c_str(), stderr);
  const RequestMaker make{*engine, flags, encoder, chat};
  const Status status = rows                               ? run_rows(*engine, make, source, output)
                        : flags.sampling.n.value_or(1) > 1 ? print_answers(*engine, make, source)
                                                           : stream_prompts(*engine, make, source);
  if (flags.stats) std::fputs(describe_stats(engine->stats()).c_str(), stderr);
  return profile.finish(status);
}

}  // namespace fovea::cli
