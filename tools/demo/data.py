"""Generates the demo model's rows: short tasks, small talk, stories, as chats and as plain completions.

`data.py --heldout DIR` writes the test files, `data.py --sample N` prints training rows. Standard library only.
"""
import argparse
import json
import os
import random

import stories
import words
from skills import (ADD_ASKS, Task, addition, held_out, letters_of_word, number, pattern, pick_addition, pick_word,
                    reversal)

# ---- small talk, facts and refusals

def cannot(rng):
    a, b = rng.randrange(2, 1000), rng.randrange(2, 1000)
    word = pick_word(rng)
    ask = rng.choice([
        f"What is {a} times {b}?", f"Multiply {a} by {b}.", f"What is {a} * {b}?", f"{a} * {b}", f"{a} x {b}",
        f"What is {a} minus {b}?", f"{a} - {b}", f"{a} - {b} =", f"Subtract {b} from {a}.", f"Divide {a} by {b}.",
        f"What is {a} / {b}?", f"What is the square root of {a}?",
        f"Translate {word} into {rng.choice(words.LANGUAGES)}.",
        f"How do you say {word} in {rng.choice(words.LANGUAGES)}?", f"What is the meaning of {word}?",
        f"What does {word} mean?", f"Explain {rng.choice(words.TOPICS)}.", f"Tell me about {rng.choice(words.TOPICS)}.",
        f"What do you think about {rng.choice(words.TOPICS)}?", f"Write a poem about a {word}.", f"Draw a {word}.",
        f"Give me a recipe for {rng.choice(words.TOPICS)}.", *words.CANNOT_ASKS])
    return Task("refusal", ask, words.CANNOT, "", "")


def too_big(rng):
    a, b = rng.randrange(1000, 100000), rng.randrange(1, 100000)
    if rng.random() < 0.5:
        a, b = b, a
    ask = rng.choice(ADD_ASKS).format(a=a, b=b)
    return Task("refusal", ask, "I can only add numbers of up to three digits.", "", "")


def talk(rng):
    asks, answer = rng.choice(words.TALK)
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
        one = stories.article(animal)
        ask = rng.choice([f"What does {one} say?", f"What sound does {one} make?"])
        answer = f"{one.capitalize()} says {sound}."
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
            f"Tell a story about {one}.", f"Can you tell me a short story about {one}?",
            f"A story about {one}, please.",
            f"I want to hear a story about {one}.", f"Please tell me a short story about {one}."]
    kind, name = rng.random(), None
    if kind < 0.65:
        ask = rng.choice(asks)
    elif kind < 0.85:
        ask, name = rng.choice(asks[:5]), rng.choice(words.NAMES)
        ask = ask[:-1] + f" named {name}" + ask[-1]
    else:
        ask = rng.choice(["Tell me a story.", "Tell me a short story.", "Write a short story.",
                          "Tell me another story.", "Do you know a story?", "I would like to hear a story."])
    text = stories.story(rng, hero, name)
    # A plain story is trained from its very first word, or from a title.
    prompt = rng.choice(["", f"A story about {one}:\n"])
    return Task("story", ask, text, prompt, text, long=True)


# ---- rows

TASKS = [(addition, 27), (reversal, 27), (number, 9), (letters_of_word, 6), (pattern, 11), (talk, 4), (fact, 4),
         (cannot, 3), (too_big, 1), (tell, 8)]
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
        messages.append({"role": "system", "content": rng.choice(words.NUMBER_ONLY if short else words.SYSTEMS)})
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
            ask = rng.choice(["And {a} + {b}?", "And what is {a} + {b}?", "And {a} plus {b}?"]).format(a=a, b=b)
            tasks[i] = tasks[i]._replace(user=ask, answer=f"{a} + {b} = {a + b}.")
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
        messages.append({"role": "system", "content": rng.choice(words.SYSTEMS)})
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
            if key in keys:
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
