#include <algorithm>
#include <cmath>
#include <mutex>
#include <new>
#include <system_error>

#include "attention/phased.h"
#include "base/aligned.h"
#include "base/log.h"
#include "base/same_name.h"
#include "base/thread_pool.h"
#include "engine/check_device.h"
#include "engine/check_range.h"
#include "engine/classification_head.h"
#include "engine/engine_gpu.h"
#include "engine/ragged_batch.h"
#include "engine/sentence_transformers.h"
#include "files/model_folder.h"
#include "fovea/backend_library.h"
#include "fovea/embed.h"
#include "model/model.h"
#include "tensor/buffer.h"
#include "text/post_processor.h"
#include "text/tokenizer.h"

namespace fovea {
namespace {

/// Pools rows [first, last) of hidden [rows, dim] into one vector; a mean is summed in row order in fp64.
std::vector<float> pool_rows(const float* hidden, int64_t first, int64_t last, size_t dim, Pooling pooling) {
  if (pooling != Pooling::mean) {
    const float* row = hidden + (pooling == Pooling::cls ? first : last - 1) * static_cast<int64_t>(dim);
    return {row, row + dim};
  }
  std::vector<double> sums(dim);
  for (int64_t row = first; row < last; ++row)
    for (size_t d = 0; d < dim; ++d)
      sums[d] += static_cast<double>(hidden[static_cast<size_t>(row) * dim + d]);
  std::vector<float> mean(dim);
  for (size_t d = 0; d < dim; ++d)
    mean[d] = static_cast<float>(sums[d] / static_cast<double>(last - first));
  return mean;
}

/// Divides by the Euclidean norm; a zero vector is unchanged.
void normalize_length(std::vector<float>& vector) {
  double squares = 0;
  for (const float x : vector)
    squares += static_cast<double>(x) * static_cast<double>(x);
  if (squares == 0) return;
  const double length = std::sqrt(squares);
  for (float& x : vector)
    x = static_cast<float>(static_cast<double>(x) / length);
}

class EmbedderImpl final : public Embedder, StepAttention {
 public:
  Status open(const EmbedConfig& config);

  const EmbedInfo& info() const override { return info_; }
  Result<std::vector<int32_t>> tokenize(std::string_view text, bool truncate,
                                        size_t* too_long) const override;
  Status check(std::span<const int32_t> ids) const override;
  Result<std::vector<std::vector<float>>> embed(std::span<const std::vector<int32_t>> inputs) override;
  Result<TextPair> tokenize_pair(std::string_view first, std::string_view second, bool truncate,
                                 size_t* too_long) const override;
  Result<std::vector<float>> score(std::span<const TextPair> pairs) override;

 private:
  struct Input {
    std::span<const int32_t> ids, types;
  };
  Status load_head(const EmbedConfig& config);
  template <class Take>
  Status run_all(std::span<const Input> inputs, const Take& take);
  Status choose_outputs(const EmbedConfig& config);
  Status choose_length(const EmbedConfig& config, std::optional<int> of_files);
  Status load_tokenizer();
  Status load_model(const EmbedConfig& config, const BackendRegistry& registry);
  Status run(std::span<const Input> inputs);
  Device& device() const { return gpu_ ? *gpu_->device : cpu_device(); }
  Stream& stream() const { return gpu_ ? *gpu_->stream : *stream_; }
  Result<BatchMeta> meta();
  Status forward(int, const AttentionArgs& args, Stream& stream) override {
    return attention_->forward(args, stream);
  }

  EmbedInfo info_;
  ModelConfig model_config_;
  AttentionSpec spec_;  // the same in every layer
  AttentionLimits limits_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Stream> stream_;  // of the CPU
  std::optional<EngineGpu> gpu_;    // nullopt: the model runs on the CPU
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ClassificationHead> head_;
  std::optional<text::PairFrame> frame_;  // with head_
  std::unique_ptr<Model> model_;
  std::optional<PhasedAttention> attention_;
  Buffer workspace_;
  Buffer offsets_, lengths_, row_numbers_;  // of batch_, on a GPU: i32 [max_tokens + 1]

  std::mutex mutex_;  // guards the members below
  RaggedBatch batch_;
  std::vector<int32_t> ids_, types_;
  AlignedArray<float> hidden_;  // [limits_.max_tokens, dimensions]
};

Status EmbedderImpl::open(const EmbedConfig& config) {
  FOVEA_TRY(registry, with_backend_libraries(backends_or_builtin(config.registry), config.backend_libraries));
  FOVEA_RETURN_IF_ERROR(check_device(config.device));
  FOVEA_RETURN_IF_ERROR(check_range("the number of threads", config.threads, 0, kMaxThreads));
  FOVEA_RETURN_IF_ERROR(check_range("max_batched_tokens", config.max_batched_tokens, 1, kMaxBatchedTokens));
  FOVEA_TRY(dir, resolve_model_dir(config.model));
  info_.model_dir = dir;
  FOVEA_TRY(model_config, load_model_config(dir));
  model_config_ = std::move(model_config);
  if (model_config_.kind != ModelKind::encoder)
    return unsupported(dir + ": " + model_config_.architecture +
                       " isn't an encoder; embeddings are made by BERT, RoBERTa, XLM-RoBERTa, CamemBERT and "
                       "DistilBERT models");
  FOVEA_RETURN_IF_ERROR(choose_outputs(config));
  spec_ = attention_specs(model_config_).front();
  spec_.dtype = activation_dtype(config.device, info_.dtype);
  spec_.page_size = 1;  // K and V are the step's rows
  if (config.device.kind != DeviceKind::cpu) spec_.kv_dtype = resolve(KvCacheDType::auto_, spec_.dtype);
  FOVEA_TRY(selection, select(config.attention, spec_, config.device, registry));
  for (const std::string& warning : selection.warnings)
    FOVEA_LOG(warning) << warning;
  info_.selection = std::move(selection);
  FOVEA_RETURN_IF_ERROR(load_tokenizer());
  FOVEA_RETURN_IF_ERROR(load_head(config));
  return load_model(config, registry);
}

Status EmbedderImpl::choose_outputs(const EmbedConfig& config) {
  FOVEA_TRY(files, load_sentence_transformers(info_.model_dir));
  info_.architecture = model_config_.architecture;
  info_.dtype = config.dtype.value_or(model_config_.dtype);
  info_.vocab_size = model_config_.vocab_size;
  info_.dimensions = model_config_.hidden_size;
  info_.pooling = config.pooling.value_or(files.pooling.value_or(Pooling::mean));
  info_.pooling_why = config.pooling  ? "given: --pooling"
                      : files.pooling ? "the model's modules.json"
                      : files.present ? "the default of encoders; the model's modules.json has no Pooling"
                                      : "the default of encoders; the model has no modules.json";
  info_.normalize = config.normalize.value_or(files.normalize);
  return choose_length(config, files.max_seq_len);
}

Status EmbedderImpl::choose_length(const EmbedConfig& config, std::optional<int> of_files) {
  const auto positions = static_cast<int>(std::min<int64_t>(model_config_.max_position, kMaxBatchedTokens));
  if (config.max_seq_len && *config.max_seq_len > positions)
    return invalid("the maximum sequence length is " + std::to_string(*config.max_seq_len) +
                   "; this model's maximum is " + std::to_string(positions) + " tokens");
  info_.max_seq_len = config.max_seq_len.value_or(std::min(of_files.value_or(positions), positions));
  info_.max_seq_len_why = config.max_seq_len ? "given: --max-seq-len-override"
                          : of_files && info_.max_seq_len == *of_files
                              ? "the model's sentence_bert_config.json"
                              : "the model's config.json";
  return check_range("the maximum sequence length", info_.max_seq_len, 1, positions);
}

Status EmbedderImpl::load_tokenizer() {
  auto tokenizer = Tokenizer::load(info_.model_dir);
  if (tokenizer) {
    tokenizer_ = *std::move(tokenizer);
  } else if (tokenizer.error().code == ErrorCode::not_found) {
    FOVEA_LOG(warning) << tokenizer.error().message << ": inputs must be token ids";
  } else {
    return tokenizer.error();
  }
  return {};
}

Status EmbedderImpl::load_head(const EmbedConfig& config) {
  if (config.dummy_weights) return {};  // there is no checkpoint: embeddings only
  FOVEA_TRY(head, load_classification_head(info_.model_dir, model_config_));
  head_ = std::move(head);
  info_.labels = head_ ? head_->labels : 0;
  if (!head_ || !tokenizer_) return {};
  FOVEA_TRY(frame, text::load_pair_frame(info_.model_dir));
  frame_ = std::move(frame);
  if (!frame_ || head_->token_types == 0) return {};
  int32_t most = std::max(frame_->first_type, frame_->second_type);
  for (const auto* side : {&frame_->before, &frame_->between, &frame_->after})
    for (const auto& [id, type] : *side)
      most = std::max(most, type);
  if (most >= head_->token_types)
    return unsupported(info_.model_dir + "/tokenizer.json: its template for pairs has the type_id " +
                       std::to_string(most) + ", but config.json's type_vocab_size is " +
                       std::to_string(head_->token_types));
  return {};
}

Status EmbedderImpl::load_model(const EmbedConfig& config, const BackendRegistry& registry) {
  pool_ = std::make_unique<ThreadPool>(config.threads);
  stream_ = std::make_unique<Stream>(*pool_);
  info_.threads = pool_->size();
  ModelLoadOptions options;
  options.dir = info_.model_dir;
  options.dtype = config.dtype;
  options.dummy_weights = config.dummy_weights;
  options.seed = config.seed;
  options.progress = config.load_progress;
  options.deferred = config.device.kind == DeviceKind::cuda;
  if (options.deferred) {
    FOVEA_TRY(gpu, EngineGpu::open(config.device_index, spec_.dtype));
    gpu_ = std::move(gpu);
  }
  FOVEA_TRY(model, Model::load(model_config_, options, *stream_));
  model_ = std::move(model);
  if (gpu_)
    FOVEA_RETURN_IF_ERROR(model_->place(*gpu_->ops, *gpu_->stream, {pool_.get(), config.load_progress}));
  info_.weight_bytes = model_->weight_bytes();
  // Each row is a key of its own text, so there are as many keys as rows and at most as many texts as rows.
  const int rows = std::max(config.max_batched_tokens, info_.max_seq_len);
  limits_ = {rows, rows, rows, info_.max_seq_len};
  limits_.split_prefill = !gpu_;
  FOVEA_TRY(attention, PhasedAttention::create(info_.selection.of(spec_), registry));
  attention_.emplace(std::move(attention));
  FOVEA_TRY(bytes, attention_->workspace_bytes(spec_, limits_));
  workspace_ = Buffer(device(), bytes);
  if (gpu_)
    for (Buffer* memory : {&offsets_, &lengths_, &row_numbers_})
      *memory = Buffer(device(), (static_cast<size_t>(rows) + 1) * sizeof(int32_t));
  model_->reserve(rows, 1);
  hidden_ = AlignedArray<float>(static_cast<size_t>(rows) * static_cast<size_t>(info_.dimensions));
  return {};
}

Result<std::vector<int32_t>> EmbedderImpl::tokenize(std::string_view text, bool truncate,
                                                    size_t* too_long) const {
  if (!tokenizer_) return not_found(info_.model_dir + " has no tokenizer.json; add it or give token ids");
  const auto limit = static_cast<size_t>(info_.max_seq_len);
  const auto refuse = [&](size_t at_least) {
    if (too_long != nullptr) *too_long = at_least;
    return invalid("the text is at least " + std::to_string(at_least) + " tokens long; at most " +
                   std::to_string(limit) + " are possible (" + info_.max_seq_len_why + "): shorten it");
  };
  if (const size_t least = tokenizer_->least_ids(text); !truncate && least > limit) return refuse(least);
  EncodeOptions whole;
  if (!truncate) whole.most_ids = limit;
  FOVEA_TRY(ids, tokenizer_->encode(text, whole));
  if (ids.size() <= limit) return ids;
  if (!truncate) return refuse(ids.size());
  // Keep the special tokens before and after the text's own tokens.
  EncodeOptions bare;
  bare.add_special_tokens = false;
  FOVEA_TRY(own, tokenizer_->encode(text, bare));
  const auto found = std::search(ids.begin(), ids.end(), own.begin(), own.end());
  const size_t special = ids.size() - own.size();
  if (found == ids.end() || special >= limit)
    return invalid("the text can't be cut to " + std::to_string(limit) + " tokens; shorten it");
  const auto keep = static_cast<std::ptrdiff_t>(limit - special);
  ids.erase(found + keep, found + static_cast<std::ptrdiff_t>(own.size()));
  return ids;
}

Status EmbedderImpl::check(std::span<const int32_t> ids) const {
  if (ids.empty()) return invalid("the input has no tokens; give at least one");
  if (ids.size() > static_cast<size_t>(info_.max_seq_len))
    return invalid("the input is " + std::to_string(ids.size()) + " tokens long; at most " +
                   std::to_string(info_.max_seq_len) + " are possible (" + info_.max_seq_len_why + ")");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= info_.vocab_size)
      return invalid("token " + std::to_string(i) + " is " + std::to_string(ids[i]) +
                     "; this model's ids are 0 to " + std::to_string(info_.vocab_size - 1));
  return {};
}

Result<std::vector<std::vector<float>>> EmbedderImpl::embed(std::span<const std::vector<int32_t>> inputs) {
  std::vector<Input> views;
  for (const auto& ids : inputs)
    views.push_back({ids, {}});
  std::vector<std::vector<float>> out;
  FOVEA_RETURN_IF_ERROR(run_all(views, [&](int64_t first, int64_t last) {
    auto vector =
        pool_rows(hidden_.data(), first, last, static_cast<size_t>(info_.dimensions), info_.pooling);
    if (info_.normalize) normalize_length(vector);
    const bool finite = std::ranges::all_of(vector, [](float x) { return std::isfinite(x); });
    out.push_back(std::move(vector));
    return finite;
  }));
  return out;
}

Result<TextPair> EmbedderImpl::tokenize_pair(std::string_view first, std::string_view second, bool truncate,
                                             size_t* too_long) const {
  if (!tokenizer_) return not_found(info_.model_dir + " has no tokenizer.json; add it or give token ids");
  if (!frame_)
    return unsupported(info_.model_dir +
                       "/tokenizer.json has no template for pairs of texts, so that this model scores none");
  const auto limit = static_cast<size_t>(info_.max_seq_len);
  const size_t special = frame_->before.size() + frame_->between.size() + frame_->after.size();
  EncodeOptions bare;
  bare.add_special_tokens = false;
  if (!truncate) bare.most_ids = limit;
  const auto refuse = [&](size_t at_least) {
    if (too_long != nullptr) *too_long = at_least;
    return invalid("the two texts are at least " + std::to_string(at_least) + " tokens long; at most " +
                   std::to_string(limit) + " are possible (" + info_.max_seq_len_why + "): shorten them");
  };
  const size_t least = tokenizer_->least_ids(first) + tokenizer_->least_ids(second) + special;
  if (!truncate && least > limit) return refuse(least);
  FOVEA_TRY(a, tokenizer_->encode(first, bare));
  FOVEA_TRY(b, tokenizer_->encode(second, bare));
  if (a.size() + b.size() + special > limit) {
    if (!truncate) return refuse(a.size() + b.size() + special);
    if (special >= limit)
      return invalid("pairs can't be cut to " + std::to_string(limit) + " tokens; shorten them");
    // The longer one is cut to the other's length, and then both to half of the room.
    const size_t room = limit - special;
    auto& shorter = a.size() > b.size() ? b : a;
    auto& longer = a.size() > b.size() ? a : b;
    size_t less = shorter.size(), more = std::max(less, room - std::min(room, less));
    if (less + more > room) {
      less = room / 2;
      more = less + room % 2;
    }
    shorter.resize(less);
    longer.resize(more);
  }
  TextPair pair;
  const auto add = [&](int32_t id, int32_t type) {
    pair.ids.push_back(id);
    pair.types.push_back(type);
  };
  for (const auto& [id, type] : frame_->before)
    add(id, type);
  for (const int32_t id : a)
    add(id, frame_->first_type);
  for (const auto& [id, type] : frame_->between)
    add(id, type);
  for (const int32_t id : b)
    add(id, frame_->second_type);
  for (const auto& [id, type] : frame_->after)
    add(id, type);
  if (head_->token_types == 0) pair.types.clear();
  return pair;
}

Result<std::vector<float>> EmbedderImpl::score(std::span<const TextPair> pairs) {
  if (!head_ || head_->labels != 1)
    return unsupported("this model does not score pairs: its classification head has " +
                       std::to_string(info_.labels) + " outputs, and 1 is needed");
  std::vector<Input> views;
  for (const TextPair& pair : pairs) {
    if (!pair.types.empty() && pair.types.size() != pair.ids.size())
      return invalid("a pair has " + std::to_string(pair.ids.size()) + " ids and " +
                     std::to_string(pair.types.size()) + " types; give as many, or none");
    for (const int32_t type : pair.types)
      if (type < 0 || type >= head_->token_types)
        return invalid("a pair has the type " + std::to_string(type) + "; this model's are 0 to " +
                       std::to_string(head_->token_types - 1));
    views.push_back({pair.ids, pair.types});
  }
  std::vector<float> out;
  FOVEA_RETURN_IF_ERROR(run_all(views, [&](int64_t first, int64_t) {
    const auto dim = static_cast<size_t>(info_.dimensions);
    out.push_back(head_->score({hidden_.data() + static_cast<size_t>(first) * dim, dim}));
    return std::isfinite(out.back());
  }));
  return out;
}

/// Calls take(first, last) for the rows of each input in hidden_; false from it = a result that is not
/// finite.
template <class Take>
Status EmbedderImpl::run_all(std::span<const Input> inputs, const Take& take) {
  for (const Input& input : inputs)
    FOVEA_RETURN_IF_ERROR(check(input.ids));
  const std::lock_guard lock(mutex_);
  if (gpu_) gpu_->queue->begin_thread();
  for (size_t first = 0; first < inputs.size();) {
    size_t end = first, rows = 0;
    for (; end < inputs.size() && rows + inputs[end].ids.size() <= static_cast<size_t>(limits_.max_tokens);
         ++end)
      rows += inputs[end].ids.size();
    FOVEA_RETURN_IF_ERROR(run(inputs.subspan(first, end - first)));
    for (size_t i = 0; i < end - first; ++i)
      if (!take(batch_.offsets()[i], batch_.offsets()[i + 1]))
        return Error{ErrorCode::internal,
                     "the model computed a result that isn't finite; check that the weights in " +
                         info_.model_dir + " are complete, or try --dtype float32"};
    first = end;
  }
  return {};
}

/// batch_ as the attention reads it. On a GPU the copies are done when the forward pass is.
Result<BatchMeta> EmbedderImpl::meta() {
  BatchMeta meta = batch_.meta();
  if (!gpu_) return meta;
  const auto copied = [&](std::span<const int32_t> values,
                          const Buffer& memory) -> Result<std::span<const int32_t>> {
    FOVEA_RETURN_IF_ERROR(
        device().copy_from_host(memory.data(), values.data(), values.size_bytes(), stream()));
    return std::span(reinterpret_cast<const int32_t*>(memory.data()), values.size());
  };
  meta.tokens = batch_.offsets().back();
  FOVEA_TRY(offsets, copied(meta.q_offsets, offsets_));
  meta.q_offsets = meta.kv_indptr = offsets;
  FOVEA_TRY(lengths, copied(meta.kv_lens, lengths_));
  meta.kv_lens = lengths;
  FOVEA_TRY(row_numbers, copied(meta.kv_indices, row_numbers_));
  meta.kv_indices = row_numbers;
  return meta;
}

/// One forward pass; `inputs` fit into it.
Status EmbedderImpl::run(std::span<const Input> inputs) {
  batch_.clear();
  ids_.clear();
  types_.clear();
  for (const Input& in : inputs) {
    batch_.add(static_cast<int>(in.ids.size()));
    ids_.insert(ids_.end(), in.ids.begin(), in.ids.end());
    types_.insert(types_.end(), in.types.begin(), in.types.end());
    types_.resize(ids_.size());
  }
  FOVEA_TRY(step, meta());
  FOVEA_RETURN_IF_ERROR(
      attention_->plan(spec_, limits_, step, PhaseSplit{}, {workspace_.data(), workspace_.size()}, stream()));
  EncodeInput input;
  input.token_ids = ids_;
  input.token_types = types_;
  input.offsets = batch_.offsets();
  input.attention = this;
  input.hidden = hidden_.data();
  return model_->encode(input, stream());
}

}  // namespace

std::string_view to_string(Pooling pooling) {
  switch (pooling) {
    case Pooling::mean: return "mean";
    case Pooling::cls: return "cls";
    case Pooling::last: return "last";
  }
  return "?";
}

std::optional<Pooling> parse_pooling(std::string_view name) {
  for (const Pooling pooling : {Pooling::mean, Pooling::cls, Pooling::last})
    if (same_name(name, to_string(pooling))) return pooling;
  if (same_name(name, "first")) return Pooling::cls;
  if (same_name(name, "lasttoken") || same_name(name, "last-token")) return Pooling::last;
  return std::nullopt;
}

Result<std::unique_ptr<Embedder>> Embedder::create(const EmbedConfig& config) {
  try {
    auto embedder = std::make_unique<EmbedderImpl>();
    FOVEA_RETURN_IF_ERROR(embedder->open(config));
    return std::unique_ptr<Embedder>(std::move(embedder));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::out_of_memory, "out of memory while loading " + config.model};
  } catch (const std::system_error& error) {  // thread creation failed
    return Error{ErrorCode::internal, std::string("can't start: ") + error.what()};
  }
}

}  // namespace fovea
