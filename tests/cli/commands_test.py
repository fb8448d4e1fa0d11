#!/usr/bin/env python3
"""The commands as a user runs them: generate, chat and score with the demo model.

Usage: commands_test.py PROGRAM DEMO_MODEL
"""
import json
import math
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, DEMO = sys.argv[1:3]


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

    def test_prompts_are_taken_as_they_are(self):
        prompts = ["[1, 2]", "a,b", "", "%d", "-x"]
        given = run("generate", "--json", "-n", "1", "--system", "", "--", *prompts).stdout.splitlines()
        rows = self.rows("generate", [{"prompt": prompt, "max_tokens": 1} for prompt in prompts])
        self.assertEqual([json.loads(line) for line in given], rows)
        mixed = run("generate", "--json", "-p", prompts[0], "-n", "1", prompts[1], "--prompt", "", "--prompt", "%d", "-p", "-x").stdout.splitlines()
        self.assertEqual([json.loads(line) for line in mixed], rows)

    def test_named_pair_is_what_runs(self):
        result = run("generate", "--attn", "CPU_ATTN,TORCH_NATIVE", "--temperature", "0", "-n", "4", "1 + 2 =")
        self.assertRegex(result.stderr, r"prefill: CPU_ATTN .*\n")
        self.assertRegex(result.stderr, r"decode: TORCH_NATIVE .*\n")

    def test_kv_cache_dtypes_and_layouts(self):
        for dtype in ("fp8", "fp8_e4m3", "fp8_e5m2", "int8_per_token_head"):
            for layout in ("auto", "nhd", "x_packed"):
                result = run("generate", "--chat", "--temperature", "0", "--kv-cache-dtype", dtype, "--kv-layout", layout,
                             "What is 275 + 148?")
                self.assertIn("423", result.stdout, (dtype, layout))
                self.assertEqual("KV scales: the checkpoint has none" in result.stderr, dtype.startswith("fp8"))

    def test_rows_keep_their_order_and_ids(self):
        rows = [{"prompt": f"{n} + 1 =", "id": f"row-{n}", "max_tokens": 3 + n % 5} for n in range(20)]
        out = self.rows("generate", rows, "--temperature", "0", "--ignore-eos")
        self.assertEqual([row["index"] for row in out], list(range(20)))
        self.assertEqual([row["id"] for row in out], [row["id"] for row in rows])
        self.assertEqual([row["completion_tokens"] for row in out], [row["max_tokens"] for row in rows])
        self.assertTrue(all(row["finish_reason"] == "length" for row in out))

    def test_ids_are_copied_to_the_letter(self):
        ids = ["12345678901234567890123", "1.00", "1e5", "-0", '{"b": [1, {"a": "}, \\\\\\""}], "a": "\\u00e9\\ud83d\\ude00"}', '"x\\\\"', "null", "[ ]", "true"]
        forms = ['{"prompt": "x", "max_tokens": 1, "id": %s}', '{"id":%s ,"prompt":"x","max_tokens":1}', ' { "max_tokens" : 1 , "\\u0069d" : %s , "prompt":"\\\\\\"{"} ']
        rows = [(form % value, value) for form in forms for value in ids]
        out = subprocess.run([PROGRAM, "generate", "--input", "-"], input="".join(row + "\n" for row, _ in rows), capture_output=True, text=True)
        for line, (row, value) in zip(out.stdout.splitlines(), rows, strict=True):
            self.assertIn(f'"id": {value}, "text"', line, row)

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

    def test_several_answers(self):
        row = {"prompt": "Once upon", "max_tokens": 12, "seed": 5, "id": "a", "temperature": 1.5}
        one = self.rows("generate", [row])[0]
        self.assertNotIn("choices", one)
        several = self.rows("generate", [{**row, "n": 4}, row])
        self.assertEqual([several[1][key] for key in ["text", "token_ids"]], [one[key] for key in ["text", "token_ids"]])
        choices = several[0]["choices"]
        self.assertEqual([choice["index"] for choice in choices], [0, 1, 2, 3])
        self.assertEqual(choices[0]["token_ids"], one["token_ids"])
        self.assertEqual(choices[0]["text"], one["text"])
        self.assertGreater(len({str(choice["token_ids"]) for choice in choices}), 2)
        self.assertEqual(several[0]["completion_tokens"], sum(choice["completion_tokens"] for choice in choices))
        self.assertEqual(several[0]["id"], "a")
        again = self.rows("generate", [row], "--n", "4")[0]
        self.assertEqual(again["choices"], choices)
        printed = run("generate", "--n", "4", "--seed", "5", "-n", "12", "--temperature", "1.5", "Once upon").stdout
        self.assertEqual(printed, "".join(f"[{choice['index']}] {choice['text']}\n" for choice in choices))

    def test_logprobs(self):
        row = {"prompt": "12 + 30 =", "max_tokens": 6, "seed": 5, "temperature": 1.5, "ignore_eos": True, "prompt_logprobs": 2,
               "skip_special_tokens": False}
        out, same, plain, off = self.rows(
            "generate",
            [{**row, "logprobs": True, "top_logprobs": 3}, {**row, "logprobs": 3}, row, {**row, "logprobs": False}],
        )
        self.assertEqual(out["logprobs"], same["logprobs"])
        self.assertNotIn("logprobs", plain)
        entries = out["logprobs"]["content"]
        self.assertEqual([entry["token_id"] for entry in entries], out["token_ids"])
        self.assertEqual(bytes(sum((entry["bytes"] for entry in entries), [])).decode(errors="replace"), out["text"])
        for entry in entries:
            top = entry["top_logprobs"]
            self.assertEqual([other["rank"] for other in top], [1, 2, 3])
            self.assertEqual(sorted(top, key=lambda other: -other["logprob"]), top)
            self.assertLess(sum(math.exp(other["logprob"]) for other in top), 1.0001)
            if entry["rank"] <= 3:
                self.assertEqual(entry["logprob"], top[entry["rank"] - 1]["logprob"])
        # The same numbers as from scoring the text.
        prompt = [entry["token_id"] for entry in out["prompt_logprobs"][1:]]
        scored = self.rows("score", [{"text": row["prompt"]}], "--prompt-logprobs", "2")[0]
        self.assertIsNone(out["prompt_logprobs"][0])
        self.assertEqual(scored["ids"][1:], prompt)
        self.assertEqual(scored["prompt_logprobs"], out["prompt_logprobs"])
        self.assertEqual(scored["token_logprobs"], [entry["logprob"] for entry in out["prompt_logprobs"][1:]])
        answered = self.rows("score", [{"ids": scored["ids"] + out["token_ids"]}])[0]["token_logprobs"][-6:]
        self.assertEqual(answered, [entry["logprob"] for entry in entries])
        # Fields of a row override flags.
        off, on = self.rows("generate", [{**row, "logprobs": False}, row], "--logprobs", "0")
        self.assertNotIn("logprobs", off)
        self.assertEqual([entry["top_logprobs"] for entry in on["logprobs"]["content"]], [[]] * 6)
        self.assertEqual(len(self.rows("generate", [{**row, "logprobs": -1}], "--max-logprobs", "-1")[0]["logprobs"]["content"][0]["top_logprobs"]), 768)

    def test_biases_bad_words_and_lengths(self):
        a = self.rows("score", [{"text": "and"}])[0]["ids"][-1]
        base = {"prompt": "Once", "max_tokens": 5, "temperature": 0}
        forced = self.rows("generate", [{**base, "logit_bias": {str(a): 100}}])[0]
        self.assertEqual(forced["token_ids"], [a] * 5)
        self.assertEqual(forced["text"], "and" * 5)
        flagged = self.rows("generate", [base], "--logit-bias", json.dumps({str(a): 100}))[0]
        self.assertEqual(flagged["token_ids"], [a] * 5)
        allowed = self.rows("generate", [{**base, "allowed_token_ids": [a]}])[0]
        self.assertEqual(allowed["token_ids"], [a] * 5)
        free = self.rows("generate", [{**base, "max_tokens": 30}])[0]
        word = free["text"].split()[1]
        cleaned = self.rows("generate", [{**base, "max_tokens": 30, "bad_words": [word]}])[0]
        self.assertNotIn(word, cleaned["text"].split())
        penalised = self.rows("generate", [{**base, "max_tokens": 30, "repetition_penalty": 30}])[0]
        self.assertNotEqual(penalised["token_ids"], free["token_ids"])
        early = self.rows("generate", [{"prompt": "1 + 1 =", "temperature": 0, "max_tokens": 20}])[0]
        self.assertEqual(early["finish_reason"], "stop")
        later = self.rows("generate", [{"prompt": "1 + 1 =", "temperature": 0, "max_tokens": 20, "min_tokens": 15}])[0]
        self.assertGreaterEqual(len(later["token_ids"]), 15)
        ended = self.rows("generate", [{**base, "max_tokens": 30, "stop_token_ids": [free["token_ids"][4]]}])[0]
        self.assertEqual(ended["finish_reason"], "stop")
        self.assertNotIn(free["token_ids"][4], ended["token_ids"])
        stop = free["text"][3:5]
        kept = self.rows("generate", [{**base, "max_tokens": 30, "stop": [stop], "include_stop_str_in_output": True}])[0]
        self.assertEqual(kept["text"], free["text"][: free["text"].index(stop) + len(stop)])
        self.assertEqual(self.rows("generate", [{**base, "max_tokens": None, "max_completion_tokens": 3, "stop": None}])[0]["completion_tokens"], 3)

    def test_generation_config(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "generation_config.json"), "w") as file:
                json.dump({"max_new_tokens": 3, "do_sample": False}, file)
            for source in [folder, os.path.join(folder, "generation_config.json")]:
                out = self.rows("generate", [{"prompt": "Once", "ignore_eos": True}], "--generation-config", source)[0]
                self.assertEqual(out["completion_tokens"], 3)
        self.rows("generate", [{"prompt": "Once", "max_tokens": 3}], "--generation-config", "none")

    def test_rows_are_read_as_they_run(self):
        """The first answer is written while the input is still open, and memory does not grow with the input."""

        def peak(rows, pipe):
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as source:
                for index in range(rows):
                    source.write(json.dumps({"prompt": f"{index} +", "max_tokens": 1, "id": "x" * 50000}) + "\n")
                source.flush()
                path = "/dev/stdin" if pipe else source.name
                command = [PROGRAM, "generate", "--input", path, "--output", "/dev/null", "--max-running-requests", "8"]
                feed = subprocess.Popen(["cat", source.name], stdout=subprocess.PIPE) if pipe else None
                # A sanitizer keeps freed memory for a while.
                environment = dict(os.environ, ASAN_OPTIONS="quarantine_size_mb=1:thread_local_quarantine_size_kb=64")
                process = subprocess.Popen(command, stdin=feed.stdout if feed else None, stderr=subprocess.DEVNULL,
                                           env=environment)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if feed:
                    feed.stdout.close()
                    feed.wait()
                self.assertEqual(process.returncode, 0)
                return usage.ru_maxrss

        for pipe in [False, True]:
            # After 300 rows a sanitizer's allocator has reached its size; 60 MB of rows follow.
            few, many = peak(300, pipe), peak(1500, pipe)
            self.assertLess(many - few, 20000, "KiB")

    def test_senders_of_rows_may_wait_for_each_answer(self):
        for command in ["generate", "score"]:
            process = subprocess.Popen([PROGRAM, command, "--input", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL, bufsize=0)
            try:
                for index in range(3):
                    row = {"ids": [5, 6 + index]} | ({"max_tokens": 2} if command == "generate" else {})
                    process.stdin.write(json.dumps(row).encode() + b"\n")
                    self.assertTrue(select.select([process.stdout], [], [], 60)[0], "no answer while the input is open")
                    self.assertEqual(json.loads(process.stdout.readline())["index"], index)
                process.stdin.close()
                self.assertEqual(process.stdout.read(), b"")
                self.assertEqual(process.wait(timeout=60), 0)
            finally:
                process.kill()
                process.wait()
                process.stdin.close()
                process.stdout.close()

    def test_stats_count_what_ran(self):
        result = run("generate", "--stats", "--json", "--ignore-eos", "-n", "5", "Once upon a time")
        row = json.loads(result.stdout)
        self.assertRegex(result.stderr, rf"steps: 5 in .* s; {row['prompt_tokens']} prefill and 4 decode tokens, ")
        self.assertRegex(result.stderr, r"pages: \d+, of them \d+ cached and \d+ free; 0 preemptions; 0 of "
                         rf"{row['prompt_tokens']} prompt tokens cached\n")
        self.assertRegex(result.stderr, r"time to the next token: p50 [\d.]+ ms, p99 [\d.]+ ms, longest [\d.]+ ms\n")
        self.assertNotIn("steps:", run("generate", "-n", "5", "Once upon a time").stderr)

    def test_priority_decides_the_order(self):
        # The first row occupies the only slot. Two rows wait; the later one finds the other's prompt in the cache.
        prompt = {"ids": list(range(10, 90)), "max_tokens": 1}
        long = {"prompt": "x", "max_tokens": 600, "ignore_eos": True}
        for policy, priorities, first, last in [("fcfs", (0, 0), 1, 2), ("priority", (5, -5), 2, 1), ("priority", (-5, 5), 1, 2)]:
            rows = [long, *({**prompt, "priority": priority} for priority in priorities)]
            out = self.rows("generate", rows, "--max-running-requests", "1", "--scheduling-policy", policy)
            self.assertEqual(out[first]["cached_tokens"], 0, policy)
            self.assertGreater(out[last]["cached_tokens"], 0, policy)

    def test_the_rate_is_that_of_tokens_behind_the_first(self):
        one = run("generate", "--ignore-eos", "-n", "1", "Once").stderr.splitlines()[-1]
        self.assertRegex(one, r"first token after [\d.]+ ms; 1 tokens \(length\)$")
        many = run("generate", "--ignore-eos", "-n", "9", "Once").stderr.splitlines()[-1]
        self.assertRegex(many, r"first token after [\d.]+ ms, then [\d.]+ tokens/s; 9 tokens \(length\)$")

    def test_rows_stay_in_order_when_few_may_wait(self):
        rows = [{"prompt": f"{n} + 1 =", "id": n, "max_tokens": 1 + (n * 7) % 13, "n": 1 + n % 3} for n in range(60)]
        out = self.rows("generate", rows, "--temperature", "1", "--ignore-eos", "--max-running-requests", "2")
        self.assertEqual([row["id"] for row in out], list(range(60)))
        self.assertEqual([row["index"] for row in out], list(range(60)))
        self.assertEqual([row["completion_tokens"] for row in out], [row["max_tokens"] * row["n"] for row in rows])

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
            # Members keep their order, numbers their spelling, and tools, documents and arguments are passed on.
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
            call = {"role": "assistant", "tool_calls": tools, "content": None}
            rows = self.rows("generate", [{"messages": [call], "tools": tools, "max_tokens": 1}], "--chat-template",
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
            # A device or a pipe is written to, not replaced.
            run("generate", "--input", source, "--output", "/dev/null")
            self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))
            self.assertIn("completion_tokens", run("generate", "--input", source, "--output", "/dev/stdout").stdout)
            self.assertEqual(sorted(os.listdir(folder)), ["in", "link", "target"])

    def interrupted(self, folder, number, rows, *flags, source=None):
        """Runs rows with output `folder`/out, interrupts the run after some of them, and returns its standard error."""
        source, target = source or os.path.join(folder, "in"), os.path.join(folder, "out")
        process = subprocess.Popen(
            [PROGRAM, "generate", "--input", source, "--output", target, *flags],
            stderr=subprocess.PIPE, text=True,
            preexec_fn=lambda: [signal.signal(n, signal.SIG_DFL) for n in (signal.SIGINT, signal.SIGHUP)],
        )
        self.until(lambda: self.finished(target + ".partial") >= rows, process)
        process.send_signal(number)
        said = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, -number, said)
        return said

    def until(self, done, process):
        for _ in range(6000):
            if done():
                return
            self.assertIsNone(process.poll(), "it ended")
            time.sleep(0.01)
        self.fail("it did not come to it")

    @staticmethod
    def finished(path):
        if not os.path.exists(path):
            return 0
        with open(path, "rb") as file:
            return file.read().count(b"\n")

    def long_rows(self, folder, count=20000):
        path = os.path.join(folder, "in")
        with open(path, "w") as file:
            file.writelines(json.dumps({"prompt": f"{n} + 1 =", "id": n, "ignore_eos": True, "max_tokens": 40}) + "\n"
                            for n in range(count))
        return path

    def test_signals_keep_the_rows_that_are_finished(self):
        for number in [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]:
            with tempfile.TemporaryDirectory() as folder:
                self.long_rows(folder)
                said = self.interrupted(folder, number, 3)
                self.assertEqual(sorted(os.listdir(folder)), ["in", "out.partial", "out.partial.journal"])
                with open(os.path.join(folder, "out.partial")) as file:
                    text = file.read()
                self.assertTrue(text.endswith("\n"))
                rows = [json.loads(line) for line in text.splitlines()]
                self.assertEqual([row["index"] for row in rows], list(range(len(rows))))
                self.assertGreaterEqual(len(rows), 3)
                self.assertIn(f"fovea: ended by {number.name}: {len(rows)} of 20000 rows are in {folder}/out.partial; "
                              "the same command with --resume continues\n", said)

    def test_a_signal_before_the_first_row_leaves_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "out")
            process = subprocess.Popen([PROGRAM, "generate", "--input", "-", "--output", target], stdin=subprocess.PIPE,
                                       stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            process.stderr.readline()  # the selection: the output is open, and no row is complete
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)  # before its input ends
            self.assertIn(b"no row was finished", process.communicate(timeout=60)[1])
            self.assertEqual(process.returncode, -signal.SIGINT)
            self.assertEqual(os.listdir(folder), [])

    def test_resume_writes_what_one_run_had_written(self):
        flags = ["--temperature", "1.2", "--seed", "3", "--no-enable-prefix-caching"]
        for end in ["signal", "kill", "half a line", "damaged"]:
            with self.subTest(end=end), tempfile.TemporaryDirectory() as folder:
                source, target = self.long_rows(folder, 300), os.path.join(folder, "out")
                partial, whole = target + ".partial", os.path.join(folder, "whole")
                slow = ["--max-running-requests", "2", "--threads", "1"]
                self.interrupted(folder, signal.SIGINT if end == "signal" else signal.SIGKILL, 5, *flags, *slow)
                rows = self.finished(partial)
                self.assertLess(rows, 300)
                if end == "half a line":
                    with open(partial, "ab") as file:
                        file.write(b'{"index": 12')
                if end == "damaged":  # the last row as after a crash of the machine
                    with open(partial, "r+b") as file:
                        file.seek(-4, os.SEEK_END)
                        file.write(b"\0\0\0\0")
                    rows -= 1
                again = run("generate", "--input", source, "--output", target, *flags, "--resume", "--stats")
                self.assertIn(f"resume: {rows} rows in {partial}\n", again.stderr)
                run("generate", "--input", source, "--output", whole, *flags)
                with open(target, "rb") as resumed, open(whole, "rb") as one:
                    self.assertEqual(resumed.read(), one.read())
                self.assertEqual(sorted(os.listdir(folder)), ["in", "out", "whole"])
                computed = int(re.search(r" and (\d+) decode tokens", again.stderr)[1])
                self.assertEqual(computed, 39 * (300 - rows), "answered rows were computed again")

    def test_resume_refuses_what_is_not_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            source, target = self.long_rows(folder, 2000), os.path.join(folder, "out")
            self.interrupted(folder, signal.SIGTERM, 5, "--temperature", "0")
            with open(target + ".partial", "rb") as file:
                before = file.read()
            with open(source) as file:
                lines = file.readlines()
            changed, short, model = (os.path.join(folder, name) for name in ["changed", "short", "model"])
            with open(changed, "w") as file:
                file.writelines([lines[0], lines[1].replace("1 +", "2 +"), *lines[2:]])
            with open(short, "w") as file:
                file.writelines(lines[:2])
            shutil.copytree(DEMO, model)
            with open(os.path.join(model, "generation_config.json"), "w") as file:
                json.dump({"max_new_tokens": 3}, file)
            for flags, words in [
                (["--input", source, "--temperature", "0"], "out.partial has rows of an interrupted run"),
                (["--input", source, "--temperature", "0.5", "--resume"], "in line 1 differs from the earlier run"),
                (["--input", source, "--temperature", "0", "--seed", "4", "--resume"], "differs from the earlier run"),
                (["--input", source, "--temperature", "0", "--resume", "--dtype", "float32"], "computed with dtype bfloat16, and this run has dtype float32"),
                (["--input", source, "--temperature", "0", "--resume", "--attn", "TORCH_NATIVE"], "TORCH_NATIVE"),
                (["--input", source, "--temperature", "0", "--resume", "--model", model], "generation_config.json"),
                (["--input", changed, "--temperature", "0", "--resume"], "changed line 2 is not the row that was answered"),
                (["--input", short, "--temperature", "0", "--resume"], "the input has 2 rows"),
            ]:
                with self.subTest(flags=flags):
                    result = subprocess.run([PROGRAM, "generate", "--output", target, *flags], capture_output=True, text=True)
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertIn(words, result.stderr)
                    with open(target + ".partial", "rb") as file:
                        self.assertEqual(file.read(), before, "rows were lost")
            os.remove(target + ".partial.journal")
            result = subprocess.run([PROGRAM, "generate", "--output", target, "--input", source, "--resume"], capture_output=True, text=True)
            self.assertIn(target + ".partial.journal does not record how", result.stderr)

    def test_one_run_at_a_time_writes_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            target = os.path.join(folder, "out")
            first = subprocess.Popen([PROGRAM, "score", "--input", "-", "--output", target], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
            first.stderr.readline()
            for flags in [[], ["--resume"]]:
                second = subprocess.run([PROGRAM, "score", "--input", "-", "--output", target, *flags], input='{"text": "x"}\n',
                                        capture_output=True, text=True)
                self.assertEqual(second.returncode, 2)
                self.assertIn("another run writes it", second.stderr)
            first.communicate(b'{"text": "x"}\n', timeout=60)
            self.assertEqual(first.returncode, 0)
            self.assertEqual(os.listdir(folder), ["out"])

    def test_a_full_disk_keeps_whole_rows(self):
        def small():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writes beyond the limit fail, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

        with tempfile.TemporaryDirectory() as folder:
            source, target = self.long_rows(folder, 300), os.path.join(folder, "out")
            flags = ["--input", source, "--output", target, "--temperature", "0"]
            result = subprocess.run([PROGRAM, "generate", *flags], capture_output=True, text=True, preexec_fn=small)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("fovea: cannot write " + target + ".partial: File too large", result.stderr)
            with open(target + ".partial") as file:
                rows = [json.loads(line) for line in file]
            self.assertIn(f"{len(rows)} of 300 rows are in {target}.partial; the same command with --resume continues", result.stderr)
            self.assertGreater(len(rows), 5)
            self.assertIn(f"resume: {len(rows)} rows", run("generate", *flags, "--resume").stderr)
            with open(target) as file:
                self.assertEqual([json.loads(line)["id"] for line in file], list(range(300)))

    def test_resume_of_score_and_of_rows_that_are_sent(self):
        with tempfile.TemporaryDirectory() as folder:
            target, whole = os.path.join(folder, "out"), os.path.join(folder, "whole")
            rows = [json.dumps({"text": f"{n} + 1"}) + "\n" for n in range(5)] + ["nonsense\n"]
            command = [PROGRAM, "score", "--input", "-"]
            first = subprocess.Popen([*command, "--output", target], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
            first.stdin.write("".join(rows[:2] + rows[5:]).encode())
            self.until(lambda: self.finished(target + ".partial") == 3, first)
            first.kill()
            first.wait()
            first.stdin.close()
            sent = "".join(rows[:2] + rows[5:] + rows[2:])
            for flags in [["--output", target, "--resume"], ["--output", whole]]:
                done = subprocess.run([*command, *flags], input=sent, capture_output=True, text=True)
                self.assertEqual(done.returncode, 2)
                self.assertIn("fovea: ", done.stderr)
            with open(target) as resumed, open(whole) as one:
                self.assertEqual(resumed.read(), one.read())

    def test_standard_input_may_be_a_socket(self):
        # Node gives its child processes a socket as standard input.
        ours, theirs = socket.socketpair()
        process = subprocess.Popen([PROGRAM, "score", "--input", "-"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        theirs.close()
        with ours, process.stdout as answers:
            for n in range(3):  # each is answered before the next is sent
                ours.sendall((json.dumps({"id": n, "text": f"{n} + 1"}) + "\n").encode())
                self.assertEqual(json.loads(answers.readline())["id"], n)
            ours.shutdown(socket.SHUT_WR)
            self.assertEqual(answers.read(), "")
        with process.stderr as errors:
            self.assertNotIn("fovea: ", errors.read())
        self.assertEqual(process.wait(), 0)

    def test_resume_needs_a_file(self):
        for flags, words in [([], "give --output FILE"), (["--output", "/dev/null"], "/dev/null is not a file")]:
            result = subprocess.run([PROGRAM, "generate", "--resume", *flags, "x"], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2)
            self.assertIn(words, result.stderr)

    def test_a_bad_row_of_a_sender_has_an_error_and_the_others_go_on(self):
        rows = ['{"prompt": "1 +", "max_tokens": 2, "id": "a"}', '{"prompt": "x", "temprature": 1, "id": [1.50]}', "{",
                '{"prompt": "x", "temperature": -1}', '{"prompt": "2 +", "max_tokens": 2, "id": "b"}']
        for flags in [[], ["--output", "FILE"]]:
            with tempfile.TemporaryDirectory() as folder:
                target = os.path.join(folder, "out")
                given = [target if flag == "FILE" else flag for flag in flags]
                result = subprocess.run([PROGRAM, "generate", "--input", "-", *given], input="\n".join(rows), capture_output=True, text=True)
                out = result.stdout
                if flags:
                    with open(target) as file:
                        out = file.read()
            self.assertEqual(result.returncode, 2)
            self.assertIn('fovea: 3 rows were not answered; their lines have an "error" that says why\n', result.stderr)
            out = [json.loads(line) for line in out.splitlines()]
            self.assertEqual([row["index"] for row in out], [0, 1, 2, 3, 4])
            self.assertEqual([row.get("id") for row in out], ["a", [1.5], None, None, "b"])
            self.assertEqual(["error" in row for row in out], [False, True, True, True, False])
            self.assertEqual([row["completion_tokens"] for row in (out[0], out[4])], [2, 2])
            for row, words in zip(out[1:4], ["temperature", "not a JSON object", "temperature is -1"]):
                self.assertIn(words, row["error"]["message"])
                self.assertEqual(row["error"]["type"], "invalid_request_error")

    def test_no_time_is_estimated_before_anything_is_done(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "in")
            with open(source, "w") as file:
                file.write(json.dumps({"prompt": "x", "n": 128, "temperature": 1, "ignore_eos": True, "max_tokens": 900}) + "\n")
                file.write('{"prompt": "x", "max_tokens": 1}\n')
            child, terminal = pty.fork()
            if child == 0:
                flags = ["--attn", "TORCH_NATIVE", "--threads", "1", "--output", os.path.join(folder, "out")]
                os.execv(PROGRAM, [PROGRAM, "generate", "--input", source, *flags])
            seen = b""
            while b"0/2" not in seen:  # before minutes of work
                self.assertTrue(select.select([terminal], [], [], 60)[0], seen)
                seen += os.read(terminal, 65536)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(terminal)
            self.assertNotIn(b"s left", seen)

    def test_fields_without_a_meaning(self):
        row = {"prompt": "1 +", "max_tokens": 3, "temperature": 0}
        plain, *same = self.rows("generate", [row, {**row, "user": "u", "metadata": {"a": 1}, "grammar": "", "best_of": 1, "tools": None, "length_penalty": 1.0}])
        self.assertEqual(plain["token_ids"], same[0]["token_ids"])
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "in")
            for command, known in (("generate", row), ("score", {"text": "x"})):
                with open(source, "w") as file:
                    file.writelines(json.dumps({**known, "x\u001b": 1, "y": index}) + "\n" for index in range(3))
                result = run(command, "--input", source, "--ignore-unknown-fields")
                self.assertEqual(len(result.stdout.splitlines()), 3)
                warnings = [line for line in result.stderr.splitlines() if "unknown" in line]
                self.assertEqual(warnings, [f'warning: {source} line 1: unknown field "{name}" is ignored' for name in ("x\\u001b", "y")])

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
        flags = ["--attn", "TORCH_NATIVE", "--threads", "1", "--temperature", "0", "--ignore-eos", "--no-history"]
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
        for command in ["generate", "chat", "score", "embed", "backends", "bench"]:
            self.assertIn(command, run("--help").stdout)
            self.assertIn("--help", run(command, "--help").stdout)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
