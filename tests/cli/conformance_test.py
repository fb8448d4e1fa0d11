#!/usr/bin/env python3
"""fovea conformance as a user runs it; the committed proof is of the columns and claims of this code.

Usage: conformance_test.py PROGRAM SOURCE_DIR
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = sys.argv[1], sys.argv[2]


def run(*args):
    return subprocess.run([PROGRAM, "conformance", *args], capture_output=True, text=True, timeout=600)


def listed(*args):
    return [json.loads(line) for line in run("--list", "--json", *args).stdout.splitlines()]


class Conformance(unittest.TestCase):
    def test_one_cell(self):
        for backend in ("CPU_ATTN", "torch_native"):
            result = run("--quick", "--backend", backend, "--cell", "page_sizes=7")
            self.assertEqual(result.returncode, 0, result.stderr + result.stdout)
            self.assertIn("1 cells proven, 0 by other kernels, 0 refused, 0 not requested, 0 failed", result.stdout)

    def test_a_refusal(self):
        result = run("--backend", "CPU_ATTN", "--cell", "dcp=yes", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        proof = json.loads(result.stdout)
        self.assertEqual([b["cells"] for b in proof["backends"]],
                         [[{"cell": "dcp=yes", "status": "refused", "cases": 1, "prefill": {}, "decode": {}, "worst_error": 0, "worst_lse_error": 0,
                            "reason": "DCP not supported"}]])

    def test_a_case_again(self):
        result = run("--backend", "CPU_ATTN", "--case", str((16 << 12) + 5))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("1 cases, 0 failed", result.stdout)

    def test_list(self):
        rows = listed()
        self.assertIn({"backend": "CPU_ATTN", "version": rows[0]["version"], "device": "cpu", "cell": "window=yes", "status": "to prove"}, rows)
        self.assertTrue(any(r["backend"] == "FLASHINFER" and "absent" in r for r in rows))
        self.assertIn("not in this build", run("--list").stdout)

    def test_bad_input(self):
        for args, words in [
            (["--backend", "CPU_ATN"], "did you mean CPU_ATTN?"),
            (["--backend", "TRTLLM_MHA"], "not in this build"),
            (["--device", "sm75"], "--device sm75: "),  # no build has code for it
            (["--device", "rocm"], "nothing to prove"),
            (["--commit", "main"], "40 digits"),
            (["--device", "gpu"], "allowed are cpu"),
            (["--cell", "windw=yes"], "did you mean window=...?"),
            (["--cell", "window=maybe"], "values of window are yes"),
            (["--case", "65537"], "needs --backend"),
            (["--backend", "CPU_ATTN", "--case", "65536"], "does not exist"),
            (["--list", "--perf"], "exclude each other"),
            (["--write", "x.json", "--quick"], "whole run"),
            (["--write", "/nowhere/x.json"], "cannot write /nowhere/x.json"),  # before the minutes of a run
            (["--seed", str(1 << 60)], "--seed"),
        ]:
            result = run(*args)
            self.assertEqual(result.returncode, 2, args)
            self.assertIn(words, result.stderr, args)
            self.assertEqual(len(result.stderr.splitlines()), 1, args)
        self.assertFalse(os.path.exists("x.json"))

    def test_the_committed_proof_is_of_this_code(self):
        with open(os.path.join(SOURCE, "proof", "cpu.json")) as file:
            proof = json.load(file)
        self.assertEqual([proof[n] for n in ("needed", "needed_of_phase", "needed_of_kernel")], [32, 16, 2])
        want = {}
        for row in listed():
            if "absent" not in row and row["device"] == "cpu":
                status = "proven" if row["status"] == "to prove" else "refused"
                want.setdefault((row["backend"], row["version"]), []).append((row["cell"], status))
        got = {(b["name"], b["version"]): [(c["cell"], c["status"]) for c in b["cells"]] for b in proof["backends"]}
        self.assertEqual(got, want, "run: fovea conformance --write proof/cpu.json")

    def test_committed_proofs_name_a_commit_of_this_history(self):
        def git(*args):
            return subprocess.run(["git", "-C", SOURCE, *args], capture_output=True, text=True)
        try:
            whole = git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"
        except FileNotFoundError:
            whole = False
        if not whole:
            self.skipTest("no git, no repository, or not all of its history")
        for path in sorted(pathlib.Path(SOURCE, "proof").rglob("*.json")):
            proof = json.loads(path.read_text())
            rows = [row for row in proof.get("backends", []) if isinstance(row, dict)]
            for commit in {proof["commit"], *(row["commit"] for row in rows if "commit" in row)}:
                known = git("merge-base", "--is-ancestor", commit, "HEAD")
                self.assertEqual(known.returncode, 0, f"{path}: commit '{commit}' is not in the history of HEAD; prove it again")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
