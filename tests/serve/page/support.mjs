// Browser, server and user actions for the tests of the page.
import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import http from "node:http";
import { test } from "node:test";
import { parseArgs } from "node:util";
import { need, skip, startServer } from "../server.mjs";
import { closeMocks, startMock } from "./mock_server.mjs";

export const { values: given } = parseArgs({
  options: {
    program: { type: "string" },
    url: { type: "string" },
    screenshots: { type: "string" },
    patience: { type: "string", default: "120" },
    chromium: { type: "string", default: "/usr/bin/chromium" },
  },
});
export const sizes = { wide: { width: 1280, height: 860 }, phone: { width: 390, height: 844 }, landscape: { width: 844, height: 390 } };
const patience = 1000 * Number(given.patience);  // timeout of waits; generous for busy machines
const launchFlags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

const { chromium } = await need("playwright-core");
if (!existsSync(given.chromium)) skip(`${given.chromium} is not installed`);
export const server = given.program ? await startServer(given.program) : null;
export const mock = given.program || given.url ? null : await startMock();
export const url = new URL("/", server?.url ?? given.url ?? mock.url).href;
const browser = await chromium.launch({ executablePath: given.chromium, args: launchFlags });
if (given.screenshots) mkdirSync(given.screenshots, { recursive: true });
test.after(async () => {
  await browser.close();
  await closeMocks();
  await server?.stop();
});

// A page that fails the test if it logs an error or sends a request to another host.
export async function visit(size, { scheme = "light", address = url, expectErrors = false, ...options } = {}) {
  const context = await browser.newContext({ viewport: sizes[size], colorScheme: scheme, deviceScaleFactor: 1, hasTouch: size !== "wide", ...options });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()) && !(expectErrors && /Failed to load resource/.test(message.text()))) wrong.push(message.text());
  });
  page.on("pageerror", (error) => wrong.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(address)) wrong.push(`asks ${request.url()}`);
  });
  page.setDefaultTimeout(patience);
  await page.goto(address);
  const leave = async () => {
    assert.deepEqual(wrong, []);
    await context.close();
  };
  return { page, leave };
}

export async function until(condition, what) {
  for (const end = Date.now() + patience; !(await condition());) {
    assert.ok(Date.now() < end, what);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

export async function say(page, text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

// Runs the program with requests of other clients, so that the live view has content and an answer takes a second; the
// mock server simulates this itself.
export async function busy(work) {
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

// Serves the same through a line that holds streams after their first bytes until it is opened, so that an answer cannot
// be complete before the page has shown its beginning, however slow the page is.
export async function narrowLine(firstBytes) {
  let open = false;
  const line = http.createServer((request, response) => {
    // A connection for each: one that is kept alive may be closed by the server just when it is used again.
    const options = { agent: false, method: request.method, headers: { ...request.headers, host: new URL(url).host } };
    const forwarded = http.request(new URL(request.url, url), options, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      if (open || !/event-stream/.test(answer.headers["content-type"]) || request.method !== "POST") return answer.pipe(response);
      let left = firstBytes;
      answer.on("data", (data) => {
        response.write(data.subarray(0, left));
        left -= data.length;
        if (left <= 0) answer.pause();
      });
      answer.on("end", () => left > 0 && response.end());
    });
    forwarded.on("error", () => response.destroy());
    response.on("close", () => forwarded.destroy());
    request.pipe(forwarded);
  });
  await new Promise((resolve) => line.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${line.address().port}/`, open: () => (open = true), close: () => (line.close(), line.closeAllConnections()) };
}

export const answers = (page) => page.locator("#messages > .assistant");
export const answered = (page, n = 1) => answers(page).nth(n - 1).and(page.locator(":not(.streaming)")).waitFor();

export async function assertNoSidewaysScroll(page) {
  const [content, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  assert.ok(content <= window, `the page is ${content} pixels wide in a window of ${window}`);
  const wide = await page.evaluate(() => [...document.querySelectorAll("body *")]
    .filter((e) => e.checkVisibility() && !e.closest(".table-scroll, pre, .hidden, .skip, svg") && e.getBoundingClientRect().right > innerWidth + 0.5)
    .map((e) => e.id || e.className || e.tagName));
  assert.deepEqual(wide, [], "reaches over the edge");
}

export async function shoot(page, name) {
  if (given.screenshots) await page.screenshot({ path: `${given.screenshots}/${name}.png` });
}

// Elements whose text has less contrast to its background than WCAG level AA requires.
export const lowContrast = (page) => page.evaluate(() => {
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
