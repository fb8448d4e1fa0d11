// loopback_test.cc on a GPU: streams, graphs and device memory cross the ABI, too.
#include <gtest/gtest.h>

#include "device/cuda/cuda_stream.h"
#include "loopback.h"

namespace fovea {
namespace {

Status with_cuda_stream(const fovea_backend_stream& stream, FunctionRef<Status(Stream&)> body) {
  CudaStream cuda =
      CudaStream::borrow(static_cast<cudaStream_t>(stream.cuda_stream), static_cast<int>(stream.cuda_device));
  Stream s(cuda);
  return body(s);
}

class LoopbackCuda : public testing::TestWithParam<const char*> {};

TEST_P(LoopbackCuda, ProvesWhatTheBackendProves) {
  auto gpu = conformance::open_gpu();
  if (!gpu) GTEST_SKIP() << "SKIPPED: " << gpu.error().message;
  conformance::ProveOptions options;
  options.device = gpu->machine->device();
  options.machine = gpu->machine.get();
  loopback::expect_proof(GetParam(), with_cuda_stream, options);
}

INSTANTIATE_TEST_SUITE_P(Gpu, LoopbackCuda, testing::Values("fa2", "TRITON_ATTN"));

}  // namespace
}  // namespace fovea
