// Serves the playground's files and the API that they call, without an engine: for work on the page, and for its tests
// without a `fovea` program. It sends the program's headers (read from web_files.h, so that the policy is the same) and
// simulates an engine that also has sequences of other clients.
//
//   node mock_server.mjs [PORT]        FOVEA_MOCK_KEY=secret asks for an API key
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const web = `${here}../../../src/server/web/`;
const types = { html: "text/html; charset=utf-8", js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml", txt: "text/plain; charset=utf-8" };

function webHeaders() {
  const source = readFileSync(`${web}web_files.h`, "utf8").split("kWebHeaders = ")[1];
  const pairs = [...source.matchAll(/\{"([^"]+)",\s*((?:"[^"]*"\s*)+)\}/g)];
  return Object.fromEntries(pairs.map(([, name, parts]) => [name, [...parts.matchAll(/"([^"]*)"/g)].map((m) => m[1]).join("")]));
}

const story =
  "Once upon a time, a curious sparrow named Leo lived at the end of a long lane. One day Leo heard a cry for help. " +
  "There was Alma the butterfly, stuck in the mud. Leo was not strong, but he was clever. Leo found a long rope and tied " +
  "it to a tree. With one last pull Alma was free. And so they became the best of friends.";

// Simulates an engine with the page's requests and a few others, one step every 12 ms.
class MockEngine {
  constructor() {
    this.started = Date.now();
    this.stepsTotal = 40_000;
    this.generated = 900_000;
    this.steps = [];
    this.total = 2048;
    this.nextId = 311;
    this.random = 12345;
    this.others = Array.from({ length: 5 }, () => this.newcomer());
    this.chats = new Map();
    for (let i = 0; i < 140; ++i) this.step();
    this.timer = setInterval(() => this.step(), 12);
    this.timer.unref();
  }

  uniform() {
    this.random = (this.random * 1103515245 + 12345) % 2147483648;
    return this.random / 2147483648;
  }

  newcomer() {
    const prompt = 64 + Math.floor(this.uniform() * 1500);
    return { id: this.nextId++, prompt, cached: Math.floor((prompt * this.uniform() * 0.6) / 16) * 16, computed: 0, generated: 0, limit: 120 + Math.floor(this.uniform() * 400) };
  }

  step() {
    let budget = 512, prefill = 0, decode = 0;
    for (const s of [...this.others, ...this.chats.values()]) {
      if (s.computed === 0) s.computed = s.cached;
      if (s.computed < s.prompt) {
        const chunk = Math.min(budget, s.prompt - s.computed);
        budget -= chunk;
        s.computed += chunk;
        prefill += chunk;
      } else {
        s.generated += 1;
        decode += 1;
      }
    }
    this.others = this.others.map((s) => (s.generated > s.limit ? this.newcomer() : s));
    const seconds = 0.0016 + decode * 0.00021 + prefill * 0.000055 * (0.9 + 0.2 * this.uniform()) + (this.uniform() > 0.98 ? 0.004 : 0.0003 * this.uniform());
    this.steps.push({ seconds, attention_seconds: seconds * 0.31, plan_seconds: 0.00002, prefill_rows: prefill, decode_rows: decode });
    if (this.steps.length > 120) this.steps.shift();
    this.stepsTotal += 1;
    this.generated += decode;
  }

  state() {
    const pages = (s) => Math.ceil((s.computed + s.generated) / 16);
    const running = [...this.others, ...this.chats.values()];
    const locked = 96, inUse = running.reduce((n, s) => n + pages(s), 0) + locked, cached = 610;
    return {
      age_seconds: 0.004,
      steps_total: this.stepsTotal,
      generated_tokens: this.generated,
      drafts: { steps: 0, draft_tokens: 0, accepted_tokens: 0 },
      page_size: 16,
      pages: { total: this.total, free: this.total - inUse - cached, cached, in_use: inUse },
      running: running.length,
      waiting: 1,
      sequences: [
        ...running.map((s) => ({
          id: s.id, index: 0, state: s.computed < s.prompt ? "prefill" : "decode", prompt_tokens: s.prompt, computed_tokens: s.computed + s.generated,
          generated_tokens: s.generated, cached_tokens: s.cached, pages: pages(s), shared_pages: s.cached / 16, preemptions: 0,
        })),
        { id: this.nextId, index: 0, state: "waiting", prompt_tokens: 212, computed_tokens: 0, generated_tokens: 0, cached_tokens: 0, pages: 0, shared_pages: 0, preemptions: 1 },
      ],
      prefixes: {
        nodes: 41, pages: 706, locked_pages: locked, complete: true,
        longest: [[1536, true], [1024, false], [912, false], [640, true], [256, false]].map(([tokens, isLocked]) => ({ tokens, pages: tokens / 16, locked: isLocked })),
      },
      steps: this.steps,
    };
  }
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function readBody(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString("latin1");
}

async function readJson(request) {
  let text = "";
  for await (const piece of request) text += piece;
  return JSON.parse(text);
}

const tokensOf = (messages) => messages.reduce((sum, message) => sum + 4 + message.content.length, 0);

async function chat(request, response, engine, answers, context) {
  const body = await readJson(request);
  const fail = (status, error) => {
    response.writeHead(status, { "Content-Type": "application/json", "x-request-id": "mock-1" });
    response.end(JSON.stringify({ error }));
  };
  const last = body.messages.at(-1).content;
  if (body.temperature > 2)
    return fail(400, { message: `temperature is ${body.temperature}; allowed: 0 to 2`, type: "invalid_request_error", param: "temperature", code: null });
  if (last === "too long" || tokensOf(body.messages) > context)
    return fail(400, { message: `the prompt has ${tokensOf(body.messages)} tokens; allowed: ${context}`, type: "invalid_request_error", param: "messages", code: "context_length_exceeded" });
  const answer = answers[last] ?? story;
  const words = answer.match(/\s*\S+/g);
  const limit = Math.min(body.max_completion_tokens ?? (last === "long" ? 4000 : words.length), 4000);
  const sequence = { id: engine.nextId++, prompt: 24, cached: 16, computed: 0, generated: 0, limit };
  engine.chats.set(sequence.id, sequence);
  response.on("close", () => engine.chats.delete(sequence.id));
  response.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-cache" });
  const send = (choices, extra = {}) => response.write(`data: ${JSON.stringify({ id: "chatcmpl-mock", object: "chat.completion.chunk", created: 0, model: body.model, choices, ...extra })}\n\n`);
  send([{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }]);
  await sleep(60);
  for (let i = 0; i < limit && !response.destroyed; ++i) {
    send([{ index: 0, delta: { content: words[i % words.length] }, finish_reason: null }]);
    if (last === "broken" && i === 5) return response.destroy();
    if (last === "cut short" && i === 5) return response.end();
    if (last === "fails" && i === 5) {
      response.write(`: keep-alive\n\ndata: ${JSON.stringify({ error: { message: "the engine stopped", type: "server_error", param: null, code: null } })}\n\n`);
      return response.end("data: [DONE]\n\n");
    }
    await sleep(8);
  }
  send([{ index: 0, delta: {}, finish_reason: limit < words.length || last === "fills" ? "length" : "stop" }]);
  const total = last === "fills" ? context : 24 + limit;
  send([], { usage: { prompt_tokens: 24, completion_tokens: limit, total_tokens: total, prompt_tokens_details: { cached_tokens: 16 } } });
  response.end("data: [DONE]\n\n");
}

// The state before the first request.
export const idleState = {
  age_seconds: 0, steps_total: 0, generated_tokens: 0, drafts: { steps: 0, draft_tokens: 0, accepted_tokens: 0 }, page_size: 16, pages: { total: 4096, free: 4096, cached: 0, in_use: 0 }, running: 0, waiting: 0,
  sequences: [], prefixes: { nodes: 0, pages: 0, locked_pages: 0, complete: true, longest: [] }, steps: [],
};

// Embeddings are letter counts: texts with the same letters are similar.
const embed = (text) => [..."abcdefghijklmnop"].map((letter) => text.toLowerCase().split(letter).length - 1);

const started = [];
// Closes those too that a failed test has left open and that would keep the process alive.
export const closeMocks = () => Promise.all(started.map((mock) => mock.close()));

// state: replaces the simulated engine's answer to /server_state; null = 404, as for an encoder. encoder: embeds instead
// of chatting. audio: transcribes. answers: the answer to each message. context: the context length in tokens, here characters. loading():
// { weights, seconds } while the model loads, then null.
export async function startMock({ port = 0, key = "", state, encoder = false, audio = false, answers = {}, context = 131072, loading = () => null } = {}) {
  const engine = new MockEngine();
  const info = JSON.parse(readFileSync(`${here}server_info.json`, "utf8"));
  if (encoder) {
    state = null;
    info.effective = { dtype: "float32", max_seq_len: 512, vocab_size: 30522, threads: 2, weight_bytes: 1e8, dimensions: 16, pooling: "mean", pooling_why: "default", normalize: false };
  }
  if (audio) info.effective.audio = { window_seconds: 30, timestamps: true };
  const headers = webHeaders();
  const json = (response, body) => {
    response.writeHead(200, { "Content-Type": "application/json" });
    response.end(typeof body === "string" ? body : JSON.stringify(body));
  };
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://mock").pathname;
    const file = path === "/" ? "index.html" : path.match(/^\/web\/((?:vendor\/)?[a-z]+(?:\.[a-z]+){1,2})$/)?.[1];
    if (file) {
      try {
        const text = readFileSync(web + file);
        response.writeHead(200, { ...headers, "Content-Type": types[file.split(".").at(-1)] });
        return response.end(text);
      } catch {
        // no such file: answered with the 404 below
      }
    } else if (loading() !== null) {
      response.writeHead(503, { "Content-Type": "application/json", "Retry-After": "1" });
      return response.end(JSON.stringify({ error: { message: "the model is being loaded; try again later", type: "server_error", param: null, code: "loading" }, loading: loading() }));
    } else if (key && request.headers.authorization !== `Bearer ${key}`) {
      response.writeHead(401, { "Content-Type": "application/json" });
      return response.end(JSON.stringify({ error: { message: "this server requires an API key", type: "authentication_error", param: null, code: "invalid_api_key" } }));
    }
    if (path === "/v1/models") return json(response, { object: "list", data: [{ id: encoder ? "bge-small" : "gpt-oss-20b", object: "model", created: 0, owned_by: "fovea", max_model_len: encoder ? 512 : context }] });
    if (path === "/server_info") return json(response, info);
    if (path === "/server_state" && state !== null) return json(response, state ?? engine.state());
    if (path === "/v1/chat/completions" && request.method === "POST") return chat(request, response, engine, answers, context).catch(() => response.destroy());
    if (path === "/tokenize" && request.method === "POST")
      return readJson(request).then(({ messages }) => json(response, { count: tokensOf(messages), max_model_len: context, tokens: [] }));
    if (path === "/v1/embeddings" && request.method === "POST" && encoder)
      return readJson(request).then(({ input, model }) => json(response, {
        object: "list", model, usage: { prompt_tokens: 12, total_tokens: 12 }, data: input.map((text, index) => ({ object: "embedding", index, embedding: embed(text) })),
      }));
    if (path === "/v1/audio/transcriptions" && request.method === "POST" && audio)
      return readBody(request).then((body) => (body.includes("RIFF")
        ? json(response, { task: "transcribe", language: "english", duration: 61.5, text: "One <b>two</b>", usage: { type: "duration", seconds: 62 },
          segments: [{ id: 0, start: 0, end: 1.5, text: " One" }, { id: 1, start: 60, end: 61.5, text: " <b>two</b>" }] })
        : (response.writeHead(400, { "Content-Type": "application/json" }),
          response.end(JSON.stringify({ error: { message: "file: not a WAV file", type: "invalid_request_error", param: "file", code: null } })))));
    response.writeHead(404, { "Content-Type": "application/json" });
    response.end(JSON.stringify({ error: { message: `no route ${path}`, type: "not_found_error", param: null, code: null } }));
  });
  await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
  const mock = {
    url: `http://127.0.0.1:${server.address().port}/`,
    requests: () => engine.chats.size,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => server.close(resolve));
    },
  };
  started.push(mock);
  return mock;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { url } = await startMock({ port: Number(process.argv[2] ?? 8010), key: process.env.FOVEA_MOCK_KEY ?? "" });
  console.log(url);
}
