#pragma once
// A library in this program whose functions give what crosses the ABI back to a backend of Fovea: what is
// lost on the way shows in conformance.
#include <cstdio>
#include <memory>
#include <string_view>

#include "conformance/prove.h"
#include "device/stream.h"
#include "fovea/attention_backend.h"
#include "fovea/backend_abi.h"

namespace fovea::loopback {

/// Where the plan and the forwards run: a Stream from the ABI's, kept while `body` runs.
using WithStream = Status (*)(const fovea_backend_stream& stream, FunctionRef<Status(Stream&)> body);
Status with_cpu_stream(const fovea_backend_stream& stream, FunctionRef<Status(Stream&)> body);

/// Sets the backend that all calls go to, and gives the library's struct, with `capability` as its table.
/// One at a time; `entry` must outlive it.
const fovea_backend* make(const BackendRegistry::Entry& entry, WithStream with_stream);

/// Expects that the backend behind the ABI proves, quickly, what it proves without it.
void expect_proof(std::string_view backend, WithStream with_stream, conformance::ProveOptions options);

}  // namespace fovea::loopback
