#pragma once
// Compares a kernel of src/kernels/cuda on the device with the reference in fp64.
#include "device_runner.cuh"

namespace fovea::cuda {

inline int failures = 0;

inline double output_at(const Problem& p, const Output& o, size_t i) {
  if (p.q != Element::f32) return from16(p.q, o.out[i]);
  float x;
  std::memcpy(&x, o.out.data() + 2 * i, 4);
  return x;
}

/// Whether an output is within its bounds: twice the error of a naive implementation that rounds the same
/// operands (three times with a soft cap), plus two units in the last place of the largest output.
inline bool close(const HostCase& c, const Expected& e, const Output& o) {
  const Problem& p = c.problem;
  double worst = 0, naive = 0, top = 0, mean = 0, naive_mean = 0, lse_worst = 0;
  bool special = true;
  for (size_t i = 0; i < e.out.size(); ++i) {
    const double x = output_at(p, o, i);
    const double error = std::fabs(x - e.out[i]);
    if (!(error <= 1e30)) special = false;
    worst = std::max(worst, error);
    mean += error;
    naive = std::max(naive, std::fabs(e.naive[i] - e.out[i]));
    naive_mean += std::fabs(e.naive[i] - e.out[i]);
    top = std::max(top, std::fabs(e.out[i]));
  }
  for (size_t i = 0; i < e.lse.size(); ++i) {
    if (std::isinf(e.lse[i])) {
      special = special && e.lse[i] == o.lse[i];
      if (!p.sinks || !p.lse_includes_sink)
        for (int d = 0; d < p.v_head_dim; ++d)
          special = special && output_at(p, o, i * p.v_head_dim + d) == 0;
    } else {
      const double error = std::fabs(o.lse[i] - e.lse[i]);
      lse_worst = std::max(lse_worst, error / (1e-5 + 2e-6 * std::fabs(e.lse[i])));
      if (!(error <= 1e30)) special = false;
    }
  }
  const double unit = p.q == Element::f32 ? 0x1p-23 : p.q == Element::f16 ? 0x1p-10 : 0x1p-7;
  const double floor = p.q == Element::f32 ? 1e-6 : p.q == Element::f16 ? 2e-4 : 1e-3;
  const double factor = p.softcap > 0 ? 3 : 2;
  const double limit = std::max(floor, factor * naive + 2 * unit * top);
  const double n = std::max<size_t>(e.out.size(), 1);
  const bool ok = special && o.guards && worst <= limit && mean <= 1.5 * naive_mean + n * floor * 0.1 &&
                  lse_worst <= (p.softcap > 0 ? 3 : 1);
  if (!ok) {
    ++failures;
    std::printf("FAIL %-44s max %.3e (limit %.3e) mean %.3e (naive %.3e) lse %.2f of its limit%s%s\n",
                p.name.c_str(), worst, limit, mean / n, naive_mean / n, lse_worst,
                special ? "" : ", special values", o.guards ? "" : ", guards");
  }
  return ok;
}

/// The kernel that the library selects for a problem.
inline Kernel kernel_of(const Problem& p, KernelKind kind, int shared_bytes = kAnySharedBytes) {
  const bool general = p.mask.window_left >= 0 || p.mask.window_right >= 0 || p.mask.chunk > 0 ||
                       p.softcap > 0 || p.alibi || p.mask.spans || p.mask.packed || p.mask.tree;
  return library(kind, p.q, p.kv, p.head_dim, p.v_head_dim, general, p.few_sequences, shared_bytes);
}

inline void expect(bool ok, const char* what, const std::string& name) {
  if (ok) return;
  ++failures;
  std::printf("FAIL %-44s %s\n", name.c_str(), what);
}

/// Shared memory that a CTA may have on devices before Hopper: sm_80 and sm_86.
inline constexpr int kSmallerDevices[] = {163 * 1024, 99 * 1024};

/// Checks that the kernels of `select(shared bytes)` fit and compute the same bits as `kernel`, whose output
/// is `all`.
template <class F>
void check_smaller(const HostCase& c, const Kernel& kernel, const Output& all, F&& select) {
  for (const int shared_bytes : kSmallerDevices) {
    const Kernel smaller = select(shared_bytes);
    expect(smaller.info.shared_bytes <= shared_bytes, "does not fit a smaller device", c.problem.name);
    if (smaller.info == kernel.info) continue;
    const Output same = run_case(c, smaller);
    expect(same.out == all.out && same.lse == all.lse && same.guards,
           shared_bytes == kSmallerDevices[0] ? "differs as on sm_80" : "differs as on sm_86",
           c.problem.name);
  }
}

inline void check(const Problem& problem, KernelKind kind) {
  const HostCase c = make_case(problem);
  const Kernel kernel = kernel_of(problem, kind);
  const Output all = run_case(c, kernel);
  close(c, reference(c), all);
  check_smaller(c, kernel, all, [&](int shared_bytes) { return kernel_of(problem, kind, shared_bytes); });
}

/// Checks that sequence `index` of `problem` has the same bits alone in the batch, with other pages and page
/// sizes, and with only its last `tail` rows.
inline void check_invariance(Problem problem, const Kernel& kernel, int index, int tail) {
  const HostCase c = make_case(problem);
  const Output all = run_case(c, kernel);
  const size_t row = static_cast<size_t>(problem.heads()) * problem.v_head_dim;
  const size_t words = element_bytes(problem.q) / 2;
  const Sequence s = problem.seqs[index];
  auto same = [&](const Output& o, int rows) {
    const size_t last = c.q_first[index + 1];
    return std::equal(o.out.begin(), o.out.end(), all.out.begin() + (last - rows) * row * words) &&
           std::equal(o.lse.begin(), o.lse.end(), all.lse.begin() + (last - rows) * problem.heads());
  };
  expect(std::equal(all.out.begin(), all.out.end(), run_case(c, kernel).out.begin()),
         "differs from run to run", problem.name);
  problem.seqs = {s};
  expect(same(run_case(make_case(problem, 2), kernel), s.n_q), "differs alone in its batch", problem.name);
  for (const int page : {1, 7, 64, 544}) {
    problem.page_size = page;
    expect(same(run_case(make_case(problem, page), kernel), s.n_q), "differs with the page size",
           problem.name);
  }
  if (tail > 0 && tail < s.n_q) {
    problem.seqs[0].n_q = tail;
    expect(same(run_case(make_case(problem), kernel), tail), "differs with the chunking", problem.name);
  }
}
inline void check_invariance(const Problem& problem, KernelKind kind, int index, int tail) {
  check_invariance(problem, kernel_of(problem, kind), index, tail);
}

}  // namespace fovea::cuda
