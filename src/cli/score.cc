// fovea score: the log probability of every token of a text given its past, and the logits that follow it.
#include "cli/batch.h"
#include "cli/output_file.h"

namespace fovea::cli {

Status run_score(const ScoreFlags& flags) {
  FOVEA_TRY(rows, read_rows(flags.input));
  FOVEA_TRY(output, OutputFile::open(flags.output));
  FOVEA_TRY(engine, make_engine(flags.model));
  std::fputs(describe_start(engine->info()).c_str(), stderr);
  BatchRunner runner(*engine, "score", rows.size());
  std::vector<std::vector<int32_t>> all_ids(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string name = flags.input + " line " + std::to_string(rows[i].line);
    auto ids = prompt_ids(*engine, rows[i], false, {}, "");
    if (!ids) return Error{ids.error().code, name + ": " + ids.error().message};
    all_ids[i] = *ids;
    GenerateRequest request;
    request.prompt_ids = std::move(*ids);
    request.prompt_logprobs = true;
    request.last_logits = flags.last_logits;
    request.sampling.max_tokens = 0;
    FOVEA_RETURN_IF_ERROR(runner.submit(i, std::move(request), name));
  }
  FOVEA_RETURN_IF_ERROR(runner.drain([&](size_t i, RowResult& result) -> Status {
    JsonRow row;
    row.add("index", static_cast<int64_t>(i));
    if (!rows[i].id_json.empty()) row.add_raw("id", rows[i].id_json);
    row.add("ids", all_ids[i]).add("token_logprobs", result.last.prompt_logprobs);
    if (flags.last_logits) row.add("last_logits", result.last.last_logits);
    output.line(row.str());
    return {};
  }));
  return output.commit();
}

}  // namespace fovea::cli
