// Device program of sampling: `cuda_sample check` compares it with the CPU's sampler, as tokens and as bytes;
// `cuda_sample bench` measures it. Exit code 77 without a GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/philox.h"
#include "cuda_check.h"
#include "kernels/cuda/sample/variants.h"
#include "ops/token_sampler.h"
#include "sample_case.h"

namespace {

using namespace fovea;
using namespace fovea::cuda;

void check(const Status& status) {
  if (status.ok()) return;
  std::printf("%s\n", status.error().message.c_str());
  std::exit(1);
}

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    CUDA_CHECK(cudaMalloc(&data_, std::max<size_t>(count, 1) * sizeof(T)));
    set_bytes(data_, 0xff, std::max<size_t>(count, 1) * sizeof(T));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) { set(host); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }
  void set(const std::vector<T>& host) { copy_to_device(data_, host.data(), host.size() * sizeof(T)); }
  void poison() { set_bytes(data_, 0xff, count_ * sizeof(T)); }
  std::vector<T> host() const {
    std::vector<T> host(count_);
    CUDA_CHECK(cudaMemcpy(host.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

int failures = 0;

void fail(const std::string& what) {
  if (++failures <= 40) std::printf("FAIL %s\n", what.c_str());
}

bool fits(int cluster, int width) {
  int bytes = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  return cluster == 1 || sampling::cluster_fits(cluster, width, bytes);
}

std::vector<uint32_t> edit_block(const SampleRequest& q, int32_t vocab) {
  const EditSpec spec = q.spec();
  std::vector<uint32_t> words(static_cast<size_t>(edit_block_bytes(spec, vocab)) / 4);
  build_edit_block(spec, vocab, q.tokens, q.prompt_len, words);
  return words;
}

/// A case on the device, with the edit blocks of all its requests.
class DeviceCase {
 public:
  explicit DeviceCase(const SampleCase& c)
      : case_(c),
        logits_(c.logits),
        masks_(c.masks),
        rows_(c.rows.size()),
        tokens_(c.rows.size()),
        results_(c.rows.size()),
        scratch_(c.logits.size()),
        blocks_(block_words(c)) {
    reset();
  }

  /// Builds all edit blocks again from the requests' tokens.
  void reset() {
    std::vector<uint32_t> all;
    std::vector<SampleRow> rows;
    for (const SampleRequest& q : case_.rows) {
      rows.push_back(q.row);
      if (!q.edits) continue;
      rows.back().edits = reinterpret_cast<uint64_t>(blocks_.data() + all.size());
      const std::vector<uint32_t> block = edit_block(q, case_.vocab);
      all.insert(all.end(), block.begin(), block.end());
    }
    blocks_.set(all);
    set_rows(rows);
  }
  void set_rows(const std::vector<SampleRow>& rows) {
    host_rows_ = rows;
    rows_.set(rows);
  }
  void set_logits(const std::vector<float>& logits) { logits_.set(logits); }
  const std::vector<SampleRow>& rows() const { return host_rows_; }
  std::vector<uint32_t> blocks() const { return blocks_.host(); }
  std::vector<int32_t> tokens() const { return tokens_.host(); }
  std::vector<float> logits() const { return logits_.host(); }

  SampleArgs args(int first = 0, int count = -1) {
    SampleArgs a;
    a.logits = logits_.data();
    a.row_stride = a.width = case_.width;
    a.vocab = case_.vocab;
    a.rows = rows_.data() + first;
    a.num_rows = count < 0 ? static_cast<int32_t>(case_.rows.size()) : count;
    a.masks = masks_.data();
    a.mask_stride = case_.mask_words();
    a.tokens = tokens_.data();
    a.failed_token = -7;
    a.results = results_.data() + first;
    a.scratch = scratch_.data();
    return a;
  }
  void poison() {
    results_.poison();
    tokens_.poison();
  }
  std::vector<SampleResult> results() const { return results_.host(); }
  std::vector<SampleResult> run(int cluster, CudaStream& stream, bool general = false) {
    poison();
    check(sampling::launch_variant(cluster, args(), stream, general));
    check(stream.synchronize());
    return results();
  }

 private:
  static size_t block_words(const SampleCase& c) {
    size_t words = 0;
    for (const SampleRequest& q : c.rows)
      if (q.edits) words += static_cast<size_t>(edit_block_bytes(q.spec(), c.vocab)) / 4;
    return words;
  }

  const SampleCase& case_;
  DeviceArray<float> logits_;
  DeviceArray<uint32_t> masks_;
  DeviceArray<SampleRow> rows_;
  DeviceArray<int32_t> tokens_;
  DeviceArray<SampleResult> results_;
  DeviceArray<float> scratch_;
  DeviceArray<uint32_t> blocks_;
  std::vector<SampleRow> host_rows_;
};

int count_differences(const SampleCase& c, const std::vector<SampleResult>& got,
                      const std::vector<SampleResult>& want, const std::string* name) {
  int differences = 0;
  for (size_t r = 0; r < want.size(); ++r) {
    const std::string what = difference(got[r], want[r], c.rows[r].row.top);
    if (what.empty()) continue;
    ++differences;
    if (!name) continue;
    const SampleRow& row = c.rows[r].row;
    fail(*name + " row " + std::to_string(r) + ": " + what + " (T " + std::to_string(row.temperature) +
         " k " + std::to_string(row.top_k) + " p " + std::to_string(row.top_p) + " min_p " +
         std::to_string(row.min_p) + " top " + std::to_string(row.top) + " token " +
         std::to_string(row.token) + (c.rows[r].edits ? " edits" : "") + (row.mask_row >= 0 ? " mask" : "") +
         ")");
  }
  return differences;
}

void check_tokens(const SampleCase& c, const std::vector<int32_t>& tokens,
                  const std::vector<SampleResult>& want, const std::string& name) {
  for (size_t r = 0; r < want.size(); ++r) {
    const int32_t expected = c.rows[r].row.token != kDrawToken ? -1 : want[r].token >= 0 ? want[r].token : -7;
    if (tokens[r] != expected) fail(name + " tokens[" + std::to_string(r) + "]");
  }
}

/// Every number of CTAs, with and without the shortcut, against the CPU, for `steps` steps in which the
/// device appends tokens to its blocks.
int compare(uint32_t seed, int rows, int32_t vocab, int32_t padding, int steps, CudaStream& stream) {
  int compared = 0;
  for (const int variant : {0, 1, 2, 3, 4, 5}) {
    const int cluster = sampling::kClusterSizes[variant / 2];
    const bool general = variant % 2 == 1;
    if (!fits(cluster, vocab + padding)) continue;
    SampleCase c = random_case(seed, rows, vocab, padding);
    std::mt19937_64 rng(seed);
    DeviceCase d(c);
    for (int step = 0; step < steps; ++step) {
      if (step > 0) {
        draw_logits(c, rng);
        d.set_logits(c.logits);
      }
      const std::string name = "V " + std::to_string(vocab) + "+" + std::to_string(padding) + " seed " +
                               std::to_string(seed) + " step " + std::to_string(step) + " CTAs " +
                               std::to_string(cluster) + (general ? " general" : "");
      const std::vector<SampleResult> want = expected_results(c);
      const std::vector<SampleResult> got = d.run(cluster, stream, general);
      count_differences(c, got, want, &name);
      check_tokens(c, d.tokens(), want, name);
      compared += rows;
      std::vector<SampleRow> device_rows = d.rows();
      for (size_t r = 0; r < c.rows.size(); ++r) {
        SampleRequest& q = c.rows[r];
        if (!q.edits || want[r].token < 0) continue;
        q.tokens.push_back(want[r].token);
        device_rows[r].position = q.row.position = q.tokens.size();
      }
      d.set_rows(device_rows);
      if (step + 1 < steps) continue;
      if (std::memcmp(d.logits().data(), c.logits.data(), 4 * c.logits.size()) != 0)
        fail(name + " changed logits");
      const std::vector<uint32_t> appended = d.blocks();
      d.reset();
      if (appended != d.blocks()) fail(name + ": blocks differ from those built of the known tokens");
    }
  }
  return compared;
}

/// Rows alone against the same rows among all others, and skipped rows between them.
void check_alone(CudaStream& stream) {
  SampleCase c = random_case(77, 256, 5000, 3);
  DeviceCase d(c);
  const std::vector<SampleResult> together = d.run(8, stream);
  for (const int cluster : sampling::kClusterSizes) {
    d.reset();
    d.poison();
    for (int r = 0; r < 256; r += 3)
      check(sampling::launch_variant(cluster, d.args(r, 1), stream));
    check(stream.synchronize());
    const std::vector<SampleResult> alone = d.results();
    for (size_t r = 0; r < 256; r += 3)
      if (std::memcmp(&alone[r], &together[r], sizeof alone[r]) != 0)
        fail("row " + std::to_string(r) + " alone, CTAs " + std::to_string(cluster));
  }
  d.reset();
  std::vector<SampleRow> rows = d.rows();
  for (size_t r = 0; r < rows.size(); r += 2)
    rows[r].logits_row = -1;
  d.set_rows(rows);
  const std::vector<SampleResult> half = d.run(8, stream);
  for (size_t r = 0; r < rows.size(); ++r) {
    const bool same = r % 2 == 0 ? half[r].status == SampleStatus::skipped && half[r].token == -1
                                 : std::memcmp(&half[r], &together[r], sizeof half[r]) == 0;
    if (!same) fail("row " + std::to_string(r) + " among skipped ones");
  }
}

/// The same launch in a graph, replayed with other rows.
void check_graph(CudaStream& stream) {
  SampleCase c = random_case(78, 32, 3000, 0);
  DeviceCase d(c);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal));
  check(launch_sample(d.args(), stream));
  CUDA_CHECK(cudaStreamEndCapture(stream.handle(), &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  std::mt19937_64 rng(5);
  for (int replay = 0; replay < 3; ++replay) {
    draw_logits(c, rng);
    d.set_logits(c.logits);
    d.reset();
    d.poison();
    CUDA_CHECK(cudaGraphLaunch(exec, stream.handle()));
    check(stream.synchronize());
    const std::string name = "replay " + std::to_string(replay);
    count_differences(c, d.results(), expected_results(c), &name);
  }
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

/// launch_draw() against TokenSampler.
void check_draw(CudaStream& stream) {
  for (const int32_t vocab : {50, 3000, 151936}) {
    const int rows = vocab > 100000 ? 8 : 300;
    const SampleCase c = random_case(79, rows, vocab, 0);
    std::vector<float> temperature, top_p, min_p;
    std::vector<int32_t> top_k, slot, want;
    std::vector<int64_t> seed, position;
    TokenSampler sampler;
    for (int r = 0; r < rows; ++r) {
      const SampleRow& q = c.rows[static_cast<size_t>(r)].row;
      temperature.push_back(q.temperature);
      top_p.push_back(q.top_p);
      min_p.push_back(q.min_p);
      top_k.push_back(q.top_k);
      seed.push_back(static_cast<int64_t>(q.seed));
      position.push_back(static_cast<int64_t>(q.position));
      slot.push_back(r % 5 == 4 ? -1 : rows - 1 - r);
    }
    want.assign(static_cast<size_t>(rows), -1);  // the poison's value, where no slot is written
    for (int r = 0; r < rows; ++r) {
      const auto row =
          std::span(c.logits).subspan(static_cast<size_t>(r) * vocab, static_cast<size_t>(vocab));
      const LogitScan scan = scan_logits(row);
      const SampleRow& q = c.rows[static_cast<size_t>(r)].row;
      if (slot[r] >= 0 && scan.valid)
        want[static_cast<size_t>(slot[r])] = static_cast<int32_t>(sampler.draw(
            row, scan.max, {q.temperature, q.top_k, q.top_p, q.min_p}, philox_uniform(q.seed, q.position)));
    }
    DeviceArray<float> logits(c.logits), dt(temperature), dp(top_p), dm(min_p);
    DeviceArray<int32_t> dk(top_k), ds(slot), tokens(want.size());
    DeviceArray<int64_t> dseed(seed), dposition(position);
    check(launch_draw({logits.data(), vocab, vocab, rows, ds.data(), dt.data(), dp.data(), dm.data(),
                       dk.data(), dseed.data(), dposition.data(), tokens.data()},
                      stream));
    check(stream.synchronize());
    if (tokens.host() != want) fail("launch_draw of " + std::to_string(vocab));
  }
}

/// Defects in what the device gets: each must be noticed.
void check_defects(CudaStream& stream) {
  SampleCase c = random_case(80, 400, 2000, 5);
  const std::vector<SampleResult> want = expected_results(c);
  DeviceCase d(c);
  const auto defect = [&](const char* name, auto&& change) {
    d.reset();
    std::vector<SampleRow> rows = d.rows();
    for (SampleRow& row : rows)
      change(row);
    d.set_rows(rows);
    const int caught = count_differences(c, d.run(8, stream), want, nullptr);
    std::printf("  defect '%s': %d of %zu rows differ\n", name, caught, rows.size());
    if (caught == 0) fail(std::string("defect not noticed: ") + name);
  };
  defect("next position", [](SampleRow& r) { r.position += r.edits == 0; });
  defect("high half of the position lost", [](SampleRow& r) { r.position &= 0xffffffffu; });
  defect("high half of the seed lost", [](SampleRow& r) { r.seed &= 0xffffffffu; });
  defect("top_k one less", [](SampleRow& r) { r.top_k -= r.top_k > 1; });
  defect("no top_p", [](SampleRow& r) { r.top_p = 1; });
  defect("no min_p", [](SampleRow& r) { r.min_p = 0; });
  defect("no edits", [](SampleRow& r) { r.edits = 0; });
  defect("no mask", [](SampleRow& r) { r.mask_row = -1; });
  defect("one token too few among the top", [](SampleRow& r) { r.top -= r.top > 0; });
  d.reset();
  std::vector<float> logits = c.logits;
  for (size_t i = 0; i < logits.size(); i += 2005)
    logits[i] = std::nextafter(logits[i], 100.0f);
  d.set_logits(logits);
  const int caught = count_differences(c, d.run(8, stream), want, nullptr);
  std::printf("  defect 'an ulp in one logit': %d rows differ\n", caught);
  if (caught == 0) fail("defect not noticed: an ulp in one logit");
}

int run_checks(CudaStream& stream) {
  int compared = 0;
  uint32_t seed = 1;
  for (const int32_t vocab : {1, 2, 31, 50, 97, 128, 257, 1000, 4096, 5003})
    for (const int32_t padding : {0, 3, 61})
      compared += compare(seed++, 100, vocab, padding, vocab % 2 ? 1 : 4, stream);
  for (const int32_t vocab : {32000, 50257, 128256, 151643, 262144, 300001})
    compared += compare(seed++, 24, vocab, vocab % 2 ? 293 : 0, vocab == 128256 ? 2 : 1, stream);
  std::printf("compared %d rows with the CPU: %d failures\n", compared, failures);
  check_alone(stream);
  check_graph(stream);
  check_draw(stream);
  check_defects(stream);
  std::printf("%s: %d failures\n", failures == 0 ? "passed" : "FAILED", failures);
  return failures == 0 ? 0 : 1;
}

__global__ void read_rows(const float* x, int64_t count, float* out) {
  float sum = 0;
  for (int64_t i = (blockIdx.x * int64_t{blockDim.x} + threadIdx.x) * 4; i < count;
       i += int64_t{gridDim.x} * blockDim.x * 4) {
    const float4 v = *reinterpret_cast<const float4*>(x + i);
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 12345.678f) *out = sum;
}

/// Microseconds of one launch, the median of graphs of 20.
template <class Launch>
double time_of(CudaStream& stream, const Launch& launch) {
  constexpr int kLaunches = 20, kRounds = 7;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_CHECK(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kLaunches; ++i)
    launch();
  CUDA_CHECK(cudaStreamEndCapture(stream.handle(), &graph));
  CUDA_CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int round = -2; round < kRounds; ++round) {
    CUDA_CHECK(cudaEventRecord(begin, stream.handle()));
    CUDA_CHECK(cudaGraphLaunch(exec, stream.handle()));
    CUDA_CHECK(cudaEventRecord(end, stream.handle()));
    CUDA_CHECK(cudaEventSynchronize(end));
    float ms = 0;
    CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    if (round >= 0) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  CUDA_CHECK(cudaGraphExecDestroy(exec));
  CUDA_CHECK(cudaGraphDestroy(graph));
  return times[times.size() / 2] * 1e3 / kLaunches;
}

int run_bench(CudaStream& stream, int32_t vocab) {
  SampleCase c;
  c.width = c.vocab = vocab;
  constexpr int kRows = 256;
  c.logits.resize(static_cast<size_t>(kRows) * vocab);
  c.masks.assign(static_cast<size_t>(kRows * c.mask_words()), ~0u);
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> noise(1 << 20);
  for (float& x : noise)
    x = normal(rng);
  for (size_t i = 0; i < c.logits.size(); ++i)
    c.logits[i] = noise[(i + i / 1000003 * 77) % noise.size()];
  for (size_t r = 0; r < kRows; ++r)
    for (int i = 0; i < 20; ++i)
      c.logits[r * vocab + rng() % vocab] = 12.0f + static_cast<float>(i % 7);
  c.rows.resize(kRows);
  for (int r = 0; r < kRows; ++r) {
    SampleRequest& q = c.rows[r];
    q.row.logits_row = q.row.slot = r;
    q.row.seed = r;
    q.edits = true;
    q.tokens = {1, 2, 3, 4, 5};
    q.prompt_len = 3;
    q.row.position = 5;
    q.params.frequency_penalty = 0.5f;
    q.params.repetition_penalty = 1.1f;
  }
  DeviceCase d(c);
  const std::vector<SampleRow> with_edits = d.rows();
  DeviceArray<float> sink(1);
  struct Mode {
    const char* name;
    float temperature;
    int top_k;
    float top_p, min_p;
    int top;
    bool edits;
  };
  const Mode modes[] = {{"greedy", 0, 0, 1, 0, -1, false},
                        {"temperature", 1, 0, 1, 0, -1, false},
                        {"top_k 50", 1, 50, 1, 0, -1, false},
                        {"top_p 0.95", 1, 0, 0.95f, 0, -1, false},
                        {"top_k 50, top_p 0.9", 1, 50, 0.9f, 0, -1, false},
                        {"top_p 0.95, T 3", 3, 0, 0.95f, 0, -1, false},
                        {"greedy, logprobs 0", 0, 0, 1, 0, 0, false},
                        {"greedy, logprobs 20", 0, 0, 1, 0, 20, false},
                        {"temperature, penalties", 1, 0, 1, 0, -1, true}};
  std::printf("V %d, microseconds a launch, by CTAs of a row (0 = launch_sample's choice)\n", vocab);
  for (const int rows : {1, 8, 32, 64, 256}) {
    const double read = time_of(stream, [&] {
      read_rows<<<132 * 4, 512, 0, stream.handle()>>>(d.args().logits, int64_t{rows} * vocab, sink.data());
    });
    std::printf("rows %d, reading the logits once: %.1f\n", rows, read);
    for (const Mode& m : modes) {
      std::vector<SampleRow> device_rows = with_edits;
      for (SampleRow& row : device_rows) {
        row.temperature = m.temperature;
        row.top_k = m.top_k;
        row.top_p = m.top_p;
        row.min_p = m.min_p;
        row.top = m.top;
        if (!m.edits) row.edits = 0;
      }
      d.set_rows(device_rows);
      std::printf("  %-24s", m.name);
      for (const int cluster : {0, 1, 8, 16}) {
        if (!fits(cluster == 0 ? 1 : cluster, vocab)) continue;
        std::printf("  %2d: %7.1f", cluster, time_of(stream, [&] {
                      check(cluster == 0 ? launch_sample(d.args(0, rows), stream)
                                         : sampling::launch_variant(cluster, d.args(0, rows), stream));
                    }));
      }
      std::printf("\n");
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device\n");
    return 77;
  }
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  std::printf("%s\n", properties.name);
  Result<CudaStream> stream = CudaStream::create(0);
  check(stream.ok() ? Status() : Status(stream.error()));
  const std::string mode = argc > 1 ? argv[1] : "check";
  if (mode == "bench") return run_bench(*stream, argc > 2 ? std::atoi(argv[2]) : 128256);
  return run_checks(*stream);
}
