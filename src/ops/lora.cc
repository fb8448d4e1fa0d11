#include "ops/lora.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/ops.h"

namespace fovea {
namespace {

// Rows of a block that lie next to each other, and that are gathered.
constexpr int64_t kRunRows = 256, kGatheredRows = 64;
// Shorter runs are gathered with others, so that matrices are read once for many rows.
constexpr size_t kShortRun = 16;

/// The end of the run of consecutive rows that begins at `first`.
size_t end_of_run(std::span<const int32_t> rows, size_t first) {
  size_t end = first + 1;
  while (end < rows.size() && rows[end] == rows[end - 1] + 1)
    ++end;
  return end;
}

class Application {
 public:
  Application(const LoraWeights& weights, const float* x, int64_t x_stride, float* y, int64_t y_stride,
              float* scratch, ThreadPool& pool)
      : w_(weights),
        x_(x),
        x_stride_(x_stride),
        y_(y),
        y_stride_(y_stride),
        low_(scratch),
        in_(low_ + kRunRows * weights.a.n()),
        out_(in_ + kGatheredRows * weights.a.k()),
        pool_(pool) {}

  void run(int64_t first, int64_t count) {
    for (int64_t done = 0; done < count; done += kRunRows) {
      const int64_t rows = std::min(kRunRows, count - done), row = first + done;
      down(x_ + row * x_stride_, x_stride_, rows);
      for (const LoraWeights::Module& module : w_.modules)
        up(module, rows, y_ + row * y_stride_ + module.first_output, y_stride_);
    }
  }

  /// At most kGatheredRows.
  void gathered(std::span<const int32_t> rows) {
    const auto count = static_cast<int64_t>(rows.size());
    const int64_t k = w_.a.k();
    for (int64_t i = 0; i < count; ++i)
      copy(x_ + rows[static_cast<size_t>(i)] * x_stride_, in_ + i * k, k);
    down(in_, k, count);
    for (const LoraWeights::Module& module : w_.modules) {
      const int64_t n = module.b.n();
      float* first = y_ + module.first_output;
      for (int64_t i = 0; i < count; ++i)
        copy(first + rows[static_cast<size_t>(i)] * y_stride_, out_ + i * n, n);
      up(module, count, out_, n);
      for (int64_t i = 0; i < count; ++i)
        copy(out_ + i * n, first + rows[static_cast<size_t>(i)] * y_stride_, n);
    }
  }

 private:
  static void copy(const float* from, float* to, int64_t count) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
  }

  /// low = x A^T, scaled.
  void down(const float* x, int64_t stride, int64_t rows) {
    const int64_t ranks = w_.a.n();
    linear(w_.a, x, stride, rows, low_, ranks, nullptr, pool_);
    for (const LoraWeights::Module& module : w_.modules)
      if (module.scale != 1.0f)
        scale_rows(low_ + module.first_rank, ranks, module.scale, rows, module.b.k(), pool_);
  }
  void up(const LoraWeights::Module& module, int64_t rows, float* y, int64_t stride) {
    linear_add(module.b, low_ + module.first_rank, w_.a.n(), rows, y, stride, pool_);
  }

  const LoraWeights& w_;
  const float* x_;
  int64_t x_stride_;
  float* y_;
  int64_t y_stride_;
  float *low_, *in_, *out_;
  ThreadPool& pool_;
};

}  // namespace

int64_t LoraWeights::bytes() const {
  int64_t sum = a.bytes();
  for (const Module& module : modules)
    sum += module.b.bytes();
  return sum;
}

int64_t LoraAdapter::bytes() const {
  auto sum = static_cast<int64_t>(image.size());
  for (const auto& layer : layers)
    for (const LoraWeights& site : layer)
      sum += site.bytes();
  for (const auto& layer : experts)
    for (const auto& expert : layer)
      sum += expert[0].bytes() + expert[1].bytes();
  return sum;
}

int64_t lora_scratch(int64_t ranks, int64_t k, int64_t n) {
  return kRunRows * ranks + kGatheredRows * (k + n);
}

void apply_lora(const LoraWeights& weights, std::span<const int32_t> rows, const float* x, int64_t x_stride,
                float* y, int64_t y_stride, float* scratch, ThreadPool& pool) {
  if (rows.empty() || weights.empty()) return;
  Application application(weights, x, x_stride, y, y_stride, scratch, pool);
  if (end_of_run(rows, 0) == rows.size())
    return application.run(rows.front(), static_cast<int64_t>(rows.size()));
  std::array<int32_t, kGatheredRows> few{};
  size_t kept = 0;
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    end = end_of_run(rows, first);
    if (end - first >= kShortRun) {
      application.run(rows[first], static_cast<int64_t>(end - first));
      continue;
    }
    for (size_t i = first; i < end; ++i) {
      few[kept++] = rows[i];
      if (kept == few.size()) application.gathered({few.data(), std::exchange(kept, 0)});
    }
  }
  if (kept > 0) application.gathered({few.data(), kept});
}

}  // namespace fovea
