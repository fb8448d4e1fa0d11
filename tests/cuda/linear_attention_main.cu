// Device program of linear attention: `cuda_linear_attention check` is the test, `cuda_linear_attention bench
// [FILE]` prints times and writes them as JSON.
#include "linear_attention_bench.cuh"
#include "linear_attention_check.cuh"

using namespace fovea;
using namespace fovea::cuda;

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no GPU\n");
    return 77;
  }
  auto stream = CudaStream::create(0);
  if (!stream) {
    std::printf("%s\n", stream.error().message.c_str());
    return 1;
  }
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "bench") {
    bench_linear_attention(*stream, argc > 2 ? argv[2] : nullptr, argc > 3 ? argv[3] : "");
    return 0;
  }
  check_recurrences(*stream);
  check_all_hstu(*stream);
  std::printf("%s: %d of %d checks failed\n", g_failures == 0 ? "passed" : "FAILED", g_failures, g_checks);
  return g_failures == 0 ? 0 : 1;
}
