// Ties the page together: theme, views, settings, what is served.
import { getJson, getKey, setKey } from "./api.js";
import { showBackends } from "./backends.js";
import { startChat } from "./chat.js";
import { byId, count, setText } from "./dom.js";
import { startLive } from "./live.js";

let model = "";

startTheme();
startViews();
startSettings();
startChat({ modelName: () => model, onKeyNeeded: () => openSettings("api-key") });
startLive(showReachable);
showServer();

async function showServer() {
  const [models] = await Promise.all([getJson("v1/models").catch(() => null), showBackends()]);
  const served = models?.data?.[0];
  if (!served) return;
  model = served.id;
  setText(byId("served-model"), served.id);
  byId("served-model").title = served.id;
  setText(byId("served-facts"), served.max_model_len > 0 ? `${count(served.max_model_len)} tokens of context` : "");
  byId("served").hidden = false;
  document.title = `${served.id} · Fovea playground`;
}

function showReachable(reachable) {
  const dot = byId("health-dot");
  dot.classList.toggle("down", !reachable);
  dot.title = reachable ? "The server answers" : "The server does not answer";
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
      // Storage is blocked: the choice lasts until the page is loaded again.
    }
    name();
  });
  systemDark.addEventListener("change", name);
  name();
}

// Where all views fit, all are shown, and style.css hides the tabs.
function startViews() {
  const tabs = ["chat", "live", "why"].map((view) => ({ view, tab: byId(`tab-${view}`) }));
  const select = (index) => {
    document.querySelector("main").dataset.view = tabs[index].view;
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
      const next = (i + step) % tabs.length;
      select(next);
      tabs[next].tab.focus();
    });
  });
}

function openSettings(focused = null) {
  byId("settings").hidden = false;
  byId("settings-toggle").setAttribute("aria-expanded", "true");
  if (focused) byId(focused).focus();
}

function startSettings() {
  const toggle = byId("settings-toggle"), panel = byId("settings"), key = byId("api-key");
  toggle.addEventListener("click", () => {
    panel.hidden = !panel.hidden;
    toggle.setAttribute("aria-expanded", String(!panel.hidden));
  });
  key.value = getKey();
  key.addEventListener("change", () => {
    setKey(key.value);
    showServer();
  });
  // A field that is wrong must be seen for the browser to say so.
  byId("composer").addEventListener("invalid", (event) => {
    if (panel.contains(event.target)) openSettings();
  }, true);
}
