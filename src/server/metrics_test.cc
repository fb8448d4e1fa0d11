#include "server/metrics.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "server/metrics_test_support.h"

namespace fovea::server {
namespace {

using Series = std::map<std::string, double>;

const BackendInfo kPrefillBackend{.name = "FLASH_ATTN", .version = "FA2"};
const BackendInfo kDecodeBackend{.name = "CPU_ATTN"};

EngineInfo engine_info() {
  EngineInfo info;
  info.max_seq_len = 1000;
  info.threads = 1;
  info.kv_dtype = KvCacheDType::bfloat16;
  info.kv_tokens = 64;
  info.prefix_cache = true;
  info.selection.page_size = 16;
  KindSelection full, encoder;
  full.prefill.backend = &kPrefillBackend;
  full.decode.backend = encoder.prefill.backend = encoder.decode.backend = &kDecodeBackend;
  encoder.kind = LayerKind::encoder;
  info.selection.kinds = {full, encoder};
  return info;
}

class MetricsTest : public ::testing::Test {
 protected:
  double value(const std::string& name, const std::string& labels = "") const {
    const Series series = test::parse_metrics(metrics_->text(&stats_, {7, 5, 3}));
    const auto at = series.find(name + "{model_name=\"demo\"" + (labels.empty() ? "" : ",") + labels + "}");
    if (at == series.end()) return -1;
    return at->second;
  }
  EngineStats stats_;
  std::unique_ptr<Metrics> metrics_ = Metrics::create(engine_info(), "demo", MachineFloor{1e9, 4e9});
};

// vLLM's own metrics test checks these counts.
TEST_F(MetricsTest, TenRequestsOfTenTokens) {
  constexpr int kRequests = 10, kPrompt = 12, kTokens = 10;
  for (int r = 0; r < kRequests; ++r) {
    metrics_->first_token(0.03);
    for (int t = 1; t < kTokens; ++t)
      metrics_->next_token(0.002);
    RequestRecord record;
    record.prompt_tokens = kPrompt;
    record.cached_tokens = 4;
    record.generation_tokens = kTokens;
    record.max_tokens = kTokens;
    record.finish = FinishReason::length;
    record.queue_seconds = 0.01;
    record.prefill_seconds = 0.02;
    record.decode_seconds = 0.018;
    record.e2e_seconds = 0.05;
    metrics_->finished(record);
  }
  stats_.prompt_tokens = kRequests * kPrompt;
  stats_.generated_tokens = kRequests * kTokens;
  stats_.step_tokens[0] = kRequests * (kTokens - 1);
  stats_.step_tokens[2] = kRequests;

  EXPECT_EQ(value("vllm:iteration_tokens_total_sum"), kRequests * (kPrompt + kTokens));
  EXPECT_EQ(value("vllm:iteration_tokens_total_count"), kRequests * kTokens);
  EXPECT_EQ(value("vllm:iteration_tokens_total_bucket", "le=\"8.0\""), 90);
  EXPECT_EQ(value("vllm:prompt_tokens_total"), kRequests * kPrompt);
  EXPECT_EQ(value("vllm:generation_tokens_total"), kRequests * kTokens);
  EXPECT_EQ(value("vllm:request_success_total", "finished_reason=\"length\""), kRequests);
  EXPECT_EQ(value("vllm:request_success_total", "finished_reason=\"stop\""), 0);
  EXPECT_EQ(value("vllm:request_prompt_tokens_sum"), kRequests * kPrompt);
  EXPECT_EQ(value("vllm:request_prompt_tokens_count"), kRequests);
  EXPECT_EQ(value("vllm:request_generation_tokens_sum"), kRequests * kTokens);
  EXPECT_EQ(value("vllm:request_generation_tokens_count"), kRequests);
  EXPECT_EQ(value("vllm:request_params_n_sum"), kRequests);
  EXPECT_EQ(value("vllm:request_params_n_count"), kRequests);
  EXPECT_EQ(value("vllm:request_params_max_tokens_sum"), kRequests * kTokens);
  EXPECT_EQ(value("vllm:request_params_max_tokens_count"), kRequests);
  EXPECT_EQ(value("vllm:time_to_first_token_seconds_count"), kRequests);
  EXPECT_EQ(value("vllm:time_to_first_token_seconds_bucket", "le=\"0.02\""), 0);
  EXPECT_EQ(value("vllm:time_to_first_token_seconds_bucket", "le=\"0.04\""), kRequests);
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_count"), kRequests * (kTokens - 1));
  EXPECT_EQ(value("vllm:request_time_per_output_token_seconds_count"), kRequests);
  EXPECT_NEAR(value("vllm:request_time_per_output_token_seconds_sum"), kRequests * 0.002, 1e-9);
  EXPECT_NEAR(value("vllm:e2e_request_latency_seconds_sum"), 0.5, 1e-9);
  EXPECT_EQ(value("vllm:e2e_request_latency_seconds_count"), kRequests);
  EXPECT_NEAR(value("vllm:request_queue_time_seconds_sum"), 0.1, 1e-9);
  EXPECT_NEAR(value("vllm:request_inference_time_seconds_sum"), 0.38, 1e-9);
  EXPECT_NEAR(value("vllm:request_prefill_time_seconds_sum"), 0.2, 1e-9);
  EXPECT_NEAR(value("vllm:request_decode_time_seconds_sum"), 0.18, 1e-9);
  EXPECT_EQ(value("fovea_cached_prompt_tokens_total"), 40);
}

TEST_F(MetricsTest, ClassesOfTokensGoUpToTheLongestSequence) {
  EXPECT_EQ(value("vllm:request_prompt_tokens_bucket", "le=\"1000.0\""), 0);
  EXPECT_EQ(value("vllm:request_prompt_tokens_bucket", "le=\"2000.0\""), -1);
}

TEST_F(MetricsTest, ReasonsHaveVllmsNames) {
  RequestRecord record;
  for (const FinishReason reason :
       {FinishReason::stop, FinishReason::cancelled, FinishReason::cancelled, FinishReason::error}) {
    record.finish = reason;
    metrics_->finished(record);
  }
  EXPECT_EQ(value("vllm:request_success_total", "finished_reason=\"stop\""), 1);
  EXPECT_EQ(value("vllm:request_success_total", "finished_reason=\"abort\""), 2);
  EXPECT_EQ(value("vllm:request_success_total", "finished_reason=\"error\""), 1);
  EXPECT_EQ(value("vllm:request_params_max_tokens_count"), 0);  // not given
}

TEST_F(MetricsTest, TimeATokenIsThatOfAnswersSideBySide) {
  RequestRecord record;
  record.n = 4;
  record.generation_tokens = 44;
  record.decode_seconds = 2;
  metrics_->finished(record);  // 11 tokens each: 10 gaps
  EXPECT_NEAR(value("vllm:request_time_per_output_token_seconds_sum"), 0.2, 1e-12);
  record.generation_tokens = 4;  // no gap
  metrics_->finished(record);
  EXPECT_NEAR(value("vllm:request_time_per_output_token_seconds_sum"), 0.2, 1e-12);
}

TEST_F(MetricsTest, SaysTheEnginesState) {
  stats_.running = 3;
  stats_.waiting = 5;
  stats_.pages_total = 40;
  stats_.pages_free = 25;
  stats_.pages_cached = 5;
  stats_.pages_in_use = 10;
  stats_.prefix_queries = 100;
  stats_.prefix_hits = 60;
  stats_.preemptions = 2;
  stats_.plan_seconds = 0.125;
  EXPECT_EQ(value("vllm:num_requests_running"), 3);
  EXPECT_EQ(value("vllm:num_requests_waiting"), 5);
  EXPECT_EQ(value("vllm:kv_cache_usage_perc"), 0.25);
  EXPECT_EQ(value("vllm:prefix_cache_queries_total"), 100);
  EXPECT_EQ(value("vllm:prefix_cache_hits_total"), 60);
  EXPECT_EQ(value("vllm:num_preemptions_total"), 2);
  EXPECT_EQ(value("vllm:cache_config_info",
                  "block_size=\"16\",cache_dtype=\"bfloat16\","
                  "enable_prefix_caching=\"True\",num_gpu_blocks=\"4\""),
            1);
  EXPECT_EQ(value("fovea_kv_pages", "state=\"free\""), 25);
  EXPECT_EQ(value("fovea_kv_pages", "state=\"cached\""), 5);
  EXPECT_EQ(value("fovea_kv_pages", "state=\"in_use\""), 10);
  EXPECT_EQ(value("fovea_plan_seconds_total"), 0.125);
  EXPECT_EQ(value("fovea_http_connections"), 7);
  EXPECT_EQ(value("fovea_http_connections_refused_total"), 5);
  EXPECT_EQ(value("fovea_http_connections_evicted_total"), 3);
}

/// Words between backquotes that begin with a prefix of our metrics.
std::set<std::string> metrics_in_page(const std::string& page) {
  std::set<std::string> names;
  for (size_t at = 0; (at = page.find('`', at)) != page.npos;) {
    const size_t end = page.find('`', ++at);
    const std::string word = page.substr(at, end - at);
    if (test::is_metric_name(word) && !word.ends_with(':') && !word.ends_with('_') &&
        (word.starts_with("vllm:") || word.starts_with("fovea_")))
      names.insert(word);
    at = end + 1;
  }
  return names;
}

TEST_F(MetricsTest, AreThoseOfThePage) {
  std::ifstream file(std::string(FOVEA_SOURCE_DIR) + "/docs/metrics.md");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  std::set<std::string> written;
  stats_.speculative.add(3, 2);
  const std::string text = metrics_->text(&stats_, {});
  for (size_t at = 0; (at = text.find("# TYPE ", at)) != text.npos; at += 7)
    written.insert(text.substr(at + 7, text.find(' ', at + 7) - at - 7));
  EXPECT_EQ(metrics_in_page(page), written);
}

TEST_F(MetricsTest, DraftsHaveVllmsCounters) {
  EXPECT_EQ(value("vllm:spec_decode_num_drafts_total"), -1) << "absent without drafts";
  stats_.speculative.add(3, 2);
  stats_.speculative.add(2, 0);
  EXPECT_EQ(value("vllm:spec_decode_num_drafts_total"), 2);
  EXPECT_EQ(value("vllm:spec_decode_num_draft_tokens_total"), 5);
  EXPECT_EQ(value("vllm:spec_decode_num_accepted_tokens_total"), 2);
  EXPECT_EQ(value("vllm:spec_decode_num_accepted_tokens_per_pos_total", "position=\"1\""), 1);
}

TEST_F(MetricsTest, SaysWhichBackendsServe) {
  const std::string full = "layer_kind=\"full\",backend=";
  EXPECT_EQ(value("fovea_attention_backend_info", "phase=\"prefill\"," + full + "\"FLASH_ATTN (FA2)\""), 1);
  EXPECT_EQ(value("fovea_attention_backend_info", "phase=\"decode\"," + full + "\"CPU_ATTN\""), 1);
  const std::string encoder = "layer_kind=\"encoder\",backend=\"CPU_ATTN\"";
  EXPECT_EQ(value("fovea_attention_backend_info", "phase=\"prefill\"," + encoder), 1);
  EXPECT_EQ(value("fovea_attention_backend_info", "phase=\"decode\"," + encoder), -1);
}

TEST_F(MetricsTest, AttentionIsComparedWithTheNearerLimit) {
  stats_.attention = {
      {.phase = Phase::prefill, .backend = "P", .calls = 2, .seconds = 2, .bytes = 1e8, .flops = 4e9},
      {.phase = Phase::decode, .backend = "D", .calls = 9, .seconds = 0.5, .bytes = 2e8, .flops = 4e6},
      {.phase = Phase::decode, .kind = LayerKind::cross, .backend = "D"}};
  const std::string prefill = "phase=\"prefill\",layer_kind=\"full\",backend=\"P\"";
  const std::string decode = "phase=\"decode\",layer_kind=\"full\",backend=\"D\"";
  const std::string unused = "phase=\"decode\",layer_kind=\"cross\",backend=\"D\"";
  EXPECT_EQ(value("fovea_attention_kernel_seconds_total", prefill), 2);
  EXPECT_EQ(value("fovea_attention_calls_total", decode), 9);
  EXPECT_EQ(value("fovea_attention_bytes_total", decode), 2e8);
  EXPECT_EQ(value("fovea_attention_flops_total", decode), 4e6);
  EXPECT_EQ(value("fovea_attention_bytes_per_second", decode), 4e8);
  EXPECT_EQ(value("fovea_attention_roofline_ratio", prefill), 0.5);  // 1 s at 4e9 flop/s of 2 s
  EXPECT_EQ(value("fovea_attention_roofline_ratio", decode), 0.4);   // 0.2 s at 1e9 B/s of 0.5 s
  EXPECT_EQ(value("fovea_attention_kernel_seconds_total", unused), 0);
  EXPECT_EQ(value("fovea_attention_bytes_per_second", unused), -1);
  EXPECT_EQ(value("fovea_attention_roofline_ratio", unused), -1);
}

TEST_F(MetricsTest, AMachineThatIsNotMeasuredIsNotComparedWith) {
  const std::string labels = "phase=\"prefill\",layer_kind=\"full\",backend=\"P\"";
  stats_.attention = {{.backend = "P", .seconds = 1, .bytes = 1e8, .flops = 1e8}};
  EXPECT_EQ(value("fovea_machine_read_bytes_per_second"), 1e9);
  EXPECT_EQ(value("fovea_machine_fp32_flops_per_second"), 4e9);
  metrics_ = Metrics::create(engine_info(), "demo", std::nullopt);
  EXPECT_EQ(value("fovea_machine_read_bytes_per_second"), -1);
  EXPECT_EQ(value("fovea_machine_fp32_flops_per_second"), -1);
  EXPECT_EQ(value("fovea_attention_roofline_ratio", labels), -1);
  EXPECT_EQ(value("fovea_attention_bytes_per_second", labels), 1e8);
}

TEST_F(MetricsTest, StatusesAreABoundedSetOfSeries) {
  metrics_->http_response(200);
  metrics_->http_response(200);
  metrics_->http_response(599);
  metrics_->refused(503);
  for (const int status : {-1, 0, 99, 600, 1 << 30, std::numeric_limits<int>::min()})
    metrics_->http_response(status);
  EXPECT_EQ(value("fovea_http_responses_total", "status=\"200\""), 2);
  EXPECT_EQ(value("fovea_http_responses_total", "status=\"599\""), 1);
  EXPECT_EQ(value("fovea_http_responses_total", "status=\"other\""), 6);
  EXPECT_EQ(value("fovea_http_responses_total", "status=\"404\""), -1);
  EXPECT_EQ(value("fovea_requests_refused_total", "status=\"503\""), 1);
}

TEST_F(MetricsTest, WhatIsNotANumberSpoilsNoSum) {
  metrics_->next_token(std::numeric_limits<double>::quiet_NaN());
  metrics_->next_token(0.5);
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_sum"), 0.5);
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_count"), 1);
}

TEST_F(MetricsTest, CountsFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) {
        metrics_->next_token(0.25);
        metrics_->http_response(200);
        if (i % 100 == 0) (void)metrics_->text(&stats_, {});
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_sum"), 1000);
  EXPECT_EQ(value("vllm:inter_token_latency_seconds_count"), 4000);
  EXPECT_EQ(value("fovea_http_responses_total", "status=\"200\""), 4000);
}

TEST(MetricsOfAnEmbedder, HaveNoEngine) {
  EmbedInfo info;
  info.max_seq_len = 512;
  info.selection.kinds.resize(1);
  info.selection.kinds[0].kind = LayerKind::encoder;
  info.selection.kinds[0].prefill.backend = &kDecodeBackend;
  const auto metrics = Metrics::create(info, "bert");
  RequestRecord record;
  record.prompt_tokens = 9;
  record.finish = FinishReason::stop;
  metrics->finished(record);
  Series series = test::parse_metrics(metrics->text(nullptr, {1, 0, 0}));
  EXPECT_EQ(series["vllm:prompt_tokens_total{model_name=\"bert\"}"], 9);
  EXPECT_EQ(series.count("vllm:num_requests_running{model_name=\"bert\"}"), 0u);
  EXPECT_EQ(series.count("fovea_attention_backend_info{model_name=\"bert\",phase=\"prefill\","
                         "layer_kind=\"encoder\",backend=\"CPU_ATTN\"}"),
            1u);
}

}  // namespace
}  // namespace fovea::server
