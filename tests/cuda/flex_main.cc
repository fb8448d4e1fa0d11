// flex_attention on a GPU: `cuda_flex check` compares the examples with their definitions in fp64, `cuda_flex
// bench` measures kernels per visited block of 64 x 64. Skipped (77) without a GPU or without NVRTC.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "cuda_check.h"
#include "device/cuda/cuda_stream.h"
#include "device/stream.h"
#include "flex/examples_test_support.h"
#include "flex/gpu_attention.h"
#include "flex/nvrtc.h"
#include "flex/program.h"

namespace fovea::flex {
namespace {

void* on_device(const void* from, size_t bytes) {
  void* p = nullptr;
  CUDA_CHECK(cudaMalloc(&p, std::max<size_t>(bytes, 16)));
  cuda::copy_to_device(p, from, bytes);
  return p;
}

size_t bytes_of(const FlexBuffer& b) {
  return static_cast<size_t>(b.rows) * static_cast<size_t>(b.columns) *
         (b.element == FlexElement::boolean ? 1 : 4);
}

std::vector<FlexBuffer> on_device(const std::vector<FlexBuffer>& host) {
  std::vector<FlexBuffer> device = host;
  for (FlexBuffer& b : device)
    b.data = on_device(b.data, bytes_of(b));
  return device;
}

int check_examples(CudaStream& cuda, FlexProblem problem, const std::vector<std::pair<int, int>>& lengths,
                   const ExampleBuffers& x, const std::vector<FlexBuffer>& buffers, const char* name,
                   size_t from = 0, size_t stride = 1) {
  Stream stream(cuda);
  const bool wide = problem.spec.dtype == DType::f32;
  AttentionArgs args = problem.args();
  const size_t size = wide ? 4 : 2;
  args.q = on_device(args.q, problem.q.size() * size);
  args.kv.k = on_device(args.kv.k, problem.k.size() * size);
  args.kv.v = on_device(args.kv.v, problem.v.size() * size);
  const size_t rows = static_cast<size_t>(problem.q_offsets.back() * problem.spec.num_heads);
  const size_t outs = rows * static_cast<size_t>(problem.spec.v_head_dim);
  std::vector<float> poison(std::max(outs, rows), std::nanf(""));
  args.out = on_device(poison.data(), outs * size);
  args.lse = static_cast<float*>(on_device(poison.data(), rows * 4));
  int failed = 0;  // each example needs a compilation of a second or so
  double worst = 0;
  const std::vector<Example> all = examples(x, lengths);
  for (size_t i = from; i < all.size(); i += stride) {
    const Example& e = all[i];
    const auto program = FlexProgram::parse(e.mask, e.score, buffers);
    cuda::set_bytes(args.out, 0xff, outs * size);
    cuda::set_bytes(args.lse, 0xff, rows * 4);
    const Status status = program
                              ? flex_attention(*program, buffers, problem.spec, problem.meta, args, stream)
                              : Status(program.error());
    if (!status.ok()) {
      std::printf("%s, %s: %s\n", name, e.name.c_str(), status.error().message.c_str());
      ++failed;
      continue;
    }
    problem.o.resize(outs);
    problem.o16.resize(outs);
    problem.lse.resize(rows);
    cudaMemcpyAsync(wide ? static_cast<void*>(problem.o.data()) : problem.o16.data(), args.out, outs * size,
                    cudaMemcpyDeviceToHost, cuda.handle());
    cudaMemcpyAsync(problem.lse.data(), args.lse, rows * 4, cudaMemcpyDeviceToHost, cuda.handle());
    if (cudaStreamSynchronize(cuda.handle()) != cudaSuccess) {
      std::printf("%s, %s: %s\n", name, e.name.c_str(), cudaGetErrorString(cudaGetLastError()));
      return failed + 1;
    }
    for (size_t j = 0; j < outs && !wide; ++j) {
      const uint16_t bits = problem.o16[j];
      problem.o[j] = problem.spec.dtype == DType::f16 ? fp16_to_float(bits) : bf16_to_float(bits);
    }
    const double error = problem.error(e.mask_is, e.score_is);
    worst = std::max(worst, error);
    if (!(error <= 2)) {
      std::printf("%s, %s: error %g of what is allowed\n", name, e.name.c_str(), error);
      ++failed;
    }
  }
  std::printf("%s: worst error %.2f of the tolerance, %d failed\n", name, worst, failed);
  return failed;
}

int check(CudaStream& cuda) {
  const ExampleBuffers x;
  const std::vector<FlexBuffer> buffers = on_device(x.all());
  int failed = 0;
  using Lengths = std::vector<std::pair<int, int>>;
  const Lengths square = {{300, 300}, {17, 17}, {131, 131}}, cached = {{9, 270}, {40, 3}, {1, 500}};
  failed += check_examples(cuda, FlexProblem(square, 4, 2, 64, 64, 16, DType::bf16), square, x, buffers,
                           "bf16 D 64, pages");
  failed += check_examples(cuda, FlexProblem(cached, 8, 2, 128, 128, 1, DType::f16), cached, x, buffers,
                           "fp16 D 128, slots", 0, 3);
  failed += check_examples(cuda, FlexProblem(cached, 6, 1, 13, 70, 7, DType::bf16), cached, x, buffers,
                           "bf16 D 13 / 70, pages of 7", 1, 3);
  failed += check_examples(cuda, FlexProblem(square, 4, 2, 33, 20, 16, DType::f32), square, x, buffers,
                           "fp32 D 33 / 20", 2, 3);
  return failed;
}

struct Line {
  const char *name, *mask, *score;
};

int bench(CudaStream& cuda, int n) {
  constexpr int kHeads = 32, kKvHeads = 8, kDim = 128;
  AttentionSpec spec;
  spec.num_heads = kHeads;
  spec.num_kv_heads = kKvHeads;
  spec.head_dim = spec.v_head_dim = kDim;
  spec.scale = 0.08838834764f;
  spec.dtype = DType::bf16;
  spec.page_size = n;
  spec.mask.causal = false;
  std::mt19937_64 random(3);
  std::vector<uint16_t> values(static_cast<size_t>(n) * kHeads * kDim);
  std::normal_distribution<float> normal;
  for (uint16_t& v : values)
    v = float_to_bf16(normal(random));
  AttentionArgs args;
  args.q = on_device(values.data(), values.size() * 2);
  std::shuffle(values.begin(), values.end(), random);
  args.kv.k = on_device(values.data(), values.size() / 4 * 2);
  args.kv.v = on_device(values.data() + values.size() / 2, values.size() / 4 * 2);
  args.out = on_device(values.data(), values.size() * 2);
  args.q_row_stride = args.out_row_stride = kHeads * kDim;
  args.kv.dtype = KvCacheDType::bfloat16;
  args.kv.page_size = n;
  args.kv.k_slot_stride = args.kv.v_slot_stride = kKvHeads * kDim;
  args.kv.k_page_stride = args.kv.v_page_stride = int64_t{n} * kKvHeads * kDim;
  args.kv.k_head_stride = args.kv.v_head_stride = kDim;
  const std::vector<int32_t> offsets = {0, n}, lens = {n}, pages = {0};
  BatchMeta meta;
  meta.q_offsets = offsets;
  meta.kv_lens = lens;
  meta.page_table = pages;
  meta.page_table_stride = 1;
  // Documents of 500 to 4000 tokens.
  std::vector<int32_t> doc;
  for (int id = 0; static_cast<int>(doc.size()) < n; ++id)
    doc.insert(doc.end(), 500 + random() % 3500, id);
  doc.resize(static_cast<size_t>(n));
  std::vector<float> slopes(kHeads, 0.01f);
  const std::vector<FlexBuffer> buffers =
      on_device(std::vector<FlexBuffer>{integers("doc", doc), reals("slopes", slopes)});
  const Line lines[] = {{"no mask", "", ""},
                        {"causal", "k <= q", ""},
                        {"causal, document", "k <= q && doc[q] == doc[k]", ""},
                        {"document", "doc[q] == doc[k]", ""},
                        {"window 1024", "k <= q && q - k < 1024", ""},
                        {"causal, soft cap", "k <= q", "30.0 * tanh(s / 30.0)"},
                        {"causal, ALiBi", "k <= q", "s + slopes[h] * (k - q)"}};
  double causal = 0;
  std::printf("%d tokens, bf16, %d / %d heads of %d\n", n, kHeads, kKvHeads, kDim);
  for (const Line& line : lines) {
    const auto program = FlexProgram::parse(line.mask, line.score, buffers);
    std::vector<Buffer> bound;
    for (const FlexBuffer& b : buffers)
      bound.push_back({b.data, b.rows, b.columns, b.columns});
    Stream stream(cuda);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    auto step = GpuAttention::plan(program->program(), bound, spec, meta, args, stream);
    if (!step) {
      std::printf("%s: %s\n", line.name, step.error().message.c_str());
      return 1;
    }
    std::vector<float> times;
    for (int i = 0; i < 12; ++i) {
      cudaEventRecord(begin, cuda.handle());
      if (const Status status = (*step)->run(); !status.ok())
        std::printf("%s\n", status.error().message.c_str());
      cudaEventRecord(end, cuda.handle());
      cudaEventSynchronize(end);
      float ms = 0;
      cudaEventElapsedTime(&ms, begin, end);
      times.push_back(ms);
    }
    std::nth_element(times.begin(), times.begin() + 6, times.end());
    const double ms = times[6], visited = static_cast<double>((*step)->visited());
    const double rate = visited * 64 * 64 * 4 * kDim / ms / 1e9, block = ms * 1e6 / visited;
    if (std::strcmp(line.name, "causal") == 0) causal = block;
    std::printf(
        "%-18s %8.3f ms  %9.0f blocks  %6.1f TFLOP/s over visited blocks  %5.2f of causal per block\n",
        line.name, ms, visited, rate, causal > 0 ? causal / block : 0.0);
  }
  return 0;
}

int run(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no GPU\n");
    return 77;
  }
  if (const auto version = nvrtc_version(); !version) {
    std::printf("SKIPPED: %s\n", version.error().message.c_str());
    return 77;
  }
  auto stream = CudaStream::create(0);
  if (!stream) return 1;
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "bench") return bench(*stream, argc > 2 ? std::atoi(argv[2]) : 16384);
  return check(*stream) == 0 ? 0 : 1;
}

}  // namespace
}  // namespace fovea::flex

int main(int argc, char** argv) {
  return fovea::flex::run(argc, argv);
}
