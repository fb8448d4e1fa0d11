// The page against the mock server, which returns chosen texts and errors that a real model would not produce on demand.
import assert from "node:assert/strict";
import { test as define } from "node:test";
import { idleState, startMock } from "./mock_server.mjs";
import { answered, answers, assertNoSidewaysScroll, lowContrast, mock as shared, say, shoot, sizes, until, visit } from "./support.mjs";

// Only without --url and --program.
const test = (name, body) => shared && define(name, body);

const story = (page) => say(page, "Tell me a story.");
const questions = (page) => page.locator("#messages > .user");

// Opens the page of a separate mock server.
async function own(options, size = "wide", visitOptions = {}) {
  const mock = await startMock(options);
  const { page, leave } = await visit(size, { address: mock.url, ...visitOptions });
  const sent = [];
  page.on("request", (request) => {
    if (request.url().endsWith("/v1/chat/completions")) sent.push(request.postDataJSON().messages);
  });
  return { mock, page, sent, leave: () => leave().then(mock.close) };
}

const markdown = `# A heading

Some **bold**, *italic*, ~~struck~~ and \`code\` with a [link](https://example.com/a?b=1&c=2) and <b>no markup</b> & more.
A second line.

- one
- two
  - three

1. first
2. second

> a quote

| name | value |
|------|------:|
| a    |     1 |

- [x] done

\`\`\`js
let a = "<i>";
console.log(a);
\`\`\`

\`\`\`
plain
\`\`\`

![a picture](https://example.com/p.png)

the end`;

test("Markdown is shown", async () => {
  const { page, leave } = await own({ answers: { markdown } }, "wide", { permissions: ["clipboard-read", "clipboard-write"] });
  await page.locator("#served-model", { hasText: "gpt-oss-20b" }).waitFor();  // else the answer has no model's name
  await say(page, "markdown");
  await answered(page);
  const text = answers(page).first().locator(".text");
  assert.equal(await text.locator("h4.h1").innerText(), "A heading");
  assert.equal(await text.locator("strong").innerText(), "bold");
  assert.equal(await text.locator("p > code").innerText(), "code");
  assert.equal(await text.locator("ul ul > li").innerText(), "three");
  assert.equal(await text.locator("td").nth(1).getAttribute("align"), "right");
  const link = text.getByRole("link", { name: "link" });
  assert.deepEqual(await link.evaluate((a) => [a.href, a.target, a.rel, a.title]), ["https://example.com/a?b=1&c=2", "_blank", "noopener noreferrer nofollow", "https://example.com/a?b=1&c=2"]);
  assert.equal(await text.getByRole("link", { name: "a picture" }).getAttribute("href"), "https://example.com/p.png");
  assert.match(await text.innerText(), /<b>no markup<\/b> & more\.\nA second line\./);
  assert.match(await text.innerText(), /☑ done/);
  assert.deepEqual(await text.locator(".language").allInnerTexts(), ["js", "text"]);
  await text.getByRole("button", { name: "Copy this js" }).click();
  await text.getByRole("button", { name: "Copy this js" }).and(page.getByText("Copied")).waitFor();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), 'let a = "<i>";\nconsole.log(a);');
  await page.getByRole("button", { name: "Copy answer" }).click();
  await page.getByRole("button", { name: "Copy answer" }).and(page.getByText("Copied")).waitFor();
  assert.equal((await page.evaluate(() => navigator.clipboard.readText())).replace(/\s+/g, " "), markdown.replace(/\s+/g, " "));
  assert.equal(await answers(page).first().locator(".who").innerText(), "gpt-oss-20b");
  assert.deepEqual(await lowContrast(page), []);
  await assertNoSidewaysScroll(page);
  await shoot(page, "markdown");
  await leave();
});

const hostile = [
  '<img src=x onerror="document.title=1">',
  "<script>document.title=1</script>",
  "<SCRIPT SRC=//example.com/x.js></SCRIPT>",
  "<svg onload=document.title=1><animate onbegin=document.title=1 attributeName=x></svg>",
  '<svg><a xlink:href="javascript:document.title=1"><text>t</text></a></svg>',
  "<math><mtext><table><mglyph><style><img src=x onerror=document.title=1>",
  '<iframe srcdoc="<script>parent.document.title=1</script>"></iframe>',
  '<a href="javascript:document.title=1" onclick="document.title=1">x</a>',
  "[x](javascript:document.title=1)",
  "[x](JaVaScRiPt&colon;document.title=1)",
  "[x](&#106;avascript:document.title=1)",
  "[x](vbscript:msgbox)",
  "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
  "[x](/server_info)",
  "[x](//example.com)",
  "![x](x\" onerror=\"document.title=1)",
  '![x" onerror="document.title=1](https://example.com/x.png)',
  "![x](data:image/svg+xml,<svg/onload=document.title=1>)",
  '[x](https://example.com "\\" onmouseover=\\"document.title=1")',
  "<https://example.com/\"onmouseover=document.title=1>",
  "[r]\n\n[r]: javascript:document.title=1",
  '<form action="https://example.com"><input name=q><button>go</button></form>',
  "<style>body{display:none}</style><link rel=stylesheet href=//example.com/x.css>",
  '<base href="https://example.com/"><meta http-equiv=refresh content="0;url=https://example.com">',
  '<p id="messages" class="composer" style="position:fixed;inset:0">x</p>',
  "```html onclick=document.title=1\n<img src=x onerror=document.title=1>\n```",
  '```"><img src=x onerror=document.title=1>\nx\n```',
  "| <img src=x onerror=document.title=1> | b |\n|---|---|\n| `<script>` | [x](javascript:1) |",
  "<think><img src=x onerror=document.title=1></think><img src=x onerror=document.title=1>",
  "```js\n<script>document.title=1</script> never closed",
];

test("what a model writes stays text", async () => {
  const { page, leave } = await own({ answers: Object.fromEntries(hostile.map((text, i) => [`hostile ${i}`, text])) });
  await page.locator("#served").waitFor();
  const title = await page.title();
  for (const [i, text] of hostile.entries()) {
    await say(page, `hostile ${i}`);
    await answered(page, i + 1);
    const found = await answers(page).nth(i).locator(".body").evaluate((body) => {
      const all = [...body.querySelectorAll("*")];
      return {
        elements: all.map((e) => e.localName).filter((name) => /^(script|style|img|svg|math|iframe|object|embed|form|input|link|base|meta|video|audio|animate)$/.test(name)),
        handlers: all.flatMap((e) => e.getAttributeNames()).filter((name) => /^on|^style$|^id$|^src/.test(name)),
        links: all.filter((e) => e.hasAttribute("href")).map((e) => e.href).filter((href) => !/^https:\/\/example\.com\//.test(href)),
        classes: all.flatMap((e) => [...e.classList]).filter((name) => name === "composer"),
      };
    });
    assert.deepEqual(found, { elements: [], handlers: [], links: [], classes: [] }, text);
    assert.equal(await page.title(), title, text);
  }
  const last = answers(page).last().locator(".code");
  assert.equal(await last.locator("code").innerText(), "<script>document.title=1</script> never closed");
  assert.match(await answers(page).first().innerText(), /<img src=x onerror="document\.title=1">/);
  await page.reload();
  await page.locator("#served").waitFor();
  await answered(page, hostile.length);
  assert.equal(await page.title(), title);
  await leave();
});

test("blocks that are done stay while the answer goes on", async () => {
  const { page, leave } = await own({ answers: { slow: `A first paragraph.\n\n\`\`\`js\nlet one = 1;\n\`\`\`\n\n${"word ".repeat(200)}` } });
  await say(page, "slow");
  await page.locator(".streaming .code + p").waitFor();
  await page.locator(".code code").evaluate((code) => getSelection().selectAllChildren(code));
  await answered(page);
  assert.equal(await page.evaluate(() => getSelection().toString().trim()), "let one = 1;");
  await leave();
});

test("thoughts are folded, and not sent again", async () => {
  const { page, sent, leave } = await own({ answers: { why: "<think>\nFirst **this**,\n\nthen that.\n</think>\n\nBecause.", begun: "It goes on\n</think>\n\nYes.", code: "```\n</think>\n```", ponder: "<think>never done" } });
  for (const [index, text] of ["why", "begun", "code", "ponder"].entries()) {
    await say(page, text);
    await answered(page, index + 1);
  }
  const first = answers(page).first();
  assert.equal(await first.locator("details.thoughts").getAttribute("open"), null);
  assert.equal(await first.locator(".body > .text").innerText(), "Because.");
  assert.equal(await first.locator(".thoughts strong").isVisible(), false);
  await first.locator("summary").click();
  assert.equal(await first.locator(".thoughts strong").innerText(), "this");
  await shoot(page, "thoughts");
  assert.equal(await answers(page).nth(1).locator(".thoughts .text").textContent(), "It goes on");
  assert.equal(await answers(page).nth(1).locator(".body > .text").innerText(), "Yes.");
  assert.equal(await answers(page).nth(2).locator(".thoughts").count(), 0);
  assert.equal(await answers(page).nth(3).locator(".thoughts .text").textContent(), "never done");
  assert.deepEqual(sent[3].map((m) => m.content.trim()), ["why", "Because.", "begun", "Yes.", "code", "```\n</think>\n```", "ponder"]);
  await leave();
});

test("the conversation and the settings outlast a reload, until New chat", async () => {
  const { page, sent, leave } = await own({});
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("System prompt").fill("Be kind.");
  await page.getByLabel("Seed").fill("7");
  await story(page);
  await answered(page);
  const before = await page.locator("#messages").innerText();
  await page.locator("#kept", { hasText: "Kept in this browser" }).waitFor();
  await page.reload();
  await answered(page);
  assert.equal(await page.locator("#messages").innerText(), before);
  assert.equal(await page.locator("#welcome").isVisible(), false);
  await say(page, "And then?");
  await answered(page, 2);
  assert.deepEqual(sent[1].map((m) => m.role), ["system", "user", "assistant", "user"]);
  assert.equal(sent[1][0].content, "Be kind.");
  // Leaves the page in the middle of an answer.
  await say(page, "long");
  await page.locator(".streaming .text p").waitFor();
  await page.reload();
  await answered(page, 3);
  assert.match(await answers(page).nth(2).innerText(), /Once[\s\S]*the page was left meanwhile/);
  await page.getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.evaluate(() => localStorage.getItem("fovea.chat")), null);
  await page.reload();
  await page.locator("#welcome").waitFor();
  assert.equal(await page.locator("#messages > li").count(), 0);
  await leave();
});

test("what is kept is bounded, and what is not this page's is left", async () => {
  const { page, leave } = await own({});
  await page.locator("#served").waitFor();
  const kept = await page.evaluate(async () => {
    const { Conversation } = await import("/web/conversation.js");
    const sizes = [];
    for (const [turns, length] of [[1000, 10], [40, 100_000], [2, 3_000_000]]) {
      const conversation = new Conversation();
      for (let i = 0; i < turns; ++i) conversation.turns.push({ role: i % 2 ? "assistant" : "user", content: `${i} ${"x".repeat(length)}` });
      conversation.save();
      const text = localStorage.getItem("fovea.chat");
      const stored = text ? JSON.parse(text).turns : [];
      sizes.push([stored.length, (text ?? "").length <= 1.1 * 2 ** 20, stored.at(-1)?.content.split(" ")[0]]);
    }
    return sizes;
  });
  assert.deepEqual(kept, [[200, true, "999"], [10, true, "39"], [0, true, undefined]]);
  for (const broken of ["{", "[]", '{"turns": 5}', '{"turns": [{"role": "assistant", "content": "x"}, {}]}', '{"turns": [{"role": "user", "content": 5}]}', "null"]) {
    await page.evaluate((text) => localStorage.setItem("fovea.chat", text), broken);
    await page.reload();
    await page.locator("#welcome").waitFor();
  }
  await leave();
});

test("a message is edited, an answer made again", async () => {
  const { page, sent, leave } = await own({ answers: { one: "1", two: "2", three: "3" } });
  for (const [index, text] of ["one", "two"].entries()) {
    await say(page, text);
    await answered(page, index + 1);
  }
  assert.equal(await answers(page).first().getByRole("button", { name: "Regenerate answer" }).isVisible(), false);
  await page.getByRole("button", { name: "Regenerate answer" }).last().click();
  await until(() => sent.length === 3, "not asked again");
  await answered(page, 2);
  assert.deepEqual(sent[2], sent[1]);
  await questions(page).first().getByRole("button", { name: "Edit message" }).click();
  await page.keyboard.press("Escape");
  assert.equal(await questions(page).count(), 2);
  await questions(page).first().getByRole("button", { name: "Edit message" }).click();
  await shoot(page, "edit");
  await page.getByRole("textbox", { name: "Edit message" }).fill("three");
  await page.keyboard.press("Enter");
  await until(() => sent.length === 4, "not sent");
  await answered(page);
  assert.deepEqual(sent[3].map((m) => m.content), ["three"]);
  assert.equal(await answers(page).count(), 1);
  assert.equal(await answers(page).first().locator(".text").innerText(), "3");
  await leave();
});

test("failures are shown, and the turn can be sent again", async () => {
  const options = { answers: {} };
  const { page, sent, leave } = await own(options, "wide", { expectErrors: true });
  await say(page, "fails");
  await page.getByRole("alert").waitFor();
  assert.match(await page.getByRole("alert").innerText(), /the engine stopped/);
  for (const text of ["broken", "cut short"]) {
    await say(page, text);
    await answers(page).last().getByRole("alert").filter({ hasText: "The connection broke before the answer was complete" }).waitFor();
  }
  assert.equal(await page.getByRole("button", { name: "Retry" }).count(), 1, "of the last one only");
  await shoot(page, "failure");
  const before = sent.length;
  await page.getByRole("button", { name: "Retry" }).click();
  await until(() => sent.length === before + 1, "not sent again");
  assert.deepEqual(sent.at(-1), sent.at(-2));
  await answers(page).last().getByRole("alert").waitFor();
  await leave();
});

test("a full context offers a way on", async () => {
  const { page, sent, leave } = await own({ context: 1000, answers: { a: "a ".repeat(150).trim(), b: "b ".repeat(150).trim(), c: "c ".repeat(150).trim(), d: "The d." } }, "wide", { expectErrors: true });
  for (const [index, text] of ["a", "b", "c", "d"].entries()) {
    await say(page, text);
    await answered(page, index + 1);
  }
  assert.equal(await page.getByRole("alert").count(), 0);
  await say(page, "x".repeat(200));
  const alert = page.getByRole("alert");
  await alert.waitFor();
  assert.match(await alert.innerText(), /tokens; allowed: 1000\s+400 invalid_request_error · context_length_exceeded · at messages · request mock-1/);
  await shoot(page, "full");
  await page.getByRole("button", { name: "Drop the oldest turns and retry" }).click();
  await until(() => sent.length === 6, "not sent again");
  await answered(page, 5);
  assert.equal(sent[5].at(-1).content, "x".repeat(200));
  assert.ok(sent[5].length < sent[4].length && sent[5].length > 1, "some are left out, and no more than is needed");
  assert.match(await questions(page).first().locator(".who").innerText(), /no longer sent/);
  await page.reload();
  await answered(page, 5);
  await say(page, "d");
  await answered(page, 6);
  assert.equal(sent[6][0].content, sent[5][0].content, "what was left out stays out");
  await page.getByRole("button", { name: "New chat" }).click();
  await say(page, "fills");
  await answered(page);
  assert.match(await answers(page).first().locator(".notice").innerText(), /The context is full, so the answer was cut\./);
  await answers(page).first().getByRole("button", { name: "New chat" }).click();
  assert.equal(await page.locator("#messages > li").count(), 0);
  // A single message that exceeds the context: there is no older turn to exclude.
  await say(page, "x".repeat(2000));
  await alert.waitFor();
  assert.equal(await page.getByRole("button", { name: /Drop the oldest/ }).count(), 0);
  await leave();
});

test("a key is asked for, kept for the tab, and sent", async () => {
  const { page, sent, leave } = await own({ key: "secret" }, "wide", { expectErrors: true });
  await page.locator("#why", { hasText: "requires an API key" }).waitFor();
  await page.locator("#live-note", { hasText: "needs an API key" }).waitFor();
  await page.locator("#key-notice", { hasText: "This server requires an API key." }).waitFor();
  await shoot(page, "key");
  await page.getByRole("button", { name: "Enter the API key" }).click();
  assert.equal(await page.evaluate(() => document.activeElement.id), "api-key");
  await page.keyboard.type("wrong");
  await page.keyboard.press("Enter");
  await page.locator("#key-notice", { hasText: "The server refused this API key." }).waitFor();
  await say(page, "Hello.");
  await page.getByRole("alert").waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.id), "api-key");
  await page.getByLabel("API key").fill("secret");
  await page.keyboard.press("Enter");
  await page.locator("#why .chosen").first().waitFor();
  await page.locator("#key-notice").waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Retry" }).click();
  await until(() => sent.length === 2, "not sent again");
  await answered(page);
  assert.match(await answers(page).first().locator(".meta").innerText(), /tokens\/s/);
  assert.ok(!(await page.evaluate(() => JSON.stringify({ ...localStorage }))).includes("secret"));
  await page.reload();
  await page.locator("#why .chosen").first().waitFor();
  await leave();
});

test("the page waits while the model is being loaded", async () => {
  let loading = { weights: 0, seconds: 0.2 };
  const { page, leave } = await own({ loading: () => loading }, "wide", { expectErrors: true });
  const bar = page.getByRole("progressbar", { name: "The model is being loaded" });
  await bar.waitFor();
  assert.equal(await page.getByLabel("Message", { exact: true }).isVisible(), false);
  loading = { weights: 0.42, seconds: 12.3 };
  await page.locator("#loading-text", { hasText: "42 % of the weights, 12 s so far" }).waitFor();
  assert.equal(await bar.evaluate((e) => e.value), 0.42);
  await shoot(page, "loading");
  assert.deepEqual(await lowContrast(page), []);
  loading = null;
  await page.locator("#served").waitFor();
  await bar.waitFor({ state: "hidden" });
  await story(page);
  await answered(page);
  // Restarts the server while the page is open.
  loading = { weights: 0.1, seconds: 1 };
  await bar.waitFor();
  loading = null;
  await bar.waitFor({ state: "hidden" });
  await answered(page);
  await leave();
});

test("the keyboard alone", async () => {
  const { page, sent, leave } = await own({ answers: { code: "```js\nlet a;\n```", one: "1" } });
  await page.locator("#served").waitFor();
  const focused = () => page.evaluate(() => document.activeElement.getAttribute("aria-label") || document.activeElement.innerText || document.activeElement.id);
  // Presses Tab or Shift+Tab until this element has the focus, which must be visible.
  const reach = async (name, key = "Tab") => {
    for (let i = 0; (await focused()) !== name; ++i) {
      assert.ok(i < 60, `${name} is not reached`);
      await page.keyboard.press(key);
    }
    assert.notEqual(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle), "none", name);
  };
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");  // skips to the message
  await page.keyboard.type("code");
  await page.keyboard.press("Enter");
  await answered(page);
  assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
  await reach("Copy this js", "Shift+Tab");
  await page.keyboard.press("Enter");
  await page.getByText(/Copied|Not copied/).first().waitFor();
  await reach("Edit message", "Shift+Tab");
  await page.keyboard.press("Space");
  await page.keyboard.press("Control+A");
  await page.keyboard.type("one");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await until(() => sent.length === 2, "not sent");
  await answered(page);
  await reach("Regenerate answer", "Shift+Tab");
  await page.keyboard.press("Enter");
  await until(() => sent.length === 3, "not asked again");
  await answered(page);
  await reach("Settings");
  await page.keyboard.press("Enter");
  await reach("New chat");
  await page.keyboard.press("Enter");
  assert.equal(await page.locator("#messages > li").count(), 0);
  assert.equal(await page.evaluate(() => document.activeElement.id), "prompt");
  await leave();
});

test("everything has a name", async () => {
  for (const options of [{ answers: { markdown } }, { encoder: true }]) {
    const { page, leave } = await own(options, "wide", { expectErrors: true });
    await page.locator("#served").waitFor();
    if (!options.encoder) {
      await page.getByRole("button", { name: "Settings" }).click();
      await say(page, "markdown");
      await answered(page);
    }
    const nameless = await page.evaluate(() => [...document.querySelectorAll("button, input, textarea, summary, a[href], [tabindex='0'], [role='img'], progress")]
      .filter((e) => e.checkVisibility() && !(e.getAttribute("aria-label") || e.innerText?.trim() || e.labels?.length || e.getAttribute("aria-labelledby")))
      .map((e) => e.outerHTML.slice(0, 80)));
    assert.deepEqual(nameless, []);
    await leave();
  }
});

test("a phone on its side", async () => {
  const { page, leave } = await own({ answers: { markdown } }, "landscape");
  await page.locator("#served").waitFor();
  await shoot(page, "landscape-welcome");
  await say(page, "markdown");
  await answered(page);
  await assertNoSidewaysScroll(page);
  const height = (selector) => page.locator(selector).evaluate((e) => e.getBoundingClientRect().height);
  assert.ok((await height("#chat-scroll")) >= 0.5 * sizes.landscape.height, "half of it is left for the conversation");
  const send = await page.locator("#send").boundingBox();
  assert.ok(send.y + send.height <= sizes.landscape.height && send.height >= 36, "the button is seen whole");
  await shoot(page, "landscape-chat");
  await page.getByRole("button", { name: "Settings" }).click();
  await page.getByLabel("System prompt").scrollIntoViewIfNeeded();
  assert.ok((await page.locator("#prompt").boundingBox()).y < sizes.landscape.height);
  await shoot(page, "landscape-settings");
  await page.getByRole("tab", { name: "Engine" }).click();
  await page.locator("#live-note", { hasText: "live" }).waitFor();
  await assertNoSidewaysScroll(page);
  await shoot(page, "landscape-engine");
  await leave();
});

test("a phone upright", async () => {
  const { page, leave } = await own({ answers: { markdown } }, "phone");
  await say(page, "markdown");
  await answered(page);
  await assertNoSidewaysScroll(page);
  const small = await page.evaluate(() => [...document.querySelectorAll("button, summary, input")].filter((e) => e.checkVisibility() && e.getBoundingClientRect().height < 32).map((e) => e.innerText));
  assert.deepEqual(small, [], "too small for a finger");
  await shoot(page, "phone-markdown");
  await leave();
});

test("forced colours", async () => {
  const { page, leave } = await own({ answers: { markdown }, key: "" }, "wide", { forcedColors: "active" });
  await page.locator("#served").waitFor();
  await say(page, "markdown");
  await answered(page);
  await page.locator("#kv-map i.used").first().waitFor();
  await page.locator("#steps rect[height]:not([height='0'])").first().waitFor();
  await shoot(page, "forced");
  const seen = await page.evaluate(() => {
    const canvas = getComputedStyle(document.body).backgroundColor;
    const border = (id) => getComputedStyle(document.getElementById(id)).borderTopColor;
    const cell = (kind) => getComputedStyle(document.querySelector(`#kv-legend .${kind}`)).backgroundColor;
    return {
      buttons: ["send", "settings-toggle", "new-chat", "theme"].filter((id) => [canvas, "rgba(0, 0, 0, 0)"].includes(border(id))),
      cells: new Set(["used", "shared", "cached", "free"].map(cell)).size,
      message: getComputedStyle(document.querySelector(".user .body")).borderTopWidth,
    };
  });
  assert.deepEqual(seen, { buttons: [], cells: 4, message: "1px" });
  await leave();
});

test("an encoder has a page for embeddings", async () => {
  const { page, leave } = await own({ encoder: true, key: "secret" }, "wide", { expectErrors: true });
  let polls = 0;
  page.on("request", (request) => {
    if (request.url().endsWith("/server_state")) polls += 1;
  });
  await page.getByRole("button", { name: "Enter the API key" }).click();
  await page.keyboard.type("secret");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Embeddings" }).waitFor();
  assert.equal(await page.getByLabel("Message", { exact: true }).isVisible(), false);
  assert.equal(await page.locator("#view-live").isVisible(), false);
  await shoot(page, "embeddings-empty");
  await page.getByLabel("Text 1", { exact: true }).fill("abba");
  await page.getByLabel("Text 2", { exact: true }).fill("baab");
  await page.getByRole("button", { name: "Add a text" }).click();
  await page.keyboard.type("<b>node</b>");
  polls = 0;
  await page.getByRole("button", { name: "Embed", exact: true }).click();
  await page.locator("#embed-vectors tbody tr").nth(2).waitFor();
  assert.deepEqual(await page.locator("#embed-vectors tbody tr").first().locator("th, td").allInnerTexts(),
    ["1", "abba", "16", "2.8284", "2.0000 2.0000 0.0000 0.0000 0.0000 0.0000 0.0000 0.0000 …", "Copy"]);
  assert.equal(await page.locator("#embed-vectors tbody tr").nth(2).locator("td").first().innerText(), "<b>node</b>");
  assert.deepEqual((await page.locator("#embed-cosines tbody tr").first().locator("td").allInnerTexts()).slice(0, 2), ["1.0000", "1.0000"]);
  assert.ok(Number((await page.locator("#embed-cosines tbody tr").first().locator("td").allInnerTexts())[2]) < 1);
  await assertNoSidewaysScroll(page);
  assert.deepEqual(await lowContrast(page), []);
  await shoot(page, "embeddings");
  await page.getByRole("button", { name: "Remove text 3" }).click();
  assert.equal(await page.locator("#embed-texts textarea").count(), 2);
  assert.equal(polls, 0, "an encoder has no state to ask for");
  assert.equal(await page.locator("#why .chosen").first().isVisible(), true);
  await leave();
});

test("a model that takes audio has a page for transcripts", async () => {
  const { page, leave } = await own({ audio: true, key: "secret" }, "wide", { expectErrors: true });
  await page.getByRole("button", { name: "Enter the API key" }).click();
  await page.keyboard.type("secret");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Transcripts" }).waitFor();
  assert.equal(await page.getByLabel("Message", { exact: true }).isVisible(), false);
  assert.equal(await page.locator("#view-live").isVisible(), true);
  await page.getByLabel("WAV file").setInputFiles({ name: "a.mp3", mimeType: "audio/mpeg", buffer: Buffer.from("ID3") });
  await page.getByRole("button", { name: "Transcribe", exact: true }).click();
  await page.getByText("file: not a WAV file").waitFor();
  await page.getByLabel("WAV file").setInputFiles({ name: "a.wav", mimeType: "audio/wav", buffer: Buffer.from("RIFF....WAVE") });
  await page.getByRole("button", { name: "Retry" }).click();
  await page.locator("#audio-segments tbody tr").nth(1).waitFor();
  assert.equal(await page.locator("#audio-text").innerText(), "One <b>two</b>");
  assert.deepEqual(await page.locator("#audio-segments tbody tr").nth(1).locator("th, td").allInnerTexts(), ["1:00.00 – 1:01.50", "<b>two</b>"]);
  await assertNoSidewaysScroll(page);
  assert.deepEqual(await lowContrast(page), []);
  await shoot(page, "transcripts");
  await leave();
});

test("an engine that did nothing yet", async () => {
  const idle = await startMock({ state: idleState });
  const { page, leave } = await visit("wide", { address: idle.url });
  await page.locator("#sequences", { hasText: "No requests are running." }).waitFor();
  await page.locator("#prefixes", { hasText: "Nothing is cached yet." }).waitFor();
  assert.match(await page.locator("#figures").innerText(), /Running\s+0\s+Waiting\s+0[^]*Steps\s+0$/);
  const shown = await page.locator("#kv-map i").evaluateAll((cells) => [...new Set(cells.map((cell) => cell.className))]);
  assert.deepEqual(shown, ["free"]);
  await shoot(page, "idle");
  await leave();
  await idle.close();
  const drafting = await startMock({ state: { ...idleState, drafts: { steps: 100, draft_tokens: 400, accepted_tokens: 250 } } });
  const other = await visit("phone", { address: drafting.url });
  await other.page.getByRole("tab", { name: "Engine" }).click();
  await other.page.getByText("Drafts accepted").waitFor();  // the tile is hidden before the first state
  assert.match(await other.page.locator("#figures").innerText(), /Drafts accepted\s+62\.5 %\s+Tokens a step\s+3\.5/);
  await assertNoSidewaysScroll(other.page);
  await other.leave();
  await drafting.close();
});

test("a server that goes away is noticed", async () => {
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
