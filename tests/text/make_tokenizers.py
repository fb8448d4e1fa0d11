#!/usr/bin/env python3
"""Writes the small tokenizers that the text tests use: python3 make_tokenizers.py [folder].

Each is a byte-level BPE trained on the text below, in one of the flavours that models ship:
  llama3  Split pattern with digit groups, ignore_merges, merges as pairs, BOS by TemplateProcessing
  qwen    NFC, Split pattern with single digits, merges as strings, many added tokens
  gpt2    ByteLevel with its own pattern and a prefix space, unk_token, no type in the model
The output depends on nothing but this file.
"""
import collections
import json
import pathlib
import sys
import unicodedata

TEXT = """
The quick brown fox jumps over the lazy dog, and the dog doesn't mind. It's what they'd do, we're told: you've seen
it, I'm sure, and they'll see it again. Attention is computed for every token of every sequence in the batch. The
keys and the values of a token are stored in pages, and a page holds sixteen tokens. A prefill reads the whole
prompt; a decode step reads one token and all the keys before it. for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }
def attention(query, key, value):\n    scores = query @ key.T\n    return softmax(scores) @ value\n
In 1999 there were 365 days; 3.14159 and 2.71828 are numbers, and so are 1,000,000 and 0x1F. THE SAME WORDS IN
CAPITALS: ATTENTION, TOKEN, PAGE. IT'S THE SAME. What?! Really... (yes) [no] {maybe} <tag> "quoted" 'single' -- end.
Der schnelle braune Fuchs springt über den faulen Hund. Größe, Straße, Übermut, schön. Le cœur a ses raisons que la
raison ne connaît point; où est passé l'été? El niño comió piñas en la montaña. Быстрая лиса прыгает через собаку.
Η γρήγορη αλεπού πηδά. 敏捷的棕色狐狸跳过懒狗。注意力机制是模型的核心。素早い茶色の狐が犬を飛び越える。빠른 갈색 여우가 개를
뛰어넘는다. الثعلب البني السريع يقفز فوق الكلب. השועל החום המהיר קופץ מעל הכלב. नमस्ते दुनिया। 🙂 👍🏽 👩‍💻 🇩🇪 🎉🎉 ✨
the the the and and of of to to in in a a is is that that it it for for was was on on are are as as with with
"""

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_alphabet():
    """GPT-2's spelling of each byte as one printable character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelling = {byte: chr(byte) for byte in printable}
    rest = [byte for byte in range(256) if byte not in spelling]
    spelling.update({byte: chr(0x100 + i) for i, byte in enumerate(rest)})
    return [spelling[byte] for byte in range(256)]


def words_of(text):
    """Rough pieces for training: a run of one kind of character with the blank before it."""
    def kind(char):
        category = unicodedata.category(char)[0]
        return "L" if category in "LM" else "N" if category == "N" else "Z" if char.isspace() else "P"

    words, current = [], ""
    for char in text:
        joins = current and (kind(current[-1]) == kind(char) or current == " ")
        if current and not (joins and kind(char) != "Z"):
            words.append(current)
            current = ""
        current += char
    return words + [current]


def train_on(words, merges_wanted):
    """Merges of BPE for [(symbols, count)], most frequent pair first, ties by spelling."""
    merges = []
    while len(merges) < merges_wanted:
        pairs = collections.Counter()
        for symbols, count in words:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for symbols, _ in words:
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == best:
                    symbols[i:i + 2] = [symbols[i] + symbols[i + 1]]
                i += 1
    return merges


def train(text, merges_wanted):
    """Merges of byte-level BPE."""
    spelling = byte_alphabet()
    counts = collections.Counter(words_of(text))
    return train_on([([spelling[b] for b in word.encode()], count) for word, count in sorted(counts.items())],
                    merges_wanted)


def vocabulary(merges, extra=()):
    tokens = sorted(byte_alphabet()) + [left + right for left, right in merges] + list(extra)
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}


def added(vocab_size, *tokens):
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    out = []
    for i, token in enumerate(tokens):
        content, changes = token if isinstance(token, tuple) else (token, {})
        out.append({"id": vocab_size + i, "content": content, **flags, **changes})
    return out


def byte_level(**changes):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False, **changes}


def split_then_bytes(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level()]}


def document(vocab, merges, tokens, normalizer, pre_tokenizer, post_processor, **model):
    base = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    base.update(model)
    base = {key: value for key, value in base.items() if value != "absent"}
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer, "post_processor": post_processor,
            "decoder": byte_level(add_prefix_space=True, use_regex=True),
            "model": {**base, "vocab": vocab, "merges": merges}}


def begin_with(token, token_id):
    single = [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = single + [{"Sequence": {"id": "B", "type_id": 1}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": pair,
                "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}}}
    return {"type": "Sequence", "processors": [byte_level(use_regex=True), template]}


def llama3(merges):
    # Words that no merge makes: only ignore_merges finds them.
    vocab = vocabulary(merges, ["Ġtokenizer", "Ġunreachable", "ĠStraÃŁe", "åħ³"])
    size = len(vocab)
    tokens = added(size, "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                   "<|eot_id|>", "<|reserved|>", "<|reserved|>x")
    tokenizer = document(vocab, [list(pair) for pair in merges], tokens, None, split_then_bytes(LLAMA3_PATTERN),
                         begin_with("<|begin_of_text|>", size), ignore_merges=True)
    config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "clean_up_tokenization_spaces": False,
              "tokenizer_class": "PreTrainedTokenizerFast"}
    return tokenizer, config


def qwen(merges):
    vocab = vocabulary(merges)
    tokens = added(len(vocab), "<|endoftext|>", "<|im_start|>", "<|im_end|>", ("<think>", {"special": False}),
                   ("</think>", {"special": False}), ("<tool_call>", {"special": False}),
                   ("<mask>", {"lstrip": True}), ("<sep>", {"rstrip": True, "special": False}),
                   ("caf\u00e9s", {"normalized": True, "special": False}))
    tokenizer = document(vocab, [" ".join(pair) for pair in merges], tokens, {"type": "NFC"},
                         split_then_bytes(QWEN_PATTERN), byte_level())
    config = {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
              "unk_token": None, "clean_up_tokenization_spaces": False, "tokenizer_class": "Qwen2Tokenizer"}
    return tokenizer, config


def gpt2(merges):
    vocab = {**vocabulary(merges)}
    vocab["<|endoftext|>"] = len(vocab)
    tokens = added(len(vocab) - 1, "<|endoftext|>")
    tokenizer = document(vocab, [" ".join(pair) for pair in merges], tokens,
                         {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
                         byte_level(add_prefix_space=True, use_regex=True), byte_level(),
                         unk_token="<|endoftext|>", continuing_subword_prefix="", end_of_word_suffix="")
    eos = {"__type": "AddedToken", "content": "<|endoftext|>", "lstrip": False, "normalized": True, "rstrip": False,
           "single_word": False}
    config = {"bos_token": eos, "eos_token": eos, "unk_token": eos, "add_prefix_space": True,
              "clean_up_tokenization_spaces": False, "tokenizer_class": "GPT2Tokenizer"}
    return tokenizer, config


def write(folder, tokenizer, config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":")) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def main():
    here = pathlib.Path(__file__).resolve().parent
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here / "tokenizers"
    for make, text, count in ((llama3, TEXT, 420), (qwen, TEXT, 380), (gpt2, TEXT, 300)):
        write(out / make.__name__, *make(train(text, count)))


if __name__ == "__main__":
    main()
