"""--backend-library as a user gives it: backends outside of the program are listed, explained, chosen, run and proven.
    backend_library_test.py FOVEA FOLDER_OF_LIBRARIES"""

import json
import subprocess
import sys
import unittest
from pathlib import Path

FOVEA, FOLDER = sys.argv[1], Path(sys.argv[2])
EXAMPLE = str(FOLDER / "example_attn.so")
QUESTION = "What is 275 + 148?"


def fovea(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([FOVEA, *arguments], capture_output=True, text=True, timeout=500)
    if done.returncode != code:
        raise AssertionError(f"fovea {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


class BackendLibrary(unittest.TestCase):
    def test_answers_as_the_built_in_backends_do(self) -> None:
        chat = ["generate", "--chat", "--temperature", "0", "--json", QUESTION]
        ours = fovea(*chat)
        done = fovea(*chat, "--backend-library", EXAMPLE, "--attention-backend", "EXAMPLE_ATTN")
        self.assertIn("423", json.loads(done.stdout)["text"])
        self.assertEqual(json.loads(done.stdout)["token_ids"], json.loads(ours.stdout)["token_ids"])
        self.assertIn("EXAMPLE_ATTN", done.stderr)

    def test_serves_one_phase_beside_another_backend(self) -> None:
        done = fovea("generate", "--chat", "--temperature", "0", QUESTION, "--backend-library", EXAMPLE, "--attention-backend",
                     "cpu,example")
        self.assertIn("423", done.stdout)
        self.assertRegex(done.stderr, "decode: EXAMPLE_ATTN")

    def test_explain_names_it(self) -> None:
        done = fovea("explain", "--device", "cpu", "--backend-library", EXAMPLE, "--attention-backend", "EXAMPLE_ATTN", "--json")
        kinds = json.loads(done.stdout)
        self.assertIn("EXAMPLE_ATTN", json.dumps(kinds))
        automatic = fovea("explain", "--device", "cpu", "--backend-library", EXAMPLE)
        self.assertIn("first of CPU_ATTN, TORCH_NATIVE, FLEX_ATTENTION (CPU), EXAMPLE_ATTN that serves", automatic.stdout)
        refused = fovea("explain", "--device", "sm90", "--backend-library", EXAMPLE, "--attention-backend", "EXAMPLE_ATTN", code=2)
        self.assertIn("compute capability not supported", refused.stderr)

    def test_backends_lists_it(self) -> None:
        text = fovea("backends", "--backend-library", EXAMPLE).stdout
        self.assertRegex(text, rf"EXAMPLE_ATTN +example +cpu .*yes, in {EXAMPLE}")
        rows = json.loads(fovea("backends", "--json", "--backend-library", EXAMPLE).stdout)["backends"]
        row = next(row for row in rows if row["name"] == "EXAMPLE_ATTN")
        self.assertEqual(row["library"], EXAMPLE)
        self.assertTrue(row["columns"]["window"])
        self.assertNotIn("EXAMPLE_ATTN", fovea("backends").stdout)

    def test_conformance_proves_a_cell(self) -> None:
        done = fovea("conformance", "--quick", "--backend", "example", "--backend-library", EXAMPLE, "--cell", "window=yes")
        self.assertIn("EXAMPLE_ATTN: 1 cells proven", done.stdout)
        listed = fovea("conformance", "--list", "--backend", "EXAMPLE_ATTN", "--backend-library", EXAMPLE).stdout
        self.assertIn("EXAMPLE_ATTN: ", listed)

    def test_the_last_of_several_libraries_is_used_too(self) -> None:
        rows = fovea("backends", "--backend-library", EXAMPLE, "--backend-library", str(FOLDER / "backend_sound.so")).stdout
        self.assertLess(rows.index("EXAMPLE_ATTN"), rows.index("DEFECTIVE"))

    def refused(self, library: str, reason: str, *more: str) -> None:
        for command in (["generate", QUESTION], ["explain"], ["backends"], ["conformance", "--list"], ["score", "--input", "-"],
                        ["embed", "--model", "x", "text"], ["serve", "--port", "0"], ["chat"]):
            done = fovea(*command, "--backend-library", library, *more, code=2)
            self.assertIn(reason, done.stderr, command)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_each_command_refuses_what_is_no_backend(self) -> None:
        self.refused("/no/such.so", "fovea: backend library /no/such.so: there is no such file")

    def test_refusals_name_the_reason(self) -> None:
        for name, reason in {
            "no_library": "it can't be loaded",
            "backend_no_entry": "it has no function fovea_backend_v1",
            "backend_version_2": "it exports fovea_backend_v2; this Fovea loads fovea_backend_v1",
            "backend_truncated_table": "fovea_backend_table->size is 64",
            "backend_null_function": "fovea_backend->forward is null",
            "backend_bad_enum": "features has bit 50",
            "backend_other_name": "'TORCH_NATIVE' is a name of TORCH_NATIVE already",
        }.items():
            done = fovea("explain", "--backend-library", str(FOLDER / f"{name}.so"), code=2)
            self.assertIn(reason, done.stderr)
        twice = fovea("explain", "--backend-library", EXAMPLE, "--backend-library", EXAMPLE, code=2)
        self.assertIn("'EXAMPLE_ATTN' is a name of EXAMPLE_ATTN already", twice.stderr)

    def test_a_backend_that_plans_nothing_says_why(self) -> None:
        done = fovea("generate", QUESTION, "--backend-library", str(FOLDER / "backend_sound.so"), "--attention-backend", "DEFECTIVE",
                     "--kv-cache-dtype", "float32", code=2)
        self.assertIn("DEFECTIVE: this backend plans nothing", done.stderr)

    def test_a_proof_file_is_of_the_programs_own_backends(self) -> None:
        done = fovea("conformance", "--write", "/tmp/never-written.json", "--backend-library", EXAMPLE, code=2)
        self.assertIn("--backend-library", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
