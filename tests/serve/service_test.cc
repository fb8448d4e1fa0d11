// The service with fake exchanges and a stub engine: admission, answers, and that every request ends.
#include "server/service.h"

#include <gmock/gmock.h>

#include <future>

#include "server/work_queue.h"
#include "tests/serve/fake_exchange.h"
#include "tests/serve/stub_engine.h"

namespace fovea::server {
namespace {

using http::FakeExchange;
using http::FakeLoop;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Exchange = std::shared_ptr<FakeExchange>;

const http::Headers kJson = {{"Content-Type", "application/json"}};

class ServiceTest : public testing::Test {
 protected:
  void SetUp() override { start(); }

  void start(const StubEngine::Options& options = {}) {
    stop();
    engine_ = std::make_unique<StubEngine>(options);
    config_.served_names = {"stub", "other/name"};
    config_.max_running_requests = options.slots;
    config_.version = "1.2.3";
    config_.server_info = R"({"page_size": 16})";
    loop_ = std::make_unique<FakeLoop>();
    auto service = Service::create(config_, engine_.get(), nullptr);
    ASSERT_TRUE(service) << service.error().message;
    service_ = *std::move(service);
    service_->set_ready();
    handler_ = service_->handler();
  }

  void TearDown() override { stop(); }
  /// Shuts down in the order of `fovea serve`.
  void stop() {
    if (!service_) return;
    for (const Exchange& exchange : all_)
      EXPECT_FALSE(exchange->misused()) << exchange->request().path << " " << exchange->request().body;
    all_.clear();
    service_->abort_all();
    loop_->stop();
    handler_ = nullptr;
    service_.reset();
    engine_.reset();
  }

  Exchange send(std::string method, std::string path, std::string body = {}, http::Headers headers = kJson) {
    http::Request request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.body = std::move(body);
    request.headers = std::move(headers);
    request.id = "req-1";
    request.remote = remote_;
    auto exchange = std::make_shared<FakeExchange>(*loop_, std::move(request));
    all_.push_back(exchange);
    handler_(exchange);
    return exchange;
  }
  FakeExchange::Seen get(std::string path, http::Headers headers = {}) {
    return send("GET", std::move(path), "", std::move(headers))->answer();
  }
  FakeExchange::Seen post(std::string path, std::string body) {
    return send("POST", std::move(path), std::move(body))->answer();
  }
  Exchange complete(const std::string& fields) {
    return send("POST", "/v1/completions", R"({"model": "stub", )" + fields + "}");
  }
  /// Waits until no request runs, waits or is unanswered.
  bool idle() {
    for (int i = 0; i < 2000; ++i) {
      const EngineStats stats = engine_->stats();
      if (service_->in_flight() == 0 && stats.running == 0 && stats.waiting == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  ServiceConfig config_;
  std::string remote_ = "192.0.2.1";  // of the requests sent
  std::unique_ptr<StubEngine> engine_;
  std::unique_ptr<FakeLoop> loop_;
  std::unique_ptr<Service> service_;
  http::Handler handler_;
  std::vector<Exchange> all_;
};

MATCHER_P2(IsError, status, text, "") {
  *result_listener << arg.status << " " << arg.body;
  return arg.status == status && arg.body.starts_with("{\"error\":{\"message\":") &&
         arg.body.find(text) != std::string::npos;
}

TEST_F(ServiceTest, AnswersWhole) {
  const auto seen = post("/v1/completions", R"({"model": "stub", "prompt": "hi", "max_tokens": 5})");
  EXPECT_EQ(seen.status, 200);
  EXPECT_THAT(seen.body, HasSubstr(R"("text":"abcde")"));
  EXPECT_THAT(seen.body, HasSubstr(R"("finish_reason":"length")"));
  EXPECT_THAT(seen.body, HasSubstr(R"("prompt_tokens":2)"));
  EXPECT_THAT(seen.body, HasSubstr(R"("completion_tokens":5)"));
  EXPECT_TRUE(idle());
}

TEST_F(ServiceTest, SaysWhenToTryAgainWhereConnectionsRanOut) {
  const http::Response page = service_->error_page()(503, "full");
  EXPECT_THAT(page.headers, testing::Contains(testing::Pair("Retry-After", "1")));
  EXPECT_THAT(service_->error_page()(408, "late").headers,
              testing::Not(testing::Contains(testing::Pair("Retry-After", testing::_))));
}

TEST_F(ServiceTest, StreamsAChat) {
  const auto seen =
      post("/v1/chat/completions",
           R"({"model": "stub", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3,
                             "stream": true, "stream_options": {"include_usage": true}})");
  EXPECT_EQ(seen.status, 200);
  EXPECT_EQ(seen.content_type, "text/event-stream; charset=utf-8");
  EXPECT_THAT(seen.body, StartsWith("data: {"));
  EXPECT_THAT(seen.body, HasSubstr(R"("role":"assistant")"));
  EXPECT_THAT(seen.body, HasSubstr(R"("finish_reason":"length")"));
  EXPECT_THAT(seen.body, HasSubstr(R"("choices":[],)"));
  EXPECT_TRUE(seen.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(idle());
}

/// Outputs may have several tokens, as with drafts: of each it is known whether it is reasoning.
TEST_F(ServiceTest, CountsTheTokensOfTheReasoning) {
  config_.reasoning_parser = "qwen3";
  std::string said = "<think>hm</think>\nok";
  StubEngine::Options options;
  options.script = [&](const GenerateRequest&) {
    RequestOutput output;
    output.text = said;
    output.token_ids.assign(said.begin(), said.end());  // a token is a byte
    return output;
  };
  start(options);
  const std::string chat = R"("messages": [{"role": "user", "content": "hi"}], "max_tokens": 99)";
  const auto whole = post("/v1/chat/completions", "{" + chat + "}");
  EXPECT_THAT(whole.body, HasSubstr(R"("content":"ok")"));
  EXPECT_THAT(whole.body, HasSubstr(R"("reasoning":"hm","reasoning_content":"hm")"));
  EXPECT_THAT(whole.body, HasSubstr(R"("completion_tokens":20)"));
  // The last byte of the tag, two of the text, and the tag at the end.
  EXPECT_THAT(whole.body, HasSubstr(R"("reasoning_tokens":11)"));
  const auto hidden = post("/v1/chat/completions", "{\"include_reasoning\": false, " + chat + "}");
  EXPECT_THAT(hidden.body, testing::Not(HasSubstr("hm")));
  EXPECT_THAT(hidden.body, HasSubstr(R"("reasoning_tokens":11)"));
  EXPECT_THAT(post("/v1/chat/completions",
                   "{\"stream\": true, \"stream_options\": {\"include_usage\": true}, " + chat + "}")
                  .body,
              HasSubstr(R"("reasoning_tokens":11)"));
  EXPECT_THAT(post("/v1/responses", R"({"input": "x"})").body, HasSubstr(R"("reasoning_tokens":11)"));
  said = "no <think>hm</think>";
  EXPECT_THAT(post("/v1/chat/completions", "{" + chat + "}").body, HasSubstr(R"("reasoning_tokens":0)"));
}

/// Only whole calls are to be made.
TEST_F(ServiceTest, ACallThatBreaksOffIsNoReasonToFinish) {
  config_.tool_call_parser = "hermes";
  std::string said;
  StubEngine::Options options;
  options.script = [&](const GenerateRequest&) {
    RequestOutput output;
    output.text = said;
    output.token_ids = {1};
    return output;
  };
  start(options);
  const std::string chat =
      R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f"}}])";
  for (const auto& [text, reason] :
       {std::pair(R"(<tool_call>{"name": "f", "arguments": {"a": 1}})", "tool_calls"),
        std::pair(R"(<tool_call>{"name": "f", "arguments": {"a": ")", "stop")}) {
    said = text;
    for (const char* stream : {"false", "true"})
      EXPECT_THAT(post("/v1/chat/completions", chat + R"(, "stream": )" + stream + "}").body,
                  HasSubstr(std::string(R"("finish_reason":")") + reason + "\""))
          << text;
  }
}

TEST_F(ServiceTest, TheServerHasVariablesForTheTemplate) {
  config_.template_kwargs = R"({"enable_thinking": false, "a": 1})";
  start();
  const auto prompt = [&](const std::string& more) {
    post("/v1/chat/completions",
         R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1)" + more + "}");
    return engine_->last_template_kwargs();
  };
  EXPECT_EQ(prompt(""), R"({"enable_thinking":false,"a":1})");
  EXPECT_EQ(prompt(R"(, "chat_template_kwargs": {"enable_thinking": true})"),
            R"({"enable_thinking":true,"a":1})");
  EXPECT_EQ(prompt(R"(, "reasoning_effort": "low")"),
            R"({"reasoning_effort":"low","enable_thinking":false,"a":1})");
  post("/v1/messages", R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 1})");
  EXPECT_EQ(engine_->last_template_kwargs(), R"({"enable_thinking":false,"a":1})");
  for (const char* bad : {"[1]", "{"}) {
    config_.template_kwargs = bad;
    EXPECT_FALSE(Service::create(config_, engine_.get(), nullptr)) << bad;
  }
  config_.template_kwargs = "";
}

TEST_F(ServiceTest, ListsOfPromptsAndSeveralAnswersAreChoicesOfOne) {
  const auto seen =
      post("/v1/completions", R"({"model": "stub", "prompt": ["x", "yz"], "n": 2, "max_tokens": 2})");
  EXPECT_EQ(seen.status, 200);
  for (const char* index : {"\"index\":0", "\"index\":1", "\"index\":2", "\"index\":3"})
    EXPECT_THAT(seen.body, HasSubstr(index));
  EXPECT_THAT(seen.body, Not(HasSubstr("\"index\":4")));
  EXPECT_THAT(seen.body, HasSubstr(R"("prompt_tokens":3)"));
  EXPECT_THAT(seen.body, HasSubstr(R"("completion_tokens":8)"));
  EXPECT_EQ(engine_->submitted(), 4);
}

TEST_F(ServiceTest, OneBadPromptOfAListStartsNone) {
  const auto seen = post("/v1/completions", R"({"model": "stub", "prompt": [[1, 2], [3, 999]]})");
  EXPECT_THAT(seen, IsError(400, "prompt token is 999"));
  EXPECT_THAT(seen.body, HasSubstr(R"("param":"prompt")"));
  EXPECT_EQ(engine_->submitted(), 0);
}

TEST_F(ServiceTest, EchoPutsThePromptFirst) {
  const auto seen =
      post("/v1/completions", R"({"model": "stub", "prompt": "hi ", "max_tokens": 2, "echo": true})");
  EXPECT_THAT(seen.body, HasSubstr(R"("text":"hi ab")"));
}

TEST_F(ServiceTest, KeysAreNeededExceptForHealth) {
  config_.api_keys = {"first", "second"};
  start();
  for (const char* path : {"/health", "/ping"})
    EXPECT_EQ(get(path).status, 200) << path;
  for (const char* path :
       {"/v1/models", "/metrics", "/version", "/server_info", "/server_state", "/nowhere"}) {
    const auto seen = get(path);
    EXPECT_THAT(seen, IsError(401, "invalid_api_key")) << path;
    EXPECT_EQ(seen.header("WWW-Authenticate"), "Bearer");
  }
  for (const char* path :
       {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/v1/embeddings"})
    EXPECT_EQ(post(path, "{}").status, 401) << path;
  EXPECT_EQ(send("OPTIONS", "/v1/models")->answer().status, 401);
  for (const char* wrong : {"Bearer", "Bearer ", "Bearer firs", "Bearer firstx", "Bearer FIRST", "first",
                            "Basic first", "Bearer first second", "Bearer \0"})
    EXPECT_EQ(get("/v1/models", {{"Authorization", wrong}}).status, 401) << wrong;
  EXPECT_EQ(get("/v1/models", {{"Authorization", "Bearer " + std::string(1 << 12, 'x')}}).status, 401);
  for (const char* right : {"Bearer first", "bearer second", "Bearer   first"})
    EXPECT_EQ(get("/v1/models", {{"Authorization", right}}).status, 200) << right;
  EXPECT_EQ(engine_->submitted(), 0);
}

TEST_F(ServiceTest, KeysThatNoClientCouldSendAreRefused) {
  for (const std::string& key :
       {std::string(), std::string("a b"), std::string("a\n"), std::string(257, 'x')}) {
    config_.api_keys = {key};
    const auto service = Service::create(config_, engine_.get(), nullptr);
    ASSERT_FALSE(service);
    EXPECT_THAT(service.error().message, HasSubstr("1 to 256"));
  }
}

TEST_F(ServiceTest, OriginsAreAllowedByName) {
  const http::Headers page = {{"Origin", "https://page.example"}};
  EXPECT_EQ(get("/v1/models", page).header("Access-Control-Allow-Origin"), "");
  config_.cors_origins = {"https://page.example"};
  config_.api_keys = {"key"};
  start();
  const auto seen = get("/v1/models", page);
  EXPECT_EQ(seen.status, 401);  // with CORS headers, so that a page can read the error
  EXPECT_EQ(seen.header("Access-Control-Allow-Origin"), "https://page.example");
  EXPECT_EQ(seen.header("Vary"), "Origin");
  const auto other =
      get("/v1/models", {{"Origin", "https://other.example"}, {"Authorization", "Bearer key"}});
  EXPECT_EQ(other.header("Access-Control-Allow-Origin"), "");
  const auto preflight = send("OPTIONS", "/v1/chat/completions", "",
                              {{"Origin", "https://page.example"}, {"Access-Control-Request-Method", "POST"}})
                             ->answer();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_THAT(preflight.header("Access-Control-Allow-Headers"), HasSubstr("authorization"));
  config_.cors_origins = {"*"};
  start();
  EXPECT_EQ(get("/health", page).header("Access-Control-Allow-Origin"), "*");
}

TEST_F(ServiceTest, SaysWhatIsWrongWithPathsMethodsAndTypes) {
  EXPECT_THAT(get("/v2/models"), IsError(404, "there is no such path"));
  const auto method = get("/v1/completions");
  EXPECT_THAT(method, IsError(405, "takes POST"));
  EXPECT_EQ(method.header("Allow"), "POST, OPTIONS");
  EXPECT_EQ(send("DELETE", "/health")->answer().header("Allow"), "GET, HEAD, OPTIONS");
  for (const http::Headers& headers :
       {http::Headers{}, {{"Content-Type", "text/plain"}}, {{"Content-Type", "application/jsonx"}}})
    EXPECT_THAT(send("POST", "/v1/completions", R"({"prompt": "x"})", headers)->answer(),
                IsError(415, "Content-Type"));
  EXPECT_EQ(send("POST", "/v1/completions", R"({"prompt": "x"})",
                 {{"content-type", "Application/JSON; charset=utf-8"}})
                ->answer()
                .status,
            200);
}

TEST_F(ServiceTest, MessagesHaveTheirOwnErrorsAndKeys) {
  config_.api_keys = {"key"};
  start();
  const std::string body = R"({"max_tokens": 3, "messages": [{"role": "user", "content": "x"}]})";
  const auto with = [&](const char* header, const char* value, const std::string& sent) {
    return send("POST", "/v1/messages", sent, {{"Content-Type", "application/json"}, {header, value}})
        ->answer();
  };
  const auto unknown = with("x-api-key", "other", body);
  EXPECT_EQ(unknown.status, 401);
  EXPECT_EQ(unknown.body, R"({"type":"error","error":{"type":"authentication_error","message":)"
                          R"("the API key is not valid"},"request_id":"req-1"})");
  EXPECT_EQ(unknown.header("request-id"), "req-1");
  const auto seen = with("x-api-key", "key", body);
  EXPECT_EQ(seen.status, 200);
  EXPECT_THAT(seen.body, HasSubstr(R"("content":[{"type":"text","text":"abc"}],"stop_reason":"max_tokens")"));
  EXPECT_EQ(with("authorization", "Bearer key", body).status, 200);
  const auto stream = with("x-api-key", "key", R"({"stream": true, "betas": [], )" + body.substr(1));
  EXPECT_THAT(stream.body, StartsWith("event: message_start\ndata: {"));
  EXPECT_THAT(stream.body, HasSubstr("\n\nevent: ping\n"));
  EXPECT_EQ(stream.header("X-Ignored-Fields"), "betas");
  EXPECT_EQ(stream.header("request-id"), "req-1");
  EXPECT_THAT(with("x-api-key", "key", "{}").body, HasSubstr("invalid_request_error"));
  const auto count =
      send("POST", "/v1/messages/count_tokens", body, {kJson[0], {"x-api-key", "key"}})->answer();
  EXPECT_THAT(count.body, StartsWith("{\"input_tokens\":"));
  const auto models = get("/v1/models", {{"x-api-key", "key"}, {"anthropic-version", "2023-06-01"}});
  EXPECT_THAT(models.body,
              StartsWith(R"({"data":[{"type":"model","id":"stub","display_name":"stub","created_at":"2)"));
  EXPECT_THAT(models.body, HasSubstr(R"("has_more":false,"first_id":"stub","last_id":"other/name"})"));
}

TEST_F(ServiceTest, ResponsesAreAnswered) {
  const auto seen = post("/v1/responses", R"({"input": "x", "max_output_tokens": 3, "store": true})");
  EXPECT_EQ(seen.status, 200);
  EXPECT_THAT(seen.body, HasSubstr(R"("text":"abc")"));
  EXPECT_THAT(seen.body, HasSubstr(R"("status":"incomplete")"));
  EXPECT_EQ(seen.header("X-Ignored-Fields"), "");
  EXPECT_THAT(post("/v1/responses", R"({"input": "x", "previous_response_id": "resp_1"})"),
              IsError(400, "previous_response_id"));
  const auto stream = post("/v1/responses", R"({"input": "x", "max_output_tokens": 3, "stream": true})");
  EXPECT_THAT(stream.body, StartsWith("event: response.created\ndata: {"));
  EXPECT_THAT(stream.body, HasSubstr("event: response.incomplete\n"));
}

TEST_F(ServiceTest, SpeaksOllama) {
  const std::string chat = R"({"model": "stub:latest", "messages": [{"role": "user", "content": "x"}],
      "options": {"num_predict": 3}, )";
  const auto stream = post("/api/chat", chat + R"("keep_alive": 0})");
  EXPECT_EQ(stream.content_type, "application/x-ndjson");
  EXPECT_EQ(std::ranges::count(stream.body, '\n'), 4);
  EXPECT_THAT(stream.body, HasSubstr(R"("message":{"role":"assistant","content":"c"},"done":false})"));
  const auto whole = post("/api/chat", chat + R"("stream": false})");
  EXPECT_THAT(whole.body, StartsWith(R"({"model":"stub:latest","created_at":"2)"));
  EXPECT_THAT(whole.body, HasSubstr(R"("content":"abc"},"done":true,"done_reason":"length")"));
  EXPECT_THAT(
      post("/api/generate", R"({"prompt": "x", "raw": true, "stream": false, "options": {"num_predict": 2}})")
          .body,
      HasSubstr(R"("response":"ab","done":true)"));
  EXPECT_THAT(post("/api/generate", R"({"model": "stub"})").body, HasSubstr(R"("done_reason":"load")"));
  const auto unknown = post("/api/chat", R"({"model": "none", "messages": []})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.body, R"({"error":"The model `none` does not exist."})");
  EXPECT_THAT(get("/api/tags").body, HasSubstr(R"("name":"other/name")"));
  EXPECT_THAT(get("/api/ps").body, HasSubstr(R"("name":"stub")"));
  EXPECT_EQ(get("/api/version").body, R"({"version":"0.12.0"})");  // the API's
  EXPECT_THAT(post("/api/show", R"({"model": "stub"})").body, HasSubstr("\"capabilities\":[\"completion\""));
}

TEST_F(ServiceTest, AdaptersAreModels) {
  ASSERT_TRUE(engine_->load_lora({"sql", "somewhere"}).ok());
  EXPECT_THAT(get("/v1/models").body,
              HasSubstr(R"({"id":"sql","object":"model","created":7,"owned_by":"fovea","root":"sql",)"
                        R"("parent":"stub")"));
  EXPECT_THAT(get("/v1/models/sql").body, HasSubstr(R"("parent":"stub")"));
  EXPECT_THAT(get("/v1/models", {{"anthropic-version", "x"}}).body, HasSubstr(R"("id":"sql")"));
  EXPECT_THAT(get("/api/tags").body, HasSubstr(R"("name":"sql")"));
  const std::pair<const char*, const char*> bodies[] = {
      {"/v1/completions", R"("prompt": "hi")"},
      {"/v1/chat/completions", R"("messages": [{"role": "user", "content": "x"}])"},
      {"/v1/messages", R"("max_tokens": 3, "messages": [{"role": "user", "content": "x"}])"},
      {"/v1/responses", R"("input": "x")"},
      {"/api/generate", R"("prompt": "hi", "stream": false)"}};
  for (const auto& [path, body] : bodies) {
    auto seen = post(path, R"({"model": "sql", )" + std::string(body) + "}");
    EXPECT_EQ(seen.status, 200) << path << seen.body;
    EXPECT_THAT(seen.body, HasSubstr(R"("model":"sql")")) << path;
    EXPECT_EQ(engine_->last_lora(), "sql") << path;
    seen = post(path, R"({"model": "other/name", )" + std::string(body) + "}");
    EXPECT_EQ(seen.status, 200) << path << seen.body;
    EXPECT_EQ(engine_->last_lora(), "") << path;
    EXPECT_EQ(post(path, R"({"model": "sqp", )" + std::string(body) + "}").status, 404) << path;
  }
}

TEST_F(ServiceTest, AdaptersAreLoadedWhereThatIsAllowed) {
  const char *load = "/v1/load_lora_adapter", *unload = "/v1/unload_lora_adapter";
  const std::string body = R"({"lora_name": "sql", "lora_path": "somewhere"})";
  EXPECT_THAT(post(load, body), IsError(403, "--allow-lora-updating"));
  EXPECT_THAT(post(unload, R"({"lora_name": "sql"})"), IsError(403, "--allow-lora-updating"));
  config_.lora_updates = true;
  start();
  EXPECT_THAT(post(unload, R"({"lora_name": "sql"})"), IsError(404, "not loaded"));
  EXPECT_THAT(post(load, R"({"lora_name": "sql", "lora_path": "bad"})"), IsError(400, "r is missing"));
  EXPECT_THAT(post(load, R"({"lora_name": "sql", "lora_path": "absent"})"),
              IsError(404, "no such directory"));
  EXPECT_THAT(post(load, R"({"lora_name": "sql"})"), IsError(400, "lora_path is missing"));
  EXPECT_THAT(post(load, R"({"lora_path": "x"})"), IsError(400, "lora_name is missing"));
  EXPECT_THAT(post(load, R"({"lora_name": "stub", "lora_path": "x"})"), IsError(400, "the model's own name"));
  EXPECT_THAT(post(load, R"({"lora_name": "sql", "lora_path": "x", "load_inplace": true})"),
              IsError(400, "unload the adapter first"));
  EXPECT_THAT(post(load, R"({"lora_name": "sql", "lora_path": "x", "rank": 8})"), IsError(400, "rank"));
  auto seen = post(load, body);
  EXPECT_EQ(seen.status, 200) << seen.body;
  EXPECT_EQ(seen.body, "Success: LoRA adapter 'sql' added successfully.");
  EXPECT_EQ(post("/v1/completions", R"({"model": "sql", "prompt": "hi"})").status, 200);
  seen = post(unload, R"({"lora_name": "sql", "lora_int_id": 1})");
  EXPECT_EQ(seen.body, "Success: LoRA adapter 'sql' removed successfully.");
  EXPECT_EQ(post("/v1/completions", R"({"model": "sql", "prompt": "hi"})").status, 404);
}

TEST_F(ServiceTest, RefusesCompressedBodies) {
  const auto with = [&](const char* coding) {
    return send("POST", "/v1/completions", R"({"prompt": "x"})",
                {{"Content-Type", "application/json"}, {"Content-Encoding", coding}})
        ->answer();
  };
  EXPECT_THAT(with("gzip"), IsError(415, "Content-Encoding"));
  EXPECT_EQ(with("identity").status, 200);
}

TEST_F(ServiceTest, SaysWhenToTryAgain) {
  const http::Response busy = service_->error_page()(503, "the server has its connections");
  EXPECT_NE(std::ranges::find(busy.headers, std::pair<std::string, std::string>("Retry-After", "1")),
            busy.headers.end());
  EXPECT_TRUE(service_->error_page()(400, "x").headers.empty());
}

TEST_F(ServiceTest, RefusesWhatIsNoRequest) {
  for (const char* body : {"", "{", "null", "42", "[]", "\"x\"", "{\"prompt\": NaN}", "\xff\xfe"})
    EXPECT_THAT(post("/v1/completions", body), IsError(400, "")) << body;
  EXPECT_THAT(post("/v1/completions", R"({"model": "stub", "prompt": []})"), IsError(400, ""));
  EXPECT_THAT(post("/v1/completions", R"({"model": "gpt-9", "prompt": "x"})"),
              IsError(404, "The model `gpt-9` does not exist."));
  EXPECT_EQ(post("/v1/completions", R"({"model": "other/name", "prompt": "x"})").status, 200);
  EXPECT_THAT(post("/v1/completions", R"({"model": "stub", "prompt": "x", "n": 1000000000})"),
              IsError(400, "n"));
  EXPECT_THAT(post("/v1/embeddings", R"({"model": "stub", "input": "x"})"), IsError(400, "no embeddings"));
}

TEST_F(ServiceTest, AnUnknownModelsNameIsCut) {
  const auto seen =
      post("/v1/completions", R"({"prompt": "x", "model": ")" + std::string(100'000, 'm') + "\"}");
  EXPECT_EQ(seen.status, 404);
  EXPECT_LT(seen.body.size(), 400u);
}

TEST_F(ServiceTest, SaysWhatTheContextHolds) {
  StubEngine::Options options;
  options.max_seq_len = 20;
  start(options);
  const auto both = post("/v1/completions", R"({"model": "stub", "prompt": "0123456789", "max_tokens": 11})");
  EXPECT_THAT(
      both,
      IsError(400,
              "This model's maximum context length is 20 tokens. However, you requested 21 tokens (10 in the "
              "prompt, 11 in the completion). Please reduce the length of the prompt or completion."));
  EXPECT_THAT(both.body, HasSubstr(R"("code":"context_length_exceeded")"));
  EXPECT_EQ(post("/v1/completions", R"({"model": "stub", "prompt": "0123456789", "max_tokens": 10})").status,
            200);
  EXPECT_THAT(post("/v1/completions", R"({"model": "stub", "prompt": "01234567890123456789"})"),
              IsError(400, "resulted in 20 tokens"));
  EXPECT_EQ(engine_->submitted(), 1);
}

TEST_F(ServiceTest, APromptThatIsFarTooLongIsNotTokenized) {
  StubEngine::Options options;
  options.max_seq_len = 20;
  start(options);
  const std::string text(100'000, 'x');
  const auto prompt = post("/v1/completions", R"({"model": "stub", "prompt": ")" + text + R"("})");
  EXPECT_THAT(prompt, IsError(400,
                              "This model's maximum context length is 20 tokens. However, your prompt "
                              "resulted in at least 100000 tokens. Please reduce the length of the prompt."));
  EXPECT_THAT(prompt.body, HasSubstr(R"("param":"prompt","code":"context_length_exceeded")"));
  const auto chat =
      post("/v1/chat/completions",
           R"({"model": "stub", "messages": [{"role": "user", "content": ")" + text + R"("}]})");
  EXPECT_THAT(chat, IsError(400, "your messages resulted in at least 100"));
  EXPECT_THAT(chat.body, HasSubstr(R"("param":"messages")"));
  EXPECT_EQ(engine_->tokenized(), 0);
  // The first prompt that is too long ends the request.
  EXPECT_THAT(post("/v1/completions", R"({"model": "stub", "prompt": ["abc", ")" + text + R"(", "abc"]})"),
              IsError(400, "at least 100000 tokens"));
  EXPECT_EQ(engine_->tokenized(), 3);
}

TEST_F(ServiceTest, AFullQueueRefuses) {
  StubEngine::Options options;
  options.slots = 2;
  config_.max_queued_requests = 1;
  start(options);
  engine_->pause(true);
  std::vector<Exchange> held;
  for (int i = 0; i < 3; ++i)
    held.push_back(complete(R"("prompt": "x", "max_tokens": 2)"));
  const auto refused = complete(R"("prompt": "x")")->answer();
  EXPECT_THAT(refused, IsError(503, "queue of requests is full"));
  EXPECT_EQ(refused.header("Retry-After"), "1");
  // Refused before the body is parsed, even if it is invalid.
  EXPECT_EQ(post("/v1/completions", "{").status, 503);
  EXPECT_EQ(get("/v1/models").status, 200);
  engine_->pause(false);
  for (const Exchange& exchange : held)
    EXPECT_EQ(exchange->answer().status, 200);
  ASSERT_TRUE(idle());
  EXPECT_EQ(complete(R"("prompt": "x")")->answer().status, 200);
  // n and lists of prompts count by their answers.
  EXPECT_EQ(complete(R"("prompt": ["x", "x", "x"])")->answer().status, 200);
  engine_->pause(true);
  const Exchange one = complete(R"("prompt": "x")");
  EXPECT_THAT(complete(R"("prompt": "x", "n": 3)")->answer(), IsError(503, "full"));
  EXPECT_THAT(complete(R"("prompt": ["x", "x", "x"])")->answer(), IsError(503, "full"));
  engine_->pause(false);
  EXPECT_EQ(one->answer().status, 200);
}

/// Not 503, which would invite a retry.
TEST_F(ServiceTest, MoreAnswersThanAQueueEverHoldsAreABadRequest) {
  StubEngine::Options options;
  options.slots = 2;
  config_.max_queued_requests = 1;
  start(options);
  EXPECT_THAT(complete(R"("prompt": "x", "n": 4)")->answer(),
              IsError(400, "n is 4 for 1 prompts; at most 3 answers are allowed in a request"));
  EXPECT_THAT(complete(R"("prompt": ["x", "x"], "n": 2)")->answer(),
              IsError(400, "n is 2 for 2 prompts; at most 3"));
  EXPECT_THAT(complete(R"("prompt": ["x", "x", "x", "x"])")->answer(),
              IsError(400, "prompt has 4 entries; at most 3 are allowed in a request"));
  EXPECT_THAT(post("/v1/chat/completions",
                   R"({"model": "stub", "messages": [{"role": "user", "content": "x"}], "n": 4})"),
              IsError(400, "at most 3 answers"));
  EXPECT_EQ(complete(R"("prompt": "x", "n": 3)")->answer().status, 200);
}

TEST_F(ServiceTest, WaitingTokensHaveALimit) {
  config_.max_queued_tokens = 10;
  start();
  engine_->pause(true);
  const Exchange first = complete(R"("prompt": "01234567")");
  EXPECT_THAT(complete(R"("prompt": "012")")->answer(), IsError(503, "queued prompt tokens"));
  const Exchange second = complete(R"("prompt": "01")");
  EXPECT_THAT(complete(R"("prompt": "0")")->answer(), IsError(503, "queued prompt tokens"));
  engine_->pause(false);
  EXPECT_EQ(first->answer().status, 200);
  EXPECT_EQ(second->answer().status, 200);
  ASSERT_TRUE(idle());
  EXPECT_EQ(complete(R"("prompt": "one that is longer than the limit and alone")")->answer().status, 200);
}

/// Another client gets one answer admitted; these exceptions are bounded as well.
TEST_F(ServiceTest, AQueueFullOfOneClientsRequestsHasRoomForAnother) {
  StubEngine::Options options;
  options.slots = 2;
  config_.max_queued_requests = 1;
  start(options);
  engine_->pause(true);
  std::vector<Exchange> held = {complete(R"("prompt": "x", "n": 3)")};
  EXPECT_THAT(complete(R"("prompt": "x")")->answer(), IsError(503, "full"));
  remote_ = "192.0.2.2";
  EXPECT_THAT(complete(R"("prompt": "x", "n": 2)")->answer(), IsError(503, "full"));
  held.push_back(complete(R"("prompt": "x")"));
  EXPECT_THAT(complete(R"("prompt": "x")")->answer(), IsError(503, "full"));
  remote_ = "192.0.2.3";
  EXPECT_THAT(complete(R"("prompt": "x")")->answer(), IsError(503, "full"));
  engine_->pause(false);
  for (const Exchange& exchange : held)
    EXPECT_EQ(exchange->answer().status, 200);
}

TEST_F(ServiceTest, TheEngineIsGivenTheClient) {
  complete(R"("prompt": "x")")->answer();
  EXPECT_EQ(engine_->last_client(), "192.0.2.1");
  config_.api_keys = {"first", "second"};
  start();
  for (const char* key : {"second", "first"}) {
    send("POST", "/v1/completions", R"({"prompt": "x"})",
         {{"Content-Type", "application/json"}, {"Authorization", std::string("Bearer ") + key}})
        ->answer();
    EXPECT_EQ(engine_->last_client(), std::string(key) == "first" ? "key 0" : "key 1");
  }
}

TEST_F(ServiceTest, WhatTakesTooLongEndsAndSaysWhichLimit) {
  config_.request_timeout = std::chrono::milliseconds(60);
  start();
  engine_->pause(true);
  const std::string body = R"({"prompt": ["x", "y"], "n": 3, "max_tokens": 4000})";
  EXPECT_THAT(post("/v1/completions", body), IsError(504, "0.06 s that this server allows"));
  const auto with = [&](const char* seconds) {
    return send("POST", "/v1/completions", body,
                {{"Content-Type", "application/json"}, {"X-Request-Timeout", seconds}})
        ->answer();
  };
  EXPECT_THAT(with("0.02"), IsError(504, "0.02 s that its X-Request-Timeout allows"));
  EXPECT_THAT(with("0.02").body, HasSubstr(R"("code":"client_timeout")"));
  EXPECT_THAT(with("100"), IsError(504, R"("code":"request_timeout")"));  // the server's limit is lower
  EXPECT_TRUE(idle());                                                    // the engine request was cancelled
  const auto stream = complete(R"("prompt": "x", "max_tokens": 4000, "stream": true)")->answer();
  EXPECT_EQ(stream.status, 200);
  EXPECT_THAT(stream.body, HasSubstr(R"("code":"request_timeout")"));
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(idle());
  for (const char* bad : {"abc", "0", "-1", "nan", "inf", "1e9", "1 s", "0x5"})
    EXPECT_THAT(with(bad), IsError(400, "X-Request-Timeout is " + std::string(bad))) << bad;
  engine_->pause(false);
  const std::string metrics = get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr(R"(fovea_request_timeouts_total{model_name="stub",limit="server"} 3)"));
  EXPECT_THAT(metrics, HasSubstr(R"(fovea_request_timeouts_total{model_name="stub",limit="client"} 2)"));
  EXPECT_THAT(metrics, HasSubstr(R"(fovea_http_responses_total{model_name="stub",status="504"} 4)"));
  EXPECT_THAT(metrics,
              HasSubstr(R"(vllm:request_success_total{model_name="stub",finished_reason="abort"} 9)"));
}

TEST_F(ServiceTest, WhatWaitsTooLongEndsAndWhatRunsGoesOn) {
  StubEngine::Options options;
  options.slots = 1;
  config_.queue_timeout = std::chrono::milliseconds(60);
  start(options);
  engine_->pause(true);
  const Exchange running = complete(R"("prompt": "x", "max_tokens": 4)");
  const auto waiting = complete(R"("prompt": "x", "max_tokens": 4)")->answer();
  EXPECT_THAT(waiting, IsError(503, "exceeded the queue timeout of 0.06 s"));
  EXPECT_THAT(waiting.body, HasSubstr(R"("code":"queue_timeout")"));
  EXPECT_EQ(waiting.header("Retry-After"), "1");
  EXPECT_EQ(running->seen().status, 0);
  engine_->pause(false);
  EXPECT_EQ(running->answer().status, 200);
  EXPECT_TRUE(idle());
  EXPECT_THAT(get("/metrics").body,
              HasSubstr(R"(fovea_request_timeouts_total{model_name="stub",limit="queue"} 1)"));
}

TEST_F(ServiceTest, AnAnswerThatWouldBeTooLargeIsRefusedBeforeItIsComputed) {
  config_.max_answer_bytes = 100'000;
  config_.max_logprobs = -1;
  start();
  const std::string prompt = R"("prompt": ")" + std::string(50, 'x') + "\"";
  EXPECT_EQ(complete(prompt + R"(, "max_tokens": 1, "prompt_logprobs": 20)")->answer().status, 200);
  const int64_t before = engine_->submitted();
  const auto of_prompt = complete(prompt + R"(, "max_tokens": 1, "prompt_logprobs": -1)")->answer();
  EXPECT_THAT(of_prompt, IsError(400, "at most 100000 are allowed"));
  EXPECT_THAT(of_prompt.body, HasSubstr("1 prompts of 50 tokens, n 1, max_tokens 1, prompt_logprobs -1"));
  EXPECT_THAT(of_prompt.body, HasSubstr(R"("param":"prompt_logprobs","code":"answer_too_large")"));
  const std::string many = prompt + R"(, "max_tokens": 1000, "n": 20)";
  EXPECT_THAT(complete(many)->answer(), IsError(400, R"("param":"max_tokens")"));
  EXPECT_EQ(engine_->submitted(), before);
  EXPECT_EQ(complete(many + R"(, "stream": true)")->answer().status, 200);
  // Without max_tokens, the answer ends when it gets too large.
  config_.max_answer_bytes = 300;
  start();
  EXPECT_THAT(
      post("/v1/chat/completions", R"({"model": "stub", "messages": [{"role": "user", "content": "x"}]})"),
      IsError(400, "no max_tokens"));
  EXPECT_TRUE(idle());
}

TEST_F(ServiceTest, AllAnswersTogetherHaveALimit) {
  config_.max_answer_bytes = 2000;
  start();
  engine_->pause(true);
  const std::string asked =
      R"("prompt": ")" + std::string(20, 'x') + R"(", "prompt_logprobs": 0, "max_tokens": 1)";
  std::vector<Exchange> held;
  while (held.empty() || held.back()->seen().status == 0) {
    ASSERT_LT(held.size(), 100u);
    held.push_back(complete(asked));
  }
  EXPECT_THAT(held.back()->answer(), IsError(503, "memory limit"));
  EXPECT_GT(held.size(), 16u);  // each is below the limit for one answer
  held.pop_back();
  engine_->pause(false);
  for (const Exchange& exchange : held)
    EXPECT_EQ(exchange->answer().status, 200);
  ASSERT_TRUE(idle());
  held.clear();
  all_.clear();  // the connections have sent the answers
  EXPECT_EQ(complete(asked)->answer().status, 200);
}

TEST(WorkQueueTest, ClientsAreServedAlternately) {
  std::string order;
  std::promise<void> begin, done;
  {
    WorkQueue queue(1);
    queue.add("first", [&, begin = begin.get_future().share()] { begin.wait(); });
    const auto add = [&](const std::string& client) { queue.add(client, [&, client] { order += client; }); };
    for (const char* client : {"a", "a", "a", "b", "b", "c"})
      add(client);
    begin.set_value();
    // Runs after all earlier work of client "a".
    queue.add("a", [&] { done.set_value(); });
    done.get_future().wait();
  }
  EXPECT_EQ(order, "abcaba");
}

TEST_F(ServiceTest, HangingUpCancelsEverything) {
  engine_->pause(true);
  const Exchange stream = complete(R"("prompt": ["x", "y"], "n": 3, "max_tokens": 4000, "stream": true)");
  const Exchange whole = complete(R"("prompt": "x", "max_tokens": 4000)");
  ASSERT_TRUE(stream->wait([](const auto& seen) { return seen.stream; }));  // the head precedes any token
  EXPECT_EQ(service_->in_flight(), 2);
  stream->hang_up();
  whole->hang_up();
  EXPECT_TRUE(idle());
  EXPECT_EQ(whole->seen().status, 0);
  EXPECT_EQ(engine_->submitted(), 7);
}

TEST_F(ServiceTest, HangingUpWhileTokensFlow) {
  StubEngine::Options options;
  options.tokens_per_second = 2000;
  start(options);
  std::vector<Exchange> gone, kept;
  for (int i = 0; i < 40; ++i)
    (i % 2 ? gone : kept).push_back(complete(R"("prompt": "x", "max_tokens": 60, "stream": true)"));
  for (size_t i = 0; i < gone.size(); ++i) {
    ASSERT_TRUE(gone[i]->wait([&](const auto& seen) { return seen.body.size() > 100 * (i % 3); }));
    gone[i]->hang_up();
  }
  for (const Exchange& exchange : kept) {
    const auto seen = exchange->answer();
    EXPECT_TRUE(seen.body.ends_with("data: [DONE]\n\n"));
    EXPECT_THAT(seen.body, HasSubstr("\"finish_reason\":\"length\""));
  }
  EXPECT_TRUE(idle());
}

TEST_F(ServiceTest, AFailingRequestDisturbsNoOther) {
  StubEngine::Options options;
  options.tokens_per_second = 1000;
  start(options);
  const Exchange good = complete(R"("prompt": "x", "max_tokens": 50, "stream": true)");
  for (int i = 0; i < 20; ++i) {
    const auto bad = complete(R"("prompt": [0, 1], "max_tokens": 50)")->answer();
    EXPECT_THAT(bad, IsError(500, "failed to compute"));
    EXPECT_THAT(bad.body, Not(HasSubstr("0xdeadbeef")));
    EXPECT_THAT(post("/v1/completions", "{\"prompt\": [[["), IsError(400, ""));
  }
  // The head of a stream is already sent when its step fails.
  const auto stream = complete(R"("prompt": [0], "stream": true)")->answer();
  EXPECT_EQ(stream.status, 200);
  EXPECT_THAT(stream.body, StartsWith("data: {\"error\":"));
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
  // If one prompt of a list fails, the others end too.
  EXPECT_THAT(complete(R"("prompt": [[1], [0], [2]], "max_tokens": 4000)")->answer(), IsError(500, ""));
  const auto seen = good->answer();
  EXPECT_EQ(seen.status, 200);
  EXPECT_TRUE(seen.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(idle());
}

/// Blocks every call until open().
class StubEmbedder final : public Embedder {
 public:
  StubEmbedder() {
    info_.dimensions = 1;
    info_.max_seq_len = 100;
    info_.vocab_size = 256;
  }
  const EmbedInfo& info() const override { return info_; }
  Result<std::vector<int32_t>> tokenize(std::string_view text, bool, size_t*) const override {
    return std::vector<int32_t>(text.size(), 7);
  }
  Status check(std::span<const int32_t>) const override { return {}; }
  Result<std::vector<std::vector<float>>> embed(std::span<const std::vector<int32_t>> inputs) override {
    std::unique_lock lock(mutex_);
    ++calls_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    return std::vector<std::vector<float>>(inputs.size(), {1.0f});
  }
  Result<TextPair> tokenize_pair(std::string_view, std::string_view, bool, size_t*) const override {
    return TextPair{{7}, {}};
  }
  Result<std::vector<float>> score(std::span<const TextPair> pairs) override {
    return std::vector<float>(pairs.size(), 0.5f);
  }
  void wait_calls(int calls) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return calls_ >= calls; }));
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  EmbedInfo info_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  bool open_ = false;
};

class EmbeddingTest : public ServiceTest {
 protected:
  void SetUp() override {}
  void start_embedder() {
    config_.served_names = {"stub"};
    loop_ = std::make_unique<FakeLoop>();
    service_ = *Service::create(config_, nullptr, &embedder_);
    service_->set_ready();
    handler_ = service_->handler();
  }
  void TearDown() override {
    embedder_.open();
    ServiceTest::TearDown();
  }
  Exchange embed(const std::string& input) {
    return send("POST", "/v1/embeddings", R"({"model": "stub", "input": )" + input + "}");
  }
  StubEmbedder embedder_;
};

TEST_F(EmbeddingTest, AFullQueueRefuses) {
  config_.workers = 2;  // each computes one request at a time
  config_.max_queued_requests = 1;
  start_embedder();
  const std::vector<Exchange> held = {embed("\"a\""), embed(R"(["a", "b", "c"])"), embed("\"a\"")};
  embedder_.wait_calls(2);
  const auto refused = embed("\"a\"")->answer();
  EXPECT_THAT(refused, IsError(503, "queue of requests is full"));
  EXPECT_EQ(refused.header("Retry-After"), "1");
  EXPECT_EQ(post("/v1/embeddings", "{").status, 503);  // refused before it is parsed
  EXPECT_EQ(get("/v1/models").status, 200);
  embedder_.open();
  for (const Exchange& exchange : held)
    EXPECT_EQ(exchange->answer().status, 200);
  EXPECT_EQ(embed("\"a\"")->answer().status, 200);
  // A request refused for its content releases its reservation.
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(embed("5")->answer().status, 400);
  EXPECT_EQ(embed("\"a\"")->answer().status, 200);
}

TEST_F(EmbeddingTest, WaitingTokensHaveALimit) {
  config_.workers = 2;
  config_.max_queued_tokens = 10;
  start_embedder();
  const Exchange first = embed(R"(["0123", "4567"])");
  embedder_.wait_calls(1);
  const auto refused = embed("\"012\"")->answer();
  EXPECT_THAT(refused, IsError(503, "queued prompt tokens"));
  EXPECT_EQ(refused.header("Retry-After"), "1");
  const Exchange second = embed("\"01\"");
  embedder_.open();
  EXPECT_EQ(first->answer().status, 200);
  EXPECT_EQ(second->answer().status, 200);
  EXPECT_EQ(embed(R"(["0123", "4567"])")->answer().status, 200);
}

TEST_F(ServiceTest, DrainsAndThenAborts) {
  engine_->pause(true);
  const Exchange stream = complete(R"("prompt": "x", "max_tokens": 10, "stream": true)");
  const Exchange whole = complete(R"("prompt": "x", "max_tokens": 10)");
  EXPECT_EQ(get("/health").status, 200);
  service_->drain();
  EXPECT_THAT(get("/health"), IsError(503, "shutting down"));
  const auto late = complete(R"("prompt": "x")")->answer();
  EXPECT_THAT(late, IsError(503, "shutting down"));
  EXPECT_NE(late.header("Retry-After"), "");
  EXPECT_EQ(service_->in_flight(), 2);
  service_->abort_all();
  EXPECT_THAT(whole->answer(), IsError(503, "shutting down"));
  const auto seen = stream->answer();
  EXPECT_EQ(seen.status, 200);
  EXPECT_THAT(seen.body, HasSubstr("data: {\"error\":"));
  EXPECT_TRUE(seen.body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(idle());
}

TEST_F(ServiceTest, DrainingLetsAnswersEnd) {
  StubEngine::Options options;
  options.tokens_per_second = 500;
  start(options);
  const Exchange stream = complete(R"("prompt": "x", "max_tokens": 30, "stream": true)");
  service_->drain();
  const auto seen = stream->answer();
  EXPECT_THAT(seen.body, HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_TRUE(idle());
}

TEST_F(ServiceTest, ASilentStreamSaysComments) {
  config_.sse_ping = std::chrono::milliseconds(20);
  start();
  engine_->pause(true);
  const Exchange stream = complete(R"("prompt": "x", "max_tokens": 3, "stream": true)");
  EXPECT_TRUE(stream->wait([](const auto& seen) { return seen.body.starts_with(": ping\n\n: ping\n\n"); }));
  engine_->pause(false);
  const auto seen = stream->answer();
  EXPECT_TRUE(seen.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(ServiceTest, LargeBodiesAreReadElsewhere) {
  const std::string long_prompt(3000, 'x');
  const auto seen =
      post("/v1/completions", R"({"model": "stub", "max_tokens": 1, "prompt": ")" + long_prompt + "\"," +
                                  std::string(20'000, ' ') + R"("stream": false})");
  EXPECT_EQ(seen.status, 200);
  EXPECT_THAT(seen.body, HasSubstr(R"("prompt_tokens":3000)"));
  EXPECT_THAT(post("/v1/completions", std::string(1 << 20, '[')), IsError(400, ""));
  EXPECT_TRUE(idle());
}

TEST_F(ServiceTest, TokenizesBothWays) {
  EXPECT_THAT(post("/tokenize", R"({"model": "stub", "prompt": "ab"})").body,
              HasSubstr(R"("tokens":[97,98])"));
  EXPECT_THAT(post("/detokenize", R"({"model": "stub", "tokens": [97, 98]})").body,
              HasSubstr(R"("prompt":"ab")"));
  EXPECT_THAT(post("/detokenize", R"({"model": "stub", "tokens": [97, 256]})"),
              IsError(400, "ids are 0 to 255"));
}

TEST_F(ServiceTest, SaysWhatItIs) {
  EXPECT_EQ(get("/version").body, R"({"version":"1.2.3"})");
  const auto models = get("/v1/models");
  EXPECT_THAT(models.body, HasSubstr(R"("id":"stub")"));
  EXPECT_THAT(models.body, HasSubstr(R"("max_model_len":4096)"));
  EXPECT_THAT(get("/v1/models/other/name").body, HasSubstr(R"("id":"other/name")"));
  EXPECT_THAT(get("/v1/models/none"), IsError(404, "does not exist"));
  EXPECT_THAT(get("/server_info").body, HasSubstr(R"("page_size":16)"));
  EXPECT_THAT(get("/server_info").body, HasSubstr(R"("running":0)"));
  EXPECT_THAT(get("/server_state").body, HasSubstr(R"("sequences":[])"));
  EXPECT_THAT(get("/metrics").content_type, StartsWith("text/plain; version=0.0.4"));
}

// The floor is not measured at a scrape, which would take memory and time from running requests.
TEST_F(ServiceTest, TheMachineIsMeasuredOnceAtTheStart) {
  StubEngine::Options options;
  options.threads = 1;
  options.floor = {3e9, 5e9};
  start(options);
  EXPECT_EQ(engine_->measured(), 1);
  for (int scrape = 0; scrape < 2; ++scrape)
    EXPECT_THAT(get("/metrics").body,
                HasSubstr(R"(fovea_machine_read_bytes_per_second{model_name="stub"} 3e+09)"));
  EXPECT_EQ(engine_->measured(), 1);
}

TEST_F(ServiceTest, AMachineThatCannotBeMeasuredIsNotCompared) {
  StubEngine::Options options;
  options.threads = 1;
  start(options);
  EXPECT_EQ(engine_->measured(), 1);
  EXPECT_THAT(get("/metrics").body, Not(HasSubstr("fovea_machine_")));
}

TEST_F(ServiceTest, ManyClientsAtOnce) {
  StubEngine::Options options;
  options.slots = 16;
  config_.max_queued_requests = 10'000;
  start(options);
  std::vector<std::thread> clients;
  std::atomic<int> good{0};
  for (int t = 0; t < 4; ++t)
    clients.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        http::Request request;
        request.method = "POST";
        request.path = "/v1/completions";
        request.headers = kJson;
        request.body = R"({"model": "stub", "prompt": ["x", "yy"], "max_tokens": 20, "stream": )" +
                       std::string(i % 2 ? "true}" : "false}");
        const auto exchange = std::make_shared<FakeExchange>(*loop_, std::move(request));
        handler_(exchange);
        if ((i + t) % 5 == 0) {
          exchange->hang_up();
          continue;
        }
        const auto seen = exchange->answer();
        if (seen.status == 200 && seen.ended && !exchange->misused()) ++good;
      }
    });
  for (std::thread& client : clients)
    client.join();
  EXPECT_EQ(good.load(), 160);
  EXPECT_TRUE(idle());
}

}  // namespace
}  // namespace fovea::server
