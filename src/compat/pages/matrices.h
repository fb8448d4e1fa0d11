#pragma once
// The matrices of docs/attention_backends.md, from the backends' tables and the proof files.
#include <span>
#include <string>

#include "conformance/proof.h"
#include "fovea/attention_backend.h"

namespace fovea::docs {

using Proofs = std::span<const conformance::Proof>;

/// vLLM's table of standard attention: MHA, MQA and GQA with softmax.
std::string standard_table(const BackendRegistry& backends, Proofs proofs);
/// vLLM's table of MLA decode backends.
std::string mla_decode_table(const BackendRegistry& backends, Proofs proofs);
/// vLLM's table of MLA prefill backends.
std::string mla_prefill_table();
/// Every column for the backends that are built.
std::string union_table(const BackendRegistry& backends, Proofs proofs);
/// What each column means.
std::string column_table();

/// The backends that are built, and those that are known but not built.
std::string built_table(const BackendRegistry& backends);
std::string absent_table(const BackendRegistry& backends);

/// "`TRTLLM_MLA` (`FLASHINFER_MLA`), ...": decode-only backends, each with its prefill backend.
std::string partner_list(const BackendRegistry& backends);

/// A row for each backend of each proof file: where, when, how many cells, the worst errors.
std::string proof_table(const BackendRegistry& backends, Proofs proofs);
/// The kernels that the cases of each proof reached, by family and kind (prefill, decode, merge; on a CPU the
/// instruction set).
std::string kernel_table(Proofs proofs);

}  // namespace fovea::docs
