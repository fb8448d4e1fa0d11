// Requests to this server. URLs are relative, so that a proxy can serve the page under a path of its own.

const keyName = "fovea.apiKey";
let apiKey = readKey();

function readKey() {
  try {
    return sessionStorage.getItem(keyName) ?? "";
  } catch {
    return "";  // storage is blocked: the key lives in this variable alone
  }
}

export const getKey = () => apiKey;

export function setKey(key) {
  apiKey = key.trim();
  try {
    if (apiKey) sessionStorage.setItem(keyName, apiKey);
    else sessionStorage.removeItem(keyName);
  } catch {
    // as above
  }
}

// An error of a request, in OpenAI's format; status 0: no response was received.
export class ApiError extends Error {
  constructor(status, message, { type = null, param = null, code = null, requestId = null, loading = null } = {}) {
    super(message);
    // loading: { weights: fraction, seconds } while the server loads the model
    Object.assign(this, { name: "ApiError", status, type, param, code, requestId, loading });
  }
}

function headers() {
  return apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...headers(), ...options.headers }, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server can't be reached.");
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response) {
  const requestId = response.headers.get("x-request-id");
  const text = await response.text().catch(() => "");
  let error = null, loading = null;
  try {
    ({ error, loading = null } = JSON.parse(text));
  } catch {
    // not JSON, such as a proxy's error page
  }
  if (error === null || typeof error !== "object")
    return new ApiError(response.status, `The server answered ${response.status} ${response.statusText}`.trim(), { requestId });
  return new ApiError(response.status, String(error.message ?? ""), { type: error.type, param: error.param, code: error.code, requestId, loading });
}

export const getJson = (path, signal) => json(path, { signal });

export const postJson = (path, body) =>
  json(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

export const postForm = (path, body) => json(path, { method: "POST", body });

async function json(path, options) {
  const response = await call(path, options);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(response.status, `${path} is not JSON.`);
  }
}

// Calls onChunk with each chunk of a streamed chat. Throws ApiError, also for an error event in the stream and
// for a truncated stream; AbortError when `signal` ends it.
export async function streamChat(body, signal, onChunk) {
  const response = await call("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  const requestId = response.headers.get("x-request-id");
  const brokeOff = () => new ApiError(0, "The connection broke before the answer was complete.", { requestId });
  const events = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      throw error.name === "AbortError" ? error : brokeOff();
    }
    if (piece.done) throw brokeOff();
    for (const data of events.push(piece.value)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new ApiError(Number(chunk.error.code) || 500, String(chunk.error.message), { ...chunk.error, requestId });
      onChunk(chunk);
    }
  }
}

// Parses server-sent events from pieces that may end anywhere: returns the data of each complete event.
// Comments and other fields are dropped.
export class EventParser {
  #rest = "";
  #data = [];

  push(text) {
    const out = [];
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (let line of lines) {
      if (line.endsWith("\r")) line = line.slice(0, -1);
      if (line === "") {
        if (this.#data.length > 0) out.push(this.#data.join("\n"));
        this.#data = [];
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(line[5] === " " ? 6 : 5));
      }
    }
    return out;
  }
}
