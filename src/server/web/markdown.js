// Renders an answer's Markdown. Two defences against hostile output: HTML in it is shown as text and never parsed,
// and the sanitiser passes only the few elements below. The page's policy (trusted types) permits no other
// conversion of text to markup.
import { Marked } from "./vendor/marked.esm.js";
import "./vendor/purify.min.js";
import { copyButton, el } from "./dom.js";

const purify = globalThis.DOMPurify;
const longest = 200_000;  // characters; longer answers are plain text, since each update parses the whole text

const escapes = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escapeHtml = (text) => text.replace(/[&<>"']/g, (c) => escapes[c]);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ block, text }) => (block ? `<p>${escapeHtml(text.trimEnd())}</p>` : escapeHtml(text)),
    // Nothing is fetched from other sites: images become links.
    image: ({ href, text }) => `<a href="${escapeHtml(href)}">${escapeHtml(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
  },
});

const allowed = {
  ALLOWED_TAGS: ["a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre", "strong",
    "table", "tbody", "td", "th", "thead", "tr", "ul"],
  ALLOWED_ATTR: ["align", "class", "href", "start"],
  ADD_URI_SAFE_ATTR: ["align", "start"],  // not URLs: the pattern below does not apply to them
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};

// Renders `text` into `container`. Unchanged blocks keep their elements, so that selections, scroll positions and
// the focus survive the arrival of more text.
export function showMarkdown(container, text) {
  const tokens = text.length > longest ? [{ type: "plain", raw: text }] : marked.lexer(text);
  const blocks = (container.fovea ??= []);
  const links = JSON.stringify(tokens.links ?? {});  // a later link definition changes earlier blocks
  const same = container.foveaLinks === links;
  container.foveaLinks = links;
  let at = 0;
  for (const token of tokens) {
    if (token.type === "space" || token.type === "def") continue;
    const old = blocks[at];
    if (!(same && old?.raw === token.raw && old.type === token.type)) {
      const nodes = elementsOf(token, old);
      if (old?.nodes[0] === nodes[0]) {
        // the block has grown
      } else if (old) {
        old.nodes[0].before(...nodes);
        old.nodes.forEach((node) => node.remove());
      } else container.append(...nodes);
      blocks[at] = { raw: token.raw, type: token.type, nodes };
    }
    at += 1;
  }
  blocks.splice(at).forEach((block) => block.nodes.forEach((node) => node.remove()));
}

function elementsOf(token, old) {
  if (token.type === "plain") return [el("p", { class: "plain" }, token.raw)];
  if (token.type === "code") return [codeBlock(token, old?.type === "code" ? old.nodes[0] : null)];
  const fragment = purify.sanitize(marked.parser([token]), allowed);
  for (const link of fragment.querySelectorAll("a")) {
    if (!link.hasAttribute("href")) continue;
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
    link.title = link.href;
  }
  for (const code of fragment.querySelectorAll("pre > code")) {  // also inside lists and quotes
    const language = /(?:^|\s)language-(\S+)/.exec(code.className)?.[1];
    code.parentElement.replaceWith(codeBlock({ lang: language, text: code.textContent.replace(/\n$/, "") }));
  }
  for (const table of fragment.querySelectorAll("table")) {
    const scroller = el("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" });
    table.replaceWith(scroller);
    scroller.append(table);
  }
  for (const heading of fragment.querySelectorAll("h1, h2, h3, h4, h5, h6")) {
    // Below the page's own headings: messages have <h3>.
    const lower = el(`h${Math.min(6, Number(heading.tagName[1]) + 3)}`, { class: heading.tagName.toLowerCase() });
    lower.append(...heading.childNodes);
    heading.replaceWith(lower);
  }
  const nodes = [...fragment.childNodes].filter((node) => node.nodeType !== Node.TEXT_NODE || node.data.trim() !== "");
  return nodes.length > 0 ? nodes : [document.createTextNode("")];
}

// `old` is the previous version of the block, whose elements are kept.
function codeBlock({ lang, text }, old = null) {
  const language = /^[\w+#.-]{1,30}/.exec(lang ?? "")?.[0] ?? "";
  if (old?.dataset.language === language) {
    old.querySelector("code").textContent = text;
    return old;
  }
  const code = el("code", {}, text);
  const name = language || "text";
  return el("div", { class: "code", "data-language": language },
    el("div", { class: "code-head" }, el("span", { class: "language" }, name), copyButton("Copy", `Copy this ${name}`, () => code.textContent)),
    el("pre", { tabindex: "0", role: "region", "aria-label": `Code: ${name}` }, code));
}

// Separates reasoning from the answer: <think>...</think>, whose opening tag may be part of the prompt already.
// `open`: the reasoning has not ended.
export function splitThoughts(text) {
  const begin = /^\s*<think>/.exec(text)?.[0].length ?? 0;
  const end = text.indexOf("</think>");
  if (end < 0) return begin > 0 ? { thoughts: text.slice(begin).trim(), answer: "", open: true } : { thoughts: "", answer: text, open: false };
  // Tags in the middle of an answer, for example in code, are part of the answer.
  if (begin === 0 && /^(```|~~~)/m.test(text.slice(0, end))) return { thoughts: "", answer: text, open: false };
  return { thoughts: text.slice(begin, end).trim(), answer: text.slice(end + 8).trimStart(), open: false };
}
