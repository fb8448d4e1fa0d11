#pragma once
// TORCH_NATIVE: plain loops, one visible key at a time in ascending order. The reference of every test (with
// AttentionSpec::fp64_accumulate) and the fallback for what the fast backends don't serve.
#include <memory>

#include "fovea/attention_backend.h"

namespace fovea {

const BackendInfo& torch_native_info();
std::unique_ptr<AttentionBackend> make_torch_native();

/// The same for MLA's absorbed form.
const BackendInfo& torch_native_mla_info();
std::unique_ptr<AttentionBackend> make_torch_native_mla();

/// And with lists of keys.
const BackendInfo& torch_native_mla_sparse_info();
std::unique_ptr<AttentionBackend> make_torch_native_mla_sparse();

}  // namespace fovea
