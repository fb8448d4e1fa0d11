#include "conformance/invariance.h"

#include <algorithm>

#include "attention/kv_view.h"
#include "base/check.h"
#include "base/thread_pool.h"
#include "fovea/attention.h"
#include "fovea/attention_backend.h"

namespace fovea::conformance {
namespace {

constexpr int kMostAlone = 24;  // about how many sequences of a batch are also run alone

void append(Output& all, const Output& more) {
  if (!more.error.empty()) all.error = more.error;
  all.o.insert(all.o.end(), more.o.begin(), more.o.end());
  all.lse.insert(all.lse.end(), more.lse.begin(), more.lse.end());
}

std::string difference(const Output& got, const Output& want, const std::string& when) {
  if (got == want) return {};
  return (got.error.empty() ? "other bits " : got.error + " ") + when;
}

/// The first row of each sequence.
std::vector<int64_t> offsets(const Problem& problem) {
  std::vector<int64_t> out = {0};
  for (const Sequence& s : problem.seqs)
    out.push_back(out.back() + s.n_q);
  return out;
}

std::string without_company(AttentionBackend& backend, const Case& c, const Output& first, Machine& machine) {
  const std::vector<int64_t> at = offsets(c.problem);
  Layout layout = c.layout;
  layout.shuffle ^= 1;
  // The declared limits select the kernel for few sequences, which sums in another order.
  layout.declared = larger_of(layout.declared, limits_of(c.problem));
  const int seqs = static_cast<int>(c.problem.seqs.size());
  for (int s = 0; s < seqs; s += 1 + seqs / kMostAlone) {
    if (c.problem.seqs[s].n_q == 0) continue;
    const std::string text = difference(run(backend, alone(c.problem, s), layout, machine),
                                        rows_of(first, c.problem.spec, at[s], at[s + 1]),
                                        "when sequence " + std::to_string(s) + " is alone");
    if (!text.empty()) return text;
  }
  return {};
}

/// Other page sizes that the backend serves the problem with, and the other plain layout, which pages of
/// packed elements keep on a GPU; only the latter if there is a single page size.
std::string other_pages(AttentionBackend& backend, const Case& c, const Output& first, Machine& machine) {
  const Capability& capability = backend.info().capability;
  std::vector<int> sizes;
  const auto serves = [&](int page) {
    AttentionSpec spec = c.problem.spec;
    spec.page_size = page;
    return validate(backend.info(), spec, machine.device(), c.problem.phase).empty();
  };
  for (const int page : {1, 16, 3, 64, 128, 32, 544})
    if (page != c.problem.spec.page_size && capability.page_sizes.has(page) && serves(page) &&
        sizes.size() < 2)
      sizes.push_back(page);
  if (sizes.empty()) sizes = {c.problem.spec.page_size};
  for (const int page : sizes) {
    Problem other = c.problem;
    other.spec.page_size = page;
    Layout layout = c.layout;
    layout.shuffle += static_cast<uint64_t>(page);
    layout.page_lists = !layout.page_lists;
    // GPU kernels also read rows of a ragged tensor.
    layout.ragged = page == 1 && !c.layout.ragged && machine.device().kind != DeviceKind::cpu;
    const bool packed = layout.kv == KvLayout::x_packed || layout.kv == KvLayout::shuffle;
    if (page == sizes.back() && !(packed && machine.device().kind != DeviceKind::cpu))
      layout.kv = layout.kv == KvLayout::nhd ? KvLayout::hnd : KvLayout::nhd;
    // Layouts with runs of x slots need page sizes that are multiples of x.
    if (!check_layout(layout.kv, kv_dtype_of(other.spec), page, other.spec.head_dim))
      layout.kv = KvLayout::x_packed;
    const std::string text = difference(
        run(backend, other, layout, machine), first,
        "with page size " + std::to_string(page) + " and layout " + std::string(to_string(layout.kv)));
    if (!text.empty()) return text;
  }
  return {};
}

std::string in_pieces(AttentionBackend& backend, const Case& c, const Output& first, Phase single_rows,
                      Machine& machine) {
  const std::vector<int64_t> at = offsets(c.problem);
  for (int s = 0; s < static_cast<int>(c.problem.seqs.size()); ++s) {
    const Sequence& seq = c.problem.seqs[s];
    if (seq.n_q < 2 || seq.n_q > seq.n_k) continue;
    const Output want = rows_of(first, c.problem.spec, at[s], at[s + 1]);
    for (const int chunk : {seq.n_q > 12 ? 7 : 1, (seq.n_q + 1) / 2}) {
      const std::string text =
          difference(in_chunks(backend, c.problem, s, chunk, c.layout, single_rows, machine), want,
                     "of sequence " + std::to_string(s) + " in chunks of " + std::to_string(chunk));
      if (!text.empty()) return text;
    }
  }
  return {};
}

/// Sequences that decode several rows, as a step that verifies drafts does: each has the bits of a step of
/// its own, up to as many as decode kernels take.
std::string in_single_rows(AttentionBackend& backend, const Case& c, const Output& first, Machine& machine) {
  constexpr int kMostRows = 16;
  const Capability& capability = backend.info().capability;
  const MaskSpec& mask = c.problem.spec.mask;
  // Where a row sees no later keys, and what it sees does not depend on the rows beside it.
  const bool alike = mask.causal && mask.window_right < 0 && !mask.spans && !mask.packed && !mask.tree;
  if (c.problem.phase != Phase::decode || !alike || !capability.features.has(Feature::verify)) return {};
  const std::vector<int64_t> at = offsets(c.problem);
  for (int s = 0; s < static_cast<int>(c.problem.seqs.size()); ++s) {
    const Sequence& seq = c.problem.seqs[s];
    if (seq.n_q < 2 || seq.n_q > std::min(seq.n_k, kMostRows)) continue;
    const std::string text = difference(in_chunks(backend, c.problem, s, 1, c.layout, Phase::decode, machine),
                                        rows_of(first, c.problem.spec, at[s], at[s + 1]),
                                        "of sequence " + std::to_string(s) + " in steps of one row");
    if (!text.empty()) return text;
  }
  return {};
}

}  // namespace

Pools::Host& Pools::host(int threads) {
  auto& host = hosts_[threads];
  if (host == nullptr) host = std::make_unique<Host>(threads);
  return *host;
}

ThreadPool& Pools::of(int threads) {
  return host(threads).pool;
}

Machine& Pools::machine(int threads) {
  return gpu_ != nullptr ? *gpu_ : host(threads).machine;
}

Output rows_of(const Output& all, const AttentionSpec& spec, int64_t first, int64_t last) {
  Output out;
  out.error = all.error;
  if (!out.error.empty()) return out;
  const int64_t width = int64_t{spec.num_heads} * spec.v_head_dim;
  out.o.assign(all.o.begin() + first * width, all.o.begin() + last * width);
  if (!all.lse.empty())
    out.lse.assign(all.lse.begin() + first * spec.num_heads, all.lse.begin() + last * spec.num_heads);
  return out;
}

Output in_chunks(AttentionBackend& backend, const Problem& problem, int s, int chunk, const Layout& layout,
                 Phase single_rows, Machine& machine) {
  Output out;
  const int n = problem.seqs[s].n_q;
  for (int first = 0; first < n; first += chunk) {
    Problem part = chunk_of(problem, s, first, std::min(n, first + chunk));
    part.phase = chunk == 1 ? single_rows : Phase::prefill;
    Layout other = layout;
    other.shuffle += static_cast<uint64_t>(first) + 7;
    other.declared = larger_of(layout.declared, limits_of(alone(problem, s)));
    append(out, run(backend, part, other, machine));
  }
  return out;
}

std::string find_change(Invariance level, AttentionBackend& backend, const Case& c, const Output& first,
                        Pools& pools) {
  Machine& machine = pools.machine(c.threads);
  switch (level) {
    case Invariance::run: {
      const Output second = run(backend, c.problem, c.layout, machine);
      return difference(second, first, "in a second run") +
             difference(run(backend, c.problem, c.layout, machine), first, "in a third run");
    }
    case Invariance::batch: {
      const std::string alone = without_company(backend, c, first, machine);
      return alone.empty() ? in_single_rows(backend, c, first, machine) : alone;
    }
    case Invariance::page_size: return other_pages(backend, c, first, machine);
    case Invariance::prefill_chunks: return in_pieces(backend, c, first, Phase::prefill, machine);
    case Invariance::chunking: return in_pieces(backend, c, first, Phase::decode, machine);
    case Invariance::threads: {
      const int others = c.threads == 1 ? 3 : 1;
      return difference(run(backend, c.problem, c.layout, pools.machine(others)), first,
                        "with " + std::to_string(others) + " threads");
    }
    case Invariance::count_: break;
  }
  FOVEA_CHECK(false);
  return {};
}

}  // namespace fovea::conformance
