// The playground in Chromium: what a visitor does, at 1280 and 390 pixels, in light and dark.
//
//   node page_test.mjs [--program FOVEA | --url http://127.0.0.1:8000/] [--screenshots FOLDER] [--chromium PATH]
//
// With --program it starts `fovea serve` with the demo model; with neither it runs against mock_server.mjs, which can
// also fail, and ask for a key.
import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { test } from "node:test";
import { parseArgs } from "node:util";
import { need, skip, startServer } from "../server.mjs";
import { idleState, startMock } from "./mock_server.mjs";

const { values: given } = parseArgs({
  options: {
    program: { type: "string" },
    url: { type: "string" },
    screenshots: { type: "string" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});
const sizes = { wide: { width: 1280, height: 860 }, phone: { width: 390, height: 844 } };
const launchFlags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const { chromium } = await need("playwright-core");
if (!existsSync(given.chromium)) skip(`${given.chromium} is not installed`);
const server = given.program ? await startServer(given.program) : null;
const mock = given.program || given.url ? null : await startMock();
const url = new URL("/", server?.url ?? given.url ?? mock.url).href;
const browser = await chromium.launch({ executablePath: given.chromium, args: launchFlags });
if (given.screenshots) mkdirSync(given.screenshots, { recursive: true });
test.after(async () => {
  await browser.close();
  await mock?.close();
  await server?.stop();
});

// A page that fails the test when it logs an error, or asks another host for anything.
async function visit(size, { scheme = "light", address = url, expectErrors = false, ...options } = {}) {
  const context = await browser.newContext({ viewport: sizes[size], colorScheme: scheme, deviceScaleFactor: 1, hasTouch: size === "phone", ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !(expectErrors && /Failed to load resource/.test(message.text()))) wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(address)) wrong.push(`asks ${request.url()}`);
  });
  page.setDefaultTimeout(20_000);
  await page.goto(address);
  const leave = async () => {
    assert.deepEqual(wrong, []);
    await context.close();
  };
  return { page, leave };
}

async function say(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

// The program with others to serve, so that there is something to see, and an answer takes a second instead of a few
// hundredths; the mock server plays that by itself.
async function busy(work) {
  const others = new AbortController();
  const ask = async (seed) => {
    while (!others.signal.aborted) {
      const response = await fetch(new URL("v1/completions", url), {
        method: "POST", headers: { "Content-Type": "application/json" }, signal: others.signal,
        body: JSON.stringify({ prompt: `Once upon a time, ${"a curious sparrow ".repeat(1 + (seed % 20))}`, seed, temperature: 1, max_tokens: 700, ignore_eos: true }),
      });
      assert.equal(response.status, 200, await response.text());
    }
  };
  const asked = mock ? [] : Array.from({ length: 40 }, (_, seed) => ask(seed).catch((error) => {
    if (error.name !== "AbortError") throw error;
  }));
  try {
    await work();
  } finally {
    others.abort();
    await Promise.all(asked);
  }
}

const answers = (page) => page.locator("#messages > .assistant");
const answered = (page, n = 1) => answers(page).nth(n - 1).and(page.locator(":not(.streaming)")).waitFor();

async function assertNoSidewaysScroll(page) {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= window, `the page is ${content} pixels wide in a window of ${window}`);
  const wide = await page.evaluate(() => [...document.querySelectorAll("body *")]
    .filter((e) => e.checkVisibility() && !e.closest(".table-scroll, pre, .hidden, .skip, svg") && e.getBoundingClientRect().right > innerWidth + 0.5)
    .map((e) => e.id || e.className || e.tagName));
  assert.deepEqual(wide, [], "reaches over the edge");
}

async function shoot(page, name) {
  if (given.screenshots) await page.screenshot({ path: `${given.screenshots}/${name}.png` });
}

// Elements with text of their own that has less contrast to what it stands on than WCAG's AA wants.
const lowContrast = (page) => page.evaluate(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color[3] === 255) return color;
    }
    return [255, 255, 255, 255];
  };
  return [...document.querySelectorAll("body *")].filter((e) => e.checkVisibility({ opacityProperty: true }) && !e.closest(".hidden, .skip, svg, :disabled") &&
      [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
    .map((e) => {
      const [a, b] = [luminance(rgba(getComputedStyle(e).color)), luminance(ground(e))].sort((x, y) => y - x);
      return { what: `${e.tagName} ${e.className} ${e.textContent.trim().slice(0, 30)}`, contrast: (a + 0.05) / (b + 0.05) };
    }).filter((one) => one.contrast < 4.5);
});

for (const size of ["wide", "phone"]) {
  for (const scheme of ["light", "dark"]) {
    test(`${size}, ${scheme}: a visit`, () => busy(async () => {
      const { page, leave } = await visit(size, { scheme });
      await page.locator("#served").waitFor();
      await shoot(page, `${size}-${scheme}-welcome`);
      await assertNoSidewaysScroll(page);
      await say(page, "Tell me a story about a sparrow.");
      await answered(page);
      assert.match(await answers(page).first().locator(".body").innerText(), /\w+ \w+ \w+/);
      assert.match(await answers(page).first().locator(".meta").innerText(), /\d tokens · [\d.,]+ tokens\/s · first after [\d.]+ (µs|ms|s) · prompt \d+/);
      await shoot(page, `${size}-${scheme}-chat`);
      assert.deepEqual(await lowContrast(page), []);
      if (size === "phone") await page.getByRole("tab", { name: "Engine" }).click();
      await page.locator("#live-note", { hasText: "live" }).waitFor();
      assert.ok((await page.locator("#kv-map i").count()) > 0);
      await page.locator("#steps rect[height]:not([height='0'])").first().waitFor();
      assert.match(await page.locator("#kv-map").getAttribute("aria-label"), /KV cache: [\d,]+ pages?; [\d,]+ in use, [\d,]+ shared, /);
      await assertNoSidewaysScroll(page);
      await shoot(page, `${size}-${scheme}-engine`);
      assert.deepEqual(await lowContrast(page), []);
      if (size === "phone") await page.getByRole("tab", { name: "Backends" }).click();
      await page.locator("#why .chosen").first().waitFor();
      await page.locator("#why summary").first().click();
      await page.locator("#view-why").evaluate((e) => e.scrollIntoView());
      await assertNoSidewaysScroll(page);
      await shoot(page, `${size}-${scheme}-backends`);
      assert.deepEqual(await lowContrast(page), []);
      await leave();
    }));
  }
}

test("an answer is stopped", async () => {
  const { page, leave } = await visit("wide");
  await page.locator("#served").waitFor();
  // From inside, at the first words, so that the answer can't be whole before.
  await page.evaluate(() => {
    const seen = (window.seen = {});
    new MutationObserver((_, observer) => {
      if (!document.querySelector(".assistant .body p")) return;
      observer.disconnect();
      Object.assign(seen, { send: !document.getElementById("send").hidden, focus: document.activeElement.id });
      document.getElementById("stop").click();
    }).observe(document.getElementById("messages"), { subtree: true, childList: true });
  });
  await busy(async () => {
    await say(page, mock ? "long" : "Tell me a very long story about everybody in the lane.");
    await answered(page);
  });
  assert.deepEqual(await page.evaluate(() => window.seen), { send: false, focus: "prompt" });
  assert.match(await page.locator(".assistant .meta").innerText(), / · stopped$/);
  const served = async () => (mock ? mock.requests() : (await (await fetch(new URL("server_state", url))).json()).running);
  for (let i = 0; (await served()) > 0; ++i) {
    assert.ok(i < 100, "the server went on");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  assert.equal(await page.locator("#send").isVisible(), true);
  await say(page, "And then?");
  await answered(page, 2);
  await page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.locator("#messages > li").count(), 0);
  await leave();
});

test("settings are sent, and the conversation with them", async () => {
  const { page, leave } = await visit("wide");
  await page.locator("#served").waitFor();
  const sent = [];
  page.on("request", (request) => {
    if (request.method() === "POST") sent.push(request.postDataJSON());
  });
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("System prompt").fill("Be brief.");
  await page.getByLabel("Temperature").fill("0.5");
  await page.getByLabel("Max tokens").fill("7");
  await page.getByLabel("Seed").fill("42");
  await shoot(page, "settings");
  await say(page, "One.");
  await answered(page);
  await say(page, "Two.");
  await answered(page, 2);
  const first = await answers(page).first().locator(".body").innerText();
  assert.deepEqual(sent[0].messages, [{ role: "system", content: "Be brief." }, { role: "user", content: "One." }]);
  assert.deepEqual([sent[0].temperature, sent[0].max_completion_tokens, sent[0].seed, sent[0].stream], [0.5, 7, 42, true]);
  assert.deepEqual(sent[1].messages.map((m) => m.role), ["system", "user", "assistant", "user"]);
  assert.equal(sent[1].messages[2].content.trim(), first.trim());
  assert.match(await answers(page).first().locator(".meta").innerText(), /^7 tokens .* cut at the limit$/);
  // What the browser can tell is wrong isn't sent, and is shown where it is.
  await page.getByLabel("Temperature").fill("9");
  await page.getByRole("button", { name: "Settings" }).click();
  await say(page, "Three.");
  await page.getByLabel("Temperature").waitFor();
  assert.equal(sent.length, 2);
  await leave();
});

test("the theme is switched and kept", async () => {
  const { page, leave } = await visit("wide", { scheme: "light" });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.getByRole("button", { name: "Use the dark theme" }).click();
  const dark = await ground();
  assert.notEqual(dark, light);
  await page.reload();
  assert.equal(await ground(), dark);
  await page.getByRole("button", { name: "Use the light theme" }).click();
  assert.equal(await ground(), light);
  await leave();
});

test("the keyboard reaches everything on a phone's width", async () => {
  const { page, leave } = await visit("phone");
  await page.getByRole("tab", { name: "Chat" }).focus();
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator("#view-live").isVisible(), true);
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator("#view-why").isVisible(), true);
  assert.equal(await page.locator("#view-live").isVisible(), false);
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator("#view-chat").isVisible(), true);
  assert.equal(await page.evaluate(() => document.activeElement.id), "tab-chat");
  await leave();
});

test("the live view asks only while it is seen", async () => {
  const { page, leave } = await visit("phone");
  let polls = 0;
  page.on("request", (request) => {
    if (request.url().endsWith("/server_state")) polls += 1;
  });
  await page.waitForTimeout(1200);
  assert.equal(polls, 0, "the chat is seen, the engine is not");
  await page.getByRole("tab", { name: "Engine" }).click();
  await page.waitForTimeout(1700);
  assert.ok(polls >= 2 && polls <= 5, `${polls} polls in 1.7 s`);
  await page.getByRole("tab", { name: "Chat" }).click();
  await page.waitForTimeout(100);
  polls = 0;
  await page.waitForTimeout(1200);
  assert.equal(polls, 0);
  await leave();
});

// What only the mock server does when it is asked to.
const withMock = { skip: mock ? false : "a server was given" };

test("what a model writes stays text", withMock, async () => {
  const { page, leave } = await visit("wide");
  await page.locator("#served").waitFor();
  const title = await page.title();
  await say(page, "markup");
  await answered(page);
  const body = answers(page).first().locator(".body");
  assert.equal(await body.locator("img, b, i").count(), 0);
  assert.match(await body.innerText(), /<img src=x onerror="document.title=1"> & <b>bold<\/b>/);
  assert.equal(await body.locator("pre").innerText(), 'let a = "<i>";\n');
  assert.equal(await page.title(), title);
  await leave();
});

test("failures are said, and the turn can be sent again", withMock, async () => {
  const { page, leave } = await visit("wide", { expectErrors: true });
  await say(page, "too long");
  await page.getByRole("alert").waitFor();
  assert.match(await page.getByRole("alert").innerText(), /the prompt has 4096 tokens; allowed: 1024\s+400 invalid_request_error · context_length_exceeded · at messages · request mock-1/);
  await shoot(page, "failure");
  assert.equal(await page.locator("#prompt").inputValue(), "too long");
  await say(page, "fails");
  await page.getByRole("alert").nth(1).waitFor();
  assert.match(await page.getByRole("alert").nth(1).innerText(), /the engine stopped/);
  for (const [nth, text] of [[2, "broken"], [3, "cut short"]]) {
    await say(page, text);
    await page.getByRole("alert").nth(nth).waitFor();
    assert.match(await page.getByRole("alert").nth(nth).innerText(), /The connection broke before the answer was whole/);
  }
  await leave();
});

test("a key is asked for, kept for the tab, and sent", withMock, async () => {
  const locked = await startMock({ key: "secret" });
  const { page, leave } = await visit("wide", { address: locked.url, expectErrors: true });
  await page.locator("#why", { hasText: "asks for an API key" }).waitFor();
  await page.locator("#live-note", { hasText: "needs an API key" }).waitFor();
  await say(page, "Hello.");
  await page.getByRole("alert").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "api-key");
  await page.keyboard.type("secret");
  await page.keyboard.press("Tab");
  await page.locator("#why .chosen").first().waitFor();
  await say(page, "Hello.");
  await answered(page, 2);
  assert.match(await answers(page).nth(1).locator(".meta").innerText(), /tokens\/s/);
  assert.equal(await page.evaluate(() => localStorage.length), 0);
  await page.reload();
  await page.locator("#why .chosen").first().waitFor();
  await leave();
  await locked.close();
});

test("an engine that did nothing yet", withMock, async () => {
  const idle = await startMock({ state: idleState });
  const { page, leave } = await visit("wide", { address: idle.url });
  await page.locator("#sequences", { hasText: "Nobody is being served." }).waitFor();
  await page.locator("#prefixes", { hasText: "Nothing is cached yet." }).waitFor();
  assert.match(await page.locator("#figures").innerText(), /Running\s+0\s+Waiting\s+0/);
  const shown = await page.locator("#kv-map i").evaluateAll((cells) => [...new Set(cells.map((cell) => cell.className))]);
  assert.deepEqual(shown, ["free"]);
  await shoot(page, "idle");
  await leave();
  await idle.close();
});

test("an encoder has no live view, and is asked once", withMock, async () => {
  const encoder = await startMock({ state: null });
  const { page, leave } = await visit("wide", { address: encoder.url, expectErrors: true });
  let polls = 0;
  page.on("request", (request) => {
    if (request.url().endsWith("/server_state")) polls += 1;
  });
  await page.locator("#live-note", { hasText: "not offered for this model" }).waitFor();
  await page.waitForTimeout(3500);
  assert.ok(polls <= 1, `${polls} polls`);  // the listener may come before the only one
  await leave();
  await encoder.close();
});

test("a server that goes away is noticed", withMock, async () => {
  const mortal = await startMock();
  const { page, leave } = await visit("wide", { address: mortal.url, expectErrors: true });
  await page.locator("#live-note", { hasText: "live" }).waitFor();
  await mortal.close();
  await page.locator("#live-note", { hasText: "not reachable" }).waitFor();
  await say(page, "Hello?");
  await page.getByRole("alert").waitFor();
  assert.match(await page.getByRole("alert").innerText(), /The server can't be reached/);
  await leave();
});
