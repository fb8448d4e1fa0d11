// loopback_test.cc on a GPU: streams, graphs and device memory cross the ABI, too.
#include <gtest/gtest.h>

#include "conformance/prove.h"
#include "device/cuda/cuda_stream.h"
#include "loopback.h"
#include "plugin/backend.h"

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
  if (!gpu) GTEST_SKIP() << gpu.error().message;
  const auto* entry = builtin_backends().find(GetParam());
  ASSERT_NE(entry, nullptr);
  const auto library = plugin::Library::create(loopback::make(*entry, with_cuda_stream), "loopback");
  ASSERT_TRUE(library.ok()) << library.error().message;
  EXPECT_EQ((*library)->info().capability, entry->info->capability);
  conformance::ProveOptions options;
  options.quick = true;
  options.device = gpu->machine->device();
  options.machine = gpu->machine.get();
  const auto report =
      conformance::prove((*library)->info(), [&] { return plugin::make_backend(**library); }, options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const auto& failure : report->failures)
    ADD_FAILURE() << failure.what;
  EXPECT_EQ(report->count(conformance::CellStatus::failed), 0);
  EXPECT_GT(report->count(conformance::CellStatus::proven), 80);
}

INSTANTIATE_TEST_SUITE_P(Gpu, LoopbackCuda, testing::Values("fa2", "TRITON_ATTN"));

}  // namespace
}  // namespace fovea
