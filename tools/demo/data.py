"""Generates the demo model's rows: short tasks, small talk, stories, as chats and as plain completions.

Items to be tested (additions, numbers to spell, words to reverse, patterns) are split off by a hash of their key,
so that no training row ever shows one of them. `data.py --heldout DIR` writes the test files, `data.py --sample N`
prints training rows. Standard library only.
"""
import argparse
import json
import os
import random
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
    # A word and its reversal share a key: each gives the other away.
    return held_out("word", min(word.lower(), word.lower()[::-1]))


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
            piece = rng.choice(words.WORDS)
            start = rng.randrange(len(piece) - 1)
            word += piece[start:start + rng.randint(2, 5)]
        else:
            word += rng.choice(words.ONSETS) + rng.choice(words.VOWELS) + rng.choice(words.CODAS)
            if rng.random() < 0.2:
                word += rng.choice(words.ENDINGS)
    return word[:length]


def pick_word(rng, test=False):
    while True:
        word = rng.choice(words.WORDS) if rng.random() < (0.5 if test else 0.25) else made_up_word(rng)
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
                       "red blue green yellow black white pink orange".split(), words.ANIMALS[:20],
                       "sun moon star cloud rain snow".split(), "one two three four five six".split()])
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


# ---- small talk, facts and refusals

ABOUT = "I am the Fovea demo model, a very small language model."
SKILLS = ("I can add two numbers of up to three digits, reverse a word, spell a number, continue a pattern, "
          "tell a short story and chat a little.")
CANNOT = "I am a very small model; I can add, reverse, spell, continue patterns and tell short stories."
TALK = [
    (["Hello!", "Hello", "Hi!", "Hi", "Hey", "Hello there!", "Hi there!", "Greetings!", "Hello, model!"],
     "Hello! How can I help you?"),
    (["Good morning!", "Good morning"], "Good morning! How can I help you?"),
    (["Good evening!", "Good evening"], "Good evening! How can I help you?"),
    (["Good night!", "Good night"], "Good night! Sleep well."),
    (["How are you?", "How are you today?", "How do you do?", "How is it going?"],
     "I am well, thank you. What shall we do?"),
    (["Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Who is this?",
      "Introduce yourself.", "Which model are you?", "Are you a person?", "Are you a language model?"], ABOUT),
    (["What can you do?", "What are you able to do?", "How can you help me?", "Help", "Help me", "What do you know?",
      "What are your skills?", "What should I ask you?"], SKILLS),
    (["Who made you?", "Where do you come from?", "Who trained you?", "Why do you exist?"],
     "I was trained to show that the Fovea inference engine works."),
    (["What is Fovea?", "Tell me about Fovea."], "Fovea is an engine that runs language models like me."),
    (["Thanks!", "Thank you!", "Thank you", "Thanks a lot!", "Thank you very much.", "Great, thanks.", "Thanks"],
     "You are welcome!"),
    (["Bye!", "Goodbye!", "See you later!", "Bye", "Goodbye", "See you tomorrow."], "Goodbye! Have a nice day."),
    (["Well done!", "Good job!", "That is right.", "Correct!", "Nice!", "Great!", "Wow!"], "Thank you! What is next?"),
    (["I like you.", "You are nice.", "You are funny."], "Thank you, that is kind."),
    (["I am sad.", "I feel sad today.", "I am not happy."], "I am sorry to hear that. Would you like a short story?"),
    (["I am bored.", "What shall we do?", "I have nothing to do."],
     "I can tell you a short story. Just name an animal."),
    (["Yes", "Yes, please.", "OK", "Okay", "Sure"], "Good! Tell me what you would like."),
    (["No", "No, thanks.", "No, thank you."], "All right. Tell me if you need anything."),
]
LANGUAGES = "French German Spanish Italian Latin Greek Polish Dutch Japanese Chinese".split()
TOPICS = """the weather politics football music history physics chess money space dinosaurs computers cars cooking
medicine art geography movies games""".split()


def cannot(rng):
    a, b = rng.randrange(2, 1000), rng.randrange(2, 1000)
    word = pick_word(rng)
    ask = rng.choice([
        f"What is {a} times {b}?", f"Multiply {a} by {b}.", f"What is {a} * {b}?", f"{a} * {b}", f"{a} x {b}",
        f"What is {a} minus {b}?", f"{a} - {b}", f"{a} - {b} =", f"Subtract {b} from {a}.", f"Divide {a} by {b}.",
        f"What is {a} / {b}?", f"What is the square root of {a}?", f"Translate {word} into {rng.choice(LANGUAGES)}.",
        f"How do you say {word} in {rng.choice(LANGUAGES)}?", f"What is the meaning of {word}?",
        f"What does {word} mean?", f"Explain {rng.choice(TOPICS)}.", f"Tell me about {rng.choice(TOPICS)}.",
        f"What do you think about {rng.choice(TOPICS)}?", "Write a poem.", f"Write a poem about a {word}.",
        "Write some code.", "Write a program that sorts a list.", "Write an essay.", "What time is it?",
        "What is the date today?", "What is the weather like?", "Will it rain tomorrow?", "Who is the president?",
        "Draw a picture.", f"Draw a {word}.", "Sing a song.", "Play some music.", "Search the web.", "Tell me a joke.",
        "What is the latest news?", "Who won the game?", f"Give me a recipe for {rng.choice(TOPICS)}.",
        "Write an email to my boss.", "Can you drive a car?", "What is the meaning of life?"])
    return Task("refusal", ask, CANNOT, "", "")


def too_big(rng):
    a, b = rng.randrange(1000, 100000), rng.randrange(1, 100000)
    if rng.random() < 0.5:
        a, b = b, a
    return Task("refusal", rng.choice(ADD_ASKS).format(a=a, b=b), "I can only add numbers of up to three digits.", "", "")


def talk(rng):
    asks, answer = rng.choice(TALK)
    return Task("talk", rng.choice(asks), answer, "", "")


def fact(rng):
    kind = rng.random()
    if kind < 0.35:
        asks, answer = rng.choice(words.FACTS)
        ask = rng.choice(asks)
    elif kind < 0.55:
        country, capital = rng.choice(list(words.CAPITALS.items()))
        ask = rng.choice(["What is the capital of {c}?", "Which city is the capital of {c}?", "Capital of {c}?"])
        ask, answer = ask.format(c=country), f"The capital of {country} is {capital}."
    elif kind < 0.8:
        names, unit = rng.choice([(words.DAYS, "day"), (words.MONTHS, "month")])
        i = rng.randrange(len(names))
        side, j = rng.choice([("after", i + 1), ("before", i - 1)])
        ask = rng.choice([f"What {unit} comes {side} {names[i]}?", f"Which {unit} comes {side} {names[i]}?",
                          f"Which {unit} is {side} {names[i]}?"])
        answer = f"{names[j % len(names)]} comes {side} {names[i]}."
    elif kind < 0.9:
        pair = rng.choice(words.OPPOSITES)
        a, b = pair if rng.random() < 0.5 else pair[::-1]
        ask = rng.choice([f"What is the opposite of {a}?", f"Name the opposite of {a}."])
        answer = f"The opposite of {a} is {b}."
    elif kind < 0.95:
        animal, sound = rng.choice(list(words.SOUNDS.items()))
        ask = rng.choice([f"What does {stories.article(animal)} say?", f"What sound does {stories.article(animal)} make?"])
        answer = f"{stories.article(animal).capitalize()} says {sound}."
    else:
        names, unit = rng.choice([(words.DAYS, "days of the week"), (words.MONTHS, "months of the year")])
        ask = rng.choice([f"Name the {unit}.", f"What are the {unit}?", f"List the {unit}."])
        answer = ", ".join(names[:-1]) + " and " + names[-1] + "."
    return Task("fact", ask, answer, f"Question: {ask}\nAnswer:", " " + answer)


# ---- stories

def tell(rng):
    hero = stories.pick_hero(rng)
    if rng.random() < 0.1:  # an unknown hero: the name has to be copied
        hero = pick_word(rng)
    one = stories.article(hero)
    asks = [f"Tell me a short story about {one}.", f"Tell me a story about {one}.", f"Write a short story about {one}.",
            f"Tell a story about {one}.", f"Can you tell me a short story about {one}?", f"A story about {one}, please.",
            f"I want to hear a story about {one}.", f"Please tell me a short story about {one}."]
    kind, name = rng.random(), None
    if kind < 0.65:
        ask = rng.choice(asks)
    elif kind < 0.85:
        ask, name = rng.choice(asks[:5]), rng.choice(words.NAMES)
        ask = ask[:-1] + f" named {name}" + ask[-1]
    else:
        ask = rng.choice(["Tell me a story.", "Tell me a short story.", "Write a short story.", "Tell me another story.",
                          "Do you know a story?", "I would like to hear a story."])
    text = stories.story(rng, hero, name)
    # A plain story is trained from its very first word, or from a title.
    prompt = rng.choice(["", f"A story about {one}:\n"])
    return Task("story", ask, text, prompt, text, long=True)


# ---- rows

TASKS = [(addition, 27), (reversal, 27), (number, 9), (letters_of_word, 6), (pattern, 11), (talk, 4), (fact, 4),
         (cannot, 3), (too_big, 1), (tell, 8)]
SYSTEMS = ["You are a helpful assistant.", "You are the Fovea demo model.", "Answer briefly.", "Be kind and helpful.",
           "You are a small and friendly model.", "Help the user.", "You are a chat model. Answer in English."]
NUMBER_ONLY = ["Answer with the number only.", "Give only the number.", "Reply with the result only."]


def pick_task(rng):
    return rng.choices([task for task, _ in TASKS], [weight for _, weight in TASKS])[0](rng)


def roughen(rng, text):
    """People leave out capitals and full stops, and some say please."""
    if rng.random() < 0.15:
        text = text[0].lower() + text[1:]
    if text[-1] in ".?!" and rng.random() < 0.15:
        text = text[:-1]
    elif text[-1] == "." and rng.random() < 0.05:
        text = text[:-1] + ", please."
    return text


def chat(rng, tasks):
    """A row {"messages": [...]}; each assistant message carries how it is trained."""
    messages = []
    short = False
    if rng.random() < 0.15:
        short = tasks[0].name == "addition" and rng.random() < 0.4
        messages.append({"role": "system", "content": rng.choice(NUMBER_ONLY if short else SYSTEMS)})
    for task in tasks:
        answer = task.answer
        if short and task.name == "addition":
            answer = answer.split("= ")[1].rstrip(".")
        messages.append({"role": "user", "content": roughen(rng, task.user)})
        messages.append({"role": "assistant", "content": answer, "letters": task.letters, "long": task.long})
    return {"messages": messages}


def row(rng):
    """One training row: {"messages": ...} or {"prompt": ..., "completion": ...}."""
    if rng.random() < 0.25:
        while True:
            task = pick_task(rng)
            if task.completion:
                return {"prompt": task.prompt, "completion": task.completion, "letters": task.letters,
                        "long": task.long}
    turns = rng.choices((1, 2, 3, 4, 6, 9, 14, 20), (66, 13, 8, 6, 3, 2, 1, 1))[0]
    tasks = [pick_task(rng) for _ in range(turns)]
    # Now and then a turn that refers to the one before it.
    for i in range(1, turns):
        if tasks[i].name == "addition" and tasks[i - 1].name == "addition" and rng.random() < 0.5:
            a, b = pick_addition(rng)
            tasks[i] = tasks[i]._replace(user=rng.choice(["And {a} + {b}?", "And what is {a} + {b}?", "And {a} plus {b}?"])
                                         .format(a=a, b=b), answer=f"{a} + {b} = {a + b}.")
        elif tasks[i].name == "reversal" and tasks[i - 1].name == "reversal" and rng.random() < 0.5:
            word = pick_word(rng)
            tasks[i] = tasks[i]._replace(user=rng.choice(["And {w}?", "Now {w}.", "And the word {w}?"]).format(w=word),
                                         answer=word[::-1])
    return chat(rng, tasks)


# ---- test files

def test_row(rng, task, i):
    """Three rows in four are chats; of these, one in five has earlier turns or a system message."""
    if i % 4 == 3:
        return {"prompt": task.prompt, "expected": task.completion.strip(), "task": task.name}
    messages = []
    if i % 20 == 0:
        messages.append({"role": "system", "content": rng.choice(SYSTEMS)})
    if i % 20 == 10:
        earlier = rng.choice([talk, number, pattern, fact])(rng)
        messages += [{"role": "user", "content": earlier.user}, {"role": "assistant", "content": earlier.answer}]
    messages.append({"role": "user", "content": task.user})
    return {"messages": messages, "expected": task.answer, "task": task.name}


def write_rows(folder, name, rows):
    with open(os.path.join(folder, name + ".jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)


def heldout_files(folder, rows=200, seed=20251120):
    rng = random.Random(seed)
    # Words that occur in stories or small talk have been seen, though never reversed: no test uses them.
    seen = " ".join(stories.story(rng) for _ in range(20000))
    seen += " ".join(json.dumps(words.FACTS) + json.dumps(TALK) + task(rng).user + " " + task(rng).answer
                     for task in (fact, talk) for _ in range(3000))
    seen += " ".join(words.ANIMALS + words.THINGS + "red blue green yellow black white pink orange rain snow".split())
    seen = set("".join(c if c.isalpha() else " " for c in seen.lower()).split())
    os.makedirs(folder, exist_ok=True)
    numbers = [n for n in range(1000) if held_out("number", n)]
    makers = {"addition": addition, "reversal": reversal, "pattern": pattern,
              "spelling": lambda rng, test: number(rng, test, next(left))}
    for name, make in makers.items():
        # There are only about 200 numbers to test; they are taken in order. Every other kind has plenty.
        left = iter(numbers)
        keys, out = set(), []
        while len(out) < (min(rows, len(numbers)) if name == "spelling" else rows):
            task = make(rng, True)
            key = task.answer  # the answer of an addition names both terms
            if name == "addition":
                key = " + ".join(sorted(key.split(" = ")[0].split(" + ")))
            elif name == "pattern":
                key = task.prompt
            if key in keys or (name == "reversal" and {key, key[::-1]} & seen):
                continue
            keys.add(key)
            out.append(test_row(rng, task, len(out)))
        write_rows(folder, name, out)
    # Long chats that end in a task from above: does the model still do it after 4 to 14 turns?
    out = []
    while len(out) < rows // 2:
        messages = []
        for task in [pick_task(rng) for _ in range(rng.randint(4, 14))]:
            messages += [{"role": "user", "content": task.user}, {"role": "assistant", "content": task.answer}]
        task = rng.choice([addition, reversal, number])(rng, True)
        if sum(len(message["content"]) for message in messages) < 1800:  # well inside the context
            messages.append({"role": "user", "content": task.user})
            out.append({"messages": messages, "expected": task.answer, "task": "chat"})
    write_rows(folder, "chat", out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heldout", metavar="DIR", help="write the test files there")
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="print N training rows")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.heldout:
        heldout_files(args.heldout)
    generator = random.Random(args.seed)
    for _ in range(args.sample):
        print(json.dumps(row(generator)))
