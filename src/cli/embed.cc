// fovea embed: texts from arguments or JSON lines, one vector each, as JSON lines.
#include <algorithm>
#include <cstdio>

#include "base/digest.h"
#include "cli/batch.h"
#include "cli/run_settings.h"
#include "fovea/embed.h"

namespace fovea::cli {
namespace {

// Inputs embedded at a time: enough to fill forward passes, few enough to keep in memory.
constexpr size_t kSlice = 64;
constexpr int kGpuTokens = 8192;  // of a forward pass, unless given

Result<EmbedConfig> to_config(const EmbedFlags& flags) {
  EmbedConfig config;
  config.model = flags.model.model;
  FOVEA_TRY(device, read_device(flags.model.device));
  config.device = device.info;
  config.device_index = device.index;
  FOVEA_TRY(dtype, read_dtype(flags.model.dtype));
  config.dtype = dtype;
  if (!flags.pooling.empty()) {
    config.pooling = parse_pooling(flags.pooling);
    if (!config.pooling)
      return invalid("--pooling " + flags.pooling + ": allowed are mean, cls (the first token), last");
  }
  config.attention = flags.model.attention;
  config.registry = flags.model.registry;
  config.normalize = flags.normalize;
  config.max_seq_len = flags.model.max_seq_len;
  if (device.info.kind == DeviceKind::cuda) config.max_batched_tokens = kGpuTokens;
  if (flags.model.max_batched_tokens) config.max_batched_tokens = *flags.model.max_batched_tokens;
  config.threads = flags.model.threads;
  config.seed = flags.model.seed;
  config.dummy_weights = flags.model.dummy_weights;
  return config;
}

Result<RowSource> rows_of(const EmbedFlags& flags) {
  if (!flags.input.empty()) {
    if (!flags.texts.empty())
      return invalid("--input " + flags.input + " has the texts already; give no others");
    return RowSource::open(flags.input, {RowKind::embed, flags.ignore_unknown});
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
  if (!row.ids) {
    size_t too_long = 0;
    auto ids = embedder.tokenize(*row.text, truncate, &too_long);
    if (too_long == 0) return ids;
    return Error{ids.error().code, ids.error().message + ", or cut it with --truncate"};
  }
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

/// A row that was read and not yet written.
struct Pending {
  RowTag tag;
  std::vector<int32_t> ids;
  std::optional<Error> refused;
};

class EmbedRun {
 public:
  EmbedRun(Embedder& embedder, RowSource& source, OutputFile& output, bool truncate)
      : embedder_(embedder), source_(source), output_(output), truncate_(truncate) {}

  Status run() {
    for (;;) {
      FOVEA_TRY(rows, read_slice());
      if (rows.empty()) break;
      FOVEA_RETURN_IF_ERROR(write(rows));
    }
    if (read_ < output_.kept()) return output_.more_kept(read_);
    FOVEA_RETURN_IF_ERROR(output_.commit());
    return refused_rows(refused_);
  }

 private:
  /// The next kSlice rows that are not kept, or fewer if no more are available yet: the sender may be waiting
  /// for the vectors.
  Result<std::vector<Pending>> read_slice() {
    std::vector<Pending> rows;
    while (rows.size() < kSlice) {
      FOVEA_TRY(row, source_.next());
      if (!row) break;
      FOVEA_TRY(pending, prepare(*std::move(row)));
      if (read_++ < output_.kept())
        FOVEA_RETURN_IF_ERROR(output_.check_kept(read_ - 1, pending.tag.key, pending.tag.name));
      else
        rows.push_back(std::move(pending));
      if (!rows.empty() && !source_.ready(0)) break;
    }
    return rows;
  }

  Result<Pending> prepare(InputRow row) {
    Pending out{{source_.name(row), std::move(row.id_json), {row.digest, 0}}, {}, {}};
    auto ids = row.refused ? *std::move(row.refused) : ids_of(embedder_, row, truncate_);
    if (ids) {
      out.tag.key.request = Digest().add(*ids).value();
      out.ids = *std::move(ids);
      return out;
    }
    out.refused = std::move(ids).error();
    if (source_.keeps_going()) return out;
    return Error{out.refused->code,
                 out.tag.name.empty() ? out.refused->message : out.tag.name + ": " + out.refused->message};
  }

  Status write(std::vector<Pending>& rows) {
    std::vector<std::vector<int32_t>> ids;
    for (Pending& row : rows)
      if (!row.refused) ids.push_back(std::move(row.ids));
    FOVEA_TRY(vectors, embedder_.embed(ids));
    size_t next = 0;
    for (const Pending& row : rows) {
      const int64_t index = index_++;
      if (row.refused) {
        ++refused_;
        FOVEA_RETURN_IF_ERROR(output_.line(error_row(index, row.tag.id_json, *row.refused), row.tag.key));
        continue;
      }
      JsonRow line;
      line.add("index", index);
      if (!row.tag.id_json.empty()) line.add_raw("id", row.tag.id_json);
      line.add("embedding", vectors[next]).add("tokens", static_cast<int64_t>(ids[next].size()));
      ++next;
      FOVEA_RETURN_IF_ERROR(output_.line(line.str(), row.tag.key));
    }
    return {};
  }

  Embedder& embedder_;
  RowSource& source_;
  OutputFile& output_;
  const bool truncate_;
  int64_t read_ = 0, index_ = output_.kept(), refused_ = 0;  // numbers of rows
};

}  // namespace

Status run_embed(const EmbedFlags& flags) {
  FOVEA_TRY(config, to_config(flags));
  FOVEA_TRY(source, rows_of(flags));
  FOVEA_TRY(output, OutputFile::open(flags.output, flags.input));
  FOVEA_TRY(embedder, Embedder::create(config));
  describe(embedder->info());
  FOVEA_RETURN_IF_ERROR(output.begin(run_settings("embed", embedder->info())));
  return EmbedRun(*embedder, source, output, flags.truncate).run();
}

}  // namespace fovea::cli
