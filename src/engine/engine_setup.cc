#include "engine/engine_setup.h"

#include <algorithm>

#include "attention/absorbed_prefill.h"
#include "attention/expanded_prefill.h"
#include "attention/mla_prefill.h"
#include "attention/selection_context.h"
#include "base/check.h"
#include "base/dtype_names.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "builtin/decode_rows.h"
#include "engine/check_device.h"
#include "engine/check_range.h"
#include "engine/graph_buckets.h"
#include "engine/kv_sizing.h"
#include "files/model_folder.h"
#include "fovea/backend_library.h"
#include "model/kv_groups.h"
#include "tensor/cuda_device.h"

namespace fovea {
namespace {

// Logits buffer of a step that scores prompts: bounded, with enough rows for an efficient LM head GEMM.
constexpr int64_t kMaxLogitsBytes = int64_t{64} << 20;

// Defaults of EngineConfig, by device.
constexpr int kCpuRequests = 64, kGpuRequests = 256, kCpuTokens = 512, kGpuTokens = 8192;

void report(const EngineConfig& config, const std::string& text) {
  const std::string line = "GPU memory: " + text;
  if (config.report) {
    config.report(line);
  } else {
    FOVEA_LOG(info) << line;
  }
}

/// An upper bound of the memory of CUDA graphs and of the kernels' code, which the driver allocates.
int64_t graph_bytes(size_t graphs, const ModelConfig& config, bool lora) {
  // On an H200 what is loaded after the context takes some MiB.
  constexpr int64_t kCode = int64_t{24} << 20, kNode = 2 << 10;
  // Latent attention multiplies each head's queries and results by a matrix of their own.
  const int64_t of_layer = (config.encoder ? 24 : 12) + (config.mla ? 4 + 2 * config.num_heads : 0);
  const auto layers = static_cast<int64_t>(config.layers.size());
  // With adapters each size has a second graph, which has two kernels for each of four sites.
  const int64_t nodes = 16 + of_layer * layers + (lora ? 16 + (of_layer + 8) * layers : 0);
  return kCode + static_cast<int64_t>(graphs) * nodes * kNode;
}

/// The most keys that a query sees in any layer, its own included; 0 = some layer sees all.
int window_of(const ModelConfig& config) {
  int window = 0;
  for (const LayerConfig& layer : config.layers) {
    if (layer.window == 0 && layer.chunk == 0) return 0;
    const int both = layer.window > 0 && layer.chunk > 0 ? std::min(layer.window, layer.chunk)
                                                         : std::max(layer.window, layer.chunk);
    window = std::max(window, both);
  }
  return window;
}

std::string describe_rope_choice(const ModelConfig& config, int max_seq_len) {
  for (const RopeConfig& rope : config.ropes)
    if (rope.scaling == RopeScaling::longrope)
      return std::string("rope: longrope's ") + (rope.long_context ? "long" : "short") +
             " factors, because the longest length " + std::to_string(max_seq_len) + " is " +
             (rope.long_context ? "beyond" : "within") + " the original context of " +
             std::to_string(rope.original_max_position);
  return "";
}

}  // namespace

Status EngineSetup::open(const EngineConfig& config) {
  FOVEA_TRY(registry, with_backend_libraries(backends_or_builtin(config.registry), config.backend_libraries));
  device_ = config.device;
  FOVEA_RETURN_IF_ERROR(check_config(config));
  FOVEA_TRY(dir, resolve_model_dir(config.model));
  info.model_dir = dir;
  FOVEA_TRY(read, load_model_config(dir, config.generation_config));
  model_config = std::move(read);
  if (model_config.kind == ModelKind::encoder)
    return unsupported(dir + ": " + model_config.architecture +
                       " is an encoder, which generates no text; use fovea embed");
  if (absorbs_prefill()) registry = without_mla_prefill(registry);
  FOVEA_RETURN_IF_ERROR(check_lora(config.lora, model_config));
  FOVEA_RETURN_IF_ERROR(choose_device(config));
  FOVEA_RETURN_IF_ERROR(choose_lengths(config));
  FOVEA_RETURN_IF_ERROR(select_backends(config, registry));
  FOVEA_RETURN_IF_ERROR(check_speculative(config));
  FOVEA_RETURN_IF_ERROR(read_draft_head(config));
  FOVEA_RETURN_IF_ERROR(load_text(config));
  FOVEA_RETURN_IF_ERROR(load_loras(config.lora));
  pool = std::make_unique<ThreadPool>(config.threads);
  stream = std::make_unique<Stream>(*pool);
  info.threads = pool->size();
  FOVEA_RETURN_IF_ERROR(load_model(config, registry));
  FOVEA_RETURN_IF_ERROR(make_kv_cache(config));
  log_start();
  return {};
}

Status EngineSetup::check_config(const EngineConfig& config) {
  FOVEA_RETURN_IF_ERROR(check_device(device_));
  FOVEA_RETURN_IF_ERROR(check_range("the number of threads", config.threads, 0, kMaxThreads));
  FOVEA_RETURN_IF_ERROR(
      check_range("max_running_requests", config.max_running_requests.value_or(1), 1, 1 << 16));
  FOVEA_RETURN_IF_ERROR(
      check_range("max_batched_tokens", config.max_batched_tokens.value_or(1), 1, kMaxBatchedTokens));
  FOVEA_RETURN_IF_ERROR(check_range("max_logprobs", config.max_logprobs, -1, 1 << 30));
  FOVEA_RETURN_IF_ERROR(validate(config.speculative));
  if (!(config.gpu_memory_utilization > 0 && config.gpu_memory_utilization <= 1))
    return invalid("--gpu-memory-utilization is " + std::to_string(config.gpu_memory_utilization) +
                   "; it must be above 0 and at most 1");
  return {};
}

Status EngineSetup::choose_device(const EngineConfig& config) {
  const bool cpu = device_.kind == DeviceKind::cpu;
  info.device_name = cpu ? "cpu" : "cuda:" + std::to_string(config.device_index);
  info.max_running_requests = config.max_running_requests.value_or(cpu ? kCpuRequests : kGpuRequests);
  info.max_batched_tokens = config.max_batched_tokens.value_or(cpu ? kCpuTokens : kGpuTokens);
  max_seqs_ = std::min(info.max_running_requests, info.max_batched_tokens);
  if (cpu) return {};
  FOVEA_TRY(buckets, graph_buckets({config.cuda_graphs, config.cuda_graph_max_bs, config.cuda_graph_bs},
                                   max_seqs_, config.speculative.num_tokens));
  std::erase_if(buckets, [&](int rows) { return rows > info.max_batched_tokens; });
  info.cuda_graph_bs = executor.buckets = std::move(buckets);
  info.overlap = config.overlap;
  executor.drafts = config.speculative.enabled();
  executor.overlap = info.overlap ? Overlap{2, true} : Overlap{1, false};
  return {};
}

Status EngineSetup::choose_lengths(const EngineConfig& config) {
  const int64_t longest = std::min<int64_t>(model_config.max_position, 1 << 30);
  if (config.max_seq_len && *config.max_seq_len > longest)
    return invalid("the maximum sequence length is " + std::to_string(*config.max_seq_len) +
                   "; this model's maximum context length is " + std::to_string(longest) + " tokens");
  info.max_seq_len = config.max_seq_len.value_or(static_cast<int>(longest));
  FOVEA_RETURN_IF_ERROR(check_range("the maximum sequence length", info.max_seq_len, 1, longest));
  fit_to_length(model_config, info.max_seq_len);
  if (const std::string refusal = length_refusal(model_config);
      device_.kind != DeviceKind::cpu && !refusal.empty())
    return unsupported(info.model_dir + ": " + refusal);
  info.rope_choice = describe_rope_choice(model_config, info.max_seq_len);
  info.architecture = model_config.architecture;
  info.dtype = config.dtype.value_or(model_config.dtype);
  info.vocab_size = model_config.vocab_size;
  // Each draft has a row of logits, so there is more room for them.
  const int64_t room = kMaxLogitsBytes * (config.speculative.enabled() ? 4 : 1);
  const int64_t rows = room / (int64_t{info.vocab_size} * static_cast<int64_t>(sizeof(float)));
  max_logit_rows_ = static_cast<int>(std::clamp<int64_t>(rows, max_seqs_, info.max_batched_tokens));
  if (!executor.buckets.empty()) max_logit_rows_ = std::max(max_logit_rows_, executor.buckets.back());
  if (config.attention.use_non_causal.value_or(false)) {
    // Each row of a prompt sees the whole prompt, so a prompt is computed in one step, with the logits of all
    // its rows if requested. The keys of a shared prefix depend on the tokens after it, so it cannot be
    // cached.
    scheduler.whole_prompts = true;
    context.max_prompt_len = info.max_batched_tokens;
    context.whole_prompts_from = setting(config.attention, "use_non_causal");
    max_logit_rows_ = info.max_batched_tokens;
  }
  scheduler.max_running = info.max_running_requests;
  scheduler.max_batched_tokens = info.max_batched_tokens;
  scheduler.max_logit_rows = max_logit_rows_;
  scheduler.policy = config.scheduling_policy;
  scheduler.max_seq_len = info.max_seq_len;
  if (model_config.encoder)
    scheduler.max_encoder_len = model_config.encoder->max_position;
  else if (const int window = window_of(model_config); window < info.max_seq_len)
    scheduler.window = window;
  // With an encoder, a prefix's keys depend on the encoder input, which the radix tree's tokens do not
  // include.
  scheduler.prefix_cache = config.prefix_cache && !model_config.encoder && !scheduler.whole_prompts;
  info.prefix_cache = scheduler.prefix_cache;
  return {};
}

Status EngineSetup::select_backends(const EngineConfig& config, const BackendRegistry& registry) {
  info.kv_dtype = resolve(config.kv_cache_dtype, info.dtype);
  info.kv_layout = config.kv_layout == KvLayout::auto_ ? KvLayout::hnd : config.kv_layout;
  activations_ = activation_dtype(device_, info.dtype);
  for (AttentionSpec spec : attention_specs(model_config)) {
    spec = with_settings(ModelRunner::resolve(spec, activations_, info.kv_dtype, info.kv_layout, 0),
                         config.attention);
    spec.page_size = 0;  // to be chosen
    if (std::ranges::find(info.specs, spec) == info.specs.end()) info.specs.push_back(spec);
  }
  AttentionConfig settings = config.attention;
  if (absorbs_prefill()) {
    for (const std::string& warning : drop_mla_prefill(settings))
      FOVEA_LOG(warning) << warning;
  }
  FOVEA_TRY(selection, select(settings, info.specs, device_, registry));
  if (size_of(info.kv_dtype) == 0)  // a backend can read it, but no kernel writes it
    return unsupported("--kv-cache-dtype " + std::string(to_string(info.kv_dtype)) +
                       " can't be stored by this build; allowed are " + stored_kv_cache_dtypes());
  for (const std::string& warning : selection.warnings)
    FOVEA_LOG(warning) << warning;
  for (AttentionSpec& spec : info.specs)
    spec = ModelRunner::resolve(spec, activations_, info.kv_dtype, info.kv_layout, selection.page_size);
  info.selection = std::move(selection);
  for (const KindSelection& kind : info.selection.kinds)
    if (is_mla_prefill(*kind.prefill.backend, registry))
      model_config.mla.expanded_keys = ExpandedPrefill::kKeys;
  scheduler.phases_differ = !same_bits_across_phases(info.selection);
  scheduler.decode_rows = config.speculative.enabled() ? rows_alike(config) : 1;
  return {};
}

/// Rows of a sequence in a decode step that all of its attention computes with the bits of single rows.
int EngineSetup::rows_alike(const EngineConfig& config) const {
  int rows = 1 + kMaxDrafts;
  for (const AttentionSpec& spec : info.specs) {
    if (spec.type == AttentionType::encoder) continue;
    const BackendInfo& decode = *info.selection.of(spec).decode.backend;
    rows = std::min(rows, alike_decode_rows(decode, with_settings(spec, config.attention),
                                            runner_options(config).limits, rows));
  }
  return rows;
}

/// Before the weights, because it is quick and may fail.
Status EngineSetup::load_loras(const LoraConfig& config) {
  scheduler.max_loras = config.max_loras;
  LoraShape shape = lora_shape(model_config);
  if (config.on() && device_.kind != DeviceKind::cpu) {
    // The experts' kernels for quantised weights take no adapters.
    if (model_config.quantization.fp8) shape.experts = 0;
    lora_layout = std::make_unique<LoraLayout>(fovea::lora_layout(shape, config.max_rank, activations_));
    // A step's adapters are in as many slots.
    if (config.max_loras == 0)
      scheduler.max_loras =
          std::clamp(static_cast<int>(config.modules.size()), LoraSlots::kFewest, LoraSlots::kMost);
    scheduler.max_loras = std::min(scheduler.max_loras, max_seqs_);
  }
  loras = std::make_unique<LoraTable>(config, std::move(shape), lora_layout.get());
  for (const LoraModule& module : config.modules)
    FOVEA_RETURN_IF_ERROR(loras->load(module));
  return {};
}

/// Rows whose gates and ups are computed at a time in steps with adapters; no fewer than a graph has.
int64_t EngineSetup::lora_block_rows() const {
  constexpr int64_t kRows = 1024;  // more are no faster
  return std::max<int64_t>(kRows, executor.buckets.empty() ? 0 : executor.buckets.back());
}

/// Before memory is measured.
Status EngineSetup::allow_loras(const LoraConfig& config) {
  if (!config.on()) return {};
  LoraLimits limits;
  limits.max_rank = config.max_rank;
  limits.layout = lora_layout.get();
  limits.block_rows = lora_block_rows();
  return model->allow_lora(limits);
}

Status EngineSetup::load_text(const EngineConfig& config) {
  auto loaded = Tokenizer::load(info.model_dir);
  if (loaded) {
    tokenizer = *std::move(loaded);
  } else if (loaded.error().code == ErrorCode::not_found) {
    FOVEA_LOG(warning) << loaded.error().message << ": prompts must be token ids, and answers have no text";
  } else {
    return loaded.error();
  }
  FOVEA_TRY(prompt, ChatPrompt::load(info.model_dir, tokenizer.get(), config));
  chat = std::move(prompt);
  context.tokenizer = tokenizer.get();
  context.eos_token_ids = model_config.eos_token_ids;
  if (tokenizer && tokenizer->eos_token_id()) {
    const int32_t id = *tokenizer->eos_token_id();
    auto& ids = context.eos_token_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  if (tokenizer) constraints = std::make_unique<ConstraintCompiler>(*tokenizer, context.eos_token_ids);
  context.constraints = constraints.get();
  context.vocab_size = info.vocab_size;
  context.sampled_vocab = tokenizer ? std::min(tokenizer->vocab_size(), info.vocab_size) : info.vocab_size;
  context.max_seq_len = info.max_seq_len;
  context.max_logprobs = config.max_logprobs;
  context.seed = config.seed;
  if (model_config.kind == ModelKind::encoder_decoder) context.forcing = &model_config.forcing;
  return {};
}

ModelRunner::Options EngineSetup::runner_options(const EngineConfig& config) const {
  ModelRunner::Options options;
  // The kernels of a GPU are chosen by the requests that may run, whatever the size of a chunk.
  const int seqs = info.max_running_requests;
  options.limits = {seqs, info.max_batched_tokens, int64_t{seqs} * info.max_seq_len, info.max_seq_len};
  options.attention = config.attention;
  options.activations = activations_;
  options.kv_dtype = info.kv_dtype;
  options.kv_layout = info.kv_layout;
  options.max_logit_rows = max_logit_rows_;
  options.hidden_states = head_ ? static_cast<int>(head_->hidden.size()) : 0;
  options.max_encoder_len = scheduler.max_encoder_len;
  options.max_encoder_rows = scheduler.max_encoder_rows();
  if (!gpu) return options;
  options.limits.split_prefill = false;  // chunks of a prompt do not change its bits
  options.ops = gpu->ops.get();
  options.open_steps = executor.overlap.open_steps;
  const size_t of_lora = lora_layout ? LoraSlots::kRowBytes : 0;
  const bool ngram = executor.ngram.most > 0;
  options.row_bytes = DeviceExecutor::kRowBytes + of_lora + (ngram ? DeviceExecutor::kNgramRowBytes : 0);
  options.logit_row_bytes =
      DeviceExecutor::kLogitRowBytes + of_lora + (ngram ? DeviceExecutor::kNgramLogitRowBytes : 0);
  options.graph_rows = executor.buckets.empty() ? 0 : executor.buckets.back();
  return options;
}

Status EngineSetup::load_model(const EngineConfig& config, const BackendRegistry& registry) {
  ModelLoadOptions options;
  options.dir = info.model_dir;
  options.dtype = config.dtype;
  options.dummy_weights = config.dummy_weights;
  options.seed = config.seed;
  options.progress = config.load_progress;
  options.deferred = device_.kind == DeviceKind::cuda;
  if (options.deferred) {
    FOVEA_TRY(opened, EngineGpu::open(config.device_index, activations_));
    gpu = std::move(opened);
  }
  FOVEA_TRY(loaded, Model::load(model_config, options, *stream));
  model = std::move(loaded);
  FOVEA_RETURN_IF_ERROR(allow_loras(config.lora));
  if (head_) FOVEA_RETURN_IF_ERROR(model->keep_hidden(head_->hidden));
  FOVEA_RETURN_IF_ERROR(make_drafter(config, registry));
  if (gpu) {
    FOVEA_RETURN_IF_ERROR(fit_gpu_memory(config, registry));
    FOVEA_RETURN_IF_ERROR(model->place(*gpu->ops, *gpu->stream, {pool.get(), config.load_progress}));
  }
  info.weight_bytes = model->weight_bytes();
  info.weight_bytes_per_token = model->weight_bytes_per_token();
  FOVEA_TRY(created, ModelRunner::create(*model, info.selection, registry, runner_options(config)));
  runner = std::move(created);
  return {};
}

std::vector<KvGroup> EngineSetup::groups_of_cache() const {
  return kv_groups(model_config, info.kv_dtype, info.kv_layout, info.selection.page_size, model->kv_scales());
}

/// Computes what the engine takes of the GPU, prints it, and sizes the KV cache. Nothing is allocated yet.
Status EngineSetup::fit_gpu_memory(const EngineConfig& config, const BackendRegistry& registry) {
  FOVEA_TRY(bytes, ModelRunner::measure(*model, info.selection, registry, runner_options(config)));
  FOVEA_TRY(memory, cuda_device_memory(config.device_index));
  executor.max_seqs = max_seqs_;
  executor.max_logit_rows = max_logit_rows_;
  executor.sampled_vocab = context.sampled_vocab;
  bill_.total = memory.total;
  bill_.taken = memory.total - memory.free;
  bill_.utilization = config.gpu_memory_utilization;
  bill_.weights = model->placed_bytes(*gpu->ops);
  bill_.activations = bytes.activations;
  bill_.workspace = bytes.workspace;
  bill_.logits = bytes.logits;
  bill_.step_arrays = bytes.step_arrays;
  bill_.sampler = DeviceExecutor::bytes(executor, info.vocab_size, *gpu->queue).total();
  bill_.graphs = graph_bytes(executor.buckets.size(), model_config, lora_layout != nullptr);
  if (drafter_with_model_) {
    FOVEA_TRY(drafter_bytes, drafter_with_model_->device_bytes());
    bill_.drafter = drafter_bytes + drafter_with_model_->spare_kv_bytes();
  }
  if (lora_layout) bill_.lora = LoraSlots::bytes(*lora_layout, scheduler.max_loras, info.max_batched_tokens);

  GpuKv kv_size;
  kv_size.bytes_per_page = bytes_per_page(groups_of_cache()) + drafter_kv_bytes();
  kv_size.page_size = scheduler.page_size = info.selection.page_size;
  kv_size.sequence_pages = longest_sequence_pages(scheduler);
  kv_size.max_running = max_seqs_;
  kv_size.max_batched_tokens = info.max_batched_tokens;
  kv_size.max_seq_len = info.max_seq_len;
  kv_size.num_pages = config.num_pages;
  const auto pages = gpu_pages(bill_, kv_size);
  info.gpu_memory_total = memory.total;
  info.gpu_memory = memory_parts(bill_, pages ? *pages * kv_size.bytes_per_page : 0);
  for (const MemoryPart& part : info.gpu_memory)
    report(config, memory_text(part.bytes) + " " + part.name);
  if (!pages) return pages.error();
  gpu_pages_ = *pages;
  return {};
}

void EngineSetup::report_gpu_memory(const EngineConfig& config) {
  const auto memory = cuda_device_memory(gpu->index);
  if (!memory) return;
  int64_t computed = 0;
  for (const MemoryPart& part : info.gpu_memory)
    computed += part.bytes;
  const int64_t taken = memory->total - memory->free, more = taken - computed;
  info.gpu_memory_surplus = more;
  report(config, memory_text(taken) + " of " + memory_text(memory->total) + " are taken, " +
                     memory_text(more < 0 ? -more : more) + (more < 0 ? " less" : " more") +
                     " than computed");
}

Result<int64_t> EngineSetup::choose_pages(const EngineConfig& config, int64_t page_bytes) const {
  if (gpu) return gpu_pages_;
  KvSizing sizing;
  sizing.bytes_per_page = page_bytes;
  sizing.page_size = info.selection.page_size;
  sizing.max_seq_len = info.max_seq_len;
  sizing.sequence_pages = longest_sequence_pages(scheduler);
  sizing.max_running = max_seqs_;
  sizing.num_pages = config.num_pages;
  sizing.memory_share = config.memory_share;
  // The scratch is allocated but not touched yet, so the system still counts it as free.
  sizing.available = std::max<int64_t>(0, available_memory() - runner->scratch_bytes());
  return choose_num_pages(sizing);
}

Status EngineSetup::make_kv_cache(const EngineConfig& config) {
  const std::vector<KvGroup> groups = groups_of_cache();
  FOVEA_CHECK(groups.size() == 1);  // the scheduler manages the pages of one group
  scheduler.page_size = info.selection.page_size;
  FOVEA_TRY(pages, choose_pages(config, bytes_per_page(groups) + (head_ ? drafter_kv_bytes() : 0)));
  FOVEA_RETURN_IF_ERROR(place_drafter(pages));
  FOVEA_TRY(cache, KvCache::create(groups, {pages}, gpu ? *gpu->device : cpu_device()));
  kv = std::make_unique<KvCache>(std::move(cache));
  runner->set_kv_cache(*kv);
  if (lora_layout) {
    lora_slots = std::make_unique<LoraSlots>(*gpu->device, *lora_layout, scheduler.max_loras,
                                             lora_block_rows(), info.max_batched_tokens);
    executor.lora = lora_slots.get();
  }
  info.workspace_bytes = runner->scratch_bytes();
  info.kv_tokens = pages * scheduler.page_size;
  info.kv_sequences = static_cast<double>(pages) / static_cast<double>(longest_sequence_pages(scheduler));
  info.kv_bytes = pages * bytes_per_page(groups);
  info.kv_bytes_per_token = bytes_per_token(groups);
  return {};
}

/// Logs settings that info() does not contain; the caller of info() prints the others.
void EngineSetup::log_start() const {
  log_kv_scales();
  if (scheduler.whole_prompts) {
    FOVEA_LOG(info) << "no causal mask (" << context.whole_prompts_from
                    << "): a prompt is computed in one step of at most " << context.max_prompt_len
                    << " tokens, and no prefix is reused";
  }
  if (scheduler.window > 0) {
    FOVEA_LOG(info) << "sliding window of " << scheduler.window
                    << " tokens in all layers: a sequence holds at most "
                    << decoder_pages(scheduler) * scheduler.page_size << " tokens at a time";
  }
}

void EngineSetup::log_kv_scales() const {
  const KvScales& scales = model->kv_scales();
  const std::string_view dtype = to_string(info.kv_dtype);
  const bool fp8 = is_fp8(info.kv_dtype);
  if (fp8 && scales.empty()) {
    FOVEA_LOG(warning) << "KV scales: the checkpoint has none, so that 1.0 is used with " << dtype
                       << "; keys and values beyond its range are cut off";
  } else if (fp8) {
    FOVEA_LOG(info) << "KV scales: checkpoint, " << scales.summary();
  } else if (!scales.empty()) {
    FOVEA_LOG(info) << "KV scales: the checkpoint's are for an fp8 cache; " << dtype << " doesn't use them";
  }
}

}  // namespace fovea
