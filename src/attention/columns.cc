#include "attention/columns.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace fovea {
namespace {

constexpr Column kColumns[] = {
    {"dtypes", "Dtypes", "Data types of the model: of Q and O"},
    {"kv_dtypes", "KV Dtypes", "Data types of the KV cache"},
    {"page_sizes", "Block Sizes", "Tokens of a KV page; %N = multiples of N"},
    {"native_page", "Page Size > 1", "The kernel walks pages, rather than a view of single slots"},
    {"head_dims", "Head Sizes", "Head sizes of Q and K"},
    {"v_head_dims", "V Head Sizes", "Head sizes of V and O"},
    {"gqa_ratios", "GQA Ratios", "Query heads of one KV head"},
    {"phases", "Phases", "Prefill, decode"},
    {"types", "Attention Types", "Decoder, encoder, encoder only, encoder-decoder (cross)"},
    {"non_causal", "Non-Causal", "A decoder without causal mask"},
    {"window", "Sliding Window", "Sliding window"},
    {"chunk", "Chunked Local", "Chunked-local attention (Llama 4)"},
    {"softcap", "Soft Cap", "cap * tanh(score / cap) (Gemma 2)"},
    {"alibi", "ALiBi", "A slope for each head, times the distance"},
    {"sink", "Sink", "Learned sink logits in the softmax's denominator (gpt-oss)"},
    {"sink_tokens", "Sink Tokens", "The first tokens stay visible outside the window (StreamingLLM)"},
    {"spans", "MM Prefix", "Tokens of one multimodal span see each other both ways"},
    {"packed_mask", "Packed Mask", "A bit for each pair of query and key"},
    {"verify", "Spec top-k = 1", "Verifies one chain of drafts: a few query rows a sequence"},
    {"tree_mask", "Spec top-k > 1", "Verifies a tree of drafts"},
    {"mla", "MLA", "Multi-head latent attention; a backend serves either it or the other kinds"},
    {"sparse", "Sparse", "Sparse attention; a backend serves either it or the other kinds"},
    {"chunked_prefix", "Chunked Prefix", "MLA prefill in chunks of the prefix"},
    {"dcp", "DCP", "Decode context parallelism"},
    {"non_causal_dcp", "Non-Causal DCP", "Decode context parallelism of non-causal MLA"},
    {"pcp", "PCP", "Prefill context parallelism"},
    {"lse", "LSE", "Returns the log-sum-exp of each row"},
    {"kv_layouts", "KV Layouts", "How KV pages may lie in memory"},
    {"kv_sharing", "KV Sharing", "A layer reads the keys and values of another one"},
    {"kv_connector", "KV Connector", "KV pages can move to and from other processes"},
    {"per_head_scales", "Per-Head Scales", "A scale of quantised K and V for each head"},
    {"output_quant", "Output Quant", "Writes its output quantised"},
    {"adaptive_verification", "Adaptive Verification", "Host and device may differ on query lengths"},
    {"fp64_accumulate", "fp64", "Accumulates in fp64, the oracle of the tests"},
    {"invariance", "Invariance", "What a sequence's bits do not depend on"},
    {"graph", "Graphs", "Which batches CUDA graphs may hold"},
    {"device", "Device", "The kind of device that it runs on"},
    {"compute_capability", "Compute Cap.", "CUDA compute capability; N/A on other devices"},
};

constexpr int kPageSizes[] = {1, 3, 7, 16, 32, 48, 64, 128, 256, 544, 1024, 2048};
// Multiples of 8 up to 128, larger sizes used by models, and nearby sizes that no kernel tile divides.
constexpr int kHeadDims[] = {1,   5,   8,   12,  16,  24,  32,  33,  40,  48,  56,   64,
                             72,  80,  88,  96,  104, 112, 120, 127, 128, 129, 160,  192,
                             224, 256, 320, 384, 448, 512, 513, 520, 576, 577, 1024, 1025};
constexpr int kGqaRatios[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 32, 64, 71, 128};
constexpr int kComputeCapabilities[] = {75, 80, 86, 89, 90, 100, 103, 120};

struct Value {
  std::string name;
  bool claimed = false;
};
using Values = std::vector<Value>;

/// kHeadDims, and for MLA also its smaller record, which no other kind of attention has.
std::vector<int> head_dims_of(const Capability& c) {
  std::vector<int> all(std::begin(kHeadDims), std::end(kHeadDims));
  if (c.features.has(Feature::mla)) all.insert(std::ranges::find(all, 320), 288);
  return all;
}

Values of_set(const IntSet& set, std::span<const int> universe) {
  Values out;
  for (int v : universe)
    out.push_back({std::to_string(v), set.has(v)});
  return out;
}

template <class E>
Values of_set(EnumSet<E> set, unsigned count) {
  Values out;
  for (unsigned i = 0; i < count; ++i)
    out.push_back({std::string(to_string(static_cast<E>(i))), set.has(static_cast<E>(i))});
  return out;
}

std::string decimal(int compute_capability) {
  return std::to_string(compute_capability / 10) + "." + std::to_string(compute_capability % 10);
}

Values compute_capabilities(const Capability& c) {
  Values out;
  for (int cc : kComputeCapabilities)
    out.push_back({decimal(cc), c.device == DeviceKind::cuda && cc >= c.min_compute_capability &&
                                    (c.max_compute_capability == 0 || cc <= c.max_compute_capability)});
  return out;
}

/// Each level includes the lower ones; NEVER claims none.
Values graph_levels(const Capability& c) {
  using enum GraphSupport;
  Values out;
  for (GraphSupport level : {uniform_single_token_decode, uniform_batch, always})
    out.push_back({std::string(to_string(level)), c.graph >= level});
  return out;
}

Values devices(const Capability& c) {
  Values out;
  for (DeviceKind kind :
       {DeviceKind::cpu, DeviceKind::cuda, DeviceKind::rocm, DeviceKind::ascend, DeviceKind::xpu})
    out.push_back({std::string(to_string(kind)), c.device == kind});
  return out;
}

/// KvView's strides can describe both nhd and hnd.
Values kv_layouts(const Capability& c) {
  return {{"nhd", true},
          {"hnd", true},
          {"x_packed", c.features.has(Feature::kv_x_packed)},
          {"shuffle", c.features.has(Feature::kv_shuffle)}};
}

std::string joined(const Values& values) {
  std::string out;
  for (const Value& v : values)
    if (v.claimed) out += (out.empty() ? "" : ", ") + v.name;
  return out.empty() ? "none" : out;
}

std::string dtypes_text(const Capability& c) {
  return joined({{"fp16", c.dtypes.has(DType::f16)},
                 {"bf16", c.dtypes.has(DType::bf16)},
                 {"fp32", c.dtypes.has(DType::f32)}});
}

Values kv_dtypes(const Capability& c) {
  return of_set(c.kv_dtypes, static_cast<unsigned>(KvCacheDType::count_));
}

/// Lists fp8, the alias of fp8_e4m3, in front of it, as vLLM does.
std::string kv_dtypes_text(const Capability& c) {
  Values values = kv_dtypes(c);
  const auto e4m3 = std::ranges::find(values, to_string(KvCacheDType::fp8_e4m3), &Value::name);
  values.insert(e4m3, {"fp8", c.kv_dtypes.has(KvCacheDType::fp8_e4m3)});
  return joined(values);
}

std::string types_text(const Capability& c) {
  using enum AttentionType;
  if (c.types == EnumSet<AttentionType>{decoder, encoder, encoder_only, encoder_decoder}) return "All";
  return joined({{"Decoder", c.types.has(decoder)},
                 {"Encoder", c.types.has(encoder)},
                 {"Encoder Only", c.types.has(encoder_only)},
                 {"Enc-Dec", c.types.has(encoder_decoder)}});
}

/// "N/A", "Any", "≥8.0", "9.x", "9.x-10.x", "9.0": ranges of whole major versions are written with x.
std::string compute_capability_text(const Capability& c) {
  const int first = c.min_compute_capability, last = c.max_compute_capability;
  if (c.device != DeviceKind::cuda) return "N/A";
  if (last == 0) return first == 0 ? "Any" : "≥" + decimal(first);
  if (first == last) return decimal(first);
  if (first % 10 != 0 || last % 10 != 9) return decimal(first) + "-" + decimal(last);
  const std::string from = std::to_string(first / 10) + ".x", to = std::to_string(last / 10) + ".x";
  return from == to ? from : from + "-" + to;
}

/// A column with values other than yes and no.
struct List {
  std::string_view column;
  Values (*values)(const Capability&);
  std::string (*text)(const Capability&);  ///< null = the claimed values
  Feature unstated = Feature::count_;      ///< the bit of this column in Capability::unstated
};

constexpr List kLists[] = {
    {"dtypes",
     [](const Capability& c) {
       Values out;
       for (DType d : {DType::f16, DType::bf16, DType::f32})
         out.push_back({std::string(to_string(d)), c.dtypes.has(d)});
       return out;
     },
     dtypes_text},
    {"kv_dtypes", kv_dtypes, kv_dtypes_text},
    {"page_sizes", [](const Capability& c) { return of_set(c.page_sizes, kPageSizes); },
     [](const Capability& c) { return c.page_sizes.to_string(); }},
    {"head_dims", [](const Capability& c) { return of_set(c.head_dims, head_dims_of(c)); },
     [](const Capability& c) { return c.head_dims.to_string(); }},
    {"v_head_dims", [](const Capability& c) { return of_set(c.v_head_dims, head_dims_of(c)); },
     [](const Capability& c) { return c.v_head_dims.to_string(); }},
    {"gqa_ratios", [](const Capability& c) { return of_set(c.gqa_ratios, kGqaRatios); },
     [](const Capability& c) { return c.gqa_ratios.to_string(); }},
    {"phases", [](const Capability& c) { return of_set(c.phases, 2); }, nullptr},
    {"types", [](const Capability& c) { return of_set(c.types, 4); }, types_text},
    {"kv_layouts", kv_layouts, nullptr, Feature::kv_x_packed},
    {"invariance",
     [](const Capability& c) { return of_set(c.invariance, static_cast<unsigned>(Invariance::count_)); },
     nullptr, Feature::batch_invariance},
    {"graph", graph_levels, [](const Capability& c) { return std::string(to_string(c.graph)); }},
    {"device", devices, nullptr},
    {"compute_capability", compute_capabilities, compute_capability_text},
};

const List* list_of(const Column& column) {
  const auto at = std::ranges::find(kLists, column.id, &List::column);
  return at == std::end(kLists) ? nullptr : at;
}

Feature feature_of(const Column& column) {
  for (unsigned i = 0; i < static_cast<unsigned>(Feature::count_); ++i)
    if (const auto f = static_cast<Feature>(i); to_string(f) == column.id) return f;
  FOVEA_CHECK(false && "a column is a list or a feature");
  return Feature::count_;
}

}  // namespace

std::span<const Column> columns() {
  return kColumns;
}

std::string cell_text(const Capability& capability, const Column& column) {
  if (const List* list = list_of(column)) {
    if (capability.unstated.has(list->unstated)) return "-";
    return list->text != nullptr ? list->text(capability) : joined(list->values(capability));
  }
  const Feature feature = feature_of(column);
  if (capability.features.has(feature)) return "yes";
  return capability.unstated.has(feature) ? "-" : "no";
}

std::vector<Cell> cells(const Capability& capability) {
  std::vector<Cell> out;
  for (const Column& column : kColumns) {
    if (const List* list = list_of(column)) {
      const bool stated = !capability.unstated.has(list->unstated);
      for (Value& value : list->values(capability))
        out.push_back({column.id, std::move(value.name), value.claimed && stated, stated});
      continue;
    }
    const Feature feature = feature_of(column);
    const bool claimed = capability.features.has(feature);
    out.push_back({column.id, "yes", claimed, claimed || !capability.unstated.has(feature)});
  }
  return out;
}

}  // namespace fovea
