#pragma once
// Runs problems through a backend, and judges them against TORCH_NATIVE in fp64.
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/cpu_features.h"
#include "conformance/batch.h"
#include "conformance/target.h"
#include "fovea/attention_backend.h"

namespace fovea {
class ThreadPool;
}

namespace fovea::conformance {

/// Plans and runs one layer. Outputs, workspace and guard bytes around them are poisoned before and checked
/// after. The LSE is requested with `want_lse` from a backend that claims it; else Output::lse is empty.
Output run(AttentionBackend& backend, const Problem& problem, const Layout& layout, Machine& machine,
           bool want_lse = true);
/// On the CPU with this team.
Output run(AttentionBackend& backend, const Problem& problem, const Layout& layout, ThreadPool& pool,
           bool want_lse = true);

/// Layers that share keys and values: `layers` differ only in their queries. They share one plan and the
/// cache of the first layer; returns an output for each.
std::vector<Output> run_layers(AttentionBackend& backend, std::span<const Problem* const> layers,
                               const Layout& layout, Machine& machine, bool want_lse = true);

/// TORCH_NATIVE in fp64 on the same (rounded) inputs, its output not rounded to spec.dtype.
Output reference(const Problem& problem, ThreadPool& pool);

/// The textbook in fp32 with P and O rounded to spec.dtype: the error expected of a correct kernel.
Output naive(const Problem& problem);

/// The distance of an output from the reference where both are finite.
struct Errors {
  double o = 0, lse = 0;
};

/// Empty when the reference and the textbook, which share no mask code, agree up to rounding; else the
/// difference. In that case they can't judge a backend, and nothing should run, as hidden keys are poison.
std::string find_disagreement(const Problem& problem, const Output& reference, const Output& naive);

/// Empty when `got` is close enough to the reference: max error <= 2x the naive one (3x with a soft
/// cap) + 2 ulp, mean error <= 1.5x, LSE within 1e-5 + 2e-6 |LSE|, empty rows exact. All of them also allow
/// for the rounding of fp32 scores, which near-equal large scores turn into an error of O (see ScoreNoise).
/// With fp64 accumulation and a cache without scales, O's error is at most 1 ulp of its largest value.
/// A `got` without LSE is judged by O only. A result of find_disagreement() is returned as the verdict.
/// `worst` is raised to the errors found.
std::string judge(const Problem& problem, const Output& got, const Output& reference, const Output& naive,
                  Errors* worst = nullptr);

/// run + reference + naive + judge; empty = accepted, else the failure with the problem's description.
std::string conform(AttentionBackend& backend, const Problem& problem, const Layout& layout, Machine& machine,
                    ThreadPool& pool);
/// On the CPU.
std::string conform(AttentionBackend& backend, const Problem& problem, const Layout& layout,
                    ThreadPool& pool);

/// The instruction sets that this CPU has and `backend` has code for, the best one last; a single one for a
/// GPU.
std::vector<Isa> isas_of(const BackendInfo& backend);
/// Calls fn() under each of them; the best one is left set.
void each_isa(const BackendInfo& backend, const std::function<void()>& fn);

/// The built backends that run on a CPU.
std::vector<const BackendRegistry::Entry*> cpu_backends();

}  // namespace fovea::conformance
