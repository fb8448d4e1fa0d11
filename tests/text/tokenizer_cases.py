"""Texts and ids that tokenizers are asked about."""
import random

HARD_TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\t", "a", "Hello, world!", "  leading and trailing  ", "a\r\nb\r\n\r\nc\n\n\nd\r",
    "I'm you're we've they'll he'd it's can't", "I'M YOU'RE WE'VE THEY'LL HE'D IT'S CAN'T", "'s 't 're'S'T ''ll",
    "0123456789 1 12 123 1234 12345678901234567890", "3.14159e-10 1,000,000 0x1F ٣٤٥ ⅷ ² ½ 一二三",
    "emoji: 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ❤️ 🙂", "敏捷的棕色狐狸跳过懒狗。注意力机制", "素早い茶色の狐 カタカナ ｶﾀｶﾅ", "빠른 갈색 여우 \u1112\u1161\u11ab",
    "cafe\u0301 caf\u00e9 A\u030a \u212b \u1e9b\u0323 q\u0307\u0323 q\u0323\u0307", "\u0344 \u0958 \u2126 \ufb01 \u0f73\u0f75\u0f81",
    "الثعلب البني \u064b\u0650 السريع", "השועל החום \u05e9\u05c1\u05b8", "नमस्ते दुनिया क्षत्रिय", "Größe STRASSE ß İı ǅ",
    "zero\u0000byte \u0001\u001f\u007f\u0080", "\u00a0nbsp\u2003em\u3000ideographic\u200bzwsp\u202fnarrow",
    "line\u2028separator\u2029paragraph", " " * 50 + "x" + "\t" * 20 + "y" + "\n" * 30, "   \n   \n  x", "a  b   c    d",
    "def f(x):\n    return x ** 2  # comment\n\n\nclass A:\n\tpass\n", "<tag attr=\"v\">&amp;</tag> {{ x }} {% y %}",
    "https://example.com/a?b=c&d=%20e#f", "...!!!???---___***///\\\\\\", "\u201cquotes\u201d \u2018single\u2019 don\u2019t \u2026",
    "ĠĊ are letters too; Ġ", "snake_case camelCase SCREAMING_CASE kebab-case", "ab\u0300\u0301\u0302\u0303\u0304",
    "tokenizer unreachable Straße", " tokenizer unreachable", "\ufffd replacement", "\U0010ffff \U00020000 \ue000",
    # Added tokens.
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<|im_start|>user\nHi<|im_end|>\n",
    "<|reserved|> <|reserved|>x <|reserved|>xx <|reserved", "<think>\n\n</think>\n\n<tool_call>", "a <mask> b  <mask>c<mask>",
    "\n\t <mask>", "x<sep>  y <sep>\n\nz", "both ends, bothends, both, (both) _both both_ both", "cafe\u0301s and caf\u00e9s",
    "<|endoftext|>a<|endoftext|> b <|endoftext|>", "<<|im_end|>>", "<|im_end|><|im_end|>", "<|im_<|im_end|>end|>",
    "<s>the</s> the<s> the", "[INST] the [/INST]the", "<|user|>\n the <|end|>\n<|assistant|>", "<extra_id_1>the <extra_id_0>",
    "[CLS] the [MASK] [SEP]", "<start_of_turn>user\nthe<end_of_turn>\n", "the<unk>the <unk><unk>",
    # Spellings of vocabularies written out.
    "\u2581the \u2581 the\u2581", "\u2581\u2581the", "<0x41><0xE4>", "##ing ## #", "the</w> </w>", "<0xZZ>",
    # Compatibility characters and quotes.
    "\uff21\uff22\uff43 \uff11\uff12 \ufb01ne \u2460 \u2167 \uff5e \uff76\uff9e", "``the'' ''the``", "e\u0301te\u0301 n\u0303 a\u030a",
    "it is n't . what ? yes ! a , b ' c 'm 's 've 're do not", "qqqq\u05d0\u05d1\u0628\u0628 \u0628", "wxyz" * 40, "a" * 99, "a" * 100, "a" * 101,
    "the\u200bthe\u00adthe\ufeffthe", "\u30d7\u309a \u304b\u3099", "THE \u0130 \u00c9COLE", "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
]

HARD_BYTES = [
    b"\xff", b"\xc3", b"a\xc3", b"\xe4\xb8", b"\xe4\xb8\xad\xe4", b"\xf0\x9f\x99", b"\xf0\x9f\x99\x82\xf0\x9f",
    b"\xed\xa0\x80", b"\xed\xb0\x80x", b"\xed\xa0\xbd\xed\xb8\x80", b"\xc0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80",
    b"\xf8\x88\x80\x80\x80", b"ok \x80\x80 ok", b"\xf0\x80\x80\x41", b"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41",
]

PIECES = [
    " ", "  ", "\n", "\r\n", "\t", "a", "the", " the", "THE", "'s", "'LL", "’t", "1", "22", "333", "4444", ".", ",", "!!", "...",
    "é", "e\u0301", "\u0323", "ß", "中", "文字", "の", "한", "\u1100\u1161", "ال", "ע", "\u05b8", "न", "्", "🙂", "👩‍💻", "\u200d",
    "\ufe0f", "\u00a0", "\u3000", "\u2028", "\u0000", "Ġ", "_", "-", "<", "<|", "|>", "<|im_start|>", "<|im_end|>",
    "<|eot_id|>", "<|endoftext|>", "<think>", "<mask>", "<sep>", "both", "cafés", "<|reserved|>", "x",
    "\u2581", "<s>", "</s>", "[MASK]", "[INST]", "<|user|>", "<|end|>", "<unk>", "##", "</w>", "token", "ing", "Ab", "\u0628",
]


def long_texts():
    return ["a" * 100_000, "ab" * 50_000, "the" * 30_000, " " * 20_000, "\n" * 5_000 + "x", "中" * 20_000, "e\u0301" * 10_000,
            "7" * 30_000, "!?" * 20_000]


def encode_items(seed, count, with_long=True):
    rng = random.Random(seed)
    texts = [text.encode() for text in HARD_TEXTS + (long_texts() if with_long else [])] + HARD_BYTES
    for _ in range(count):
        texts.append("".join(rng.choice(PIECES) for _ in range(rng.randint(1, 25))).encode())
    return [{"hex": text.hex(), "add_special": i % 3 != 0, "parse_special": True} for i, text in enumerate(texts)]


def decode_items(seed, count, vocab_size):
    rng = random.Random(seed)
    return [{"ids": [rng.randrange(vocab_size) for _ in range(rng.randint(1, 40))], "skip_special": i % 2 == 0}
            for i in range(count)]
