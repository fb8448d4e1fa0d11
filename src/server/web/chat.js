// The conversation: one streamed request at a time.
import { ApiError, streamChat } from "./api.js";
import { byId, count, duration, el, figure, plural, setText } from "./dom.js";

const ideas = ["Tell me a story about a sparrow.", "What is 17 + 25?", "Hello! Who are you?"];

export function startChat({ modelName, onKeyNeeded }) {
  const composer = byId("composer"), prompt = byId("prompt"), messages = byId("messages"), scroll = byId("chat-scroll");
  const send = byId("send"), stop = byId("stop"), fresh = byId("new-chat");
  let history = [];  // what the model sees, without the system prompt
  let current = null;  // AbortController of the answer under way

  byId("ideas").append(...ideas.map((text) => el("li", {}, el("button", {
    type: "button",
    onclick: () => {
      prompt.value = text;
      composer.requestSubmit();
    },
  }, text))));

  composer.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = prompt.value.trim();
    if (current === null && text !== "") ask(text);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    composer.requestSubmit();
  });
  prompt.addEventListener("input", fit);
  stop.addEventListener("click", () => current?.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") current?.abort();
  });
  fresh.addEventListener("click", () => {
    current?.abort();
    history = [];
    messages.replaceChildren();
    byId("welcome").hidden = false;
    fresh.disabled = true;
    prompt.focus();
  });

  function fit() {
    prompt.style.height = "auto";
    prompt.style.height = `${prompt.scrollHeight + 2}px`;
  }

  async function ask(text) {
    byId("welcome").hidden = true;
    fresh.disabled = false;
    messages.append(messageItem("user", text).item);
    prompt.value = "";
    fit();
    const mine = (current = new AbortController());
    setBusy(true);
    const conversation = history;
    const turn = { role: "user", content: text };
    const answer = messageItem("assistant", "");
    messages.append(answer.item);
    follow(true);
    const meter = new Meter();
    let got = "";
    let failure = null;
    let frame = null;
    const render = () => {
      frame = null;
      const atEnd = nearEnd();
      writeText(answer.body, got);
      setText(answer.meta, meter.text());
      follow(atEnd);
    };
    try {
      await streamChat(requestBody([...conversation, turn]), mine.signal, (chunk) => {
        meter.take(chunk);
        const piece = chunk.choices?.[0]?.delta?.content;
        if (!piece) return;
        const first = got === "";
        got += piece;
        // The first words at once, the others once a frame: tokens may come by the thousand a second.
        if (first) render();
        else frame ??= requestAnimationFrame(render);
      });
    } catch (error) {
      failure = error;
    }
    const stopped = failure?.name === "AbortError";
    cancelAnimationFrame(frame);
    render();
    const atEnd = nearEnd();
    answer.item.classList.remove("streaming");
    setText(answer.meta, meter.text(stopped ? "stopped" : null));
    if (failure && !stopped) showFailure(answer, failure);
    else if (got === "" && !stopped) answer.body.append(el("p", { class: "empty" }, "The model ended its answer at once."));
    // A turn without an answer is no part of the conversation: it can be sent again as it was.
    if (conversation === history && (got !== "" || !failure)) history.push(turn, { role: "assistant", content: got });
    else if (conversation === history && prompt.value === "") prompt.value = text;
    fit();
    follow(atEnd);
    byId("announce").textContent = stopped ? "Stopped." : failure ? "" : `Answer: ${got}`;
    if (current === mine) {
      current = null;
      setBusy(false);
    }
  }

  function setBusy(busy) {
    const hadFocus = document.activeElement === (busy ? send : stop) || document.activeElement === document.body;
    send.hidden = busy;
    stop.hidden = !busy;
    if (hadFocus) (busy ? stop : prompt).focus();
  }

  function requestBody(conversation) {
    const system = byId("system").value.trim();
    const body = { messages: system ? [{ role: "system", content: system }, ...conversation] : conversation };
    if (modelName()) body.model = modelName();
    for (const [id, field] of [["temperature", "temperature"], ["max-tokens", "max_completion_tokens"], ["seed", "seed"]])
      if (byId(id).value !== "") body[field] = byId(id).valueAsNumber;
    return body;
  }

  function showFailure(answer, error) {
    const about = [error.status ? `${error.status} ${error.type ?? ""}`.trim() : null, error.code,
      error.param ? `at ${error.param}` : null, error.requestId ? `request ${error.requestId}` : null].filter(Boolean).join(" · ");
    const known = error instanceof ApiError;
    answer.body.append(el("div", { class: "failure", role: "alert" },
      el("p", {}, known ? error.message : `The answer can't be read: ${error.message}`), about ? el("p", { class: "about" }, about) : null));
    if (error.status === 401) onKeyNeeded();
  }

  const nearEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  function follow(yes) {
    if (yes) scroll.scrollTop = scroll.scrollHeight;
  }
}

function messageItem(role, text) {
  const body = el("div", { class: "body" });
  const meta = el("p", { class: "meta" });
  writeText(body, text);
  const name = el("h3", { class: "who" }, role === "user" ? "You" : "Model");
  return { body, meta, item: el("li", { class: role === "user" ? "user" : "assistant streaming" }, name, body, role === "user" ? null : meta) };
}

// Text as it is; what stands between lines of ``` is set in a block of its own.
function writeText(body, text) {
  const pieces = text.split(/^```/m);
  body.replaceChildren(...pieces.map((piece, i) => {
    if (i % 2 === 0) return piece === "" ? "" : el("p", {}, i === 0 ? piece : piece.replace(/^\n/, ""));
    const line = piece.indexOf("\n");
    return el("pre", { tabindex: "0" }, el("code", {}, line < 0 ? "" : piece.slice(line + 1)));
  }));
}

// Time to the first token, and tokens per second after it. The usage at the end says how many tokens there
// were; until then, and when it never comes, a piece of text counts as one.
class Meter {
  #start = performance.now();
  #first = null;
  #last = null;
  #pieces = 0;
  #usage = null;
  #finish = null;

  take(chunk) {
    if (chunk.usage) this.#usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (choice?.finish_reason) this.#finish = choice.finish_reason;
    if (!choice?.delta?.content) return;
    this.#last = performance.now();
    this.#first ??= this.#last;
    this.#pieces += 1;
  }

  text(end = null) {
    const out = [];
    const tokens = this.#usage?.completion_tokens ?? this.#pieces;
    if (this.#first !== null) {
      const seconds = (this.#last - this.#first) / 1000;
      out.push(plural(tokens, "token"));
      if (tokens > 1 && seconds > 0) out.push(`${figure((tokens - 1) / seconds)} tokens/s`);
      out.push(`first after ${duration((this.#first - this.#start) / 1000)}`);
    }
    const cached = this.#usage?.prompt_tokens_details?.cached_tokens ?? 0;
    if (this.#usage) out.push(`prompt ${count(this.#usage.prompt_tokens)}${cached > 0 ? `, ${count(cached)} cached` : ""}`);
    const why = end ?? (this.#finish === "length" ? "cut at the limit" : null);
    if (why) out.push(why);
    return out.join(" · ");
  }
}
