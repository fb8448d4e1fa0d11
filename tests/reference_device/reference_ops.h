#pragma once
// The operations as plain loops on a GuardedDevice, written from the definitions in ops/ops.h alone.
#include <cstring>

#include "ops/ops.h"
#include "tests/reference_device/guarded_device.h"

namespace fovea::test {

/// How place() stores matrices; the layout is rows.
enum class Stored {
  as_given,      ///< in the checkpoint's type
  int8,          ///< with a scale and a zero point for 1 x 32 weights
  int8_decoded,  ///< the fp32 values that `int8` decodes to
};

class ReferenceOps : public Ops {
 public:
  explicit ReferenceOps(GuardedDevice& device, Stored stored = Stored::as_given,
                        DType activations = DType::f32)
      : device_(device), stored_(stored), activations_(activations) {}

  Device& device() const override { return device_; }
  DType activations() const override { return activations_; }
  bool needs_wide() const override { return false; }
  std::vector<std::string> supports(const WeightFormat& format) const override;
  Result<Placed> place(const LinearWeight& host, WeightUse use, Stream& stream) override;

  Status cast(const Tensor& x, const Tensor& y, Stream&) override;
  Status embed(const LinearWeight& table, const Tensor& ids, float scale, const Tensor& y, Stream&) override;
  Status rope_table(const Tensor& frequencies, double factor, const Tensor& positions, const RopeTable& table,
                    Stream&) override;
  Status norm(const NormWeight& weight, const Tensor& x, const Tensor& y, Stream&) override;
  Status add(const Tensor& x, const Tensor& y, float scale, Stream&) override;
  Status linear(const LinearWeight& weight, const Tensor& x, const Tensor& y, Stream&) override;
  Status gated_linear(const LinearWeight& gate_up, const GatedActivation& activation, const Tensor& x,
                      const Tensor& wide, const Tensor& out, Stream&) override;
  bool supports_lora() const override { return true; }
  int64_t lora_parts(int64_t k) const override { return (k + 6) / 7; }
  int64_t lora_columns(const LinearWeight& gate_up) const override { return gate_up.n; }
  Status linear_lora(const LinearWeight& weight, const LoraInput& input, const Tensor& y,
                     Stream& stream) override;
  Status gated_linear_lora(const LinearWeight& gate_up, const GatedActivation& activation,
                           const LoraInput& input, const Tensor& wide, const Tensor& out, Stream&) override;
  Status activate(Activation f, const Tensor& x, Stream&) override;
  Status latent_append(const LatentInput& input, Stream& stream) override;
  Status norm_rope_append(const AttentionInput& input, Stream&) override;
  Status gather_rows(const Tensor& x, const Tensor& ids, const Tensor& y, Stream&) override;
  Status logits(const LinearWeight& head, const Tensor& x, const LogitRule& rule, const Tensor& logits,
                Stream&) override;
  Status sample(const Tensor& logits, int64_t vocab, const SampleRows& rows, const Tensor& tokens,
                Stream&) override;
  Status take_tokens(const Tensor& tokens, const Tensor& slot, const Tensor& ids, Stream&) override;
  Status route(const RouteRule& rule, const Tensor& logits, const Routing& routing, Stream&) override;
  Status experts(const ExpertWeights& weights, const Tensor& x, const Routing& routing, const Tensor& scratch,
                 const Tensor& out, Stream&) override;
  int64_t expert_scratch(const ExpertWeights& weights, int experts_per_token,
                         int64_t max_rows) const override;

  /// The addresses that linear() has written, in order; tests clear it.
  std::vector<const void*> written;

 private:
  GuardedDevice& device_;
  Stored stored_;
  DType activations_;
};

/// Takes weights slice by slice, as a GPU does.
struct PackingOps : ReferenceOps {
  using ReferenceOps::ReferenceOps;
  std::optional<WeightFormat> packed_format(WeightUse) const override {
    return WeightFormat{element_of(activations())};
  }
  Status pack_rows(const LinearWeight& weight, int64_t first, const Tensor& rows, Stream&) override {
    const auto row_bytes = static_cast<size_t>(weight.k) * size_of(weight.format.stored);
    auto* to = static_cast<std::byte*>(weight.data.data) + static_cast<size_t>(first) * row_bytes;
    static_cast<GuardedDevice&>(device()).queue(
        [=] { std::memcpy(to, rows.data, static_cast<size_t>(rows.size(0)) * row_bytes); });
    return {};
  }
};

}  // namespace fovea::test
