#include "compat/pages/marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "fovea/attention_backend.h"

namespace fovea::docs {
namespace {

using conformance::CellProof;
using conformance::CellStatus;
using conformance::Proof;
using testing::HasSubstr;

const Column& column(std::string_view id) {
  return *std::ranges::find(columns(), id, &Column::id);
}

/// Claims windows and no sinks; its documentation does not mention ALiBi.
BackendInfo example() {
  BackendInfo info;
  info.name = "EXAMPLE";
  info.capability.dtypes = {DType::f16, DType::bf16};
  info.capability.features = {Feature::window};
  info.capability.unstated = {Feature::alibi};
  return info;
}

CellProof cell(std::string id, CellStatus status) {
  CellProof proof;
  proof.cell = std::move(id);
  proof.status = status;
  return proof;
}

Proof proof(std::string device, std::vector<CellProof> cells, std::string backend = "EXAMPLE") {
  Proof p;
  p.device_name = device;
  p.device = std::move(device);
  p.backends.emplace_back();
  p.backends.back().name = std::move(backend);
  p.backends.back().cells = std::move(cells);
  return p;
}

Mark mark(std::string_view id, const std::vector<Proof>& proofs) {
  return column_marks(example(), column(id), proofs).overall();
}

std::string stale(const Proof& p) {
  static const BackendInfo info = example();
  BackendRegistry registry;
  registry.add(info, [] { return nullptr; });
  const Status status = check_proofs(std::span(&p, 1), registry);
  return status ? "" : status.error().message;
}

TEST(Marks, CasesOnAnotherFamilysKernelsAreMarkedAsSuch) {
  const Proof gpu = proof("sm90", {cell("window=yes", CellStatus::other_kernels)});
  EXPECT_EQ(mark("window", {gpu}), Mark::proven_by_others);
  EXPECT_EQ(mark("window", {gpu, proof("cpu", {cell("window=yes", CellStatus::proven)})}), Mark::proven);
  EXPECT_EQ(mark("window", {gpu, proof("cpu", {cell("window=yes", CellStatus::failed)})}), Mark::failed);
}

TEST(Marks, ARowThatSharesAProofHasItsCells) {
  Proof p = proof("sm90", {cell("window=yes", CellStatus::proven)}, "OTHER");
  p.backends.emplace_back();
  p.backends.back().name = "EXAMPLE";
  EXPECT_EQ(mark("window", {p}), Mark::declared);
  p.backends.back().same_as = "OTHER";
  EXPECT_EQ(mark("window", {p}), Mark::proven);
}

TEST(Marks, WithoutProofAClaimIsDeclared) {
  EXPECT_EQ(mark("window", {}), Mark::declared);
  EXPECT_EQ(mark("sink", {}), Mark::refused);
  EXPECT_EQ(mark("alibi", {}), Mark::unstated);
  EXPECT_EQ(mark("window", {proof("sm90", {cell("window=yes", CellStatus::too_few)})}), Mark::declared);
}

TEST(Marks, OneMachineProvesAndOneMachineSpoils) {
  const Proof passed = proof("cpu", {cell("window=yes", CellStatus::proven)});
  const Proof failed = proof("sm90", {cell("window=yes", CellStatus::failed)});
  EXPECT_EQ(mark("window", {passed}), Mark::proven);
  EXPECT_EQ(mark("window", {passed, failed}), Mark::failed);
  EXPECT_EQ(mark("window", {failed, passed}), Mark::failed);
  EXPECT_EQ(mark("window", {proof("cpu", {cell("window=yes", CellStatus::proven)}, "OTHER")}),
            Mark::declared);
}

TEST(Marks, AColumnIsAsGoodAsItsWorstClaim) {
  const Proof half = proof("cpu", {cell("dtypes=float16", CellStatus::proven)});
  EXPECT_EQ(mark("dtypes", {half}), Mark::declared);
  const Proof whole =
      proof("cpu", {cell("dtypes=float16", CellStatus::proven), cell("dtypes=bfloat16", CellStatus::proven)});
  EXPECT_EQ(mark("dtypes", {whole}), Mark::proven);
  const auto marks = column_marks(example(), column("dtypes"), {});
  EXPECT_EQ(std::ranges::count(marks.values, Mark::refused, &ColumnMarks::Value::mark), 1);  // float32
}

TEST(Marks, AProvenValueSaysWhere) {
  Proof gpu = proof("sm90", {cell("window=yes", CellStatus::proven), cell("sink=yes", CellStatus::proven)});
  gpu.device_name = "NVIDIA H200";
  const Proof cpu = proof("cpu", {cell("window=yes", CellStatus::proven)});
  const auto where = [&](std::string_view id, const std::vector<Proof>& proofs) {
    return column_marks(example(), column(id), proofs).values.front().where;
  };
  EXPECT_EQ(where("window", {}), "");
  EXPECT_EQ(where("window", {gpu}), "H200");
  EXPECT_EQ(where("window", {cpu, gpu}), "CPU, H200");
  EXPECT_EQ(where("sink", {gpu}), "");  // is no longer claimed
}

TEST(Marks, StaleCellsOfAGpuProveNothing) {
  const Proof gpu =
      proof("sm90", {cell("window=yes", CellStatus::refused), cell("sink=yes", CellStatus::proven),
                     cell("no_column=yes", CellStatus::proven), cell("dtypes=float16", CellStatus::proven)});
  EXPECT_EQ(stale(gpu), "");
  EXPECT_EQ(mark("window", {gpu}), Mark::declared);
  EXPECT_EQ(mark("sink", {gpu}), Mark::refused);
  const BackendInfo info = example();
  EXPECT_EQ(count_stale(gpu.backends[0], &info), 3);
  EXPECT_EQ(count_stale(gpu.backends[0], nullptr), 4);
}

TEST(Marks, ProofsOfTheCpuOlderThanTheTablesAreErrors) {
  EXPECT_EQ(stale(proof("cpu", {cell("window=yes", CellStatus::proven), cell("sink=yes", CellStatus::refused),
                                cell("dtypes=float16", CellStatus::failed)})),
            "");
  EXPECT_THAT(stale(proof("cpu", {cell("window=yes", CellStatus::refused)})),
              HasSubstr("proof/cpu.json is older than the tables: EXAMPLE window=yes was refused"));
  EXPECT_THAT(stale(proof("cpu", {cell("sink=yes", CellStatus::proven)})),
              HasSubstr("EXAMPLE sink=yes was proven but is no longer claimed"));
  EXPECT_THAT(stale(proof("cpu", {cell("no_column=yes", CellStatus::proven)})),
              HasSubstr("no_column=yes no longer exists"));
  EXPECT_THAT(stale(proof("cpu", {}, "GONE")), HasSubstr("GONE is not a backend of this program"));
}

}  // namespace
}  // namespace fovea::docs
