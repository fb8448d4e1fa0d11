#!/usr/bin/env python3
"""Every bad input causes one line that names what was given, exit code 2, and no output file.

Usage: bad_input_test.py PROGRAM DEMO_MODEL_DIR
"""
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, DEMO = sys.argv[1], sys.argv[2]


def run(*args, stdin=""):
    return subprocess.run([PROGRAM, *args], input=stdin, capture_output=True, text=True, timeout=120)


class BadInput(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def model(self, **edits):
        """A copy of the demo model with files replaced: NAME=bytes, or NAME=None to drop one."""
        path = os.path.join(self.folder, "model")
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(DEMO, path)
        for name, content in edits.items():
            file = os.path.join(path, name.replace("__", "."))
            if content is None:
                os.remove(file)
            else:
                with open(file, "wb") as out:
                    out.write(content if isinstance(content, bytes) else content.encode())
        return path

    def config(self, **changes):
        with open(os.path.join(DEMO, "config.json")) as file:
            config = json.load(file)
        config.update(changes)
        return json.dumps(config)

    def weights(self):
        with open(os.path.join(DEMO, "model.safetensors"), "rb") as file:
            return file.read()

    def reheader(self, edit):
        """The demo weights with a safetensors header modified by edit(dict)."""
        data = self.weights()
        (length,) = struct.unpack("<Q", data[:8])
        header = json.loads(data[8 : 8 + length])
        edit(header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data[8 + length :]

    def refuse(self, words, *args, stdin=""):
        """Runs the command and checks exit code 2, one line on standard error with all words, and empty stdout."""
        result = run(*args, stdin=stdin)
        lines = [line for line in result.stderr.splitlines() if line.startswith("fovea: ")]
        self.assertEqual(result.returncode, 2, f"{args}: {result.returncode} {result.stderr}")
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertEqual(result.stdout, "")
        for word in words:
            self.assertIn(word, lines[0])

    def refuse_sent(self, words, *args, stdin):
        """The result of the last of the sent rows must be an error, and the run must end with an error."""
        result = run(*args, stdin=stdin)
        self.assertEqual(result.returncode, 2)
        self.assertIn("1 row was not answered", result.stderr)
        message = json.loads(result.stdout.splitlines()[-1])["error"]["message"]
        for word in words:
            self.assertIn(word, message)

    def refuse_model(self, words, **edits):
        self.refuse(words, "generate", "--model", self.model(**edits), "hello")

    # Flags.
    def test_unknown_flag(self):
        self.refuse(["--temprature", "did you mean --temperature?"], "generate", "--temprature", "0", "x")

    def test_unknown_command(self):
        self.refuse(["generat", "did you mean generate?"], "generat", "x")

    def test_no_command(self):
        self.refuse(["--help"])

    def test_flags_that_a_command_has_no_use_for(self):
        self.refuse(["unknown flag --json"], "chat", "--json")
        self.refuse(["unknown flag --json"], "score", "--input", "/dev/null", "--json")
        self.refuse(['unknown argument ""'], "chat", "")

    def test_values_of_flags(self):
        self.refuse(["--threads"], "generate", "--threads", "0", "x")
        self.refuse(["--seed", "18446744073709551615"], "generate", "--seed", "-1", "x")
        self.refuse(["--seed", "18446744073709551616"], "generate", "--seed", "18446744073709551616", "x")
        for flag in ["--stop", "--bad-word", "--model", "--input", "--output", "--tools", "--stop-token-id", "--temperature", "--page-size"]:
            self.refuse([flag], "generate", flag, "", "x")
        self.refuse(["the value is empty"], "generate", "--model", "", "x")
        self.refuse(["--model: the value is empty"], "generate", "--model=", "x")  # x is not used as its value
        self.refuse(["--host: the value is empty"], "serve", "--host=", "--port", "8000")
        self.refuse(["--temperature"], "generate", "--temperature", "warm", "x")
        self.refuse(["--dtype", "float8", "bfloat16"], "generate", "--dtype", "float8", "x")
        for command in (["generate", "x"], ["serve", "--port", "0"], ["embed", "--model", "m", "x"]):
            self.refuse(["--device cuda:99"], *command, "--device", "cuda:99")  # not built, no driver, or no such GPU
            self.refuse(["--device tpu", "auto, cpu, cuda or cuda:N"], *command, "--device", "tpu")
        self.refuse(["--gpu-memory-utilization"], "generate", "--gpu-memory-utilization", "1.5", "x")
        self.refuse(["--cuda-graph-bs"], "generate", "--cuda-graph-bs", "0", "--prompt", "x")
        self.refuse(["int3", "float16"], "generate", "--kv-cache-dtype", "int3", "x")
        self.refuse(["fp8_e4m3?", "int8_per_token_head"], "generate", "--kv-cache-dtype", "fp8_e4m", "x")
        self.refuse(["--scheduling-policy lifo", "fcfs, priority"], "generate", "--scheduling-policy", "lifo", "x")
        self.refuse(["--kv-layout hdn", "x_packed"], "generate", "--kv-layout", "hdn", "x")

    def test_speculative_decoding(self):
        ngram = '{"method": "ngram", "num_speculative_tokens": %d}'
        self.refuse(["--speculative-config", "is 16; it must be 1 to 15"], "generate", "--speculative-config", ngram % 16, "x")
        self.refuse(["give one of the two families"], "generate", "--speculative-config", ngram % 3, "--speculative-num-steps", "3", "x")
        self.refuse(["changes answers"], "generate", "--speculative-algorithm", "NGRAM", "--speculative-accept-threshold-acc", "0.9", "x")
        self.refuse(["medusa", "ngram, suffix, draft_model, eagle, eagle3 and mtp are built"], "generate", "--speculative-config",
                    '{"method": "medusa", "model": "m", "num_speculative_tokens": 3}', "x")
        self.refuse(["num_nextn_predict_layers"], "generate", "--speculative-config", '{"method": "mtp"}', "x")
        self.refuse(["it must be 1", "one chain"], "generate", "--speculative-algorithm", "NGRAM", "--speculative-eagle-topk", "4", "x")
        self.refuse(["/nowhere"], "generate", "--speculative-config", '{"model": "/nowhere", "num_speculative_tokens": 3}', "x")

    def test_no_prompt(self):
        self.refuse(["prompt"], "generate")

    # Backends.
    def test_unknown_backend(self):
        self.refuse(["CPU_ATN", "CPU_ATTN"], "generate", "--attention-backend", "CPU_ATN", "x")

    def test_absent_backend(self):
        self.refuse(["FLASH_ATTN", "compute capability not supported"], "generate", "--attn", "fa3", "x")

    def test_three_backends(self):
        self.refuse(["comma"], "generate", "--attn", "CPU_ATTN,CPU_ATTN,CPU_ATTN", "x")

    def test_page_size_and_kv_dtype_that_the_backend_lacks(self):
        self.refuse(["block_size not supported", "CPU_ATTN"], "generate", "--attn", "CPU_ATTN", "--page-size", "4096", "x")
        self.refuse(["kv_cache_dtype not supported"], "generate", "--attn", "CPU_ATTN", "--kv-cache-dtype", "nvfp4", "x")
        for name in ("fp8_inc", "fp8_ds_mla", "int4_per_token_head", "turboquant_k8v4"):
            self.refuse([name, "kv_cache_dtype not supported", "Fix for CPU_ATTN: --kv-cache-dtype auto: it takes auto, float32, "],
                        "generate", "--kv-cache-dtype", name, "x")
        self.refuse(["--page-size 0"], "generate", "--page-size", "0", "x")

    # Models.
    def test_model_that_is_not_there(self):
        self.refuse(["/no/such/model"], "generate", "--model", "/no/such/model", "x")
        self.refuse(["nobody/nothing", "fovea pull nobody/nothing"], "generate", "--model", "nobody/nothing", "x")

    def test_models_in_other_formats(self):
        folder = self.model(config__json=None)
        file = os.path.join(folder, "tiny.gguf")
        with open(file, "wb") as out:
            out.write(b"GGUF" + bytes(100))
        for command in (["generate", "x"], ["serve", "--port", "0"]):
            self.refuse([file, "GGUF", "Hugging Face"], *command, "--model", file)
            self.refuse(["config.json: missing", "GGUF"], *command, "--model", folder)
        self.refuse(["not a directory"], "generate", "--model", os.path.join(folder, "tokenizer.json"), "x")

    @unittest.skipUnless(os.getuid() == 0, "a test that becomes another user needs root")
    def test_a_model_that_this_user_may_not_read(self):
        folder = self.model()
        program = shutil.copy(PROGRAM, self.folder)  # a copy that another user may execute
        os.chmod(self.folder, 0o755)
        outer = os.path.join(self.folder, "outer")
        os.mkdir(outer)
        for closed, path in ((folder, folder), (outer, os.path.join(outer, "model"))):
            if closed == outer:
                os.chmod(folder, 0o755)
                shutil.move(folder, outer)
            os.chmod(closed, 0o700)
            result = subprocess.run([program, "generate", "--model", path, "x"], capture_output=True, text=True, user=65534, group=65534, extra_groups=[])
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("permission denied", result.stderr)
            self.assertIn(path, result.stderr)
            self.assertNotIn("missing", result.stderr)

    def test_missing_files(self):
        self.refuse_model(["config.json"], config__json=None)
        self.refuse_model(["model.safetensors"], model__safetensors=None)
        self.refuse_model(["tokenizer.json"], tokenizer__json=None)

    def test_config(self):
        self.refuse_model(["config.json"], config__json="{")
        self.refuse_model(["FooForCausalLM", "LlamaForCausalLM"], config__json=self.config(architectures=["FooForCausalLM"]))
        self.refuse_model(["num_hidden_layers"], config__json=self.config(num_hidden_layers=-1))
        self.refuse_model(["num_key_value_heads"], config__json=self.config(num_key_value_heads=7))
        self.refuse_model(["vocab_size"], config__json=self.config(vocab_size=10**12))

    def test_shape_that_disagrees_with_the_config(self):
        self.refuse_model(["mlp", "shape"], config__json=self.config(intermediate_size=64))
        self.refuse_model(["layers"], config__json=self.config(num_hidden_layers=50))

    def test_safetensors(self):
        data = self.weights()
        self.refuse_model(["model.safetensors"], model__safetensors=data[: len(data) // 2])
        self.refuse_model(["model.safetensors"], model__safetensors=data + b"x")
        self.refuse_model(["model.safetensors"], model__safetensors=b"")
        self.refuse_model(["model.safetensors"], model__safetensors=struct.pack("<Q", 1 << 60) + data[8:])

        def overlap(header):
            names = [name for name in header if name != "__metadata__"]
            header[names[1]]["data_offsets"] = header[names[0]]["data_offsets"]

        self.refuse_model(["model.safetensors"], model__safetensors=self.reheader(overlap))

        def oversize(header):
            name = next(name for name in header if name != "__metadata__")
            header[name]["shape"] = [1 << 40, 1 << 40]

        self.refuse_model(["model.safetensors"], model__safetensors=self.reheader(oversize))

    def test_tokenizer(self):
        with open(os.path.join(DEMO, "tokenizer.json")) as file:
            tokenizer = json.load(file)
        self.refuse_model(["tokenizer.json"], tokenizer__json="[]")
        broken = json.loads(json.dumps(tokenizer))
        broken["model"]["merges"].append(["no-such-token", "either"])
        self.refuse_model(["tokenizer.json", "no-such-token"], tokenizer__json=json.dumps(broken))
        broken["model"] = {"type": "Bigram", "vocab": {}}
        self.refuse_model(["tokenizer.json", '"Bigram" is not supported', "Unigram"], tokenizer__json=json.dumps(broken))
        broken["model"] = {"type": "Unigram", "vocab": []}
        self.refuse_model(["tokenizer.json", "model.vocab"], tokenizer__json=json.dumps(broken))
        bomb = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 256}
        tokenizer["decoder"] = {"type": "Sequence", "decoders": [tokenizer["decoder"], *[bomb] * 4]}
        self.refuse_model(["tokenizer.json", "times longer"], tokenizer__json=json.dumps(tokenizer))

    def test_template_that_loops(self):
        template = "{% for a in range(10000) %}{% for b in range(10000) %}{% for c in range(10000) %}x{% endfor %}{% endfor %}{% endfor %}"
        model = self.model(chat_template__jinja=template)
        self.refuse(["template"], "generate", "--model", model, "--chat", "hello")
        model = self.model(chat_template__jinja="{% if %}")
        self.refuse(["template"], "generate", "--model", model, "--chat", "hello")

    def test_templates_and_conversations(self):
        def file(name, content):
            path = os.path.join(self.folder, name)
            with open(path, "w") as out:
                out.write(content)
            return path

        messages = file("messages.json", '[{"role": "user", "content": "hi"}]')
        chat = ["chat", "--print-prompt", "--messages"]
        self.refuse(["'rag'", "available: 'default'"], *chat, messages, "--chat-template-name", "rag")
        self.refuse(["nofile is not a file"], *chat, messages, "--chat-template", "nofile")
        self.refuse(["line 1, column 22", "no attribute 'x'"], *chat, messages, "--chat-template", "{{ messages[0].role.x.y }}")
        self.refuse(["statement 'include'"], *chat, messages, "--chat-template", "{% include 'x' %}")
        self.refuse(["\"tools\"", "field of the request itself"], *chat, messages, "--template-kwargs", '{"tools": []}')
        self.refuse(["not valid JSON"], *chat, messages, "--template-kwargs", "{")
        self.refuse(["messages: not valid JSON"], *chat, file("broken.json", "[{"))
        self.refuse(["at least one message"], *chat, file("empty.json", "[]"))
        self.refuse(["string \"role\""], *chat, file("roleless.json", '[{"content": "x"}]'))
        self.refuse(["tools is"], *chat, messages, "--tools", file("tools.json", "{}"))
        self.refuse(["no such file"], *chat, messages, "--documents", os.path.join(self.folder, "absent"))
        self.refuse(["no such file"], *chat, os.path.join(self.folder, "absent"))
        self.refuse(["--messages"], "chat", "--print-prompt")
        self.refuse(["--chat"], "generate", "--tools", messages, "x")
        model = self.model(tokenizer_config__json='{"chat_template": 5}', chat_template__jinja=None)
        self.refuse(["chat_template is 5"], *chat, messages, "--model", model)

    # Requests.
    def test_prompt_longer_than_the_context(self):
        self.refuse(["maximum context length"], "generate", "--max-seq-len-override", "64", "word " * 500)

    def test_rows(self):
        source = os.path.join(self.folder, "in.jsonl")
        target = os.path.join(self.folder, "out.jsonl")
        rows = {
            '{"prompt": 3}': "prompt",
            "{": "not a JSON object",
            '{"prompt": "x", "ids": [1]}': "exactly one",
            '{"ids": [99999999]}': "99999999",
            '{"ids": []}': "no tokens",
            '{"prompt": "x", "text": "x"}': "exactly one",
            '{"ids": [1], "prompt_ids": [1]}': "exactly one",
            '{"prompt": "x", "max_tokens": -4}': "max_tokens",
            '{"prompt": "x", "max_tokens": 18446744073709551615}': "18446744073709551615",
            '{"prompt": "x", "max_tokens": 1.5}': "max_tokens",
            '{"prompt": "x", "top_k": -2}': "top_k",
            '{"prompt": "x", "seed": -1}': "seed",
            '{"prompt": "x", "temperature": 1e300}': "temperature",
            '{"prompt": "x", "temperature": 1e999}': "not a JSON object",
            '{"prompt": "x", "id": ' + "[" * 500000 + "]" * 500000 + "}": "nested deeper",
            '{"prompt": "\udcff"}': "not a JSON object",  # the byte 0xff
            '{"messages": [{"role": "wizard", "content": "x"}]}': "wizard",
            # Fields.
            '{"prompt": "x", "temprature": 1}': 'did you mean "temperature"?',
            '{"prompt": "x", "best_of": 4}': '"best_of" is not supported (it is 4); leave it out: use n',
            '{"prompt": "x", "frobnicate": 4}': 'unknown field "frobnicate"; known are prompt,',
            '{"prompt": "x", "grammar": "root ::= x"}': 'uses the rule "x"',
            '{"prompt": "x", "regex": "a", "guided_json": {}}': "beside",
            '{"prompt": "x", "suffix": "y"}': '"suffix" is not supported',
            '{"prompt": "x", "length_penalty": 2.0}': '"length_penalty" is not supported',
            '{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"prompt": "x"}}': 'give the content of "body" as the row itself',
            '{"messages": [{"role": "user", "contnet": "x", "content": "y"}]}': 'unknown field messages[0]."contnet"; did you mean "content"?',
            '{"prompt": "x", "\\u0000": 4}': "unknown field",
            '{"prompt": "x", "n": 1, "n": 2}': 'the field "n" is given twice',
            '{"prompt": "x", "id": {"a": 1, "a": 2}}': 'the field "a" is given twice',
            '{"prompt": "x", "max_tokens": 4, "max_completion_tokens": 4}': "give one of them",
            # Numbers.
            '{"prompt": "x", "temperature": "warm"}': '"temperature" is "warm"; it must be a number',
            '{"prompt": "x", "repetition_penalty": 0}': "repetition_penalty is 0; it must be a finite number above 0",
            '{"prompt": "x", "repetition_penalty": 1e39}': "repetition_penalty is inf",
            '{"prompt": "x", "frequency_penalty": 2.5}': "frequency_penalty is 2.5; it must be -2 to 2",
            '{"prompt": "x", "presence_penalty": -3}': "presence_penalty is -3; it must be -2 to 2",
            '{"prompt": "x", "min_tokens": -1}': '"min_tokens" is -1',
            '{"prompt": "x", "min_tokens": 9, "max_tokens": 8}': "min_tokens is 9; it must be at most max_tokens, which is 8",
            '{"prompt": "x", "n": 0}': '"n" is 0',
            '{"prompt": "x", "priority": 1}': "start with --scheduling-policy priority",
            '{"prompt": "x", "priority": 1e3}': '"priority" is 1000.0; allowed are integers',
            '{"prompt": "x", "n": 1000000000, "temperature": 1}': "n is 1000000000; it must be 1 to 128",
            '{"prompt": "x", "n": 2, "temperature": 0}': "give a temperature above 0, or n = 1",
            '{"prompt": "x", "logprobs": 21}': "logprobs is 21; it must be at most 20 (--max-logprobs raises this)",
            '{"prompt": "x", "logprobs": -1}': "logprobs is -1",
            '{"prompt": "x", "logprobs": -2}': '"logprobs" is -2',
            '{"prompt": "x", "logprobs": "yes"}': '"logprobs" is "yes"',
            '{"prompt": "x", "top_logprobs": 2}': '"top_logprobs" needs "logprobs": true',
            '{"prompt": "x", "top_logprobs": 2, "logprobs": 3}': '"top_logprobs" needs "logprobs": true',
            '{"prompt": "x", "prompt_logprobs": 99}': "prompt_logprobs is 99",
            # Tokens and texts.
            '{"prompt": "x", "logit_bias": [1]}': "must be an object of token ids and numbers",
            '{"prompt": "x", "logit_bias": {"a": 1}}': 'the key "a" must be a token id',
            '{"prompt": "x", "logit_bias": {"5x": 1}}': 'the key "5x" must be a token id',
            '{"prompt": "x", "logit_bias": {"99999999999": 1}}': "must be a token id",
            '{"prompt": "x", "logit_bias": {"-1": 1}}': "logit_bias has -1; this model's ids are 0 to",
            '{"prompt": "x", "logit_bias": {"768": 1}}': "logit_bias has 768; this model's ids are 0 to 767",
            '{"prompt": "x", "logit_bias": {"5": 101}}': "logit_bias of token 5 is 101; it must be -100 to 100",
            '{"prompt": "x", "logit_bias": {"5": null}}': "the bias of token 5 is null",
            '{"prompt": "x", "logit_bias": {"5": 1, "5": 2}}': 'the field "5" is given twice',
            '{"prompt": "x", "logit_bias": {"5": 1, "05": 2}}': "logit_bias of token 5 is given twice",
            json.dumps({"prompt": "x", "logit_bias": {"0" * i + "5": 1 for i in range(1025)}}): "1025 tokens; at most 1024",
            '{"prompt": "x", "allowed_token_ids": []}': "allowed_token_ids is empty",
            '{"prompt": "x", "allowed_token_ids": 5}': '"allowed_token_ids": token ids must be an array',
            '{"prompt": "x", "allowed_token_ids": [768]}': "allowed_token_ids has 768",
            '{"prompt": "x", "stop_token_ids": [-1]}': '"stop_token_ids": token id -1',
            '{"prompt": "x", "bad_words": [""]}': "bad_words has an empty string",
            '{"prompt": "x", "bad_words": [3]}': '"bad_words" must be a string or an array of strings',
            '{"prompt": "x", "stop": [null]}': '"stop" must be a string or an array of strings',
            '{"prompt": "x", "stop": [""]}': "stop has an empty string",
            json.dumps({"prompt": "x", "stop": ["x" * 1025]}): "1025 bytes; at most 1024",
            '{"prompt": "x", "ignore_eos": 1}': '"ignore_eos" must be true or false',
            '{"prompt": "x", "skip_special_tokens": "no"}': '"skip_special_tokens" must be true or false',
        }
        for row, word in rows.items():
            with open(source, "w", errors="surrogateescape") as file:
                file.write('{"prompt": "fine"}\n' + row + "\n")
            self.refuse([word, "line 2"], "generate", "--input", source, "--output", target)
            self.assertEqual(os.listdir(self.folder), ["in.jsonl"], "something half-written")

    def test_rows_of_score(self):
        source = os.path.join(self.folder, "in.jsonl")
        rows = {
            '{"text": "x", "temperature": 1}': 'unknown field "temperature"; known are',
            '{"text": "x", "prompt_logprob": 1}': 'did you mean "prompt_logprobs"?',
            '{"text": "x", "prompt_logprobs": 21}': "prompt_logprobs is 21",
        }
        for row, word in rows.items():
            with open(source, "w") as file:
                file.write('{"text": "fine"}\n' + row + "\n")
            self.refuse([word, "line 2"], "score", "--input", source)

    def test_a_bad_row_from_a_pipe(self):
        self.refuse_sent(["/dev/stdin line 2", "not a JSON object"], "generate", "--input", "/dev/stdin", stdin='{"prompt": "x", "max_tokens": 1}\n{\n')
        self.refuse(["/dev/stdin has no rows"], "generate", "--input", "/dev/stdin", stdin="\n\n")

    def test_sampling_flags(self):
        self.refuse(["--frequency-penalty"], "generate", "--frequency-penalty", "3", "x")
        self.refuse(["frequency_penalty is nan"], "generate", "--frequency-penalty", "nan", "x")
        self.refuse(["temperature is nan"], "generate", "--temperature", "nan", "x")
        self.refuse(["--repetition-penalty"], "generate", "--repetition-penalty", "0", "x")
        self.refuse(["--n"], "generate", "--n", "129", "x")
        self.refuse(["temperature"], "generate", "--n", "2", "--temperature", "0", "x")
        self.refuse(["--logit-bias", "token id"], "generate", "--logit-bias", '{"five": 1}', "x")
        self.refuse(["--logit-bias", "object"], "generate", "--logit-bias", "[" * 100000, "x")
        self.refuse(["-100 to 100"], "generate", "--logit-bias", '{"5": 1e9}', "x")
        self.refuse(["--json"], "generate", "--logprobs", "2", "x")
        self.refuse(["min_tokens is 9"], "generate", "--min-tokens", "9", "-n", "4", "x")
        self.refuse(["bad_words"], "generate", "--bad-word", " ", "x")
        self.refuse(["allowed_token_ids has 5000"], "generate", "--allowed-token-id", "5000", "x")
        # Detected only while it runs: the masks exclude all tokens.
        self.refuse(["no token is left", "min_tokens"], "generate", "--json", "--allowed-token-id", str(self.end_token()),
                    "--min-tokens", "2", "x")

    def test_a_row_that_fails_is_answered_while_its_sender_waits(self):
        row = {"prompt": "x", "allowed_token_ids": [self.end_token()], "min_tokens": 2}
        process = subprocess.Popen([PROGRAM, "generate", "--input", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, bufsize=0)
        try:
            process.stdin.write(json.dumps(row).encode() + b"\n")  # standard input stays open
            self.assertIn("no token is left", json.loads(process.stdout.readline())["error"]["message"])
            process.stdin.write(b'{"prompt": "x", "max_tokens": 1}\n')
            self.assertEqual(json.loads(process.stdout.readline())["completion_tokens"], 1)
            process.stdin.close()
            self.assertEqual(process.wait(timeout=60), 2)
            self.assertIn(b"1 row was not answered", process.stderr.read())
        finally:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                stream.close()

    def end_token(self):
        with open(os.path.join(DEMO, "config.json")) as file:
            end = json.load(file)["eos_token_id"]
        return end if isinstance(end, int) else end[0]

    def test_generation_config(self):
        self.refuse(["/no/such", "auto"], "generate", "--generation-config", "/no/such", "x")
        self.refuse(["neither a file nor a folder"], "generate", "--generation-config", self.folder, "x")
        mine = os.path.join(self.folder, "mine.json")
        for text, word in {"[]": "mine.json", '{"repetition_penalty": -1}': "repetition_penalty is -1",
                           '{"max_new_tokens": 0}': "max_new_tokens is 0"}.items():
            with open(mine, "w") as file:
                file.write(text)
            self.refuse([mine, word], "generate", "--generation-config", mine, "x")

    def test_files(self):
        self.refuse(["/no/such.jsonl"], "generate", "--input", "/no/such.jsonl")
        source = os.path.join(self.folder, "in.jsonl")
        with open(source, "w") as file:
            file.write('{"prompt": "x"}\n')
        self.refuse(["/no/folder"], "generate", "--input", source, "--output", "/no/folder/out.jsonl")
        self.refuse(["folder"], "generate", "--input", self.folder)
        self.refuse(["folder"], "generate", "--prompt-file", self.folder)
        self.refuse(["--input"], "generate", "--input", source, "and a prompt")
        self.refuse(["--chat"], "generate", "--system", "Be brief.", "x")
        self.refuse(["in.jsonl line 1", "part of a chat"], "generate", "--input", source, "--system", "Be brief.")
        self.refuse_sent(["--tools"], "generate", "--input", "-", "--template-kwargs", "{}", stdin='{"ids": [1]}\n')
        self.refuse_sent(["no tokens to score"], "score", "--input", "-", stdin='{"audio": "a.wav"}\n')
        # The output would overwrite the rows that are read, whatever the path's spelling.
        other, link = (os.path.join(self.folder, name) for name in ["hard.jsonl", "link.jsonl"])
        os.link(source, other)
        os.symlink("in.jsonl", link)
        for command in [[name, "--model", "/no/model"] for name in ["generate", "score", "embed"]]:
            for target in [source, other, link, os.path.join(self.folder, "..", os.path.basename(self.folder), "in.jsonl")]:
                with self.subTest(command=command, target=target):
                    self.refuse([target, "is the file that is read", "another file"], *command, "--input", source, "--output", target)
        self.refuse(["is the file that is read"], "generate", "--prompt-file", source, "--output", link)
        with open(source) as rows:
            done = subprocess.run([PROGRAM, "generate", "--input", "-", "--output", link], stdin=rows, capture_output=True, text=True)
        self.assertEqual(done.returncode, 2, done)
        self.assertIn("standard input", done.stderr)
        with open(source) as rows:
            self.assertEqual(rows.read(), '{"prompt": "x"}\n')
        os.remove(other), os.remove(link)
        # Refused before the model is read.
        self.refuse(["it is a folder"], "score", "--model", "/no/model", "--input", source, "--output", self.folder)
        self.assertEqual(os.listdir(self.folder), ["in.jsonl"], "something half-written")

    # The server: errors are reported before it listens.
    def test_serve_flags(self):
        for words, *flags in (
            (["--port", "65535"], "--port", "65536"),
            (["--port", "-1"], "--port", "-1"),
            (["--port", "x"], "--port", "x"),
            (["--prot", "did you mean --port?"], "--prot", "8000"),
            (["--uds", "the value is empty"], "--uds", ""),
            (["--io-threads"], "--io-threads", "0"),
            (["--max-queued-requests"], "--max-queued-requests", "-1"),
            (["--max-queued-tokens"], "--max-queued-tokens", "many"),
            (["--max-body-bytes"], "--max-body-bytes", "10"),
            (["--max-connections"], "--max-connections", "0"),
            (["--shutdown-timeout"], "--shutdown-timeout", "-1"),
            (["--shutdown-timeout"], "--shutdown-timeout", "nan"),
            (["--shutdown-timeout"], "--shutdown-timeout", "inf"),
            (["--header-timeout"], "--header-timeout", "0"),
            (["--header-timeout"], "--header-timeout", "nan"),
            (["--sse-keepalive"], "--sse-keepalive", "0"),
            (["--allowed-origins"], "--allowed-origins", "[5]"),
            (["--allowed-host http://x", "without a scheme"], "--allowed-host", "http://x"),
            (["CPU_ATN", "CPU_ATTN"], "--attention-backend", "CPU_ATN"),
            (["unknown flag --tensor-paralel-size"], "--tensor-paralel-size", "2"),
        ):
            with self.subTest(flags=flags):
                self.refuse(words, "serve", *flags)

    def test_serve_models(self):
        self.refuse(["/no/such/model"], "serve", "--port", "0", "--model", "/no/such/model")
        self.refuse(["config.json"], "serve", "--port", "0", "--model", self.model(config__json="{"))
        self.refuse(["model.safetensors"], "serve", "--port", "0", "--model", self.model(model__safetensors=None))
        self.refuse(["tokenizer.json"], "serve", "--port", "0", "--model", self.model(tokenizer__json="[]"))
        self.refuse(["chat template", "line 1, column 7"], "serve", "--port", "0", "--chat-template", "{% if %}")

    def test_serve_keys(self):
        self.refuse(["--api-key", "the value is empty"], "serve", "--api-key", "")
        for key in ("two words", "x" * 257, "schl\u00fcssel", "a\tb"):
            result = run("serve", "--port", "0", "--api-key", key)
            self.assertEqual(result.returncode, 2, result.stderr)
            last = result.stderr.strip().splitlines()[-1]
            self.assertIn("1 to 256 printable ASCII characters without spaces", last)
            self.assertNotIn(key, result.stderr)  # it may be written to a log
        for name in ("FOVEA_API_KEY", "VLLM_API_KEY"):
            result = subprocess.run([PROGRAM, "serve", "--port", "0"], env={**os.environ, name: ""}, capture_output=True, text=True, timeout=120)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(f"{name} is empty; set it to a key, or unset it", result.stderr)

    def test_serve_addresses(self):
        self.refuse(["host is 256.1.1.1", "give an address such as 127.0.0.1"], "serve", "--host", "256.1.1.1")
        self.refuse(["no.such.host.invalid"], "serve", "--host", "no.such.host.invalid")
        self.refuse(["192.0.2.1:", "give an address of this machine"], "serve", "--port", "0", "--host", "192.0.2.1")
        long = os.path.join(self.folder, "x" * 200)
        self.refuse([long, f"has {len(long)} bytes; 1 to 107 are allowed"], "serve", "--uds", long)
        self.refuse(["folder that exists"], "serve", "--uds", os.path.join(self.folder, "none", "s"))
        taken = os.path.join(self.folder, "file")
        with open(taken, "w") as file:
            file.write("another's")
        self.refuse([taken, "exists and is not a socket"], "serve", "--uds", taken)
        with open(taken) as file:
            self.assertEqual(file.read(), "another's")
        self.refuse([self.folder, "exists and is not a socket"], "serve", "--uds", self.folder)
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen()
            port = holder.getsockname()[1]
            self.refuse([f"127.0.0.1:{port}: Address already in use", "give another port"], "serve", "--port", str(port))
        with socket.socket(socket.AF_UNIX) as holder:
            path = os.path.join(self.folder, "s")
            holder.bind(path)
            holder.listen()
            self.refuse([path, "is in use by another server"], "serve", "--uds", path)

    def test_bench_serve_flags(self):
        for words, *flags in (
            (["--port"], "--port", "0"),
            (["--port"], "--port", "65536"),
            (["--num-prompt", "did you mean --num-prompts?"], "--num-prompt", "1"),
            (["--backend"], "--backend", "vllm"),
            (["--dataset-name"], "--dataset-name", "sonnet"),
            (["--num-prompts"], "--num-prompts", "0"),
            (["--random-input-len"], "--random-input-len", "-5"),
            (["--random-range-ratio"], "--random-range-ratio", "1"),
            (["--request-rate"], "--request-rate", "-1"),
            (["--burstiness"], "--burstiness", "0"),
            (["--max-concurrency"], "--max-concurrency", "0"),
            (["--temperature"], "--temperature", "-1"),
            (["--seed"], "--seed", "-1"),
            (["--extra-body"], "--extra-body", "[1]"),
            (["--extra-body"], "--extra-body", "{"),
            (["--base-url"], "--base-url", "ftp://x"),
            (["--base-url"], "--base-url", "http://x:99999"),
            (["--base-url", "107"], "--base-url", "unix:/" + "x" * 200),
            (["--goodput"], "--goodput", "ttft"),
            (["--request-timeout"], "--request-timeout", "0"),
            (["--model", "the value is empty"], "--model", ""),
            (["cannot write", "does not exist"], "--save-result", "--result-dir", "/no/such/folder"),
        ):
            with self.subTest(flags=flags):
                self.refuse(words, "bench", "serve", *flags)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]  # nothing listens there
            self.refuse([f"127.0.0.1:{port}", "cannot connect"], "bench", "serve", "--port", str(port), "--ready-check-timeout-sec", "0")

    def test_standard_output_that_takes_nothing(self):
        for args in [["generate", "-n", "2", "x"], ["generate", "-n", "2", "--json", "x"]]:
            with open("/dev/full", "w") as full:
                result = subprocess.run([PROGRAM, *args], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
            self.assertEqual(result.returncode, 2)
            self.assertIn("cannot write", result.stderr.splitlines()[-1])

    def test_a_benchmark_that_does_not_fit(self):
        self.refuse(["1500", "1024"], "bench", "model", "--prompt-tokens", "1000", "--new-tokens", "500")
        self.refuse(["--batch 9", "KV cache"], "bench", "model", "--num-pages", "64", "--batch", "9", "--new-tokens", "2")

    def test_weights_that_are_a_pipe(self):
        model = self.model(model__safetensors=None)
        os.mkfifo(os.path.join(model, "model.safetensors"))
        self.refuse(["model.safetensors", "not a regular file"], "generate", "--model", model, "x")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
