"""Scores a demo model through `fovea generate` on the held-out rows; exit status 1 if a task misses its limit."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HELD_OUT = os.path.join(HERE, "heldout")
# Share of rows that must be exactly right, in percent; none is set for patterns and long chats.
LIMITS = {"addition": 95, "spelling": 95, "reversal": 90, "pattern": 0, "chat": 0}


def read_rows(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def report(name, rows, answers, log=print, failures=5):
    """Prints one line of the table and a few failures; returns whether the limit is met."""
    wrong = [(row, answer) for row, answer in zip(rows, answers) if answer.strip() != row["expected"].strip()]
    percent = 100 * (len(rows) - len(wrong)) / len(rows)
    limit = LIMITS.get(name, 0)
    passed = len(answers) == len(rows) and percent >= limit
    log(f"{name:<10} {len(rows) - len(wrong):>4} / {len(rows):<4} {percent:6.1f} %  limit {limit:>3} %  "
        f"{'ok' if passed else 'MISSED'}")
    for row, answer in wrong[:failures]:
        asked = row["prompt"] if "prompt" in row else row["messages"][-1]["content"]
        log(f"    {asked!r}: expected {row['expected']!r}, got {answer!r}")
    return passed


def answers_of(args, rows, name, folder):
    prompts, output = (os.path.join(folder, f"{name}.{end}.jsonl") for end in ["prompts", "answers"])
    with open(prompts, "w", encoding="utf-8") as f:
        for row in rows:
            f.write(json.dumps({key: row[key] for key in ["prompt", "messages"] if key in row}) + "\n")
    command = [args.fovea, "generate", "--model", args.model, "--input", prompts,
               "--output", output, "--temperature", "0", "--max-tokens", str(args.max_tokens), *args.extra]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return [row["text"] for row in sorted(read_rows(output), key=lambda row: row["index"])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fovea", default=os.path.join(ROOT, "build", "release", "bin", "fovea"), help="the fovea binary")
    parser.add_argument("--model", default=os.path.join(ROOT, "models", "demo"))
    parser.add_argument("--tasks", nargs="*", default=list(LIMITS), choices=list(LIMITS))
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("extra", nargs="*", help="further options for fovea generate, after --")
    args = parser.parse_args()
    passed = True
    with tempfile.TemporaryDirectory() as folder:
        for name in args.tasks:
            rows = read_rows(os.path.join(HELD_OUT, name + ".jsonl"))
            passed &= report(name, rows, answers_of(args, rows, name, folder))
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
