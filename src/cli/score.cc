// fovea score: the log probability of every token of a text given the tokens before it, and the final logits.
#include "cli/batch.h"

namespace fovea::cli {
namespace {

Result<GenerateRequest> make_request(const Engine& engine, const InputRow& row, const ScoreFlags& flags) {
  if (row.audio) return invalid("\"audio\" has no tokens to score; give \"text\" or \"ids\"");
  GenerateRequest request;
  FOVEA_TRY(ids, prompt_ids(engine, row, false, {}, ""));
  request.prompt_ids = std::move(ids);
  request.prompt_logprobs = row.sampling.prompt_logprobs.value_or(flags.prompt_logprobs.value_or(0));
  request.last_logits = flags.last_logits;
  request.sampling.max_tokens = 0;
  return request;
}

std::string to_row(const Engine& engine, const RowResult& result, const ScoreFlags& flags) {
  const RequestOutput& last = result.choices.front().last;
  JsonRow row;
  row.add("index", result.index);
  if (!result.tag.id_json.empty()) row.add_raw("id", result.tag.id_json);
  std::vector<float> logprobs;
  for (const TokenLogprobs& token : last.prompt_logprobs)
    logprobs.push_back(token.token.logprob);
  row.add("ids", result.prompt_ids).add("token_logprobs", logprobs);
  const bool top = !last.prompt_logprobs.empty() && !last.prompt_logprobs.front().top.empty();
  if (top) row.add_raw("prompt_logprobs", prompt_logprobs_json(engine, result));
  if (flags.last_logits) row.add("last_logits", last.last_logits);
  return row.str();
}

}  // namespace

Status run_score(const ScoreFlags& flags) {
  FOVEA_TRY(source, RowSource::open(flags.input, {RowKind::score, flags.ignore_unknown}));
  FOVEA_TRY(output, OutputFile::open(flags.output, flags.input));
  FOVEA_TRY(engine, make_engine(flags.model));
  std::fputs(describe_start(engine->info()).c_str(), stderr);
  Batch batch;
  batch.what = "score";
  batch.max_running = engine->info().max_running_requests;
  batch.request = [&](const InputRow& row) { return make_request(*engine, row, flags); };
  batch.line = [&](const RowResult& result) { return to_row(*engine, result, flags); };
  return run_batch(*engine, source, batch, output);
}

}  // namespace fovea::cli
