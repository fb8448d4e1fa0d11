#pragma once
// The object behind fovea_attention*: a layer's two backends, and the planned step.
#include <memory>
#include <string>

#include "c_api/cache_view.h"
#include "c_api/device.h"
#include "c_api/step.h"
#include "fovea/attention_backend.h"

namespace fovea::c_api {

class Attention {
 public:
  static Result<std::unique_ptr<Attention>> create(const fovea_attention_spec* spec,
                                                   const fovea_limits* limits, const char* backend,
                                                   fovea_device device, uint32_t flags);

  size_t workspace_bytes() const { return workspace_bytes_; }
  const std::string& backend_name(Phase phase) const { return names_[static_cast<size_t>(phase)]; }
  const std::string& explanation() const { return explanation_; }

  Status plan(const fovea_step* step, const fovea_tensor* workspace, void* stream);
  Status check(int64_t num_pages, void* stream);
  Status prepare_capture(const fovea_step* step, const fovea_tensor* workspace, void* stream);
  Status update_capture(const fovea_step* step, void* stream);
  Status run(const fovea_layer* layer, void* stream);

 private:
  Attention(const AttentionSpec& spec, const AttentionLimits& limits, fovea_device device, uint32_t flags)
      : spec_(spec),
        limits_(limits),
        arguments_(device),
        flags_(flags),
        indices_(device, limits, spec.page_size) {}

  Status choose_backends(const char* name);
  AttentionBackend& backend(Phase phase) { return phase == Phase::decode ? *decode_ : *prefill_; }
  Status planned() const;
  Result<Workspace> workspace(const fovea_tensor* given, size_t needed);
  void keep(const BatchMeta& meta, bool for_capture, std::unique_ptr<Plan> plan);
  Result<Tensor> take_rows(const fovea_tensor* given, std::string_view name, const Dim& dim) const;
  Result<AttentionArgs> read_layer(const fovea_layer* layer, int64_t& num_pages) const;
  Status check_chosen(const AttentionArgs& args) const;
  Status check_pages(int64_t num_pages, Stream& stream);

  AttentionSpec spec_;
  AttentionLimits limits_;
  Arguments arguments_;
  uint32_t flags_;
  IndexBuffers indices_;
  size_t workspace_bytes_ = 0;
  Memory own_workspace_;
  size_t own_bytes_ = 0;
  std::string names_[2], explanation_;
  std::shared_ptr<AttentionBackend> prefill_, decode_;

  // The planned step, which references the memory above; no plan = none yet, or the last one failed.
  BatchMeta meta_;
  bool for_capture_ = false;
  bool ragged_ = false;
  PageRange pages_;             // CPU only
  int64_t pages_checked_ = -1;  // GPU only: smallest number of pages that passed the check
  std::unique_ptr<Plan> plan_;
};

}  // namespace fovea::c_api
