// The settings of the chat. All but the key are kept in this browser; the key as long as the tab.
import { getKey, setKey } from "./api.js";
import { byId } from "./dom.js";

const storageName = "fovea.settings";
const fields = { temperature: "temperature", "max-tokens": "max_completion_tokens", seed: "seed" };

export const systemPrompt = () => byId("system").value.trim();

// The fields of a request that were filled in.
export function requestSettings() {
  const out = {};
  for (const [id, field] of Object.entries(fields)) if (byId(id).value !== "") out[field] = byId(id).valueAsNumber;
  return out;
}

export function openSettings(focused = null) {
  byId("tab-chat").click();
  byId("embed-key").open = true;
  byId("settings").hidden = false;
  byId("settings-toggle").setAttribute("aria-expanded", "true");
  if (focused) byId(focused).focus();
}

export function startSettings(onKey) {
  const toggle = byId("settings-toggle"), panel = byId("settings"), key = byId("api-key");
  toggle.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    toggle.setAttribute("aria-expanded", String(!panel.hidden));
  });
  key.value = getKey();
  key.addEventListener("change", () => {
    setKey(key.value);
    onKey();
  });
  key.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();  // takes the key, and sends no message
    key.blur();
    byId("prompt").focus();
  });
  restore();
  panel.addEventListener("change", (event) => {
    if (event.target !== key) save();
  });
  // A field that is wrong must be seen for the browser to say so.
  byId("composer").addEventListener("invalid", (event) => {
    if (panel.contains(event.target)) openSettings();
  }, true);
}

function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(storageName) ?? "{}");
    for (const id of ["system", ...Object.keys(fields)]) byId(id).value = kept[id] ?? "";
  } catch {
    // Storage is blocked, or holds what this page did not write.
  }
}

function save() {
  const kept = {};
  for (const id of ["system", ...Object.keys(fields)]) if (byId(id).value !== "") kept[id] = byId(id).value;
  try {
    localStorage.setItem(storageName, JSON.stringify(kept));
  } catch {
    // Storage is blocked: they last until the page is loaded again.
  }
}
