// Device program of the linear layers: `check` (or `quick`: fewer shapes; `sanitize`: small ones for
// compute-sanitizer), `bench` (or one part of it: `few`, `small`, `middle`, `many`).
#include "linear_bench.cuh"

using namespace fovea;
using namespace fovea::cuda;

static Variant variant(const char* name, std::optional<ClusterShare> share, std::optional<int> groups = {},
                       int raster = 16) {
  Variant v{name, {}};
  v.options.share = share, v.options.groups = groups, v.options.raster = raster;
  return v;
}

int main(int argc, char** argv) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess || properties.major < 8) {
    std::printf("no CUDA device of compute capability 8.0 or later\n");
    return 77;  // skipped
  }
  const int multiprocessors = properties.multiProcessorCount;
  const bool hopper = properties.major == 9;
  std::printf("%s, %d SMs\n", properties.name, multiprocessors);
  const std::string what = argc > 1 ? argv[1] : "check";
  if (what == "check" || what == "quick") {
    const bool all = what == "check";
    check_packing_and_errors();
    check_planted<__nv_bfloat16>(hopper);
    if (hopper) check_plans<__nv_bfloat16>(multiprocessors);
    check_graph<__nv_bfloat16>();
    check_heads<__nv_bfloat16>();
    check_heads<__half>();
    check_type<__nv_bfloat16>("bf16", hopper, all);
    check_type<__half>("f16", hopper, false);
    for (const LinearCase& c : odd_cases())
      check_case<float>(c, hopper);
    check_case<float>(make_case("f32", 1024, 2048, LinearEpilogue::store, true, 1000), hopper);
    std::printf("f32: %d failures\n", failures);
    std::printf("%s %s: %d failures\n", failures == 0 ? "PASS" : "FAIL", what.c_str(), failures);
    return failures == 0 ? 0 : 1;
  }
  if (what == "sanitize") {  // seconds under compute-sanitizer
    for (LinearCase c : odd_cases()) {
      c.most_rows = 128;
      if (c.n < 5000) check_case<__nv_bfloat16>(c, hopper);
    }
    std::printf("%s %s: %d failures\n", failures == 0 ? "PASS" : "FAIL", what.c_str(), failures);
    return failures == 0 ? 0 : 1;
  }
  if (!hopper) return 77;
  const Variant chosen{"chosen", {}}, apart = variant("nothing shared", ClusterShare::none);
  Variant wide{"parts of 256 outputs", {}};
  wide.options.units = 16;
  if (what == "bench" || what == "few")
    bench_few(kBenchShapes, {chosen, variant("x shared", ClusterShare::x), wide}, {1, 8, 16, 32, 64},
              multiprocessors);
  if (what == "bench" || what == "small") bench_few(kSmallShapes, {chosen}, {1, 16, 64}, multiprocessors);
  if (what == "bench" || what == "many") bench_many({chosen, apart}, {4096, 16384}, multiprocessors);
  if (what == "bench" || what == "middle")
    bench_many({chosen, apart, variant("64-row tiles", {}, 1),
                variant("64-row tiles, x shared", ClusterShare::x, 1), variant("128-row tiles", {}, 2)},
               {96, 128, 256, 512, 1024, 2048}, multiprocessors);
  return 0;
}
