#pragma once
// What an attention layer needs (AttentionSpec), what a backend offers (Capability), and how one is chosen
// for each phase or refused with reasons (select, explain). Units: tokens, elements, bytes where named so.
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/dtype.h"
#include "fovea/result.h"

namespace fovea {

enum class Phase : uint8_t { prefill, decode };
enum class AttentionType : uint8_t { decoder, encoder, encoder_only, encoder_decoder };
enum class DeviceKind : uint8_t { cpu, cuda, rocm, ascend };

std::string_view to_string(Phase phase);
std::string_view to_string(AttentionType type);
std::string_view to_string(DeviceKind kind);

/// Which keys j a query at absolute position p = i + n_k - n_q sees; every set test must hold, except that a
/// span adds keys after the others (bidirectional multimodal spans) and a packed mask stands alone with them.
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

/// What one attention layer needs; fixed for the model's life.
struct AttentionSpec {
  int num_heads = 0;         ///< query heads Hq, a multiple of num_kv_heads
  int num_kv_heads = 0;      ///< Hkv; query head h reads kv head h / (Hq / Hkv)
  int head_dim = 0;          ///< D of Q and K
  int v_head_dim = 0;        ///< Dv of V and O
  float scale = 0.0f;        ///< multiplies q.k; required (no default, models differ)
  float softcap = 0.0f;      ///< cap * tanh(s / cap) when > 0
  DType dtype = DType::f32;  ///< Q and O
  KvCacheDType kv_dtype = KvCacheDType::auto_;
  bool kv_x_packed = false;  ///< the cache has KvForm::x_packed
  AttentionType type = AttentionType::decoder;
  MaskSpec mask;
  int page_size = 0;      ///< tokens a page; 0 = not given, the backend's preferred one is taken
  bool has_sink = false;  ///< learned per-head sink logits (AttentionArgs::sinks)
  bool lse_includes_sink = false;
  bool has_alibi = false;  ///< AttentionArgs::alibi_slopes
  bool use_mla = false;
  bool use_sparse = false;
  bool fp64_accumulate = false;  ///< TORCH_NATIVE only: the oracle of the tests

  bool operator==(const AttentionSpec&) const = default;
};

/// A set of small enumerators, usable in constexpr tables.
template <class E>
struct EnumSet {
  uint32_t bits = 0;
  constexpr EnumSet() = default;
  constexpr EnumSet(std::initializer_list<E> items) {
    for (E e : items)
      bits |= 1u << static_cast<unsigned>(e);
  }
  constexpr bool has(E e) const { return (bits >> static_cast<unsigned>(e)) & 1u; }
};

/// Integers first, first + step, ..., last; or nothing when last < first.
struct IntRange {
  int first = 1, last = 0, step = 1;
  constexpr bool has(int v) const { return v >= first && v <= last && (v - first) % step == 0; }
  constexpr bool empty() const { return last < first; }
};

enum class Feature : uint8_t {
  window,  // sliding window, either side
  chunk,   // chunked-local
  softcap,
  sink,         // learned sink logits
  sink_tokens,  // StreamingLLM
  alibi,
  spans,  // bidirectional multimodal spans in a causal sequence
  packed_mask,
  tree_mask,
  non_causal,  // for a decoder
  mla,
  sparse,
  lse,          // returns LSE when asked
  kv_x_packed,  // reads the x-packed KV layout
  fp64_accumulate,
};

/// What a sequence's bits do not depend on; each level claimed is proven by a bitwise test.
enum class Invariance : uint8_t { run, batch, page_size, chunking, threads };

enum class GraphSupport : uint8_t { never, uniform_single_token_decode, uniform_batch, always };

/// What a backend can do. The only statement of it: validation, help, docs and tests read this.
struct Capability {
  EnumSet<DType> dtypes;
  EnumSet<KvCacheDType> kv_dtypes;
  IntRange page_sizes;
  int preferred_page_size = 16;
  IntRange head_dims;    ///< of Q and K
  IntRange v_head_dims;  ///< of V
  EnumSet<AttentionType> types;
  EnumSet<Feature> features;
  EnumSet<Phase> phases;
  EnumSet<Invariance> invariance;
  GraphSupport graph = GraphSupport::never;
  DeviceKind device = DeviceKind::cpu;
  int min_compute_capability = 0;  ///< 10 * major + minor; 0 on a CPU
  int max_compute_capability = 0;  ///< 0 = no upper bound
};

/// The device that kernels would run on.
struct DeviceInfo {
  DeviceKind kind = DeviceKind::cpu;
  int compute_capability = 0;
  std::string name;
};

/// One refusal of a backend: vLLM's words, and the nearest change that removes it.
struct Reason {
  std::string text;
  std::string fix;
};

/// Name, aliases and capability of one backend; `absent` says why this build has no kernel for it.
struct BackendInfo {
  std::string_view name;                  ///< vLLM's upper-case name
  std::vector<std::string_view> aliases;  ///< SGLang's and Mini-SGLang's lower-case names
  std::string_view version;
  Capability capability;
  std::string_view absent;  ///< empty = built; else the tail of "not in this build: ..."
  /// Refusals that no single column of the table can express (two features that don't go together).
  std::optional<Reason> (*supports_combination)(const AttentionSpec&, const DeviceInfo&) = nullptr;
};

/// What the user set; empty strings and nullopt mean "not set".
struct AttentionConfig {
  std::string backend = {};  ///< a name, "auto", or "prefill,decode"
  /// Wins over a single name in `backend` for its phase; contradicting a pair there is an error.
  std::string prefill_backend = {};
  std::string decode_backend = {};
  std::optional<int> page_size = {};
};

struct RejectedBackend {
  std::string_view name;
  std::vector<Reason> reasons;
};

struct PhaseSelection {
  const BackendInfo* backend = nullptr;
  std::string why;  ///< where the choice came from, one line
  std::vector<RejectedBackend> rejected;
};

struct Selection {
  PhaseSelection prefill;
  PhaseSelection decode;
  int page_size = 0;
  std::string page_size_why;
};

class BackendRegistry;

/// Every reason why `backend` can't serve `spec` on `device` in `phase`, in vLLM's order; empty = it can.
std::vector<Reason> validate(const BackendInfo& backend, const AttentionSpec& spec, const DeviceInfo& device,
                             Phase phase);

/// Chooses a backend for each phase that serves every spec of `specs` (a model's distinct attentions; at
/// least one). A named backend that can't serve is an error with every reason.
Result<Selection> select(const AttentionConfig& config, std::span<const AttentionSpec> specs,
                         const DeviceInfo& device, const BackendRegistry& registry);
inline Result<Selection> select(const AttentionConfig& config, const AttentionSpec& spec,
                                const DeviceInfo& device, const BackendRegistry& registry) {
  return select(config, std::span(&spec, 1), device, registry);
}

/// One line for each phase: the backend and why it was chosen.
std::string explain(const Selection& selection);

}  // namespace fovea
