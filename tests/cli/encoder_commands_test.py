#!/usr/bin/env python3
"""fovea embed, and generate with encoder-decoder models (text and audio), on the fixtures of tests/goldens.

Usage: encoder_commands_test.py PROGRAM GOLDENS
"""
import json
import math
import os
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, GOLDENS = sys.argv[1:3]
XLM_ROBERTA, BART, WHISPER = (os.path.join(GOLDENS, n) for n in ("xlm_roberta_d8_fp32", "bart_d8_fp32", "whisper_d16_bf16"))


def run(*args, stdin=""):
    return subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, text=True, timeout=120)


def rows_of(result):
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def golden(model):
    with open(os.path.join(model, "golden.json")) as file:
        return json.load(file)["prompts"]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def finished(path):
    """Lines of a file that may not exist yet."""
    if not os.path.exists(path):
        return 0
    with open(path) as file:
        return file.read().count("\n")


def write_wav(path, rate=16000, seconds=0.5):
    count = int(rate * seconds)
    data = struct.pack(f"<{count}h", *(int(9000 * math.sin(0.05 * i)) for i in range(count)))
    with open(path, "wb") as file:
        file.write(b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt "
                   + struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16) + b"data" + struct.pack("<I", len(data)) + data)


class Embed(unittest.TestCase):
    def test_rows_match_transformers_in_order_and_whatever_the_pass(self):
        prompts = golden(XLM_ROBERTA)
        stdin = lines({"token_ids": p["ids"], "id": f"row {i}"} for i, p in enumerate(prompts))
        first = None
        for flags in ([], ["--max-num-batched-tokens", "1", "--threads", "1"]):
            out = rows_of(run("embed", "--model", XLM_ROBERTA, "--input", "-", "--pooling", "mean", *flags, stdin=stdin))
            self.assertEqual([row["index"] for row in out], list(range(len(prompts))))
            self.assertEqual([row["id"] for row in out], [f"row {i}" for i in range(len(prompts))])
            self.assertEqual([row["tokens"] for row in out], [len(p["ids"]) for p in prompts])
            for row, prompt in zip(out, prompts):
                self.assertLess(max(abs(a - b) for a, b in zip(row["embedding"], prompt["mean"], strict=True)), 1e-3)
            first = first or out
            self.assertEqual(out, first)

    def test_senders_of_texts_may_wait_for_each_vector(self):
        process = subprocess.Popen([PROGRAM, "embed", "--model", XLM_ROBERTA, "--input", "-"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0)
        try:
            for index in range(3):
                process.stdin.write(json.dumps({"input": f"text {index}"}).encode() + b"\n")
                self.assertTrue(select.select([process.stdout], [], [], 60)[0], "no vector while the input is open")
                self.assertEqual(json.loads(process.stdout.readline())["index"], index)
            process.stdin.close()
            self.assertEqual(process.wait(timeout=60), 0)
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def test_texts_are_normalised_when_asked(self):
        result = run("embed", "--model", XLM_ROBERTA, "--normalize", "--pooling", "last", "one text", "another")
        for row in rows_of(result):
            self.assertAlmostEqual(sum(x * x for x in row["embedding"]), 1, places=5)
        self.assertIn("pooling: last (given: --pooling), normalised", result.stderr)

    def test_poolings_have_one_name_and_others_lead_to_it(self):
        for name, others in (("cls", ("first", "CLS")), ("last", ("lasttoken", "last-token"))):
            wanted = run("embed", "--model", XLM_ROBERTA, "--pooling", name, "one text")
            for other in others:
                result = run("embed", "--model", XLM_ROBERTA, "--pooling", other, "one text")
                self.assertEqual(result.stdout, wanted.stdout)
                self.assertIn(f"pooling: {name} (given: --pooling)", result.stderr)

    def test_texts_are_normalised_when_the_model_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copytree(XLM_ROBERTA, os.path.join(folder, "model"))
            with open(os.path.join(model, "modules.json"), "w") as file:
                kinds = ["Transformer", "Pooling", "Normalize"]
                json.dump([{"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{kind}",
                            "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)], file)
            os.makedirs(os.path.join(model, "1_Pooling"))
            with open(os.path.join(model, "1_Pooling", "config.json"), "w") as file:
                json.dump({"pooling_mode_mean_tokens": True}, file)
            for flags, normalised in ([], True), (["--no-normalize"], False):
                [row] = rows_of(run("embed", "--model", model, *flags, "one text"))
                self.assertEqual(abs(sum(x * x for x in row["embedding"]) - 1) < 1e-5, normalised, flags)

    def test_too_long_is_refused_or_cut(self):
        long = "x" * 500
        result = run("embed", "--model", XLM_ROBERTA, long)
        self.assertEqual(result.returncode, 2)
        self.assertIn("--truncate", result.stderr)
        [row] = rows_of(run("embed", "--model", XLM_ROBERTA, "--truncate", "--max-seq-len-override", "9", long))
        self.assertEqual(row["tokens"], 9)

    def test_bad_input_is_named(self):
        bad = [('{"input": "a", "text": "b"}', "line 2"), ('{"messages": [{"role": "user", "content": "a"}]}', "embedded"),
               ('{"token_ids": [99999]}', "token 0 is 99999"), ('{"inptu": "a"}', "input")]
        with tempfile.TemporaryDirectory() as folder:
            source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
            for row, part in bad:
                with open(source, "w") as file:
                    file.write('{"input": "a"}\n' + row + "\n")
                result = run("embed", "--model", XLM_ROBERTA, "--input", source, "--output", target)
                self.assertEqual(result.returncode, 2, row)
                self.assertIn(part, result.stderr)
                self.assertEqual(os.listdir(folder), ["in"])
            # Bad rows from standard input are answered with an error, and the others continue.
            result = run("embed", "--model", XLM_ROBERTA, "--input", "-", stdin="".join(f'{row}\n{{"input": "a"}}\n' for row, _ in bad))
            self.assertEqual(result.returncode, 2)
            self.assertIn("4 rows were not answered", result.stderr)
            out = [json.loads(line) for line in result.stdout.splitlines()]
            self.assertEqual([row["index"] for row in out], list(range(8)))
            for row, (_, part) in zip(out[::2], bad, strict=True):
                self.assertIn(part.replace("line 2", "line 1"), row["error"]["message"])
            self.assertEqual(len({str(row["embedding"]) for row in out[1::2]}), 1)
        result = run("embed", "--model", XLM_ROBERTA, "--input", "-")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no rows", result.stderr)
        self.assertIn("isn't an encoder", run("embed", "--model", BART, "a").stderr)
        self.assertIn("fovea embed", run("generate", "--model", XLM_ROBERTA, "a").stderr)
        self.assertIn("mean, cls (the first token), last", run("embed", "--model", XLM_ROBERTA, "--pooling", "max", "a").stderr)


    def test_resume(self):
        with tempfile.TemporaryDirectory() as folder:
            target, whole = os.path.join(folder, "out"), os.path.join(folder, "whole")
            rows = ['{"input": "text %d", "id": %d}\n' % (n, n) for n in range(6)]
            flags = ["embed", "--model", XLM_ROBERTA, "--input", "-", "--output"]
            process = subprocess.Popen([PROGRAM, *flags, target], stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
            process.stdin.write("".join(rows[:3]).encode())
            for rows_there in iter(lambda: finished(target + ".partial"), 3):
                self.assertIsNone(process.poll(), rows_there)
                time.sleep(0.01)
            process.terminate()
            process.wait(timeout=60)  # before its input ends
            self.assertIn(b"ended by SIGTERM: 3 rows are in", process.communicate(timeout=60)[1])
            other = run(*flags, target, "--resume", "--normalize", stdin="".join(rows))
            self.assertIn("normalize off", other.stderr)
            again = run(*flags, target, "--resume", stdin="".join(rows))
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertIn("resume: 3 rows", again.stderr)
            run(*flags, whole, stdin="".join(rows))
            with open(target) as resumed, open(whole) as one:
                self.assertEqual(resumed.read(), one.read())


class EncoderDecoder(unittest.TestCase):
    def test_bart_continues_as_transformers(self):
        prompts = [p for p in golden(BART) if len(p["ids"]) == 1]
        stdin = lines({"token_ids": p["encoder_ids"], "max_tokens": len(p["greedy"])} for p in prompts)
        out = rows_of(run("generate", "--model", BART, "--input", "/dev/stdin", "--temperature", "0", "--ignore-eos", stdin=stdin))
        compared = 0
        for row, prompt in zip(out, prompts, strict=True):
            self.assertEqual(len(row["token_ids"]), len(prompt["greedy"]))
            for got, want, gap in zip(row["token_ids"], prompt["greedy"], prompt["gaps"]):
                if gap <= 2e-3:
                    break
                self.assertEqual(got, want)
                compared += 1
        self.assertGreater(compared, 10)

    def test_bart_ends_with_the_forced_token(self):
        """forced_eos_token_id takes the last place, unless end tokens are ignored."""
        prompt = next(p for p in golden(BART) if len(p["ids"]) == 1)
        stdin = lines([{"token_ids": prompt["encoder_ids"], "max_tokens": len(prompt["greedy"])}])
        (row,) = rows_of(run("generate", "--model", BART, "--input", "/dev/stdin", "--temperature", "0", stdin=stdin))
        with open(os.path.join(BART, "generation_config.json"), encoding="utf-8") as file:
            forced = json.load(file)["forced_eos_token_id"]
        self.assertEqual(row["token_ids"], prompt["greedy"][:-1] + [forced])

    def test_whisper_hears_wav_files(self):
        with tempfile.TemporaryDirectory() as folder:
            model, sound = os.path.join(folder, "model"), os.path.join(folder, "a.wav")
            shutil.copytree(WHISPER, model)
            write_wav(sound)
            missing = run("generate", "--model", model, "--audio", sound)
            self.assertIn("preprocessor_config.json: missing", missing.stderr)
            with open(os.path.join(model, "preprocessor_config.json"), "w") as file:  # one second of 80 frames
                json.dump({"feature_size": 12, "chunk_length": 1, "hop_length": 200, "n_fft": 400, "sampling_rate": 16000}, file)
            flags = ["--model", model, "--temperature", "0", "--ignore-eos", "--max-tokens", "6"]
            [one] = rows_of(run("generate", "--audio", sound, "--json", *flags))
            self.assertEqual(len(one["token_ids"]), 6)
            two = rows_of(run("generate", "--input", "/dev/stdin", *flags, stdin=lines([{"audio": sound}] * 2)))
            self.assertEqual([row["token_ids"] for row in two], [one["token_ids"]] * 2)
            other = rows_of(run("generate", "--input", "/dev/stdin", *flags, stdin=lines([{"audio": sound, "decoder_prompt": "abc"}])))
            self.assertEqual(other[0]["prompt_tokens"], 3)
            for args, part in [(["a text"], "this model takes audio"), (["--audio", __file__], "not a WAV file")]:
                result = run("generate", *flags, *args)
                self.assertEqual(result.returncode, 2)
                self.assertIn(part, result.stderr)
            write_wav(sound, rate=44100)
            [converted] = rows_of(run("generate", "--audio", sound, "--json", *flags))
            self.assertEqual(len(converted["token_ids"]), 6)
            write_wav(sound, rate=44101)
            self.assertIn("44101 Hz can't be converted to 16000 Hz", run("generate", "--audio", sound, *flags).stderr)
            write_wav(sound, seconds=2)
            self.assertIn("this model takes at most 1 seconds", run("generate", "--audio", sound, *flags).stderr)
            self.assertIn("reads text, not audio", run("generate", "--model", BART, "--audio", sound).stderr)

    def test_a_server_needs_the_preprocessor(self):
        result = run("serve", "--port", "0", "--model", WHISPER)
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertIn("preprocessor_config.json: missing", result.stderr)
        self.assertNotIn("ready", result.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
