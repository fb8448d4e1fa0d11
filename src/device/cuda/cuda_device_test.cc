#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_libraries.h"
#include "device/cuda/cuda_test_support.h"
#include "device/gpu.h"

namespace fovea {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

Status failing_call() {
  FOVEA_CUDA_TRY(cudaErrorInvalidValue);
  return {};
}

TEST(CudaError, NamesExpressionPlaceAndCode) {
  const Status status = failing_call();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::internal);
  EXPECT_THAT(status.error().message,
              MatchesRegex("cudaErrorInvalidValue failed at src/device/cuda/cuda_device_test.cc:[0-9]+: "
                           "cudaErrorInvalidValue \\(1\\): .*"));
}

TEST(CudaError, TellsWhatTheMachineLacks) {
  EXPECT_EQ(cuda_error(cudaErrorMemoryAllocation, "f()", "src/a.cc", 1).code, ErrorCode::out_of_memory);
  const Error old = cuda_error(cudaErrorInsufficientDriver, "f()", "src/a.cc", 1);
  EXPECT_EQ(old.code, ErrorCode::unsupported);
  EXPECT_THAT(old.message,
              HasSubstr("this build needs one for CUDA " + cuda_version_text(CUDART_VERSION / 1000 * 1000)));
  EXPECT_THAT(cuda_error(cudaErrorNoDevice, "f()", "src/a.cc", 1).message, HasSubstr("CUDA_VISIBLE_DEVICES"));
  EXPECT_EQ(cuda_version_text(12090), "12.9");
}

TEST(CudaDevice, IsOpenedOrRefusedWithWhatIsThere) {
  const auto count = count_cuda_devices();
  const auto device = open_cuda_device(0);
  if (!count.ok()) {
    ASSERT_FALSE(device.ok());
    EXPECT_EQ(device.error().code, ErrorCode::unsupported);
    EXPECT_THAT(device.error().message, AnyOf(HasSubstr("driver"), HasSubstr("device")));
    EXPECT_EQ(error_of(CudaStream::create(0)).substr(0, 20), device.error().message.substr(0, 20));
    EXPECT_FALSE(DevicePool::create(0).ok());
    EXPECT_TRUE(list_gpus().empty());
    return;
  }
  ASSERT_TRUE(device.ok()) << error_of(device);
  EXPECT_GE(device->compute_capability, kMinComputeCapability);
  EXPECT_GT(device->multiprocessors, 0);
  EXPECT_GE(device->shared_bytes_per_block, 48 << 10);
  for (const int wrong : {-1, *count}) {
    const auto none = open_cuda_device(wrong);
    ASSERT_FALSE(none.ok());
    EXPECT_THAT(none.error().message, HasSubstr("0 to " + std::to_string(*count - 1)));
  }
}

class CudaDeviceLayer : public CudaTest {};

TEST_F(CudaDeviceLayer, CopiesRoundTripThroughPinnedMemory) {
  constexpr size_t kCount = 1 << 20;
  auto pinned = PinnedBuffer::allocate(kCount * sizeof(int));
  ASSERT_TRUE(pinned.ok()) << error_of(pinned);
  std::iota(pinned->as<int>(), pinned->as<int>() + kCount, 7);
  const DeviceBuffer there = poisoned<int>(kCount), elsewhere = poisoned<int>(kCount);
  ASSERT_EQ(error_of(stream().copy(there.data(), pinned->data(), pinned->size())), "");
  ASSERT_EQ(error_of(stream().copy(elsewhere.data(), there.data(), pinned->size())), "");
  const std::vector<int> back = download<int>(elsewhere);
  EXPECT_EQ(std::memcmp(back.data(), pinned->data(), pinned->size()), 0);
}

TEST_F(CudaDeviceLayer, EventsOrderStreamsAndMeasure) {
  auto other = CudaStream::create(0);
  ASSERT_TRUE(other.ok()) << error_of(other);
  auto begin = CudaEvent::create(0, CudaEvent::Timing::on), end = CudaEvent::create(0, CudaEvent::Timing::on);
  ASSERT_TRUE(begin.ok() && end.ok());
  constexpr size_t kBytes = 64 << 20;
  const DeviceBuffer a = poisoned<std::byte>(kBytes);
  std::vector<unsigned char> host(kBytes);
  ASSERT_EQ(error_of(begin->record(stream())), "");
  ASSERT_EQ(error_of(stream().fill(a.data(), 5, kBytes)), "");
  ASSERT_EQ(error_of(end->record(stream())), "");
  ASSERT_EQ(error_of(other->wait(*end)), "");
  ASSERT_EQ(error_of(other->copy(host.data(), a.data(), kBytes)), "");
  ASSERT_EQ(error_of(other->synchronize()), "");
  EXPECT_EQ(std::count(host.begin(), host.end(), 5), static_cast<ptrdiff_t>(kBytes));
  const auto done = end->done();
  EXPECT_TRUE(done.ok() && *done);
  const auto milliseconds = end->milliseconds_since(*begin);
  ASSERT_TRUE(milliseconds.ok()) << error_of(milliseconds);
  EXPECT_GT(*milliseconds, 0.0f);
}

TEST_F(CudaDeviceLayer, ThePoolKeepsWhatIsFreedAndTrims) {
  constexpr size_t kBytes = 32 << 20;
  {
    const DeviceBuffer buffer = poisoned<std::byte>(kBytes);
    EXPECT_GE(*pool().used(), kBytes);
  }
  ASSERT_EQ(error_of(stream().synchronize()), "");
  EXPECT_EQ(*pool().used(), 0u);
  EXPECT_GE(*pool().reserved(), kBytes);
  ASSERT_EQ(error_of(pool().trim(0)), "");
  EXPECT_LT(*pool().reserved(), kBytes);
  auto empty = pool().allocate(0, stream());
  EXPECT_TRUE(empty.ok() && empty->data() == nullptr);
}

TEST_F(CudaDeviceLayer, RefusesMoreMemoryThanThereIs) {
  const size_t bytes = static_cast<size_t>(device_.memory_bytes) * 4;
  const auto buffer = pool().allocate(bytes, stream());
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, ErrorCode::out_of_memory);
  EXPECT_THAT(buffer.error().message, HasSubstr(std::to_string(bytes) + " bytes requested on CUDA device 0"));
  EXPECT_TRUE(pool().allocate(1024, stream()).ok());  // the error does not stick
  const auto elsewhere = pool().allocate(16, CudaStream::borrow(nullptr, 7));
  EXPECT_THAT(error_of(elsewhere), HasSubstr("device 7"));
}

TEST_F(CudaDeviceLayer, GraphsReplayWithMemoryAsItIsThen) {
  const DeviceBuffer from = upload<int>({1, 2, 3}), to = poisoned<int>(3);
  auto graph = CudaGraph::capture(stream(),
                                  [&](CudaStream& s) { return s.copy(to.data(), from.data(), from.size()); });
  ASSERT_TRUE(graph.ok()) << error_of(graph);
  EXPECT_EQ(graph->nodes(), 1u);
  EXPECT_EQ(download<int>(to), (std::vector<int>{-1, -1, -1}));  // captured, not run
  const std::vector<int> later = {4, 5, 6};
  ASSERT_EQ(error_of(stream().copy(from.data(), later.data(), from.size())), "");
  ASSERT_EQ(error_of(graph->replay(stream())), "");
  EXPECT_EQ(download<int>(to), later);
}

TEST_F(CudaDeviceLayer, AFailedCaptureLeavesTheStreamUsable) {
  const auto refused = CudaGraph::capture(stream(), [](CudaStream&) -> Status { return invalid("no"); });
  EXPECT_EQ(error_of(refused), "no");
  const auto illegal = CudaGraph::capture(stream(), [](CudaStream& s) { return s.synchronize(); });
  EXPECT_THAT(error_of(illegal), HasSubstr("cudaStreamSynchronize"));
  EXPECT_EQ(download<int>(upload<int>({9})), (std::vector<int>{9}));
}

// Each library either opens and reports its version, or the error tells what to install.
template <class Library>
void expect_library(int64_t least) {
  const auto library = Library::open();
  if (!library.ok()) {
    EXPECT_EQ(library.error().code, ErrorCode::not_found);
    EXPECT_THAT(library.error().message, HasSubstr("LD_LIBRARY_PATH"));
    return;
  }
  const auto version = library->version();
  if constexpr (std::is_same_v<std::remove_cvref_t<decltype(version)>, size_t>) {
    EXPECT_GE(static_cast<int64_t>(version), least);
  } else {
    ASSERT_TRUE(version.ok()) << error_of(version);
    EXPECT_GE(*version, least);
  }
}

TEST(CudaLibraries, OpenOrSayWhatToInstall) {
  expect_library<CublasLt>(120000);
  expect_library<Nvrtc>(12000);
  expect_library<Cudnn>(90000);
  expect_library<Nccl>(20000);
}

}  // namespace
}  // namespace fovea
