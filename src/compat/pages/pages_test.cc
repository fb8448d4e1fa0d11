#include "compat/pages/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "builtin/project_backends.h"
#include "compat/pages/embedded.h"
#include "compat/pages/peers.h"

namespace fovea::docs {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string file_text(const std::string& path) {
  std::ifstream in(std::string(FOVEA_SOURCE_DIR) + "/" + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string check(std::string_view have, const std::string& want) {
  const Status status = check_page("docs/page.md", have, {"page.md", want});
  return status ? "" : status.error().message;
}

// CMake treats brackets, semicolons and backslashes specially.
TEST(Embedded, TextsAreTheFiles) {
  EXPECT_EQ(embedded_text("attention_backends.md"), file_text("docs/templates/attention_backends.md"));
  EXPECT_EQ(embedded_text("coming_from.md"), file_text("docs/templates/coming_from.md"));
}

TEST(Pages, AreFilledAndTheSameEachTime) {
  const auto first = render_pages(project_backends(), {}), second = render_pages(project_backends(), {});
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_EQ(first->size(), 3u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_THAT((*first)[i].text, Not(HasSubstr("{{")));
    EXPECT_TRUE((*first)[i].text.ends_with('\n'));
    EXPECT_EQ((*first)[i].text, (*second)[i].text);
  }
  for (const BackendRegistry::Entry& entry : project_backends().entries())
    EXPECT_THAT((*first)[0].text, HasSubstr("| `" + std::string(entry.info->name) + "` |"));
}

TEST(Pages, AProofTurnsDeclaredIntoProven) {
  conformance::Proof proof;
  proof.device = "cpu";
  proof.backends.emplace_back();
  proof.backends[0].name = "CPU_ATTN";
  conformance::CellProof window;
  window.cell = "window=yes";
  proof.backends[0].cells.push_back(window);
  const auto without = render_pages(project_backends(), {});
  const auto with = render_pages(project_backends(), std::span(&proof, 1));
  ASSERT_TRUE(without && with);
  EXPECT_THAT((*without)[0].text, HasSubstr("| Sliding Window | ☑ | ☑ |"));
  EXPECT_THAT((*with)[0].text, HasSubstr("| Sliding Window | ✅ CPU | ☑ |"));
}

TEST(Pages, AStaleProofIsAnErrorOfTheCpuOnly) {
  conformance::Proof proof;
  proof.device = "cpu";
  proof.backends.emplace_back();
  proof.backends[0].name = "NO_SUCH_BACKEND";
  conformance::CellProof window;
  window.cell = "window=yes";
  window.status = conformance::CellStatus::proven;
  proof.backends[0].cells.push_back(window);
  EXPECT_FALSE(render_pages(project_backends(), std::span(&proof, 1)));
  proof.device = "sm90";  // not every machine can repeat it
  proof.device_name = "NVIDIA H200";
  proof.driver = "580.1, CUDA 13.0";
  const auto pages = render_pages(project_backends(), std::span(&proof, 1));
  ASSERT_TRUE(pages) << pages.error().message;
  EXPECT_THAT((*pages)[0].text, HasSubstr("| `NO_SUCH_BACKEND` | NVIDIA H200, driver 580.1, CUDA 13.0 |"));
  EXPECT_THAT((*pages)[0].text, HasSubstr("| 1 | 0 | 0 | 0 | 0 | 0 | 1 |"));
}

TEST(SglangTable, ProofByOtherKernelsAgreesWithYes) {
  conformance::CellProof window;
  window.cell = "window=yes";
  window.status = conformance::CellStatus::other_kernels;
  conformance::Proof proof;
  proof.device = "sm90";
  proof.device_name = "NVIDIA H200";
  for (const auto& [name, version] : {std::pair("FLASH_ATTN", "FA3"), std::pair("TRITON_ATTN", "")}) {
    conformance::BackendProof& row = proof.backends.emplace_back();
    row.name = name;
    row.version = version;
    row.cells.push_back(window);
  }
  const std::string table = sglang_table(project_backends(), std::span(&proof, 1));
  EXPECT_THAT(table, HasSubstr("| ✅ᵒ |"));              // FA3: SGLang says yes
  EXPECT_THAT(table, HasSubstr("| ✅ᵒ (SGLang ❌) |"));  // Triton: SGLang says no
  EXPECT_THAT(table, Not(HasSubstr("✅ᵒ (SGLang ✅)")));
}

TEST(CheckPage, NamesTheFirstLineThatDiffers) {
  EXPECT_EQ(check("a\nb\n", "a\nb\n"), "");
  EXPECT_THAT(check("a\nb\nc\n", "a\nB\nc\n"),
              HasSubstr("docs/page.md:2: the page has 'b' where fovea docs writes 'B'"));
  EXPECT_THAT(check("a\n", "a\nb\n"),
              HasSubstr("docs/page.md:2: the page has nothing where fovea docs writes 'b'"));
  EXPECT_THAT(check("a\nb\n", "a\n"),
              HasSubstr("docs/page.md:2: the page has 'b' where fovea docs writes nothing"));
  EXPECT_THAT(check("", "a\n"), HasSubstr("docs/page.md:1"));
}

}  // namespace
}  // namespace fovea::docs
