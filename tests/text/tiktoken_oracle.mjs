// Writes cl100k_base (100,256 tokens) as a tokenizer.json into the folder asked for, and answers the questions with
// tiktoken itself. Run by differential_test.py --large; other encodings by name as the first argument.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Tiktoken } from "tiktoken";

const require = createRequire(import.meta.url);
const questions = JSON.parse(readFileSync(0, "utf8"));
const encoding = require(`tiktoken/encoders/${process.argv[2] ?? "cl100k_base"}.json`);

// "! first_rank base64 base64 ..." per line.
const ranks = new Map(); // latin-1 text of the bytes -> rank
for (const line of encoding.bpe_ranks.split("\n")) {
  const [, first, ...tokens] = line.split(" ");
  tokens.forEach((token, i) => ranks.set(Buffer.from(token, "base64").toString("latin1"), Number(first) + i));
}

const spelling = [];
let next = 256;
for (let byte = 0; byte < 256; ++byte) {
  const own = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  spelling.push(String.fromCodePoint(own ? byte : next++));
}
const spell = (latin1) => [...latin1].map((c) => spelling[c.charCodeAt(0)]).join("");

// Every way to put a token together from two others is a merge with the token's rank.
const vocab = {};
const merges = [];
for (const [token, rank] of ranks) {
  vocab[spell(token)] = rank;
  for (let cut = 1; cut < token.length; ++cut) {
    const left = ranks.get(token.slice(0, cut));
    const right = ranks.get(token.slice(cut));
    if (left !== undefined && right !== undefined) merges.push([rank, left, right, token, cut]);
  }
}
merges.sort((a, b) => a[0] - b[0] || a[1] - b[1] || a[2] - b[2]);

const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
const split = { type: "Split", pattern: { Regex: encoding.pat_str }, behavior: "Isolated", invert: false };
const flags = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
const document = {
  added_tokens: Object.entries(encoding.special_tokens).map(([content, id]) => ({ id, content, ...flags })),
  normalizer: null,
  pre_tokenizer: { type: "Sequence", pretokenizers: [split, bytes] },
  post_processor: null,
  decoder: bytes,
  model: {
    type: "BPE", dropout: null, unk_token: null, fuse_unk: false, byte_fallback: false, ignore_merges: true, vocab,
    merges: merges.map(([, , , token, cut]) => [spell(token.slice(0, cut)), spell(token.slice(cut))]),
  },
};
writeFileSync(`${questions.dir}/tokenizer.json`, JSON.stringify(document));
writeFileSync(`${questions.dir}/tokenizer_config.json`, "{}");

const oracle = new Tiktoken(encoding.bpe_ranks, encoding.special_tokens, encoding.pat_str);
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const encode = questions.encode.map((item) => [...oracle.encode(decoder.decode(Buffer.from(item.hex, "hex")), "all")]);
console.log(JSON.stringify({ encode, decode: [] }));
