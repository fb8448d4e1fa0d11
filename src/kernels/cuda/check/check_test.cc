#include <gtest/gtest.h>

#include "fovea/result.h"
#include "kernels/cuda/check/narrow.h"
#include "kernels/cuda/check/page_check.h"

namespace fovea::cuda {
namespace {

std::string message(const PageFault& fault, const PageCheck& check) {
  const Status status = page_fault_status(fault, check);
  return status.ok() ? "" : status.error().message;
}

TEST(PageFault, NamesTheEntryAndWhatIsAllowed) {
  PageCheck check;
  check.num_pages = 1024;
  check.page_size = 16;
  EXPECT_EQ(message({}, check), "");
  EXPECT_EQ(message({PageFault::id, 3, 17, 4096}, check),
            "page table: sequence 3, entry 17 is 4096; the cache has pages 0 to 1023");
  EXPECT_EQ(message({PageFault::missing, 2, 5, 9}, check),
            "page table: sequence 2 needs 9 pages of 16 keys; there are entries for 5");
  const int32_t indptr = 0;
  check.indptr = &indptr;
  check.num_indices = 40;
  EXPECT_EQ(message({PageFault::id, 0, 1, -7}, check),
            "kv_indices: sequence 0, entry 1 is -7; the cache has pages 0 to 1023");
  EXPECT_EQ(message({PageFault::indptr, 1, 30, 50}, check),
            "kv_indptr: sequence 1 has entries 30 to 50; kv_indices has 40, and kv_indptr must not decrease");
  EXPECT_EQ(message({PageFault::rows, 1, 1000, 1100}, check),
            "kv_indptr: sequence 1 has rows 1000 to 1100; there are 1024");
  check.num_pages = 0;
  EXPECT_EQ(message({PageFault::id, 0, 0, 0}, check),
            "kv_indices: sequence 0, entry 0 is 0; the cache has no pages");
  EXPECT_FALSE(page_fault_status({9, 0, 0, 0}, check).ok());
}

TEST(Narrow, NamesTheFirstArrayThatWasClamped) {
  const NarrowArray arrays[] = {{"q_offsets"}, {"kv_lens"}, {"page_table"}};
  EXPECT_TRUE(narrow_status(arrays, 0).ok());
  const Status status = narrow_status(arrays, 0b110);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "kv_lens has a number beyond 32 bits; -2147483648 to 2147483647 are allowed");
}

}  // namespace
}  // namespace fovea::cuda
