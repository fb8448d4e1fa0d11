// The chat's settings. The browser stores them, the API key only as long as the tab is open.
import { getKey, setKey } from "./api.js";
import { byId } from "./dom.js";

const storageName = "fovea.settings";
const fields = { temperature: "temperature", "max-tokens": "max_completion_tokens", seed: "seed" };

export const systemPrompt = () => byId("system").value.trim();

// The request fields that have a value.
export function requestSettings() {
  const out = {};
  for (const [id, field] of Object.entries(fields)) if (byId(id).value !== "") out[field] = byId(id).valueAsNumber;
  return out;
}

export function openSettings(focused = null) {
  byId("tab-chat").click();
  for (const view of ["embed-key", "audio-key"]) byId(view).open = true;
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
    event.preventDefault();  // accepts the key without sending a message
    key.blur();
    byId("prompt").focus();
  });
  restore();
  panel.addEventListener("change", (event) => {
    if (event.target !== key) save();
  });
  // The browser can report an invalid field only if it is visible.
  byId("composer").addEventListener("invalid", (event) => {
    if (panel.contains(event.target)) openSettings();
  }, true);
}

function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(storageName) ?? "{}");
    for (const id of ["system", ...Object.keys(fields)]) byId(id).value = kept[id] ?? "";
  } catch {
    // Storage is blocked or has invalid data.
  }
}

function save() {
  const kept = {};
  for (const id of ["system", ...Object.keys(fields)]) if (byId(id).value !== "") kept[id] = byId(id).value;
  try {
    localStorage.setItem(storageName, JSON.stringify(kept));
  } catch {
    // Storage is blocked: the settings are lost when the page is reloaded.
  }
}
