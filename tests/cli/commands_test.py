#!/usr/bin/env python3
"""The commands as a user runs them: generate, chat and score with the demo model.

Usage: commands_test.py PROGRAM
"""
import json
import math
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv[1]


def run(*args, stdin=""):
    result = subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, f"{args}: {result.returncode} {result.stderr}"
    return result


class Commands(unittest.TestCase):
    def rows(self, command, rows, *flags):
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "in.jsonl"), os.path.join(folder, "out.jsonl")
            with open(source, "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
            run(command, "--input", source, "--output", target, *flags)
            with open(target) as file:
                return [json.loads(line) for line in file]

    def test_a_prompt_and_its_selection(self):
        result = run("generate", "--chat", "--temperature", "0", "What is 275 + 148?")
        self.assertIn("423", result.stdout)
        self.assertRegex(result.stderr, r"prefill: CPU_ATTN .*\n")
        self.assertRegex(result.stderr, r"decode: CPU_ATTN .*\n")
        self.assertIn("tokens/s", result.stderr)

    def test_named_pair_is_what_runs(self):
        result = run("generate", "--attn", "CPU_ATTN,TORCH_NATIVE", "--temperature", "0", "-n", "4", "1 + 2 =")
        self.assertRegex(result.stderr, r"prefill: CPU_ATTN .*\n")
        self.assertRegex(result.stderr, r"decode: TORCH_NATIVE .*\n")

    def test_rows_keep_their_order_and_ids(self):
        rows = [{"prompt": f"{n} + 1 =", "id": f"row-{n}", "max_tokens": 3 + n % 5} for n in range(20)]
        out = self.rows("generate", rows, "--temperature", "0", "--ignore-eos")
        self.assertEqual([row["index"] for row in out], list(range(20)))
        self.assertEqual([row["id"] for row in out], [row["id"] for row in rows])
        self.assertEqual([row["completion_tokens"] for row in out], [row["max_tokens"] for row in rows])
        self.assertTrue(all(row["finish_reason"] == "length" for row in out))

    def test_seed_decides_and_company_does_not(self):
        row = {"prompt": "Once", "seed": 7, "max_tokens": 12}
        flags = ["--temperature", "1.5"]
        alone = self.rows("generate", [row], *flags)[0]
        company = self.rows("generate", [{**row, "seed": n} for n in range(7)] + [row], *flags)
        self.assertEqual(alone["token_ids"], company[-1]["token_ids"])
        self.assertGreater(len({str(row["token_ids"]) for row in company}), 2)

    def test_stop_string_is_cut_off(self):
        free = self.rows("generate", [{"prompt": "Once", "max_tokens": 20}], "--temperature", "0")[0]
        stop = free["text"][3:5]
        cut = self.rows("generate", [{"prompt": "Once", "max_tokens": 20, "stop": stop}], "--temperature", "0")[0]
        self.assertEqual(cut["text"], free["text"][: free["text"].index(stop)])
        self.assertEqual(cut["finish_reason"], "stop")

    def test_score_agrees_with_itself(self):
        rows = [{"text": "12 + 30 = 42"}]
        whole = self.rows("score", rows, "--last-logits")[0]
        self.assertEqual(len(whole["token_logprobs"]), len(whole["ids"]) - 1)
        self.assertTrue(all(value <= 0 for value in whole["token_logprobs"]))
        # The logits after a prefix give the log probability of the token that follows it.
        prefix = self.rows("score", [{"ids": whole["ids"][:-1]}], "--last-logits")[0]
        logits = prefix["last_logits"]
        top = max(logits)
        log_sum = top + math.log(sum(math.exp(x - top) for x in logits))
        self.assertAlmostEqual(logits[whole["ids"][-1]] - log_sum, whole["token_logprobs"][-1], places=5)
        chunked = self.rows("score", rows, "--last-logits", "--chunked-prefill-size", "3", "--threads", "1")[0]
        self.assertEqual(whole, chunked)

    def test_chat_remembers_until_reset(self):
        result = run("chat", "--temperature", "0", stdin="What is 1 + 2?\n/reset\n/nonsense\nhi\n/exit\n")
        self.assertIn("3", result.stdout)
        self.assertIn("forgotten", result.stderr)
        self.assertIn("/nonsense", result.stderr)

    def test_a_given_conversation(self):
        with tempfile.TemporaryDirectory() as folder:
            def file(name, content):
                path = os.path.join(folder, name)
                with open(path, "w") as out:
                    out.write(content if isinstance(content, str) else json.dumps(content))
                return path

            messages = file("messages.json", [{"role": "user", "content": "What is 1 + 2?"}])
            answer = run("chat", "--messages", messages, "--temperature", "0")
            self.assertEqual(answer.stdout.strip(), run("generate", "--chat", "--temperature", "0", "What is 1 + 2?").stdout.strip())
            prompt = run("chat", "--messages", messages, "--print-prompt")
            self.assertTrue(prompt.stdout.endswith("What is 1 + 2?<|end|><|assistant|>"), prompt.stdout)
            self.assertEqual(prompt.stderr, "")
            # Members keep their order, numbers their form, and tools, documents and arguments arrive.
            template = file("mine.jinja", "{{ tools | tojson }}{{ documents[0].text }}{{ enable_thinking }}{{ messages[-1] | tojson }}{{ eos_token }}")
            tools = [{"type": "function", "function": {"name": "f", "arguments": {"z": 1.0, "a": 1e20}}}]
            calls = file("calls.json", [{"role": "assistant", "tool_calls": tools, "content": None}])
            prompt = run("chat", "--messages", calls, "--print-prompt", "--chat-template", template, "--tools", file("tools.json", tools),
                         "--documents", file("documents.json", [{"text": "D\u00e9"}]), "--template-kwargs", '{"enable_thinking": false}')
            self.assertEqual(prompt.stdout, json.dumps(tools) + "D\u00e9False" +
                             json.dumps({"role": "assistant", "tool_calls": tools, "content": None}) + "<|end|>")
            final = file("final.json", [{"role": "user", "content": "Count."}, {"role": "assistant", "content": "1, 2, "}])
            self.assertTrue(run("chat", "--messages", final, "--print-prompt", "--continue-final-message").stdout.endswith("1, 2,"))
            ended = run("chat", "--messages", messages, "--print-prompt", "--no-generation-prompt", "--system", "Be brief.")
            self.assertIn("Be brief.", ended.stdout)
            self.assertFalse(ended.stdout.endswith("<|assistant|>"))
            rows = self.rows("generate", [{"messages": json.load(open(calls)), "tools": tools, "max_tokens": 1}], "--chat-template",
                             "{{ messages[0] | tojson }}{{ tools | tojson }}")
            self.assertGreater(rows[0]["prompt_tokens"], 10)

    def test_a_row_overrides_the_flags(self):
        row = {"prompt": "Once", "max_tokens": 8, "top_k": -1, "seed": 2**64 - 1, "ignore_eos": False}
        free = self.rows("generate", [row], "--temperature", "0")[0]
        self.assertEqual(free, self.rows("generate", [row], "--temperature", "0", "--ignore-eos", "--top-k", "3")[0])

    def test_a_text_with_its_own_bos_gets_no_second(self):
        plain, marked = self.rows("score", [{"text": "12 + 3"}, {"text": "<|begin_of_text|>12 + 3"}])
        self.assertEqual(plain["ids"], marked["ids"])
        self.assertEqual(plain["ids"].count(plain["ids"][0]), 1)

    def test_outputs_that_are_no_plain_files(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target, link = (os.path.join(folder, name) for name in ["in", "target", "link"])
            with open(source, "w") as file:
                file.write('{"prompt": "x", "max_tokens": 2}\n')
            open(target, "w").close()
            os.symlink("target", link)
            run("generate", "--input", source, "--output", link)
            self.assertTrue(os.path.islink(link))
            with open(target) as file:
                self.assertEqual(json.loads(file.read())["completion_tokens"], 2)
            # A device or a pipe is written, not replaced.
            run("generate", "--input", source, "--output", "/dev/null")
            self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
            self.assertIn("completion_tokens", run("generate", "--input", source, "--output", "/dev/stdout").stdout)
            run("generate", "--input", source, "--output", source)  # was read before
            self.assertEqual(sorted(os.listdir(folder)), ["in", "link", "target"])

    def test_signals_leave_nothing_half_written(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            with tempfile.TemporaryDirectory() as folder:
                source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
                with open(source, "w") as file:
                    file.write('{"prompt": "x", "ignore_eos": true}\n' * 20000)  # minutes
                process = subprocess.Popen(
                    [PROGRAM, "generate", "--input", source, "--output", target],
                    stderr=subprocess.PIPE,
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                )
                process.stderr.readline()  # the selection: rows are next, and the output is open
                self.assertEqual(len(os.listdir(folder)), 2)
                process.send_signal(number)
                process.stderr.read()
                process.stderr.close()
                self.assertEqual(process.wait(timeout=60), -number)
                self.assertEqual(os.listdir(folder), ["in"])

    def test_a_late_bad_row_does_not_wait_for_the_others(self):
        rows = ['{"prompt": "x", "ignore_eos": true}\n'] * 5000 + ['{"prompt": "x", "temperature": -1}\n']
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as source:
            source.writelines(rows)
            source.flush()
            result = subprocess.run(
                [PROGRAM, "generate", "--input", source.name, "--attn", "TORCH_NATIVE"],
                capture_output=True, text=True, timeout=60,
            )
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("line 5001", result.stderr)

    def test_ctrl_c_stops_the_answer_and_not_the_chat(self):
        # Slow enough to be interrupted: one thread of plain loops.
        flags = ["--attn", "TORCH_NATIVE", "--threads", "1", "--temperature", "0", "--ignore-eos"]
        child, terminal = pty.fork()
        if child == 0:
            os.execv(PROGRAM, [PROGRAM, "chat", *flags])
        seen = b""

        def until(word):
            nonlocal seen
            while word not in seen:
                self.assertTrue(select.select([terminal], [], [], 60)[0], seen)
                seen += os.read(terminal, 65536)
            before, seen = seen.split(word, 1)
            return before

        until(b"> ")
        os.write(terminal, b"\x03")  # at the prompt: nothing to stop
        until(b"leaves)")
        until(b"> ")
        os.write(terminal, b"Tell me a story.\n")
        until(b"story.\r\n")
        while len(seen) < 20:
            seen += os.read(terminal, 65536)
        os.write(terminal, b"\x03")
        answer = until(b"> ")
        self.assertLess(len(answer), 1200)  # the whole context is more than 2000 characters
        os.write(terminal, b"/reset\n")
        until(b"(forgotten)")
        os.write(terminal, b"/exit\n")
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        os.close(terminal)

    def test_help_and_version(self):
        self.assertRegex(run("--version").stdout, r"^fovea \d+\.\d+\.\d+")
        for command in ["generate", "chat", "score", "bench"]:
            self.assertIn(command, run("--help").stdout)
            self.assertIn("--help", run(command, "--help").stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
