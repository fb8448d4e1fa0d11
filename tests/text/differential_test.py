#!/usr/bin/env python3
"""Compares our tokenizers and templates with other implementations of them.

differential_test.py TEXT_PROBE [--large]: TEXT_PROBE is our helper program. The oracles are npm packages beside this
file (npm ci) and python3-jinja2; what is not installed is skipped and said. --large adds a real vocabulary of 100,000
tokens (npm tiktoken).
"""
import collections
import importlib.metadata
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import make_tokenizers
import oracle_deviations
import template_cases
import tokenizer_cases
import tokenizer_kinds

HERE = pathlib.Path(__file__).resolve().parent


def ask(command, questions):
    result = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, check=False, cwd=HERE)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{result.stderr[-4000:]}")
    return json.loads(result.stdout)


def vocabulary_size(document):
    vocab = document["model"]["vocab"]
    tokens = set(vocab) if isinstance(vocab, dict) else {token for token, _ in vocab}
    return len(tokens | {token["content"] for token in document["added_tokens"]})


def tokenizer_jobs(folder):
    """The committed tokenizers, then those of tokenizer_kinds, which are written into `folder`."""
    jobs = []
    for seed, path in enumerate(sorted((HERE / "tokenizers").iterdir())):
        document = json.loads((path / "tokenizer.json").read_text())
        jobs.append({"dir": str(path), "encode": tokenizer_cases.encode_items(seed, 600),
                     "decode": tokenizer_cases.decode_items(seed, 300, vocabulary_size(document))})
    for seed, make in enumerate(tokenizer_kinds.KINDS, 100):
        document, config = make()
        path = pathlib.Path(folder) / make.__name__
        make_tokenizers.write(path, document, config)
        with_long = document["model"]["type"] == "BPE"  # the lattice of the oracle takes minutes for them
        jobs.append({"dir": str(path), "encode": tokenizer_cases.encode_items(seed, 300, with_long),
                     "decode": tokenizer_cases.decode_items(seed, 300, vocabulary_size(document))})
    return jobs


class Report:
    def __init__(self):
        self.compared = 0
        self.failed = 0
        self.skipped = collections.Counter()

    def check(self, what, question, ours, theirs):
        self.compared += 1
        if ours == theirs:
            return
        self.failed += 1
        if self.failed <= 20:
            print(f"DIFFERENT {what}\n  question {str(question)[:600]}\n  ours     {str(ours)[:600]!r}\n"
                  f"  theirs   {str(theirs)[:600]!r}")


def compare_tokenizers(report, jobs, ours, theirs):
    for job, our, their in zip(jobs, ours, theirs):
        name = pathlib.Path(job["dir"]).name
        if "error" in our:
            report.check(name, "load", our, None)
            continue
        deviation = oracle_deviations.Deviations(job["dir"])
        for kind in ("encode", "decode"):
            for question, a, b in zip(job[kind], our[kind], their[kind]):
                expected, skip = deviation.of(kind, question)
                if skip:
                    report.skipped[f"{name} {kind}"] += 1
                else:
                    report.check(f"{name} {kind}", question, a, b if expected is None else expected)


def outcome(answer):
    """Texts are compared; of errors only that there is one."""
    return "an error" if isinstance(answer, dict) else answer


def compare_templates(report, name, jobs, ours, theirs, is_known_difference=lambda job: False):
    for job, our, their in zip(jobs, ours, theirs):
        if is_known_difference(job):
            continue
        if outcome(our) != outcome(their):
            report.check(f"template, {name}", job, our, their)
        else:
            report.compared += 1


# What jinja2 learnt in 3.1.5; Debian 12 has 3.1.2.
NEWER_JINJA = ("list.pop()", "list.clear()", "{% set ns.b, ns.a = 5, 6 %}")


def is_newer_jinja(job):
    version = tuple(int(part) for part in importlib.metadata.version("jinja2").split(".")[:3])
    return version < (3, 1, 5) and any(text in job["template"] for text in NEWER_JINJA)


def large_vocabulary(report, probe):
    with tempfile.TemporaryDirectory() as folder:
        questions = {"dir": folder, "encode": tokenizer_cases.encode_items(99, 300), "decode": []}
        theirs = ask(["node", HERE / "tiktoken_oracle.mjs"], questions)
        ours = ask([probe], {"tokenizers": [questions], "templates": []})["tokenizers"]
        compare_tokenizers(report, [questions], ours, [theirs])


def main():
    probe = sys.argv[1]
    report = Report()
    folder = tempfile.TemporaryDirectory()
    questions = {"tokenizers": tokenizer_jobs(folder.name), "templates": template_cases.cases()}
    ours = ask([probe], questions)
    skipped = []
    if shutil.which("node") and (HERE / "node_modules" / "@huggingface").is_dir():
        theirs = ask(["node", HERE / "oracle.mjs"], questions)
        compare_tokenizers(report, questions["tokenizers"], ours["tokenizers"], theirs["tokenizers"])
        compare_templates(report, "@huggingface/jinja", questions["templates"], ours["templates"], theirs["templates"],
                          lambda job: not job["javascript"])
        if "--large" in sys.argv:
            large_vocabulary(report, probe)
    else:
        skipped.append("npm oracles (run npm ci in tests/text)")
    if importlib.util.find_spec("jinja2"):
        theirs = ask([sys.executable, HERE / "jinja_oracle.py"], questions)
        compare_templates(report, "jinja2", questions["templates"], ours["templates"], theirs["templates"], is_newer_jinja)
        if newer := sum(map(is_newer_jinja, questions["templates"])):
            skipped.append(f"{newer} templates that need jinja2 3.1.5; this is {importlib.metadata.version('jinja2')}")
    else:
        skipped.append("jinja2 (install python3-jinja2)")
    print(f"{report.compared} answers compared, {report.failed} differ")
    for name, count in report.skipped.items():
        print(f"not compared: {count} of {name}, where the oracle is known to be wrong")
    for name in skipped:
        print(f"SKIPPED: {name}")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
