#include "compat/launch/launch_line.h"
#include "fovea/result.h"

#include <gmock/gmock.h>

#include <set>
#include <sstream>

namespace fovea {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A command with a few flags of each kind.
std::optional<OwnFlag> own_flag(std::string_view name) {
  if (name == "--prompt" || name == "-p") return OwnFlag{"--prompt", true};
  if (name == "-n" || name == "--max-tokens") return OwnFlag{"--max-tokens", true};
  if (name == "--attention-backend" || name == "--attn") return OwnFlag{"--attention-backend", true};
  if (name == "--model") return OwnFlag{"--model", true};
  if (name == "--memory-share") return OwnFlag{"--memory-share", true};
  if (name == "--disable-radix-cache") return OwnFlag{"--disable-radix-cache", false};
  if (name == "--cuda-graph-bs") return OwnFlag{"--cuda-graph-bs", true};
  if (name == "--batch-invariant") return OwnFlag{"--batch-invariant", false};
  return std::nullopt;
}

LaunchLine read(const std::vector<std::string>& arguments) {
  auto line = read_launch_line(arguments, own_flag);
  EXPECT_TRUE(line) << (line ? "" : line.error().message);
  return line ? *std::move(line) : LaunchLine();
}

std::string error(const std::vector<std::string>& arguments) {
  const auto line = read_launch_line(arguments, own_flag);
  EXPECT_FALSE(line);
  return line ? "" : line.error().message;
}

TEST(LaunchLine, KeepsOwnFlagsAndTheirValues) {
  const auto line =
      read({"text", "--model", "m", "--attn=fa", "-n4", "-p", "-tp", "--prompt", "--tp", "--", "-tp", "4"});
  EXPECT_THAT(line.arguments, ElementsAre("text", "--model", "m", "--attn=fa", "-n4", "-p", "-tp", "--prompt",
                                          "--tp", "--", "-tp", "4"));
  EXPECT_THAT(line.notes, IsEmpty());
  EXPECT_EQ(line.spelled.at("--attention-backend"), "--attn");
  EXPECT_EQ(line.spelled.at("--model"), "--model");
}

TEST(LaunchLine, RefusesByNameUnlessTheValueIsNeutral) {
  for (const char* flag : {"--tp", "-tp", "--tensor-parallel-size", "--tensor_parallel_size", "--tp-size",
                           "-dcp", "-pcp", "--decode-context-parallel-size", "--dp", "-pp"}) {
    const auto eight = read({flag, "8"});
    EXPECT_THAT(eight.arguments, IsEmpty()) << flag;
    ASSERT_EQ(eight.notes.size(), 1U) << flag;
    EXPECT_EQ(eight.notes[0].verdict, FlagVerdict::refused);
    EXPECT_EQ(eight.notes[0].flag, std::string(flag) + " 8");
    const auto one = read({std::string(flag) + "=1"});
    ASSERT_EQ(one.notes.size(), 1U) << flag;
    EXPECT_EQ(one.notes[0].verdict, FlagVerdict::noted);
    EXPECT_FALSE(one.notes[0].warn);
  }
}

TEST(LaunchLine, RefusesWhatNoDrafterHereReads) {
  for (const char* flag : {"--speculative-ngram-max-bfs-breadth", "--speculative-ngram-capacity",
                           "--speculative-ngram-match-type", "--speculative-draft-model-revision",
                           "--speculative-draft-model-quantization", "--speculative-config.method"}) {
    const auto line = read({flag, "10"});
    ASSERT_EQ(line.notes.size(), 1U) << flag;
    EXPECT_EQ(line.notes[0].verdict, FlagVerdict::refused) << flag;
  }
  EXPECT_EQ(read({"--speculative-ngram-max-bfs-breadth", "1"}).notes.at(0).verdict, FlagVerdict::noted);
  EXPECT_EQ(read({"--speculative-draft-model-quantization", "unquant"}).notes.at(0).verdict,
            FlagVerdict::noted);
}

TEST(LaunchLine, NamesAllRefusedFlagsAtOnce) {
  const auto line =
      read({"--tp", "8", "--trust-remote-code", "--enable-dp-attention", "--speculative-token-map", "3"});
  const Status status = check_refused(line.notes);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr("--tp 8 is refused: "), HasSubstr("--enable-dp-attention is refused: "),
                    HasSubstr("--speculative-token-map 3 is refused: ")));
  EXPECT_THAT(status.error().message, Not(HasSubstr("trust")));
  EXPECT_TRUE(check_refused({}));
}

TEST(LaunchLine, SaysWhatABackendWouldNeed) {
  EXPECT_EQ(read({"-dcp", "2"}).notes.at(0).need, Feature::dcp);
  EXPECT_EQ(read({"--prefill-context-parallel-size", "2"}).notes.at(0).need, Feature::pcp);
  EXPECT_EQ(read({"-dcp", "1"}).notes.at(0).need, std::nullopt);
}

TEST(LaunchLine, ReplacesAliases) {
  const auto line =
      read({"--memory-ratio", "0.8", "--cache-type", "naive", "--enable-deterministic-inference"});
  EXPECT_THAT(line.arguments,
              ElementsAre("--memory-share=0.8", "--disable-radix-cache", "--batch-invariant"));
  EXPECT_EQ(line.spelled.at("--batch-invariant"), "--enable-deterministic-inference");
  EXPECT_THAT(read({"--cache-type", "RADIX"}).arguments, IsEmpty());
  EXPECT_THAT(error({"--cache-type", "lru"}), HasSubstr("--cache-type lru: allowed are radix, naive"));
}

TEST(LaunchLine, LeavesAliasesOfFlagsThatTheCommandLacks) {
  EXPECT_THAT(read({"--dummy-weight"}).arguments, ElementsAre("--dummy-weight"));
  EXPECT_THAT(read({"--page-size", "4"}).arguments, ElementsAre("--page-size", "4"));
}

TEST(LaunchLine, NotesWhatHasNoMeaning) {
  const auto line =
      read({"--trust-remote-code", "--cuda-graph-backend-decode", "full", "text", "--host", "0.0.0.0"});
  EXPECT_THAT(line.arguments, ElementsAre("text"));
  ASSERT_EQ(line.notes.size(), 3U);
  EXPECT_EQ(line.notes[1].flag, "--cuda-graph-backend-decode full");
  for (const FlagNote& note : line.notes) {
    EXPECT_EQ(note.verdict, FlagVerdict::noted);
    EXPECT_TRUE(note.warn);
    EXPECT_FALSE(note.text.empty());
  }
  EXPECT_THAT(error({"--trust-remote-code=1"}), HasSubstr("takes no value"));
  EXPECT_THAT(error({"--tp"}), HasSubstr("--tp needs a value"));
}

TEST(LaunchLine, PassesListsOfNumbersOn) {
  EXPECT_THAT(read({"--cuda-graph-bs", "1", "2", "--model", "m"}).arguments,
              ElementsAre("--cuda-graph-bs", "1", "2", "--model", "m"));
  const auto alias = read({"--cudagraph-capture-sizes", "1", "2", "4", "text"});
  EXPECT_THAT(alias.arguments, ElementsAre("--cuda-graph-bs", "1", "2", "4", "text"));
  ASSERT_EQ(alias.notes.size(), 1U);
  EXPECT_EQ(alias.notes[0].verdict, FlagVerdict::alias);
}

TEST(LaunchLine, CollectsAttentionConfig) {
  const auto line = read({"-ac.backend", "fa", "--prompt", "-ac", "-ac.flash_attn_version=3", "-ac", "{}",
                          "--attention_config.backend=x"});
  EXPECT_THAT(line.arguments, ElementsAre("--prompt", "-ac"));
  ASSERT_EQ(line.attention.size(), 4U);
  EXPECT_EQ(line.attention[0].name(), "-ac.backend");
  EXPECT_EQ(line.attention[0].value, "fa");
  EXPECT_EQ(line.attention[1].path, "flash_attn_version");
  EXPECT_EQ(line.attention[1].value, "3");
  EXPECT_EQ(line.attention[2].name(), "-ac");
  EXPECT_EQ(line.attention[3].name(), "--attention-config.backend");
  EXPECT_THAT(error({"-ac.backend"}), HasSubstr("-ac.backend needs a value"));
  EXPECT_THAT(error({"-ac.", "x"}), HasSubstr("names no key"));
}

TEST(ForeignFlags, TheTableIsConsistent) {
  std::set<std::pair<std::string_view, int>> seen;
  for (const ForeignFlag& flag : foreign_flags()) {
    ASSERT_FALSE(flag.spellings.empty());
    const std::string_view first = flag.spellings[0];
    EXPECT_FALSE(flag.peers.empty()) << first;
    EXPECT_FALSE(flag.text.empty()) << first;
    const bool ours = flag.verdict == FlagVerdict::same || flag.verdict == FlagVerdict::alias;
    EXPECT_EQ(ours, !flag.ours.empty() || !flag.values.empty()) << first;
    EXPECT_TRUE(flag.verdict != FlagVerdict::same || flag.ours == first) << first;
    EXPECT_TRUE(flag.verdict == FlagVerdict::refused || (flag.neutral.empty() && !flag.need)) << first;
    for (const std::string_view spelling : flag.spellings) {
      EXPECT_TRUE(spelling.starts_with('-')) << spelling;
      EXPECT_NE(find_foreign_flag(spelling), nullptr) << spelling;
      for (const Peer peer : {Peer::sglang, Peer::vllm, Peer::mini_sglang})
        EXPECT_TRUE(!flag.peers.has(peer) || seen.emplace(spelling, static_cast<int>(peer)).second)
            << spelling;
    }
  }
  EXPECT_EQ(find_foreign_flag("--no-such-flag"), nullptr);
  EXPECT_EQ(find_foreign_flag("--speculative-anything")->verdict, FlagVerdict::refused);
  EXPECT_EQ(find_foreign_flag("--speculative-"), nullptr);
}

/// Flags from sections 4.1 to 4.3 of the documentation of the three programs.
TEST(ForeignFlags, KnowsTheDocumentedFlags) {
  std::istringstream flags(
      "--attention-backend --prefill-attention-backend --decode-attention-backend "
      "--speculative-attention-mode "
      "--speculative-draft-attention-backend --speculative-algorithm --speculative-num-steps "
      "--speculative-eagle-topk --speculative-num-draft-tokens --mm-attention-backend --dsa-prefill-backend "
      "--dsa-decode-backend --nsa-prefill-backend --nsa-decode-backend --dsa-topk-backend "
      "--linear-attn-backend "
      "--linear-attn-prefill-backend --linear-attn-decode-backend --mamba-ssm-dtype --page-size "
      "--kv-cache-dtype "
      "--tp --tensor-parallel-size --dp --enable-dp-attention --enable-deterministic-inference "
      "--flashinfer-mla-disable-ragged --disable-chunked-prefix-cache --triton-attention-num-kv-splits "
      "--triton-attention-reduce-in-fp32 --cuda-graph-max-bs --cuda-graph-bs --disable-cuda-graph "
      "--cuda-graph-backend-prefill --trust-remote-code --model --model-path --attention-config "
      "--attention-config.backend -ac -ac.backend --disable-cascade-attn --disable-hybrid-kv-cache-manager "
      "--override-attention-dtype --mm-encoder-attn-backend --mm-encoder-attn-dtype --block-size "
      "--decode-context-parallel-size -dcp --prefill-context-parallel-size -pcp -tp "
      "--cudagraph-capture-sizes "
      "-O.cudagraph_mode --enforce-eager --speculative-config --dtype --tp-size --max-running-requests "
      "--max-seq-len-override --memory-ratio --dummy-weight --disable-pynccl --host --port --graph "
      "--num-tokenizer --tokenizer-count --max-prefill-length --max-extend-length --num-pages --attn "
      "--model-source --cache-type --moe-backend --shell-mode --shell");
  for (std::string flag; flags >> flag;)
    EXPECT_NE(find_foreign_flag(flag), nullptr) << flag;
}

}  // namespace
}  // namespace fovea
