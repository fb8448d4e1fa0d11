#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "device/cuda/cuda_graph.h"
#include "device/cuda/cuda_test_support.h"
#include "kernels/cuda/check/narrow.h"
#include "kernels/cuda/check/page_check.h"

namespace fovea::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class PagesOnDevice : public CudaTest {
 protected:
  /// (kind, seq, entry, value)
  std::vector<int32_t> fault_of(PageCheck check, const std::vector<int32_t>& lens,
                                const std::vector<int32_t>& ids, const std::vector<int32_t>& indptr = {},
                                const std::vector<int32_t>& q_offsets = {}) {
    const DeviceBuffer d_lens = upload(lens), d_ids = upload(ids), d_indptr = upload(indptr),
                       d_offsets = upload(q_offsets), fault = poisoned<PageFault>(1);
    check.num_seqs = static_cast<int>(lens.size());
    check.kv_lens = d_lens.as<int32_t>();
    if (!q_offsets.empty()) check.q_offsets = d_offsets.as<int32_t>();
    if (indptr.empty()) {
      check.table = d_ids.as<int32_t>();
    } else {
      check.indptr = d_indptr.as<int32_t>();
      check.indices = d_ids.as<int32_t>();
      check.num_indices = static_cast<int64_t>(ids.size());
    }
    EXPECT_EQ(error_of(launch_page_check(check, fault.as<PageFault>(), stream().handle())), "");
    return download<int32_t>(fault);
  }

  static PageCheck table(int columns, int stride) {
    PageCheck check;
    check.page_size = 16;
    check.num_pages = 100;
    check.table_columns = columns;
    check.table_stride = stride;
    return check;
  }
};

TEST_F(PagesOnDevice, EntriesThatAStepReadsArePages) {
  const int bad = 1 << 30;
  const std::vector<int32_t> ids = {0, 99, bad, bad, bad, bad, bad, bad, 5, 6, 7, bad};
  EXPECT_THAT(fault_of(table(3, 4), {32, 0, 33}, ids), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(fault_of(table(3, 4), {33, 1, 33}, ids), ElementsAre(PageFault::id, 0, 2, bad));
  EXPECT_THAT(fault_of(table(3, 4), {32, 1, 33}, ids), ElementsAre(PageFault::id, 1, 0, bad));
  EXPECT_THAT(fault_of(table(3, 4), {32, 1, 49}, ids), ElementsAre(PageFault::id, 1, 0, bad));
  EXPECT_THAT(fault_of(table(3, 4), {32, -5, 49}, ids), ElementsAre(PageFault::missing, 2, 3, 4));
  PageCheck fewer = table(3, 4);
  fewer.num_pages = 99;
  EXPECT_THAT(fault_of(fewer, {32, 0, 33}, ids), ElementsAre(PageFault::id, 0, 1, 99));
  // Sequences without rows are padding.
  EXPECT_THAT(fault_of(table(3, 4), {33, 48, 33}, ids, {}, {0, 0, 0, 1}), ElementsAre(0, 0, 0, 0));
}

TEST_F(PagesOnDevice, PagesThatAMaskHidesAreArbitrary) {
  const std::vector<int32_t> ids = {-7, 1, 2, 3};
  const auto fault = [&](const MaskSpec& mask, int n_q) {
    PageCheck check = table(4, 4);
    check.mask = mask;
    return fault_of(check, {64}, ids, {}, {0, n_q});
  };
  EXPECT_THAT(fault({}, 1), ElementsAre(PageFault::id, 0, 0, -7));
  EXPECT_THAT(fault({.window_left = 47}, 1), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(fault({.window_left = 48}, 1), ElementsAre(PageFault::id, 0, 0, -7));
  EXPECT_THAT(fault({.window_left = 47}, 2), ElementsAre(PageFault::id, 0, 0, -7));
  EXPECT_THAT(fault({.window_left = 47, .sink_tokens = 1}, 1), ElementsAre(PageFault::id, 0, 0, -7));
  EXPECT_THAT(fault({.window_left = 47, .chunk = 32, .sink_tokens = 1}, 1), ElementsAre(0, 0, 0, 0));
}

TEST_F(PagesOnDevice, RowsOfIndicesToo) {
  PageCheck check = table(0, 0);
  check.page_size = 1;
  const std::vector<int32_t> ids = {0, 1, 2, -1, 4};
  EXPECT_THAT(fault_of(check, {3, 0, 1}, ids, {0, 3, 3, 5}), ElementsAre(PageFault::id, 2, 0, -1));
  EXPECT_THAT(fault_of(check, {3, 0, 1}, ids, {0, 3, 4, 5}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(fault_of(check, {3, 2, 1}, ids, {0, 3, 3, 5}), ElementsAre(PageFault::missing, 1, 0, 2));
  EXPECT_THAT(fault_of(check, {3, 0, 1}, ids, {0, 3, 4, 6}), ElementsAre(PageFault::indptr, 2, 4, 6));
  EXPECT_THAT(fault_of(check, {3, 1, 1}, ids, {0, 3, 2, 5}), ElementsAre(PageFault::indptr, 1, 3, 2));
}

TEST_F(PagesOnDevice, TheFirstOfManyIsFoundInReplaysToo) {
  constexpr int kSeqs = 1500, kColumns = 700;
  std::mt19937 random(1);
  std::vector<int32_t> ids(size_t{kSeqs} * kColumns), lens(kSeqs, kColumns * 16);
  for (int32_t& id : ids)
    id = static_cast<int32_t>(random() % 100);
  PageCheck check = table(kColumns, kColumns);
  const DeviceBuffer d_lens = upload(lens), d_ids = upload(ids), fault = poisoned<PageFault>(1);
  check.num_seqs = kSeqs;
  check.kv_lens = d_lens.as<int32_t>();
  check.table = d_ids.as<int32_t>();
  auto graph = CudaGraph::capture(
      stream(), [&](CudaStream& s) { return launch_page_check(check, fault.as<PageFault>(), s.handle()); });
  ASSERT_TRUE(graph.ok()) << error_of(graph);
  ASSERT_EQ(error_of(graph->replay(stream())), "");
  EXPECT_THAT(download<int32_t>(fault), ElementsAre(0, 0, 0, 0));
  for (const auto& [seq, entry] : {std::pair{1400, 3}, {1399, 650}, {1399, 600}, {20, 699}, {0, 0}}) {
    ids[static_cast<size_t>(seq) * kColumns + static_cast<size_t>(entry)] = 100 + seq;
    ASSERT_EQ(error_of(stream().copy(d_ids.data(), ids.data(), d_ids.size())), "");
    ASSERT_EQ(error_of(graph->replay(stream())), "");
    EXPECT_THAT(download<int32_t>(fault), ElementsAre(PageFault::id, seq, entry, 100 + seq));
  }
}

TEST_F(PagesOnDevice, RefusesWhatItCantRead) {
  const DeviceBuffer fault = poisoned<PageFault>(1);
  PageCheck check = table(3, 4);
  check.num_seqs = 1;
  EXPECT_THAT(error_of(launch_page_check(check, fault.as<PageFault>(), stream().handle())),
              HasSubstr("needs kv_lens"));
  check.page_size = 0;
  EXPECT_THAT(error_of(launch_page_check(check, fault.as<PageFault>(), stream().handle())),
              HasSubstr("at least 1 key"));
}

TEST_F(PagesOnDevice, SequencesWithBadPages) {
  const std::vector<int32_t> ids = {0, 99, 1 << 30, -1, 5, 100, 6, 7}, lens = {32, 32, 17, 16};
  const std::vector<int32_t> q_offsets = {0, 1, 2, 3, 4};
  const DeviceBuffer d_ids = upload(ids), d_lens = upload(lens), d_offsets = upload(q_offsets),
                     bad = poisoned<uint8_t>(5);
  PageCheck check = table(2, 2);
  check.num_seqs = 4;
  check.kv_lens = d_lens.as<int32_t>();
  check.q_offsets = d_offsets.as<int32_t>();
  check.table = d_ids.as<int32_t>();
  ASSERT_EQ(error_of(launch_bad_pages(check, bad.as<uint8_t>(), stream().handle())), "");
  EXPECT_THAT(download<uint8_t>(bad), ElementsAre(0, 1, 1, 0, 0xff));
  // Rows of one tensor of 100: from 68 on there are 32, from 69 on not.
  const std::vector<int32_t> first = {68, 69, -1, 84, 100};
  const DeviceBuffer d_first = upload(first);
  check.table = nullptr;
  check.page_size = 1;
  check.indptr = d_first.as<int32_t>();
  ASSERT_EQ(error_of(launch_bad_pages(check, bad.as<uint8_t>(), stream().handle())), "");
  EXPECT_THAT(download<uint8_t>(bad), ElementsAre(0, 1, 1, 0, 0xff));
}

class NarrowOnDevice : public CudaTest {};

TEST_F(NarrowOnDevice, CopiesRowsAndClampsNumbers) {
  constexpr int64_t kMin = INT32_MIN, kMax = INT32_MAX;
  const std::vector<int64_t> offsets = {0, 5, kMax, kMin};
  std::vector<int64_t> ids(4 * 7, -9);
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t column = 0; column < 5; ++column)
      ids[static_cast<size_t>(row * 7 + column)] = row * 100 + column;
  ids[3] = int64_t{1} << 40;
  const DeviceBuffer d_offsets = upload(offsets), d_ids = upload(ids), beyond = poisoned<uint32_t>(1),
                     to_offsets = poisoned<int32_t>(5), to_ids = poisoned<int32_t>(4 * 6);
  NarrowArray arrays[] = {
      {"q_offsets", d_offsets.as<int64_t>(), to_offsets.as<int32_t>(), 1, 4},
      {"page_table", d_ids.as<int64_t>(), to_ids.as<int32_t>(), 4, 5, 7, 6, false},
  };
  ASSERT_EQ(error_of(launch_narrow(arrays, beyond.as<uint32_t>(), stream().handle())), "");
  EXPECT_THAT(download<uint32_t>(beyond), ElementsAre(0));
  EXPECT_THAT(download<int32_t>(to_offsets), ElementsAre(0, 5, INT32_MAX, INT32_MIN, -1));
  const std::vector<int32_t> got = download<int32_t>(to_ids);
  for (int row = 0; row < 4; ++row)
    for (int column = 0; column < 6; ++column)
      EXPECT_EQ(got[static_cast<size_t>(row * 6 + column)], column == 5               ? -1
                                                            : row == 0 && column == 3 ? INT32_MAX
                                                                                      : row * 100 + column);
  const std::vector<int32_t> columns = {1, -1, 2, -1, 3, -1, 4, -1};  // two rows of two, and what is between
  const DeviceBuffer d_columns = upload(columns), to_columns = poisoned<int32_t>(4);
  NarrowArray strided{"page_table", d_columns.data(), to_columns.as<int32_t>(), 2, 2, 4, 2};
  strided.wide = false;
  strided.from_column_stride = 2;
  ASSERT_EQ(error_of(launch_narrow({&strided, 1}, beyond.as<uint32_t>(), stream().handle())), "");
  EXPECT_THAT(download<int32_t>(to_columns), ElementsAre(1, 2, 3, 4));
  arrays[1].checked = true;
  ASSERT_EQ(error_of(launch_narrow(arrays, beyond.as<uint32_t>(), stream().handle())), "");
  EXPECT_THAT(download<uint32_t>(beyond), ElementsAre(2));
  arrays[1].to_stride = 4;
  EXPECT_THAT(error_of(launch_narrow(arrays, beyond.as<uint32_t>(), stream().handle())),
              HasSubstr("page_table: rows of 5 numbers do not fit a stride of 4"));
}

}  // namespace
}  // namespace fovea::cuda
