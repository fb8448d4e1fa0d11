// The live view: polls /server_state, the engine's state between two steps, about twice a second while the view
// is visible.
import { getJson } from "./api.js";
import { byId, count, duration, el, figure, plural, setText, svg } from "./dom.js";

const period = 500;
const periodAfterFailure = 3000;
const shownSequences = 10;
const maxSquares = 400;

export function startLive(onReachable) {
  const panel = byId("view-live");
  const draw = drawer();
  let onScreen = false;
  let timer = null;
  let pending = null;
  let offered = true;

  const wanted = () => offered && onScreen && !document.hidden;

  async function poll() {
    timer = null;
    pending = new AbortController();
    let wait = period;
    try {
      draw(await getJson("server_state", pending.signal));
      setText(byId("live-note"), "live");
      panel.classList.remove("stale");
      onReachable(null);
    } catch (error) {
      if (error.name === "AbortError") return;
      setText(byId("live-note"), reasonOf(error));
      panel.classList.add("stale");
      offered = error.status !== 404;  // encoders have no such endpoint
      onReachable(error);
      wait = periodAfterFailure;
    } finally {
      pending = null;
    }
    if (wanted()) timer = setTimeout(poll, wait);
  }

  function update() {
    if (wanted() && timer === null && pending === null) poll();
    if (offered && !wanted()) {
      clearTimeout(timer);
      timer = null;
      pending?.abort();
      pending = null;
      setText(byId("live-note"), "paused");
    }
  }

  new IntersectionObserver((entries) => {
    onScreen = entries.at(-1).isIntersecting;
    update();
  }).observe(panel);
  document.addEventListener("visibilitychange", update);
}

function reasonOf(error) {
  if (error.status === 0) return "server not reachable";
  if (error.status === 401) return "needs an API key";
  if (error.code === "loading") return "the model is being loaded";
  if (error.status === 404) return "not offered for this model";
  return error.message || "failed";
}

function drawer() {
  const rate = rateMeter();
  const figures = figureTiles(["Running", "Waiting", "Tokens/s", "Step, median", "In attention", "Steps", "Drafts accepted", "Tokens a step"]);
  figures(["–", "–", "–", "–", "–", "–", null, null]);
  const drawMap = cacheMap();
  const drawSteps = stepChart();
  return (state) => {
    const seconds = state.steps.map((step) => step.seconds).sort((a, b) => a - b);
    const busy = sum(seconds);
    figures([
      count(state.running),
      count(state.waiting),
      figure(rate(state)),
      seconds.length > 0 ? duration(seconds[seconds.length >> 1]) : "–",
      busy > 0 ? `${figure((100 * sum(state.steps.map((step) => step.attention_seconds))) / busy)} %` : "–",
      count(state.steps_total),
      ...draftFigures(state.drafts),
    ]);
    drawMap(state);
    drawSteps(state.steps);
    drawSequences(state);
    drawPrefixes(state.prefixes, state.page_size);
  };
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

// A tile whose text is null is hidden.
function figureTiles(names) {
  const values = names.map(() => el("dd", {}, "–"));
  const tiles = names.map((name, i) => el("div", {}, el("dt", {}, name), values[i]));
  byId("figures").replaceChildren(...tiles);
  return (texts) => texts.forEach((text, i) => {
    tiles[i].hidden = text === null;
    if (text !== null) setText(values[i], text);
  });
}

// Of speculative decoding since the start: the share of drafts that were accepted, and the tokens of a step of a sequence.
function draftFigures(drafts) {
  if (drafts.steps === 0) return [null, null];
  return [`${figure((100 * drafts.accepted_tokens) / drafts.draft_tokens)} %`, figure(1 + drafts.accepted_tokens / drafts.steps)];
}

// Tokens generated per second of wall time, over the last few polls.
function rateMeter() {
  const views = [];
  let last = null;
  return (state) => {
    const now = performance.now() / 1000 - state.age_seconds;
    if (last !== null && state.steps_total >= last.steps && now > last.now) {
      views.push({ tokens: state.generated_tokens - last.tokens, seconds: now - last.now });
      if (views.length > 4) views.shift();
    }
    if (last === null || now > last.now || state.steps_total < last.steps) last = { now, steps: state.steps_total, tokens: state.generated_tokens };
    const seconds = sum(views.map((view) => view.seconds));
    return seconds > 0 ? sum(views.map((view) => view.tokens)) / seconds : NaN;
  };
}

// shared: also in use, by requests with a common prefix.
const pageKinds = [
  { key: "used", label: "in use" },
  { key: "shared", label: "shared" },
  { key: "cached", label: "cached" },
  { key: "free", label: "free" },
];

function cacheMap() {
  const map = byId("kv-map");
  const values = pageKinds.map(() => el("b", {}, "0"));
  byId("kv-legend").replaceChildren(
    ...pageKinds.map((kind, i) => el("li", {}, el("i", { class: `swatch ${kind.key}` }), kind.label, values[i])));
  const cells = [];
  return (state) => {
    const { total, free, cached, in_use: used } = state.pages;
    const shared = Math.min(used, state.prefixes.locked_pages);
    const amounts = [used - shared, shared, cached, free];
    const each = Math.max(1, Math.ceil(total / maxSquares));
    const wanted = Math.ceil(total / each);
    while (cells.length < wanted) cells.push(map.appendChild(document.createElement("i")));
    while (cells.length > wanted) cells.pop().remove();
    const shares = apportion(amounts, wanted);
    let cell = 0;
    shares.forEach((share, i) => {
      for (let k = 0; k < share; ++k, ++cell)
        if (cells[cell].className !== pageKinds[i].key) cells[cell].className = pageKinds[i].key;
    });
    amounts.forEach((amount, i) => setText(values[i], count(amount)));
    const text = pageKinds.map((kind, i) => `${count(amounts[i])} ${kind.label}`).join(", ");
    map.setAttribute("aria-label", `KV cache: ${plural(total, "page")}; ${text}`);
    const scale = each > 1 ? `, ${count(each)} a square` : "";
    setText(byId("kv-note"), total > 0 ? `${plural(total, "page")} of ${plural(state.page_size, "token")}${scale}` : "");
  };
}

// Splits `cells` in proportion to the amounts. A nonzero amount gets at least one cell, so that a single page in
// use among thousands is visible; the largest amount absorbs the rounding.
export function apportion(amounts, cells) {
  const total = sum(amounts);
  if (total === 0) return amounts.map(() => 0);
  const shares = amounts.map((amount) => (amount > 0 ? Math.max(1, Math.round((amount / total) * cells)) : 0));
  const largest = shares.indexOf(Math.max(...shares));
  shares[largest] = Math.max(0, shares[largest] + cells - sum(shares));
  return shares;
}

const kindOfStep = (step) => (step.prefill_rows === 0 ? "decode" : step.decode_rows === 0 ? "prefill" : "mixed");

// Ticks at 1, 2 and 5 times powers of ten around the measured values; exact, so that they can be compared.
function scaleOf(times) {
  const series = [];
  for (let power = -7; power <= 3; ++power) for (const digit of [1, 2, 5]) series.push(Number(`${digit}e${power}`));
  const low = Math.max(0, series.findLastIndex((value) => value < Math.min(...times) * 0.9));
  const above = series.findIndex((value) => value >= Math.max(...times));
  const high = Math.max(low + 2, above < 0 ? series.length - 1 : above);
  const marks = series.slice(low + 1, high + 1);
  const tens = marks.filter((value) => /^1e|^(0\.0*)?10*$/.test(String(value)));
  return { low: series[low], high: marks.at(-1), marks: marks.length > 4 ? tens : marks };
}

// One bar per step, the newest at the right. A prefill takes a hundred times as long as a decode step, so the
// scale is logarithmic.
function stepChart() {
  const bars = 120, width = 480, height = 110, top = 6;
  const grid = svg("g", { class: "grid" });
  const slots = Array.from({ length: bars }, (_, i) => {
    const title = svg("title");
    const rect = svg("rect", { x: (i * width) / bars, width: width / bars - 1, rx: 0.8 }, title);
    return { rect, title };
  });
  const labels = el("div", { class: "chart-labels", "aria-hidden": "true" });
  byId("steps").replaceChildren(
    svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" }, grid, ...slots.map((slot) => slot.rect)),
    labels);
  let scale = "";
  return (steps) => {
    const newest = steps.slice(-bars);
    const times = newest.map((step) => step.seconds).filter((s) => s > 0);
    const { low, high, marks } = times.length > 0 ? scaleOf(times) : { low: 1, high: 10, marks: [] };
    const y = (value) => top + (Math.log(high / value) / Math.log(high / low)) * (height - top);
    if (scale !== marks.join()) {
      scale = marks.join();
      grid.replaceChildren(...marks.map((value) => svg("line", { x1: 0, x2: width, y1: y(value), y2: y(value) })));
      labels.replaceChildren(...marks.map((value) => {
        const label = el("span", {}, duration(value));
        label.style.top = `${(100 * y(value)) / height}%`;
        return label;
      }));
    }
    slots.forEach(({ rect, title }, i) => {
      const step = newest[i - (bars - newest.length)];
      if (step === undefined) {
        rect.setAttribute("height", 0);
        return;
      }
      const at = step.seconds > 0 ? Math.min(height - 1.5, y(step.seconds)) : height - 1.5;
      rect.setAttribute("y", at);
      rect.setAttribute("height", height - at);
      rect.setAttribute("class", kindOfStep(step));
      setText(title, `${duration(step.seconds)}, attention ${duration(step.attention_seconds)}: ` +
        `${count(step.prefill_rows)} prefill, ${count(step.decode_rows)} decode`);
    });
    setText(byId("steps-note"), newest.length > 0 ? `the last ${count(newest.length)}, log scale` : "none yet");
    const range = times.length > 0 ? `${duration(Math.min(...times))} to ${duration(Math.max(...times))}` : "";
    setText(byId("steps-range"), range);
    byId("steps").setAttribute("aria-label", range ? `Timings of the last ${newest.length} steps: ${range}` : "No steps yet");
  };
}

function drawSequences(state) {
  const shown = state.sequences.slice(0, shownSequences);
  const longest = Math.max(1, ...shown.map((s) => s.prompt_tokens + s.generated_tokens));
  const more = state.running + state.waiting - shown.length;
  setText(byId("sequences-note"), `${count(state.running)} running, ${count(state.waiting)} waiting`);
  byId("sequences").replaceChildren(
    shown.length > 0 ? el("ul", { class: "rows" }, ...shown.map((s) => sequenceRow(s, longest)))
      : el("p", { class: "empty" }, "No requests are running."),
    ...(more > 0 ? [el("p", { class: "empty" }, `and ${count(more)} more`)] : []));
}

function sequenceRow(s, longest) {
  const computed = Math.min(s.computed_tokens, s.prompt_tokens);
  const cached = Math.min(s.cached_tokens, computed);
  const facts = [`${count(s.prompt_tokens)} prompt`, `${count(s.generated_tokens)} new`, plural(s.pages, "page")];
  if (s.preemptions > 0) facts.push(`preempted ${count(s.preemptions)}×`);
  return el("li", {},
    el("span", { class: "name mono" }, `#${s.id}${s.index > 0 ? `.${s.index}` : ""}`),
    el("span", { class: `state ${s.state}` }, s.state),
    el("span", { class: "facts" }, facts.join(" · ")),
    lengthBar(longest, [
      ["cached", cached],
      ["prefill", computed - cached],
      ["pending", s.prompt_tokens - computed],
      ["decode", s.generated_tokens],
    ]));
}

function drawPrefixes(prefixes, pageSize) {
  const atLeast = prefixes.complete ? "" : "at least ";
  setText(byId("prefixes-note"), prefixes.pages > 0
    ? `${plural(prefixes.pages, "page")} (${count(prefixes.pages * pageSize)} tokens) in ${atLeast}${plural(prefixes.nodes, "node")}` : "");
  const longest = Math.max(1, ...prefixes.longest.map((prefix) => prefix.tokens));
  byId("prefixes").replaceChildren(prefixes.longest.length > 0
    ? el("ul", { class: "rows" }, ...prefixes.longest.map((prefix) => prefixRow(prefix, longest)))
    : el("p", { class: "empty" }, "Nothing is cached yet."));
}

function prefixRow(prefix, longest) {
  return el("li", {},
    el("span", { class: "name" }, plural(prefix.tokens, "token")),
    el("span", { class: `state ${prefix.locked ? "shared" : "idle"}` }, prefix.locked ? "in use" : "evictable"),
    el("span", { class: "facts" }, plural(prefix.pages, "page")),
    lengthBar(longest, [[prefix.locked ? "shared" : "cached", prefix.tokens]]));
}

function lengthBar(longest, parts) {
  const bar = el("span", { class: "length", "aria-hidden": "true" });
  for (const [name, amount] of parts) {
    if (amount <= 0) continue;
    const part = el("i", { class: name });
    part.style.width = `${(100 * amount) / longest}%`;  // set by script, which the content policy permits
    bar.append(part);
  }
  return bar;
}
