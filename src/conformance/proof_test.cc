#include "conformance/proof.h"
#include "fovea/result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace fovea::conformance {
namespace {

Proof example() {
  Proof p;
  p.device = "cpu";
  p.device_name = "A \"quoted\" CPU";
  p.isa = "avx512, avx2, generic";
  p.driver = "580.95.05, CUDA 13.0";
  p.compiler = "g++ 12.2.0";
  p.commit = "0123abc";
  p.date = "2026-11-21";
  p.threads = 2;
  p.seconds = 12.5;
  p.needed = 32;
  p.needed_of_phase = 16;
  p.needed_of_kernel = 2;
  BackendProof backend{"CPU_ATTN", "1", "", {"cpu", "other"}, 57, {}, {}};
  backend.kernels = {{"cpu", "avx512 kv=fp8_e4m3", 40, 7, 12, 2}, {"other", "decode", 17, 0, 3, 4}};
  backend.cells = {
      {"kv_dtypes=fp8_e4m3",
       CellStatus::proven,
       40,
       {{"cpu", 30}},
       {{"cpu", 5}, {"other", 5}},
       0.00125,
       2.5e-06,
       ""},
      {"spans=yes", CellStatus::other_kernels, 33, {{"other", 33}}, {}, 0, 0, "prefill: kernels of other"},
      {"dcp=yes", CellStatus::refused, 1, {}, {}, 0, 0, "decode context parallelism not supported"},
      {"sink=yes", CellStatus::too_few, 31, {}, {}, 0, 0, "only 31 cases depend on it; 32 are needed"},
      {"window=yes", CellStatus::failed, 3, {}, {}, 0.5, 0, "case 7: a\nnew line"}};
  p.backends = {backend, {"TORCH_NATIVE", "", "CPU_ATTN (1)", {}, 0, {}, {}, "4567def", "2026-11-20"}};
  return p;
}

std::string refusal(const std::string& text) {
  const auto proof = parse_proof(text, "f.json");
  return proof ? "" : proof.error().message;
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

TEST(Proof, IsReadAsItWasWritten) {
  const auto read = parse_proof(to_json(example()), "f.json");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_TRUE(*read == example());
  EXPECT_EQ(to_json(*read), to_json(example()));
  EXPECT_EQ(read->find("CPU_ATTN", "1")->cells.size(), 5u);
  EXPECT_EQ(read->find("CPU_ATTN", ""), nullptr);
  Proof empty = example();
  empty.backends.clear();
  EXPECT_EQ(refusal(to_json(empty)), "");
}

TEST(Proof, InfiniteErrorsAreStillJson) {
  Proof p = example();
  p.backends[0].cells[0].worst_error = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refusal(to_json(p)), "");
}

TEST(Proof, RefusesWhatIsNoProof) {
  const std::string good = to_json(example());
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal(""), HasSubstr("f.json is not JSON"));
  EXPECT_THAT(refusal("[]"), HasSubstr("f.json is not an object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("f.json has no device"));
  EXPECT_THAT(refusal(std::string(1000, '[')), HasSubstr("nests too deep"));
  EXPECT_THAT(refusal(good + "x"), HasSubstr("is not JSON"));
  EXPECT_THAT(refusal(replaced(good, "\"isa\"", "\"ISA\"")), HasSubstr("has no isa"));
  EXPECT_THAT(refusal(replaced(good, "\"isa\":", "\"more\": 1, \"isa\":")),
              HasSubstr("f.json has the key \"more\""));
  EXPECT_THAT(refusal(replaced(good, "\"cpu\"", "3")), HasSubstr("device is not a text"));
  EXPECT_THAT(refusal(replaced(good, "g++ 12.2.0", "g++\\n12.2.0")),
              HasSubstr("compiler is more than a line"));
  EXPECT_THAT(refusal(replaced(good, "kv_dtypes=fp8_e4m3", "\\u001b[1m")),
              HasSubstr("cell is more than a line"));
  EXPECT_THAT(refusal(replaced(good, "\"threads\": 2", "\"threads\": -2")), HasSubstr("threads is no"));
  EXPECT_THAT(refusal(replaced(good, "\"threads\": 2", "\"threads\": 2.5")), HasSubstr("threads is no"));
  EXPECT_THAT(refusal(replaced(good, "\"seconds\": 12.5", "\"seconds\": \"12\"")), HasSubstr("seconds is"));
  EXPECT_THAT(refusal(replaced(good, "fp8_e4m3\", \"status\": \"proven\", \"cases\": 40",
                               "fp8_e4m3\", \"status\": \"proven\", \"cases\": 1e3")),
              HasSubstr("backend 1 cell 1 cases"));
  EXPECT_THAT(refusal(replaced(good, "\"proven\"", "\"perhaps\"")),
              HasSubstr("not proven, other kernels, refused, unasked or"));
  EXPECT_THAT(refusal(replaced(good, "\"reason\": \"\"", "\"reason\": null")),
              HasSubstr("reason is not a text"));
  EXPECT_THAT(refusal(replaced(good, "dcp=yes", "window=yes")), HasSubstr("\"window=yes\" twice"));
  EXPECT_THAT(refusal(replaced(replaced(good, "TORCH_NATIVE", "CPU_ATTN"), "\"version\": \"\"",
                               "\"version\": \"1\"")),
              HasSubstr("\"CPU_ATTN\" \"1\" twice"));
  EXPECT_THAT(refusal(replaced(good, "\"cells\": [", "\"cells\": {}, \"x\": [")),
              HasSubstr("cells is not a list"));
  EXPECT_THAT(refusal(replaced(good, "{\"cpu\": 30}", "[]")), HasSubstr("prefill is not an object"));
  EXPECT_THAT(refusal(replaced(good, "{\"cpu\": 30}", "{\"cpu\": -1}")), HasSubstr("prefill has a count"));
  EXPECT_THAT(refusal(replaced(good, "\"split_cases\"", "\"splits\"")),
              HasSubstr("kernel 1 has no split_cases"));
  EXPECT_THAT(refusal(replaced(good, "[\"cpu\",\"other\"]", "[3]")),
              HasSubstr("families is not a list of names"));
}

}  // namespace
}  // namespace fovea::conformance
