"""LLM over libfovea.so: against transformers' numbers and against the program, streams, threads, cancels, refusals.
FOVEA_PROGRAM is the program; the comparison with it skips without."""

import asyncio
import gc
import json
import math
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import fovea
from fovea import LLM, AttentionBackendEnum, AttentionConfig, LoRARequest, RequestOutputKind, SamplingParams

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from lora_adapter import write_adapter  # noqa: E402

GOLDENS = ROOT / "tests" / "goldens"
DEMO = str(ROOT / "models" / "demo")
PROGRAM = os.environ.get("FOVEA_PROGRAM")
GREEDY = SamplingParams(temperature=0, max_tokens=12)
LONG = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True)
TOLERANCE, DECIDED = 1e-3, 2e-3  # golden_test.cc's

_demo = None


def demo():
    """One engine for all tests that need no options."""
    global _demo
    if _demo is None:
        _demo = LLM(DEMO, threads=2)
    return _demo


def tearDownModule():
    if _demo is not None:
        _demo.close()


def texts(outputs):
    return [answer.text for output in outputs for answer in output.outputs]


def wait_until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.005)


class Drafts(unittest.TestCase):
    """Speculative decoding: the same answers, and what it accepted."""

    PROMPTS = ["Repeat: one two three one two three one two", "2 + 2 ="]

    def test_answers_are_those_without(self):
        with LLM(DEMO, threads=2, speculative_config={"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 1}) as llm:
            for temperature in (0, 1):
                params = SamplingParams(temperature=temperature, max_tokens=40, ignore_eos=True, seed=3)
                self.assertEqual(texts(llm.generate(self.PROMPTS, params)), texts(demo().generate(self.PROMPTS, params)))
            counts = llm.stats()["speculative"]
        self.assertGreater(counts["accepted_tokens"], 0)
        self.assertGreaterEqual(counts["draft_tokens"], counts["accepted_tokens"])
        self.assertEqual(sum(counts["accepted_by_position"]), counts["accepted_tokens"])
        self.assertAlmostEqual(counts["mean_acceptance_length"], 1 + counts["accepted_tokens"] / counts["drafts"])
        self.assertEqual(demo().stats()["speculative"]["draft_tokens"], 0)

    def test_a_head(self):
        head = str(ROOT / "tests" / "draft_heads" / "eagle3_bf16")
        model = str(GOLDENS / "llama3_gqa4_d16_bf16")
        params = SamplingParams(temperature=0, max_tokens=30, ignore_eos=True)
        prompt = {"prompt_token_ids": list(range(40))}
        with LLM(model, threads=2, speculative_config={"method": "eagle3", "model": head, "num_speculative_tokens": 3}) as llm:
            drafted = llm.generate(prompt, params)[0].outputs[0].token_ids
            self.assertGreater(llm.stats()["speculative"]["draft_tokens"], 20)
        with LLM(model, threads=2) as llm:
            self.assertEqual(llm.generate(prompt, params)[0].outputs[0].token_ids, drafted)

    def test_refusals(self):
        for config, part in (({"method": "medusa", "num_speculative_tokens": 1}, "not built"), ({"methd": "ngram"}, "did you mean"),
                             ({"method": "ngram", "num_speculative_tokens": 16}, "1 to 15")):
            with self.assertRaisesRegex(ValueError, part):
                LLM(DEMO, threads=2, speculative_config=config)


class Seed(unittest.TestCase):
    """The lines of vLLM's document, with Fovea's import and a model and a backend that are here."""

    def test_method_1(self):
        llm = LLM(
            model=DEMO,
            device="cpu",
            attention_config=AttentionConfig(backend=AttentionBackendEnum.CPU_ATTN),
        )
        self.assertIn("CPU_ATTN", llm.explain())
        self.assertEqual({kind["prefill"] for kind in llm.info["attention"]}, {"CPU_ATTN"})

    def test_method_2(self):
        llm = LLM(
            model=DEMO,
            device="cpu",
            attention_backend="TORCH_NATIVE",
        )
        self.assertIn("TORCH_NATIVE", llm.explain())

    def test_an_invalid_backend(self):
        for given in (
            {"attention_config": AttentionConfig(backend=AttentionBackendEnum.FLASHMLA)},
            {"attention_config": {"backend": "FLASHMLA"}},
            {"attention_backend": AttentionBackendEnum.FLASHMLA},
            {"attention_backend": "flashmla"},
        ):
            with self.assertRaisesRegex(
                ValueError, r"Selected backend FLASHMLA is not valid for this configuration\. Reason: \['.*'"
            ):
                LLM(DEMO, **given)

    def test_both_are_exclusive(self):
        with self.assertRaisesRegex(ValueError, "backend"):
            LLM(DEMO, attention_backend="CPU_ATTN", attention_config=AttentionConfig(backend="TORCH_NATIVE"))

    def test_the_enumeration_is_the_header(self):
        header = (ROOT / "include" / "fovea" / "attention_config.h").read_text()
        names = re.findall(r"X\(([A-Z0-9_]+)\)", header)
        self.assertGreater(len(names), 40)
        self.assertEqual(names, [member.name for member in AttentionBackendEnum])

    def test_the_config_has_the_librarys_keys(self):
        with self.assertRaises(ValueError) as caught:
            LLM(DEMO, attention_config={"no_such_key": 1})
        allowed = re.search(r"Allowed are (.*)$", str(caught.exception)).group(1).split(", ")
        self.assertEqual(sorted(allowed), sorted(AttentionConfig.__dataclass_fields__))


class Numbers(unittest.TestCase):
    def check(self, name):
        golden = json.loads((GOLDENS / name / "golden.json").read_text())
        decided = 0
        with LLM(GOLDENS / name, dtype="float32", threads=2) as llm:
            prompts = [{"prompt_token_ids": prompt["ids"]} for prompt in golden["prompts"]]
            params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=16, prompt_logprobs=0, logprobs=0)
            outputs = llm.generate(prompts, params)
            alone = llm.generate(prompts[-1], params)[0]
        self.assertEqual(len(outputs), len(prompts))
        for output, prompt in zip(outputs, golden["prompts"]):
            answer = output.outputs[0]
            self.assertEqual(output.prompt_token_ids, prompt["ids"])
            self.assertEqual(len(output.prompt_logprobs), len(prompt["ids"]))
            self.assertIsNone(output.prompt_logprobs[0])
            got = [entry[token].logprob for entry, token in zip(output.prompt_logprobs[1:], prompt["ids"][1:])]
            self.assertLessEqual(max((abs(a - b) for a, b in zip(got, prompt["logprobs"])), default=0), TOLERANCE)
            self.assertEqual(len(answer.token_ids), 16)
            self.assertEqual(len(answer.logprobs), 16)
            self.assertAlmostEqual(
                answer.cumulative_logprob, sum(entry[token].logprob for entry, token in zip(answer.logprobs, answer.token_ids))
            )
            for token, wanted, gap in zip(answer.token_ids, prompt["greedy"], prompt["gaps"]):
                if gap <= DECIDED:
                    break
                self.assertEqual(token, wanted)
                decided += 1
        self.assertGreater(decided, 20)
        # The batch changes no bit.
        self.assertEqual(alone.outputs, outputs[-1].outputs)
        self.assertEqual(alone.prompt_logprobs, outputs[-1].prompt_logprobs)

    def test_llama(self):
        self.check("llama3_gqa4_d16_bf16")

    def test_gpt_oss(self):
        self.check("gptoss_gqa2_d16_bf16")

    def test_encoder_decoder(self):
        golden = json.loads((GOLDENS / "bart_d8_fp32" / "golden.json").read_text())
        with LLM(GOLDENS / "bart_d8_fp32", dtype="float32") as llm:
            prompts = [
                {"encoder_prompt": {"prompt_token_ids": p["encoder_ids"]}, "decoder_prompt": p["ids"]} for p in golden["prompts"]
            ]
            outputs = llm.generate(prompts, SamplingParams(temperature=0, ignore_eos=True, max_tokens=8))
            self.assertEqual(len(llm.generate("abc", GREEDY)), 1)  # the decoder begins with the model's start tokens
        decided = 0
        for output, prompt in zip(outputs, golden["prompts"]):
            self.assertEqual(output.prompt_token_ids, prompt["encoder_ids"])
            for token, wanted, gap in zip(output.outputs[0].token_ids, prompt["greedy"], prompt["gaps"]):
                if gap <= DECIDED:
                    break
                self.assertEqual(token, wanted)
                decided += 1
        self.assertGreater(decided, 5)

    def program(self, *arguments, rows):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "in.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            run = subprocess.run(
                [PROGRAM, *arguments, "--input", str(path)], capture_output=True, text=True, timeout=300
            )
        self.assertEqual(run.returncode, 0, run.stderr)
        return [json.loads(line) for line in run.stdout.splitlines()]

    @unittest.skipUnless(PROGRAM, "no FOVEA_PROGRAM")
    def test_the_programs_bits(self):
        prompts = ["What is 275 + 148?", "The", "Once upon a time there was"]
        for params, row in (
            (SamplingParams(temperature=0, max_tokens=20, logprobs=2), {"temperature": 0}),
            (SamplingParams(temperature=0.9, top_p=0.9, top_k=40, seed=7, max_tokens=20, logprobs=2),
             {"temperature": 0.9, "top_p": 0.9, "top_k": 40, "seed": 7}),
        ):
            rows = [{"prompt": prompt, "max_tokens": 20, "logprobs": 2, **row} for prompt in prompts]
            wanted = self.program("generate", "--json", "--model", DEMO, rows=rows)
            for output, row in zip(demo().generate(prompts, params), wanted):
                answer = output.outputs[0]
                self.assertEqual((answer.text, answer.token_ids), (row["text"], row["token_ids"]))
                self.assertEqual(answer.finish_reason, row["finish_reason"])
                content = row["logprobs"]["content"]
                self.assertEqual(len(content), len(answer.logprobs))
                for entry, token, other in zip(answer.logprobs, answer.token_ids, content):
                    self.assertEqual(struct.pack("f", entry[token].logprob), struct.pack("f", other["logprob"]))

    @unittest.skipUnless(PROGRAM, "no FOVEA_PROGRAM")
    def test_the_programs_vectors(self):
        model = str(GOLDENS / "bert_d8_fp32")
        ids = [[89], [5, 6, 7], list(range(40))]
        wanted = self.program("embed", "--model", model, rows=[{"token_ids": one} for one in ids])
        with LLM(model) as llm:
            outputs = llm.embed([{"prompt_token_ids": one} for one in ids])
        for output, row in zip(outputs, wanted):
            self.assertEqual(
                [struct.pack("f", x) for x in output.outputs.embedding], [struct.pack("f", x) for x in row["embedding"]]
            )


class Embeddings(unittest.TestCase):
    def test_forms_and_bits(self):
        with LLM(GOLDENS / "bert_d8_fp32", normalize=True, pooling="cls") as llm:
            self.assertEqual((llm.info["pooling"], llm.info["normalize"]), ("cls", True))
            several = llm.embed(["abc", [5, 6, 7], {"prompt": "a longer text"}, {"prompt_token_ids": [9]}])
            self.assertEqual(len(several), 4)
            for output in several:
                vector = output.outputs.embedding
                self.assertEqual(len(vector), llm.info["dimensions"])
                self.assertAlmostEqual(sum(x * x for x in vector), 1, places=5)
            self.assertEqual(llm.embed([[5, 6, 7]])[0].outputs.embedding, several[1].outputs.embedding)
            self.assertEqual(llm.embed([5, 6, 7])[0].outputs, several[1].outputs)
            self.assertEqual(llm.embed([]), [])
            longest = llm.info["max_model_len"]
            with self.assertRaisesRegex(ValueError, "fovea_embedder_embed: the input is .* tokens long"):
                llm.embed([1] * (longest + 1))
            cut = llm.embed([1] * (longest + 1), truncate_prompt_tokens=-1)[0]
            self.assertEqual(len(cut.prompt_token_ids), longest)
            with self.assertRaisesRegex(ValueError, "this LLM makes embeddings"):
                llm.generate("x")
            with self.assertRaisesRegex(ValueError, "no tokens"):
                llm.embed([{"prompt_token_ids": []}])
        with self.assertRaisesRegex(ValueError, "is not a live one"):
            llm.embed("x")
        with self.assertRaisesRegex(ValueError, "this LLM generates"):
            demo().embed("x")
        with self.assertRaisesRegex(ValueError, "max_num_seqs is given, which applies to generation"):
            LLM(GOLDENS / "bert_d8_fp32", max_num_seqs=3)
        with self.assertRaisesRegex(ValueError, "isn't an encoder"):
            LLM(DEMO, runner="pooling")


class Generation(unittest.TestCase):
    def test_forms_of_prompts(self):
        tokenizer = demo().get_tokenizer()
        ids = tokenizer.encode("The")
        for prompt in ("The", ids, {"prompt": "The"}, {"prompt_token_ids": ids}, ["The"], ("The",), [ids]):
            outputs = demo().generate(prompt, GREEDY)
            self.assertEqual(len(outputs), 1)
            self.assertEqual(outputs[0].prompt_token_ids, ids)
        self.assertEqual(demo().generate("The", GREEDY)[0].prompt, "The")
        self.assertIsNone(demo().generate(ids, GREEDY)[0].prompt)
        self.assertEqual(demo().generate([]), [])
        self.assertEqual(tokenizer.decode(ids, skip_special_tokens=True), "The")
        self.assertEqual(b"".join(map(tokenizer.token_bytes, tokenizer.encode("é€", False))).decode(), "é€")
        self.assertEqual(tokenizer.token_bytes(10**6), b"")

    def test_order_and_one_parameter_set_each(self):
        prompts = [f"What is {i} + {i}?" for i in range(20)]
        params = [SamplingParams(temperature=0, max_tokens=1 + i % 5) for i in range(20)]
        outputs = demo().generate(prompts, params)
        for i, output in enumerate(outputs):
            self.assertEqual(output.prompt, prompts[i])
            self.assertLessEqual(len(output.outputs[0].token_ids), 1 + i % 5)
            self.assertTrue(output.finished)
        self.assertEqual(len({output.request_id for output in outputs}), 20)

    def test_n_answers(self):
        params = SamplingParams(n=5, temperature=1.5, seed=3, max_tokens=6, ignore_eos=True)
        one = demo().generate("Once", params)[0]
        self.assertEqual([answer.index for answer in one.outputs], [0, 1, 2, 3, 4])
        self.assertGreater(len({tuple(answer.token_ids) for answer in one.outputs}), 1)
        self.assertEqual(one.outputs, demo().generate("Once", params)[0].outputs)
        self.assertTrue(all(answer.finished() for answer in one.outputs))

    def test_default_parameters(self):
        params = demo().get_default_sampling_params()
        self.assertEqual((params.temperature, params.max_tokens), (0.0, 256))
        self.assertEqual(demo().generate("The")[0].outputs, demo().generate("The", params)[0].outputs)
        with LLM(DEMO, generation_config="vllm") as llm:
            params = llm.get_default_sampling_params()
            self.assertEqual((params.temperature, params.max_tokens), (1.0, 16))

    def test_stops(self):
        whole = demo().generate("What is 275 + 148?", SamplingParams(temperature=0, max_tokens=30, ignore_eos=True))[0].outputs[0]
        self.assertEqual(whole.finish_reason, "length")
        word = whole.text.split()[2]
        cut = demo().generate("What is 275 + 148?", SamplingParams(temperature=0, max_tokens=30, stop=word, ignore_eos=True))[0].outputs[0]
        self.assertEqual((cut.finish_reason, cut.stop_reason), ("stop", word))
        self.assertEqual(cut.text, whole.text[: whole.text.index(word)])
        token = whole.token_ids[2]
        params = SamplingParams(temperature=0, max_tokens=30, stop_token_ids=[token], ignore_eos=True)
        cut = demo().generate("What is 275 + 148?", params)[0]
        self.assertEqual((cut.outputs[0].finish_reason, cut.outputs[0].stop_reason), ("stop", token))
        ended = demo().chat([{"role": "user", "content": "What is 275 + 148?"}], SamplingParams(temperature=0, max_tokens=40))
        self.assertEqual((ended[0].outputs[0].finish_reason, ended[0].outputs[0].stop_reason), ("stop", None))
        self.assertIn("423", ended[0].outputs[0].text)

    def test_logprobs(self):
        answer = demo().generate("The", SamplingParams(temperature=0, max_tokens=5, logprobs=3))[0].outputs[0]
        for entry, token in zip(answer.logprobs, answer.token_ids):
            self.assertEqual(entry[token].rank, 1)
            self.assertEqual(len(entry), 3)
            self.assertEqual([e.logprob for e in entry.values()], sorted((e.logprob for e in entry.values()), reverse=True))
        self.assertEqual("".join(entry[token].decoded_token for entry, token in zip(answer.logprobs, answer.token_ids)), answer.text)
        only = demo().generate("The", SamplingParams(max_tokens=3, temperature=0, allowed_token_ids=[42], logprobs=0))[0].outputs[0]
        self.assertEqual(only.token_ids, [42] * 3)
        self.assertIsNone(demo().generate("The", GREEDY)[0].outputs[0].logprobs)

    def test_other_parameters(self):
        plain = demo().generate("The", GREEDY)[0].outputs[0]
        biased = demo().generate("The", SamplingParams(temperature=0, max_tokens=12, logit_bias={plain.token_ids[0]: -100}))[0]
        self.assertNotEqual(biased.outputs[0].token_ids[0], plain.token_ids[0])
        silent = demo().generate("The", SamplingParams(temperature=0, max_tokens=12, detokenize=False))[0].outputs[0]
        self.assertEqual((silent.text, silent.token_ids), ("", plain.token_ids))
        cut = demo().generate("What is 275 + 148?", SamplingParams(temperature=0, max_tokens=2, truncate_prompt_tokens=3))[0]
        self.assertEqual(cut.prompt_token_ids, demo().get_tokenizer().encode("What is 275 + 148?")[-3:])

    def test_chat(self):
        one = [{"role": "user", "content": "What is 10 + 20?"}]
        outputs = demo().chat([one, one], SamplingParams(temperature=0, max_tokens=30))
        self.assertEqual(len(outputs), 2)
        self.assertIn("30", outputs[0].outputs[0].text)
        tokenizer = demo().get_tokenizer()
        self.assertEqual(outputs[0].prompt, tokenizer.apply_chat_template(one, add_generation_prompt=True, tokenize=False))
        self.assertEqual(outputs[0].prompt_token_ids, tokenizer.apply_chat_template(one, add_generation_prompt=True))
        with self.assertRaisesRegex(ValueError, "fovea_engine_apply_chat_template: "):
            demo().chat([{"content": "no role"}])
        with self.assertRaisesRegex(ValueError, "messages is 'hello'"):
            demo().chat("hello")

    def test_prefix_cache(self):
        prompt = "A prefix of several pages, which both prompts have in common: " * 4
        with LLM(DEMO) as llm:
            self.assertEqual(llm.generate(prompt, GREEDY)[0].num_cached_tokens, 0)
            self.assertGreater(llm.generate(prompt, GREEDY)[0].num_cached_tokens, 0)
        with LLM(DEMO, enable_prefix_caching=False) as llm:
            first = llm.generate([prompt], GREEDY)[0]
            second = llm.generate([prompt], GREEDY)[0]
            self.assertEqual((second.num_cached_tokens, second.outputs), (0, first.outputs))

    def test_priorities(self):
        with LLM(DEMO, scheduling_policy="priority", max_num_seqs=1) as llm:
            self.assertEqual(len(llm.generate(["a", "b"], GREEDY, priority=[1, 0])), 2)
            with self.assertRaisesRegex(ValueError, "priority has 1 members for 2 prompts"):
                llm.generate(["a", "b"], GREEDY, priority=[1])
            with self.assertRaisesRegex(ValueError, "priority is 4294967296; it must fit 32 bits"):
                llm.generate("a", GREEDY, priority=[2**32])
        with self.assertRaisesRegex(ValueError, "priority is 1, but requests are served in arrival order"):
            demo().generate("a", GREEDY, priority=[1])


class Streams(unittest.TestCase):
    PARAMS = dict(temperature=0, max_tokens=24, ignore_eos=True, logprobs=1)

    def test_cumulative(self):
        whole = demo().generate("Once", SamplingParams(**self.PARAMS))[0]
        updates = list(demo().stream("Once", SamplingParams(**self.PARAMS)))
        self.assertGreater(len(updates), 5)
        for before, after in zip(updates, updates[1:]):
            a, b = before.outputs[0], after.outputs[0]
            self.assertTrue(b.text.startswith(a.text))
            self.assertEqual(b.token_ids[: len(a.token_ids)], a.token_ids)
            self.assertFalse(before.finished)
        self.assertTrue(updates[-1].finished)
        self.assertEqual(updates[-1].outputs, whole.outputs)

    def test_delta(self):
        whole = demo().generate("Once", SamplingParams(**self.PARAMS))[0].outputs[0]
        updates = list(demo().stream("Once", SamplingParams(**self.PARAMS, output_kind=RequestOutputKind.DELTA)))
        self.assertEqual("".join(texts(updates)), whole.text)
        self.assertEqual([token for update in updates for token in update.outputs[0].token_ids], whole.token_ids)
        self.assertEqual([entry for update in updates for entry in update.outputs[0].logprobs], whole.logprobs)

    def test_final_only(self):
        params = SamplingParams(**self.PARAMS, output_kind=RequestOutputKind.FINAL_ONLY)
        updates = list(demo().stream("Once", params))
        self.assertEqual(len(updates), 1)
        self.assertEqual(updates[0].outputs, demo().generate("Once", params)[0].outputs)

    def test_several_answers(self):
        params = SamplingParams(n=3, seed=1, max_tokens=10, ignore_eos=True, output_kind=RequestOutputKind.DELTA)
        parts = ["", "", ""]
        for update in demo().stream("Once", params):
            self.assertEqual(len(update.outputs), 1)
            parts[update.outputs[0].index] += update.outputs[0].text
        whole = demo().generate("Once", params)[0]
        self.assertEqual(parts, [answer.text for answer in whole.outputs])

    def test_closing_cancels(self):
        with LLM(DEMO) as llm:
            stream = llm.stream("Once", LONG)
            next(stream)
            self.assertEqual(llm.stats()["running"], 1)
            stream.close()
            wait_until(lambda: llm.stats()["running"] == 0)
            self.assertLess(llm.stats()["generated_tokens"], 900)
            stream = llm.stream("Once", LONG)
            next(stream)
            del stream
            gc.collect()
            wait_until(lambda: llm.stats()["running"] == 0)
            self.assertFalse(llm._engine._sinks)

    def test_threads(self):
        wanted = demo().generate([f"What is {i} + 1?" for i in range(16)], GREEDY)
        got = [None] * 16

        def work(i):
            got[i] = demo().generate(f"What is {i} + 1?", GREEDY)[0]

        threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([output.outputs for output in got], [output.outputs for output in wanted])


class Async(unittest.TestCase):
    def test_fifty_at_once(self):
        prompts = [f"What is {i} + {2 * i}?" for i in range(50)]
        params = SamplingParams(temperature=0.8, seed=11, max_tokens=16, logprobs=2)
        wanted = demo().generate(prompts, params)

        async def one(prompt):
            last, length = None, 0
            async for output in demo().generate_async(prompt, params, request_id="r" + prompt):
                self.assertGreaterEqual(len(output.outputs[0].token_ids), length)
                last, length = output, len(output.outputs[0].token_ids)
            return last

        async def every():
            return await asyncio.gather(*map(one, prompts))

        for output, other, prompt in zip(asyncio.run(every()), wanted, prompts):
            self.assertEqual(output.outputs, other.outputs)
            self.assertEqual(output.request_id, "r" + prompt)
            self.assertTrue(output.finished)

    def test_closing_and_cancelling(self):
        with LLM(DEMO) as llm:

            async def leave():
                stream = llm.generate_async("Once", LONG)
                async for _ in stream:
                    break
                await stream.aclose()

            async def cancelled():
                async def read():
                    async for _ in llm.generate_async("Once", LONG):
                        pass

                task = asyncio.create_task(read())
                await asyncio.sleep(0.05)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

            for what in (leave, cancelled):
                asyncio.run(what())
                wait_until(lambda: llm.stats()["running"] == 0)
                self.assertFalse(llm._engine._sinks)
            # The loop goes away before its answers come.
            loop = asyncio.new_event_loop()
            stream = llm.generate_async("Once", LONG)
            loop.run_until_complete(stream.__anext__())
            loop.close()
            wait_until(lambda: llm.stats()["running"] == 0)
            self.assertEqual(len(llm.generate("The", GREEDY)), 1)
            del stream

    def test_refusals(self):
        async def bad():
            async for _ in demo().generate_async([10**6], GREEDY):
                pass

        with self.assertRaisesRegex(ValueError, "1000000"):
            asyncio.run(bad())


class Life(unittest.TestCase):
    def test_close_ends_readers(self):
        llm = LLM(DEMO)
        stream = llm.stream("Once", LONG)
        next(stream)
        llm.close()
        with self.assertRaisesRegex(RuntimeError, "the engine was destroyed"):
            for _ in stream:
                pass
        llm.close()
        with self.assertRaisesRegex(ValueError, "engine is not a live one"):
            llm.generate("x", GREEDY)

    def test_close_under_a_generate(self):
        llm = LLM(DEMO)
        timer = threading.Timer(0.1, llm.close)
        timer.start()
        with self.assertRaises((RuntimeError, ValueError)):
            for _ in range(1000):
                llm.generate(["Once"] * 8, LONG)
        timer.join()

    def test_garbage(self):
        threads = threading.active_count()
        for _ in range(3):
            llm = LLM(DEMO)
            llm.generate("x", GREEDY)
            del llm
            gc.collect()
        wait_until(lambda: threading.active_count() <= threads)

    def run_code(self, code):
        return subprocess.run([sys.executable, "-c", code, DEMO], capture_output=True, text=True, timeout=120)

    def test_exit_while_it_runs(self):
        run = self.run_code(
            "import sys, fovea\n"
            "llm = fovea.LLM(sys.argv[1])\n"
            "stream = llm.stream('Once', fovea.SamplingParams(max_tokens=None, ignore_eos=True))\n"
            "next(stream)\n"
            "print('out')\n"
        )
        self.assertEqual((run.returncode, run.stdout), (0, "out\n"), run.stderr)

    def test_fork(self):
        run = self.run_code(
            "import os, sys, fovea\n"
            "llm = fovea.LLM(sys.argv[1], device='cpu')\n"
            "params = fovea.SamplingParams(temperature=0)\n"
            "llm.generate('x', params)\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    try:\n"
            "        llm.generate('x', params)\n"
            "    except ValueError as error:\n"
            "        assert 'fork' in str(error), error\n"
            "    assert len(fovea.LLM(sys.argv[1], device='cpu').generate('x', params)) == 1\n"
            "    sys.exit(0)\n"
            "assert os.waitpid(child, 0)[1] == 0\n"
            "assert len(llm.generate('x', params)) == 1\n"
        )
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_an_interrupt_ends_the_requests(self):
        with LLM(DEMO) as llm:
            timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
            timer.start()
            with self.assertRaises(KeyboardInterrupt):
                for _ in range(1000):
                    llm.generate(["Once"] * 8, LONG)
            wait_until(lambda: llm.stats()["running"] + llm.stats()["waiting"] == 0)


class Refusals(unittest.TestCase):
    def test_arguments(self):
        for kind, given, text in (
            (TypeError, {"no_such": 1}, "LLM has no argument 'no_such'; it has model, runner,"),
            (ValueError, {"tensor_parallel_size": 2}, "tensor_parallel_size is 2; it must be 1"),
            (ValueError, {"quantization": "awq"}, "quantization is 'awq'"),
            (ValueError, {"tokenizer": "other"}, "tokenizer is 'other'"),
            (ValueError, {"runner": "draft"}, "runner is 'draft'"),
            (ValueError, {"load_format": "gguf"}, "load_format is 'gguf'"),
            (ValueError, {"dtype": "int3"}, "dtype is \"int3\"; it must be auto, float32, bfloat16 or float16"),
            (ValueError, {"device": "tpu"}, "device is \"tpu\"; it must be auto, cpu, cuda or cuda:N"),
            (ValueError, {"max_model_len": 0}, "max_model_len is 0; it must be an integer from 1"),
            (ValueError, {"max_model_len": "9"}, "max_model_len is \"9\"; it must be an integer"),
            (ValueError, {"max_num_seqs": 2.5}, "max_num_seqs is 2.5"),
            (ValueError, {"kv_cache_dtype": "fp3"}, "kv_cache_dtype is \"fp3\""),
            (ValueError, {"kv_layout": "abc"}, "kv_layout is \"abc\""),
            (ValueError, {"memory_share": 2}, "memory_share is 2; it must be a number from 0.01 to 1"),
            (ValueError, {"scheduling_policy": "lifo"}, "scheduling_policy is \"lifo\""),
            (ValueError, {"attention_config": {"backend": "FLASH_ATN"}}, "FLASH_ATN"),
            (ValueError, {"attention_backend": "no backend"}, "no backend"),
            (ValueError, {"pooling": "mean"}, "pooling is given, which applies to embeddings"),
            (ValueError, {"backend_library": ["/no/such.so"]}, "/no/such.so"),
            (ValueError, {"chat_template": "{% if %}"}, "the given chat template, line 1"),
        ):
            with self.subTest(given), self.assertRaises(kind) as caught:
                LLM(DEMO, **given)
            self.assertIn(text, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        with self.assertRaisesRegex(ValueError, "no such directory"):
            LLM("/no/such/model")

    def test_prompts(self):
        for prompt, text in (
            (1.5, "a prompt is 1.5; it must be a string"),
            (None, "a prompt is None"),
            ({"text": "x"}, "a prompt has 'text'"),
            ({}, "a prompt is {}"),
            ({"prompt": 3}, "a prompt is"),
            ([["a"]], "token 0 of a prompt is 'a'"),
            ([1.5], "a prompt is 1.5"),
            ({"prompt_token_ids": [True]}, "token 0 of a prompt is True"),
            ({"prompt_token_ids": []}, "fovea_engine_submit: "),
            ([-1], "-1"),
            ([2**31], "token 0 of the prompt is 2147483648"),
            ([10**6], "1000000"),
            ([5] * 5000, "5000"),
            ("\ud800", "unpaired surrogate"),
            ({"encoder_prompt": "x", "decoder_prompt": "y"}, "this model is a decoder"),
            (["fine", {"prompt_token_ids": [10**6]}], "prompt 1: "),
        ):
            with self.subTest(prompt=str(prompt)[:40]), self.assertRaises(ValueError) as caught:
                demo().generate(prompt, GREEDY)
            self.assertIn(text, str(caught.exception))
        wait_until(lambda: demo().stats()["running"] + demo().stats()["waiting"] == 0)
        self.assertFalse(demo()._engine._sinks)

    def test_sampling_params(self):
        nan, inf = math.nan, math.inf
        for name, value in (
            ("n", 0), ("n", 129), ("n", 1.5), ("n", True), ("temperature", -1), ("temperature", nan), ("temperature", inf),
            ("temperature", "hot"), ("top_p", 0), ("top_p", 1.1), ("top_p", nan), ("top_k", -2), ("top_k", 2**40), ("min_p", -0.1),
            ("min_p", 2), ("presence_penalty", 3), ("frequency_penalty", -2.5), ("repetition_penalty", 0),
            ("repetition_penalty", inf), ("seed", "x"), ("seed", 2**70), ("stop", [""]), ("stop", [1]), ("stop_token_ids", [-1]),
            ("stop_token_ids", ["a"]), ("bad_words", [""]), ("max_tokens", -1), ("max_tokens", 0), ("max_tokens", 2**40),
            ("min_tokens", -1), ("min_tokens", 17), ("logprobs", -2), ("prompt_logprobs", 1.5), ("truncate_prompt_tokens", 0),
            ("logit_bias", {1: 101}), ("logit_bias", {-1: 1}), ("logit_bias", {1: nan}), ("allowed_token_ids", []),
            ("structured_outputs", {"json": "{}"}), ("logits_processors", [print]), ("extra_args", {"x": 1}),
            ("spaces_between_special_tokens", False), ("output_kind", "delta"), ("ignore_eos", "yes"),
        ):
            with self.subTest(name=name, value=value), self.assertRaises(ValueError) as caught:
                SamplingParams(**{name: value})
            self.assertIn(name, str(caught.exception))
        with self.assertRaisesRegex(ValueError, "all answers would be the same"):
            SamplingParams(n=2, temperature=0)
        with self.assertRaisesRegex(ValueError, "stop needs the text"):
            SamplingParams(stop="x", detokenize=False)
        with self.assertRaises(TypeError):
            SamplingParams(no_such=1)
        self.assertIsNone(SamplingParams(seed=-1).seed)
        self.assertEqual(SamplingParams(stop="x").clone(), SamplingParams(stop=["x"]))

    def test_what_only_the_model_knows(self):
        for params, text in (
            (SamplingParams(logprobs=21), "logprobs is 21; it must be at most 20"),
            (SamplingParams(prompt_logprobs=-1), "prompt_logprobs is -1; it must be at most 20"),
            (SamplingParams(stop_token_ids=[5000]), "stop_token_ids has 5000"),
            (SamplingParams(allowed_token_ids=[5000]), "allowed_token_ids has 5000"),
            (SamplingParams(logit_bias={5000: 1}), "logit_bias has 5000"),
        ):
            with self.subTest(text), self.assertRaises(ValueError) as caught:
                demo().generate("x", params)
            self.assertIn(text, str(caught.exception))
        with self.assertRaisesRegex(ValueError, "sampling_params has 1 members for 2 prompts"):
            demo().generate(["a", "b"], [GREEDY])
        with self.assertRaisesRegex(ValueError, "sampling_params has 'x'"):
            demo().generate(["a"], ["x"])
        with self.assertRaisesRegex(ValueError, "a stream has one prompt"):
            demo().stream(["a", "b"])
        with self.assertRaisesRegex(ValueError, "must be a LoRARequest"):
            demo().generate("x", GREEDY, lora_request=object())
        with self.assertRaisesRegex(ValueError, "LoRA adapters are off"):
            demo().generate("x", GREEDY, lora_request=LoRARequest("a", 1, "/none"))


class Adapters(unittest.TestCase):
    """Adapters by vLLM's LoRARequest."""

    def test_each_prompt_has_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            a, b = (write_adapter(os.path.join(folder, name), seed) for seed, name in enumerate("ab"))
            model = str(GOLDENS / "llama3_gqa4_d16_bf16")
            params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
            with LLM(model, threads=2, lora_modules={"b": b}, max_lora_rank=8) as llm:
                first, second = LoRARequest("a", 1, a), LoRARequest("b")
                alone = [llm.generate("What is it", params, lora_request=one)[0].outputs[0].token_ids for one in (None, first, second)]
                self.assertEqual(len(set(map(tuple, alone))), 3)
                together = llm.generate(["What is it"] * 3, params, lora_request=[None, first, second])
                self.assertEqual([one.outputs[0].token_ids for one in together], alone)
                self.assertEqual(list(llm.stream("What is it", params, lora_request=first))[-1].outputs[0].token_ids, alone[1])
                with self.assertRaisesRegex(ValueError, "lora_request has 1 members for 2 prompts"):
                    llm.generate(["x", "y"], params, lora_request=[first])
                llm.unload_lora("a")
                again = LoRARequest("a", 1, b)
                self.assertEqual(llm.generate("What is it", params, lora_request=again)[0].outputs[0].token_ids, alone[2])


if __name__ == "__main__":
    unittest.main()
