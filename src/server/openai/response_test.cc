#include "server/openai/response.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "server/openai/answer_json.h"
#include "server/openai/json_writer.h"
#include "text/json_value.h"

namespace fovea::openai {
namespace {

using std::string;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Tokens: 0 and 1 have the same text, 2 and 3 are halves of "ä".
string bytes_of(int32_t id) {
  static const char* const kBytes[] = {"a", "a", "\xc3", "\xa4", " \"b\"", "<end>"};
  return id >= 0 && id < 6 ? kBytes[id] : "";
}

const TokenText kWords{bytes_of, false};
const ResponseHead kChat{ApiKind::chat, "chatcmpl-1", "m\"x", 1700000000};
const ResponseHead kCompletion{ApiKind::completion, "cmpl-1", "m", 1700000000};
constexpr std::string_view kUsage =
    R"({"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,"prompt_tokens_details":{"cached_tokens":4},)"
    R"("completion_tokens_details":{"reasoning_tokens":0}})";
const string kChatPrefix =
    R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m\"x","choices":[)";
const string kCompletionPrefix =
    R"(data: {"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[)";

TokenLogprobs logprobs(int32_t id, float value, std::vector<TokenLogprob> top = {}) {
  return {{id, value, 1}, std::move(top)};
}

RequestOutput output(string text, std::vector<int32_t> ids, FinishReason finish = FinishReason::none) {
  RequestOutput out;
  out.text = std::move(text);
  out.token_ids = std::move(ids);
  out.finish = finish;
  return out;
}

/// Every event's JSON must parse.
void expect_events(const string& stream, const string& expected) {
  EXPECT_EQ(stream, expected);
  size_t at = 0;
  while (at < stream.size()) {
    const size_t end = stream.find("\n\n", at);
    ASSERT_NE(end, string::npos);
    const string event = stream.substr(at, end - at);
    ASSERT_EQ(event.rfind("data: ", 0), 0u);
    EXPECT_TRUE(event == "data: [DONE]" || text::parse_json(event.substr(6), "event").ok()) << event;
    at = end + 2;
  }
}

TEST(OpenaiJson, EscapesAndRepairsStrings) {
  const auto quoted = [](std::string_view text) {
    string out;
    append_string(out, text);
    return out;
  };
  EXPECT_EQ(quoted(""), R"("")");
  EXPECT_EQ(quoted("a\"\\/\n\r\t\b\f\x1b\x7f"), R"("a\"\\/\n\r\t\u0008\u000c\u001b\u007f")");
  EXPECT_EQ(quoted({"\0x", 2}), R"("\u0000x")");
  EXPECT_EQ(quoted("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
  EXPECT_EQ(quoted("x\xff\xc3y\xe2\x82"), "\"x\xef\xbf\xbd\xef\xbf\xbdy\xef\xbf\xbd\"");
  EXPECT_EQ(quoted("\xed\xa0\x80z"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
}

TEST(OpenaiJson, PrintsNumbers) {
  const auto number = [](float value) {
    string out;
    append_float(out, value);
    return out;
  };
  EXPECT_EQ(number(0), "0.0");
  EXPECT_EQ(number(-1), "-1.0");
  EXPECT_EQ(number(0.1f), "0.1");
  EXPECT_EQ(number(1e-20f), "1e-20");
  EXPECT_EQ(number(kInfinity), "null");
  EXPECT_EQ(number(std::nanf("")), "null");
  const auto again = [](const string& json) {
    string out;
    append_json(out, *text::parse_json(json, "x"));
    return out;
  };
  const string all = R"({"b":[1,-2.5,1.0,1e+300,123456789012345678901,true,false,null,"\""],"a":{},"c":[]})";
  EXPECT_EQ(again(all), all);
}

TEST(OpenaiError, HasOpenaisShape) {
  EXPECT_EQ(error_json(bad_request("n is 0", "n")),
            R"({"error":{"message":"n is 0","type":"invalid_request_error","param":"n","code":null}})");
  EXPECT_EQ(error_json({404, "The model `x` does not exist.", "model", "model_not_found"}),
            R"({"error":{"message":"The model `x` does not exist.","type":"not_found_error","param":"model",)"
            R"("code":"model_not_found"}})");
  EXPECT_EQ(
      error_json(bad_request("a\x1b\n\xff")),
      "{\"error\":{\"message\":\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\",\"type\":\"invalid_request_error\","
      "\"param\":null,\"code\":null}}");
  EXPECT_EQ(error_type(401), "authentication_error");
  EXPECT_EQ(error_type(413), "invalid_request_error");
  EXPECT_EQ(error_type(429), "rate_limit_error");
  EXPECT_EQ(error_type(500), "server_error");
  EXPECT_EQ(error_type(503), "server_error");
}

TEST(OpenaiResponse, PrintsAChat) {
  Choice choice;
  choice.text = "\xc3\xa4";
  choice.token_ids = {2, 3};
  choice.finish = FinishReason::stop;
  choice.stop_reason = "<end>";
  const std::vector<Choice> choices = {choice};
  EXPECT_EQ(response_json(kChat, choices, {5, 2, 4}, {}, kWords),
            R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m\"x","choices":[)"
            R"({"index":0,"message":{"role":"assistant","content":"ä","refusal":null},"logprobs":null,)"
            R"("finish_reason":"stop","stop_reason":null}],"usage":)" +
                string(kUsage) + "}");
}

TEST(OpenaiResponse, PrintsAChatsLogprobsAndIds) {
  Choice choice;
  choice.token_ids = {2};
  choice.prompt_ids = {4, 0};
  choice.prompt_logprobs = {logprobs(0, -kInfinity, {{1, -0.5f, 1}, {0, -kInfinity, 2}})};
  choice.wants_logprobs = true;
  choice.logprobs = {logprobs(2, -0.25f, {{2, -0.25f, 1}, {4, -kInfinity, 2}}), logprobs(5, 0)};
  choice.finish = FinishReason::length;
  GenerationRequest request;
  request.return_token_ids = true;
  request.prompt_logprobs = 1;
  const std::vector<Choice> choices = {choice};
  const string expected =
      R"("choices":[{"index":0,"message":{"role":"assistant","content":"","refusal":null},"logprobs":{"content":[)"
      R"({"token":"�","logprob":-0.25,"bytes":[195],"top_logprobs":[{"token":"�","logprob":-0.25,"bytes":[195]},)"
      R"({"token":" \"b\"","logprob":-9999.0,"bytes":[32,34,98,34]}]},)"
      R"({"token":"<end>","logprob":0.0,"bytes":[60,101,110,100,62],"top_logprobs":[]}],"refusal":null},)"
      R"("finish_reason":"length","stop_reason":null,"token_ids":[2]}],)";
  const string json = response_json(kChat, choices, {5, 2, 4}, request, kWords);
  EXPECT_NE(json.find(expected), string::npos) << json;
  EXPECT_NE(json.find(R"("prompt_logprobs":[null,{"0":{"logprob":-9999.0,"rank":1,"decoded_token":"a"},)"
                      R"("1":{"logprob":-0.5,"rank":1,"decoded_token":"a"}}],"prompt_token_ids":[4,0]})"),
            string::npos)
      << json;
  EXPECT_TRUE(text::parse_json(json, "x").ok());
}

TEST(OpenaiResponse, PrintsCompletions) {
  Choice first, second;
  first.text = "x";
  first.finish = FinishReason::stop;
  first.stop_reason = "END";
  second.index = 1;
  second.finish = FinishReason::stop;
  second.stop_reason = "<end>";
  second.stop_token = 5;
  second.wants_logprobs = true;
  second.text_offset = 3;
  second.logprobs = {logprobs(0, -1, {{1, -0.5f, 1}, {0, -1, 2}}), logprobs(2, -2), logprobs(3, -kInfinity),
                     logprobs(4, -3, {{5, -0.5f, 1}})};
  GenerationRequest request;
  request.sampling.stop = {"END"};
  request.sampling.stop_token_ids = {5};
  const std::vector<Choice> choices = {first, second};
  EXPECT_EQ(response_json(kCompletion, choices, {5, 2, 4}, request, kWords),
            R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[)"
            R"({"index":0,"text":"x","logprobs":null,"finish_reason":"stop","stop_reason":"END"},)"
            R"({"index":1,"text":"","logprobs":{"tokens":["a","�","�"," \"b\""],)"
            R"("token_logprobs":[-1.0,-2.0,-9999.0,-3.0],)"
            R"("top_logprobs":[{"a":-0.5},{"�":-2.0},{"�":-9999.0},{"<end>":-0.5," \"b\"":-3.0}],)"
            R"("text_offset":[3,4,4,5]},"finish_reason":"stop","stop_reason":5}],"usage":)" +
                string(kUsage) + "}");
}

TEST(OpenaiResponse, PutsTheEchoedPromptFirst) {
  Choice choice;
  choice.text = "aa b";
  choice.wants_logprobs = choice.echoed = true;
  choice.prompt_ids = {0, 1};
  choice.prompt_logprobs = {logprobs(1, -1)};
  choice.logprobs = {logprobs(4, -2)};
  GenerationRequest request;
  request.prompt_logprobs = 0;
  request.return_token_ids = true;
  const TokenText as_ids{bytes_of, true};
  const std::vector<Choice> choices = {choice};
  const string json = response_json(kCompletion, choices, {}, request, as_ids);
  EXPECT_NE(
      json.find(
          R"("logprobs":{"tokens":["token_id:0","token_id:1","token_id:4"],)"
          R"("token_logprobs":[null,-1.0,-2.0],)"
          R"("top_logprobs":[null,{"token_id:1":-1.0},{"token_id:4":-2.0}],"text_offset":[0,1,2]},)"
          R"("finish_reason":null,"stop_reason":null,"token_ids":[],"prompt_logprobs":[null,)"
          R"({"1":{"logprob":-1.0,"rank":1,"decoded_token":"token_id:1"}}],"prompt_token_ids":[0,1]}])"),
      string::npos)
      << json;
}

TEST(OpenaiStream, WritesAChat) {
  GenerationRequest request;
  request.include_usage = true;
  StreamWriter writer(kChat, request, kWords);
  expect_events(writer.first(0),
                kChatPrefix + R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
                              R"("finish_reason":null}],"usage":null})"
                              "\n\n");
  expect_events(
      writer.delta(1, output("a\n", {0}), {}),
      kChatPrefix +
          R"({"index":1,"delta":{"content":"a\n"},"logprobs":null,"finish_reason":null}],"usage":null})"
          "\n\n");
  EXPECT_EQ(writer.delta(0, output("", {2}), {}), "") << "half a character is not said";
  const string finish =
      kChatPrefix +
      R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length","stop_reason":null}],"usage":null})"
      "\n\n";
  expect_events(writer.delta(0, output("", {}, FinishReason::length), {}), finish);
  expect_events(
      writer.delta(0, output("b", {}, FinishReason::length), {}),
      kChatPrefix +
          R"({"index":0,"delta":{"content":"b"},"logprobs":null,"finish_reason":null}],"usage":null})"
          "\n\n" +
          finish);
  EXPECT_EQ(writer.delta(0, output("", {}, FinishReason::cancelled), {}), "");
  expect_events(writer.last({5, 2, 4}),
                kChatPrefix + R"(],"usage":)" + string(kUsage) + "}\n\ndata: [DONE]\n\n");
}

TEST(OpenaiStream, SaysNothingOfUsageUnlessAsked) {
  StreamWriter writer(kChat, {}, kWords);
  expect_events(writer.delta(0, output("a", {0}), {5, 2, 4}),
                kChatPrefix + R"({"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null}]})"
                              "\n\n");
  EXPECT_EQ(writer.last({5, 2, 4}), "data: [DONE]\n\n");
}

TEST(OpenaiStream, WritesIdsLogprobsAndUsageOfEveryChunk) {
  GenerationRequest request;
  request.include_usage = request.continuous_usage = request.return_token_ids = true;
  request.sampling.logprobs = 0;
  StreamWriter writer(kChat, request, kWords);
  const std::vector<int32_t> prompt = {4, 1};
  expect_events(writer.first(0, prompt),
                kChatPrefix + R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,)"
                              R"("finish_reason":null}],"prompt_token_ids":[4,1],"usage":null})"
                              "\n\n");
  RequestOutput half = output("", {2});
  half.logprobs = {logprobs(2, -1)};
  expect_events(
      writer.delta(0, half, {5, 2, 4}),
      kChatPrefix +
          R"({"index":0,"delta":{"content":""},"logprobs":{"content":[{"token":"�","logprob":-1.0,)"
          R"("bytes":[195],"top_logprobs":[]}],"refusal":null},"finish_reason":null,"token_ids":[2]}],)"
          R"("usage":)" +
          string(kUsage) + "}\n\n");
}

TEST(OpenaiStream, WritesCompletions) {
  GenerationRequest request;
  request.sampling.logprobs = 1;
  request.sampling.stop = {"."};
  StreamWriter writer(kCompletion, request, kWords);
  EXPECT_EQ(writer.first(0), "");
  expect_events(writer.echo(2, "h\xc3\xa4"),
                kCompletionPrefix + R"({"index":2,"text":"hä","logprobs":null,"finish_reason":null}]})"
                                    "\n\n");
  RequestOutput out = output("a\xc3\xa4", {0, 2});
  out.logprobs = {logprobs(0, -1, {{0, -1, 1}}), logprobs(2, -2, {{4, -0.5f, 1}})};
  expect_events(
      writer.delta(2, out, {}),
      kCompletionPrefix +
          R"({"index":2,"text":"aä","logprobs":{"tokens":["a","�"],"token_logprobs":[-1.0,-2.0],)"
          R"("top_logprobs":[{"a":-1.0},{" \"b\"":-0.5,"�":-2.0}],"text_offset":[2,3]},"finish_reason":null}]})"
          "\n\n");
  RequestOutput end = output("", {3}, FinishReason::stop);
  end.logprobs = {logprobs(3, -3)};
  end.stop_reason = ".";
  expect_events(writer.delta(2, end, {}),
                kCompletionPrefix +
                    R"({"index":2,"text":"","logprobs":{"tokens":["�"],"token_logprobs":[-3.0],)"
                    R"("top_logprobs":[{"�":-3.0}],"text_offset":[3]},"finish_reason":null}]})"
                    "\n\n" +
                    kCompletionPrefix +
                    R"({"index":2,"text":"","logprobs":null,"finish_reason":"stop","stop_reason":"."}]})"
                    "\n\n");
}

TEST(OpenaiStream, GivesACompletionsPromptIdsInItsChoice) {
  GenerationRequest request;
  request.return_token_ids = true;
  StreamWriter writer(kCompletion, request, kWords);
  const std::vector<int32_t> prompt = {4, 1};
  expect_events(writer.first(1, prompt),
                kCompletionPrefix +
                    R"({"index":1,"text":"","logprobs":null,"finish_reason":null,"prompt_token_ids":[4,1]}]})"
                    "\n\n");
}

TEST(OpenaiStream, NamesNoReasonForTheModelsOwnEnd) {
  GenerationRequest request;
  request.sampling.stop = {"<end>"};
  request.sampling.stop_token_ids = {4};
  StreamWriter writer(kChat, request, kWords);
  RequestOutput end = output("", {}, FinishReason::stop);
  end.stop_reason = "<end>";
  end.stop_token = 5;
  const string finish =
      kChatPrefix + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":)";
  expect_events(writer.delta(0, end, {}), finish + "null}]}\n\n");
  end.stop_token = 4;
  expect_events(writer.delta(0, end, {}), finish + "4}]}\n\n");
  end.stop_token.reset();
  expect_events(writer.delta(0, end, {}), finish + "\"<end>\"}]}\n\n");
}

TEST(OpenaiStream, EndsWithAnError) {
  expect_events(
      StreamWriter::error({500, "the engine stopped", "", ""}),
      R"(data: {"error":{"message":"the engine stopped","type":"server_error","param":null,"code":null}})"
      "\n\ndata: [DONE]\n\n");
}

TEST(OpenaiListings, PrintEmbeddings) {
  const std::vector<std::vector<float>> vectors = {{1, -0.5f}, {0, 0.1f}};
  EXPECT_EQ(embeddings_json("e", vectors, false, 9),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[1.0,-0.5]},)"
            R"({"object":"embedding","index":1,"embedding":[0.0,0.1]}],"model":"e",)"
            R"("usage":{"prompt_tokens":9,"total_tokens":9}})");
  // 00 00 80 3f | 00 00 00 bf, then 4 and 12 bytes: each possible length of the last base64 group.
  const std::vector<std::vector<float>> lengths = {{1, -0.5f}, {1}, {1, -0.5f, 1}};
  EXPECT_EQ(embeddings_json("e", lengths, true, 9),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPwAAAL8="},)"
            R"({"object":"embedding","index":1,"embedding":"AACAPw=="},)"
            R"({"object":"embedding","index":2,"embedding":"AACAPwAAAL8AAIA/"}],"model":"e",)"
            R"("usage":{"prompt_tokens":9,"total_tokens":9}})");
}

TEST(OpenaiListings, PrintModelsAndTokens) {
  const std::vector<ModelCard> models = {{"a", 7, ""}, {"b", 9, "a"}};
  EXPECT_EQ(
      models_json(models, 512),
      R"({"object":"list","data":[{"id":"a","object":"model","created":7,"owned_by":"fovea","root":"a",)"
      R"("parent":null,"max_model_len":512},{"id":"b","object":"model","created":9,"owned_by":"fovea",)"
      R"("root":"b","parent":"a","max_model_len":512}]})");
  const std::vector<int32_t> ids = {4, 2};
  EXPECT_EQ(tokenize_json(ids, 512, nullptr),
            R"({"count":2,"max_model_len":512,"tokens":[4,2],"token_strs":null})");
  EXPECT_EQ(tokenize_json(ids, 512, &kWords),
            R"({"count":2,"max_model_len":512,"tokens":[4,2],"token_strs":[" \"b\"","�"]})");
  EXPECT_EQ(tokenize_json({}, 512, &kWords),
            R"({"count":0,"max_model_len":512,"tokens":[],"token_strs":[]})");
  EXPECT_EQ(detokenize_json("a\""), R"({"prompt":"a\""})");
}

TEST(Usage, HasWhatBecameOfDraftsWhereThatIsReported) {
  Usage usage;
  std::string out;
  append_metrics(out, usage);
  EXPECT_EQ(out, "");
  usage.drafts.emplace();
  usage.drafts->add(3, 0);
  usage.drafts->add(3, 2);
  append_metrics(out, usage);
  EXPECT_EQ(out,
            R"(,"metrics":{"speculative_decoding":{"num_spec_steps":2,"num_draft_tokens":6,)"
            R"("num_accepted_tokens":2,"mean_acceptance_length":2.0,"draft_acceptance_rate":0.33333334}})");
  usage.draft_positions = true;
  out.clear();
  append_metrics(out, usage);
  EXPECT_TRUE(out.ends_with(R"("acceptance_histogram":[1,0,1,0]}})")) << out;
  usage.drafts = SpeculativeCounts();
  out.clear();
  append_metrics(out, usage);
  EXPECT_TRUE(text::parse_json("{" + out.substr(1) + "}", "metrics").ok()) << out;
}

}  // namespace
}  // namespace fovea::openai
