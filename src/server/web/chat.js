// The chat: one streamed answer at a time.
import { postJson, streamChat } from "./api.js";
import { Conversation } from "./conversation.js";
import { byId, el, setText } from "./dom.js";
import { MessageView, failureOf } from "./message.js";
import { Meter } from "./meter.js";
import { openSettings, requestSettings, systemPrompt } from "./settings.js";

const ideas = ["Tell me a story about a sparrow.", "What is 17 + 25?", "Hello! Who are you?"];

// served() returns the model's { id, contextTokens }.
export function startChat(served) {
  const composer = byId("composer"), prompt = byId("prompt"), messages = byId("messages"), scroll = byId("chat-scroll");
  const send = byId("send"), stop = byId("stop"), fresh = byId("new-chat");
  const conversation = new Conversation();
  let views = [];  // one for each turn
  let current = null;  // { abort, turn } of the running answer

  byId("ideas").append(...ideas.map((text) => el("li", {}, el("button", { type: "button", onclick: () => {
    prompt.value = text;
    composer.requestSubmit();
  } }, text))));
  composer.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = prompt.value.trim();
    if (current !== null || text === "") return;
    prompt.value = "";
    fit();
    ask(text);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    composer.requestSubmit();
  });
  prompt.addEventListener("input", fit);
  stop.addEventListener("click", () => current?.abort.abort());
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") current?.abort.abort();
  });
  fresh.addEventListener("click", clear);
  // A page that is left during an answer keeps the part that has arrived; the aborted stream is not an error.
  let leaving = false;
  addEventListener("pagehide", () => {
    if (current) conversation.save();
    leaving = true;
  });
  addEventListener("pageshow", () => {
    leaving = false;
  });

  function restore() {
    conversation.load();
    for (const turn of conversation.turns) {
      if (turn.pending && turn.content === "") turn.failure = { message: "The page was left before the answer came.", about: "", status: 0, code: null };
      else if (turn.pending) turn.note = "the page was left meanwhile";
      delete turn.pending;
    }
    show();
    follow(true);
  }

  // Renders all turns again, after some were removed.
  function show() {
    views = conversation.turns.map((turn) => new MessageView(turn, act));
    messages.replaceChildren(...views.map((view) => view.item));
    showState();
  }

  function showState() {
    const empty = conversation.turns.length === 0;
    byId("welcome").hidden = !empty;
    fresh.disabled = empty;
    const kept = conversation.save();
    setText(byId("kept"), empty ? "" : kept ? "Kept in this browser" : "Not kept: storage is blocked");
  }

  function clear() {
    current?.abort.abort();
    conversation.turns = [];
    show();
    prompt.focus();
  }

  const act = {
    edit(turn, text) {
      conversation.turns.length = conversation.turns.indexOf(turn);
      show();
      ask(text);
    },
    again() {
      if (current !== null) return;
      const { content } = conversation.turns.at(-2);
      conversation.turns.length -= 2;
      show();
      ask(content);
    },
    // What can be done after the last answer failed or filled the context, as [label, function].
    ways(turn) {
      if (turn !== conversation.turns.at(-1)) return [];
      const more = conversation.turns.filter((one) => !one.unsent).length > 2;
      if (turn.full) return [more ? ["Drop the oldest turns", () => makeRoom()] : null, ["New chat", clear]].filter(Boolean);
      if (turn.failure.code === "context_length_exceeded")
        return [more ? ["Drop the oldest turns and retry", () => makeRoom().then(act.again)] : null, ["New chat", clear]].filter(Boolean);
      const retry = ["Retry", () => act.again()];
      return turn.failure.status === 401 ? [["Enter the API key", () => openSettings("api-key")], retry] : [retry];
    },
  };

  const withSystem = (list) => (systemPrompt() ? [{ role: "system", content: systemPrompt() }, ...list] : list);

  // Excludes the oldest turns, at least one, until a quarter of the context, or as many tokens as the settings
  // allow, is free for the answer.
  async function makeRoom() {
    const context = served().contextTokens || Infinity;
    const most = Math.min(0.75 * context, context - (requestSettings().max_completion_tokens ?? 0));
    const last = conversation.turns.at(-1), index = conversation.turns.length - (last.failure && last.content === "" ? 1 : 0);
    const sent = () => withSystem(conversation.messages(index));
    const characters = () => JSON.stringify(sent()).length;
    const tokens = async () => (await postJson("tokenize", { messages: sent() })).count;
    try {
      const each = (await tokens()) / characters();
      // Estimates from the number of characters first, because each count sends the whole conversation.
      while (conversation.dropOldest()) if (characters() * each <= most && (await tokens()) <= most) break;
    } catch {
      // The tokens cannot be counted: exclude half of the turns.
      for (let pairs = conversation.turns.filter((turn) => !turn.unsent).length >> 2; pairs >= 0; --pairs) conversation.dropOldest();
    }
    const left = conversation.turns.at(-1);
    left.full = false;
    show();
    follow(true);
    setText(byId("announce"), "The oldest turns are no longer sent.");
  }

  async function ask(text) {
    const turn = { role: "assistant", content: "", model: served().id, pending: true };
    const question = { role: "user", content: text };
    conversation.turns.push(question, turn);
    views.at(-1)?.show();  // only the last answer offers actions
    const view = new MessageView(turn, act);
    views.push(new MessageView(question, act), view);
    messages.append(...views.slice(-2).map((one) => one.item));
    const mine = (current = { abort: new AbortController(), turn });
    view.show({ streaming: true, meta: "" });
    showState();
    setBusy(true);
    follow(true);
    const meter = new Meter();
    let frame = null, failure = null;
    const render = () => {
      frame = null;
      const atEnd = nearEnd();
      view.show({ streaming: true, meta: meter.text() });
      follow(atEnd);
    };
    try {
      await streamChat(requestBody(), mine.abort.signal, (chunk) => {
        meter.take(chunk);
        if (chunk.model) turn.model = chunk.model;
        const piece = chunk.choices?.[0]?.delta?.content;
        if (!piece) return;
        const first = turn.content === "";
        turn.content += piece;
        // Shows the first words at once and later ones once per frame: there may be thousands of tokens a second.
        if (first) render();
        else frame ??= requestAnimationFrame(render);
      });
    } catch (error) {
      failure = error;
    }
    cancelAnimationFrame(frame);
    if (leaving) return;
    const atEnd = nearEnd();
    delete turn.pending;
    turn.stopped = failure?.name === "AbortError";
    turn.note = meter.text(turn.stopped ? "stopped" : null);
    if (failure && !turn.stopped) turn.failure = failureOf(failure);
    turn.full = meter.filled(served().contextTokens);
    view.show();
    if (current === mine) {
      current = null;
      setBusy(false);
      if (conversation.turns.includes(turn)) showState();
    }
    follow(atEnd);
    setText(byId("announce"), turn.stopped ? "Stopped." : failure ? "" : `Answer: ${turn.content}`);
    if (turn.failure?.status === 401) openSettings("api-key");
  }

  function requestBody() {
    const body = { messages: withSystem(conversation.messages(conversation.turns.length - 1)), ...requestSettings() };
    if (served().id) body.model = served().id;
    return body;
  }

  function setBusy(busy) {
    const hadFocus = document.activeElement === (busy ? send : stop) || document.activeElement === document.body;
    send.hidden = busy;
    stop.hidden = !busy;
    messages.classList.toggle("busy", busy);
    if (hadFocus) (busy ? stop : prompt).focus();
  }

  function fit() {
    prompt.style.height = "auto";
    prompt.style.height = `${prompt.scrollHeight + 2}px`;
  }

  const nearEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 60;
  function follow(yes) {
    if (yes) scroll.scrollTop = scroll.scrollHeight;
  }

  restore();
}
