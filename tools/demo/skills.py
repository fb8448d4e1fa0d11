"""The tasks with exact answers: additions, words to reverse and to spell, numbers to spell, patterns.

Items to be tested are split off by a hash of their key, so that no training row ever shows one of them.
"""
import functools
import json
import re
import zlib
from collections import namedtuple

import stories
import words

# A turn asked of the model. `letters`: the answer is trained one letter per token, so that the model never has to
# choose between the many ways to cut a made-up word. `long`: a text with many good continuations; it counts less.
Task = namedtuple("Task", "name user answer prompt completion letters long", defaults=(False, False))

HELD_OUT_PERCENT = {"addition": 3, "number": 20, "word": 10, "pattern": 5}


def held_out(kind, key):
    """Whether the item is for tests only. crc32 is stable across machines, unlike hash()."""
    return zlib.crc32(f"{kind}:{key}".encode()) % 100 < HELD_OUT_PERCENT[kind]


def addition_held_out(a, b):
    # Both orders share a key. Sums that people try first (both below 20) are always trained.
    return max(a, b) >= 20 and held_out("addition", f"{min(a, b)}+{max(a, b)}")


def word_held_out(word):
    # A word and its reversal share a key: each gives the other away. Words that stories and chats are made of have
    # been seen; they are no test, and since many are one token, only training can tell the model their letters.
    word = word.lower()
    return not {word, word[::-1]} & common_words() and held_out("word", min(word, word[::-1]))


@functools.cache
def common_words():
    """All words of the fixed texts below and in the other files, in lower case."""
    texts = json.dumps([stories.OPENINGS, stories.HABITS, stories.PLOTS, stories.ENDINGS, stories.PLACES,
                        stories.ADJECTIVES, words.ANIMALS, words.THINGS, words.NAMES, words.FACTS, words.CAPITALS,
                        words.OPPOSITES, words.SOUNDS, words.DAYS, words.MONTHS, ONES, TENS, "hundred", ADD_ASKS,
                        REVERSE_ASKS, SPELL_ASKS, PATTERN_ASKS, WORD_PATTERNS, words.TALK, words.CANNOT,
                        words.CANNOT_ASKS, words.LANGUAGES, words.TOPICS, words.SYSTEMS, words.NUMBER_ONLY,
                        "letters letter question answer continue tell another short story reverse spell word color"])
    return frozenset(word.lower() for word in re.findall(r"[A-Za-z]{2,}", texts.replace("\\", " ")))


ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen""".split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()


def spell_number(n):
    if n >= 100:
        rest = n % 100
        return ONES[n // 100] + " hundred" + (" " + spell_number(rest) if rest else "")
    if n < 20:
        return ONES[n]
    return TENS[n // 10] + ("-" + ONES[n % 10] if n % 10 else "")


# ---- additions

def operand(rng):
    digits = rng.choices((1, 2, 3), (15, 25, 60))[0]
    return rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10 ** digits)


def carries(a, b):
    return a % 10 + b % 10 > 9 or a // 10 % 10 + b // 10 % 10 > 8


def pick_addition(rng, test=False):
    while True:
        a, b = operand(rng), operand(rng)
        if addition_held_out(a, b) == test and (carries(a, b) or rng.random() < 0.6):
            return a, b


ADD_ASKS = ["What is {a} + {b}?", "What is {a} plus {b}?", "Add {a} and {b}.", "Add {a} to {b}.", "{a} + {b}",
            "{a} + {b} =", "{a}+{b}", "{a}+{b}=?", "Calculate {a} + {b}.", "How much is {a} + {b}?", "{a} plus {b}?",
            "Can you add {a} and {b}?", "What is the sum of {a} and {b}?", "Please compute {a} + {b}.",
            "How much is {a} plus {b}?", "What do you get when you add {a} and {b}?", "Sum: {a}, {b}"]


def addition(rng, test=False):
    a, b = pick_addition(rng, test)
    prompt = rng.choice(["{a} + {b} =", "{a} + {b} =", "Add: {a} + {b} =", "{a}+{b}=", "{a} plus {b} is",
                         "Question: What is {a} + {b}?\nAnswer:"])
    ask = rng.choice(ADD_ASKS[:5] if test else ADD_ASKS)
    if ask.startswith("Add {a} to"):
        answer = f"{b} + {a} = {a + b}."
    else:
        answer = f"{a} + {b} = {a + b}."
    return Task("addition", ask.format(a=a, b=b), answer, prompt.format(a=a, b=b), f" {a + b}")


# ---- words

def made_up_word(rng):
    """Syllables; pieces of two real words glued together; or, now and then, any letters at all."""
    length = rng.choices(range(2, 13), (1, 4, 6, 8, 10, 14, 16, 4, 2, 1, 1))[0]
    kind = rng.random()
    if kind < 0.15:
        return "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(length))
    word = ""
    while len(word) < length:
        if kind < 0.5:
            piece = rng.choice(words.WORDS if rng.random() < 0.6 else common_list())
            start = rng.randrange(len(piece) - 1)
            word += piece[start:start + rng.randint(2, 5)]
        else:
            word += rng.choice(words.ONSETS) + rng.choice(words.VOWELS) + rng.choice(words.CODAS)
            if rng.random() < 0.2:
                word += rng.choice(words.ENDINGS)
    return word[:length]


@functools.cache
def common_list():
    return sorted(common_words())


def pick_word(rng, test=False):
    while True:
        kind = rng.random()
        if test:
            word = rng.choice(words.WORDS) if kind < 0.5 else made_up_word(rng)
        elif kind < 0.2:
            word = rng.choice(common_list())
        else:
            word = rng.choice(words.WORDS) if kind < 0.35 else made_up_word(rng)
        if word_held_out(word) == test and (not test or 3 <= len(word) <= 8):
            return word


REVERSE_ASKS = ["Reverse the word {w}.", "Reverse {w}.", "Spell {w} backwards.", "What is {w} backwards?",
                "Write the word {w} backwards.", "Reverse the word \"{w}\".", "Please reverse {w}.",
                "Can you reverse the word {w}?", "How do you write {w} backwards?", "Reverse: {w}", "{w} backwards",
                "Reverse this word: {w}", "Turn the word {w} around.", "Say {w} in reverse."]


def reversal(rng, test=False):
    word = pick_word(rng, test)
    if not test and rng.random() < 0.06:
        word = word.capitalize() if rng.random() < 0.6 else word.upper()
    ask = rng.choice(REVERSE_ASKS[:5] if test else REVERSE_ASKS).format(w=word)
    prompt = rng.choice(["Reverse: {w} ->", "{w} backwards is", "Question: Reverse the word {w}.\nAnswer:"])
    return Task("reversal", ask, word[::-1], prompt.format(w=word), " " + word[::-1], letters=True)


def letters_of_word(rng):
    word = pick_word(rng)
    ask = rng.choice(["Spell the word {w}.", "Spell {w}.", "How do you spell {w}?", "Which letters are in {w}?",
                      "What are the letters of {w}?", "Spell the word \"{w}\"."]).format(w=word)
    spelled = " ".join(word)
    return Task("letters", ask, spelled, f"Letters: {word} ->", " " + spelled)


# ---- numbers

SPELL_ASKS = ["Spell the number {n}.", "Spell {n}.", "Write {n} in words.", "Spell out {n}.", "How do you spell {n}?",
              "Write the number {n} in words.", "How do you write {n} in words?", "What is {n} in words?",
              "Say {n} in words.", "Please spell the number {n}.", "{n} in words", "Spell: {n}"]


def pick_number(rng, test=False):
    while True:
        n = rng.randrange(1000) if rng.random() < 0.85 else rng.randrange(100)
        if held_out("number", n) == test:
            return n


def number(rng, test=False, n=None):
    n = pick_number(rng, test) if n is None else n
    ask = rng.choice(SPELL_ASKS[:5] if test else SPELL_ASKS).format(n=n)
    prompt = rng.choice([f"Spell: {n} ->", f"{n} in words:", f"Question: Spell the number {n}.\nAnswer:"])
    return Task("spelling", ask, spell_number(n), prompt, " " + spell_number(n))


# ---- patterns

WORD_PATTERNS = ["red blue green yellow black white pink orange".split(), "sun moon star cloud rain snow".split(),
                 "one two three four five six".split()]

def pattern_terms(rng):
    """Shown terms and the three that follow, as one list of 3 + shown terms."""
    kind = rng.random()
    if kind < 0.35:
        step, shown = rng.randint(1, 12), rng.randint(4, 6)
        if rng.random() < 0.2:
            step = rng.choice((20, 25, 50, 100))
        low = rng.randint(0, 30 if rng.random() < 0.7 else 200)
        terms = [low + step * i for i in range(shown + 3)]
        return terms[::-1] if rng.random() < 0.25 else terms
    if kind < 0.42:
        start, shown = rng.randint(1, 7), rng.randint(4, 5)
        return [start * 2 ** i for i in range(shown + 3)]
    if kind < 0.57:
        step = rng.randint(1, 3)
        shown = rng.randint(3, 5)
        start = rng.randrange(26 - step * (shown + 2))
        letters = [chr(97 + start + step * i) for i in range(shown + 3)]
        return letters[::-1] if rng.random() < 0.2 else letters
    period = rng.randint(2, 4)
    pool = rng.choice([list("abcdefghijklmnopqrstuvwxyz"), list(range(10)), list("abcde"),
                       words.ANIMALS[:20], *WORD_PATTERNS])
    cycle = rng.sample(pool, period)
    if period > 2 and rng.random() < 0.25:
        cycle[1] = cycle[0]
    shown = 2 * period + rng.randrange(period + 1)
    return [cycle[i % period] for i in range(shown + 3)]


PATTERN_ASKS = ["Continue the pattern: {p}", "Continue: {p}", "What comes next: {p}", "What comes next? {p}",
                "Continue the series {p}", "Complete the pattern: {p}", "Which three come next: {p}",
                "Please continue this pattern: {p}", "Next in the pattern {p}?"]


def pattern(rng, test=False):
    while True:
        terms = [str(term) for term in pattern_terms(rng)]
        # The key leaves out how many terms are shown: a longer view of a held-out pattern is held out as well.
        if held_out("pattern", " ".join(terms[:5])) == test:
            break
    joint = ", " if rng.random() < 0.25 else " "
    shown, rest = joint.join(terms[:-3]), joint.join(terms[-3:])
    ask = rng.choice(PATTERN_ASKS[:3] if test else PATTERN_ASKS).format(p=shown)
    return Task("pattern", ask, rest, f"Continue: {shown} ->", " " + rest)
