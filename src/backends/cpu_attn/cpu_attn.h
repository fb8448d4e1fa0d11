#pragma once
// CPU_ATTN, CPU_MLA and CPU_MLA_SPARSE: vectorised, threaded, paged attention for x86-64 with run-time
// dispatch.
#include <memory>

#include "fovea/attention_backend.h"

namespace fovea {

const BackendInfo& cpu_attn_info();
std::unique_ptr<AttentionBackend> make_cpu_attn();

/// The row of the MLA prefill registry; make_cpu_attn() makes it.
const BackendInfo& cpu_mla_prefill_info();

const BackendInfo& cpu_mla_info();
std::unique_ptr<AttentionBackend> make_cpu_mla();

const BackendInfo& cpu_mla_sparse_info();
std::unique_ptr<AttentionBackend> make_cpu_mla_sparse();

}  // namespace fovea
