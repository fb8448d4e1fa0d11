#include "speculative/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fovea {
namespace {

using testing::HasSubstr;

std::string refusal(const Result<SpeculativeConfig>& result) {
  return result ? "" : result.error().message;
}
SpeculativeConfig json(const char* text) {
  auto config = speculative_from_json(text);
  EXPECT_TRUE(config.ok()) << refusal(config);
  return config ? *config : SpeculativeConfig();
}

TEST(SpeculativeJson, ReadsVllmsExamples) {
  SpeculativeConfig c = json(R"({"method":"ngram","num_speculative_tokens":5,"prompt_lookup_max":4})");
  EXPECT_EQ(c.method, DraftMethod::ngram);
  EXPECT_EQ(c.num_tokens, 5);
  EXPECT_EQ(c.prompt_lookup_min, 4);
  EXPECT_EQ(c.prompt_lookup_max, 4);
  c = json(R"({"model":"[ngram]","num_speculative_tokens":3})");
  EXPECT_EQ(c.method, DraftMethod::ngram);
  EXPECT_EQ(c.prompt_lookup_min, 5);
  EXPECT_EQ(c.model, "");
  c = json(R"({"model":"facebook/opt-125m","num_speculative_tokens":5,"max_model_len":64,
               "draft_tensor_parallel_size":1,"attention_backend":"CPU_ATTN"})");
  EXPECT_EQ(c.method, DraftMethod::draft_model);
  EXPECT_EQ(c.model, "facebook/opt-125m");
  EXPECT_EQ(c.attention_backend, "CPU_ATTN");
  EXPECT_EQ(c.max_model_len, 64);
  c = json(R"({"method":"suffix","suffix_decoding_max_cached_requests":100})");
  EXPECT_EQ(c.method, DraftMethod::suffix);
  EXPECT_EQ(c.num_tokens, kMaxDrafts);
  EXPECT_EQ(c.suffix_max_cached_requests, 100);
  c = json(
      R"({"method":"ngram","num_speculative_tokens":4,"disable_padded_drafter_batch":true,"prompt_lookup_num_threads":8,
               "num_speculative_tokens_per_batch_size":[[1,4,4],[5,32,2]],"disable_by_batch_size":33})");
  EXPECT_EQ(c.by_batch, (std::vector<SpeculativeConfig::BatchRule>{{1, 4, 4}, {5, 32, 2}, {33, 1 << 20, 0}}));
  c = json(R"({"method":"ngram","num_speculative_tokens":2,"rejection_sample_method":"synthetic",
               "synthetic_acceptance_rates":[0.8,0.5]})");
  EXPECT_EQ(c.synthetic_rates, (std::vector<double>{0.8, 0.5}));
}

TEST(SpeculativeJson, ReadsHeads) {
  SpeculativeConfig c =
      json(R"({"method":"eagle3","model":"head","num_speculative_tokens":3,"draft_tensor_parallel_size":1})");
  EXPECT_EQ(c.method, DraftMethod::eagle3);
  EXPECT_EQ(c.model, "head");
  EXPECT_TRUE(c.reads_hidden_states());
  EXPECT_EQ(json(R"({"model":"yuhuili/EAGLE3-LLaMA3.1-Instruct-8B","num_speculative_tokens":3})").method,
            DraftMethod::eagle3);
  EXPECT_EQ(json(R"({"model":"yuhuili/EAGLE-llama2-chat-7B","num_speculative_tokens":3})").method,
            DraftMethod::eagle);
  c = json(R"({"method":"deepseek_mtp"})");
  EXPECT_EQ(c.method, DraftMethod::mtp);
  EXPECT_EQ(c.num_tokens, 1);
}

TEST(SpeculativeJson, RefusalsHaveTheKeyAndTheFix) {
  const auto expect = [](const char* text, const char* part) {
    EXPECT_THAT(refusal(speculative_from_json(text)), HasSubstr(part)) << text;
  };
  expect("[1]", "--speculative-config: must hold a JSON object");
  expect(R"({"methd":"ngram"})", R"("methd" is no key of it; did you mean "method"?)");
  expect("{}", "method is missing; ngram, suffix, draft_model, eagle, eagle3 and mtp are built");
  expect(R"({"method":"medusa","num_speculative_tokens":3})",
         R"(method is "medusa"; that method is not built)");
  expect(R"({"method":"eagle3","num_speculative_tokens":3})", R"(the method eagle3 needs "model")");
  expect(R"({"method":"mtp","model":"x"})", "leave it out");
  expect(R"({"method":"eagle3","model":"x","num_speculative_tokens":16})", "at most 16 rows of a sequence");
  expect(R"({"method":"ngram"})",
         "num_speculative_tokens is missing; give the drafts of a step, an integer from 1 to 15");
  expect(R"({"method":"ngram","num_speculative_tokens":16})", "at most 16 rows of a sequence");
  expect(R"({"method":"suffix","num_speculative_tokens":0})",
         "is 0; give the drafts of a step, an integer from 1 to 15");
  expect(R"({"method":"ngram","num_speculative_tokens":"5"})", "an integer");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"posterior_alpha":0.3})", "changes answers");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"acceptance_method":"typical_acceptance_sampler"})",
         "changes answers");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"tensor_parallel_size":1})",
         "draft_tensor_parallel_size");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"draft_tensor_parallel_size":2})", "one device");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"speculative_token_tree":"[(0,)]"})", "one chain");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"synthetic_acceptance_length":2})", "needs");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"rejection_sample_method":"synthetic",
             "synthetic_acceptance_length":7})",
         "must be 1 to 6");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"num_speculative_tokens_per_batch_size":[[1,2]]})",
         "[from, to, tokens]");
  expect(
      R"({"method":"ngram","num_speculative_tokens":5,"num_speculative_tokens_per_batch_size":[[4294967297,5,1]]})",
      "all integers from 0 to 1048576");
  expect(R"({"method":"ngram","num_speculative_tokens":5.5})", "an integer from 1 to 15");
  expect(R"({"method":"ngram","num_speculative_tokens":4294967299})", "an integer from 1 to 15");
  expect(R"({"method":"ngram","model":"x","num_speculative_tokens":5})", "need no model");
  EXPECT_EQ(json(R"({"method":"ngram","model":"[ngram]","num_speculative_tokens":3})").model, "");
  expect(R"({"method":"draft_model","num_speculative_tokens":5})", "needs \"model\"");
  expect(R"({"method":"suffix","prompt_lookup_max":5})", "the method suffix has no use for it, only ngram");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"suffix_decoding_max_tree_depth":9})",
         "only suffix");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"attention_backend":"FA"})",
         "only draft_model, eagle");
  expect(R"({"method":"ngram","num_speculative_tokens":5,"max_model_len":100})", "only draft_model, eagle");
  expect(R"({"method":"mtp","moe_backend":"triton"})", "computed as the model's; leave it out");
  expect(R"({"model":"x","num_speculative_tokens":5,"use_heterogeneous_vocab":true})", "target's tokens");
}

TEST(SpeculativeFlags, ReadsSglangs) {
  SglangSpeculative flags;
  EXPECT_FALSE(speculative_from_sglang(flags)->enabled());
  flags.algorithm = "NGRAM";
  EXPECT_EQ(speculative_from_sglang(flags)->num_tokens, 3);
  EXPECT_EQ(speculative_from_sglang(flags)->prompt_lookup_max, 12);
  flags.num_draft_tokens = 16;
  EXPECT_EQ(speculative_from_sglang(flags)->num_tokens, 15);
  flags.num_steps = 15;
  EXPECT_EQ(speculative_from_sglang(flags)->num_tokens, 15);
  const auto expect = [](const SglangSpeculative& f, const char* part) {
    EXPECT_THAT(refusal(speculative_from_sglang(f)), HasSubstr(part));
  };
  flags.num_steps = 3;
  expect(flags, "one token more than steps");
  flags = {};
  flags.num_steps = 3;
  expect(flags, "without --speculative-algorithm");
  flags.algorithm = "dflash";
  expect(flags, "is not built; NGRAM");
  flags.algorithm = "EAGLE3";
  expect(flags, "EAGLE3 needs --speculative-draft-model-path");
  flags.draft_model_path = "x";
  EXPECT_EQ(speculative_from_sglang(flags)->method, DraftMethod::eagle3);
  flags.algorithm = "eagle";
  EXPECT_EQ(speculative_from_sglang(flags)->method, DraftMethod::eagle);
  flags.algorithm = "NGRAM";
  expect(flags, "leave out --speculative-draft-model-path, or give STANDALONE");
  flags.algorithm = "NEXTN";
  expect(flags, "own checkpoint; leave out");
  flags.draft_model_path.reset();
  EXPECT_EQ(speculative_from_sglang(flags)->method, DraftMethod::mtp);
  flags.ngram_max_match_window_size = 4;
  expect(flags, "only NGRAM looks tokens up; leave it out");
  flags.ngram_max_match_window_size.reset();
  flags.algorithm = "NGRAM";
  flags.draft_attention_backend = "fa";
  expect(flags, "need no attention; leave it out");
  flags.draft_attention_backend.reset();
  flags.algorithm = "standalone";
  expect(flags, "--speculative-draft-model-path");
  flags.draft_model_path = "x";
  EXPECT_EQ(speculative_from_sglang(flags)->model, "x");
  flags.eagle_topk = 4;
  expect(flags, "it must be 1");
  flags.eagle_topk = 1;
  flags.accept_threshold_single = 0.9;
  expect(flags, "changes answers");
  flags.accept_threshold_single = 1;
  flags.attention_mode = "fast";
  expect(flags, "allowed are decode and prefill");
  flags.attention_mode = "prefill";
  EXPECT_TRUE(speculative_from_sglang(flags)->verify_in_prefill);
  flags.num_steps = 16;
  expect(flags, "at most 16 rows");
}

}  // namespace
}  // namespace fovea
