#pragma once
// A library in this program whose functions pass what crosses the ABI back to a backend of Fovea: what is
// lost on the way fails conformance.
#include <cstdio>
#include <memory>
#include <string_view>

#include "base/thread_pool.h"
#include "conformance/prove.h"
#include "device/stream.h"
#include "fovea/attention_backend.h"
#include "fovea/backend_abi.h"

namespace fovea::loopback {

/// Where plan and forward calls run: makes a Stream from the ABI's, alive while `body` runs.
using WithStream = Status (*)(const fovea_backend_stream& stream, FunctionRef<Status(Stream&)> body);
Status with_cpu_stream(const fovea_backend_stream& stream, FunctionRef<Status(Stream&)> body);

/// Sets the backend that all calls go to, and returns the library's struct, with the backend's capability as
/// its table. One at a time; `entry` must outlive it.
const fovea_backend* make(const BackendRegistry::Entry& entry, WithStream with_stream);

/// Runs the quick proof of the backend behind the ABI; expects no failed cell and more than 80 proven ones.
void expect_proof(std::string_view backend, WithStream with_stream, conformance::ProveOptions options);

}  // namespace fovea::loopback
