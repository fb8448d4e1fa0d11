// The prover must detect false claims and broken kernels.
#include "conformance/prove.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "backends/cpu_attn/cpu_attn.h"
#include "backends/torch_native/torch_native.h"
#include "base/thread_pool.h"
#include "conformance/case_space.h"
#include "conformance/mutant.h"
#include "conformance/prover.h"

namespace fovea::conformance {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// CPU_ATTN with few sizes, so that a run takes a second.
const BackendInfo& small_claims() {
  static const BackendInfo info = [] {
    BackendInfo small = cpu_attn_info();
    small.capability.head_dims = small.capability.v_head_dims = {64, 72};
    small.capability.page_sizes = {7, 16, 64};
    small.capability.gqa_ratios = {1, 2, 3, 5};
    return small;
  }();
  return info;
}

/// The same, with a defect.
template <class Break>
BackendRegistry::Factory broken(Break defect) {
  return [defect]() -> std::unique_ptr<AttentionBackend> {
    auto mutant = std::make_unique<Mutant>(make_cpu_attn());
    mutant->claims = &small_claims();
    defect(*mutant);
    return mutant;
  };
}

std::unique_ptr<AttentionBackend> make_small() {
  return broken([](Mutant&) {})();
}

BackendReport prove_quickly(const BackendInfo& info, const BackendRegistry::Factory& create) {
  ProveOptions options;
  options.quick = true;
  options.threads = 2;
  auto report = prove(info, create, options);
  EXPECT_TRUE(report) << report.error().message;
  return *std::move(report);
}

std::vector<std::string> cells_with(const BackendReport& report, CellStatus status) {
  std::vector<std::string> ids;
  for (const CellProof& cell : report.proof.cells)
    if (cell.status == status) ids.push_back(cell.cell);
  return ids;
}

const CellProof& cell_of(const BackendReport& report, const std::string& id) {
  const auto at = std::find_if(report.proof.cells.begin(), report.proof.cells.end(),
                               [&](const CellProof& cell) { return cell.cell == id; });
  EXPECT_NE(at, report.proof.cells.end()) << id;
  return *at;
}

/// The case of the same number fails again with the broken kernel, and passes with the correct one.
void expect_replay(const BackendInfo& info, const BackendRegistry::Factory& broken,
                   const BackendRegistry::Factory& whole, const CaseFailure& failure) {
  ProveOptions options;
  options.replay = failure.number;
  options.only_cell = failure.fixed;
  const auto again = prove(info, broken, options);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->failed_cases, 1);
  const auto right = prove(info, whole, options);
  ASSERT_TRUE(right) << right.error().message;
  EXPECT_EQ(right->cases, 1);
  EXPECT_EQ(right->failed_cases, 0);
}

TEST(Prove, EveryCellOfABackendThatIsRight) {
  const BackendInfo& info = small_claims();
  const BackendReport report = prove_quickly(info, make_small);
  EXPECT_THAT(report.failures, ::testing::IsEmpty());
  const std::vector<Cell> all = cells(info.capability);
  ASSERT_EQ(report.proof.cells.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const CellProof& cell = report.proof.cells[i];
    EXPECT_EQ(cell.cell, all[i].id());
    EXPECT_EQ(cell.status, all[i].claimed ? CellStatus::proven : CellStatus::refused)
        << cell.cell << cell.reason;
    EXPECT_GE(cell.cases, all[i].claimed ? cases_needed(true) : 0) << cell.cell;
    EXPECT_EQ(cell.reason.empty(), all[i].claimed) << cell.cell;
  }
  EXPECT_EQ(cell_of(report, "head_dims=80").reason, "head_size not supported");
  EXPECT_EQ(cell_of(report, "gqa_ratios=4").reason, "GQA ratio 4 not supported");
  EXPECT_GT(report.worst.o, 0);
}

TEST(Prove, CasesMeetEveryPairThatMayBe) {
  const CaseSpace space(cpu_attn_info(), {});
  std::vector<Levels> unmet;
  EXPECT_GT(space.rows(1, {}, &unmet).size(), 400u);
  for (const Levels& pair : unmet) {
    if (!space.allowed(pair)) continue;  // the two exclude each other
    // Spans and trees need a causal mask, which only decoders have: a constraint on three knobs.
    const auto set = [&](Knob knob) { return pair[static_cast<size_t>(knob)] > 0; };
    EXPECT_TRUE(set(Knob::type) && (set(Knob::spans) || set(Knob::tree))) << space.describe(pair);
  }
}

TEST(Prove, IsTheSameOnAnyNumberOfThreads) {
  ProveOptions options;
  options.quick = true;
  options.only_cell = Cell{"head_dims", "72", true};
  options.threads = 1;
  const auto one = prove(small_claims(), make_small, options);
  options.threads = 3;
  const auto three = prove(small_claims(), make_small, options);
  ASSERT_TRUE(one && three);
  EXPECT_TRUE(one->proof == three->proof);
  ASSERT_EQ(one->proof.cells.size(), 1u);
  EXPECT_EQ(one->proof.cells[0].cell, "head_dims=72");
}

TEST(Prove, AFailureThatBlamesNoCellIsOne) {  // as for a case where no row sees a key
  BackendReport report;
  EXPECT_TRUE(report.all_right());
  report.failed_cases = 1;
  EXPECT_FALSE(report.all_right());
  report = {};
  report.failures.emplace_back();
  EXPECT_FALSE(report.all_right());
  report = {};
  for (const CellStatus status : {CellStatus::failed, CellStatus::too_few}) {
    report.proof.cells = {{"window=yes", status, 1, {}, {}, 0, 0, "wrong"}};
    EXPECT_FALSE(report.all_right());
  }
}

TEST(Prove, ACaseThatDoesNotExistIsBadInput) {
  ProveOptions options;
  options.replay = 16 << 12;
  const auto report = prove(small_claims(), make_small, options);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("case 65536 does not exist for CPU_ATTN"));
}

/// A CPU machine that reports a lost device in one of its sessions.
class LostMachine : public Machine {
 public:
  LostMachine(ThreadPool& pool, int sessions) : host_(pool), left_(sessions) {}
  const DeviceInfo& device() const override { return host_.device(); }
  Result<std::unique_ptr<DeviceSession>> open_session() override {
    if (!fault_) return unsupported("not run");
    if (--left_ == 0) fault_ = Error{ErrorCode::internal, "illegal address"};
    if (!fault_) return fault_.error();
    return host_.open_session();
  }
  Status fault() const override { return fault_; }

 private:
  HostMachine host_;
  int left_;
  Status fault_;
};

TEST(Prove, StopsWhenTheDeviceIsLostAndNamesTheCase) {
  ThreadPool pool(1);
  LostMachine machine(pool, 20);
  ProveOptions options;
  options.quick = true;
  options.threads = 1;
  options.machine = &machine;
  const auto report = prove(small_claims(), make_small, options);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message, HasSubstr("CPU_ATTN: case 655"));
  EXPECT_THAT(report.error().message,
              HasSubstr("made the GPU unusable: illegal address; run compute-sanitizer"));
}

/// A CPU machine with one session at a time, as on a GPU.
class SharedMachine : public Machine {
 public:
  explicit SharedMachine(ThreadPool& pool) : host_(pool) {}
  const DeviceInfo& device() const override { return host_.device(); }
  Result<std::unique_ptr<DeviceSession>> open_session() override {
    std::unique_lock lock(mutex_);
    FOVEA_TRY(inner, host_.open_session());
    return std::unique_ptr<DeviceSession>(std::make_unique<Locked>(std::move(inner), std::move(lock)));
  }

 private:
  struct Locked : DeviceSession {
    Locked(std::unique_ptr<DeviceSession> t, std::unique_lock<std::mutex> l)
        : inner(std::move(t)), lock(std::move(l)) {}
    Stream& stream() override { return inner->stream(); }
    Result<std::byte*> room(size_t bytes) override { return inner->room(bytes); }
    Result<const std::byte*> put(const void* host, size_t bytes) override { return inner->put(host, bytes); }
    Result<const std::byte*> put_parts(const std::byte* host, size_t bytes,
                                       std::span<const ByteRange> used) override {
      return inner->put_parts(host, bytes, used);
    }
    Status write(std::byte* device, const void* host, size_t bytes) override {
      return inner->write(device, host, bytes);
    }
    Result<const std::byte*> get(const std::byte* device, size_t bytes) override {
      return inner->get(device, bytes);
    }
    Status record(std::function<Status(Stream&)> work) override { return inner->record(std::move(work)); }
    Status replay() override { return inner->replay(); }
    Status finish() override {
      lock.unlock();
      return inner->finish();
    }
    std::unique_ptr<DeviceSession> inner;
    std::unique_lock<std::mutex> lock;
  };
  HostMachine host_;
  std::mutex mutex_;
};

TEST(Prove, IsTheSameOnOneMachineForAllThreads) {
  ThreadPool pool(1);
  SharedMachine machine(pool);
  ProveOptions options;
  options.quick = true;
  options.threads = 4;
  options.only_cell = Cell{"window", "yes", true};
  const auto each = prove(small_claims(), make_small, options);
  options.machine = &machine;
  const auto shared = prove(small_claims(), make_small, options);
  ASSERT_TRUE(each && shared);
  EXPECT_TRUE(each->proof == shared->proof);
}

// --- What ran

/// small_claims() as claims of these kernel families.
BackendInfo claims_of(std::vector<std::string_view> families) {
  BackendInfo info = small_claims();
  info.families = std::move(families);
  return info;
}

/// CPU_ATTN, whose kernels are reported as family "own" except where `borrows` is true.
struct Renamed : Mutant {
  using Borrows = bool (*)(const AttentionSpec&, Phase);
  Renamed(const BackendInfo& info, Borrows borrow) : Mutant(make_cpu_attn()), borrows(borrow) {
    claims = &info;
  }
  struct Named : Plan {
    std::unique_ptr<Plan> plan;
    bool borrowed = false;
    std::string corner;  ///< the name of borrowed kernels of the own family
    std::vector<KernelName> launched() const override {
      std::vector<KernelName> names = plan->launched();
      for (KernelName& name : names) {
        name.family = borrowed && corner.empty() ? "borrowed" : "own";
        if (borrowed && !corner.empty()) name.instance = corner;
      }
      return names;
    }
  };
  Result<std::unique_ptr<Plan>> plan(const AttentionSpec& s, const AttentionLimits& limits,
                                     const BatchMeta& meta_, Workspace workspace, Stream& stream) override {
    auto named = std::make_unique<Named>();
    FOVEA_TRY(made, Mutant::plan(s, limits, meta_, workspace, stream));
    named->plan = std::move(made);
    named->borrowed = borrows(s, meta_.phase);
    if (corner != nullptr) named->corner = corner(s);
    return std::unique_ptr<Plan>(std::move(named));
  }
  Status forward(Forward which, const Plan& plan, const AttentionArgs& args, Stream& stream) override {
    return Mutant::forward(which, *static_cast<const Named&>(plan).plan, args, stream);
  }
  Status check_plan(const Plan& plan, int64_t pages, Stream& stream) override {
    return Mutant::check_plan(*static_cast<const Named&>(plan).plan, pages, stream);
  }
  Borrows borrows;
  std::string (*corner)(const AttentionSpec&) = nullptr;
};

TEST(WhatRan, CellsThatOnlyAnotherFamilyServesAreItsOwn) {
  static const BackendInfo info = claims_of({"own"});
  const BackendReport report = prove_quickly(info, [] {
    return std::make_unique<Renamed>(info, [](const AttentionSpec& s, Phase phase) {
      return s.mask.spans || (phase == Phase::decode && s.head_dim == 72);
    });
  });
  EXPECT_THAT(report.failures, ::testing::IsEmpty());
  const CellProof& spans = cell_of(report, "spans=yes");
  EXPECT_EQ(spans.status, CellStatus::other_kernels);
  EXPECT_THAT(spans.reason, HasSubstr("prefill: kernels of borrowed"));
  EXPECT_FALSE(spans.prefill.contains("own"));
  const CellProof& head = cell_of(report, "head_dims=72");
  EXPECT_EQ(head.status, CellStatus::other_kernels);
  EXPECT_EQ(head.reason, "decode: kernels of borrowed");
  EXPECT_GE(head.prefill.at("own"), 1);
  EXPECT_EQ(cell_of(report, "window=yes").status, CellStatus::proven);
  EXPECT_GE(cell_of(report, "window=yes").decode.at("own"), cases_needed_of_phase(true));
}

TEST(WhatRan, ARowWhoseKernelsNeverRunProvesNothing) {
  static const BackendInfo info = claims_of({"own"});
  const BackendReport report = prove_quickly(
      info, [] { return std::make_unique<Renamed>(info, [](const AttentionSpec&, Phase) { return true; }); });
  EXPECT_EQ(report.count(CellStatus::other_kernels) > 0, true);
  for (const CellProof& cell : report.proof.cells)
    EXPECT_NE(cell.cell == "dtypes=float16" ? cell.status : CellStatus::other_kernels, CellStatus::proven)
        << cell.cell;
}

/// The same, with separate kernel names for a corner of the claims, one for each dtype and head size.
struct Cornered : Renamed {
  explicit Cornered(const BackendInfo& info) : Renamed(info, in_corner) { corner = name; }
  static bool in_corner(const AttentionSpec& s, Phase phase) {
    return phase == Phase::decode && s.softcap == 3.0f && s.scale < 0;
  }
  static std::string name(const AttentionSpec& s) {
    return "corner " + std::string(to_string(s.dtype)) + " D=" + std::to_string(s.head_dim);
  }
  std::vector<KernelName> kernels(const DeviceInfo&) const override {
    std::vector<KernelName> names;
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const int d : {64, 72}) {
        AttentionSpec s;
        s.dtype = dtype, s.head_dim = d;
        names.push_back({"own", name(s), 0, 0});
      }
    return names;
  }
};

TEST(WhatRan, KernelsThatNoArrayReachesAreSearchedFor) {
  static const BackendInfo info = [] {
    BackendInfo few = claims_of({"own"});
    few.capability.dtypes = {DType::f16, DType::bf16};
    few.capability.head_dims = few.capability.v_head_dims = {64, 72};
    few.capability.kv_dtypes = {KvCacheDType::auto_};
    few.capability.features = {Feature::softcap};
    few.capability.gqa_ratios = {1};
    few.capability.page_sizes = {16};
    return few;
  }();
  ProveOptions options;
  options.threads = 2;
  const auto report = prove(info, [] { return std::make_unique<Cornered>(info); }, options);
  ASSERT_TRUE(report);
  for (const CaseFailure& failure : report->failures)
    ADD_FAILURE() << failure.what;
}

TEST(WhatRan, TheSearchTurnsBothHeadSizesAndTheDtypeOfACacheThatNamesIt) {
  BackendInfo info = small_claims();
  info.capability.dtypes = {DType::f16, DType::bf16};
  info.capability.kv_dtypes = {KvCacheDType::auto_, KvCacheDType::float16, KvCacheDType::bfloat16};
  info.capability.head_dims = info.capability.v_head_dims = {64, 96, 128};
  const CaseSpace space(info, {});
  const auto name_cache = [&](const Levels& row) {
    for (Levels& next : space.neighbours(row, Levels(row.size(), kUnset), Knob::kv_dtype))
      if (space.describe(next).find("KV dtype float16") != std::string::npos) return std::move(next);
    return row;
  };
  const Levels row = name_cache(space.plain());
  ASSERT_NE(row, space.plain());
  std::set<std::string> found;
  for (const Levels& next : turned(space, row)) {
    EXPECT_TRUE(space.allowed(next));
    found.insert(space.describe(next));
  }
  for (const char* what :
       {"dtype bfloat16", "dtype bfloat16, KV dtype bfloat16", "dtype bfloat16, head size 96",
        "KV dtype float16, head size 96, V head size 128", "dtype bfloat16, head size 96, V head size 128"})
    EXPECT_TRUE(found.contains(what)) << what;
}

TEST(WhatRan, CasesOfOneNumberHaveTheSameLengthsInOtherMemory) {
  const CaseSpace space(small_claims(), {});
  int others = 0;
  uint64_t number = 0;
  for (const Levels& row : space.rows(3)) {
    const Case one = space.make(row, ++number);
    for (const Levels& next : of_the_same_lengths(space, row)) {
      const Case other = space.make(next, number);
      ASSERT_EQ(other.problem.seqs.size(), one.problem.seqs.size());
      for (size_t b = 0; b < one.problem.seqs.size(); ++b) {
        EXPECT_EQ(other.problem.seqs[b].n_q, one.problem.seqs[b].n_q) << space.describe(next);
        EXPECT_EQ(other.problem.seqs[b].n_k, one.problem.seqs[b].n_k) << space.describe(next);
      }
      EXPECT_NE(other.fingerprint(), one.fingerprint()) << space.describe(next);
      ++others;
    }
    if (number == 8) break;
  }
  EXPECT_GT(others, 40);
}

TEST(WhatRan, IsRecordedByKernel) {
  const BackendReport report = prove_quickly(small_claims(), make_small);
  EXPECT_EQ(report.proof.cases, report.cases);
  ASSERT_FALSE(report.proof.kernels.empty());
  int64_t split = 0;
  for (const KernelProof& kernel : report.proof.kernels) {
    EXPECT_EQ(kernel.family, "cpu");
    EXPECT_GE(kernel.cases, 1);
    EXPECT_GE(kernel.cells, 10);
    EXPECT_LE(kernel.least, kernel.cases);
    split += kernel.split_cases;
  }
  EXPECT_GT(split, 0);
}

TEST(WhatRan, AComposedCaseIsFoundAgainByItsRow) {
  const CaseSpace space(small_claims(), {});
  Levels row = space.rows(3)[5];
  const auto again = space.parse_code(space.code(row));
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, row);
  EXPECT_FALSE(space.parse_code("zz"));
  ProveOptions options;
  options.replay = 77;
  options.replay_row = space.code(row);
  const auto report = prove(small_claims(), make_small, options);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->cases, 1);
  options.replay_row += "0";
  const auto refused = prove(small_claims(), make_small, options);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("is not a row of CPU_ATTN"));
}

// --- Claims that the kernel does not fulfil

TEST(WrongTick, AHeadSizeIsNamedWithItsCase) {
  BackendInfo info = small_claims();
  info.capability.head_dims = info.capability.v_head_dims = {64, 72, 576};
  const BackendReport report = prove_quickly(info, make_small);
  EXPECT_THAT(cells_with(report, CellStatus::failed),
              ::testing::UnorderedElementsAre("head_dims=576", "v_head_dims=576"));
  ASSERT_FALSE(report.failures.empty());
  const CaseFailure& failure = report.failures.front();
  EXPECT_GT(failure.number, 0u);
  EXPECT_THAT(failure.cells, Contains("head_dims=576"));
  EXPECT_THAT(failure.what, HasSubstr("head_size not supported"));
  EXPECT_EQ(failure.levels, "head size 576");
  EXPECT_THAT(cell_of(report, "head_dims=576").reason, HasSubstr(std::to_string(failure.number)));
}

TEST(WrongTick, WhatNoCaseCanHaveIsNamed) {
  BackendInfo info = small_claims();
  info.capability.kv_dtypes.insert(KvCacheDType::int4_per_token_head);
  info.capability.graph = GraphSupport::uniform_single_token_decode;
  const BackendReport report = prove_quickly(info, make_small);
  EXPECT_THAT(
      cells_with(report, CellStatus::failed),
      ::testing::UnorderedElementsAre("kv_dtypes=int4_per_token_head", "graph=UNIFORM_SINGLE_TOKEN_DECODE"));
  EXPECT_THAT(cell_of(report, "kv_dtypes=int4_per_token_head").reason,
              HasSubstr("kv_cache_dtype not supported"));
  EXPECT_THAT(cell_of(report, "graph=UNIFORM_SINGLE_TOKEN_DECODE").reason,
              HasSubstr("can't be captured in a graph"));
}

TEST(WrongTick, WhatIsNotClaimedMustBeRefusedByTheBackendToo) {
  BackendInfo info = small_claims();
  info.capability.features = info.capability.features.without({Feature::alibi, Feature::window});
  const BackendReport report = prove_quickly(info, make_small);
  // validate() follows the row and refuses them; the kernel does not check, and plans.
  EXPECT_THAT(cell_of(report, "alibi=yes").reason, HasSubstr("workspace_bytes() accepts it"));
  EXPECT_THAT(cells_with(report, CellStatus::failed), Contains("window=yes"));
}

TEST(WrongTick, Fp64ThatIsFp32) {
  static const BackendInfo info = [] {
    BackendInfo small = torch_native_info();
    small.capability.head_dims = small.capability.v_head_dims = {64, 72};
    small.capability.page_sizes = {7, 16};
    small.capability.gqa_ratios = {1, 2};
    return small;
  }();
  for (const bool exact : {true, false}) {
    const BackendReport report = prove_quickly(info, [exact] {
      auto mutant = std::make_unique<Mutant>(make_torch_native());
      mutant->claims = &info;
      if (!exact) mutant->spec = [](AttentionSpec& s) { s.fp64_accumulate = false; };
      return mutant;
    });
    EXPECT_EQ(cells_with(report, CellStatus::failed),
              exact ? std::vector<std::string>() : std::vector<std::string>{"fp64_accumulate=yes"});
  }
}

// --- Kernels that are wrong

TEST(BrokenKernel, AWindowThatIsOneKeyShort) {
  const auto create = broken([](Mutant& m) {
    m.spec = [](AttentionSpec& s) {
      if (s.mask.window_left > 0) --s.mask.window_left;
    };
  });
  const BackendReport report = prove_quickly(small_claims(), create);
  const auto failed = cells_with(report, CellStatus::failed);
  EXPECT_THAT(failed, Contains("window=yes"));
  EXPECT_THAT(failed, Not(Contains("softcap=yes")));
  EXPECT_THAT(failed, Not(Contains("dtypes=bfloat16")));
  ASSERT_FALSE(report.failures.empty());
  EXPECT_THAT(report.failures.front().cells, Contains("window=yes"));
  EXPECT_THAT(report.failures.front().what, HasSubstr("window"));
  expect_replay(small_claims(), create, make_small, report.failures.front());
}

TEST(BrokenKernel, AReadOfTheSlotAfterTheLast) {
  const auto create = broken([](Mutant& m) {
    m.meta = [](const AttentionSpec& s, BatchMeta&, Mutant::Step& step) {
      for (int32_t& n : step.kv_lens)
        if (n % s.page_size != 0) ++n;
    };
  });
  const BackendReport report = prove_quickly(small_claims(), create);
  ASSERT_FALSE(report.failures.empty());
  EXPECT_GT(report.count(CellStatus::failed), 10);
  expect_replay(small_claims(), create, make_small, report.failures.front());
}

TEST(BrokenKernel, ANeighboursPage) {
  const auto create = broken([](Mutant& m) {
    m.meta = [](const AttentionSpec&, BatchMeta& meta, Mutant::Step& step) {
      const auto stride = static_cast<size_t>(meta.page_table_stride);
      for (size_t b = 1; b < step.kv_lens.size() && !step.page_table.empty(); ++b) {
        const int32_t neighbours = step.page_table[(b - 1) * stride];
        // Ids past the end are garbage.
        if (step.kv_lens[b] > 0 && neighbours >= 0 && neighbours < (1 << 20))
          step.page_table[b * stride] = neighbours;
      }
    };
  });
  const BackendReport report = prove_quickly(small_claims(), create);
  ASSERT_FALSE(report.failures.empty());
  EXPECT_GT(report.failures.front().number, 0u);
  EXPECT_GT(report.count(CellStatus::failed), 10);
}

TEST(BrokenKernel, ABitThatDependsOnTheBatch) {
  const auto create = broken([](Mutant& m) {
    m.after = [&m](const AttentionArgs& args) {
      if (m.num_seqs == 1 && args.lse != nullptr) args.lse[0] += args.lse[0] * 0x1p-22f;
    };
  });
  const BackendReport report = prove_quickly(small_claims(), create);
  EXPECT_THAT(cells_with(report, CellStatus::failed), Contains("invariance=batch"));
  EXPECT_THAT(cells_with(report, CellStatus::failed), Not(Contains("window=yes")));
  EXPECT_THAT(cells_with(report, CellStatus::failed), Not(Contains("invariance=page_size")));
}

TEST(BrokenKernel, ASoftCapThatIsIgnored) {
  const auto create = broken([](Mutant& m) { m.spec = [](AttentionSpec& s) { s.softcap = 0; }; });
  const BackendReport report = prove_quickly(small_claims(), create);
  EXPECT_EQ(cells_with(report, CellStatus::failed), std::vector<std::string>{"softcap=yes"});
}

}  // namespace
}  // namespace fovea::conformance
