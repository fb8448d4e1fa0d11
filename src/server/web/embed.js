// The page of an encoder model, in place of the chat: embeds texts and shows their similarities.
import { postJson } from "./api.js";
import { byId, copyButton, count, el, plural, setText } from "./dom.js";
import { failureBlock, failureOf } from "./message.js";
import { openSettings } from "./settings.js";

const mostTexts = 16;
const shownValues = 8;

export function startEmbed(served) {
  const form = byId("embed-form"), texts = byId("embed-texts"), results = byId("embed-results");
  const add = byId("embed-add"), send = byId("embed-send");
  const rows = () => [...texts.querySelectorAll("textarea")];

  function addText() {
    const area = el("textarea", { rows: "2", required: true });
    const item = el("li", {}, area, el("button", { type: "button", class: "ghost small", onclick: () => {
      const next = item.nextElementSibling ?? item.previousElementSibling;
      item.remove();
      number();
      next.querySelector("textarea").focus();
    } }, "Remove"));
    texts.append(item);
    number();
    return area;
  }

  function number() {
    const all = rows();
    all.forEach((area, i) => {
      area.setAttribute("aria-label", `Text ${i + 1}`);
      area.placeholder = `Text ${i + 1}`;
      const remove = area.nextElementSibling;
      remove.setAttribute("aria-label", `Remove text ${i + 1}`);
      remove.hidden = all.length === 1;
    });
    add.disabled = all.length >= mostTexts;
  }

  add.addEventListener("click", () => addText().focus());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const input = rows().map((area) => area.value);
    send.disabled = true;
    try {
      const answer = await postJson("v1/embeddings", { ...(served().id ? { model: served().id } : {}), input });
      const vectors = answer.data.toSorted((a, b) => a.index - b.index).map((one) => one.embedding);
      results.replaceChildren(...vectorsTable(input, vectors, answer), ...(vectors.length > 1 ? similarities(vectors) : []));
      setText(byId("announce"), `${plural(vectors.length, "vector")} of ${count(vectors[0].length)} dimensions.`);
    } catch (error) {
      const failure = failureOf(error);
      const retry = ["Retry", () => form.requestSubmit()];
      results.replaceChildren(failureBlock(failure, failure.status === 401 ? [["Enter the API key", () => openSettings("api-key")], retry] : [retry]));
    }
    send.disabled = false;
  });
  addText();
  addText();
}

const norm = (vector) => Math.sqrt(vector.reduce((sum, x) => sum + x * x, 0));
const decimals = (x) => (x < 0 ? "−" : "") + Math.abs(x).toFixed(4);

function scrolled(name, table) {
  return el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": name }, table);
}

const head = (...names) => el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name))));

function vectorsTable(texts, vectors, answer) {
  const rows = vectors.map((vector, i) => el("tr", {},
    el("th", { scope: "row" }, String(i + 1)),
    el("td", { class: "embedded-text" }, texts[i]),
    el("td", {}, count(vector.length)),
    el("td", {}, decimals(norm(vector))),
    el("td", { class: "mono values" }, `${vector.slice(0, shownValues).map(decimals).join(" ")}${vector.length > shownValues ? " …" : ""}`),
    el("td", {}, copyButton("Copy", `Copy vector ${i + 1}`, () => JSON.stringify(vector)))));
  return [el("h2", {}, "Vectors"),
    el("p", { class: "note" }, [answer.model, answer.usage ? plural(answer.usage.prompt_tokens, "token") : null].filter(Boolean).join(" · ")),
    scrolled("Vectors", el("table", { id: "embed-vectors" }, head("", "Text", "Dimensions", "Norm", "First values", ""), el("tbody", {}, ...rows)))];
}

function similarities(vectors) {
  const norms = vectors.map(norm);
  const cosine = (i, j) => vectors[i].reduce((sum, x, k) => sum + x * vectors[j][k], 0) / (norms[i] * norms[j]);
  const rows = vectors.map((_, i) => el("tr", {}, el("th", { scope: "row" }, String(i + 1)), ...vectors.map((__, j) => {
    const value = cosine(i, j);
    const cell = el("td", { class: "cosine" }, Number.isFinite(value) ? decimals(value) : "–");
    cell.style.setProperty("--share", `${Math.max(0, Math.round(100 * value)) || 0}%`);
    return cell;
  })));
  return [el("h2", {}, "Cosine similarity"),
    scrolled("Cosine similarity", el("table", { id: "embed-cosines" }, head("", ...vectors.map((_, i) => String(i + 1))), el("tbody", {}, ...rows)))];
}
