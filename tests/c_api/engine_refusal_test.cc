// What the engine's C ABI refuses, and what several threads may do to one engine; on the demo model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "fovea/c_engine.h"

namespace {

using ::testing::HasSubstr;

// Structs of ABI 3: they may grow, and no field may move.
static_assert(offsetof(fovea_chat, messages) == 8 && sizeof(fovea_chat) == 56);
static_assert(offsetof(fovea_request, prompt) == 8 && offsetof(fovea_request, tag) == 56 &&
              offsetof(fovea_request, raw_text) == 64 && offsetof(fovea_request, encoder_ids) == 72 &&
              offsetof(fovea_request, lora) == 104 && sizeof(fovea_request) == 112);
static_assert(sizeof(fovea_token_logprob) == 12 && offsetof(fovea_token_logprobs, num_top) == 12 &&
              offsetof(fovea_token_logprobs, top) == 16 && sizeof(fovea_token_logprobs) == 24);
static_assert(offsetof(fovea_output, text) == 24 && offsetof(fovea_output, logprobs) == 56 &&
              offsetof(fovea_output, finish) == 72 && offsetof(fovea_output, stop_string) == 80 &&
              offsetof(fovea_output, error_status) == 96 && offsetof(fovea_output, prompt_logprobs) == 112 &&
              offsetof(fovea_output, decode_seconds) == 144);
static_assert(offsetof(fovea_outputs, count) == 8 && offsetof(fovea_outputs, outputs) == 16);

constexpr const char* kLong = R"({"temperature": 0, "ignore_eos": true, "max_tokens": null})";

std::string error_of(fovea_status status) {
  return status == FOVEA_OK ? "accepted" : fovea_last_error();
}

std::string demo_options() {
  return R"({"threads": 2, "model": ")" + std::string(FOVEA_SOURCE_DIR) + R"(/models/demo"})";
}

class EngineAbi : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(fovea_engine_create(demo_options().c_str(), &engine_), FOVEA_OK) << fovea_last_error();
  }
  void TearDown() override { fovea_engine_destroy(engine_); }

  static fovea_request request(const char* prompt, const char* sampling = nullptr) {
    fovea_request out = {};
    out.size = sizeof(out);
    out.prompt = prompt;
    out.sampling = sampling;
    return out;
  }
  std::string refusal(const fovea_request* given) {
    uint64_t id = 99;
    const std::string checked = error_of(fovea_engine_check(engine_, given));
    const std::string submitted = error_of(fovea_engine_submit(engine_, given, &id));
    EXPECT_EQ(id, 0U);
    EXPECT_EQ(submitted.find('\n'), std::string::npos);
    EXPECT_EQ(checked.substr(checked.find(": ")), submitted.substr(submitted.find(": ")));
    return submitted;
  }

  fovea_engine* engine_ = nullptr;
};

TEST_F(EngineAbi, NullPointers) {
  fovea_engine* const e = engine_;
  int32_t* ids = nullptr;
  char* text = nullptr;
  size_t count = 0;
  fovea_request good = request("x");
  fovea_chat chat = {};
  chat.size = sizeof(chat);
  EXPECT_THAT(error_of(fovea_engine_create("{}", nullptr)), HasSubstr("fovea_engine_create: out is null"));
  EXPECT_THAT(error_of(fovea_engine_info_json(e, nullptr)), HasSubstr("json is null"));
  EXPECT_THAT(error_of(fovea_engine_stats_json(e, nullptr)), HasSubstr("json is null"));
  EXPECT_THAT(error_of(fovea_engine_tokenize(e, nullptr, -1, 0, &ids, &count)), HasSubstr("text is null"));
  EXPECT_THAT(error_of(fovea_engine_tokenize(e, "x", -2, 0, &ids, &count)), HasSubstr("size of text is -2"));
  EXPECT_THAT(error_of(fovea_engine_tokenize(e, "x", -1, 0, nullptr, &count)), HasSubstr("ids is null"));
  EXPECT_THAT(error_of(fovea_engine_tokenize(e, "x", -1, 0, &ids, nullptr)), HasSubstr("count is null"));
  EXPECT_THAT(error_of(fovea_engine_detokenize(e, nullptr, 3, 0, &text, &count)), HasSubstr("ids is null"));
  EXPECT_THAT(error_of(fovea_engine_token_bytes(e, 1, nullptr, &count)), HasSubstr("text is null"));
  EXPECT_THAT(error_of(fovea_engine_apply_chat_template(e, nullptr, &text, &count)),
              HasSubstr("fovea_chat is null"));
  EXPECT_THAT(error_of(fovea_engine_apply_chat_template(e, &chat, &text, &count)),
              HasSubstr("chat->messages is null"));
  EXPECT_THAT(error_of(fovea_engine_submit(e, &good, nullptr)), HasSubstr("id is null"));
  uint64_t id = 0;
  EXPECT_THAT(error_of(fovea_engine_submit(e, nullptr, &id)), HasSubstr("fovea_request is null"));
  EXPECT_THAT(error_of(fovea_engine_load_lora(e, nullptr, "x")), HasSubstr("name is null"));
  EXPECT_THAT(error_of(fovea_engine_load_lora(e, "x", nullptr)), HasSubstr("path is null"));
  EXPECT_THAT(error_of(fovea_engine_load_lora(e, "x", "y")), HasSubstr("LoRA adapters are off"));
  EXPECT_THAT(error_of(fovea_engine_unload_lora(e, nullptr)), HasSubstr("name is null"));
  EXPECT_THAT(error_of(fovea_engine_unload_lora(e, "x")), HasSubstr("\"x\" is not loaded"));
  fovea_request adapted = good;
  adapted.lora = "x";
  EXPECT_THAT(error_of(fovea_engine_submit(e, &adapted, &id)), HasSubstr("\"x\" is not loaded"));
  EXPECT_THAT(error_of(fovea_engine_poll(e, 0, nullptr)), HasSubstr("out is null"));
  EXPECT_THAT(error_of(fovea_engine_wait(e, 0, nullptr)), HasSubstr("idle is null"));
  EXPECT_THAT(error_of(fovea_model_kind(nullptr, nullptr)), HasSubstr("model is null"));
  fovea_engine_destroy(nullptr);
  fovea_embedder_destroy(nullptr);
}

TEST_F(EngineAbi, HandlesThatAreNone) {
  fovea_engine* destroyed = nullptr;
  ASSERT_EQ(fovea_engine_create(demo_options().c_str(), &destroyed), FOVEA_OK);
  fovea_engine_destroy(destroyed);
  int local = 0;
  for (fovea_engine* handle :
       {static_cast<fovea_engine*>(nullptr), destroyed, reinterpret_cast<fovea_engine*>(&local)}) {
    uint64_t id = 0;
    int32_t idle = 0;
    char* json = nullptr;
    fovea_outputs* outputs = nullptr;
    const fovea_request given = request("x");
    EXPECT_EQ(fovea_engine_submit(handle, &given, &id), FOVEA_INVALID_ARGUMENT);
    EXPECT_EQ(fovea_engine_poll(handle, -1, &outputs), FOVEA_INVALID_ARGUMENT);
    EXPECT_EQ(fovea_engine_cancel(handle, 1), FOVEA_INVALID_ARGUMENT);
    EXPECT_EQ(fovea_engine_wait(handle, -1, &idle), FOVEA_INVALID_ARGUMENT);
    EXPECT_EQ(fovea_engine_info_json(handle, &json), FOVEA_INVALID_ARGUMENT);
    EXPECT_THAT(fovea_last_error(), HasSubstr(handle == nullptr ? "engine is null" : "not a live one"));
    EXPECT_EQ(fovea_embedder_info_json(reinterpret_cast<fovea_embedder*>(handle), &json),
              FOVEA_INVALID_ARGUMENT);
    fovea_engine_destroy(handle);
  }
}

TEST_F(EngineAbi, Requests) {
  fovea_request r = request("x");
  r.size = 8;
  EXPECT_THAT(refusal(&r), HasSubstr("fovea_request->size is 8"));
  r.size = 1 << 20;
  EXPECT_THAT(refusal(&r), HasSubstr("->size is"));
  const int32_t ids[] = {1, 1 << 20};
  r = request("x");
  r.prompt_ids = ids, r.num_prompt_ids = 1;
  EXPECT_THAT(refusal(&r), HasSubstr("both prompt and prompt_ids"));
  r.prompt = nullptr, r.num_prompt_ids = 2;
  EXPECT_THAT(refusal(&r), HasSubstr("1048576"));
  r.prompt_ids = nullptr;
  EXPECT_THAT(refusal(&r), HasSubstr("request->prompt_ids is null, and its count is not 0"));
  r.prompt_ids = ids, r.num_prompt_ids = SIZE_MAX;
  EXPECT_THAT(refusal(&r), HasSubstr("the count of request->prompt_ids is"));
  r = request(nullptr);
  EXPECT_THAT(refusal(&r), HasSubstr("prompt"));
  r = request("x");
  r.prompt_bytes = -7;
  EXPECT_THAT(refusal(&r), HasSubstr("the size of request->prompt is -7"));
  r = request("\xff\xfe");
  (void)fovea_engine_check(engine_, &r);  // ill-formed UTF-8: refused or replaced, never a crash
  r = request("x", "{");
  EXPECT_THAT(refusal(&r), HasSubstr("sampling: not valid JSON"));
  r = request("x", R"({"top_q": 1})");
  EXPECT_THAT(refusal(&r), HasSubstr("unknown key \"top_q\""));
  r = request("x", R"({"top_p": 0})");
  EXPECT_THAT(refusal(&r), HasSubstr("top_p is 0"));
  r = request("x", R"({"n": 1000})");
  EXPECT_THAT(refusal(&r), HasSubstr("n is 1000"));
  r = request("x", R"({"n": -3})");
  EXPECT_THAT(refusal(&r), HasSubstr("n is -3"));
  r = request("x");
  r.priority = 3;
  EXPECT_THAT(refusal(&r), HasSubstr("priority is 3"));
  r = request("x");
  r.encoder_ids = ids, r.num_encoder_ids = 1;
  EXPECT_THAT(refusal(&r), HasSubstr("encoder"));
  // Refused requests are not waited for.
  int32_t idle = 0;
  EXPECT_EQ(fovea_engine_wait(engine_, 0, &idle), FOVEA_OK);
  EXPECT_EQ(idle, 1);
}

TEST_F(EngineAbi, LongerStructsOfLaterHeaders) {
  struct Later {
    fovea_request known = {};
    uint64_t added = 0;
  } later;
  later.known = request("x", R"({"max_tokens": 1})");
  later.known.size = sizeof(later);
  EXPECT_EQ(fovea_engine_check(engine_, &later.known), FOVEA_OK) << fovea_last_error();
  later.added = 1;
  EXPECT_EQ(fovea_engine_check(engine_, &later.known), FOVEA_UNSUPPORTED);
}

TEST_F(EngineAbi, UnknownIds) {
  EXPECT_EQ(fovea_engine_cancel(engine_, 0), FOVEA_NOT_FOUND);
  EXPECT_EQ(fovea_engine_cancel(engine_, 12345), FOVEA_NOT_FOUND);
  EXPECT_THAT(fovea_last_error(), HasSubstr("fovea_engine_cancel: id is 12345"));
}

TEST_F(EngineAbi, DestroyWakesThePollers) {
  std::vector<std::thread> threads;
  std::atomic<int> woken = 0;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (;;) {
        fovea_outputs* outputs = nullptr;
        int32_t idle = 0;
        const fovea_status status =
            i % 2 == 0 ? fovea_engine_poll(engine_, -1, &outputs) : fovea_engine_wait(engine_, -1, &idle);
        fovea_outputs_free(outputs);
        if (status == FOVEA_OK) continue;
        woken += status == FOVEA_CANCELLED || status == FOVEA_INVALID_ARGUMENT;
        return;
      }
    });
  for (int i = 0; i < 8; ++i) {
    uint64_t id = 0;
    const fovea_request given = request("Once", kLong);
    EXPECT_EQ(fovea_engine_submit(engine_, &given, &id), FOVEA_OK);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  fovea_engine_destroy(engine_);
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(woken, 4);
}

TEST_F(EngineAbi, ThreadsSubmitAndCancelWhileOnePolls) {
  constexpr int kThreads = 4, kEach = 20;
  std::atomic<int> ended = 0;
  std::thread reader([&] {
    while (ended < kThreads * kEach) {
      fovea_outputs* batch = nullptr;
      ASSERT_EQ(fovea_engine_poll(engine_, 60000, &batch), FOVEA_OK);
      ASSERT_NE(batch, nullptr);
      for (size_t i = 0; i < batch->count; ++i)
        ended += batch->outputs[i]->finish != FOVEA_FINISH_NONE;
      fovea_outputs_free(batch);
    }
  });
  std::vector<std::thread> writers;
  for (int t = 0; t < kThreads; ++t)
    writers.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        uint64_t id = 0;
        const fovea_request given = request("Once", i % 2 ? kLong : R"({"max_tokens": 3})");
        EXPECT_EQ(fovea_engine_submit(engine_, &given, &id), FOVEA_OK) << fovea_last_error();
        if (i % 2) {
          EXPECT_EQ(fovea_engine_cancel(engine_, id), FOVEA_OK);
        }
        char* json = nullptr;
        if ((i + t) % 5 == 0) {
          EXPECT_EQ(fovea_engine_stats_json(engine_, &json), FOVEA_OK);
        }
        fovea_free(json);
      }
    });
  for (std::thread& writer : writers)
    writer.join();
  reader.join();
  int32_t idle = 0;
  EXPECT_EQ(fovea_engine_wait(engine_, 0, &idle), FOVEA_OK);
  EXPECT_EQ(idle, 1);
}

TEST_F(EngineAbi, AChildOfForkHasNoEngines) {
  const pid_t child = fork();
  if (child == 0) {
    uint64_t id = 0;
    const fovea_request given = request("x");
    const bool refused = fovea_engine_submit(engine_, &given, &id) == FOVEA_INVALID_ARGUMENT;
    fovea_engine_destroy(engine_);  // must not wait for threads that are not here
    _exit(refused && std::strstr(fovea_last_error(), "fork") != nullptr ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(EmbedderAbi, Refusals) {
  fovea_embedder* embedder = nullptr;
  EXPECT_THAT(error_of(fovea_embedder_create(demo_options().c_str(), &embedder)),
              HasSubstr("isn't an encoder"));
  EXPECT_EQ(embedder, nullptr);
  const std::string options =
      R"({"model": ")" + std::string(FOVEA_SOURCE_DIR) + R"(/tests/goldens/bert_d8_fp32"})";
  ASSERT_EQ(fovea_embedder_create(options.c_str(), &embedder), FOVEA_OK) << fovea_last_error();
  const int32_t ids[] = {5, -1};
  size_t length = 1;
  float out[1] = {7};
  EXPECT_THAT(error_of(fovea_embedder_embed(embedder, ids, &length, 1, out, 1)),
              HasSubstr("out_floats is 1"));
  EXPECT_THAT(error_of(fovea_embedder_embed(embedder, ids, nullptr, 1, out, 1)),
              HasSubstr("lengths is null"));
  EXPECT_THAT(error_of(fovea_embedder_embed(embedder, nullptr, &length, 1, out, 1)),
              HasSubstr("ids is null"));
  EXPECT_THAT(error_of(fovea_embedder_embed(embedder, ids, &length, 1, nullptr, 1)),
              HasSubstr("out is null"));
  EXPECT_EQ(fovea_embedder_embed(embedder, nullptr, nullptr, 0, nullptr, 0), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(out[0], 7);
  fovea_embedder_destroy(embedder);
}

}  // namespace
