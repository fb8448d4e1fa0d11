#!/usr/bin/env python3
"""JSON-Schema-Test-Suite against the grammars of schemas.

json_schema_suite.py PROBE [SUITE]

SUITE is a checkout of the suite, or the folder that Debian's json-schema-test-suite installs (the default); without one
the test is skipped. A valid instance must be allowed with its properties in some order, an invalid one in none. A schema
that is refused must be refused by the name of a keyword. Valid instances in a spelling that grammars leave out (1.0 for
an integer, a property twice) are counted as narrower; any that NARROWER does not list fails the test.
"""

import itertools
import json
import pathlib
import subprocess
import sys

DEBIAN = "/usr/share/json-schema-test-suite"
MOST_ORDERS = 120
# What is an annotation in draft 2020-12, and may be enforced in draft 7.
ANNOTATIONS = {"draft7": {"optional/content.json"}}
# By file of draft 2020-12: valid instances that are not allowed. Numbers have one spelling in const and enum, integers no
# point; formats are enforced, though annotations by default; no leap seconds, no encoded Unicode in host names, no quoted local parts of addresses; numbers
# with an exponent are no multiples; a meta-schema that turns keywords off is not read.
NARROWER = {"const.json": 4, "enum.json": 4, "format.json": 14, "optional/float-overflow.json": 1, "optional/format/date-time.json": 2,
            "optional/format/email.json": 5, "optional/format/hostname.json": 15, "optional/format/time.json": 6, "type.json": 1, "vocabulary.json": 1}


def orders(value):
    """The value with the properties of its objects in every order, up to a limit."""
    if isinstance(value, list):
        for items in itertools.product(*[list(orders(item)) for item in value]):
            yield list(items)
    elif isinstance(value, dict):
        keys = list(value)
        for permuted in itertools.permutations(keys) if len(keys) <= 5 else [keys, keys[::-1]]:
            for items in itertools.product(*[list(orders(value[key])) for key in permuted]):
                yield dict(zip(permuted, items))
    else:
        yield value


def texts_of(value):
    every = itertools.islice(orders(value), MOST_ORDERS)
    return list(dict.fromkeys(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in every))


def main():
    probe = sys.argv[1]
    suite = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else DEBIAN)
    drafts = [suite / "tests" / name for name in ("draft2020-12", "draft7") if (suite / "tests" / name).is_dir()]
    if not drafts:
        print(f"skipped: no JSON-Schema-Test-Suite in {suite}")
        return 77
    folder = drafts[0]
    groups = []
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        if name in ANNOTATIONS.get(folder.name, ()):
            continue
        for group in json.loads(path.read_text()):
            groups.append((name, group))
    lines = [json.dumps({"schema": json.dumps(group["schema"]),
                         "texts": [text for test in group["tests"] for text in texts_of(test["data"])]})
             for _, group in groups]
    answer = subprocess.run([probe], input="\n".join(lines) + "\n", capture_output=True, text=True, check=False)
    verdicts = answer.stdout.splitlines()
    if answer.returncode or len(verdicts) != len(lines):
        print(f"the probe ended with {answer.returncode} after {len(verdicts)} of {len(lines)} schemas: {answer.stderr}")
        return 1
    counts = {"allowed": 0, "refused": 0, "narrower": 0, "wider": 0}
    refused_schemas, reasons, narrower = 0, {}, {}
    for (name, group), verdict in zip(groups, verdicts):
        if verdict.startswith("error: "):
            refused_schemas += 1
            reasons.setdefault(name, []).append(f"{group['description']}: {verdict[7:]}")
            # A schema that allows nothing may be refused if no instance is valid.
            if "no text at all" in verdict and any(test["valid"] for test in group["tests"]):
                narrower.setdefault(name, []).append(group["description"] + ": " + verdict)
            continue
        at = 0
        for test in group["tests"]:
            count = len(texts_of(test["data"]))
            allowed = "1" in verdict[at:at + count]
            at += count
            if allowed == test["valid"]:
                counts["allowed" if allowed else "refused"] += 1
            else:
                kind = "wider" if allowed else "narrower"
                counts[kind] += 1
                narrower.setdefault(name, []).append(f"{kind}: {group['description']}: {test['description']}: {test['data']!r}"[:200])
    print(f"{folder}: {len(groups)} schemas, {refused_schemas} refused by name; instances: {counts}")
    failed = 0
    for name, cases in narrower.items():
        expected = NARROWER.get(name, 0)
        if len(cases) != expected or "-v" in sys.argv:
            failed += len(cases) != expected
            print(f"{name}: {len(cases)} differences, expected {expected}")
            for case in cases:
                print("   ", case)
    if "-v" in sys.argv:
        for name, cases in reasons.items():
            print(name)
            for case in cases:
                print("   ", case[:240])
    return 1 if counts["wider"] or (failed and folder.name == "draft2020-12") else 0


if __name__ == "__main__":
    sys.exit(main())
