// fovea embed: texts from arguments or JSON lines, one vector each, as JSON lines.
#include <algorithm>
#include <cstdio>

#include "cli/json_io.h"
#include "cli/output_file.h"
#include "fovea/embed.h"

namespace fovea::cli {
namespace {

// Inputs that are embedded at a time: enough to fill passes, few to hold.
constexpr size_t kSlice = 64;

Result<EmbedConfig> to_config(const EmbedFlags& flags) {
  EmbedConfig config;
  config.model = flags.model.model;
  FOVEA_TRY(dtype, read_dtype(flags.model.dtype));
  config.dtype = dtype;
  if (!flags.pooling.empty()) {
    config.pooling = parse_pooling(flags.pooling);
    if (!config.pooling) return invalid("--pooling " + flags.pooling + ": allowed are mean, cls, last");
  }
  config.attention = flags.model.attention;
  config.registry = flags.model.registry;
  config.normalize = flags.normalize;
  config.max_seq_len = flags.model.max_seq_len;
  config.max_batched_tokens = flags.model.max_batched_tokens;
  config.threads = flags.model.threads;
  config.seed = flags.model.seed;
  config.dummy_weights = flags.model.dummy_weights;
  return config;
}

Result<RowSource> rows_of(const EmbedFlags& flags) {
  if (!flags.input.empty()) {
    if (!flags.texts.empty())
      return invalid("--input " + flags.input + " has the texts already; give no others");
    return RowSource::open(flags.input, RowKind::embed);
  }
  std::vector<InputRow> rows;
  for (const std::string& text : flags.texts) {
    rows.emplace_back();
    rows.back().text = text;
  }
  if (rows.empty()) return invalid("no text: give it as an argument or as --input FILE.jsonl");
  return RowSource(std::move(rows));
}

Result<std::vector<int32_t>> ids_of(const Embedder& embedder, const InputRow& row, bool truncate) {
  if (row.chat || row.audio)
    return invalid("\"messages\" and \"audio\" can't be embedded; give \"input\", \"text\" or \"token_ids\"");
  if (!row.ids) return embedder.tokenize(*row.text, truncate);
  std::vector<int32_t> ids = *row.ids;
  if (truncate) ids.resize(std::min(ids.size(), static_cast<size_t>(embedder.info().max_seq_len)));
  FOVEA_RETURN_IF_ERROR(embedder.check(ids));
  return ids;
}

void describe(const EmbedInfo& info) {
  std::string lines = explain(info.selection);
  if (!lines.empty() && lines.back() != '\n') lines += '\n';
  std::fprintf(stderr, "%spooling: %s (%s), %s; %d dimensions, at most %d tokens (%s)\n", lines.c_str(),
               std::string(to_string(info.pooling)).c_str(), info.pooling_why.c_str(),
               info.normalize ? "normalised" : "not normalised", info.dimensions, info.max_seq_len,
               info.max_seq_len_why.c_str());
}

/// The next kSlice rows, or what is there: who sends them may wait for the vectors. Their ids go to `ids`.
Result<std::vector<InputRow>> read_slice(const Embedder& embedder, RowSource& source, bool truncate,
                                         std::vector<std::vector<int32_t>>& ids) {
  std::vector<InputRow> rows;
  ids.clear();
  while (rows.size() < kSlice) {
    FOVEA_TRY(row, source.next());
    if (!row) break;
    auto of_row = ids_of(embedder, *row, truncate);
    if (!of_row) {
      const std::string name = source.name(*row);
      return Error{of_row.error().code,
                   name.empty() ? of_row.error().message : name + ": " + of_row.error().message};
    }
    ids.push_back(*std::move(of_row));
    rows.push_back(*std::move(row));
    if (!source.ready(0)) break;
  }
  return rows;
}

}  // namespace

Status run_embed(const EmbedFlags& flags) {
  FOVEA_TRY(config, to_config(flags));
  FOVEA_TRY(source, rows_of(flags));
  FOVEA_TRY(output, OutputFile::open(flags.output, flags.input));
  FOVEA_TRY(embedder, Embedder::create(config));
  describe(embedder->info());
  std::vector<std::vector<int32_t>> ids;
  for (int64_t index = 0;;) {
    FOVEA_TRY(rows, read_slice(*embedder, source, flags.truncate, ids));
    if (rows.empty()) return output.commit();
    FOVEA_TRY(vectors, embedder->embed(ids));
    for (size_t i = 0; i < rows.size(); ++i, ++index) {
      JsonRow line;
      line.add("index", index);
      if (!rows[i].id_json.empty()) line.add_raw("id", rows[i].id_json);
      line.add("embedding", vectors[i]).add("tokens", static_cast<int64_t>(ids[i].size()));
      output.line(line.str());
    }
  }
}

}  // namespace fovea::cli
