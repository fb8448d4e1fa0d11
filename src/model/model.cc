#include "model/model.h"

#include <unistd.h>

#include <cmath>
#include <new>
#include <optional>

#include "base/check.h"
#include "base/log.h"
#include "base/printable.h"
#include "files/checkpoint.h"
#include "model/family.h"

namespace fovea {
namespace {

int64_t physical_memory() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? pages * page : INT64_MAX;
}

Error too_large(int64_t bytes, const ModelLoadOptions& options) {
  constexpr int64_t kMiB = 1 << 20;
  return {ErrorCode::out_of_memory, options.dir + ": the weights need " + std::to_string(bytes / kMiB) +
                                        " MiB and this machine has " +
                                        std::to_string(physical_memory() / kMiB) +
                                        " MiB of memory; use a smaller model or a machine with more memory"};
}

/// Warns about unused tensors, which indicate a wrong config, or refuses them where the reader does; known
/// harmless ones are skipped.
Status check_unused(const WeightReader& reader, const std::string& source, bool tied) {
  size_t count = 0;
  std::string first;
  for (const std::string_view name : reader.unused()) {
    if (name.ends_with("rotary_emb.inv_freq") || (tied && name == "lm_head.weight")) continue;
    if (count++ < 3) first += (first.empty() ? "" : ", ") + printable(name);
  }
  if (count == 0) return {};
  const std::string names = " (" + first + (count > 3 ? ", ..." : "") + ")";
  if (reader.refuses_unused())
    return unsupported(source + ": " + std::to_string(count) +
                       " tensors that config.json does not account for" + names +
                       "; config.json and the weights must come from the same model");
  FOVEA_LOG(warning) << source << ": " << count << " tensors that this architecture doesn't use are ignored"
                     << names;
  return {};
}

AttentionSpec decoder_spec(const ModelConfig& config, const LayerConfig& layer) {
  AttentionSpec spec;
  spec.num_heads = config.num_heads;
  spec.num_kv_heads = config.num_kv_heads;
  spec.head_dim = spec.v_head_dim = config.head_dim;
  const MlaConfig& mla = config.mla;
  if (mla) {
    spec.use_mla = true;
    spec.use_sparse = config.sparse;
    spec.sparse_topk = config.sparse ? config.sparse_topk : 0;
    spec.v_head_dim = mla.kv_rank;
    spec.mla_nope_head_dim = mla.nope_dim;
    spec.mla_rope_head_dim = mla.rope_dim;
    spec.mla_v_head_dim = mla.v_dim;
  }
  const double dim = mla ? mla.qk_dim() : config.head_dim;
  spec.scale =
      static_cast<float>(config.attention_scale != 0 ? config.attention_scale : 1.0 / std::sqrt(dim));
  spec.softcap = config.attention_softcap;
  spec.mask.window_left = layer.window > 0 ? layer.window - 1 : -1;
  spec.mask.chunk = layer.chunk;
  spec.has_sink = config.sinks;
  return spec;
}

/// Every row of a sequence sees every other.
AttentionSpec bidirectional(AttentionSpec spec, AttentionType type) {
  spec.type = type;
  spec.mask = {};
  spec.mask.causal = false;
  return spec;
}

Error only_on_cpu(const ModelConfig& config) {
  return unsupported(printable(config.architecture) +
                     " runs on the CPU only; decoders and encoders run on every device");
}

}  // namespace

std::vector<AttentionSpec> attention_specs(const ModelConfig& config) {
  std::vector<AttentionSpec> specs;
  const AttentionSpec plain = decoder_spec(config, {});
  for (const LayerConfig& layer : config.layers)
    specs.push_back(config.kind == ModelKind::encoder ? bidirectional(plain, AttentionType::encoder_only)
                                                      : decoder_spec(config, layer));
  if (!config.encoder) return specs;
  specs.insert(specs.end(), config.layers.size(), bidirectional(plain, AttentionType::encoder_decoder));
  AttentionSpec encoder = bidirectional(plain, AttentionType::encoder);
  encoder.num_heads = encoder.num_kv_heads = config.encoder->num_heads;
  encoder.head_dim = encoder.v_head_dim = config.hidden_size / config.encoder->num_heads;
  encoder.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(encoder.head_dim)));
  specs.insert(specs.end(), static_cast<size_t>(config.encoder->num_layers), encoder);
  return specs;
}

Status Model::encode(const EncodeInput&, Stream&) {
  FOVEA_CHECK(false);  // this model has no encoder
  return {};
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): models that have hidden states keep the list
Status Model::keep_hidden(std::vector<int>) {
  return unsupported(printable(config().architecture) +
                     " hands out no hidden states; drafters that read them need a decoder");
}

int64_t Model::placed_bytes(Ops&) const {
  FOVEA_CHECK(false);  // place() refuses this model
}

int64_t Model::activation_bytes(Ops&, int, int) const {
  FOVEA_CHECK(false);
}

Status Model::allow_lora(const LoraLimits&) {
  return unsupported(config().architecture + " can't have LoRA adapters; decoders can");
}

Status Model::place(Ops& ops, Stream& stream) {
  return place(ops, stream, {});
}
Status Model::place(Ops&, Stream&, const PlaceOptions&) {
  return only_on_cpu(config());
}

Status Model::forward_tensors(const StepTensors&, const Tensor&, Stream&) {
  FOVEA_CHECK(false);  // only after place(), which refuses this model
}

Result<std::unique_ptr<Model>> Model::load(const ModelConfig& config, const ModelLoadOptions& options,
                                           Stream& stream) {
  const Family* family = find_family(config.architecture);
  if (!family) return unsupported("architecture " + printable(config.architecture) + " isn't supported");

  ModelConfig effective = config;
  if (options.dtype) effective.dtype = *options.dtype;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const DummyWeights> dummy;
  if (options.dummy_weights) {
    dummy = std::make_shared<DummyWeights>(options.seed, effective.dtype);
  } else {
    FOVEA_TRY(opened, Checkpoint::open(options.dir));
    checkpoint = std::make_shared<Checkpoint>(std::move(opened));
  }
  WeightReader reader(checkpoint, dummy, options.dtype, stream.pool());
  if (effective.quantization.fp8) reader.set_dummy_fp8(effective.quantization.blocks);
  family->read(effective, reader);
  FOVEA_RETURN_IF_ERROR(reader.status());
  if (!options.deferred && reader.planned_bytes() > physical_memory())
    return too_large(reader.planned_bytes(), options);
  KvScales kv_scales;
  if (checkpoint) {
    std::vector<const CheckpointTensor*> used;
    FOVEA_TRY(scales, read_kv_scales(*checkpoint, effective.num_layers, effective.has_kv_scales, used));
    kv_scales = std::move(scales);
    reader.mark_used(used);
    FOVEA_RETURN_IF_ERROR(check_unused(reader, checkpoint->source(), config.tie_word_embeddings));
    checkpoint->prefetch();
  }
  reader.set_mode(options.deferred ? WeightReader::Mode::describe : WeightReader::Mode::load);
  if (!options.deferred) reader.set_progress(options.progress);
  try {
    std::unique_ptr<Model> model = family->read(effective, reader);
    FOVEA_RETURN_IF_ERROR(reader.status());
    if (options.progress && !options.deferred)
      options.progress(reader.planned_bytes(), reader.planned_bytes());
    model->kv_scales_ = std::move(kv_scales);
    return model;
  } catch (const std::bad_alloc&) {
    return too_large(reader.planned_bytes(), options);
  }
}

}  // namespace fovea
