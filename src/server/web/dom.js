// Elements, numbers, the clipboard. External text is only inserted as text: nothing here parses markup.

export const byId = (id) => document.getElementById(id);

// el("li", { class: "row", title: "…", onclick: f }, "text", child, null): null children are left out.
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  setProperties(element, properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const svgNamespace = "http://www.w3.org/2000/svg";

export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS(svgNamespace, tag);
  setProperties(element, properties);
  element.append(...children);
  return element;
}

function setProperties(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

// A button that copies text() and confirms it.
export function copyButton(label, name, text) {
  const button = el("button", { type: "button", class: "ghost small", "aria-label": name, onclick: async () => {
    const copied = await copy(text());
    setText(button, copied ? "Copied" : "Not copied");
    setText(byId("announce"), copied ? "Copied." : "The browser did not allow copying.");
    setTimeout(() => setText(button, label), 2000);
  } }, label);
  return button;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Browsers offer no clipboard to pages from another machine over plain HTTP: use the selection.
  }
  const focused = document.activeElement;
  const area = el("textarea", { class: "hidden", readonly: true, "aria-hidden": "true" });
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}

// Leaves unchanged text alone, so that polling does not destroy selections and focus.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const grouped = new Intl.NumberFormat("en-US");
export const count = (value) => grouped.format(value);
export const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

// Three significant digits: 4.21, 42.1, 421, 4,210.
export function figure(value) {
  if (!Number.isFinite(value)) return "–";
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return grouped.format(Number(value.toFixed(digits)));
}

export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1e-3) return `${figure(seconds * 1e6)} µs`;
  if (seconds < 1) return `${figure(seconds * 1e3)} ms`;
  if (seconds < 120) return `${figure(seconds)} s`;
  return `${figure(seconds / 60)} min`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    unit += 1;
  }
  return `${figure(value)} ${units[unit]}`;
}
