// The entry point of the page: finds out what the server offers and shows its views, the theme and the tabs.
import { getJson, getKey } from "./api.js";
import { startAudio } from "./audio.js";
import { showBackends } from "./backends.js";
import { startChat } from "./chat.js";
import { byId, count, duration, setText } from "./dom.js";
import { startEmbed } from "./embed.js";
import { startLive } from "./live.js";
import { openSettings, startSettings } from "./settings.js";

const retryAfter = 1000;
const main = document.querySelector("main");
// The first view, by what the model does.
const kinds = {
  chat: { view: "view-chat", name: "Chat", key: "settings", skip: "#prompt" },
  encoder: { view: "view-embed", name: "Embeddings", key: "embed-key", skip: "#embed-form" },
  audio: { view: "view-audio", name: "Transcripts", key: "audio-key", skip: "#audio-form" },
};
let served = { id: "", contextTokens: 0, timestamps: false };
let asking = null;  // the request for the served model that is in progress

startTheme();
startViews();
startSettings(showServer);
byId("key-notice-button").addEventListener("click", () => openSettings("api-key"));
startChat(() => served);
startEmbed(() => served);
startAudio(() => served);
startLive(showReachable);
showServer();

// Polls until the server reports its model: it may be loading it, be unreachable, or require a key.
function showServer() {
  asking = ask().finally(() => {
    asking = null;
  });
}

async function ask() {
  const attempt = {};
  ask.newest = attempt;
  for (;;) {
    const error = await learn();
    if (ask.newest !== attempt) return;
    showLoading(error?.code === "loading" ? error.loading : null);
    showKeyNotice(error?.status === 401);
    if (error === null || (error.status !== 0 && error.status !== 503)) return;
    await new Promise((resolve) => setTimeout(resolve, retryAfter));
  }
}

async function learn() {
  let models, info;
  try {
    [models, info] = await Promise.all([getJson("v1/models"), showBackends()]);
  } catch (error) {
    return error;
  }
  const model = models.data?.[0];
  if (!model) return null;
  const { dimensions = 0, audio = null } = info?.effective ?? {};
  served = { id: model.id, contextTokens: model.max_model_len ?? 0, timestamps: audio?.timestamps ?? false };
  setText(byId("served-model"), model.id);
  byId("served-model").title = model.id;
  setText(byId("served-facts"), model.max_model_len > 0 ? `${count(model.max_model_len)} tokens of context` : "");
  byId("served").hidden = false;
  document.title = `${model.id} · Fovea playground`;
  showKind(dimensions > 0 ? "encoder" : audio ? "audio" : "chat");
  return null;
}

function showKind(kind) {
  if (main.dataset.kind === kind) return;
  main.dataset.kind = kind;
  const shown = kinds[kind];
  for (const { view } of Object.values(kinds)) byId(view).hidden = view !== shown.view;
  byId("view-live").hidden = byId("tab-live").hidden = kind === "encoder";  // it has no KV cache and no steps
  setText(byId("tab-chat"), shown.name);
  byId("tab-chat").setAttribute("aria-controls", shown.view);
  byId(shown.key).append(byId("key-field"));
  byId("skip").href = shown.skip;
}

// loading: { weights: fraction read, seconds }; null: no model is being loaded.
function showLoading(loading) {
  const was = !byId("loading").hidden;
  byId("loading").hidden = loading === null;
  byId("chat-column").classList.toggle("waiting", loading !== null);
  if (loading === null) {
    if (was) {
      setText(byId("announce"), "The model is ready.");
      byId("prompt").focus();
    }
    return;
  }
  const bar = byId("loading-bar");
  if (loading.weights > 0) bar.value = loading.weights;
  else bar.removeAttribute("value");
  const share = loading.weights > 0 ? `${Math.floor(100 * loading.weights)} % of the weights, ` : "";
  setText(byId("loading-text"), `${share}${duration(Math.round(loading.seconds))} so far`);
}

function showKeyNotice(yes) {
  byId("key-notice").hidden = !yes;
  setText(byId("key-notice-text"), getKey() ? "The server refused this API key." : "This server requires an API key.");
}

function showReachable(error) {
  const reachable = error === null || (error.status > 0 && error.status !== 503);
  const dot = byId("health-dot");
  dot.classList.toggle("down", !reachable);
  dot.title = reachable ? "The server answers" : "The server does not answer";
  if (!reachable && asking === null) showServer();  // it may come back with another model
}

function startTheme() {
  const root = document.documentElement, button = byId("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
  const name = () => button.setAttribute("aria-label", isDark() ? "Use the light theme" : "Use the dark theme");
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("fovea.theme", root.dataset.theme);
    } catch {
      // Storage is blocked: the choice is lost when the page is reloaded.
    }
    name();
  });
  systemDark.addEventListener("change", name);
  name();
}

// A wide window shows all views; style.css then hides the tabs.
function startViews() {
  const tabs = ["chat", "live", "why"].map((view) => ({ view, tab: byId(`tab-${view}`) }));
  const select = (index) => {
    main.dataset.view = tabs[index].view;
    tabs.forEach(({ tab }, i) => {
      tab.setAttribute("aria-selected", i === index);
      tab.tabIndex = i === index ? 0 : -1;
    });
  };
  tabs.forEach(({ tab }, i) => {
    tab.addEventListener("click", () => select(i));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: tabs.length - 1, ArrowRight: 1 }[event.key];
      if (step === undefined) return;
      let next = (i + step) % tabs.length;
      if (tabs[next].tab.hidden) next = (next + step) % tabs.length;
      select(next);
      tabs[next].tab.focus();
    });
  });
}
