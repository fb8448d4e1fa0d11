// The playground in Chromium: typical visits, on a desktop and a phone, in light and dark.
//
//   node page_test.mjs [--program FOVEA | --url http://127.0.0.1:8000/] [--screenshots FOLDER] [--chromium PATH] [--patience SECONDS]
//
// With --program it starts `fovea serve` with the demo model; with neither it runs against mock_server.mjs, which can also
// return errors and require a key.
import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { startServer } from "../server.mjs";
import "./mock_cases.mjs";  // cases that need the mock server
import { answered, answers, assertNoSidewaysScroll, busy, given, lowContrast, mock, narrowLine, say, shoot, until, url, visit } from "./support.mjs";

for (const size of ["wide", "phone"]) {
  for (const scheme of ["light", "dark"]) {
    test(`${size}, ${scheme}: a visit`, () => busy(async () => {
      const { page, leave } = await visit(size, { scheme });
      await page.locator("#served").waitFor();
      await shoot(page, `${size}-${scheme}-welcome`);
      await assertNoSidewaysScroll(page);
      await say(page, "Tell me a story about a sparrow.");
      await answered(page);
      const composer = await page.locator("#composer").boundingBox();
      assert.ok(Math.abs(composer.y + composer.height - page.viewportSize().height) < 2, "the message field is at the bottom");
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

test("an answer is stopped", async (context) => {
  const line = await narrowLine(4000);
  context.after(line.close);  // also of a test that fails, since it would keep this process alive
  const { page, leave } = await visit("wide", { address: line.url });
  await page.locator("#served").waitFor();
  // Runs inside the page at the first words.
  await page.evaluate(() => {
    const seen = (window.seen = {});
    new MutationObserver((_, observer) => {
      if (!document.querySelector(".assistant .body p")) return;
      observer.disconnect();
      Object.assign(seen, { send: !document.getElementById("send").hidden, focus: document.activeElement.id });
      document.getElementById("stop").click();
    }).observe(document.getElementById("messages"), { subtree: true, childList: true });
  });
  await say(page, mock ? "long" : "Tell me a very long story about everybody in the lane.");
  await answered(page);
  assert.deepEqual(await page.evaluate(() => window.seen), { send: false, focus: "prompt" });
  assert.match(await page.locator(".assistant .meta").innerText(), / · stopped$/);
  const served = async () => (mock ? mock.requests() : (await (await fetch(new URL("server_state", url))).json()).running);
  await until(async () => (await served()) === 0, "the server went on");
  assert.equal(await page.locator("#send").isVisible(), true);
  line.open();
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
  // Values that the browser can detect as invalid are not sent; the field shows the error.
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
  await until(() => polls >= 3, "the engine is seen, and not asked for");
  await page.getByRole("tab", { name: "Chat" }).click();
  await page.locator("#live-note", { hasText: "paused" }).waitFor({ state: "attached" });
  polls = 0;
  await page.waitForTimeout(1200);
  assert.equal(polls, 0);
  await leave();
});

const withProgram = { skip: given.program ? false : "no program was given" };

test("a real conversation outlasts a reload, and its context ends", withProgram, async () => {
  const small = await startServer(given.program, "--max-model-len", "160");
  const { page, leave } = await visit("wide", { address: `${small.url}/`, expectErrors: true });
  await page.locator("#served").waitFor();
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("Max tokens").fill("70");  // more than a quarter of the context
  for (let i = 1; (await page.getByRole("alert").count()) === 0; ++i) {
    assert.ok(i < 30, "the context never ends");
    await say(page, "Tell me a story about a sparrow.");
    await answered(page, i);
  }
  await page.getByRole("button", { name: "Drop the oldest turns and retry" }).click();
  await page.getByRole("alert").waitFor({ state: "detached" });
  await page.locator("#messages.busy").waitFor({ state: "detached" });
  assert.equal(await page.getByRole("alert").count(), 0);
  const before = await page.locator("#messages").innerText();
  assert.match(before, /no longer sent/);
  assert.equal(await answers(page).last().locator(".who").innerText(), "demo");
  await page.reload();
  await answered(page);
  assert.equal(await page.locator("#messages").innerText(), before);
  await leave();
  await small.stop();
});

test("a real Whisper transcribes", withProgram, async () => {
  const folder = mkdtempSync(join(tmpdir(), "fovea-whisper-"));
  cpSync(new URL("../../goldens/whisper_d16_bf16", import.meta.url).pathname, folder, { recursive: true });
  writeFileSync(join(folder, "preprocessor_config.json"), JSON.stringify({ feature_size: 12, chunk_length: 2, hop_length: 400, n_fft: 400, sampling_rate: 16000 }));
  const whisper = await startServer(given.program, "--model", folder);
  const { page, leave } = await visit("phone", { address: `${whisper.url}/` });
  await page.getByLabel("WAV file").setInputFiles(new URL("../../goldens/log_mel/audio.wav", import.meta.url).pathname);
  await page.getByRole("button", { name: "Transcribe", exact: true }).click();
  await page.locator("#audio-text").waitFor();
  await page.getByText("2 seconds", { exact: true }).waitFor();
  await assertNoSidewaysScroll(page);
  await leave();
  await whisper.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("a real encoder embeds", withProgram, async () => {
  const model = new URL("../../goldens/bert_d8_fp32", import.meta.url).pathname;
  const encoder = await startServer(given.program, "--model", model);
  const { page, leave } = await visit("phone", { address: `${encoder.url}/`, expectErrors: true });
  await page.getByRole("heading", { name: "Embeddings" }).waitFor();
  await page.getByLabel("Text 1", { exact: true }).fill("one text");
  await page.getByLabel("Text 2", { exact: true }).fill("one text");
  await page.getByRole("button", { name: "Embed", exact: true }).click();
  await page.locator("#embed-cosines td").nth(3).waitFor();
  assert.deepEqual(await page.locator("#embed-cosines td").allInnerTexts(), ["1.0000", "1.0000", "1.0000", "1.0000"]);
  await assertNoSidewaysScroll(page);
  await shoot(page, "encoder-phone");
  await leave();
  await encoder.stop();
});
