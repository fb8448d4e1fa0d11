// The server under the clients that people use: OpenAI's own, and the AI SDK's for compatible servers.
// Usage: clients_test.mjs PROGRAM GOLDENS
import assert from "node:assert/strict";
import { File } from "node:buffer";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, test } from "node:test";

import { metric, need, startServer, waitIdle } from "./server.mjs";

const [program, goldens] = process.argv.slice(2);
const openai = await need("openai");
const { embed, embedMany, generateObject, generateText, jsonSchema, NoObjectGeneratedError, Output, streamText, tool } = await need("ai");
const { createOpenAICompatible } = await need("@ai-sdk/openai-compatible");
const OpenAI = openai.default;
globalThis.File ??= File;  // Node 18, Debian 12's, has it in node:buffer only

const ask = (text) => [{ role: "user", content: text }];
const SUM = "What is 275 + 148?";
const client = (server, options = {}) => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0, ...options });
const collect = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
};
// Node's fetch can lose an abort when a garbage collection comes between the call and the abort (nodejs/undici issue
// 3644): the request then goes on to its answer. That is the client's fault, so it is asked again.
const rejectsSoon = async (call, kind) => {
  for (let lost = 0; lost < 5; lost++) {
    const error = await call().then(() => undefined, (error) => error);
    if (error === undefined) continue;
    assert.ok(error instanceof kind, `${error}`);
    return;
  }
  assert.fail("five calls were answered to their end");
};

describe("the demo model", () => {
  let server, api, model;
  before(async () => {
    server = await startServer(program);
    api = client(server);
    model = (await api.models.list()).data[0].id;
  });
  after(() => server?.stop());

  test("answers have the form of a schema", async () => {
    const schema = {
      type: "object",
      properties: { name: { type: "string", maxLength: 12 }, tags: { type: "array", items: { enum: ["a", "b"] }, maxItems: 3 } },
      required: ["name", "tags"],
      additionalProperties: false,
    };
    const fits = (made) => {
      assert.deepEqual(Object.keys(made), ["name", "tags"]);
      assert.ok([...made.name].length <= 12 && made.tags.length <= 3);
    };
    const body = { model, messages: ask("Hi"), temperature: 1, seed: 4, max_tokens: 150 };
    const format = { type: "json_schema", json_schema: { name: "thing", schema, strict: true } };
    fits((await api.chat.completions.parse({ ...body, response_format: format })).choices[0].message.parsed);
    const stream = api.chat.completions.stream({ ...body, response_format: format });
    fits(JSON.parse((await stream.finalChatCompletion()).choices[0].message.content));
    const provider = createOpenAICompatible({ name: "fovea", baseURL: `${server.url}/v1`, supportsStructuredOutputs: true });
    fits((await generateObject({ model: provider(model), schema: jsonSchema(schema), prompt: "Hi", temperature: 1, maxOutputTokens: 150 })).object);
  });

  test("functions are called", async () => {
    const template = join(dirname(goldens), "text/templates/qwen3.jinja");
    const tools = await startServer(program, "--chat-template", template, "--reasoning-parser", "none");
    try {
      const parameters = { type: "object", properties: { city: { enum: ["Oslo", "Rome"] } }, required: ["city"], additionalProperties: false };
      const asked = [];
      const run = client(tools).chat.completions.runTools({
        model,
        messages: ask("Where is it warm?"),
        temperature: 1,
        max_tokens: 60,
        tool_choice: { type: "function", function: { name: "weather" } },
        tools: [{ type: "function", function: { name: "weather", parameters, parse: JSON.parse, function: ({ city }) => asked.push(city) } }],
      });
      await run.done();
      assert.equal(asked.length, 1);
      assert.ok(["Oslo", "Rome"].includes(asked[0]));
      const provider = createOpenAICompatible({ name: "fovea", baseURL: `${tools.url}/v1` });
      const weather = tool({ inputSchema: jsonSchema(parameters) });
      const { toolCalls, finishReason } = await generateText({ model: provider(model), tools: { weather }, toolChoice: "required", prompt: "Hi", maxOutputTokens: 60 });
      assert.equal(finishReason, "tool-calls");
      assert.ok(["Oslo", "Rome"].includes(toolCalls[0].input.city));
      // A form beside tools that may be called: the model writes either.
      const formed = createOpenAICompatible({ name: "fovea", baseURL: `${tools.url}/v1`, supportsStructuredOutputs: true });
      let written;
      for (let seed = 0; !written && seed < 30; seed++) {
        const either = await generateText({ model: formed(model), tools: { weather }, output: Output.object({ schema: jsonSchema(parameters) }), prompt: "Hi", temperature: 1, seed, maxOutputTokens: 60 })
          .catch((error) => assert.ok(NoObjectGeneratedError.isInstance(error) && error.text === "", `${error}`));  // a call that is none
        if (either?.text) written = either.output;
      }
      assert.ok(["Oslo", "Rome"].includes(written?.city));
    } finally {
      await tools.stop();
    }
  });

  // The form begins behind the reasoning, or with the answer if the model leaves the reasoning out: a call either way.
  test("functions are called by models that reason", async () => {
    for (const template of ["qwen3.jinja", "harmony.jinja"]) {
      const tools = await startServer(program, "--chat-template", join(dirname(goldens), "text/templates", template));
      try {
        const parameters = { type: "object", properties: { city: { enum: ["Oslo", "Rome"] } }, required: ["city"], additionalProperties: false };
        const body = { model, messages: ask("Where is it warm?"), temperature: 1, max_tokens: 300, tools: [{ type: "function", function: { name: "weather", parameters } }] };
        for (const seed of [1, 2, 3]) {
          for (const tool_choice of ["required", { type: "function", function: { name: "weather" } }]) {
            const [choice] = (await client(tools).chat.completions.create({ ...body, seed, tool_choice, parallel_tool_calls: false })).choices;
            assert.ok(["tool_calls", "length"].includes(choice.finish_reason), `${template}: ${choice.finish_reason}`);
            if (choice.finish_reason === "tool_calls") assert.ok(["Oslo", "Rome"].includes(JSON.parse(choice.message.tool_calls[0].function.arguments).city));
          }
        }
      } finally {
        await tools.stop();
      }
    }
  });

  test("models are listed and found", async () => {
    const listed = await api.models.list();
    assert.equal(listed.object, "list");
    assert.equal(listed.data[0].object, "model");
    assert.equal(typeof listed.data[0].created, "number");
    assert.equal(listed.data[0].max_model_len, 1024);
    assert.equal((await api.models.retrieve(model)).id, model);
    await assert.rejects(api.models.retrieve("none"), openai.NotFoundError);
  });

  test("a chat is answered", async () => {
    const { data, response } = await api.chat.completions.create({ model, messages: ask(SUM), temperature: 0 }).withResponse();
    assert.equal(data.object, "chat.completion");
    assert.match(data.id, /^chatcmpl-/);
    assert.equal(data.model, model);
    assert.equal(data.choices.length, 1);
    assert.equal(data.choices[0].message.role, "assistant");
    assert.match(data.choices[0].message.content, /423/);
    assert.equal(data.choices[0].finish_reason, "stop");
    assert.equal(data.choices[0].message.tool_calls, undefined);
    assert.equal(data.usage.total_tokens, data.usage.prompt_tokens + data.usage.completion_tokens);
    assert.ok(data._request_id, "no x-request-id");
    assert.equal(response.headers.get("x-request-id"), data._request_id);
  });

  test("roles and text parts make the prompt that one string makes", async () => {
    const parts = [SUM, "Hello!"].map((text) => ({ type: "text", text }));
    const whole = await api.chat.completions.create({ model, messages: ask(`${SUM}\nHello!`), temperature: 0 });
    for (const messages of [ask(parts), [{ role: "user", name: "Ada", content: `${SUM}\nHello!` }]]) {
      const answer = await api.chat.completions.create({ model, messages, temperature: 0 });
      assert.equal(answer.usage.prompt_tokens, whole.usage.prompt_tokens);
      assert.equal(answer.choices[0].message.content, whole.choices[0].message.content);
    }
    const talk = [{ role: "system", content: "Be kind." }, ...ask("Hi"), { role: "assistant", content: "Hello!" }, ...ask(SUM)];
    assert.match((await api.chat.completions.create({ model, messages: talk, temperature: 0 })).choices[0].message.content, /423/);
  });

  test("a completion is what `fovea generate` says", async () => {
    const prompts = ["Once upon a time", "2, 4, 6,", "One two"];
    const answer = await api.completions.create({ model, prompt: prompts, max_tokens: 24, temperature: 0 });
    assert.equal(answer.object, "text_completion");
    assert.match(answer.id, /^cmpl-/);
    const flags = ["generate", "--json", "--temperature", "0", "-n", "24", "--", ...prompts];
    const offline = execFileSync(program, flags, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim().split("\n").map(JSON.parse);
    assert.deepEqual(answer.choices.map((c) => [c.index, c.text, c.finish_reason]), offline.map((o) => [o.index, o.text, o.finish_reason]));
    assert.equal(answer.usage.completion_tokens, offline.reduce((sum, o) => sum + o.completion_tokens, 0));
  });

  test("prompts of token ids, echo", async () => {
    const { tokens } = await api.post("/../tokenize", { body: { prompt: "Once upon" } });
    const [text, ids, list] = await Promise.all(
      ["Once upon", tokens, [tokens, tokens]].map((prompt) => api.completions.create({ model, prompt, max_tokens: 5, temperature: 0, echo: true })),
    );
    assert.ok(text.choices[0].text.startsWith("Once upon"));
    assert.ok(ids.choices[0].text.endsWith(text.choices[0].text), "begins with the begin token, which is one of the ids");
    assert.deepEqual(list.choices.map((c) => c.text), [ids.choices[0].text, ids.choices[0].text]);
    const { prompt } = await api.post("/../detokenize", { body: { tokens } });
    assert.ok(prompt.endsWith("Once upon"), prompt);
  });

  test("a chat is streamed", async () => {
    const asked = { model, messages: ask(SUM), temperature: 0 };
    const whole = await api.chat.completions.create(asked);
    const chunks = await collect(await api.chat.completions.create({ ...asked, stream: true, stream_options: { include_usage: true } }));
    assert.ok(chunks.every((c) => c.object === "chat.completion.chunk" && c.id === chunks[0].id && c.created === chunks[0].created && c.model === model));
    assert.equal(chunks[0].choices[0].delta.role, "assistant");
    assert.ok(chunks.slice(1).every((c) => c.choices.every((choice) => choice.delta.role === undefined)));
    assert.equal(chunks.map((c) => c.choices[0]?.delta.content ?? "").join(""), whole.choices[0].message.content);
    assert.deepEqual(chunks.flatMap((c) => c.choices).filter((c) => c.finish_reason).map((c) => c.finish_reason), ["stop"]);
    const last = chunks.at(-1);
    assert.deepEqual(last.choices, []);
    const { prompt_tokens, completion_tokens, total_tokens } = last.usage;
    assert.deepEqual([prompt_tokens, completion_tokens, total_tokens], [whole.usage.prompt_tokens, whole.usage.completion_tokens, whole.usage.total_tokens]);
    const silent = await collect(await api.chat.completions.create({ ...asked, stream: true }));
    assert.ok(silent.every((c) => !c.usage && c.choices.length === 1));
  });

  test("the helpers of the client rebuild a streamed chat", async () => {
    const seen = [];
    const runner = api.chat.completions.stream({ model, messages: ask(SUM), temperature: 0, stream_options: { include_usage: true } }).on("content", (delta) => seen.push(delta));
    const done = await runner.finalChatCompletion();
    assert.equal(seen.join(""), done.choices[0].message.content);
    assert.match(await runner.finalContent(), /423/);
    assert.ok((await runner.totalUsage()).completion_tokens > 0);
  });

  test("a completion is streamed", async () => {
    const asked = { model, prompt: ["Once upon a time", "2, 4, 6,"], max_tokens: 12, temperature: 0 };
    const whole = await api.completions.create(asked);
    const chunks = await collect(await api.completions.create({ ...asked, stream: true }));
    for (const index of [0, 1]) {
      const own = chunks.flatMap((c) => c.choices).filter((c) => c.index === index);
      assert.equal(own.map((c) => c.text).join(""), whole.choices[index].text);
      assert.deepEqual(own.filter((c) => c.finish_reason).map((c) => c.finish_reason), [whole.choices[index].finish_reason]);
    }
  });

  test("log probabilities of a chat", async () => {
    const asked = { model, messages: ask(SUM), temperature: 0, logprobs: true, top_logprobs: 3 };
    const { content } = (await api.chat.completions.create(asked)).choices[0].logprobs;
    assert.ok(content.length > 5);
    for (const token of content) {
      assert.equal(token.top_logprobs.length, 3);
      assert.ok(token.logprob <= 0 && token.logprob === token.top_logprobs[0].logprob, "greedy takes the most probable");
      assert.ok(token.top_logprobs.every((top, i) => i === 0 || top.logprob <= token.top_logprobs[i - 1].logprob));
      assert.equal(token.token, new TextDecoder().decode(new Uint8Array(token.bytes)));
    }
    const text = new TextDecoder().decode(new Uint8Array(content.flatMap((t) => t.bytes)));
    assert.match(text, /275 \+ 148 = 423/);
    const streamed = await collect(await api.chat.completions.create({ ...asked, stream: true }));
    assert.deepEqual(streamed.flatMap((c) => c.choices[0]?.logprobs?.content ?? []), content);
    const bare = (await api.chat.completions.create({ ...asked, top_logprobs: 0 })).choices[0].logprobs.content;
    assert.ok(bare.every((t) => t.top_logprobs.length === 0));
  });

  test("log probabilities of a completion, and of its prompt", async () => {
    const answer = await api.completions.create({ model, prompt: "Once upon a time", max_tokens: 6, temperature: 0, logprobs: 2, echo: true });
    const { tokens, token_logprobs, top_logprobs, text_offset } = answer.choices[0].logprobs;
    const count = answer.usage.prompt_tokens + answer.usage.completion_tokens;
    assert.deepEqual([tokens.length, token_logprobs.length, top_logprobs.length, text_offset.length], [count, count, count, count]);
    assert.equal(token_logprobs[0], null);
    assert.ok(token_logprobs.slice(1).every((p) => p <= 0));
    // As in vLLM: the first is the begin token, which is not part of the text, and offsets refer to the tokens' texts.
    assert.equal(tokens[0], "<|begin_of_text|>");
    assert.equal(top_logprobs[0], null);
    assert.ok(top_logprobs.slice(1).every((top, i) => tokens[i + 1] in top && Object.values(top).every((p) => p <= 0)));
    assert.deepEqual(text_offset, tokens.map((_, i) => tokens.slice(0, i).join("").length));
    assert.equal(tokens.slice(1).join(""), answer.choices[0].text);
    // Scoring alone, and token ids that begin with the begin token, say the same.
    const only = await api.completions.create({ model, prompt: "Once upon a time", max_tokens: 0, temperature: 0, logprobs: 2, echo: true, return_token_ids: true });
    const asIds = await api.completions.create({ model, prompt: only.choices[0].prompt_token_ids, max_tokens: 0, temperature: 0, logprobs: 2, echo: true });
    for (const choice of [only.choices[0], asIds.choices[0]]) {
      const { logprobs } = choice;
      assert.deepEqual(logprobs.tokens, tokens.slice(0, answer.usage.prompt_tokens));
      assert.deepEqual(logprobs.token_logprobs, token_logprobs.slice(0, answer.usage.prompt_tokens));
      assert.deepEqual(logprobs.text_offset, text_offset.slice(0, answer.usage.prompt_tokens));
    }
    assert.ok(answer.choices[0].text.startsWith("Once upon a time"));
    const scored = await api.completions.create({ model, prompt: "Once upon a time", max_tokens: 1, temperature: 0, prompt_logprobs: 1, return_token_ids: true });
    assert.equal(scored.choices[0].prompt_logprobs.length, scored.usage.prompt_tokens);
    assert.equal(scored.choices[0].prompt_logprobs[0], null);
    assert.equal(scored.choices[0].token_ids.length, 1);
    assert.equal(scored.choices[0].prompt_token_ids.length, scored.usage.prompt_tokens);
  });

  test("several answers", async () => {
    const asked = { model, messages: ask("Tell me a story."), n: 4, temperature: 1, seed: 7, max_tokens: 24 };
    const [one, two] = await Promise.all([api.chat.completions.create(asked), api.chat.completions.create(asked)]);
    assert.deepEqual(one.choices.map((c) => c.index), [0, 1, 2, 3]);
    const texts = one.choices.map((c) => c.message.content);
    assert.ok(new Set(texts).size > 1, "all the same");
    assert.deepEqual(two.choices.map((c) => c.message.content), texts, "a seed does not repeat");
    const chunks = await collect(await api.chat.completions.create({ ...asked, stream: true }));
    for (const index of [0, 1, 2, 3]) {
      const own = chunks.flatMap((c) => c.choices).filter((c) => c.index === index);
      assert.equal(own[0].delta.role, "assistant");
      assert.equal(own.map((c) => c.delta.content ?? "").join(""), texts[index]);
      assert.equal(own.filter((c) => c.finish_reason).length, 1);
    }
  });

  test("stop texts and limits", async () => {
    const story = { model, prompt: "Once upon a time", temperature: 0, max_tokens: 40 };
    const free = (await api.completions.create(story)).choices[0];
    assert.equal(free.finish_reason, "length");
    const stop = free.text.slice(20, 26);
    for (const given of [stop, ["never seen", stop]]) {
      const cut = (await api.completions.create({ ...story, stop: given })).choices[0];
      assert.equal(cut.text, free.text.slice(0, free.text.indexOf(stop)));
      assert.equal(cut.finish_reason, "stop");
      assert.equal(cut.stop_reason, stop);
    }
    const streamed = await collect(await api.completions.create({ ...story, stop, stream: true }));
    assert.equal(streamed.map((c) => c.choices[0]?.text ?? "").join(""), free.text.slice(0, free.text.indexOf(stop)));
    const kept = (await api.completions.create({ ...story, stop, include_stop_str_in_output: true })).choices[0];
    assert.equal(kept.text, free.text.slice(0, free.text.indexOf(stop) + stop.length));
    for (const limit of ["max_tokens", "max_completion_tokens"]) {
      const short = await api.chat.completions.create({ model, messages: ask(SUM), temperature: 0, [limit]: 3 });
      assert.deepEqual([short.usage.completion_tokens, short.choices[0].finish_reason], [3, "length"]);
    }
    const on = await api.completions.create({ ...story, prompt: "x", max_tokens: 300, ignore_eos: true });
    assert.equal(on.usage.completion_tokens, 300);
  });

  test("biases, penalties, the few most probable", async () => {
    const story = { model, prompt: "Once upon a time", max_tokens: 12, return_token_ids: true };
    const greedy = (await api.completions.create({ ...story, temperature: 0 })).choices[0];
    for (const sampling of [{ top_k: 1 }, { top_p: 1e-6 }, { min_p: 1 }]) {
      assert.equal((await api.completions.create({ ...story, temperature: 1, seed: 3, ...sampling })).choices[0].text, greedy.text, JSON.stringify(sampling));
    }
    const forced = await api.completions.create({ ...story, temperature: 0, logit_bias: { [greedy.token_ids[0]]: -100 } });
    assert.ok(!forced.choices[0].token_ids.includes(greedy.token_ids[0]));
    const varied = await api.completions.create({ ...story, max_tokens: 60, temperature: 0, presence_penalty: 2, frequency_penalty: 2 });
    const plain = await api.completions.create({ ...story, max_tokens: 60, temperature: 0 });
    assert.ok(new Set(varied.choices[0].token_ids).size > new Set(plain.choices[0].token_ids).size);
  });

  test("errors have the client's classes and name the field", async () => {
    const chat = (fields, options) => api.chat.completions.create({ model, messages: ask("Hi"), max_tokens: 1, ...fields }, options);
    const refused = async (promise, kind, status, param) => {
      const error = await promise.then(() => assert.fail("was answered"), (e) => e);
      assert.ok(error instanceof kind, `${error.constructor.name}: ${error.message}`);
      assert.equal(error.status, status);
      if (param !== undefined) assert.equal(error.param, param);
      assert.ok(error.requestID, "no request id");
      return error;
    };
    assert.equal((await refused(chat({ temperature: -1 }), openai.BadRequestError, 400, "temperature")).type, "invalid_request_error");
    await refused(chat({ n: 1e9 }), openai.BadRequestError, 400, "n");
    await refused(chat({ tools: [{ type: "function", function: { name: "f", parameters: {} } }] }), openai.BadRequestError, 400, "tools");
    await refused(chat({ response_format: { type: "json" } }), openai.BadRequestError, 400, "response_format");
    await refused(chat({ messages: [] }), openai.BadRequestError, 400, "messages");
    await refused(chat({ messages: ask([{ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }]) }), openai.BadRequestError, 400);
    await refused(chat({ stream: true, max_tokens: 0 }), openai.BadRequestError, 400, "max_tokens");
    assert.equal((await refused(chat({ model: "none" }), openai.NotFoundError, 404, "model")).code, "model_not_found");
    await refused(api.responses.create({ model, input: "Hi", previous_response_id: "resp_1" }), openai.BadRequestError, 400, "previous_response_id");
    await refused(api.responses.create({ model: "none", input: "Hi" }), openai.NotFoundError, 404, "model");
    await refused(api.embeddings.create({ model, input: "Hi" }), openai.BadRequestError, 400);
    const long = await refused(chat({ messages: ask("word ".repeat(3000)) }), openai.BadRequestError, 400);
    assert.equal(long.code, "context_length_exceeded");
    assert.match(long.message, /maximum context length is 1024 tokens/);
  });

  test("a stream that is left or aborted ends in the engine", async () => {
    const endless = { model, prompt: "Once upon a time", max_tokens: 900, temperature: 0, ignore_eos: true };
    const stream = await api.completions.create({ ...endless, stream: true });
    for await (const chunk of stream) if (chunk) break;
    await waitIdle(server, 5000);
    await rejectsSoon(() => {
      const stop = new AbortController();
      setTimeout(() => stop.abort(), 100);
      return api.completions.create({ ...endless, n: 32, temperature: 1 }, { signal: stop.signal });
    }, openai.APIUserAbortError);
    await waitIdle(server, 5000);
    await rejectsSoon(() => api.completions.create({ ...endless, n: 32, temperature: 1 }, { timeout: 100 }), openai.APIConnectionTimeoutError);
    await waitIdle(server, 5000);
    assert.ok((await metric(server, "vllm:request_success_total", 'finished_reason="abort"')) >= 1);
  });

  test("hundreds of chats at once", async () => {
    const sums = Array.from({ length: 200 }, (_, i) => [100 + i, 300 + 2 * i]);
    const answers = await Promise.all(sums.map(([a, b]) => api.chat.completions.create({ model, messages: ask(`What is ${a} + ${b}?`), temperature: 0 })));
    const right = answers.filter((answer, i) => answer.choices[0].message.content.includes(String(sums[i][0] + sums[i][1]))).length;
    assert.ok(right >= 190, `${right} of 200`);
  });

  test("the AI SDK", async () => {
    const sdk = createOpenAICompatible({ name: "fovea", baseURL: `${server.url}/v1`, includeUsage: true });
    const whole = await generateText({ model: sdk(model), prompt: SUM, temperature: 0, maxRetries: 0 });
    assert.match(whole.text, /423/);
    assert.equal(whole.finishReason, "stop");
    assert.ok(whole.usage.inputTokens > 0 && whole.usage.outputTokens > 0);
    const stream = streamText({ model: sdk(model), messages: [{ role: "system", content: "Be kind." }, ...ask(SUM)], temperature: 0, maxRetries: 0 });
    const pieces = await collect(stream.textStream);
    assert.ok(pieces.length > 3, "not in pieces");
    assert.match(pieces.join(""), /423/);
    assert.equal(await stream.finishReason, "stop");
    assert.ok((await stream.usage).outputTokens > 0);
    const completion = await generateText({ model: sdk.completionModel(model), prompt: "Once upon a time", temperature: 0, maxOutputTokens: 8, maxRetries: 0 });
    assert.ok(completion.text.length > 0);
    assert.equal(completion.finishReason, "length");
    await assert.rejects(generateText({ model: sdk("none"), prompt: "x", maxRetries: 0 }), (error) => error.statusCode === 404 && /does not exist/.test(error.message));
  });

  test("pages beside the API", async () => {
    for (const path of ["/health", "/ping"]) assert.equal((await fetch(server.url + path)).status, 200);
    assert.equal(typeof (await (await fetch(`${server.url}/version`)).json()).version, "string");
    const info = JSON.stringify(await (await fetch(`${server.url}/server_info`)).json());
    assert.match(info, /CPU_ATTN/);
    assert.ok((await metric(server, "vllm:generation_tokens_total")) > 0);
  });
});

describe("keys and names", () => {
  let server;
  before(async () => (server = await startServer(program, "--api-key", "sk-right", "--served-model-name", "demo", "--served-model-name", "alias")));
  after(() => server?.stop());

  test("a key is needed", async () => {
    await assert.rejects(client(server).models.list(), openai.AuthenticationError);
    const listed = await client(server, { apiKey: "sk-right" }).models.list();
    assert.deepEqual(listed.data.map((m) => m.id), ["demo", "alias"]);
  });

  test("each name is served", async () => {
    const api = client(server, { apiKey: "sk-right" });
    for (const model of ["demo", "alias"]) {
      const answer = await api.chat.completions.create({ model, messages: ask(SUM), temperature: 0 });
      assert.match(answer.choices[0].message.content, /423/);
    }
  });
});

describe("a full queue", () => {
  let server;
  before(async () => (server = await startServer(program, "--max-running-requests", "1", "--max-queued-requests", "2")));
  after(() => server?.stop());

  test("is a 503 at once, and the client's retries get through", async () => {
    const api = client(server);
    const model = (await api.models.list()).data[0].id;
    const asked = { model, prompt: "Once upon a time", max_tokens: 200, temperature: 0, ignore_eos: true };
    const results = await Promise.allSettled(Array.from({ length: 12 }, () => api.completions.create(asked)));
    const refused = results.filter((r) => r.status === "rejected").map((r) => r.reason);
    assert.ok(refused.length >= 1 && refused.length <= 10, `${refused.length} of 12`);
    for (const error of refused) {
      assert.ok(error instanceof openai.InternalServerError, error.message); // the client's class of every status from 500
      assert.equal(error.status, 503);
      assert.ok(Number(error.headers.get("retry-after")) >= 1);
    }
    const texts = new Set(results.filter((r) => r.status === "fulfilled").map((r) => r.value.choices[0].text));
    assert.equal(texts.size, 1);
    const patient = client(server, { maxRetries: 20 });
    const all = await Promise.all(Array.from({ length: 6 }, () => patient.completions.create({ ...asked, max_tokens: 20 })));
    assert.equal(new Set(all.map((a) => a.choices[0].text)).size, 1);
  });
});

describe("a model that reads a text before it writes one", () => {
  const folder = `${goldens}/bart_d8_fp32`;
  const { prompts } = JSON.parse(readFileSync(`${folder}/golden.json`, "utf8"));
  const inputs = prompts.filter((p) => p.ids.length === 1).map((p) => p.encoder_ids);
  let server, api, model;
  before(async () => {
    server = await startServer(program, "--model", folder, "--served-model-name", "bart");
    api = client(server);
    model = (await api.models.list()).data[0].id;
  });
  after(() => server?.stop());

  test("completions are what `fovea generate` says", async () => {
    const asked = { model, prompt: inputs, max_tokens: 12, temperature: 0, return_token_ids: true };
    const answer = await api.completions.create(asked);
    const source = join(mkdtempSync(join(tmpdir(), "rows")), "in.jsonl");
    writeFileSync(source, inputs.map((token_ids) => JSON.stringify({ token_ids, max_tokens: 12, temperature: 0 })).join("\n"));
    const offline = execFileSync(program, ["generate", "--model", folder, "--input", source], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim().split("\n").map(JSON.parse);
    rmSync(dirname(source), { recursive: true });
    assert.deepEqual(answer.choices.map((c) => [c.text, c.token_ids, c.finish_reason]), offline.map((o) => [o.text, o.token_ids, o.finish_reason]));
    assert.ok(new Set(answer.choices.map((c) => c.text)).size > 1, "the prompt is not read");
    assert.deepEqual(answer.choices.map((c) => c.prompt_token_ids), inputs);
    assert.equal(answer.usage.prompt_tokens, inputs.flat().length);
    const chunks = await collect(await api.completions.create({ ...asked, prompt: inputs[0], stream: true }));
    assert.equal(chunks.map((c) => c.choices[0]?.text ?? "").join(""), answer.choices[0].text);
    const { tokens } = await api.post("/../tokenize", { body: { prompt: "ab" } });
    const [text, ids] = await Promise.all(["ab", tokens].map((prompt) => api.completions.create({ ...asked, prompt })));
    assert.deepEqual(text.choices[0].token_ids, ids.choices[0].token_ids);
  });

  test("what it can't do is refused", async () => {
    const refused = (fields, param, code) => assert.rejects(api.completions.create({ model, prompt: inputs[0], max_tokens: 4, temperature: 0, ...fields }), (error) => {
      assert.ok(error instanceof openai.BadRequestError, error);
      assert.deepEqual([error.param, error.code], [param, code]);
      return true;
    });
    await refused({ echo: true }, "echo", null);
    await refused({ prompt_logprobs: 1 }, "prompt_logprobs", null);
    await refused({ prompt: Array(5000).fill(5) }, "prompt", "context_length_exceeded");
    await refused({ prompt: "a b ".repeat(5000) }, "prompt", "context_length_exceeded");
    await refused({ max_tokens: 100_000 }, "prompt", "context_length_exceeded");
    await assert.rejects(api.chat.completions.create({ model, messages: ask("Hi") }), /use \/v1\/completions/);
  });
});

describe("Whisper", () => {
  let server, api, folder, sound;
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), "fovea-whisper-"));
    cpSync(`${goldens}/whisper_d16_bf16`, folder, { recursive: true });
    const input = { feature_size: 12, chunk_length: 1, hop_length: 200, n_fft: 400, sampling_rate: 16000 };
    writeFileSync(join(folder, "preprocessor_config.json"), JSON.stringify(input));
    sound = readFileSync(`${goldens}/log_mel/audio.wav`);
    server = await startServer(program, "--model", folder, "--served-model-name", "whisper-1");
    api = client(server);
  });
  after(async () => {
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  // A WAV file of 16000 Hz, as the first tenths of a second of the recorded one.
  const file = (bytes = 12_000) => {
    const head = Buffer.from(sound.subarray(0, 44));
    head.writeUInt32LE(16000, 24);
    head.writeUInt32LE(bytes, 40);
    return openai.toFile(Buffer.concat([head, sound.subarray(44, 44 + bytes)]), "speech.wav", { type: "audio/wav" });
  };

  test("a file is transcribed as by `fovea generate`", async () => {
    const path = join(folder, "speech.wav");
    writeFileSync(path, Buffer.from(await (await file()).arrayBuffer()));
    const flags = ["generate", "--model", folder, "--audio", path, "--json", "--temperature", "0", "--max-tokens", "32"];
    const offline = JSON.parse(execFileSync(program, flags, { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] })).text.trim();
    const asked = { file: await file(), model: "whisper-1" };
    const whole = await api.audio.transcriptions.create(asked);
    assert.equal(whole.text, offline);
    assert.equal(whole.usage.type, "duration");
    assert.equal((await api.audio.transcriptions.create({ ...asked, response_format: "text" })).trim(), offline);
    const events = await collect(await api.audio.transcriptions.create({ ...asked, stream: true }));
    assert.equal(events.at(-1).type, "transcript.text.done");
    assert.equal(events.at(-1).text, offline);
    assert.equal(events.slice(0, -1).map((event) => event.delta).join(""), offline);
  });

  test("errors have the client's classes", async () => {
    const asked = { file: await file(), model: "whisper-1" };
    const noise = await openai.toFile(Buffer.from("ID3 not audio"), "speech.mp3");
    await assert.rejects(api.audio.transcriptions.create({ ...asked, file: noise }), (error) => error instanceof openai.BadRequestError && error.param === "file");
    await assert.rejects(api.audio.transcriptions.create({ ...asked, model: "none" }), openai.NotFoundError);
    await assert.rejects(api.audio.transcriptions.create({ ...asked, response_format: "srt" }), openai.BadRequestError);
    await assert.rejects(api.audio.translations.create(asked), openai.BadRequestError);
    await assert.rejects(api.chat.completions.create({ model: "whisper-1", messages: ask("Hi") }), openai.BadRequestError);
  });
});

describe("an encoder", () => {
  const folder = `${goldens}/xlm_roberta_d8_fp32`;
  const { prompts } = JSON.parse(readFileSync(`${folder}/golden.json`, "utf8"));
  let server, api, model;
  before(async () => {
    server = await startServer(program, "--model", folder, "--served-model-name", "encoder");
    api = client(server);
    model = (await api.models.list()).data[0].id;
  });
  after(() => server?.stop());

  test("vectors are those of transformers, in base64 and as numbers", async () => {
    const input = prompts.map((p) => p.ids);
    const packed = await api.embeddings.create({ model, input }); // the client asks for base64 and decodes it
    const plain = await api.embeddings.create({ model, input, encoding_format: "float" });
    assert.deepEqual(packed.data.map((row) => row.index), input.map((_, i) => i));
    packed.data.forEach((row, i) => {
      assert.deepEqual(row.embedding, plain.data[i].embedding.map(Math.fround));
      row.embedding.forEach((value, d) => assert.ok(Math.abs(value - prompts[i].mean[d]) < 1e-3, `prompt ${i}, ${d}`));
    });
    assert.equal(plain.usage.prompt_tokens, input.flat().length);
    const raw = await (await fetch(`${server.url}/v1/embeddings`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ input: "x", encoding_format: "base64" }) })).json();
    assert.equal(Buffer.from(raw.data[0].embedding, "base64").length, 4 * prompts[0].mean.length);
  });

  test("texts, and what is refused", async () => {
    const one = await api.embeddings.create({ model, input: "a text" });
    const two = await api.embeddings.create({ model, input: ["a text", "another"] });
    assert.deepEqual(two.data[0].embedding, one.data[0].embedding);
    for (const input of [[], "", [""], [[]], 5, [5.5], [-1], [10 ** 9], ["a", 1], {}, null, "x".repeat(10_000)]) {
      if (input === "" || input?.[0] === "") continue; // an empty text has its two marks
      await assert.rejects(api.embeddings.create({ model, input }), openai.BadRequestError, JSON.stringify(input)?.slice(0, 40));
    }
    for (const input of ["x".repeat(10_000), Array(1000).fill(5), ["a", "x".repeat(10_000)]]) {
      await assert.rejects(api.embeddings.create({ model, input }), (error) => {
        assert.equal(error.code, "context_length_exceeded");
        assert.equal(error.param, "input");
        assert.match(error.message, /maximum context length is \d+ tokens\. However, your input resulted in (at least )?\d+ tokens/);
        assert.doesNotMatch(error.message, /--/, "a flag of the command line");
        return true;
      });
    }
    assert.equal((await api.embeddings.create({ model, input: "x".repeat(10_000), truncate_prompt_tokens: -1 })).data.length, 1);
    await assert.rejects(api.embeddings.create({ model, input: "x", encoding_format: "hex" }), openai.BadRequestError);
    await assert.rejects(api.embeddings.create({ model, input: "x", dimensions: 7 }), openai.BadRequestError);
    await assert.rejects(api.chat.completions.create({ model, messages: ask("Hi") }), openai.APIError);
    assert.equal((await fetch(`${server.url}/health`)).status, 200);
  });

  test("the AI SDK", async () => {
    const sdk = createOpenAICompatible({ name: "fovea", baseURL: `${server.url}/v1` });
    const { embedding } = await embed({ model: sdk.textEmbeddingModel(model), value: "a text", maxRetries: 0 });
    assert.deepEqual(embedding.map(Math.fround), (await api.embeddings.create({ model, input: "a text" })).data[0].embedding);
    const many = await embedMany({ model: sdk.textEmbeddingModel(model), values: ["a text", "another", "a third"], maxRetries: 0 });
    assert.equal(many.embeddings.length, 3);
    assert.deepEqual(many.embeddings[0], embedding);
  });
});
