"""Trains the demo model's byte-level BPE and writes tokenizer.json, tokenizer_config.json and chat_template.jinja."""
import argparse
import json
import os
import random

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import data

SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"]
BOS, EOS, SYSTEM, USER, ASSISTANT, END, PAD = range(7)
VOCAB_SIZE = 768
CONTEXT = 1024
# Words with one leading mark or space; single digits, so that every number is spelled out; marks; white space.
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CHAT_TEMPLATE = """{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}
        {{- '<|system|>' + message['content'] | trim + '<|end|>' }}
    {%- elif message['role'] == 'user' %}
        {{- '<|user|>' + message['content'] | trim + '<|end|>' }}
    {%- elif message['role'] == 'assistant' %}
        {{- '<|assistant|>' + message['content'] | trim + '<|end|>' }}
    {%- else %}
        {{- raise_exception('Unknown role: ' + message['role']) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' }}
{%- endif -%}
"""


def texts(rows, seed):
    """Training texts, without the answers that are trained letter by letter: merges in them would never be used."""
    rng = random.Random(seed)
    for _ in range(rows):
        row = data.row(rng)
        if "messages" in row:
            for message in row["messages"]:
                if not message.get("letters"):
                    yield message["content"]
        else:
            yield row["prompt"] + ("" if row["letters"] else row["completion"])


def train(rows, seed):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, special_tokens=SPECIALS, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts(rows, seed), trainer)
    bos = SPECIALS[BOS]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, BOS)])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    tokenizer = train(args.rows, args.seed)
    tokenizer.save(os.path.join(args.out, "tokenizer.json"), pretty=False)
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    config = {
        "added_tokens_decoder": {str(i): {"content": token, **flags} for i, token in enumerate(SPECIALS)},
        "bos_token": SPECIALS[BOS], "eos_token": SPECIALS[END], "pad_token": SPECIALS[PAD],
        "clean_up_tokenization_spaces": False, "model_max_length": CONTEXT,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    with open(os.path.join(args.out, "tokenizer_config.json"), "w") as f:
        json.dump(config, f, indent=2)
        f.write("\n")
    with open(os.path.join(args.out, "chat_template.jinja"), "w") as f:
        f.write(CHAT_TEMPLATE)
    print("vocabulary", tokenizer.get_vocab_size(), "tokens of a story:",
          tokenizer.encode("Once upon a time, a little fox named Mia lived by a quiet river.").tokens)


if __name__ == "__main__":
    main()
