"""Turns generated rows into token rows with a loss weight per token, sorted into buckets of fixed length."""
import os
import random

import numpy as np
from tokenizers import Tokenizer

import data
from tokenizer import ASSISTANT, BOS, END, EOS, SYSTEM, USER

ROLES = {"system": SYSTEM, "user": USER, "assistant": ASSISTANT}
# Tokens in a row of each bucket. Padding to one of few lengths keeps the shapes fixed for torch.compile.
LENGTHS = (64, 192, 1024)
TASK_WEIGHT, STORY_WEIGHT = 4, 1


class Encoder:
    def __init__(self, folder):
        self.tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.single = {chr(c): self.tokenizer.token_to_id(chr(c)) for c in range(33, 127)}
        self.single[" "] = self.tokenizer.token_to_id("\u0120")  # the byte alphabet's name for a space

    def text(self, text, letters=False):
        if letters:
            return [self.single[c] for c in text]
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def row(self, row):
        """Token ids and weights; only what the model itself has to say counts."""
        ids, weights = [BOS], [0]

        def add(tokens, weight):
            ids.extend(tokens)
            weights.extend([weight] * len(tokens))

        if "messages" not in row:
            add(self.text(row["prompt"]), 0)
            add(self.text(row["completion"], row["letters"]) + [EOS], STORY_WEIGHT if row["long"] else TASK_WEIGHT)
            return ids, weights
        last = row["messages"][-1]
        for message in row["messages"]:
            add([ROLES[message["role"]]], 0)
            if message["role"] != "assistant":
                add(self.text(message["content"]) + [END], 0)
            elif message["letters"] and message is not last:
                # In a real chat this answer comes back through the tokenizer: show it as that cuts it.
                add(self.text(message["content"]) + [END], 0)
            else:
                add(self.text(message["content"], message["letters"]) + [END],
                    STORY_WEIGHT if message["long"] else TASK_WEIGHT)
        return ids, weights


def bucket_of(length):
    return next((i for i, limit in enumerate(LENGTHS) if length <= limit + 1), None)


def bucket_shares(encoder, rows=8000):
    """How much of the data falls into each bucket."""
    rng = random.Random(0)
    found = [bucket_of(len(encoder.row(data.row(rng))[0])) for _ in range(rows)]
    return [found.count(i) / rows for i in range(len(LENGTHS))]


def batches(folder, counts, seed):
    """Endless training steps: for each bucket an int16 array [count, length + 1] of ids and one of weights."""
    encoder, rng = Encoder(folder), random.Random(seed)
    waiting = [[] for _ in LENGTHS]
    while True:
        while any(len(queue) < count for queue, count in zip(waiting, counts)):
            ids, weights = encoder.row(data.row(rng))
            bucket = bucket_of(len(ids))
            # A full queue drops rows, so that a bucket that lags behind cannot fill the memory.
            if bucket is not None and len(waiting[bucket]) < 4 * counts[bucket]:
                waiting[bucket].append((ids, weights))
        step = []
        for i, (queue, count) in enumerate(zip(waiting, counts)):
            ids = np.full((count, LENGTHS[i] + 1), EOS, np.int16)
            weights = np.zeros((count, LENGTHS[i] + 1), np.uint8)
            for j, (row_ids, row_weights) in enumerate(queue[:count]):
                ids[j, :len(row_ids)] = row_ids
                weights[j, :len(row_weights)] = row_weights
            del queue[:count]
            step += [ids, weights]
        yield step
