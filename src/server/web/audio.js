// The page of a model that takes audio, in place of the chat: transcribes a file.
import { postForm } from "./api.js";
import { byId, copyButton, el, plural, setText } from "./dom.js";
import { failureBlock, failureOf } from "./message.js";
import { openSettings } from "./settings.js";

export function startAudio(served) {
  const form = byId("audio-form"), file = byId("audio-file"), send = byId("audio-send"), results = byId("audio-results");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = new FormData();
    if (served().id) body.append("model", served().id);
    body.append("response_format", served().timestamps ? "verbose_json" : "json");
    body.append("file", file.files[0]);
    send.disabled = true;
    results.replaceChildren(el("p", { class: "note" }, "The server is transcribing."));
    try {
      const transcript = await postForm("v1/audio/transcriptions", body);
      results.replaceChildren(...shown(transcript));
      setText(byId("announce"), `The transcript has ${plural(transcript.text.length, "character")}.`);
    } catch (error) {
      const failure = failureOf(error);
      const retry = ["Retry", () => form.requestSubmit()];
      results.replaceChildren(failureBlock(failure, failure.status === 401 ? [["Enter the API key", () => openSettings("api-key")], retry] : [retry]));
    }
    send.disabled = false;
  });
}

const clock = (seconds) => `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(2).padStart(5, "0")}`;

function shown({ text, language, segments, usage }) {
  const facts = [language, usage ? plural(usage.seconds, "second") : null, segments ? plural(segments.length, "segment") : null];
  const rows = (segments ?? []).map((segment) => el("tr", {},
    el("th", { scope: "row" }, `${clock(segment.start)} – ${clock(segment.end)}`),
    el("td", {}, segment.text.trim())));
  return [el("h2", {}, "Transcript"),
    el("p", { class: "note" }, facts.filter(Boolean).join(" · ")),
    el("p", { id: "audio-text" }, text || "No speech."),
    el("p", { class: "buttons" }, copyButton("Copy", "Copy the transcript", () => text)),
    ...(rows.length > 0 ? [el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Segments" },
      el("table", { id: "audio-segments" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Time"), el("th", { scope: "col" }, "Text"))), el("tbody", {}, ...rows)))] : [])];
}
