"""Small tokenizers of the kinds that models on the hub have, beside the byte-level ones of make_tokenizers.py.

Each function of KINDS gives tokenizer.json and tokenizer_config.json; the vocabularies come from make_tokenizers.TEXT.
"""
import collections
import functools
import math

import charsmap
from make_tokenizers import (LLAMA3_PATTERN, TEXT, added, begin_with, byte_level, document, split_then_bytes, train,
                             train_on, vocabulary)

MARK = "\u2581"
O200K_PATTERN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_PATTERNS = (
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
)


@functools.cache
def byte_merges():
    return train(TEXT, 420)


def marked_words(text):
    """Words with the mark in front, as SentencePiece sees them."""
    return collections.Counter(MARK + word for word in text.replace("\n", " ").split(" ") if word)


@functools.cache
def marked_merges():
    return train_on([(list(word), count) for word, count in sorted(marked_words(TEXT).items())], 500)


def spm_vocabulary(specials):
    """SentencePiece's order: specials, bytes, merges, characters; rare characters are left to the bytes."""
    counts = collections.Counter(char for word, n in marked_words(TEXT).items() for char in word * n)
    in_merges = {char for merge in marked_merges() for part in merge for char in part}
    chars = [char for char, count in sorted(counts.items()) if count > 1 or char in in_merges]
    tokens = [*specials, *(f"<0x{byte:02X}>" for byte in range(256)), *("".join(merge) for merge in marked_merges()),
              *chars]
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}


def spm_bpe(normalizer, pre_tokenizer, decoders, more_added=(), specials=("<unk>", "<s>", "</s>"), pairs=False):
    vocab = spm_vocabulary(specials)
    merges = [list(merge) if pairs else " ".join(merge) for merge in marked_merges()]
    tokens = [{**token, "id": vocab[token["content"]]} for token in added(0, *specials)]
    tokens += added(len(vocab), *more_added)
    begin = begin_with("<s>", vocab["<s>"])["processors"][1]
    out = document(vocab, merges, tokens, normalizer, pre_tokenizer, begin, unk_token="<unk>", fuse_unk=True,
                   byte_fallback=True)
    out["decoder"] = {"type": "Sequence", "decoders": decoders}
    config = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>",
              "unk_token": "<unk>", "clean_up_tokenization_spaces": False, "tokenizer_class": "LlamaTokenizer"}
    return out, config


def replace(pattern, content):
    return {"type": "Replace", "pattern": {"String": pattern}, "content": content}


LLAMA2_NORMALIZER = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, replace(" ", MARK)]}
FALLBACK = [replace(MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP_FIRST = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def llama2():
    return spm_bpe(LLAMA2_NORMALIZER, None, [*FALLBACK, STRIP_FIRST])


def phi3():
    ends = {"rstrip": True}
    more = [("<|endoftext|>", {}), ("<|assistant|>", ends), ("<|user|>", ends), ("<|end|>", ends)]
    return spm_bpe(LLAMA2_NORMALIZER, None, [*FALLBACK, STRIP_FIRST], more)


def mistral():
    metaspace = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}
    return spm_bpe(None, metaspace, [*FALLBACK, STRIP_FIRST], ["[INST]", "[/INST]"], pairs=True)


def gemma():
    split = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    out, config = spm_bpe(replace(" ", MARK), split, FALLBACK, ["<start_of_turn>", "<end_of_turn>"], pairs=True)
    return out, {**config, "tokenizer_class": "GemmaTokenizer"}


def o200k():
    vocab = vocabulary(byte_merges())
    tokens = added(len(vocab), "<|startoftext|>", "<|endoftext|>", "<|message|>", "<|channel|>")
    out = document(vocab, [list(merge) for merge in byte_merges()], tokens, None, split_then_bytes(O200K_PATTERN),
                   begin_with("<|startoftext|>", len(vocab)), ignore_merges=True)
    return out, {"clean_up_tokenization_spaces": False, "eos_token": "<|endoftext|>"}


def deepseek():
    vocab = vocabulary(byte_merges())
    bos = "<\uff5cbegin\u2581of\u2581sentence\uff5c>"
    tokens = added(len(vocab), bos, "<\uff5cUser\uff5c>", ("<think>", {"special": False, "normalized": True}))
    splits = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
              for pattern in DEEPSEEK_PATTERNS]
    out = document(vocab, [" ".join(merge) for merge in byte_merges()], tokens,
                   {"type": "Sequence", "normalizers": []},
                   {"type": "Sequence", "pretokenizers": [*splits, byte_level()]}, begin_with(bos, len(vocab)))
    return out, {"add_bos_token": True, "bos_token": bos, "tokenizer_class": "LlamaTokenizerFast",
                 "clean_up_tokenization_spaces": False}


def roberta():
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    vocab = {token: i for i, token in enumerate([*specials, *vocabulary(byte_merges()), "<mask>"])}
    tokens = [{**token, "id": vocab[token["content"]]} for token in added(0, *specials, ("<mask>", {"lstrip": True}))]
    post = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True,
            "add_prefix_space": False}
    out = document(vocab, [" ".join(merge) for merge in byte_merges()], tokens, None, byte_level(use_regex=True), post,
                   continuing_subword_prefix="", end_of_word_suffix="")
    return out, {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "RobertaTokenizer",
                 "clean_up_tokenization_spaces": False}


def unigram_vocabulary(specials, text):
    """Substrings of words, scored by how much of the text they make up. Scores are multiples of 1/1024, so that sums
    are exact and ties are ties whatever the order of summation."""
    counts = collections.Counter()
    for word, count in marked_words(text).items():
        for begin in range(len(word)):
            for end in range(begin + 1, min(begin + 7, len(word)) + 1):
                counts[word[begin:end]] += count
    chars = [piece for piece, count in sorted(counts.items()) if len(piece) == 1 and (count > 1 or piece == MARK)]
    longer = sorted((piece for piece, count in counts.items() if len(piece) > 1 and count > 2),
                    key=lambda piece: (-counts[piece] * len(piece), piece))[:700]
    total = sum(counts[piece] for piece in chars + longer)
    return [[token, 0.0] for token in specials] + [[piece, round(math.log(counts[piece] / total) * 1024) / 1024]
                                                   for piece in longer + chars]


def unigram(specials, unk_id, normalizer, pre_tokenizer, template, more_added=(), text=TEXT, **config):
    vocab = unigram_vocabulary(specials, text)
    metaspace = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True}
    ids = {token: i for i, (token, _) in enumerate(vocab)}
    single = [{"Sequence": {"id": "A", "type_id": 0}} if name == "$A" else {"SpecialToken": {"id": name, "type_id": 0}}
              for name in template]
    pair = single + [{"Sequence": {"id": "B", "type_id": 1}}]
    out = {"version": "1.0", "truncation": None, "padding": None,
           "added_tokens": [{**token, "id": ids[token["content"]]} for token in added(0, *specials)]
           + added(len(vocab), *more_added),
           "normalizer": normalizer, "pre_tokenizer": pre_tokenizer or metaspace,
           "post_processor": {"type": "TemplateProcessing", "single": single, "pair": pair,
                              "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                                                 for name in template if name != "$A"}},
           "decoder": metaspace, "model": {"type": "Unigram", "unk_id": unk_id, "vocab": vocab}}
    return out, {"clean_up_tokenization_spaces": False, **config}


def precompiled():
    return {"type": "Precompiled", "precompiled_charsmap": charsmap.charsmap()}


def t5():
    pre = {"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": MARK, "add_prefix_space": True}]}
    return unigram(["<pad>", "</s>", "<unk>"], 2, precompiled(), pre, ["$A", "</s>"],
                   ["<extra_id_1>", "<extra_id_0>"], eos_token="</s>", tokenizer_class="T5Tokenizer")


def xlmr():
    normalizer = {"type": "Sequence", "normalizers": [
        precompiled(), {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]}
    return unigram(["<s>", "<pad>", "</s>", "<unk>"], 3, normalizer, None, ["<s>", "$A", "</s>"],
                   [("<mask>", {"lstrip": True})], eos_token="</s>", clean_up_tokenization_spaces=True,
                   tokenizer_class="XLMRobertaTokenizer")


def albert():
    normalizer = {"type": "Sequence", "normalizers": [
        replace("``", '"'), replace("''", '"'), {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"},
        precompiled()]}
    return unigram(["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"], 1, normalizer, None, ["[CLS]", "$A", "[SEP]"],
                   text=TEXT.lower(), eos_token="[SEP]", tokenizer_class="AlbertTokenizer")


def word_piece(text, lowercase, strip_accents):
    counts = collections.Counter()
    words = collections.Counter()
    for word in text.replace("\n", " ").split(" "):
        words[word] += 1
        for begin in range(len(word)):
            for end in range(begin + 1, min(begin + 6, len(word)) + 1):
                counts[("##" if begin else "") + word[begin:end]] += 1
    often = sorted((piece for piece, count in counts.items() if count > 2), key=lambda piece: (-counts[piece], piece))
    chars = sorted(set(text) - {" ", "\n", "\u0628"})
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*specials, *chars, *("##" + char for char in chars), *often[:500],
              *(word for word, count in words.most_common(60) if word)]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(pieces))}
    out = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added(0, *specials),
           "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                          "strip_accents": strip_accents, "lowercase": lowercase},
           "pre_tokenizer": {"type": "BertPreTokenizer"},
           "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
           "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
           "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                     "max_input_chars_per_word": 100, "vocab": vocab}}
    return out, {"clean_up_tokenization_spaces": True, "tokenizer_class": "BertTokenizer", "do_lower_case": lowercase}


def bert_uncased():
    return word_piece(TEXT.lower(), True, None)


def bert_cased():
    return word_piece(TEXT, False, None)


def gpt1():
    """BPE over characters whose words end with a suffix."""
    words = collections.Counter(TEXT.lower().split())
    merges = train_on([(list(word[:-1]) + [word[-1] + "</w>"], count) for word, count in sorted(words.items())], 300)
    chars = sorted(set("".join(words)) - {"\u0628"})
    pieces = ["<unk>", *chars, *(char + "</w>" for char in chars), *("".join(merge) for merge in merges)]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(pieces))}
    known = [merge for merge in merges if all(part in vocab for part in merge)]
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
            "lowercase": True}
    out = document(vocab, [" ".join(merge) for merge in known], added(0, "<unk>"), bert, {"type": "BertPreTokenizer"},
                   None, unk_token="<unk>", end_of_word_suffix="</w>")
    out["decoder"] = {"type": "BPEDecoder", "suffix": "</w>"}
    return out, {"clean_up_tokenization_spaces": False, "unk_token": "<unk>"}


KINDS = [llama2, phi3, mistral, gemma, o200k, deepseek, roberta, t5, xlmr, albert, bert_uncased, bert_cased, gpt1]
