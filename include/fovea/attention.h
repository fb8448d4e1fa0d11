#pragma once
// What an attention layer needs (AttentionSpec), what a backend offers (Capability), and how a backend is
// chosen for each phase or refused with reasons (select, explain). Lengths are in tokens and sizes in
// elements; names with "bytes" are in bytes.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention_config.h"
#include "fovea/capability.h"
#include "fovea/dtype.h"
#include "fovea/result.h"

namespace fovea {

/// Which keys j a query at absolute position p = i + n_k - n_q sees. Every test that is set must hold. Spans
/// (bidirectional multimodal spans) add keys to those; a packed mask replaces all tests except the spans.
struct MaskSpec {
  bool causal = true;     ///< j <= p (bottom-right aligned)
  int window_left = -1;   ///< p - j <= window_left; -1 = unbounded. A model's sliding_window W is (W - 1, 0).
  int window_right = -1;  ///< j - p <= window_right; -1 = unbounded
  int chunk = 0;          ///< floor(j / chunk) == floor(p / chunk); 0 = off
  int sink_tokens = 0;    ///< the first keys stay visible outside the window (StreamingLLM); 0 = off
  bool spans = false;     ///< BatchMeta::spans is used
  bool packed = false;    ///< BatchMeta::packed_mask is used; needs causal = false
  bool tree = false;      ///< BatchMeta::tree_bias is used

  bool operator==(const MaskSpec&) const = default;
};

/// What replaces softmax over keys in layers of LayerKind::linear: a state of fixed size for each head.
enum class LinearAttention : uint8_t {
  none,         ///< softmax
  lightning,    ///< a decaying sum (MiniMax-Text-01)
  gated_delta,  ///< the gated delta rule (Qwen3-Next; Kimi Linear, with a gate for each channel)
  pointwise,    ///< SiLU of each score (HSTU)
};
/// "softmax", "lightning", "gated delta rule", "pointwise"
std::string_view to_string(LinearAttention linear);

/// What one attention layer needs; constant for the lifetime of the model.
struct AttentionSpec {
  int num_heads = 0;         ///< query heads Hq, a multiple of num_kv_heads
  int num_kv_heads = 0;      ///< Hkv; query head h reads kv head h / (Hq / Hkv)
  int head_dim = 0;          ///< D of Q and K
  int v_head_dim = 0;        ///< Dv of V and O
  float scale = 0.0f;        ///< multiplies q.k; required (no default, models differ)
  float softcap = 0.0f;      ///< cap * tanh(s / cap) when > 0
  DType dtype = DType::f32;  ///< Q and O
  KvCacheDType kv_dtype = KvCacheDType::auto_;
  bool kv_x_packed = false;  ///< the cache has KvLayout::x_packed
  bool kv_shuffle = false;   ///< the cache has KvLayout::shuffle
  AttentionType type = AttentionType::decoder;
  LinearAttention linear = LinearAttention::none;  ///< other values: no KV pages, and masks don't apply
  MaskSpec mask;
  int page_size = 0;      ///< tokens per page; 0 = not given, the backend's preferred size is used
  bool has_sink = false;  ///< learned per-head sink logits (AttentionArgs::sinks)
  bool lse_includes_sink = false;
  bool has_alibi = false;  ///< AttentionArgs::alibi_slopes
  bool use_mla = false;    ///< head_dim and v_head_dim are then those of the absorbed form (576 and 512)
  bool use_sparse = false;
  /// For MLA prefill, which is not absorbed: a query head's dimensions without and with RoPE, and those of V.
  int mla_nope_head_dim = 0, mla_rope_head_dim = 0, mla_v_head_dim = 0;
  /// Features needed beyond the fields above: dcp, pcp, kv_connector, per_head_scales, verify, ...
  FeatureSet needs;
  bool fp64_accumulate = false;  ///< TORCH_NATIVE only: the reference of the tests

  bool operator==(const AttentionSpec&) const = default;
};

/// The device that kernels would run on.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int compute_capability = 0;
  std::string name;
  /// Shared memory in bytes per block (CUDA's opt-in maximum); 0 = shared_bytes_of(compute_capability).
  int shared_bytes = 0;
};

/// Maximum shared memory in bytes per block on a CUDA device of this compute capability (10 * major + minor),
/// from the table in the CUDA programming guide. Capabilities not in the table: the 48 KiB of every device; 0
/// for 0.
int shared_bytes_of(int compute_capability);

/// One reason why a backend is refused, in vLLM's wording, and the nearest change that removes it.
struct Reason {
  std::string text;
  std::string fix;
};

/// A family of kernels (KernelName::family) and why it is chosen, in one line.
struct KernelFamily {
  std::string_view name;
  std::string why;
};

/// One backend, or one version of it (FLASH_ATTN has FA2, FA3 and FA4: rows of the same name).
struct BackendInfo {
  std::string_view name;  ///< vLLM's upper-case name
  /// SGLang's and Mini-SGLang's lower-case names. For an MLA model they mean `mla_sibling`, if there is one.
  std::vector<std::string_view> aliases = {};
  std::string_view version = {};  ///< "FA3", "Native", ...; empty when there is only one
  Capability capability = {};
  /// Empty = built; else why this build has no kernel for it, the tail of "not in this build: ...". The
  /// capability is then the row of the document that describes the backend.
  std::string_view absent = {};
  /// The row in vLLM's or SGLang's table, where `capability` differs from it; null = the same or none.
  const Capability* documented = nullptr;
  LinearAttention linear = LinearAttention::none;  ///< the only layers that it serves
  std::string_view mla_sibling = {};
  std::string_view prefill_partner = {};  ///< for a backend that only decodes: the backend for its prefill
  std::string_view description = {};      ///< one line, for display
  /// Families of kernels (KernelName::family) whose capabilities this row claims. A cell that only kernels of
  /// other families serve is proven for those, and reported as theirs. Empty: any family.
  std::vector<std::string_view> families = {};
  /// Refusals that no single column of the table can express. With an empty fix, validation suggests another
  /// backend.
  std::function<std::optional<Reason>(const AttentionSpec&, const DeviceInfo&)> supports_combination =
      nullptr;
  /// What plan() would refuse on this device in this phase whatever the limits, because the kernels need more
  /// than the device has (shared memory per block). An empty fix as above.
  std::optional<Reason> (*check_kernels)(const BackendInfo&, const AttentionSpec&, const DeviceInfo&,
                                         Phase) = nullptr;
  /// Which of several kernel families serves a phase. nullopt: there is only one.
  std::optional<KernelFamily> (*kernel_family)(const BackendInfo&, const AttentionSpec&, Phase) = nullptr;
  /// The file of a backend that is built outside of Fovea (fovea/backend_library.h); empty = part of it.
  std::string_view library = {};

  /// "FLASH_ATTN (FA3)"
  std::string label() const;
};

/// A backend that was considered, and every reason against it; none = it can serve. For a backend that is not
/// built, the reasons include requirements that its documentation does not mention.
struct Candidate {
  const BackendInfo* backend = nullptr;
  std::vector<Reason> reasons;
};

/// The result for one phase of one kind of layers.
struct PhaseSelection {
  const BackendInfo* backend = nullptr;  ///< null = none can serve; see `error`
  std::string why;                       ///< the reason for the choice, one line
  std::vector<Candidate> candidates;     ///< in order of preference; only the named backend when one is named
  /// Without a backend: the first that would serve if this build had its kernels; null = none would.
  const BackendInfo* if_built = nullptr;
  /// Requirements that the documentation of if_built does not mention: "attention sinks". Empty = all
  /// documented.
  std::vector<std::string> unstated = {};
  Error error;
  bool version_named = false;  ///< the name that was given pins the version ("fa3")
};

struct KindSelection {
  LayerKind kind = LayerKind::full;
  std::vector<int> specs;  ///< indices of the given specs that are of this kind
  PhaseSelection prefill, decode;
  const PhaseSelection& of(Phase phase) const { return phase == Phase::prefill ? prefill : decode; }
};

/// Whether the keys and values of a position, and all that follows from them, have the same bits if prefill
/// computed it, in any chunk, or decode: one backend serves both phases and claims Invariance::chunking.
/// Encoder layers only prefill. Otherwise an engine must keep apart what each phase computes, or the bits of
/// an answer depend on preemption, prefix hits and load. Both phases must have a backend.
bool same_bits_across_phases(const KindSelection& kind);

/// One resolved value and its source: a flag, an environment variable, config.json, a backend, a default.
struct ResolvedValue {
  std::string key, value, from;
};

struct Selection {
  DeviceInfo device;
  std::vector<KindSelection> kinds;  ///< in ascending order of kind; at least one
  int page_size = 0;                 ///< 0 when a phase has no backend, or they have no size in common
  std::string page_size_why;         ///< its source, or why there is none
  std::vector<ResolvedValue> resolved;
  std::vector<std::string> warnings;

  /// The backends of the layers like `spec`.
  const KindSelection& of(const AttentionSpec& spec) const;
  /// Every phase has a backend, and they share a page size.
  bool complete() const;
};

/// True if it is so for every kind of layers: one that differs makes the keys of all layers after it differ.
bool same_bits_across_phases(const Selection& selection);

class BackendRegistry;

LayerKind kind_of(const AttentionSpec& spec);
/// Layers of this kind keep keys and values in pages: not encoders, not linear attention.
bool has_kv_pages(LayerKind kind);
/// `spec` with the settings that change the layer itself: use_non_causal removes the causal mask of decoder
/// layers with softmax, and makes a window as wide to the right as it is to the left. select() applies this
/// itself; callers must also apply it to the specs that they plan for.
AttentionSpec with_settings(AttentionSpec spec, const AttentionConfig& config);
/// vLLM's error for an unknown layer kind `name`, found in the setting `where`.
Error unknown_layer_kind(std::string_view name, std::string_view where = "backend_per_kind");

/// "cpu", "sm75" to "sm121", "rocm", "npu", "xpu", in any letter case; the error lists them.
Result<DeviceInfo> parse_device(std::string_view name);
/// The names that parse_device() accepts.
std::vector<std::string_view> device_names();
/// "cpu", "cuda 9.0", ...
std::string describe(const DeviceInfo& device);
/// The type of Q and O (AttentionSpec::dtype) of a model that runs on `device` with weights of type
/// `weights`: fp32 on a CPU, else the weights'.
DType activation_dtype(const DeviceInfo& device, DType weights);

/// Every reason why `backend` can't serve `spec` on `device` in `phase`, in vLLM's order; empty = it can.
std::vector<Reason> validate(const BackendInfo& backend, const AttentionSpec& spec, const DeviceInfo& device,
                             Phase phase);

/// Considers every backend for each phase of each kind of layers in `specs` (a model's distinct attentions,
/// at least one). Encoder layers only prefill: their decode is the same. Fails only for invalid settings: an
/// unknown name, or two settings that contradict each other. That no backend can serve is a valid result.
Result<Selection> consider(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                           const DeviceInfo& device, const BackendRegistry& registry);

/// As consider(), and an error where a phase has no backend: for a named backend vLLM's message with every
/// reason, for an automatic choice every backend with its reasons.
Result<Selection> select(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                         const DeviceInfo& device, const BackendRegistry& registry);
inline Result<Selection> select(const AttentionConfig& config, const AttentionSpec& spec,
                                const DeviceInfo& device, const BackendRegistry& registry) {
  return select(config, std::span(&spec, 1), device, registry);
}

/// A line for each phase (and kind, where kinds differ): the backend and why it was chosen.
std::string explain(const Selection& selection);
/// The full report: candidates in order with every reason and fix, the choice, and the source of each value.
std::string explain_in_full(const Selection& selection);

}  // namespace fovea
