// The APIs that agents and other vendors' clients use: Anthropic's Messages, OpenAI's Responses, Ollama's; and LangChain.
// Usage: agents_test.mjs PROGRAM TEMPLATES
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";

import { startServer } from "./server.mjs";

const [program, templates] = process.argv.slice(2);
/// A package's module, or null after a line that says so.
const maybe = async (name) => {
  try {
    return await import(name);
  } catch (error) {
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
    console.log(`${name} is not installed, its tests are skipped; run npm ci in tests/serve`);
    return null;
  }
};
const anthropic = await maybe("@anthropic-ai/sdk");
const openai = await maybe("openai");
const ollama = await maybe("ollama");
const langchain = await maybe("@langchain/openai");

const SUM = "What is 275 + 148?";
const TOOL = { city: { enum: ["Oslo", "Rome"] } };
const parameters = { type: "object", properties: TOOL, required: ["city"], additionalProperties: false };

describe("Anthropic's client", { skip: !anthropic }, () => {
  let demo, tools, api, toolApi;
  const model = "demo";
  before(async () => {
    demo = await startServer(program, "--served-model-name", model);
    tools = await startServer(program, "--served-model-name", model, "--chat-template", join(templates, "qwen3.jinja"), "--reasoning-parser", "none", "--api-key", "sk-right");
    api = new anthropic.Anthropic({ baseURL: demo.url, apiKey: "none", maxRetries: 0 });
    toolApi = new anthropic.Anthropic({ baseURL: tools.url, apiKey: "sk-right", maxRetries: 0 });
  });
  after(async () => {
    await demo?.stop();
    await tools?.stop();
  });

  const ask = { model, max_tokens: 40, temperature: 0, messages: [{ role: "user", content: SUM }] };

  test("a message is answered, whole and streamed", async () => {
    const whole = await api.messages.create(ask);
    assert.match(whole.id, /^msg_/);
    assert.deepEqual([whole.type, whole.role, whole.model, whole.stop_reason, whole.stop_sequence], ["message", "assistant", model, "end_turn", null]);
    assert.match(whole.content[0].text, /423/);
    const stream = api.messages.stream(ask);
    const texts = [];
    stream.on("text", (text) => texts.push(text));
    const final = await stream.finalMessage();
    assert.deepEqual(final.content.map(({ type, text }) => ({ type, text })), whole.content.map(({ type, text }) => ({ type, text })));
    assert.equal(texts.join(""), whole.content[0].text);
    assert.ok(texts.length > 3);
    const used = ({ input_tokens, cache_read_input_tokens, output_tokens }) => [input_tokens + cache_read_input_tokens, output_tokens];
    assert.deepEqual(used(final.usage), used(whole.usage));
    assert.equal((await api.messages.countTokens({ model, messages: ask.messages })).input_tokens, used(whole.usage)[0]);
  });

  test("models are listed and found", async () => {
    const listed = await api.models.list();
    assert.deepEqual(listed.data.map((each) => [each.type, each.id]), [["model", model]]);
    assert.equal((await api.models.retrieve(model)).display_name, model);
  });

  test("the end of an answer", async () => {
    const short = await api.messages.create({ ...ask, max_tokens: 2 });
    assert.equal(short.stop_reason, "max_tokens");
    const stopped = await api.messages.create({ ...ask, stop_sequences: ["423"] });
    assert.deepEqual([stopped.stop_reason, stopped.stop_sequence], ["stop_sequence", "423"]);
    // More than the context has room for: the answer may go to its end.
    const long = await api.messages.create({ ...ask, max_tokens: 5000 });
    assert.equal(long.stop_reason, "end_turn");
  });

  test("tools", async () => {
    const weather = { name: "weather", description: "The weather", input_schema: parameters };
    const body = { ...ask, temperature: 1, max_tokens: 80, tools: [weather], tool_choice: { type: "tool", name: "weather" } };
    const whole = await toolApi.messages.create(body);
    assert.equal(whole.stop_reason, "tool_use");
    const call = whole.content.at(-1);
    assert.deepEqual([call.type, call.name], ["tool_use", "weather"]);
    assert.ok(["Oslo", "Rome"].includes(call.input.city));
    const streamed = await toolApi.messages.stream({ ...body, tool_choice: { type: "any", disable_parallel_tool_use: true } }).finalMessage();
    assert.equal(streamed.stop_reason, "tool_use");
    assert.ok(["Oslo", "Rome"].includes(streamed.content.at(-1).input.city));
    const messages = [...body.messages, { role: "assistant", content: whole.content }, { role: "user", content: [{ type: "tool_result", tool_use_id: call.id, content: [{ type: "text", text: "warm" }] }] }];
    const next = await toolApi.messages.create({ ...body, messages, tool_choice: { type: "none" }, max_tokens: 4 });
    assert.equal(next.stop_reason, "max_tokens");
  });

  // As an agent's client sends them: a billing line that differs in every request, system turns between the others.
  test("the turns of a session continue each other's prompts", async () => {
    const messages = [{ role: "user", content: "Fix the bug in a.c, please. It prints 3 where it should print 4 since yesterday." }];
    const body = (n) => ({
      model,
      max_tokens: 6,
      temperature: 0,
      system: [
        { type: "text", text: `x-anthropic-billing-header: cc_version=2.1; cch=${n}${n};` },
        { type: "text", text: "You fix bugs. Read files before you change them.", cache_control: { type: "ephemeral" } },
      ],
      tools: [{ name: "read", description: "Reads a file", input_schema: { type: "object", properties: { path: { type: "string" } } } }],
      messages,
    });
    let before = 0;
    for (let turn = 0; turn < 3; turn++) {
      const { usage } = await toolApi.messages.create(body(turn));
      const all = usage.input_tokens + usage.cache_read_input_tokens;
      if (turn > 0) assert.ok(usage.cache_read_input_tokens >= before - 32, `turn ${turn}: ${usage.cache_read_input_tokens} of ${before} cached`);
      before = all;
      messages.push(
        { role: "assistant", content: [{ type: "tool_use", id: `call_${turn}`, name: "read", input: { path: "a.c" } }] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: `call_${turn}`, content: "int a = 3;" }] },
        { role: "system", content: `The time is ${turn}.` },
      );
    }
    assert.ok(before > 200, `${before} tokens`);
  });

  test("errors have the client's classes", async () => {
    const is = (kind, status, type) => (error) => {
      assert.ok(error instanceof kind, `${error.constructor.name} ${error.message}`);
      assert.equal(error.status, status);
      assert.equal(error.error.error.type, type);
      assert.ok(error.requestID, "no request id");
      return true;
    };
    await assert.rejects(api.messages.create({ ...ask, model: "none" }), is(anthropic.NotFoundError, 404, "not_found_error"));
    await assert.rejects(api.messages.create({ ...ask, messages: [] }), is(anthropic.BadRequestError, 400, "invalid_request_error"));
    await assert.rejects(new anthropic.Anthropic({ baseURL: tools.url, apiKey: "sk-wrong", maxRetries: 0 }).messages.create(ask), is(anthropic.AuthenticationError, 401, "authentication_error"));
    await assert.rejects(api.messages.create({ ...ask, messages: [{ role: "user", content: "word ".repeat(3000) }] }), /prompt is too long: \d+ tokens > 1024 maximum/);
  });

  test("unknown fields are ignored and listed", async () => {
    const { response } = await api.messages.create({ ...ask, context_management: { edits: [] } }).withResponse();
    assert.equal(response.headers.get("x-ignored-fields"), "context_management");
  });
});

describe("OpenAI's client and the Responses API", { skip: !openai }, () => {
  let demo, tools, api, toolApi;
  const model = "demo";
  before(async () => {
    demo = await startServer(program, "--served-model-name", model);
    tools = await startServer(program, "--served-model-name", model, "--chat-template", join(templates, "qwen3.jinja"), "--reasoning-parser", "none");
    api = new openai.OpenAI({ baseURL: `${demo.url}/v1`, apiKey: "none", maxRetries: 0 });
    toolApi = new openai.OpenAI({ baseURL: `${tools.url}/v1`, apiKey: "none", maxRetries: 0 });
  });
  after(async () => {
    await demo?.stop();
    await tools?.stop();
  });
  const ask = { model, input: SUM, temperature: 0, store: false };
  const without = ({ id, created_at, output, ...rest }) => ({ ...rest, output: output.map(({ id: _, call_id: __, ...item }) => item) });

  test("a response is answered, whole and streamed", async () => {
    const whole = await api.responses.create(ask);
    assert.match(whole.output_text, /423/);
    assert.deepEqual([whole.object, whole.status, whole.model], ["response", "completed", model]);
    const same = await api.responses.create({ ...ask, input: [{ role: "user", content: [{ type: "input_text", text: SUM }] }] });
    assert.equal(same.output_text, whole.output_text);
    assert.equal(same.usage.input_tokens, whole.usage.input_tokens);
    const stream = api.responses.stream(ask);
    const kinds = [], texts = [];
    let next = 0;
    for await (const event of stream) {
      assert.equal(event.sequence_number, next++);
      if (kinds.at(-1) !== event.type) kinds.push(event.type);
      if (event.type === "response.output_text.delta") texts.push(event.delta);
    }
    assert.equal(texts.join(""), whole.output_text);
    assert.deepEqual(kinds.map((kind) => kind.replace("response.", "")), ["created", "in_progress", "output_item.added", "content_part.added",
      "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed"]);
    const final = await stream.finalResponse();
    const parts = (response) => ({ ...without(response), usage: response.usage.total_tokens, output_text: "", output_parsed: null, output: response.output_text });
    assert.deepEqual(parts(final), parts(whole));
    const short = await api.responses.create({ ...ask, max_output_tokens: 2, instructions: "Be short." });
    assert.deepEqual([short.status, short.incomplete_details.reason, short.instructions], ["incomplete", "max_output_tokens", "Be short."]);
  });

  test("functions and forms", async () => {
    const weather = { type: "function", name: "weather", parameters, strict: true };
    const body = { ...ask, temperature: 1, max_output_tokens: 80, tools: [weather, { type: "web_search" }], tool_choice: { type: "function", name: "weather" }, parallel_tool_calls: false };
    const { data: whole, response } = await toolApi.responses.create(body).withResponse();
    assert.equal(response.headers.get("x-ignored-fields"), "tools[1]");
    const call = whole.output.at(-1);
    assert.deepEqual([call.type, call.name, call.status], ["function_call", "weather", "completed"]);
    assert.ok(["Oslo", "Rome"].includes(JSON.parse(call.arguments).city));
    const final = await toolApi.responses.stream({ ...body, tool_choice: "required" }).finalResponse();
    assert.ok(["Oslo", "Rome"].includes(final.output.at(-1).parsed_arguments.city));
    const input = [{ role: "user", content: SUM }, ...whole.output, { type: "function_call_output", call_id: call.call_id, output: "warm" }];
    assert.equal((await toolApi.responses.create({ ...body, input, tool_choice: "none", max_output_tokens: 4 })).status, "incomplete");
    const format = { type: "json_schema", name: "place", schema: parameters, strict: true };
    const parsed = await api.responses.parse({ ...ask, max_output_tokens: 80, text: { format } });
    assert.ok(["Oslo", "Rome"].includes(parsed.output_parsed.city));
    assert.deepEqual(parsed.text.format, format);
  });

  // As Codex sends them: instructions, developer and user items, calls and their outputs; nothing is stored.
  test("the turns of a session continue each other's prompts", async () => {
    const text = (role, words) => ({ type: "message", role, content: [{ type: "input_text", text: words }] });
    const input = [text("developer", "<permissions>read only</permissions>"), text("user", "<environment_context>/work</environment_context>"), text("user", "Fix a.c, please. It prints 3.")];
    let before = 0;
    for (let turn = 0; turn < 3; turn++) {
      const body = { model, instructions: "You fix bugs. Read files before you change them.", input, store: false, stream: true, include: ["reasoning.encrypted_content"], prompt_cache_key: "k",
        tools: [{ type: "function", name: "shell", parameters: { type: "object", properties: { command: { type: "array", items: { type: "string" } } } }, strict: false }, { type: "local_shell" }],
        temperature: 0, max_output_tokens: 6, reasoning: { effort: "medium", summary: "auto" } };
      let usage;
      for await (const event of await toolApi.responses.create(body)) usage = event.response?.usage ?? usage;
      if (turn > 0) assert.ok(usage.input_tokens_details.cached_tokens >= before - 32, `turn ${turn}: ${usage.input_tokens_details.cached_tokens} of ${before} cached`);
      before = usage.input_tokens;
      input.push({ type: "reasoning", id: "rs_1", summary: [], encrypted_content: null }, { type: "function_call", call_id: `call_${turn}`, name: "shell", arguments: '{"command":["cat","a.c"]}' },
        { type: "function_call_output", call_id: `call_${turn}`, output: "int a = 3;" }, text("developer", `<time>${turn}</time>`));
    }
    assert.ok(before > 200, `${before} tokens`);
  });
});

describe("Ollama's client", { skip: !ollama }, () => {
  let demo, tools, api, toolApi;
  const model = "demo";
  before(async () => {
    demo = await startServer(program, "--served-model-name", model);
    tools = await startServer(program, "--served-model-name", model, "--chat-template", join(templates, "qwen3.jinja"), "--reasoning-parser", "none");
    api = new ollama.Ollama({ host: demo.url });
    toolApi = new ollama.Ollama({ host: tools.url });
  });
  after(async () => {
    await demo?.stop();
    await tools?.stop();
  });
  const options = { temperature: 0, num_predict: 40, seed: 1 };
  const ask = { model, messages: [{ role: "user", content: SUM }], options };

  test("chats and prompts, whole and streamed", async () => {
    const whole = await api.chat(ask);
    assert.match(whole.message.content, /423/);
    assert.deepEqual([whole.model, whole.done, whole.done_reason], [model, true, "stop"]);
    assert.ok(whole.prompt_eval_count > 0 && whole.eval_count > 0 && whole.total_duration > 0 && whole.eval_duration > 0);
    const parts = [];
    for await (const part of await api.chat({ ...ask, stream: true })) parts.push(part);
    assert.ok(parts.length > 3);
    assert.equal(parts.map((part) => part.message.content).join(""), whole.message.content);
    assert.deepEqual(parts.map((part) => part.done), [...Array(parts.length - 1).fill(false), true]);
    assert.equal(parts.at(-1).eval_count, whole.eval_count);
    const prompt = await api.generate({ model: `${model}:latest`, prompt: SUM, options });
    assert.equal(prompt.response, whole.message.content);
    const raw = await api.generate({ model, prompt: "Once upon a time", raw: true, options: { ...options, num_predict: 5 } });
    assert.equal(raw.done_reason, "length");
    assert.equal((await api.generate({ model, prompt: "" })).done_reason, "load");
  });

  test("embeddings", async () => {
    const encoder = await startServer(program, "--served-model-name", "bert", "--model", join(templates, "../../goldens/bert_d8_fp32"));
    try {
      const of = new ollama.Ollama({ host: encoder.url });
      const { embeddings, prompt_eval_count } = await of.embed({ model: "bert", input: ["a", "bc"] });
      assert.equal(prompt_eval_count, 3);
      for (const vector of embeddings) assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-5);
      const { embedding } = await of.embeddings({ model: "bert", prompt: "a" });
      const length = Math.hypot(...embedding);
      embedding.forEach((value, d) => assert.ok(Math.abs(value / length - embeddings[0][d]) < 1e-5));
      await assert.rejects(of.embed({ model: "none", input: "a" }), /does not exist/);
      await assert.rejects(of.chat({ ...ask, model: "bert" }), /encoder/);
    } finally {
      await encoder.stop();
    }
  });

  test("tools and forms", async () => {
    const formed = await api.chat({ ...ask, format: parameters, options: { ...options, num_predict: 80 } });
    assert.ok(["Oslo", "Rome"].includes(JSON.parse(formed.message.content).city));
    const weather = { type: "function", function: { name: "weather", description: "The weather", parameters } };
    const messages = [...ask.messages, { role: "assistant", content: "", tool_calls: [{ function: { name: "weather", arguments: { city: "Oslo" } } }] }, { role: "tool", tool_name: "weather", content: "warm" }];
    const answered = await toolApi.chat({ ...ask, messages, tools: [weather], think: false, options: { ...options, num_predict: 5 } });
    assert.equal(answered.done_reason, "length");
  });

  test("lists and errors", async () => {
    assert.deepEqual((await api.list()).models.map((each) => each.name), [model]);
    assert.deepEqual((await api.ps()).models.map((each) => each.model), [model]);
    assert.deepEqual((await api.show({ model })).capabilities, ["completion"]);
    assert.deepEqual((await toolApi.show({ model })).capabilities, ["completion", "tools"]);
    assert.equal(typeof (await api.version()).version, "string");
    await assert.rejects(api.chat({ ...ask, model: "none" }), /does not exist/);
    await assert.rejects(api.chat({ ...ask, messages: [{ role: "user", content: "x", images: ["AA=="] }] }), /text only/);
  });
});

describe("LangChain", { skip: !langchain }, () => {
  let server, chat;
  before(async () => {
    server = await startServer(program, "--served-model-name", "demo", "--chat-template", join(templates, "qwen3.jinja"), "--reasoning-parser", "none");
    chat = (fields) => new langchain.ChatOpenAI({ model: "demo", apiKey: "none", maxRetries: 0, maxTokens: 60, temperature: 1, configuration: { baseURL: `${server.url}/v1` }, ...fields });
  });
  after(() => server?.stop());

  test("withStructuredOutput", async () => {
    for (const method of ["jsonSchema", "functionCalling"]) {
      const { city } = await chat().withStructuredOutput({ title: "place", ...parameters }, { method, strict: true }).invoke("Where is it warm?");
      assert.ok(["Oslo", "Rome"].includes(city), method);
    }
  });

  test("bindTools, whole and streamed", async () => {
    const weather = { type: "function", function: { name: "weather", description: "The weather", parameters } };
    for (const api of [chat(), chat({ useResponsesApi: true })]) {
      const bound = api.bindTools([weather], { tool_choice: "weather", parallel_tool_calls: false });
      const answer = await bound.invoke(SUM);
      assert.deepEqual(answer.tool_calls.map((call) => call.name), ["weather"]);
      assert.ok(["Oslo", "Rome"].includes(answer.tool_calls[0].args.city));
      let whole;
      for await (const chunk of await bound.stream(SUM)) whole = whole ? whole.concat(chunk) : chunk;
      assert.ok(["Oslo", "Rome"].includes(whole.tool_calls[0].args.city));
    }
  });
});
