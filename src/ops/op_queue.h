#pragma once
// Queues the operations of one step on a stream, so that a forward pass reads as a list of them: shapes and
// devices are checked here, and the first error is kept.
#include "fovea/attention.h"
#include "ops/ops.h"
#include "profile/scopes.h"

namespace fovea {

class OpQueue {
 public:
  OpQueue(Ops& ops, Stream& stream) : OpQueue(ops) { stream_ = &stream; }
  /// A dry run: shapes are checked and nothing runs.
  static OpQueue dry_run(Ops& ops) { return OpQueue(ops); }

  bool dry() const { return stream_ == nullptr; }
  /// The type of activations, and whether gated_linear() needs its scratch: as of Ops.
  ElementType activations() const { return act_; }
  DType activation_dtype() const { return ops_.activations(); }
  bool needs_wide() const { return ops_.needs_wide(); }
  /// The first error; nothing after it has been queued.
  const Status& status() const { return status_; }

  /// The operations from now on belong to this layer of the model, for profiles; -1 = to none.
  void at_layer(int layer) {
    layer_ = layer;
    if (!dry()) layer_range_.set(layer);
  }

  /// As the functions of Ops of the same names. `name`, a literal: what profiles call the operation. A tensor
  /// whose shape, type or device differs from what Ops specifies is an internal error.
  void cast(const Tensor& x, const Tensor& y);
  void embed(const LinearWeight& table, const Tensor& ids, float scale, const Tensor& y);
  void rope_table(const Tensor& frequencies, double factor, const Tensor& positions, const RopeTable& table);
  void norm(const NormWeight& weight, const Tensor& x, const Tensor& y);
  void add(const Tensor& x, const Tensor& y, float scale);
  void add_norm(const Tensor& x, const Tensor& y, float scale, const NormWeight& weight, const Tensor& out);
  void linear(const LinearWeight& weight, const Tensor& x, const Tensor& y, const char* name = "linear");
  void gated_linear(const LinearWeight& gate_up, const GatedActivation& activation, const Tensor& x,
                    const Tensor& wide, const Tensor& out, const char* name = "gated_linear");
  void activate(Activation f, const Tensor& x);
  void gated_activate(const GatedActivation& activation, const Tensor& wide, const Tensor& out);
  void add_lora(const LoraWeights& weights, std::span<const int32_t> rows, const Tensor& x, const Tensor& y,
                const Tensor& scratch);
  /// The forms for slots. With supports_lora() on the CPU, lora_in_slots() is false.
  bool lora_in_slots() const { return ops_.device().kind() != DeviceKind::cpu; }
  int64_t lora_parts(int64_t k) const { return ops_.lora_parts(k); }
  int64_t lora_columns(const LinearWeight& gate_up) const { return ops_.lora_columns(gate_up); }
  void linear_lora(const LinearWeight& weight, const Ops::LoraInput& input, const Tensor& y,
                   const char* name = "linear_lora");
  void gated_linear_lora(const LinearWeight& gate_up, const GatedActivation& activation,
                         const Ops::LoraInput& input, const Tensor& wide, const Tensor& out,
                         const char* name = "gated_linear_lora");
  void head_linear(std::span<const LinearWeight> weights, const Tensor& x, const Tensor& y,
                   const char* name = "head_linear");
  void norm_rope_append(const AttentionInput& input);
  void latent_append(const LatentInput& input);
  void read_records(const KvView& kv, const Tensor& slots, const Tensor& latent, const Tensor& keys);
  void choose_keys(const IndexInput& input, const Tensor& chosen);
  void gather_rows(const Tensor& x, const Tensor& ids, const Tensor& y);
  void logits(const LinearWeight& head, const Tensor& x, const LogitRule& rule, const Tensor& logits);
  void sample(const Tensor& logits, int64_t vocab, const SampleRows& rows, const Tensor& tokens);
  void take_tokens(const Tensor& tokens, const Tensor& slot, const Tensor& ids);
  void route(const RouteRule& rule, const Tensor& logits, const Routing& routing);
  void experts(const ExpertWeights& weights, const Tensor& x, const Routing& routing, const Tensor& scratch,
               const Tensor& out);
  int64_t index_scratch(int64_t heads, int64_t dim, int64_t max_rows, int64_t max_keys) const {
    return ops_.index_scratch(heads, dim, max_rows, max_keys);
  }
  int64_t expert_scratch(const ExpertWeights& weights, int experts_per_token, int64_t max_rows) const {
    return ops_.expert_scratch(weights, experts_per_token, max_rows);
  }

  /// Calls f(stream), which returns Status, in order with the operations: for attention, which is not one.
  template <class F>
  void call(const F& f) {
    if (stream_ && status_) status_ = f(*stream_);
  }

 private:
  explicit OpQueue(Ops& ops) : ops_(ops), act_(element_of(ops.activations())) {}

  template <class W, class F>
  void run(const char* name, const W& work, const F& f) {
    if (!stream_ || !status_) return;
    const profile::Op watched(*stream_, name, layer_, work);
    status_ = f(*stream_);
  }

  /// Whether `t` is `type` [rows, width] on the device of the operations, its last dimension contiguous.
  bool rows_of(const Tensor& t, ElementType type, int64_t rows, int64_t width) const;
  bool act_rows(const Tensor& t, int64_t rows, int64_t width) const { return rows_of(t, act_, rows, width); }
  /// Whether `t` is act [rows, heads, dim] there, its last dimension contiguous.
  bool act_heads(const Tensor& t, int64_t rows, int64_t heads, int64_t dim) const;
  bool f32_rows(const Tensor& t, int64_t rows, int64_t width) const {
    return rows_of(t, ElementType::f32, rows, width);
  }
  bool act_or_f32_rows(const Tensor& t, int64_t rows, int64_t width) const {
    return act_rows(t, rows, width) || f32_rows(t, rows, width);
  }
  bool is(const Tensor& t, ElementType type, std::initializer_list<int64_t> shape) const;
  /// Whether x, of the type of activations, is an input of the layer, and y, of `type`, its output.
  bool fits(const LinearWeight& weight, const Tensor& x, const Tensor& y, ElementType type) const;
  bool fits(const NormWeight& weight, int64_t dim) const;
  bool fits(const Ops::LoraInput& input) const;

  Ops& ops_;
  ElementType act_;
  Stream* stream_ = nullptr;
  Status status_;
  int layer_ = -1;
  profile::LayerRange layer_range_;
};

}  // namespace fovea
