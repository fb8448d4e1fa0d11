"""Scores a saved demo model with transformers, greedily: the same rows and rule as evaluate.py, without Fovea."""
import argparse
import os

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from evaluate import HELD_OUT, LIMITS, read_rows, report
from skills import common_list

SAMPLES = [
    [("user", "Hello!")], [("user", "Who are you?")], [("user", "What can you do?")], [("user", "What is 275 + 148?")],
    [("user", "Reverse the word lantern.")], [("user", "Spell the number 417.")], [("user", "what's 9 plus 8")],
    [("user", "Continue the pattern: 2 4 6 8")], [("user", "Continue the pattern: a b c a b c a")],
    [("user", "Tell me a short story about a fox.")], [("user", "Tell me a short story about a robot named Pip.")],
    [("user", "Tell me a story.")], [("user", "A story about a penguin, please.")],
    [("user", "Tell me a short story about a goblin.")], [("user", "Reverse FOVEA")], [("user", "Reverse hello")],
    [("user", "Reverse the word computer.")], [("user", "Spell the word friend.")],
    [("system", "Answer with the number only."), ("user", "What is 650 + 380?")], [("user", "What is 4 + 5 + 6?")],
    [("user", "What is the capital of Norway?")], [("user", "Spell the word garden.")],
    [("user", "What is 12 times 7?")], [("user", "What day comes after Monday?")],
    [("user", "Tell me a short story about an owl."), ("assistant", None), ("user", "Thanks! What is 58 + 67?"),
     ("assistant", None), ("user", "Reverse the word planet."), ("assistant", None), ("user", "Spell 999.")],
    "Once upon a time", "275 + 148 =", "Reverse: window ->",
]


def generate(model, tokenizer, texts, max_new_tokens):
    # Left padding, so that all prompts end in the last column.
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left",
                      add_special_tokens=False).to(model.device)
    with torch.inference_mode():
        out = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=False,
                             max_new_tokens=max_new_tokens)
    return tokenizer.batch_decode(out[:, batch["input_ids"].shape[1]:], skip_special_tokens=True)


def text_of(tokenizer, row):
    if "messages" in row:
        return tokenizer.apply_chat_template(row["messages"], add_generation_prompt=True, tokenize=False)
    return tokenizer.bos_token + row["prompt"]


def score_folder(folder, log=print):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()
    model.generation_config.max_length = None
    for name in LIMITS:
        rows = read_rows(os.path.join(HELD_OUT, name + ".jsonl"))
        answers = generate(model, tokenizer, [text_of(tokenizer, row) for row in rows], 48)
        report(name, rows, answers, log)
    # Words that the model was trained on; people are likely to try them.
    known = [word for word in common_list() if len(word) > 2]
    rows = [{"messages": [{"role": "user", "content": f"Reverse the word {word}."}], "expected": word[::-1]}
            for word in known]
    report("known", rows, generate(model, tokenizer, [text_of(tokenizer, row) for row in rows], 24), log, 20)

    def messages_of(sample):
        return [{"role": role, "content": content} for role, content in sample if content is not None]

    single = [sample for sample in SAMPLES if isinstance(sample, str) or ("assistant", None) not in sample]
    texts = [tokenizer.bos_token + sample if isinstance(sample, str)
             else text_of(tokenizer, {"messages": messages_of(sample)}) for sample in single]
    for text, answer in zip(texts, generate(model, tokenizer, texts, 220)):
        log(f"{text}\n    -> {answer}")
    for sample in SAMPLES:
        if sample in single:
            continue
        messages = []
        for role, content in sample + [("assistant", None)]:
            if content is None:
                content = generate(model, tokenizer, [text_of(tokenizer, {"messages": messages})], 220)[0]
            messages.append({"role": role, "content": content})
            log(f"{role}: {content}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="the model's folder")
    score_folder(parser.parse_args().model)
