// The same questions as text_probe, answered by @huggingface/tokenizers and @huggingface/jinja.
import { readFileSync } from "node:fs";
import { Template } from "@huggingface/jinja";
import { Tokenizer } from "@huggingface/tokenizers";

const questions = JSON.parse(readFileSync(0, "utf8"));
const attempt = (work) => {
  try {
    return work();
  } catch (error) {
    return { error: String(error.message ?? error) };
  }
};
const readJson = (path) => JSON.parse(readFileSync(path, "utf8"));

const tokenizers = questions.tokenizers.map((job) => {
  const tokenizer = new Tokenizer(readJson(`${job.dir}/tokenizer.json`), readJson(`${job.dir}/tokenizer_config.json`));
  return {
    encode: job.encode.map((item) =>
      attempt(() => {
        // Both are lenient in the same way: one U+FFFD for each maximal ill-formed part.
        const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.from(item.hex, "hex"));
        return tokenizer.encode(text, { add_special_tokens: item.add_special }).ids;
      }),
    ),
    decode: job.decode.map((item) => attempt(() => tokenizer.decode(item.ids, { skip_special_tokens: item.skip_special }))),
  };
});

const templates = questions.templates.map((job) =>
  attempt(() => {
    const variables = JSON.parse(job.variables);
    return new Template(job.template).render(variables);
  }),
);

console.log(JSON.stringify({ tokenizers, templates }));
