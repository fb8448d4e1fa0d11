#!/usr/bin/env python3
"""Launch lines of SGLang, vLLM and Mini-SGLang, verbatim after the program's name, given to fovea explain.

Usage: launch_lines_test.py PROGRAM CONFIGS_DIR
"""
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, CONFIGS = sys.argv[1], sys.argv[2]
DEVICES = ["cpu", "sm75", "sm80", "sm89", "sm90", "sm100", "sm120", "rocm", "npu"]
PROGRAMS = ["python3 -m sglang.launch_server", "vllm serve", "python -m minisgl"]
HUB = {
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Llama-3-8B": "llama-3-8b",
    "Qwen/Qwen3-0.6B": "qwen3-0.6b",
    "deepseek-ai/DeepSeek-V3": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
}
LLAMA = "python3 -m sglang.launch_server --model meta-llama/Meta-Llama-3.1-8B-Instruct --attention-backend "
V3 = "python3 -m sglang.launch_server --tp 8 --model deepseek-ai/DeepSeek-V3 "
R1 = "python3 -m sglang.launch_server --tp 8 --model deepseek-ai/DeepSeek-R1 --attention-backend "
VLLM = "vllm serve Qwen/Qwen3-0.6B "
MINI = 'python -m minisgl --model "Qwen/Qwen3-0.6B" '

# A line, and the backends that it names for prefill and decode; None = chosen automatically.
LINES = [
    (LLAMA + "flashinfer", "FLASHINFER", "FLASHINFER"),
    (V3 + "--attention-backend flashinfer --trust-remote-code", None, "FLASHINFER_MLA"),
    (LLAMA + "fa3", "FLASH_ATTN", "FLASH_ATTN"),
    (V3 + "--trust-remote-code --attention-backend fa3", None, "FLASH_ATTN_MLA"),
    (LLAMA + "triton", "TRITON_ATTN", "TRITON_ATTN"),
    (V3 + "--attention-backend triton --trust-remote-code", None, "TRITON_MLA"),
    (LLAMA + "torch_native", "TORCH_NATIVE", "TORCH_NATIVE"),
    (R1 + "flashmla --trust-remote-code", None, "FLASHMLA"),
    (R1 + "flashmla --kv-cache-dtype fp8_e4m3 --trust-remote-code", None, "FLASHMLA"),
    (R1 + "trtllm_mla --trust-remote-code", "FLASHINFER_MLA", "TRTLLM_MLA"),
    (R1 + "trtllm_mla --kv-cache-dtype fp8_e4m3 --trust-remote-code", "FLASHINFER_MLA", "TRTLLM_MLA"),
    (LLAMA + "ascend", "ASCEND", "ASCEND"),
    (LLAMA + "wave", "WAVE", "WAVE"),
    (VLLM + "--attention-backend FLASH_ATTN", "FLASH_ATTN", "FLASH_ATTN"),
    (VLLM + "--attention-config.backend FLASH_ATTN", "FLASH_ATTN", "FLASH_ATTN"),
    (VLLM + "-ac.backend FLASH_ATTN", "FLASH_ATTN", "FLASH_ATTN"),
    (VLLM + "--attention-config '{\"backend\": \"FLASH_ATTN\"}'", "FLASH_ATTN", "FLASH_ATTN"),
    (VLLM + "-ac '{\"backend\": \"FLASH_ATTN\"}'", "FLASH_ATTN", "FLASH_ATTN"),
    (MINI + "--attn auto", None, None),
    (MINI + "--attn fa", "FLASH_ATTN", "FLASH_ATTN"),
    (MINI + "--attn fa,fi", "FLASH_ATTN", "FLASHINFER"),
    ('python -m minisgl --model "meta-llama/Llama-3-8B" --attn fa,fi', "FLASH_ATTN", "FLASHINFER"),
    ("FLASHINFER_USE_TENSOR_CORES=1 " + MINI + "--attn fi", "FLASHINFER", "FLASHINFER"),
    (MINI + "--attn trtllm --page-size 16", "TRTLLM_MHA", "TRTLLM_MHA"),
    (MINI + "--attn fa --page-size 16", "FLASH_ATTN", "FLASH_ATTN"),
    ('python -m minisgl \\\n  --model "meta-llama/Llama-3-8B" \\\n  --attn fa,fi \\\n  --page-size 1 \\\n'
     "  --max-running-requests 512", "FLASH_ATTN", "FLASHINFER"),
    ('python -m minisgl \\\n  --model "Qwen/Qwen3-0.6B" \\\n  --attn fa \\\n  --max-seq-len-override 32768',
     "FLASH_ATTN", "FLASH_ATTN"),
    ('FLASHINFER_USE_TENSOR_CORES=1 python -m minisgl \\\n  --model "Qwen/Qwen3-0.6B" \\\n  --attn fi',
     "FLASHINFER", "FLASHINFER"),
    (MINI + "--attn fi --page-size 1", "FLASHINFER", "FLASHINFER"),
]
CAPABILITY = "compute capability not supported"


class LaunchLines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.home = tempfile.mkdtemp()
        for hub_id, folder in HUB.items():
            repo = os.path.join(cls.home, "hub", "models--" + hub_id.replace("/", "--"))
            os.makedirs(os.path.join(repo, "refs"))
            os.makedirs(os.path.join(repo, "snapshots", "abc"))
            with open(os.path.join(repo, "refs", "main"), "w") as file:
                file.write("abc")
            shutil.copy(os.path.join(CONFIGS, folder, "config.json"), os.path.join(repo, "snapshots", "abc"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.home)

    def run_program(self, *args, **variables):
        environment = {"HF_HOME": self.home, "PATH": os.environ.get("PATH", ""), **variables}
        return subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120, env=environment)

    def explain_line(self, line, *flags):
        """Runs explain with the line's arguments and environment variables."""
        program = next(p for p in PROGRAMS if p in line)
        before, after = line.split(program)
        variables = dict(word.split("=") for word in before.split())
        return self.run_program("explain", *shlex.split(after.replace("\\\n", " ")), *flags, **variables)

    def explain(self, *args, **variables):
        result = self.run_program("explain", *args, "--json", **variables)
        self.assertTrue(result.stdout, f"{args}: {result.stderr}")
        return json.loads(result.stdout)

    def refuse(self, words, *args, **variables):
        result = self.run_program(*args, **variables)
        self.assertEqual(result.returncode, 2, f"{args}: {result.returncode} {result.stdout} {result.stderr}")
        for word in words:
            self.assertIn(word, result.stderr)

    def check_phase(self, phase, named, result):
        self.assertTrue(phase["candidates"], result)
        if phase["backend"] is None:
            self.assertTrue(phase["error"])
            for candidate in phase["candidates"]:
                self.assertTrue(candidate["reasons"], result)
                for reason in candidate["reasons"]:
                    self.assertTrue(reason["text"] and reason["fix"], candidate)
        if named is not None:
            self.assertEqual({candidate["name"] for candidate in phase["candidates"]}, {named})
            if phase["backend"] is None:
                self.assertIn(f"Selected backend {named} is not valid for this configuration. Reason: ['", phase["error"])

    def test_every_line_on_every_device(self):
        for line, prefill, decode in LINES:
            for device in DEVICES:
                with self.subTest(line=line, device=device):
                    result = self.explain_line(line, "--device", device, "--json")
                    self.assertIn(result.returncode, (0, 2), result.stderr)
                    answer = json.loads(result.stdout)
                    self.assertEqual(answer["complete"], result.returncode == 0)
                    refused = [note["flag"] for note in answer["flags"]["refused"]]
                    self.assertEqual(refused, ["--tp 8"] if "--tp 8" in line else [])
                    noted = [note["flag"] for note in answer["flags"]["noted"]]
                    self.assertEqual(noted, ["--trust-remote-code"] if "--trust" in line else [])
                    self.assertEqual(len(answer["kinds"]), 1)
                    kind = answer["kinds"][0]
                    self.check_phase(kind["prefill"], prefill, result)
                    self.check_phase(kind["decode"], decode, result)
                    text = self.explain_line(line, "--device", device)
                    self.assertEqual(text.returncode, result.returncode)
                    for flag in refused:
                        self.assertIn(f"refused: {flag}: ", text.stdout)
                        self.assertIn(flag, text.stderr)
                    for flag in noted:
                        self.assertIn(f"no meaning here: {flag}: ", text.stdout)

    def reasons(self, line, device, phase="decode"):
        answer = json.loads(self.explain_line(line, "--device", device, "--json").stdout)
        return [reason["text"] for reason in answer["kinds"][0][phase]["candidates"][0]["reasons"]]

    def test_what_runs_here(self):
        self.assertEqual(self.explain_line(LLAMA + "torch_native", "--device", "cpu").returncode, 0)
        self.assertEqual(self.explain_line(MINI + "--attn auto", "--device", "cpu").returncode, 0)

    def test_the_wrong_device_is_told_from_a_kernel_that_is_missing(self):
        for line, right, wrong in [(LLAMA + "flex_attention", "sm80", "rocm"), (LLAMA + "fa4", "sm100", "rocm"),
                                   (LLAMA + "ascend", "npu", "sm90"), (LLAMA + "wave", "rocm", "sm90"),
                                   (R1 + "flashmla", "sm90", "sm80"), (R1 + "trtllm_mla", "sm100", "sm90")]:
            self.assertIn(CAPABILITY, self.reasons(line, wrong), line)
            self.assertRegex(self.reasons(line, right)[-1], "^not in this build: ", line)
            self.assertNotIn(CAPABILITY, self.reasons(line, right), line)

    def test_the_error_of_the_document(self):
        result = self.explain_line("vllm serve deepseek-ai/DeepSeek-R1 --attention-backend FLASHMLA", "--device", "sm80")
        text = "Selected backend FLASHMLA is not valid for this configuration. Reason: ['compute capability not supported']"
        self.assertIn(text, result.stdout)

    def test_page_sizes_of_the_document(self):
        built = json.loads(self.run_program("backends", "--json").stdout)["backends"]
        cuda = any(row["built"] for row in built if row["name"] == "FLASH_ATTN")
        for line in [line for line, _, _ in LINES if "--page-size" in line and "trtllm" not in line]:
            for device in ("sm80", "sm90"):
                for phase in ("prefill", "decode"):
                    reasons = self.reasons(line, device, phase)
                    self.assertEqual(len(reasons), 0 if cuda else 1, (line, device, reasons))
                    self.assertTrue(all(reason.startswith("not in this build: ") for reason in reasons), reasons)
        self.assertIn("block_size not supported", self.reasons(MINI + "--attn trtllm --page-size 1", "sm100"))

    def test_the_word_before_the_model_of_vllm(self):
        answer = self.explain("serve", "Qwen/Qwen3-0.6B", "--attention-backend", "FLASH_ATTN", "--device", "sm90")
        self.assertEqual(answer["model"]["given"], "Qwen/Qwen3-0.6B")

    def test_neutral_values_are_taken(self):
        for flags in (["--tp", "1"], ["--tensor-parallel-size=1"], ["-tp", "1"], ["-dcp", "1"], ["--dp-size", "1"]):
            result = self.run_program("explain", "Qwen/Qwen3-0.6B", "--device", "cpu", *flags)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("already the default", result.stdout)

    def test_every_refused_flag_is_named(self):
        flags = ["--tp", "8", "-dcp", "2", "-pcp", "4", "--dp", "2", "--enable-dp-attention", "--speculative-token-map",
                 "hot.pt", "-ac.flex_attn_block_m", "64"]
        named = ["--tp 8", "-dcp 2", "-pcp 4", "--dp 2", "--enable-dp-attention", "--speculative-token-map hot.pt",
                 "-ac.flex_attn_block_m 64"]
        answer = self.explain("Qwen/Qwen3-0.6B", "--device", "cpu", *flags)
        self.assertEqual([note["flag"] for note in answer["flags"]["refused"]], named)
        self.assertFalse(answer["complete"])
        self.assertTrue(answer["kinds"])
        self.refuse(named, "generate", *flags, "x")
        self.refuse(named, "chat", *flags)

    def test_a_flag_that_asks_something_of_a_backend(self):
        answer = self.explain("Qwen/Qwen3-0.6B", "--device", "sm90", "--attn", "triton", "-dcp", "2")
        reasons = [reason["text"] for reason in answer["kinds"][0]["decode"]["candidates"][0]["reasons"]]
        self.assertIn("DCP not supported", reasons)

    def test_flags_of_mini_sglang(self):
        line = ("python -m minisgl --model Qwen/Qwen3-0.6B --dtype bfloat16 --tp-size 1 --max-running-requests 256 "
                "--max-seq-len-override 4096 --memory-ratio 0.9 --dummy-weight --disable-pynccl --host 0.0.0.0 --port 1919 "
                "--cuda-graph-max-bs 16 --graph 8 --num-tokenizer 0 --tokenizer-count 0 --max-prefill-length 8192 "
                "--num-pages 64 --page-size 16 --attn auto --model-source huggingface --cache-type radix --moe-backend auto "
                "--shell-mode")
        result = self.explain_line(line, "--device", "cpu", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        flags = json.loads(result.stdout)["flags"]
        self.assertEqual([note["flag"] for note in flags["alias"]],
                         ["--memory-ratio 0.9", "--dummy-weight", "--max-prefill-length 8192"])
        self.assertEqual(flags["refused"], [])
        self.assertIn("--cache-type radix", [note["flag"] for note in flags["noted"]])

    def test_flags_of_vllm_and_sglang(self):
        for flags in ("--enforce-eager --disable-cascade-attn --block-size 16 -O3 -O.cudagraph_mode=NONE "
                      "--cudagraph-capture-sizes 1 2 4 --gpu-memory-utilization 0.9 --max-model-len 4096 --seed 3",
                      "--disable-cuda-graph --cuda-graph-bs 1 2 4 --triton-attention-num-kv-splits 8 --context-length 4096 "
                      "--mem-fraction-static 0.8 --chunked-prefill-size 4096 --random-seed 3 --disable-radix-cache "
                      "--enable-deterministic-inference --prefill-attention-backend CPU_ATTN"):
            result = self.run_program("explain", "--model", "Qwen/Qwen3-0.6B", "--device", "cpu", *flags.split())
            self.assertEqual(result.returncode, 0, f"{flags}: {result.stderr}")

    def test_flags_of_servers(self):
        for line in ("vllm serve Qwen/Qwen3-0.6B --host 0.0.0.0 --port 8000 --uds /tmp/x --api-key k --served-model-name m --uvicorn-log-level info "
                     "--disable-uvicorn-access-log --max-num-queued-reqs 8 --shutdown-timeout 5 --allowed-origins [\"*\"] --allowed-methods [\"*\"] "
                     "--response-role assistant --chat-template-content-format auto --stream-interval 4 --enable-prompt-tokens-details "
                     "--h11-max-incomplete-event-size 65536 --disable-frontend-multiprocessing --runner auto",
                     "python3 -m sglang.launch_server --model Qwen/Qwen3-0.6B --host 0.0.0.0 --port 30000 --max-queued-requests 8 --enable-metrics "
                     "--enable-cache-report --decode-log-interval 40 --watchdog-timeout 300 --stream-interval 1 --sampling-defaults model --grammar-backend none"):
            result = self.explain_line(line, "--device", "cpu", "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertGreater(len(json.loads(result.stdout)["flags"]["noted"]), 6)
        for flag in ("--response-role user", "--middleware m", "--ssl-keyfile f", "--enable-priority-scheduling", "--tp 2", "--is-embedding"):
            self.refuse([flag, "is refused"], "serve", "--port", "0", *flag.split())

    def resolved(self, key, *args, **variables):
        values = self.explain("--model", "Qwen/Qwen3-0.6B", *args, **variables)["resolved"]
        return next(((value["value"], value["from"]) for value in values if value["key"] == key), None)

    def test_where_values_come_from(self):
        fi = ["--attn", "fi", "--device", "sm80"]
        self.assertEqual(self.resolved("flashinfer_use_tensor_cores", *fi, FLASHINFER_USE_TENSOR_CORES="1"),
                         ("1", "env FLASHINFER_USE_TENSOR_CORES"))
        self.assertEqual(self.resolved("flashinfer_use_tensor_cores", *fi, MINISGL_FLASHINFER_USE_TENSOR_CORES="0"),
                         ("0", "env MINISGL_FLASHINFER_USE_TENSOR_CORES"))
        self.assertEqual(self.resolved("flashinfer_use_tensor_cores", *fi, "-ac.flashinfer_use_tensor_cores=0",
                                       FLASHINFER_USE_TENSOR_CORES="1"), ("0", "-ac.flashinfer_use_tensor_cores"))
        cpu = ["--device", "cpu"]
        self.assertEqual(self.resolved("batch_invariant", *cpu), ("0", "default"))
        self.assertEqual(self.resolved("batch_invariant", *cpu, VLLM_BATCH_INVARIANT="1"), ("1", "env VLLM_BATCH_INVARIANT"))
        self.assertEqual(self.resolved("batch_invariant", *cpu, "--enable-deterministic-inference"),
                         ("1", "--enable-deterministic-inference"))
        self.assertEqual(self.resolved("dtype", *cpu, "--dtype", "bfloat16")[0], "float32")
        self.assertIn("CPU", self.resolved("dtype", *cpu, "--dtype", "bfloat16")[1])
        self.assertEqual(self.resolved("dtype", "--device", "sm90", "--dtype", "float16"), ("float16", "--dtype"))
        value, source = self.resolved("page_size", *cpu, "--block-size", "32")
        self.assertEqual(value, "32")
        self.assertIn("--block-size", source)

    def test_keys_of_the_document(self):
        llama = ["meta-llama/Llama-3-8B", "--attn", "FLASH_ATTN", "--device", "sm90"]
        for version in ("2", "3"):
            answer = self.explain(*llama, f"--attention-config.flash_attn_version={version}")
            self.assertEqual({c["version"] for c in answer["kinds"][0]["decode"]["candidates"]}, {"FA" + version})
        answer = self.explain(*llama[:1], "--attn", "FLASHINFER", "--device", "sm100", "--attention-config.use_trtllm_attention=0")
        decode = answer["kinds"][0]["decode"]
        self.assertEqual((decode["if_built"] or decode["backend"])["version"], "Native")  # a program with CUDA selects it
        answer = self.explain(*llama[:1], "--attn", "FLASHINFER", "--device", "sm100", "--attention-config.use_trtllm_attention=1")
        self.assertEqual(answer["kinds"][0]["decode"]["candidates"][0]["version"], "TRTLLM")
        # FLASHINFER's own kernels replace TRT-LLM's, which are not built, also in a program without CUDA.
        answer = self.explain(*llama[:1], "--attn", "FLASHINFER", "--device", "sm100", "--page-size", "1")
        self.assertEqual(answer["kinds"][0]["decode"]["candidates"][0]["version"], "Native")
        self.assertNotIn("--page-size", str(answer["kinds"][0]["decode"]["candidates"]))

        def first(*flags):
            """The first MLA prefill that only this build keeps from serving the model, if anything does."""
            r1 = ["deepseek-ai/DeepSeek-R1", "--device", "sm100", *flags]
            for candidate in self.explain(*r1)["kinds"][0]["prefill"]["candidates"]:
                if all(reason["text"].startswith("not in this build: ") for reason in candidate["reasons"]):
                    return candidate["name"]

        self.assertEqual(first(), "TRTLLM_RAGGED")
        self.assertNotEqual(first("-ac.use_trtllm_ragged_deepseek_prefill=0"), "TRTLLM_RAGGED")
        self.assertEqual(first("-ac.disable_flashinfer_prefill=0", "-ac.use_trtllm_ragged_deepseek_prefill=0"), "FLASHINFER")
        self.assertEqual(first("-ac.use_cudnn_prefill=1"), "CUDNN")
        self.assertNotIn(first("-ac.use_cudnn_prefill=0", "-ac.disable_flashinfer_prefill=1"), ("CUDNN", "FLASHINFER"))

    def test_names_in_any_letter_case(self):
        answer = self.explain("meta-llama/Llama-3-8B", "--device", "SM90", "--kv-cache-dtype", "FP8", "--dtype", "BFloat16",
                              "--kv-layout", "NHD", "--scheduling-policy", "FCFS", "--attn", "FULL.Prefill=triton")
        self.assertEqual(answer["device"]["compute_capability"], 90)
        self.assertEqual(answer["model"]["attentions"][0]["kv_cache_dtype"], "fp8_e4m3")
        self.assertEqual(self.run_program("--log-level", "ERROR", "explain", "--device", "cpu").returncode, 0)

    def test_names_that_nothing_would_use(self):
        for flags in (["--attn", "cpu_attn,nope"], ["--decode-attention-backend", "nope"]):
            self.refuse(["Unknown attention backend: 'nope'"], "explain", "--device", "cpu", *flags)
        self.refuse(["Unknown MLA prefill backend: 'nope'"], "explain", "--device", "cpu", "-ac.mla_prefill_backend=nope")

    def test_settings_without_effect_and_empty_variables(self):
        answer = self.explain("--device", "cpu", "-ac.use_cudnn_prefill=1", "-ac.disable_flashinfer_prefill=1",
                              FLASHINFER_USE_TENSOR_CORES="")
        for key in ("use_cudnn_prefill", "disable_flashinfer_prefill"):
            self.assertIn(f"-ac.{key} has no effect: this model has no MLA layers", answer["warnings"])
        self.assertEqual(answer["environment"], [])

    def test_without_a_causal_mask(self):
        answer = self.explain("--device", "cpu", "-ac.use_non_causal=1")
        self.assertEqual({spec["causal"] for spec in answer["model"]["attentions"]}, {False})
        words = "one two three four five six seven eight"
        both, causal = (self.run_program("generate", "--threads", "1", "--temperature", "0", "--json", *flags, words)
                        for flags in (["-ac.use_non_causal=1"], []))
        self.assertEqual((both.returncode, causal.returncode), (0, 0), both.stderr)
        self.assertNotEqual(both.stdout, causal.stdout)
        self.refuse(["without the causal mask (-ac.use_non_causal)", "--max-num-batched-tokens"],
                    "generate", "-ac.use_non_causal=1", "--max-num-batched-tokens", "4", words)

    def test_linear_layers(self):
        answer = self.explain("--model", os.path.join(CONFIGS, "qwen3-next-80b"), "--device", "sm90", "--attn", "linear=GDN_ATTN")
        kinds = {kind["kind"]: kind for kind in answer["kinds"]}
        self.assertEqual(sorted(kinds), ["full", "linear"])
        self.assertEqual(kinds["linear"]["decode"]["if_built"]["name"], "GDN_ATTN")
        self.assertEqual({spec["linear"] for spec in answer["model"]["attentions"]}, {None, "gated delta rule"})

    def test_kinds(self):
        gemma = ["--model", os.path.join(CONFIGS, "gemma-3-1b"), "--device", "cpu"]
        for flags in (["-ac.backend_per_kind", '{"sliding_window": "TORCH_NATIVE"}'], ["-ac.backend_per_kind.swa", "TORCH_NATIVE"],
                      ["-ac", '{"backend_per_kind": {"swa": "TORCH_NATIVE"}}'], ["--attn", "swa=TORCH_NATIVE"]):
            kinds = {kind["kind"]: kind for kind in self.explain(*gemma, *flags)["kinds"]}
            self.assertEqual(kinds["sliding_window"]["decode"]["backend"]["name"], "TORCH_NATIVE", flags)
            self.assertEqual(kinds["full"]["decode"]["backend"]["name"], "CPU_ATTN", flags)

    def test_settings_that_contradict(self):
        for command in (["generate", "x"], ["explain"], ["score", "--input", "/dev/null"], ["embed", "--model", "x", "x"],
                        ["bench", "model"]):
            for flags in (["--attention-backend", "CPU_ATTN", "-ac.backend", "CPU_ATTN"],
                          ["--attention-config", '{"backend": "CPU_ATTN"}', "--attn", "CPU_ATTN"]):
                self.refuse(["attention_backend and attention_config.backend are mutually exclusive"], *command, *flags)
        self.refuse(["two spellings"], "explain", "-ac.backend", "fa", "--attention-config.page_size", "16")
        self.refuse(["don't mix"], "explain", "-ac", '{"backend": "fa"}', "-ac.page_size", "16")
        self.refuse(["did you mean backend?"], "explain", "-ac.bakend", "fa")
        self.refuse(["-ac.flash_attn_version 7", "2 to 4"], "explain", "-ac.flash_attn_version", "7")
        self.refuse(["Unknown KV cache group kind 'swaa' in backend_per_kind. Valid kinds are: "], "explain",
                    "-ac.backend_per_kind", '{"swaa": "fa"}')
        self.refuse(["--cache-type lru", "radix, naive"], "generate", "--cache-type", "lru", "x")
        self.refuse(["sm42", "sm90"], "explain", "--device", "sm42")
        self.refuse(["needs a value"], "explain", "-ac.backend")

    def test_deprecated_keys_say_what_to_write(self):
        result = self.run_program("generate", "-ac.use_cudnn_prefill=0", "-n", "1", "x")
        self.assertEqual(result.stderr.count("deprecated"), 1, result.stderr)
        self.assertIn("mla_prefill_backend", result.stderr)

    def test_environment(self):
        result = self.run_program("generate", "-n", "1", "--trust-remote-code", "x", VLLM_ATTENTION_BACKEND="FLASHINFER")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("VLLM_ATTENTION_BACKEND=FLASHINFER: not applied; --attention-backend replaces it", result.stderr)
        self.assertIn("--trust-remote-code: ", result.stderr)
        self.refuse(["VLLM_BATCH_INVARIANT=maybe", "0, 1"], "explain", VLLM_BATCH_INVARIANT="maybe")
        self.refuse(["contradict"], "explain", FLASHINFER_USE_TENSOR_CORES="1", MINISGL_FLASHINFER_USE_TENSOR_CORES="0")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
