#include "server/openai/request.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json_depth.h"
#include "server/openai/field_table.h"
#include "server/openai/request_body.h"

namespace fovea::openai {
namespace {

using std::string;

const string kUser = R"("messages":[{"role":"user","content":"hi"}])";

ApiResult<ChatCompletionRequest> chat(const string& body) {
  return parse_chat_completion(body, {});
}
ApiResult<CompletionRequest> completion(const string& body) {
  return parse_completion(body, {});
}

struct BadBody {
  string body;
  string param;
  string says;  // substring of the message
};

template <class Parse>
void expect_refused(const std::vector<BadBody>& cases, Parse parse) {
  for (const BadBody& bad : cases) {
    const string start = bad.body.substr(0, 120);
    const auto got = parse(bad.body);
    ASSERT_FALSE(got) << start;
    EXPECT_EQ(got.error().status, 400) << start;
    EXPECT_EQ(got.error().param, bad.param) << start << "\n" << got.error().message;
    EXPECT_NE(got.error().message.find(bad.says), string::npos) << start << "\n" << got.error().message;
    EXPECT_LT(got.error().message.size(), 300u) << start;
  }
}

string nested(int depth) {
  return R"({"prompt":"a","metadata":)" + string(static_cast<size_t>(depth), '[') +
         string(static_cast<size_t>(depth), ']') + "}";
}

TEST(Constraint, HasEverySpelling) {
  using Kind = OutputConstraint::Kind;
  struct Spelling {
    const char* fields;
    Kind kind;
    const char* text;
  };
  const Spelling kSpellings[] = {
      {R"("response_format":{"type":"json_object"})", Kind::json_object, ""},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"null"},"strict":true}})",
       Kind::json_schema, R"({"type":"null"})"},
      {R"("response_format":{"type":"json_object","schema":{"type":"null"}})", Kind::json_schema,
       R"({"type":"null"})"},
      {R"("structured_outputs":{"json":{"b":1,"a":2}})", Kind::json_schema, R"({"b":1,"a":2})"},
      {R"("structured_outputs":{"json":"{}"})", Kind::json_schema, "{}"},
      {R"("structured_outputs":{"regex":"a+"})", Kind::regex, "a+"},
      {R"("structured_outputs":{"choice":["a","b"]})", Kind::choice, ""},
      {R"("structured_outputs":{"grammar":"start: X"})", Kind::grammar, "start: X"},
      {R"("structured_outputs":{"structural_tag":{"a":1}})", Kind::structural_tag, R"({"a":1})"},
      {R"("guided_json":{"type":"null"})", Kind::json_schema, R"({"type":"null"})"},
      {R"("guided_choice":["a"])", Kind::choice, ""},
      {R"("guided_json_object":true)", Kind::json_object, ""},
      {R"("json_schema":"{}")", Kind::json_schema, "{}"},
      {R"("regex":"a")", Kind::regex, "a"},
      {R"("ebnf":"root ::= x")", Kind::grammar, "root ::= x"},
      {R"("grammar":"root ::= x")", Kind::grammar, "root ::= x"},
      {R"("structural_tag":"{}")", Kind::structural_tag, "{}"},
  };
  for (const Spelling& spelling : kSpellings) {
    const auto request = parse_completion(R"({"prompt":"x",)" + std::string(spelling.fields) + "}", {});
    ASSERT_TRUE(static_cast<bool>(request)) << spelling.fields << ": " << request.error().message;
    const auto& constraint = request->common.sampling.constraint;
    ASSERT_TRUE(constraint) << spelling.fields;
    EXPECT_EQ(constraint->kind, spelling.kind) << spelling.fields;
    EXPECT_EQ(constraint->text, spelling.text);
  }
  const auto text = parse_completion(R"({"prompt":"x","response_format":{"type":"text"}})", {});
  ASSERT_TRUE(static_cast<bool>(text));
  EXPECT_FALSE(text->common.sampling.constraint);
}

TEST(OpenaiBody, RefusesWhatIsNotOneJsonObject) {
  expect_refused(
      {
          {"", "", "is empty"},
          {" \r\n\t", "", "is empty"},
          {"[]", "", "is []; it must be a JSON object"},
          {"5", "", "is 5; it must be a JSON object"},
          {R"("x")", "", R"(is "x"; it must be a JSON object)"},
          {"null", "", "is null"},
          {R"({"prompt":"a")", "", "not valid JSON at byte"},
          {R"({"prompt":"a"} {})", "", "not valid JSON"},
          {R"({"prompt":"a",})", "", "not valid JSON"},
          {R"({"prompt":"a","temperature":NaN})", "", "without NaN"},
          {R"({"prompt":"a","temperature":Infinity})", "", "not valid JSON"},
          {R"({"prompt":"a","temperature":1e999})", "", "not valid JSON"},
          {R"({"prompt":"a","seed":1)" + string(400, '0') + "}", "", "not valid JSON"},
          {R"({"prompt":"\ud800"})", "", "unpaired surrogates"},
          {R"({"prompt":"\udc00\ud800"})", "", "not valid JSON"},
          {"{\"prompt\":\"\xff\"}", "", "JSON is UTF-8"},
          {"{\"prompt\":\"\xc0\xaf\"}", "", "JSON is UTF-8"},
          {"{\"prompt\":\"\xed\xa0\x80\"}", "", "JSON is UTF-8"},
          {string("{\"prompt\":\"a\"}\0{}", 17), "", "at byte 14, a NUL"},
          {string("{\"prompt\":\"a\0b\"}", 16), "", "a NUL"},
          {string("\xff\xfe{\0}\0", 6), "", "a NUL"},
          {"\xef\xbb\xbf\xef\xbb\xbf{\"prompt\":\"a\"}", "", "not valid JSON"},
          {R"({"prompt":"a","prompt":"b"})", "prompt", "the field prompt is given twice"},
          {R"({"prompt":"a","x":[{"y":1,"\u0079":2}]})", "x[0].y", "given twice"},
          {nested(kMaxJsonDepth), "", "nested deeper than 100"},
          {string(100000, '['), "", "nested deeper"},
      },
      completion);
  EXPECT_TRUE(completion(nested(kMaxJsonDepth - 1)));
  EXPECT_TRUE(completion("\xef\xbb\xbf{\"prompt\":\"a\"}")) << "one byte order mark is harmless";
  EXPECT_TRUE(completion(R"({"prompt":"[[{,\"\\"})"));
}

TEST(OpenaiBody, ShortensWhatAClientMadeUp) {
  const string key(60, 'k');
  string body = R"({"a":1,"a":2})";
  for (int i = 0; i < 50; ++i)
    body = "{\"" + key + "\":" + body + "}";
  const auto got = completion(body);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().param.size(), 163u);
  const auto wordy = completion(R"({"prompt":"a","model":[],"temperature":")" + string(1000, 'x') + "\"}");
  ASSERT_FALSE(wordy);
  EXPECT_LT(wordy.error().message.size(), 100u);
}

TEST(OpenaiBody, CountsValuesBeforeItBuildsThem) {
  string ids;
  for (size_t i = 0; i < kMaxJsonValues; ++i)
    ids += "1,";
  expect_refused({{R"({"prompt":[)" + ids + "1]}", "", "values; send fewer prompts"}}, completion);
  string fields = R"({"prompt":"a")";
  for (size_t i = 0; i < kMaxFields; ++i)
    fields += ",\"f" + std::to_string(i) + "\":0";
  expect_refused({{fields + "}", "", "has 257 fields; at most 256"}}, completion);
}

TEST(OpenaiBody, KeepsNulAndAstralCharactersOfStrings) {
  const auto got = completion(R"({"prompt":"a\u0000b\ud83d\ude00"})");
  ASSERT_TRUE(got);
  EXPECT_EQ(std::get<string>(got->prompts[0]), string("a\0b\xf0\x9f\x98\x80", 7));
}

TEST(OpenaiRequest, RefusesBadGenerationFields) {
  const std::vector<BadBody> fields = {
      {R"("model":5)", "model", "model is 5; it must be a string"},
      {R"("temperature":"0.5")", "temperature", R"(temperature is "0.5"; it must be a number)"},
      {R"("temperature":true)", "temperature", "must be a number"},
      {R"("temperature":-0.1)", "temperature", "temperature is -0.1; it must be"},
      {R"("temperature":2.5)", "temperature", "temperature is 2.5; it must be 0 to 2"},
      {R"("temperature":1e300)", "temperature", "fp32"},
      {R"("top_p":0)", "top_p", "above 0 and at most 1"},
      {R"("top_p":1.01)", "top_p", "top_p is 1.01"},
      {R"("top_k":-2)", "top_k", "integer from -1"},
      {R"("top_k":1.5)", "top_k", "top_k is 1.5; it must be an integer"},
      {R"("top_k":99999999999999999999999)", "top_k",
       "top_k is 99999999999999999999999; it must be an integer"},
      {R"("min_p":1.5)", "min_p", "min_p is 1.5"},
      {R"("min_p":-0.5)", "min_p", "0 (off) to 1"},
      {R"("repetition_penalty":0)", "repetition_penalty", "above 0"},
      {R"("presence_penalty":2.1)", "presence_penalty", "-2 to 2"},
      {R"("frequency_penalty":-2.1)", "frequency_penalty", "-2 to 2"},
      {R"("logit_bias":[1])", "logit_bias", "must be an object"},
      {R"("logit_bias":{"a":1})", "logit_bias", R"(has the key "a"; keys must be token ids)"},
      {R"("logit_bias":{"-1":1})", "logit_bias", R"(has the key "-1")"},
      {R"("logit_bias":{"1.5":1})", "logit_bias", "keys must be token ids"},
      {R"("logit_bias":{"99999999999":1})", "logit_bias", "keys must be token ids"},
      {R"("logit_bias":{"5":"x"})", "logit_bias", R"(of token 5 is "x"; it must be a number)"},
      {R"("logit_bias":{"5":1,"05":1})", "logit_bias", "given twice"},
      {R"("allowed_token_ids":[])", "allowed_token_ids", "nothing to draw"},
      {R"("allowed_token_ids":[1,"2"])", "allowed_token_ids[1]", R"(is "2"; it must be a token id)"},
      {R"("bad_words":[""])", "bad_words", "empty string"},
      {R"("bad_words":"x")", "bad_words", "must be a list of strings"},
      {R"("seed":"1")", "seed", "an integer of 64 bits"},
      {R"("seed":18446744073709551616)", "seed", "an integer of 64 bits"},
      {R"("seed":-9223372036854775809)", "seed", "an integer of 64 bits"},
      {R"("n":0)", "n", "n is 0; it must be an integer from 1 to 128"},
      {R"("n":1000000000)", "n", "an integer from 1 to 128"},
      {R"("n":1e999)", "", "not valid JSON"},
      {R"("n":2,"temperature":0)", "n", "all answers would be the same"},
      {R"("min_tokens":-1)", "min_tokens", "an integer from 0"},
      {R"("min_tokens":9,"max_tokens":8)", "min_tokens", "at most max_tokens, which is 8"},
      {R"("max_tokens":"5")", "max_tokens", R"(max_tokens is "5"; it must be an integer)"},
      {R"("max_tokens":0)", "max_tokens", "max_tokens is 0"},
      {R"("max_tokens":-1)", "max_tokens", "max_tokens is -1"},
      {R"("max_tokens":2147483648)", "max_tokens", "to 2147483647"},
      {R"("max_tokens":[])", "max_tokens", "max_tokens is []"},
      {R"("stop":"")", "stop", "empty string"},
      {R"("stop":["a",5])", "stop[1]", "stop[1] is 5; it must be a string"},
      {R"("stop":5)", "stop", "a string or a list of strings"},
      {R"("stop_token_ids":[-1])", "stop_token_ids[0]", "a token id"},
      {R"("stop_token_ids":[2147483648])", "stop_token_ids[0]", "a token id"},
      {R"("ignore_eos":1)", "ignore_eos", "true or false"},
      {R"("skip_special_tokens":"no")", "skip_special_tokens", "true or false"},
      {R"("stream":"true")", "stream", "true or false"},
      {R"("stream_options":{"include_usage":true})", "stream_options", "only allowed with stream = true"},
      {R"("stream":true,"stream_options":[])", "stream_options", "must be an object"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage",
       "true or false"},
      {R"("prompt_logprobs":21)", "prompt_logprobs", "at most 20"},
      {R"("prompt_logprobs":-2)", "prompt_logprobs", "integer from -1"},
      {R"("prompt_logprobs":-1)", "prompt_logprobs", "at most 20"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "stream"},
      {R"("priority":1.5)", "priority", "an integer"},
      {R"("response_format":{"type":"json"})", "response_format", R"(is "json"; it must be "text")"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "missing"},
      {R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})",
       "response_format.json_schema.schema", "missing"},
      {R"("response_format":{"type":"json_object"},"regex":"a")", "regex", "beside response_format.type"},
      {R"("response_format":{})", "response_format.type", "missing"},
      {R"("response_format":"json")", "response_format", "must be an object"},
      {R"("guided_json":1)", "guided_json", "a JSON schema"},
      {R"("guided_regex":[])", "guided_regex", "a string"},
      {R"("structured_outputs":{})", "structured_outputs", "has no form"},
      {R"("structured_outputs":{"regex":"a+","choice":["a"]})", "structured_outputs.choice", "beside"},
      {R"("structured_outputs":{"rgex":"a+"})", "structured_outputs.rgex", "regex"},
      {R"("use_beam_search":true)", "use_beam_search", "not supported"},
      {R"("truncate_prompt_tokens":5)", "truncate_prompt_tokens", "not supported"},
      {R"("cache_salt":"")", "cache_salt", "leave it out"},
      {R"("extra_key":"x")", "extra_key", "cache_salt"},
      {R"("spaces_between_special_tokens":false)", "spaces_between_special_tokens", "leave it out"},
  };
  std::vector<BadBody> chats, completions;
  for (const BadBody& bad : fields) {
    chats.push_back({"{" + kUser + "," + bad.body + "}", bad.param, bad.says});
    completions.push_back({R"({"prompt":"a",)" + bad.body + "}", bad.param, bad.says});
  }
  expect_refused(chats, chat);
  expect_refused(completions, completion);
}

TEST(OpenaiRequest, RefusesBadCompletions) {
  expect_refused(
      {
          {"{}", "prompt", "prompt is missing; it must be a string, a list of strings"},
          {R"({"prompt":null})", "prompt", "missing"},
          {R"({"prompt":5})", "prompt", "prompt is 5"},
          {R"({"prompt":{}})", "prompt", "prompt is an object"},
          {R"({"prompt":[]})", "prompt", "prompt is []"},
          {R"({"prompt":[[]]})", "prompt[0]", "at least one token id"},
          {R"({"prompt":[1,"a"]})", "prompt[1]", "a token id"},
          {R"({"prompt":["a",1]})", "prompt[1]", "all entries must be strings"},
          {R"({"prompt":[[1],"a"]})", "prompt[1]", "all entries must be"},
          {R"({"prompt":[[1],[2,-3]]})", "prompt[1][1]", "prompt[1][1] is -3; it must be a token id"},
          {R"({"prompt":[1.5]})", "prompt[0]", "a token id"},
          {R"({"prompt":[null]})", "prompt[0]", "is null"},
          {R"({"prompt":[[[1]]]})", "prompt[0][0]", "is an array"},
          {R"({"prompt":"a","logprobs":21})", "logprobs", "logprobs is 21; it must be at most 20"},
          {R"({"prompt":"a","logprobs":true})", "logprobs", "an integer"},
          {R"({"prompt":"a","logprobs":-2})", "logprobs", "from -1"},
          {R"({"prompt":"a","best_of":2})", "best_of", "it is 2); leave it out: use n"},
          {R"({"prompt":"a","best_of":1000000000})", "best_of", "1000000000"},
          {R"({"prompt":"a","suffix":"b"})", "suffix", "not supported"},
          {R"({"prompt":"a","prompt_embeds":"AA=="})", "prompt_embeds", "not supported"},
          {R"({"prompt":"a","echo":true,"logprobs":1,"stream":true})", "echo", "not available with stream"},
          {R"({"prompt":"a","echo":true,"max_tokens":0})", "max_tokens", "only with echo and logprobs"},
      },
      completion);
  string many;
  for (int i = 0; i < 2049; ++i)
    many += R"("a",)";
  expect_refused({{R"({"prompt":[)" + many + R"("a"]})", "prompt", "has 2050 entries; at most 2048"}},
                 completion);
}

TEST(OpenaiRequest, RefusesBadChats) {
  const auto message = [](const string& text) {
    return R"({"messages":[{"role":"user","content":"a"},)" + text + "]}";
  };
  expect_refused(
      {
          {"{}", "messages", "messages is missing"},
          {R"({"messages":[]})", "messages", "messages is []"},
          {R"({"messages":"hi"})", "messages", "a list of at least one"},
          {message("5"), "messages[1]", "messages[1] is 5; it must be an object"},
          {message("{}"), "messages[1].role", "messages[1].role is missing; it must be \"system\""},
          {message(R"({"role":"robot","content":"a"})"), "messages[1].role", R"(is "robot")"},
          {message(R"({"role":5,"content":"a"})"), "messages[1].role", "is 5"},
          {message(R"({"role":"user"})"), "messages[1].content", "is missing"},
          {message(R"({"role":"user","content":null,"tool_calls":[]})"), "messages[1].content", "is missing"},
          {message(R"({"role":"assistant","content":null})"), "messages[1].content", "is missing"},
          {message(R"({"role":"assistant","content":null,"tool_calls":[]})"), "messages[1].content",
           "is missing"},
          {message(R"({"role":"user","content":5})"), "messages[1].content",
           "a string or a list of text parts"},
          {message(R"({"role":"user","content":["a"]})"), "messages[1].content[0]", "must be an object"},
          {message(
               R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{}}]})"),
           "messages[1].content[1].type", R"(is "image_url"; this server takes text only)"},
          {message(R"({"role":"user","content":[{"type":"text"}]})"), "messages[1].content[0].text",
           "missing"},
          {message(R"({"role":"user","content":[{"type":"text","text":5}]})"), "messages[1].content[0].text",
           "is 5"},
          {message(R"({"role":"user","content":[{"text":"a"}]})"), "messages[1].content[0].type",
           "is missing"},
          {message(R"({"role":"user","content":"a","name":5})"), "messages[1].name", "a string"},
          {message(R"({"role":"tool","content":"a"})"), "messages[1].tool_call_id", "id of the call"},
          {message(R"({"role":"assistant","tool_calls":{}})"), "messages[1].tool_calls", "a list"},
          {message(R"({"role":"assistant","tool_calls":[5]})"), "messages[1].tool_calls[0]", "an object"},
          {message(R"({"role":"assistant","tool_calls":[{}]})"), "messages[1].tool_calls[0].function",
           "missing"},
          {message(R"({"role":"assistant","tool_calls":[{"function":{}}]})"),
           "messages[1].tool_calls[0].function.name", "missing"},
          {message(R"({"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{"}}]})"),
           "messages[1].tool_calls[0].function.arguments", "the JSON text of an object"},
          {"{" + kUser + R"(,"tools":[{"type":"function"}],"tool_choice":"auto"})", "tools",
           "tools[0].function"},
          {"{" + kUser + R"(,"tools":[{"type":"web_search"}]})", "tools", "tools[0].type"},
          {"{" + kUser + R"(,"tool_choice":{"type":"function","function":{"name":"f"}}})", "tool_choice",
           "not one of"},
          {"{" + kUser + R"(,"tool_choice":"required"})", "tool_choice", "tools is missing"},
          {"{" + kUser +
               R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}}})",
           "tool_choice", "allowed_tools"},
          {"{" + kUser +
               R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools","allowed_tools":)"
               R"({"mode":"auto","tools":[{"function":{"name":"g"}}]}}})",
           "tool_choice", "not one of the tools"},
          {"{" + kUser + R"(,"tools":[{"function":{"name":"f"}}],"tool_choice":"required","regex":"a"})",
           "tool_choice", "leave one of them out"},
          {"{" + kUser + R"(,"functions":[{}]})", "functions", "not supported"},
          {"{" + kUser + R"(,"chat_template":"{{ x }}"})", "chat_template", "--chat-template"},
          {"{" + kUser + R"(,"chat_template_kwargs":[]})", "chat_template_kwargs", "an object"},
          {"{" + kUser + R"(,"documents":{}})", "documents", "a list of objects"},
          {"{" + kUser + R"(,"reasoning_effort":5})", "reasoning_effort", "a string"},
          {"{" + kUser + R"(,"modalities":["text","audio"]})", "modalities", R"(has "audio")"},
          {"{" + kUser + R"(,"audio":{"voice":"x"}})", "audio", "not supported"},
          {"{" + kUser + R"(,"echo":true})", "echo", "chats have no echo"},
          {"{" + kUser + R"(,"continue_final_message":true,"add_generation_prompt":true})",
           "continue_final_message", "one of them must be false"},
          {"{" + kUser + R"(,"logprobs":1})", "logprobs", "true or false"},
          {"{" + kUser + R"(,"top_logprobs":2})", "top_logprobs", "needs logprobs = true"},
          {"{" + kUser + R"(,"logprobs":true,"top_logprobs":21})", "top_logprobs",
           "top_logprobs is 21; it must be at most"},
          {"{" + kUser + R"(,"logprobs":true,"top_logprobs":-1})", "top_logprobs", "at most 20"},
          {"{" + kUser + R"(,"max_tokens":5,"max_completion_tokens":6})", "max_tokens", "give one of them"},
          {"{" + kUser + R"(,"max_completion_tokens":0})", "max_completion_tokens", "an integer from 1"},
      },
      chat);
}

TEST(OpenaiRequest, ReadsPrompts) {
  const auto prompts = [](const string& json) { return (*completion(R"({"prompt":)" + json + "}")).prompts; };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(prompts(R"("a")"), (std::vector<Prompt>{"a"}));
  EXPECT_EQ(prompts(R"([""])"), (std::vector<Prompt>{""}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<Prompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1, 2.0, 3e0]"), (std::vector<Prompt>{Ids{1, 2, 3}}));
  EXPECT_EQ(prompts("[[1],[2147483647]]"), (std::vector<Prompt>{Ids{1}, Ids{2147483647}}));
}

TEST(OpenaiRequest, PutsFieldsOverDefaults) {
  SamplingParams defaults;
  defaults.temperature = 0.6f;
  defaults.top_k = 20;
  defaults.stop = {"x"};
  defaults.logprobs = 3;
  const ParseOptions options{.defaults = defaults, .unknown = UnknownFields::ignored};
  const auto plain = parse_completion(R"({"prompt":"a","temperature":null})", options);
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->common.sampling.temperature, 0.6f);
  EXPECT_EQ(plain->common.sampling.top_k, 20);
  EXPECT_EQ(plain->common.sampling.max_tokens, 16);
  EXPECT_FALSE(plain->common.max_tokens_given);
  EXPECT_TRUE(plain->common.add_special_tokens);
  EXPECT_EQ(plain->common.sampling.logprobs, std::nullopt) << "only a request asks for them";
  const auto full = parse_completion(
      R"({"model":"m","prompt":"a","temperature":1,"top_k":-1,"top_p":0.5,"min_p":0.25,"n":2,"seed":-1,
          "repetition_penalty":1.5,"frequency_penalty":-2,"presence_penalty":2,"logit_bias":{"13":-1e9,"7":0.5},
          "allowed_token_ids":[7],"bad_words":["no"],"max_tokens":16.0,"min_tokens":2,"stop":["a","b"],
          "stop_token_ids":[4],"ignore_eos":true,"skip_special_tokens":false,"include_stop_str_in_output":true,
          "logprobs":0,"priority":-3,"cache_salt":"s","stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},
          "return_token_ids":true,"return_tokens_as_token_ids":true,"add_special_tokens":false,"user":"u",
          "response_format":{"type":"text"},"suffix":"","use_beam_search":false,"store":true,
          "frob":1,"n\u001b":2})",
      options);
  ASSERT_TRUE(full) << full.error().message;
  const GenerationRequest& got = full->common;
  EXPECT_EQ(got.model, "m");
  EXPECT_EQ(got.sampling.temperature, 1);
  EXPECT_EQ(got.sampling.top_k, -1);
  EXPECT_EQ(got.sampling.top_p, 0.5f);
  EXPECT_EQ(got.sampling.min_p, 0.25f);
  EXPECT_EQ(got.sampling.n, 2);
  EXPECT_EQ(got.sampling.seed, UINT64_MAX);
  EXPECT_EQ(got.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(got.sampling.frequency_penalty, -2);
  EXPECT_EQ(got.sampling.presence_penalty, 2);
  EXPECT_EQ(got.sampling.logit_bias, (std::vector<LogitBias>{{13, -100}, {7, 0.5f}})) << "clamped";
  EXPECT_EQ(got.sampling.allowed_token_ids, std::vector<int32_t>{7});
  EXPECT_EQ(got.sampling.bad_words, std::vector<string>{"no"});
  EXPECT_EQ(got.sampling.max_tokens, 16);
  EXPECT_TRUE(got.max_tokens_given);
  EXPECT_EQ(got.sampling.min_tokens, 2);
  EXPECT_EQ(got.sampling.stop, (std::vector<string>{"a", "b"}));
  EXPECT_EQ(got.sampling.stop_token_ids, std::vector<int32_t>{4});
  EXPECT_TRUE(got.sampling.ignore_eos && got.sampling.include_stop_str_in_output);
  EXPECT_FALSE(got.sampling.skip_special_tokens);
  EXPECT_EQ(got.sampling.logprobs, 0);
  EXPECT_EQ(got.priority, -3);
  EXPECT_EQ(got.cache_salt, "s");
  EXPECT_TRUE(got.stream && got.include_usage && got.continuous_usage);
  EXPECT_TRUE(got.return_token_ids && got.return_tokens_as_ids);
  EXPECT_FALSE(got.add_special_tokens);
  EXPECT_EQ(full->ignored, (std::vector<string>{"frob", "n?"}));
}

TEST(OpenaiRequest, ContinuousUsageNeedsUsage) {
  const auto got =
      completion(R"({"prompt":"a","stream":true,"stream_options":{"continuous_usage_stats":true}})");
  ASSERT_TRUE(got);
  EXPECT_FALSE(got->common.continuous_usage || got->common.include_usage);
}

TEST(OpenaiRequest, ScoresAPromptWithoutAnAnswer) {
  const auto got = completion(R"({"prompt":"a","max_tokens":0,"echo":true,"logprobs":1,"best_of":1})");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->common.sampling.max_tokens, 0);
}

TEST(OpenaiRequest, ReadsSeedsOf64Bits) {
  const auto seed = [](const string& text) {
    return (*completion(R"({"prompt":"a","seed":)" + text + "}")).common.sampling.seed;
  };
  EXPECT_EQ(seed("0"), 0u);
  EXPECT_EQ(seed("9223372036854775807"), uint64_t{INT64_MAX});
  EXPECT_EQ(seed("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(seed("-9223372036854775808"), uint64_t{1} << 63);
  EXPECT_EQ(seed("null"), std::nullopt);
}

TEST(OpenaiRequest, BringsMessagesToTheFormOfTemplates) {
  const auto got = chat(R"({"messages":[
      {"role":"developer","content":"be \u00e4"},
      {"role":"user","content":[{"type":"text","text":"one"},{"type":"input_text","text":"two"}],"name":"n"},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"f","arguments":"{\"z\": 1.0, \"a\": [12345678901234567890123]}"}}]},
      {"role":"tool","tool_call_id":"c1","content":"4"},
      {"role":"assistant","refusal":"no"}],
      "reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":false},"documents":[{"t":"d"}],
      "tool_choice":"none","parallel_tool_calls":true,"logprobs":true,"top_logprobs":2,"max_completion_tokens":7,
      "modalities":["text"]})");
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->chat.messages,
            R"([{"role":"system","content":"be ä"},{"role":"user","content":"one\ntwo","name":"n"},)"
            R"({"role":"assistant","content":"","tool_calls":[{"id":"c1","type":"function",)"
            R"("function":{"name":"f","arguments":{"z":1.0,"a":[12345678901234567890123]}}}]},)"
            R"({"role":"tool","tool_call_id":"c1","content":"4"},)"
            R"({"role":"assistant","refusal":"no","content":"no"}])");
  EXPECT_EQ(got->chat.template_kwargs, R"({"enable_thinking":false,"reasoning_effort":"low"})");
  EXPECT_EQ(got->chat.documents, R"([{"t":"d"}])");
  EXPECT_TRUE(got->chat.tools.empty());
  EXPECT_TRUE(got->chat.add_generation_prompt);
  EXPECT_FALSE(got->common.add_special_tokens);
  EXPECT_EQ(got->common.sampling.logprobs, 2);
  EXPECT_TRUE(got->top_logprobs);
  EXPECT_EQ(got->common.sampling.max_tokens, 7);
  EXPECT_TRUE(got->ignored.empty());
}

TEST(OpenaiRequest, ReadsToolsAndChoices) {
  using Choice = ToolRequest::Choice;
  const auto with = [](const std::string& rest) {
    auto got = chat(R"({"messages":[{"role":"user","content":"a"}],"tools":[
      {"function":{"name":"f","parameters":{"$defs":{"P":{"properties":{"x":{}}},"E":{"enum":["a",1,null]}},
        "properties":{"p":{"$ref":"#/$defs/P"},"e":{"$ref":"#/$defs/E"},"o":{"anyOf":[{"$ref":"#/$defs/P"},{"type":"null"}]},
          "n":{"type":["number","null"]},"any":{},"far":{"$ref":"#/$defs/none"},"c":{"const":true},
          "l":{"items":{}},"loop":{"$ref":"#/properties/loop"}}}}},
      {"type":"function","function":{"name":"g"}}],)" +
                    rest + "}");
    EXPECT_TRUE(got) << got.error().message;
    return got ? got->tools : ToolRequest();
  };
  const ToolRequest automatic = with(R"("tool_choice":"auto")");
  EXPECT_EQ(automatic.choice, Choice::automatic);
  EXPECT_TRUE(automatic.forced.empty());
  const std::map<std::string, std::string> types = {{"p", "object"},      {"e", "string number null"},
                                                    {"o", "object null"}, {"n", "number null"},
                                                    {"any", ""},          {"far", ""},
                                                    {"c", "boolean"},     {"l", "array"},
                                                    {"loop", ""}};
  EXPECT_EQ(automatic.types.at("f"), types);
  const ToolRequest required = with(R"("tool_choice":"required")");
  ASSERT_EQ(required.forced.size(), 2U);
  EXPECT_EQ(required.forced[1].name, "g");
  const ToolRequest named = with(R"("tool_choice":{"function":{"name":"g"}})");
  ASSERT_EQ(named.forced.size(), 1U);
  EXPECT_EQ(named.forced[0].index, 1U);
  for (const bool forced : {false, true}) {
    const ToolRequest allowed = with(R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":)" +
                                     std::string(forced ? R"("required")" : R"("auto")") +
                                     R"(,"tools":[{"type":"function","function":{"name":"g"}}]}})");
    EXPECT_EQ(allowed.choice, forced ? Choice::required : Choice::automatic);
    EXPECT_EQ(allowed.tools, R"([{"type":"function","function":{"name":"g"}}])");
    EXPECT_EQ(allowed.forced.size(), forced ? 1U : 0U);
  }
  // response_format is of texts; a call has none.
  EXPECT_EQ(with(R"("tool_choice":"required","response_format":{"type":"json_object"})").choice,
            Choice::required);
}

TEST(OpenaiRequest, GoesOnWithTheFinalMessage) {
  const auto got = chat(R"({"messages":[{"role":"assistant","content":"a"}],"continue_final_message":true})");
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->chat.continue_final_message);
  EXPECT_FALSE(got->chat.add_generation_prompt);
  EXPECT_EQ(got->common.sampling.max_tokens, std::nullopt);
}

TEST(OpenaiRequest, LeavesTheReasoningInTheText) {
  for (const auto& [field, splits] :
       {std::pair(R"("separate_reasoning":false)", false), std::pair(R"("separate_reasoning":true)", true),
        std::pair(R"("reasoning_format":"none")", false), std::pair(R"("reasoning_format":"auto")", true)}) {
    const auto got = chat(std::string(R"({"messages":[{"role":"user","content":"a"}],)") + field + "}");
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->common.splits_reasoning, splits) << field;
  }
  EXPECT_FALSE(chat(R"({"messages":[{"role":"user","content":"a"}],"reasoning_format":"x"})"));
}

TEST(OpenaiRequest, TurnsThinkingOnAndOff) {
  const auto kwargs = [](const std::string& fields) {
    const auto got = chat(R"({"messages":[{"role":"user","content":"a"}],)" + fields + "}");
    return got ? got->chat.template_kwargs : got.error().message;
  };
  const std::string off = R"({"enable_thinking":false,"thinking":false)",
                    on = R"({"enable_thinking":true,"thinking":true)";
  EXPECT_EQ(kwargs(R"("enable_thinking":false)"), off + "}");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"disabled"})"), off + "}");
  EXPECT_EQ(kwargs(R"("thinking":false)"), off + "}");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"enabled","budget_tokens":9})"), on + "}");
  EXPECT_EQ(kwargs(R"("reasoning_effort":"none")"), off + R"(,"reasoning_effort":"none"})");
  EXPECT_EQ(kwargs(R"("reasoning_effort":"high","enable_thinking":true)"),
            on + R"(,"reasoning_effort":"high"})");
  EXPECT_EQ(kwargs(R"("chat_template_kwargs":{"enable_thinking":true},"enable_thinking":false)"),
            R"({"enable_thinking":true,"thinking":false})");
  EXPECT_NE(kwargs(R"("thinking":{"type":"some"})").find("thinking is"), std::string::npos);
}

TEST(OpenaiRequest, BoundsTheDepthOfArguments) {
  const size_t deep = kMaxJsonDepth - 1;
  const string arguments = R"({\"a\":)" + string(deep, '[') + string(deep, ']') + "}";
  expect_refused({{R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":")" +
                       arguments + R"("}}]}]})",
                   "messages", "nested deeper"}},
                 chat);
}

TEST(OpenaiRequest, ReadsEmbeddings) {
  const auto got = parse_embedding(
      R"({"model":"e","input":["a","b"],"encoding_format":"base64","dimensions":4,"truncate_prompt_tokens":-1,"user":"u"})");
  ASSERT_TRUE(got);
  EXPECT_EQ(got->inputs, (std::vector<Prompt>{"a", "b"}));
  EXPECT_TRUE(got->base64 && got->truncate);
  EXPECT_EQ(got->dimensions, 4);
  expect_refused(
      {
          {"{}", "input", "input is missing"},
          {R"({"input":[]})", "input", "input is []"},
          {R"({"input":"a","encoding_format":"int8"})", "encoding_format", R"("float" or "base64")"},
          {R"({"input":"a","dimensions":0})", "dimensions", "integer from 1"},
          {R"({"input":"a","truncate_prompt_tokens":5})", "truncate_prompt_tokens", "from -1 to -1"},
      },
      [](const string& body) { return parse_embedding(body); });
}

TEST(OpenaiRequest, ReadsTokenizeAndDetokenize) {
  const auto text = parse_tokenize(R"({"prompt":"","return_token_strs":true})");
  ASSERT_TRUE(text);
  EXPECT_EQ(text->prompt, "");
  EXPECT_TRUE(text->add_special_tokens && text->return_token_strs);
  const auto of_chat = parse_tokenize("{" + kUser + "}");
  ASSERT_TRUE(of_chat);
  EXPECT_FALSE(of_chat->prompt || of_chat->add_special_tokens);
  EXPECT_EQ(of_chat->chat->messages, R"([{"role":"user","content":"hi"}])");
  const auto ids = parse_detokenize(R"({"tokens":[1,2]})");
  ASSERT_TRUE(ids);
  EXPECT_EQ(ids->tokens, (std::vector<int32_t>{1, 2}));
  expect_refused(
      {
          {"{}", "prompt", "prompt is missing"},
          {R"({"prompt":["a"]})", "prompt", "a string"},
          {R"({"prompt":"a",)" + kUser + "}", "prompt", "both given"},
          {R"({"messages":[{}]})", "messages[0].role", "missing"},
          {R"({"prompt":"a","add_special_tokens":1})", "add_special_tokens", "true or false"},
      },
      [](const string& body) { return parse_tokenize(body); });
  expect_refused(
      {
          {"{}", "tokens", "tokens is missing"},
          {R"({"tokens":"a"})", "tokens", "a list of token ids"},
          {R"({"tokens":[-1]})", "tokens[0]", "a token id"},
      },
      [](const string& body) { return parse_detokenize(body); });
}

TEST(OpenaiRequest, RefusesUnknownFields) {
  expect_refused(
      {
          {R"({"prompt":"a","temprature":1})", "temprature", R"(did you mean "temperature"?)"},
          {R"({"promt":"a"})", "promt", R"(did you mean "prompt"?)"},
          {R"({"prompt":"a","temprature":null})", "temprature", "--ignore-unknown-fields"},
          {R"({"prompt":"a","frobnicate":1})", "frobnicate", "unknown field frobnicate; leave it out, or"},
          {R"({"prompt":"a","messages":[]})", "messages", "unknown field messages"},
          {R"({"prompt":"a","stream":true,"stream_options":{"include_usag":true}})",
           "stream_options.include_usag", R"(did you mean "include_usage"?)"},
          {R"({"prompt":"a","response_format":{"type":"text","shema":1}})", "response_format.shema",
           "unknown"},
          {R"({"prompt":"a","x, y\u001b[0m\"":1})", "x??y?[0m?", "unknown field x??y?[0m?;"},
          {R"({"prompt":"a",")" + string(3000, 'n') + R"(":1})", string(40, 'n') + "...", "unknown field"},
      },
      completion);
  const auto message = [](const string& fields) {
    return R"({"messages":[{"role":"user","content":"a"},{)" + fields + "}]}";
  };
  expect_refused(
      {
          {message(R"("role":"user","content":"a","contnet":"b")"), "messages[1].contnet", "\"content\"?"},
          {message(R"("role":"user","content":[{"type":"text","text":"a","txt":"b"}])"),
           "messages[1].content[0].txt", R"(did you mean "text"?)"},
          {message(R"("role":"assistant","tool_calls":[{"function":{"name":"f","argumnts":"{}"}}])"),
           "messages[1].tool_calls[0].function.argumnts", R"("arguments"?)"},
          {message(R"("role":"assistant","tool_calls":[{"funktion":1,"function":{"name":"f"}}])"),
           "messages[1].tool_calls[0].funktion", R"("function"?)"},
          {"{" + kUser + R"(,"max_token":5})", "max_token", R"("max_tokens"?)"},
      },
      chat);
  expect_refused({{R"({"input":"a","encoding":"base64"})", "encoding", "unknown field"},
                  {R"({"input":"a","temperature":1})", "temperature", "unknown field"}},
                 [](const string& body) { return parse_embedding(body); });
  expect_refused({{R"({"prompt":"a","add_specialtokens":1})", "add_specialtokens", "add_special_tokens"}},
                 [](const string& body) { return parse_tokenize(body); });
  expect_refused({{R"({"tokens":[1],"token":1})", "token", "tokens"}},
                 [](const string& body) { return parse_detokenize(body); });
}

TEST(OpenaiRequest, IgnoresUnknownFieldsWhereThatIsAsked) {
  const ParseOptions options{.unknown = UnknownFields::ignored};
  const auto got = parse_chat_completion(
      R"({"messages":[{"role":"user","content":"a","mood":1}],"x":1,"stream":true,"stream_options":{"y":1}})",
      options);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(got->ignored, (std::vector<string>{"messages[0].mood", "stream_options.y", "x"}));
  string many = R"({"prompt":"a")";
  for (int i = 0; i < 100; ++i)
    many += ",\"" + string(1000, 'x') + std::to_string(i) + "\":1";
  const auto bounded = parse_completion(many + "}", options);
  ASSERT_TRUE(bounded);
  ASSERT_EQ(bounded->ignored.size(), 16u);
  EXPECT_LT(bounded->ignored[0].size(), 70u);
  EXPECT_EQ(parse_completion(R"({"prompt":"a","suffix":"x","y":1})", options).error().param, "suffix")
      << "what others have and changes answers is never ignored";
}

bool is_read(std::string_view path, std::string_view name) {
  for (const ReadFields& fields : read_fields())
    if (fields.path == path) return std::ranges::binary_search(fields.names, name);
  return false;
}

TEST(OpenaiRequest, KnowsTheFieldsOfOtherServers) {
  for (const FieldRule& rule : field_rules()) {
    const string name(rule.name);
    if (is_read("/v1/completions", name)) continue;
    const auto with = [&](const string& value) {
      return completion(R"({"prompt":"a",")" + name + "\":" + value + "}");
    };
    const auto asked = with(R"({"some":"thing"})");
    if (rule.kind == FieldRule::Kind::no_effect) {
      EXPECT_TRUE(asked) << name;
      continue;
    }
    ASSERT_FALSE(asked) << name;
    EXPECT_EQ(asked.error().param, name);
    EXPECT_EQ(asked.error().code, "unsupported_parameter");
    EXPECT_NE(asked.error().message.find(name + " is not supported (it is an object); leave it out: "),
              string::npos);
    for (const char* value : {"null", "false", "[]", "{}", "\"\""})
      EXPECT_TRUE(with(value)) << name << " " << value;
    for (std::string_view left = rule.off; !left.empty();) {
      const size_t end = std::min(left.find(' '), left.size());
      EXPECT_TRUE(with(string(left.substr(0, end)))) << name;
      left.remove_prefix(std::min(end + 1, left.size()));
    }
  }
  for (const char* body : {R"("best_of":1)", R"("best_of":1.0)", R"("length_penalty":1)",
                           R"("typical_p":1.0)", R"("modalities":["text"])"})
    EXPECT_TRUE(completion(string(R"({"prompt":"a",)") + body + "}")) << body;
  for (const char* body : {R"("best_of":2)", R"("length_penalty":1.5)", R"("typical_p":0.5)",
                           R"("best_of":true)", R"("modalities":["audio"])", R"("mirostat":2)"})
    EXPECT_FALSE(completion(string(R"({"prompt":"a",)") + body + "}")) << body;
}

}  // namespace
}  // namespace fovea::openai
