/* fovea/c_engine.h compiled as C11, and the engine from C: texts and log probabilities in order, several
 * requests at once, a chat, a cancel, embeddings. engine_program DEMO_MODEL ENCODER_MODEL */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fovea/c_engine.h"

enum { REQUESTS = 4, MOST = 4096 };

static int failures = 0;

static void check(fovea_status status, const char* what) {
  if (status == FOVEA_OK) return;
  printf("%s: %d %s\n", what, (int)status, fovea_last_error());
  ++failures;
}

static void expect(int ok, const char* what) {
  if (ok) return;
  printf("wrong: %s\n", what);
  ++failures;
}

/* What a request has had so far. */
typedef struct answer {
  char text[MOST];
  size_t bytes, tokens, logprobs, prompt_logprobs;
  int32_t finish;
  float sum;
} answer;

static void take(answer* a, const fovea_output* o) {
  expect(a->finish == FOVEA_FINISH_NONE, "an output after the last one");
  expect(o->size >= sizeof(fovea_output), "size of an output");
  expect(o->text != NULL && o->text[o->text_bytes] == '\0', "text ends with a NUL");
  expect(o->stop_string != NULL && o->error != NULL, "texts are never null");
  expect(a->bytes + o->text_bytes < MOST, "length of the text");
  memcpy(a->text + a->bytes, o->text, o->text_bytes + 1);
  a->bytes += o->text_bytes;
  a->tokens += o->num_token_ids;
  a->logprobs += o->num_logprobs;
  a->prompt_logprobs += o->num_prompt_logprobs;
  for (size_t i = 0; i < o->num_logprobs; ++i) {
    const fovea_token_logprobs* one = &o->logprobs[i];
    expect(one->token.token_id == o->token_ids[i] && one->token.rank == 1, "a greedy token");
    expect(one->num_top == 2 && one->top[0].token_id == one->token.token_id, "the most probable tokens");
    expect(one->top[0].logprob >= one->top[1].logprob, "their order");
    a->sum += one->token.logprob;
  }
  a->finish = o->finish;
}

/* Polls until all of `answers` [REQUESTS] have ended; tags are their indices. */
static void poll_all(fovea_engine* engine, answer* answers, int count) {
  while (count > 0) {
    fovea_outputs* batch = NULL;
    const fovea_status status = fovea_engine_poll(engine, 60000, &batch);
    check(status, "poll");
    if (status != FOVEA_OK || batch == NULL) {
      expect(batch != NULL, "an output within a minute");
      return;
    }
    for (size_t i = 0; i < batch->count; ++i) {
      const fovea_output* o = batch->outputs[i];
      if (o->tag >= REQUESTS) {
        expect(0, "a tag");
        continue;
      }
      take(&answers[o->tag], o);
      count -= o->finish != FOVEA_FINISH_NONE;
    }
    fovea_outputs_free(batch);
  }
}

static uint64_t submit(fovea_engine* engine, const char* prompt, const char* sampling, uint64_t tag) {
  fovea_request request;
  memset(&request, 0, sizeof(request));
  request.size = sizeof(request);
  request.prompt = prompt;
  request.sampling = sampling;
  request.tag = tag;
  uint64_t id = 0;
  check(fovea_engine_check(engine, &request), "check");
  check(fovea_engine_submit(engine, &request, &id), "submit");
  expect(id > 0, "id");
  return id;
}

static void generate(fovea_engine* engine) {
  static const char* const kSampling =
      "{\"temperature\": 0, \"max_tokens\": 12, \"logprobs\": 2, \"prompt_logprobs\": 0}";
  static answer answers[REQUESTS], again[REQUESTS];
  for (uint64_t i = 0; i < REQUESTS; ++i)
    submit(engine, i % 2 ? "The" : "Once upon", kSampling, i);
  poll_all(engine, answers, REQUESTS);
  for (int i = 0; i < REQUESTS; ++i) {
    expect(answers[i].tokens > 0 && answers[i].tokens == answers[i].logprobs, "a log probability per token");
    expect(answers[i].prompt_logprobs > 0, "log probabilities of the prompt");
    expect(answers[i].finish == FOVEA_FINISH_LENGTH || answers[i].finish == FOVEA_FINISH_STOP, "finish");
  }
  expect(strcmp(answers[0].text, answers[2].text) == 0 && answers[0].sum == answers[2].sum, "equal prompts");
  submit(engine, "Once upon", kSampling, 0);
  poll_all(engine, again, 1);
  expect(strcmp(again[0].text, answers[0].text) == 0 && again[0].sum == answers[0].sum, "the batch's bits");
  printf("%s\n", answers[0].text);
}

static void chat(fovea_engine* engine) {
  fovea_chat conversation;
  memset(&conversation, 0, sizeof(conversation));
  conversation.size = sizeof(conversation);
  conversation.messages = "[{\"role\": \"user\", \"content\": \"What is 275 + 148?\"}]";
  char* prompt = NULL;
  size_t bytes = 0;
  check(fovea_engine_apply_chat_template(engine, &conversation, &prompt, &bytes), "chat template");
  if (prompt == NULL) return;
  expect(strlen(prompt) == bytes, "size of the prompt");
  fovea_request request;
  memset(&request, 0, sizeof(request));
  request.size = sizeof(request);
  request.prompt = prompt;
  request.prompt_bytes = (int64_t)bytes;
  request.raw_text = 1;
  request.sampling = "{\"temperature\": 0, \"max_tokens\": 40}";
  uint64_t id = 0;
  check(fovea_engine_submit(engine, &request, &id), "submit");
  fovea_free(prompt);
  static answer answers[REQUESTS];
  poll_all(engine, answers, 1);
  expect(strstr(answers[0].text, "423") != NULL, "275 + 148");
}

static void cancel(fovea_engine* engine) {
  static answer answers[REQUESTS];
  const uint64_t id = submit(engine, "Once", "{\"ignore_eos\": true, \"max_tokens\": null}", 3);
  int32_t idle = -1;
  check(fovea_engine_wait(engine, 0, &idle), "wait");
  expect(idle == 0, "a request runs");
  check(fovea_engine_cancel(engine, id), "cancel");
  check(fovea_engine_wait(engine, -1, &idle), "wait");
  expect(idle == 1, "idle after the cancel");
  poll_all(engine, answers, 1);
  expect(answers[3].finish == FOVEA_FINISH_CANCELLED, "cancelled");
  check(fovea_engine_cancel(engine, id), "cancel of what has ended");
  fovea_outputs* none = (fovea_outputs*)&idle;
  check(fovea_engine_poll(engine, 0, &none), "poll of nothing");
  expect(none == NULL, "nothing");
}

static void tokens(fovea_engine* engine) {
  int32_t* ids = NULL;
  size_t count = 0, bytes = 0;
  char* text = NULL;
  check(fovea_engine_tokenize(engine, "abc def", -1, 0, &ids, &count), "tokenize");
  expect(count > 0, "tokens");
  check(fovea_engine_detokenize(engine, ids, count, 1, &text, &bytes), "detokenize");
  expect(text != NULL && strcmp(text, "abc def") == 0 && bytes == 7, "the text again");
  fovea_free(ids);
  fovea_free(text);
  check(fovea_engine_tokenize(engine, "", -1, 0, &ids, &count), "tokenize nothing");
  expect(ids != NULL && count == 0, "no tokens");
  fovea_free(ids);
  char* json = NULL;
  check(fovea_engine_info_json(engine, &json), "info");
  expect(json != NULL && strstr(json, "\"max_model_len\":1024") != NULL, "info");
  fovea_free(json);
  check(fovea_engine_stats_json(engine, &json), "stats");
  expect(json != NULL && strstr(json, "\"generated_tokens\":") != NULL, "stats");
  fovea_free(json);
}

static void embed(const char* options) {
  fovea_embedder* embedder = NULL;
  check(fovea_embedder_create(options, &embedder), "embedder");
  if (embedder == NULL) return;
  char* json = NULL;
  check(fovea_embedder_info_json(embedder, &json), "info of the embedder");
  const char* at = json == NULL ? NULL : strstr(json, "\"dimensions\":");
  const size_t width = at == NULL ? 0 : (size_t)atoi(at + strlen("\"dimensions\":"));
  fovea_free(json);
  expect(width > 0 && width < MOST, "dimensions");
  const int32_t ids[] = {5, 6, 7, 5, 9, 5, 6, 7};
  const size_t lengths[] = {3, 2, 3};
  static float out[3 * MOST];
  check(fovea_embedder_embed(embedder, ids, lengths, 3, out, 3 * width), "embed");
  expect(memcmp(out, out + 2 * width, width * sizeof(float)) == 0, "equal inputs");
  expect(memcmp(out, out + width, width * sizeof(float)) != 0, "different inputs");
  int32_t* tokens_of = NULL;
  size_t count = 0;
  check(fovea_embedder_tokenize(embedder, "abc", 3, 1, &tokens_of, &count), "tokenize for the embedder");
  expect(count > 2, "special tokens");
  fovea_free(tokens_of);
  fovea_embedder_destroy(embedder);
  expect(fovea_embedder_embed(embedder, ids, lengths, 3, out, 3 * width) == FOVEA_INVALID_ARGUMENT,
         "destroyed");
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  expect(fovea_abi_version() == FOVEA_ABI_VERSION, "ABI version");
  char options[MOST];
  snprintf(options, sizeof(options),
           "{\"model\": \"%s\", \"threads\": 2, \"attention_backend\": \"CPU_ATTN\"}", argv[1]);
  int32_t kind = -1;
  check(fovea_model_kind(argv[1], &kind), "model kind");
  expect(kind == FOVEA_MODEL_DECODER, "a decoder");
  check(fovea_model_kind(argv[2], &kind), "model kind");
  expect(kind == FOVEA_MODEL_ENCODER, "an encoder");
  fovea_engine* engine = NULL;
  check(fovea_engine_create(options, &engine), "create");
  if (engine == NULL) return 1;
  generate(engine);
  chat(engine);
  cancel(engine);
  tokens(engine);
  submit(engine, "Once", "{\"ignore_eos\": true, \"max_tokens\": null}", 0);
  fovea_engine_destroy(engine); /* with a request that runs */
  fovea_outputs* outputs = NULL;
  expect(fovea_engine_poll(engine, -1, &outputs) == FOVEA_INVALID_ARGUMENT, "poll of a destroyed engine");
  fovea_engine_destroy(engine);
  fovea_engine_destroy(NULL);
  fovea_outputs_free(NULL);
  fovea_free(NULL);
  snprintf(options, sizeof(options), "{\"model\": \"%s\", \"pooling\": \"mean\"}", argv[2]);
  embed(options);
  printf("%d failures\n", failures);
  return failures != 0;
}
