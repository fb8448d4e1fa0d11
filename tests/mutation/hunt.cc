#include "hunt.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>

#include "base/thread_pool.h"
#include "conformance/prepared.h"
#include "conformance/prove.h"

namespace fovea::conformance {
namespace {

// Layout of case numbers, as in prove(); main() confirms it by running prove().
constexpr int kRowBits = 12;
constexpr uint64_t kArraysPerSeed = 16, kArrays = 4, kComposed = 15;

/// Cases prepared at a time; few, since most defects are found by the first case.
constexpr size_t kBatchOfThread = 8;

struct Numbered {
  uint64_t number = 0;
  bool composed = false;  ///< not from a covering array
  Levels levels;
};

/// The first finding of a judgement, which may have many.
std::string shortened(const std::string& judgement) {
  constexpr size_t kMost = 160;
  std::string text = judgement.substr(0, std::min(judgement.find("; "), kMost));
  return text.size() < judgement.size() ? text + "; ..." : text;
}

class Hunt {
 public:
  Hunt(const BackendInfo& info, const BackendRegistry::Factory& create, const HuntOptions& options)
      : info_(info),
        create_(create),
        options_(options),
        space_(info, options.device),
        team_(options.threads) {
    for (int i = 0; i < team_.size(); ++i)
      pools_.emplace_back(options.machine);
  }

  Result<HuntReport> run(const std::vector<const Defect*>& wanted) {
    const auto start = std::chrono::steady_clock::now();
    for (const Defect* d : wanted)
      report_.defects.push_back({d, {}});
    set_isa(isas_of(info_).back());
    // A GPU row has separate kernels for plain cases; rows of a covering array, each with a mask, seldom
    // reach them.
    const bool gpu = options_.machine != nullptr;
    if (gpu) FOVEA_RETURN_IF_ERROR(try_rows(plain_rows()));
    for (uint64_t k = 0; k < kArrays && !done(); ++k)
      FOVEA_RETURN_IF_ERROR(try_rows(array_rows(options_.seed * kArraysPerSeed + k)));
    if (!gpu) FOVEA_RETURN_IF_ERROR(try_rows(plain_rows()));
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  bool done() const {
    return std::ranges::all_of(report_.defects, [](const Hunted& h) { return h.caught.has_value(); });
  }

  std::vector<Numbered> array_rows(uint64_t array) const {
    std::vector<Numbered> rows;
    for (Levels& row : space_.rows(array))
      rows.push_back({array << kRowBits | (rows.size() + 1), false, std::move(row)});
    return rows;
  }

  /// The plainest row of each phase, and all rows that differ from it in one level, phases interleaved.
  std::vector<Numbered> plain_rows() const {
    std::vector<std::vector<Levels>> of_phase;
    for (const Phase phase : {Phase::decode, Phase::prefill}) {
      const auto fixed = space_.fixed_to(phase);
      const auto plainest = fixed ? space_.complete(*fixed, space_.plain()) : std::nullopt;
      if (!plainest) continue;
      of_phase.push_back(space_.neighbours(*plainest, *fixed));
      of_phase.back().insert(of_phase.back().begin(), *plainest);
    }
    std::vector<Numbered> rows;
    const uint64_t first = (options_.seed * kArraysPerSeed + kComposed) << kRowBits;
    for (size_t i = 0, before = 1; rows.size() != before; ++i) {
      before = rows.size();
      for (std::vector<Levels>& phase : of_phase)
        if (i < phase.size()) rows.push_back({first + rows.size() + 1, true, std::move(phase[i])});
    }
    return rows;
  }

  Status try_rows(const std::vector<Numbered>& rows) {
    const size_t batch = kBatchOfThread * static_cast<size_t>(team_.size());
    for (size_t first = 0; first < rows.size() && !done(); first += batch) {
      rows_.assign(rows.begin() + static_cast<std::ptrdiff_t>(first),
                   rows.begin() + static_cast<std::ptrdiff_t>(std::min(rows.size(), first + batch)));
      FOVEA_RETURN_IF_ERROR(try_batch());
    }
    return {};
  }

  Status try_batch() {
    prepare_all();
    if (const auto wrong = attempt_all(nullptr))
      return Error{ErrorCode::internal, info_.label() + " without a defect: case " +
                                            std::to_string(wrong->number) + " (" + wrong->levels +
                                            "): " + wrong->how};
    report_.cases += static_cast<int64_t>(rows_.size());
    for (const bool shared : {false, true})
      FOVEA_RETURN_IF_ERROR(try_defects(shared));
    return {};
  }

  /// Defects that the preparation of cases shares come last: they change the prepared cases.
  Status try_defects(bool shared) {
    for (Hunted& h : report_.defects) {
      if (h.caught || h.defect->shared != shared) continue;
      set_mutation(h.defect->inside);
      if (shared) prepare_all();
      h.caught = attempt_all(h.defect);
      set_mutation(Mutation::none);
      if (options_.machine != nullptr && !options_.machine->fault())
        return Error{ErrorCode::internal, std::string(h.defect->name) + " made the GPU unusable: " +
                                              options_.machine->fault().error().message};
    }
    return {};
  }

  void prepare_all() {
    prepared_.clear();
    prepared_.resize(rows_.size());
    team_.parallel_tasks(static_cast<int64_t>(rows_.size()), [&](int64_t i, int worker) {
      prepared_[i] = prepare(space_.make(rows_[i].levels, rows_[i].number), pools_[worker].of(1));
    });
  }

  /// The first case of the batch whose result is wrong.
  std::optional<Catch> attempt_all(const Defect* defect) {
    std::vector<std::string> failures(rows_.size());
    std::atomic<size_t> found{rows_.size()};
    team_.parallel_tasks(static_cast<int64_t>(rows_.size()), [&](int64_t i, int worker) {
      if (static_cast<size_t>(i) > found) return;
      if (defect != nullptr && defect->sees_more && prepared_[i].c.layout.poison_invisible) return;
      Mutant backend(create_());
      if (defect != nullptr) defect->around(backend);
      failures[i] = attempt(backend, prepared_[i], pools_[worker]).failure;
      if (failures[i].empty()) return;
      for (size_t before = found; static_cast<size_t>(i) < before;)
        if (found.compare_exchange_weak(before, static_cast<size_t>(i))) break;
    });
    if (found == rows_.size()) return {};
    const Numbered& row = rows_[found];
    return Catch{row.number, row.composed ? space_.code(row.levels) : "", space_.describe(row.levels),
                 shortened(failures[found])};
  }

  const BackendInfo& info_;
  const BackendRegistry::Factory& create_;
  const HuntOptions options_;
  CaseSpace space_;
  ThreadPool team_;
  std::deque<Pools> pools_;  // of each thread
  std::vector<Numbered> rows_;
  std::vector<Prepared> prepared_;
  HuntReport report_;
};

}  // namespace

Result<HuntReport> hunt(const BackendInfo& info, const BackendRegistry::Factory& create,
                        const std::vector<const Defect*>& wanted, const HuntOptions& options) {
  return Hunt(info, create, options).run(wanted);
}

}  // namespace fovea::conformance
