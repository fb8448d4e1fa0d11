#pragma once
// The operations of a decoder's forward pass, one table for each device. Attention is not among them: it has
// backends of its own (StepAttention).
//
// An operation queues work on its device's stream and returns. It allocates nothing, reads no tensor on the
// host and depends on no length that the host does not know, so that a step can be captured. All are
// row-wise: a row's bits depend neither on the other rows nor on how the work is divided. The residual
// stream, router logits, logits and rotations are fp32; all other activations have the type
// Ops::activations(), "act" below. T is the number of the step's rows, the last dimension is contiguous.
// Models call OpQueue, which checks shapes and types.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "device/stream.h"
#include "fovea/attention_step.h"
#include "fovea/result.h"
#include "kernels/cpu/activation.h"
#include "ops/linear_weight.h"
#include "ops/lora.h"
#include "ops/lora_slots.h"
#include "ops/moe_router.h"
#include "tensor/buffer.h"

namespace fovea {

/// RMSNorm, or LayerNorm where there is a bias. Empty = no norm at all.
struct NormWeight {
  Tensor weight, bias;  ///< f32 [dim]
  float eps = 0.0f;

  explicit operator bool() const { return !weight.empty(); }
};

/// Rotations of one step's rows. Pairs of a head's first 2 * pairs elements rotate: (t, t + pairs), or if
/// interleaved (2t, 2t + 1).
struct RopeTable {
  Tensor cos, sin;  ///< f32 [T, pairs]; empty = no rotation
  bool interleaved = false;

  explicit operator bool() const { return !cos.empty(); }
};

/// The input of norm_rope_append(), which turns a layer's qkv projection into the input of its attention.
struct AttentionInput {
  Tensor qkv;  ///< act [T, (heads + 2 kv_heads) * head_dim]: q, k and v heads; q and k change in place
  int heads = 0, kv_heads = 0, head_dim = 0;
  /// Weights [head_dim] normalise each head separately; [heads * head_dim] and [kv_heads * head_dim] all
  /// heads of a row together. Both or neither.
  NormWeight q_norm, k_norm;
  bool norm_after_rope = false;
  RopeTable rope;
  Tensor positions;  ///< i32 [T]
  /// q *= 1 + scale * log(1 + floor((position + 1) / floor)) after the above; scale 0 = off.
  double temperature_scale = 0, temperature_floor = 1;
  Tensor slots;  ///< i64 [T]; negative = the row's K and V are not written
  KvView kv;     ///< the layer's pages; num_pages is set
};

/// The input of latent_append(), for latent attention in the absorbed form.
struct LatentInput {
  Tensor q;         ///< act [T, heads, nope + rope]: the queries; the last `rope` of each head are read
  Tensor absorbed;  ///< act [T, heads, rank + rope]: the last `rope` of each head are written
  Tensor record;    ///< act [T, rank + rope]: latent and common key part, not normed or rotated; scratch
  NormWeight norm;  ///< [rank], of the latent
  RopeTable rope;   ///< of rope / 2 pairs
  Tensor slots;     ///< i64 [T]; negative = the row's record is not written
  KvView kv;        ///< the layer's pages of records; num_pages is set
};

/// The input of choose_keys(): an indexer's projections of a step's rows, which it changes in place.
struct IndexInput {
  Tensor q;         ///< act [T, heads, dim]: not rotated
  Tensor key;       ///< act [T, dim]: not normed or rotated
  Tensor weights;   ///< act [T, heads]
  NormWeight norm;  ///< LayerNorm [dim], of keys
  RopeTable rope;   ///< of the first 2 * pairs elements of queries and keys
  float scale = 1;  ///< of weights
  Tensor slots;     ///< i64 [T]; negative = the row's key is not written
  KvView keys;      ///< the layer's pages of index keys, K only; fp8_e4m3 has k_scales
  /// The sequences of the rows, in the memory of the device; null in a dry run.
  const BatchMeta* batch = nullptr;
  int64_t max_keys = 0;  ///< no row sees more
  Tensor scratch;        ///< u8 [index_scratch()]
};

/// f(gate) * up; with a limit, gpt-oss's instead: g = min(gate, limit), u = clamp(up, -limit, limit),
/// (u + 1) * g * sigmoid(1.702 g).
struct GatedActivation {
  Activation f = Activation::silu;
  float limit = 0.0f;  ///< 0 = none
};

/// down(activation(gate(x)) * up(x)); gate_up has the outputs of gate, then those of up.
struct GatedMlpWeights {
  LinearWeight gate_up, down;

  bool empty() const { return down.empty(); }
};

/// How the experts of a row are chosen and weighted.
struct RouteRule {
  MoeRouter router = MoeRouter::softmax_then_top;
  int num_experts = 0, experts_per_token = 0;
  bool renormalize = true;  ///< {softmax,sigmoid}_then_top: the chosen weights are divided by their sum
  /// {softmax,sigmoid}_then_top only: experts are chosen by score + bias, while their weights are the scores,
  /// times `scale`. With groups > 1 only experts of the best top_groups groups of consecutive experts are
  /// chosen; a group is worth the sum of its group_best best (1 or 2) choices. Of equal groups, as of equal
  /// experts, the lower id is chosen.
  Tensor bias;  ///< f32 [num_experts]; empty = none
  float scale = 1.0f;
  int groups = 1, top_groups = 1, group_best = 1;

  /// Whether the k largest scores are chosen and are the weights, except for renormalize.
  bool plain() const { return !bias && groups == 1 && scale == 1.0f; }
};

/// The experts of each row, in the order in which they were chosen, and their weights.
struct Routing {
  Tensor experts;  ///< i32 [T, experts_per_token]
  Tensor weights;  ///< f32 likewise
};

struct ExpertWeights {
  std::span<const GatedMlpWeights> experts;  ///< [num_experts] of equal shape
  GatedMlpWeights shared;                    ///< applied to every row with weight 1; empty = none
  GatedActivation activation;
  bool scales_input = false;  ///< a weight multiplies its expert's input instead of its output (Llama 4)
  int identity_experts = 0;   ///< ids from experts.size() on, whose output is their input
  const ExpertLora* lora = nullptr;  ///< adapters of the rows; null = none
};

/// Applied to the output of the LM head.
struct LogitRule {
  float scale = 1.0f;
  float softcap = 0.0f;  ///< cap * tanh(logit / cap) of the scaled logits; 0 = off
};

/// The draws of one step: the token drawn from row r of the logits becomes tokens[slot[r]]. All tensors [R].
struct SampleRows {
  Tensor slot;                       ///< i32; negative = nothing is drawn from the row
  Tensor temperature, top_p, min_p;  ///< f32, as DrawRule
  Tensor top_k;                      ///< i32 likewise
  Tensor seed, position;             ///< i64: the uniform number is philox_uniform(seed, position)
};

/// What reads a linear layer's weights, which may decide their order in memory.
enum class WeightUse : uint8_t {
  plain,
  gated,  ///< gated_linear() and experts(): the outputs are those of gate, then as many of up
};

class Ops {
 public:
  virtual ~Ops() = default;

  /// The device that holds all tensors of all operations.
  virtual Device& device() const = 0;
  /// The type of activations.
  virtual DType activations() const { return DType::f32; }
  /// Whether gated_linear() needs its scratch `wide`.
  virtual bool needs_wide() const { return true; }
  /// The reasons why the linear operations cannot read weights of this format; empty = they can.
  virtual std::vector<std::string> supports(const WeightFormat& format) const = 0;

  /// A linear layer's weights and the memory that holds them.
  struct Placed {
    LinearWeight weight;
    Buffer memory;
  };
  /// Copies weights from the host, packed for the CPU, into the format that this device's linear() prefers
  /// for them. Throws std::bad_alloc.
  virtual Result<Placed> place(const LinearWeight& host, WeightUse use, Stream& stream) = 0;

  /// The format of weights that pack_rows() writes: then a model's weights go to the device slice by slice,
  /// without a packed copy on the host. Absent where there is only place().
  virtual std::optional<WeightFormat> packed_format(WeightUse) const { return std::nullopt; }
  /// The format in which pack_rows() keeps quantised weights as they are; absent where these are decoded, to
  /// packed_format().
  virtual std::optional<WeightFormat> coded_format(WeightUse, const WeightCoding&) const {
    return std::nullopt;
  }
  /// Writes outputs [first, first + R) of a weight of packed_format() or coded_format(), n and k as in the
  /// model. `rows` on the device: [R, k] row-major, of the weight's stored type; of quantised weights u8
  /// [R, code_row_bytes()]. Rows of one weight are written by calls in any
  /// order, each once; the call that writes the last rows also fills what pads the outputs. Synchronize
  /// before other operations read the weight.
  virtual Status pack_rows(const LinearWeight&, int64_t, const Tensor&, Stream&) {
    FOVEA_CHECK(false);  // packed_format() is absent
  }

  /// y = x, both [T, dim], each f32 or act; rounded where y is narrower.
  virtual Status cast(const Tensor& x, const Tensor& y, Stream& stream) = 0;

  /// y f32 [T, k] = row ids[t] of table [n, k], times `scale`. Ids i32 [T] in [0, n).
  virtual Status embed(const LinearWeight& table, const Tensor& ids, float scale, const Tensor& y,
                       Stream& stream) = 0;

  /// cos and sin of positions[t] * frequencies[i], times `factor`, in fp64 rounded once to the table's fp32.
  /// Frequencies f64 [pairs], positions i32 [T].
  virtual Status rope_table(const Tensor& frequencies, double factor, const Tensor& positions,
                            const RopeTable& table, Stream& stream) = 0;

  /// y = norm(x), both [T, dim], each f32 or act. In place (y == x) is allowed.
  virtual Status norm(const NormWeight& weight, const Tensor& x, const Tensor& y, Stream& stream) = 0;

  /// x f32 += scale * y, both [T, dim], y f32 or act; the sum is rounded once.
  virtual Status add(const Tensor& x, const Tensor& y, float scale, Stream& stream) = 0;

  /// x += scale * y, then out act = norm(x): the two above, which a device may fuse.
  virtual Status add_norm(const Tensor& x, const Tensor& y, float scale, const NormWeight& weight,
                          const Tensor& out, Stream& stream) {
    FOVEA_RETURN_IF_ERROR(add(x, y, scale, stream));
    return norm(weight, x, out, stream);
  }

  /// y [T, n] = x act [T, k] W^T + bias, y act or f32. y must not overlap x.
  virtual Status linear(const LinearWeight& weight, const Tensor& x, const Tensor& y, Stream& stream) = 0;

  /// y act [T, H, n] = x act [T, H, k]: head h times matrix h, y[t][h] = x[t][h] W_h^T. All matrices [n, k]
  /// have one shape and no bias; the heads of a row may have any distance. y must not overlap x.
  virtual Status head_linear(std::span<const LinearWeight> weights, const Tensor& x, const Tensor& y,
                             Stream& stream);

  /// out act [T, n / 2] = activation of the outputs of gate_up. `wide` act [T, n] is scratch for them; empty
  /// without needs_wide().
  virtual Status gated_linear(const LinearWeight& gate_up, const GatedActivation& activation, const Tensor& x,
                              const Tensor& wide, const Tensor& out, Stream& stream) = 0;

  /// The second half of gated_linear(): out act [T, n / 2] = activation of wide act [T, n]. Only with
  /// supports_lora().
  virtual Status gated_activate(const GatedActivation&, const Tensor&, const Tensor&, Stream&) {
    FOVEA_CHECK(false);
  }
  /// Whether add_lora() can be called, or the functions with slots below.
  virtual bool supports_lora() const { return false; }
  /// y act [T, n] += the adapter's share of x act [T, k], for `rows` of both, as apply_lora(). `scratch` f32
  /// [lora_scratch()].
  virtual Status add_lora(const LoraWeights&, std::span<const int32_t>, const Tensor&, const Tensor&,
                          const Tensor&, Stream&) {
    FOVEA_CHECK(false);
  }

  // Adapters in slots, where the device is not the CPU.

  /// Partial sums of each rank of a layer with k inputs, and columns of gated_linear_lora()'s scratch.
  virtual int64_t lora_parts(int64_t) const { FOVEA_CHECK(false); }
  virtual int64_t lora_columns(const LinearWeight&) const { FOVEA_CHECK(false); }
  /// The operands of a layer with adapters.
  struct LoraInput {
    const LoraStep& step;
    const LoraPlace& place;
    const LoraTiles& tiles;  ///< of the step, those of the rows of x
    Tensor x;                ///< act [T, k]
    Tensor low;              ///< f32 scratch, at least [T * lora_parts() * modules * max_rank]
  };
  /// linear() with the adapters' shares added to y, which has been rounded; rows without one get the bits of
  /// linear().
  virtual Status linear_lora(const LinearWeight&, const LoraInput&, const Tensor&, Stream&) {
    FOVEA_CHECK(false);
  }
  /// gated_linear() with the adapters' shares added in fp32 before the activation: out act [T, n / 2]. Rows
  /// without one get the bits of gated_linear(). `wide` f32 [block_rows or fewer, lora_columns()]: scratch.
  virtual Status gated_linear_lora(const LinearWeight&, const GatedActivation&, const LoraInput&,
                                   const Tensor&, const Tensor&, Stream&) {
    FOVEA_CHECK(false);
  }

  /// x act [T, dim] = f(x): of an MLP without a gate.
  virtual Status activate(Activation f, const Tensor& x, Stream& stream) = 0;

  /// Applies the norms and the rotation to q and k and the temperature to q, then writes K and V to the
  /// cache.
  virtual Status norm_rope_append(const AttentionInput& input, Stream& stream) = 0;

  /// Norms the latent, rotates the common key part and writes both to the cache as one record; rotates the
  /// queries' part into `absorbed`.
  virtual Status latent_append(const LatentInput& input, Stream& stream) = 0;

  /// Reads records back: latent act [n, rank] of `slots` i64 [n], whose common key part goes to every head of
  /// `keys` act [n, heads, rope]. `kv`: as in LatentInput. Only where keys are expanded, on the CPU.
  virtual Status read_records(const KvView&, const Tensor&, const Tensor&, const Tensor&, Stream&) {
    FOVEA_CHECK(false);
  }

  /// y [R, dim] = rows ids[r] of x [T, dim], both f32 or both act; ids i32 [R]. y must not overlap x.
  virtual Status gather_rows(const Tensor& x, const Tensor& ids, const Tensor& y, Stream& stream) = 0;

  /// logits f32 [R, n] = rule(x act [R, k] W^T + bias).
  virtual Status logits(const LinearWeight& head, const Tensor& x, const LogitRule& rule,
                        const Tensor& logits, Stream& stream) = 0;

  /// tokens[rows.slot[r]] = the token drawn from the first `vocab` logits of row r, as TokenSampler::draw()
  /// specifies, or kNoToken where these are not valid (scan_logits()). Logits f32 [R, at least vocab]; tokens
  /// i32 [slots], each slot written once at most.
  virtual Status sample(const Tensor& logits, int64_t vocab, const SampleRows& rows, const Tensor& tokens,
                        Stream& stream) = 0;
  static constexpr int32_t kNoToken = -1;

  /// ids[t] = tokens[slot[t]] where slot[t] >= 0: tokens that sample() has drawn and the host may not know
  /// yet. All i32, ids and slot [T].
  virtual Status take_tokens(const Tensor& tokens, const Tensor& slot, const Tensor& ids, Stream& stream) = 0;

  /// Chooses each row's experts from the router's logits [T, num_experts], which it may overwrite. NaN
  /// ranks above every number; the lower expert id ranks first among equals. A rule divides by the sum of the
  /// chosen weights, plus 1e-20 with sigmoid_then_top.
  virtual Status route(const RouteRule& rule, const Tensor& logits, const Routing& routing,
                       Stream& stream) = 0;

  /// out act [T, hidden] = shared(x act) + each row's experts of x, times their weights, added in ascending
  /// order of expert id. `scratch` u8 [expert_scratch()]. The device groups rows by expert: the
  /// best way depends on how many rows each expert gets, which the host does not know.
  virtual Status experts(const ExpertWeights& weights, const Tensor& x, const Routing& routing,
                         const Tensor& scratch, const Tensor& out, Stream& stream) = 0;
  /// Bytes of experts()'s scratch for up to `max_rows` rows with `experts_per_token` experts each.
  virtual int64_t expert_scratch(const ExpertWeights& weights, int experts_per_token,
                                 int64_t max_rows) const = 0;

  /// Norms and rotates index keys and writes them to the cache, then lists the keys that each row sees:
  /// `chosen` i32 [T, topk] = positions of the topk keys of the row's sequence, up to its own, with the
  /// largest scores sum over heads of scale * weight * max(0, q . key); ascending, of equal scores the lower
  /// position, -1 where there are fewer. With keys in fp8_e4m3, queries and keys are rotated by a Hadamard
  /// matrix and rounded to e4m3 (kernels/cpu/indexer.h).
  virtual Status choose_keys(const IndexInput&, const Tensor&, Stream&) {
    return unsupported("the indexer of sparse attention has no operations on " +
                       std::string(device().name()));
  }
  /// Bytes of choose_keys()'s scratch for up to `max_rows` rows that see at most `max_keys` keys.
  virtual int64_t index_scratch(int64_t /*heads*/, int64_t /*dim*/, int64_t /*max_rows*/,
                                int64_t /*max_keys*/) const {
    return 0;
  }
};

}  // namespace fovea
