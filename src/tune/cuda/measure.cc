#include <algorithm>
#include <optional>

#include "device/cuda/cuda_device.h"
#include "device/cuda/cuda_error.h"
#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_memory.h"
#include "device/cuda/cuda_stream.h"
#include "kernels/cuda/linear/linear.h"
#include "tune/cuda/compare.h"
#include "tune/tune.h"

namespace fovea::tune {
namespace {

constexpr size_t kWeightBytes = size_t{192} << 20;  // of all copies of a weight: more than the L2
constexpr int kMostCopies = 64;
constexpr double kGraphSeconds = 1.5e-3;  // of one replay, about
constexpr int kFinalists = 3, kRounds = 7;

Status check(int code, const char* what) {
  if (code == 0) return {};
  return cuda_error(static_cast<cudaError_t>(code), what, __FILE__, __LINE__);
}

/// The memory of one shape.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>> make(const LinearShape& shape, DType dtype, int64_t most_rows,
                                             CudaStream& stream, DevicePool& pool) {
    auto bench = std::unique_ptr<Bench>(new Bench(shape, dtype, stream));
    const auto weight = static_cast<size_t>(cuda::packed_bytes(shape.n, shape.k, shape.gated));
    bench->weight_bytes_ = (weight + 255) / 256 * 256;
    bench->copies_ = static_cast<int>(
        std::clamp<size_t>((kWeightBytes + bench->weight_bytes_ - 1) / bench->weight_bytes_, 1, kMostCopies));
    const int64_t stride_x = (shape.k + 7) / 8 * 8;
    bench->x_stride_ = stride_x;
    const auto rows = static_cast<size_t>(most_rows);
    FOVEA_TRY(weights, pool.allocate(bench->weight_bytes_ * static_cast<size_t>(bench->copies_), stream));
    FOVEA_TRY(x, pool.allocate(rows * static_cast<size_t>(stride_x) * 2, stream));
    FOVEA_TRY(y, pool.allocate(rows * bench->row_bytes(), stream));
    FOVEA_TRY(usual, pool.allocate(rows * bench->row_bytes(), stream));
    FOVEA_TRY(differ, pool.allocate(sizeof(unsigned long long), stream));
    bench->weights_ = std::move(weights);
    bench->x_ = std::move(x);
    bench->y_ = std::move(y);
    bench->usual_ = std::move(usual);
    bench->differ_ = std::move(differ);
    FOVEA_RETURN_IF_ERROR(check(
        fill_random(bench->weights_.data(), bench->weights_.size() / 4, 1, stream.handle()), "fill_random"));
    FOVEA_RETURN_IF_ERROR(
        check(fill_random(bench->x_.data(), bench->x_.size() / 4, 2, stream.handle()), "fill_random"));
    return bench;
  }

  /// Computes what the usual plan gives for `rows` rows, for same_bytes().
  Status set_usual(int64_t rows) {
    cuda::set_linear_choices({});
    FOVEA_RETURN_IF_ERROR(stream_.fill(usual_.data(), 0xff, usual_.size()));
    return launch(rows, 0, usual_.data());
  }

  /// Whether the choice's output equals the usual one's in every byte.
  Result<bool> same_bytes(int64_t rows) {
    FOVEA_RETURN_IF_ERROR(stream_.fill(y_.data(), 0xff, y_.size()));
    FOVEA_RETURN_IF_ERROR(stream_.fill(differ_.data(), 0, differ_.size()));
    FOVEA_RETURN_IF_ERROR(launch(rows, 0, y_.data()));
    const size_t words = static_cast<size_t>(rows) * row_bytes() / 4;
    FOVEA_RETURN_IF_ERROR(check(count_different_words(y_.data(), usual_.data(), words,
                                                      differ_.as<unsigned long long>(), stream_.handle()),
                                "count_different_words"));
    unsigned long long count = 0;
    FOVEA_RETURN_IF_ERROR(stream_.copy(&count, differ_.data(), sizeof count));
    FOVEA_RETURN_IF_ERROR(stream_.synchronize());
    return count == 0;
  }

  /// A graph of launches with one copy of the weight after the other.
  struct Timed {
    CudaGraph graph;
    int launches;
    double best = 1e9;  ///< seconds of a launch
  };
  Result<Timed> capture(int64_t rows, double about) {
    const int launches =
        std::clamp(static_cast<int>(kGraphSeconds / std::max(about, 1e-6)), std::min(copies_, 8), 256);
    FOVEA_TRY(graph, CudaGraph::capture(stream_, [&](CudaStream&) -> Status {
                for (int i = 0; i < launches; ++i)
                  FOVEA_RETURN_IF_ERROR(launch(rows, i % copies_, y_.data()));
                return {};
              }));
    return Timed{std::move(graph), launches};
  }
  Status time(Timed& timed, int rounds) {
    FOVEA_TRY(begin, CudaEvent::create(stream_.device(), CudaEvent::Timing::on));
    FOVEA_TRY(end, CudaEvent::create(stream_.device(), CudaEvent::Timing::on));
    for (int i = 0; i < rounds; ++i) {
      FOVEA_RETURN_IF_ERROR(begin.record(stream_));
      FOVEA_RETURN_IF_ERROR(timed.graph.replay(stream_));
      FOVEA_RETURN_IF_ERROR(end.record(stream_));
      FOVEA_RETURN_IF_ERROR(stream_.synchronize());
      FOVEA_TRY(milliseconds, end.milliseconds_since(begin));
      timed.best = std::min(timed.best, double{milliseconds} * 1e-3 / timed.launches);
    }
    return {};
  }

 private:
  Bench(const LinearShape& shape, DType dtype, CudaStream& stream)
      : shape_(shape), dtype_(dtype), stream_(stream) {}

  int64_t y_stride() const { return ((shape_.gated ? shape_.n / 2 : shape_.n) + 7) / 8 * 8; }
  size_t row_bytes() const { return static_cast<size_t>(y_stride()) * (shape_.logits ? 4 : 2); }

  Status launch(int64_t rows, int copy, void* y) {
    cuda::LinearParams p;
    p.dtype = dtype_;
    p.n = shape_.n;
    p.k = shape_.k;
    p.weight = weights_.data() + static_cast<size_t>(copy) * weight_bytes_;
    p.constant_weight = true;
    p.x = x_.data();
    p.x_stride = x_stride_;
    p.rows = rows;
    p.y = y;
    p.y_stride = y_stride();
    p.y_dtype = shape_.logits ? DType::f32 : dtype_;
    p.epilogue = shape_.gated    ? cuda::LinearEpilogue::gated
                 : shape_.logits ? cuda::LinearEpilogue::logits
                                 : cuda::LinearEpilogue::store;
    return cuda::launch_linear(p, stream_);
  }

  const LinearShape& shape_;
  DType dtype_;
  CudaStream& stream_;
  size_t weight_bytes_ = 0;
  int copies_ = 1;
  int64_t x_stride_ = 0;
  DeviceBuffer weights_, x_, y_, usual_, differ_;
};

/// The choices of the process are those of the measurement only while it lasts.
struct NoChoices {
  ~NoChoices() { cuda::set_linear_choices({}); }
};

struct Candidate {
  cuda::LinearChoice choice;
  Bench::Timed timed;
};

/// The fastest alternative, if it is faster than the usual plan; else `automatic`.
Result<TunedLinear> measure_rows(Bench& bench, const LinearShape& shape, int64_t rows, int multiprocessors,
                                 const TuneOptions& options, int& tried) {
  FOVEA_RETURN_IF_ERROR(bench.set_usual(rows));
  FOVEA_TRY(first, bench.capture(rows, kGraphSeconds / 8));
  FOVEA_RETURN_IF_ERROR(bench.time(first, 2));
  const double about = first.best;
  FOVEA_TRY(usual, bench.capture(rows, about));
  FOVEA_RETURN_IF_ERROR(bench.time(usual, 2));
  std::vector<Candidate> candidates;
  const auto all = alternatives(shape, rows, multiprocessors);
  tried = static_cast<int>(all.size());
  for (const cuda::LinearChoice& choice : all) {
    cuda::set_linear_choices({choice});
    FOVEA_TRY(same, bench.same_bytes(rows));
    if (!same)
      return Error{ErrorCode::internal,
                   describe(choice) + ": its output differs from the usual one's; please report this"};
    FOVEA_TRY(timed, bench.capture(rows, about));
    FOVEA_RETURN_IF_ERROR(bench.time(timed, 2));
    candidates.push_back({choice, std::move(timed)});
  }
  std::ranges::sort(candidates, {}, [](const Candidate& c) { return c.timed.best; });
  if (candidates.size() > kFinalists) candidates.erase(candidates.begin() + kFinalists, candidates.end());
  for (int round = 0; round < kRounds; ++round) {  // in turn: a clock that falls is no one's fault
    FOVEA_RETURN_IF_ERROR(bench.time(usual, 1));
    for (Candidate& candidate : candidates)
      FOVEA_RETURN_IF_ERROR(bench.time(candidate.timed, 1));
  }
  TunedLinear out;
  out.choice = {shape.n, shape.k, shape.gated, rows, rows, cuda::LinearKernel::automatic, {}};
  out.seconds = out.automatic_seconds = usual.best;
  for (const Candidate& candidate : candidates)
    if (candidate.timed.best < out.seconds && candidate.timed.best < usual.best * (1 - options.least_gain)) {
      out.choice = candidate.choice;
      out.seconds = candidate.timed.best;
    }
  return out;
}

}  // namespace

Result<TuneKey> key_of_device(int device) {
  FOVEA_TRY(info, open_cuda_device(device));
  return TuneKey{info.name, info.multiprocessors, info.driver_version, build_name()};
}

Result<std::vector<TunedLinear>> measure(std::span<const LinearShape> shapes, const TuneOptions& options) {
  FOVEA_TRY(device, open_cuda_device(options.device));
  if (device.compute_capability != 90)
    return unsupported("the kernels of " + device.name +
                       " have no alternatives to measure; those of compute capability 9.0 have");
  const CurrentDevice current(options.device);
  FOVEA_TRY(stream, CudaStream::create(options.device));
  FOVEA_TRY(pool, DevicePool::create(options.device));
  const NoChoices afterwards;
  std::vector<TunedLinear> out;
  for (const LinearShape& shape : shapes) {
    const auto all_rows =
        measured_rows(shape.logits ? std::min<int64_t>(options.most_rows, 256) : options.most_rows);
    if (all_rows.empty()) continue;
    FOVEA_TRY(bench, Bench::make(shape, options.dtype, all_rows.back(), stream, pool));
    int64_t least = 1;
    for (const int64_t rows : all_rows) {
      int tried = 0;
      FOVEA_TRY(best, measure_rows(*bench, shape, rows, device.multiprocessors, options, tried));
      best.choice.min_rows = least;
      least = rows + 1;
      if (options.report) options.report(shape, rows, tried, best);
      if (best.choice.kernel != cuda::LinearKernel::automatic) out.push_back(best);
    }
    FOVEA_RETURN_IF_ERROR(stream.synchronize());
  }
  return out;
}

}  // namespace fovea::tune
