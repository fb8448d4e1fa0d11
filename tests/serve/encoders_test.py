#!/usr/bin/env python3
"""Transcripts by Whisper, and scores, orders and vectors of texts by encoders: against `fovea generate`, `fovea embed` and a BERT in fp64.

Usage: encoders_test.py PROGRAM GOLDENS
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import unittest

from server import Closed, Server

PROGRAM, GOLDENS = sys.argv[1:3]
WHISPER, BERT = (os.path.join(GOLDENS, name) for name in ("whisper_d16_bf16", "bert_d8_fp32"))


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file)


def run(*args):
    result = subprocess.run([PROGRAM, *args], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def wav(seconds, bits=16, kind=1, channels=1, rate=16000):
    """Noise with a beat, of that format."""
    values, state = [], 1
    for i in range(int(rate * seconds)):
        state = (state * 1103515245 + 12345) % 2**31
        values.append((0.4 * math.sin(0.05 * i) + 0.2 * (state / 2**30 - 1)) * (1 if i // (rate // 5) % 2 else 0.1))
    data = bytearray()
    for value in values:
        for _ in range(channels):
            if kind == 3:
                data += struct.pack("<f" if bits == 32 else "<d", value)
            elif bits == 8:
                data += bytes([128 + round(value * 127)])
            else:
                data += struct.pack("<i", round(value * (2 ** (bits - 1) - 1)))[:bits // 8]
    block = channels * bits // 8
    return (b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt "
            + struct.pack("<IHHIIHH", 16, kind, channels, rate, rate * block, block, bits) + b"data" + struct.pack("<I", len(data)) + bytes(data))


def form(fields, boundary="----fovea"):
    body = b""
    for name, value in fields.items():
        for item in value if isinstance(value, list) else [value]:
            name_ = f'name="{name}"' + ('; filename="a.wav"\r\nContent-Type: audio/wav' if isinstance(item, bytes) else "")
            body += f"--{boundary}\r\nContent-Disposition: form-data; {name_}\r\n\r\n".encode() + (item if isinstance(item, bytes) else str(item).encode()) + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), [("Content-Type", f"multipart/form-data; boundary={boundary}")]


def send(server, path="/v1/audio/transcriptions", **fields):
    body, headers = form(fields)
    return server.request("POST", path, body, headers=headers)


class Transcripts(unittest.TestCase):
    """A model without Whisper's special tokens: one window of a second, as `fovea generate` transcribes it."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.model = folder.name, os.path.join(folder.name, "model")
        shutil.copytree(WHISPER, cls.model)
        write(os.path.join(cls.model, "preprocessor_config.json"),
              {"feature_size": 12, "chunk_length": 1, "hop_length": 200, "n_fft": 400, "sampling_rate": 16000})
        cls.server = Server(PROGRAM, "--served-model-name", "whisper", "--max-body-bytes", "200000", model=cls.model)
        cls.addClassCleanup(cls.server.kill)

    def offline(self, audio):
        path = os.path.join(self.folder, "a.wav")
        with open(path, "wb") as file:
            file.write(audio)
        [row] = run("generate", "--model", self.model, "--audio", path, "--json", "--temperature", "0", "--max-tokens", "32")
        return row["text"].strip(" \t\r\n")

    def test_text_is_that_of_generate(self):
        for audio in (wav(0.5), wav(1), wav(0.3, 8), wav(0.3, 24), wav(0.3, 32, 1, 2), wav(0.3, 32, 3), wav(0.3, 64, 3, 2), wav(0.4, rate=48000), wav(0.4, rate=11025)):
            answer = send(self.server, file=audio, model="whisper", temperature=0)
            self.assertEqual(answer.status, 200, answer)
            self.assertEqual(answer.json()["text"], self.offline(audio))
            self.assertEqual(answer.json()["usage"], {"type": "duration", "seconds": 1})
        self.assertEqual(send(self.server, file=wav(1), response_format="text").body.decode(), self.offline(wav(1)) + "\n")
        events = send(self.server, file=wav(1), stream="true").events()
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[-2]["type"], "transcript.text.done")
        self.assertEqual("".join(event["delta"] for event in events[:-2]), events[-2]["text"])
        self.assertEqual(events[-2]["text"], self.offline(wav(1)))

    def test_refusals(self):
        for fields, status, part in (
                ({"file": wav(2)}, 400, "at most 1 seconds"), ({"file": wav(0.1, rate=7999)}, 400, "7999 Hz can't be converted to 16000 Hz"),
                ({"file": b"ID3" + bytes(50)}, 400, "not a WAV file"), ({"file": b"fLaC" + bytes(50)}, 400, "but FLAC; convert it, for instance with ffmpeg"),
                ({"file": wav(0.1)[:-7]}, 400, "was it cut off?"), ({"file": wav(0.1), "model": "other"}, 404, "does not exist"),
                ({"file": wav(0.1), "response_format": "vtt"}, 400, "no timestamp tokens"), ({"file": bytes(300_000)}, 413, "allowed 200000 bytes"),
                ({"file": wav(0.1), "langauge": "en"}, 400, "language"), ({}, 400, "no part")):
            answer = send(self.server, **fields)
            self.assertEqual(answer.status, status, answer)
            self.assertIn(part, answer.json()["error"]["message"])
        body, headers = form({"file": wav(0.5)})
        for cut in (10, 80, 150, 1000, len(body) - 5):
            answer = self.server.request("POST", "/v1/audio/transcriptions", body[:cut], headers=headers)
            self.assertEqual(answer.status, 400, answer)
        self.assertEqual(self.server.post("/v1/audio/transcriptions", {"file": "x"}).status, 415)
        answer = self.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
        self.assertIn("takes audio, not text", answer.json()["error"]["message"])
        self.assertIn("no audio", self.texts().json()["error"]["message"])

    def texts(self):
        with Server(PROGRAM, model=BERT) as server:
            return send(server, file=wav(0.1))

    def test_many_at_once_and_clients_that_leave(self):
        expected, wrong = self.offline(wav(0.7)), []

        def ask(number):
            if number % 4 == 0:
                body, headers = form({"file": wav(1), "stream": "true"})
                with self.server.connect() as s:
                    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers[0][0]}: {headers[0][1]}\r\n\r\n"
                    s.sendall(head.encode() + body[:len(body) if number % 8 else 5000])
                return
            try:
                answer = send(self.server, file=wav(0.7))
                if answer.status != 200 or answer.json()["text"] != expected:
                    wrong.append(answer)
            except Closed as error:
                wrong.append(error)
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(24)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.server.wait_idle()
        self.assertGreater(self.server.metrics().value("vllm:request_success_total"), 17)


class LongTranscripts(unittest.TestCase):
    """A model with Whisper's tokens and random weights: the windows of one second, one after the other."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        model = os.path.join(folder.name, "model")
        os.mkdir(model)
        names = ["<|endoftext|>", "<|startoftranscript|>", "<|en|>", "<|de|>", "<|translate|>", "<|transcribe|>", "<|startofprev|>", "<|nospeech|>",
                 "<|notimestamps|>"] + [f"<|{i * 0.02:.2f}|>" for i in range(51)]
        cls.first_time = 256 + names.index("<|0.00|>")
        tokenizer = read(os.path.join(WHISPER, "tokenizer.json"))
        tokenizer["added_tokens"] = [{"id": 256 + i, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                      "special": i < 9} for i, name in enumerate(names)]
        write(os.path.join(model, "tokenizer.json"), tokenizer)
        config = read(os.path.join(WHISPER, "config.json"))
        config.update(vocab_size=256 + len(names), decoder_start_token_id=257, eos_token_id=256, bos_token_id=256, pad_token_id=256,
                      max_source_positions=50, num_mel_bins=12)
        write(os.path.join(model, "config.json"), config)
        write(os.path.join(model, "preprocessor_config.json"),
              {"feature_size": 12, "chunk_length": 1, "hop_length": 160, "n_fft": 400, "sampling_rate": 16000})
        cls.server = Server(PROGRAM, "--served-model-name", "whisper", "--dummy-weights", "--seed", "3", model=model)
        cls.addClassCleanup(cls.server.kill)

    def verbose(self, **fields):
        answer = send(self.server, response_format="verbose_json", **fields)
        self.assertEqual(answer.status, 200, answer)
        return answer.json()

    def test_segments_are_in_order_and_make_the_text(self):
        audio = wav(3.5)
        for fields in ({"language": "en"}, {}, {"language": "de", "prompt": "Before.", "temperature": 1, "seed": 4}):
            answer = self.verbose(file=audio, **fields, **{"timestamp_granularities[]": "segment"})
            self.assertEqual(answer["duration"], 3.5)
            self.assertIn(answer["language"], ("english", "german"))
            self.assertEqual("".join(segment["text"] for segment in answer["segments"]).strip(" \t\r\n"), answer["text"])
            self.assertEqual([segment["id"] for segment in answer["segments"]], list(range(len(answer["segments"]))))
            seek = 0
            for segment in answer["segments"]:
                self.assertGreaterEqual(segment["seek"], seek)
                seek = segment["seek"]
                self.assertLess(seek, 350)
                self.assertLess(segment["start"], segment["end"])
                self.assertGreaterEqual(segment["start"], seek / 100 - 1e-9)
                self.assertLessEqual(segment["end"], seek / 100 + 1 + 1e-9)
                self.assertGreaterEqual(segment["tokens"][0], self.first_time)
            self.assertEqual(self.verbose(file=audio, **fields)["segments"], answer["segments"], "it repeats")
            streamed = send(self.server, file=audio, stream="true", **fields).events()
            self.assertEqual(streamed[-2]["text"], answer["text"])
        self.assertGreater(len(answer["segments"]), 2)

    def test_one_window_equals_the_first_of_more(self):
        first = self.verbose(file=wav(1), language="en")["segments"]
        longer = [s for s in self.verbose(file=wav(3), language="en")["segments"] if s["seek"] == 0]
        self.assertEqual(first[:len(longer)], longer)
        self.assertTrue(longer)

    def test_subtitles_have_the_times(self):
        segments = self.verbose(file=wav(2.5), language="en")["segments"]
        for kind, point in (("srt", ","), ("vtt", ".")):
            answer = send(self.server, file=wav(2.5), language="en", response_format=kind).body.decode("utf-8", "replace")
            for segment in segments:
                clock = "%02d:%02d:%02d" % (segment["start"] // 3600, segment["start"] % 3600 // 60, segment["start"] % 60)
                self.assertIn(f"{clock}{point}{round(segment['start'] * 1000) % 1000:03d} --> ", answer)

    def test_translations(self):
        answer = send(self.server, "/v1/audio/translations", file=wav(1.2), response_format="verbose_json")
        self.assertEqual((answer.json()["task"], answer.json()["language"]), ("translate", "english"))


def tensors_of(model):
    with open(os.path.join(model, "model.safetensors"), "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header, data = json.loads(file.read(size)), file.read()
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            out[name] = (entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end]))
    return out


def write_tensors(model, tensors):
    header, data = {}, b""
    for name, (shape, values) in sorted(tensors.items()):
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += struct.pack(f"<{len(values)}f", *values)
    text = json.dumps(header).encode()
    with open(os.path.join(model, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Bert:
    """The model in fp64, one sequence at a time."""

    def __init__(self, tensors, heads=4, layers=2):
        self.tensors, self.heads, self.layers = tensors, heads, layers

    def linear(self, name, rows):
        (outs, ins), weights = self.tensors[name + ".weight"]
        bias = self.tensors[name + ".bias"][1]
        return [[sum(weights[o * ins + i] * row[i] for i in range(ins)) + bias[o] for o in range(outs)] for row in rows]

    def norm(self, name, rows):
        weights, bias, out = self.tensors[name + ".weight"][1], self.tensors[name + ".bias"][1], []
        for row in rows:
            mean = sum(row) / len(row)
            scale = 1 / math.sqrt(sum((x - mean) ** 2 for x in row) / len(row) + 1e-12)
            out.append([(x - mean) * scale * w + b for x, w, b in zip(row, weights, bias)])
        return out

    def hidden(self, ids, types):
        tables = [self.tensors[f"bert.embeddings.{kind}_embeddings.weight"] for kind in ("word", "position", "token_type")]
        dim = tables[0][0][1]
        rows = [[sum(table[1][at * dim + d] for table, at in zip(tables, (token, place, kind))) for d in range(dim)]
                for place, (token, kind) in enumerate(zip(ids, types, strict=True))]
        rows = self.norm("bert.embeddings.LayerNorm", rows)
        size = dim // self.heads
        for layer in (f"bert.encoder.layer.{i}." for i in range(self.layers)):
            q, k, v = (self.linear(layer + "attention.self." + name, rows) for name in ("query", "key", "value"))
            mixed = []
            for row in q:
                out = []
                for head in range(0, dim, size):
                    scores = [sum(row[d] * key[d] for d in range(head, head + size)) / math.sqrt(size) for key in k]
                    weights = [math.exp(score - max(scores)) for score in scores]
                    out += [sum(w * value[d] for w, value in zip(weights, v)) / sum(weights) for d in range(head, head + size)]
                mixed.append(out)
            attended = self.linear(layer + "attention.output.dense", mixed)
            rows = self.norm(layer + "attention.output.LayerNorm", [[a + b for a, b in zip(x, y)] for x, y in zip(attended, rows)])
            inner = [[x * 0.5 * (1 + math.erf(x / math.sqrt(2))) for x in row] for row in self.linear(layer + "intermediate.dense", rows)]
            out = self.linear(layer + "output.dense", inner)
            rows = self.norm(layer + "output.LayerNorm", [[a + b for a, b in zip(x, y)] for x, y in zip(out, rows)])
        return rows

    def logit(self, ids, types):
        pooled = [[math.tanh(x) for x in self.linear("bert.pooler.dense", self.hidden(ids, types)[:1])[0]]]
        return self.linear("classifier", pooled)[0]


def cross_encoder(folder, labels=1, **config):
    """The encoder of BERT with a head that spreads the scores."""
    shutil.copytree(BERT, folder)
    tensors = {"bert." + name: tensor for name, tensor in tensors_of(folder).items()}
    state = 7

    def noise(count, scale):
        nonlocal state
        values = []
        for _ in range(count):
            state = (state * 1103515245 + 12345) % 2**31
            values.append(struct.unpack("<f", struct.pack("<f", (state / 2**30 - 1) * scale))[0])
        return tuple(values)
    tensors["bert.pooler.dense.weight"], tensors["bert.pooler.dense.bias"] = ([32, 32], noise(1024, 0.3)), ([32], noise(32, 0.3))
    tensors["classifier.weight"], tensors["classifier.bias"] = ([labels, 32], noise(32 * labels, 1)), ([labels], noise(labels, 1))
    write_tensors(folder, tensors)
    write(os.path.join(folder, "config.json"), {**read(os.path.join(BERT, "config.json")), "architectures": ["BertForSequenceClassification"], **config})
    tokenizer = read(os.path.join(folder, "tokenizer.json"))
    tokenizer["post_processor"] = {"type": "BertProcessing", "cls": ["<s>", 256], "sep": ["</s>", 257]}
    write(os.path.join(folder, "tokenizer.json"), tokenizer)
    return Bert(tensors)


def pair(first, second):
    first, second = first.encode(), second.encode()
    return [256, *first, 257, *second, 257], [0] * (len(first) + 2) + [1] * (len(second) + 1)


class CrossEncoders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.model = folder.name, os.path.join(folder.name, "model")
        cls.bert = cross_encoder(cls.model)
        cls.server = Server(PROGRAM, "--served-model-name", "reranker", model=cls.model)
        cls.addClassCleanup(cls.server.kill)

    def sigmoid(self, first, second):
        return 1 / (1 + math.exp(-self.bert.logit(*pair(first, second))[0]))

    def test_scores_are_those_in_fp64(self):
        seconds = ["blue", "a much longer text", "x"]
        answer = self.server.post("/v1/score", {"model": "reranker", "text_1": "sky", "text_2": seconds}).json()
        self.assertEqual([row["index"] for row in answer["data"]], [0, 1, 2])
        expected = [self.sigmoid("sky", second) for second in seconds]
        for row, want in zip(answer["data"], expected, strict=True):
            self.assertAlmostEqual(row["score"], want, delta=2e-6)
        self.assertGreater(max(expected) - min(expected), 0.02)
        tokens = sum(len(pair("sky", second)[0]) for second in seconds)
        self.assertEqual(answer["usage"], {"prompt_tokens": tokens, "total_tokens": tokens})
        # N to N, in any company, under every name.
        for path, names in (("/score", ("text_1", "text_2")), ("/v1/score", ("data_1", "data_2")), ("/v1/score", ("queries", "documents"))):
            both = self.server.post(path, {names[0]: ["sky", "x"], names[1]: ["blue", "sky"]}).json()["data"]
            self.assertEqual(both[0]["score"], answer["data"][0]["score"])
            self.assertAlmostEqual(both[1]["score"], self.sigmoid("x", "sky"), delta=2e-6)

    def test_rerank(self):
        documents = ["blue", "a much longer text", "x", "blue"]
        scores = [row["score"] for row in self.server.post("/v1/score", {"text_1": "sky", "text_2": documents}).json()["data"]]
        order = sorted(range(4), key=lambda i: (-scores[i], i))
        for path in ("/v1/rerank", "/rerank", "/v2/rerank"):
            answer = self.server.post(path, {"query": "sky", "documents": documents}).json()
            self.assertEqual([(row["index"], row["relevance_score"]) for row in answer["results"]], [(i, scores[i]) for i in order])
            texts = [{"text": documents[i]} for i in order]
            self.assertEqual([row.get("document") for row in answer["results"]], [None] * 4 if path.startswith("/v2") else texts)
        answer = self.server.post("/v1/rerank", {"query": "sky", "documents": [{"text": d} for d in documents], "top_n": 2, "return_documents": False}).json()
        self.assertEqual([row["index"] for row in answer["results"]], order[:2])
        self.assertNotIn("document", answer["results"][0])

    def test_long_texts_are_refused_or_cut_longest_first(self):
        long = "y" * 200
        refused = self.server.post("/v1/score", {"text_1": "sky", "text_2": long})
        self.assertEqual((refused.status, refused.json()["error"]["code"]), (400, "context_length_exceeded"))
        for first, second, kept in (("sky", long, ("sky", "y" * 122)), (long, "sky", ("y" * 122, "sky")), (long, long, ("y" * 62, "y" * 63))):
            answer = self.server.post("/v1/score", {"text_1": first, "text_2": second, "truncate_prompt_tokens": -1})
            self.assertAlmostEqual(answer.json()["data"][0]["score"], self.sigmoid(*kept), delta=2e-6)
        self.assertEqual(self.server.post("/v2/rerank", {"query": "sky", "documents": [long]}).status, 200)

    def test_the_files_choose_the_activation(self):
        for number, (config, raw) in enumerate((({"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}, True),
                                                ({"sbert_ce_default_activation_function": "torch.nn.modules.activation.Sigmoid"}, False))):
            model = os.path.join(self.folder, f"model{number}")
            bert = cross_encoder(model, **config)
            with Server(PROGRAM, model=model) as server:
                score = server.post("/v1/score", {"text_1": "sky", "text_2": "blue"}).json()["data"][0]["score"]
            self.assertAlmostEqual(score, bert.logit(*pair("sky", "blue"))[0] if raw else self.sigmoid("sky", "blue"), delta=1e-5)

    def test_classifiers_are_refused(self):
        model = os.path.join(self.folder, "classifier")
        cross_encoder(model, labels=3)
        with Server(PROGRAM, model=model) as server:
            answer = server.post("/v1/rerank", {"query": "sky", "documents": ["blue"]})
            self.assertEqual(answer.status, 400)
            self.assertIn("has 3 outputs", answer.json()["error"]["message"])
            self.assertEqual(server.post("/v1/embeddings", {"input": "x"}).status, 200)

    def test_refusals_name_the_field(self):
        for path, body, param in (("/v1/score", {"text_1": "x"}, "text_2"), ("/v1/score", {"text_1": ["x", "y"], "text_2": ["x"]}, "text_1"),
                                  ("/v1/score", {"text_1": 1, "text_2": "x"}, "text_1"), ("/v1/score", {"text_1": "x", "data_1": "x", "text_2": "x"}, "data_1"),
                                  ("/v1/rerank", {"documents": ["x"]}, "query"), ("/v1/rerank", {"query": "x", "documents": []}, "documents"),
                                  ("/v1/rerank", {"query": "x", "documents": [{"text": "x", "title": "y"}]}, "documents[0].title"),
                                  ("/v1/rerank", {"query": "x", "documents": [{"txt": "x"}]}, "documents[0].txt"),
                                  ("/v1/rerank", {"query": "x", "documents": [{"text": 1}]}, "documents[0].text"),
                                  ("/v1/rerank", {"query": "x", "documents": ["x", 1]}, "documents"), ("/v1/rerank", {"query": "x", "documents": ["x"], "top_n": -1}, "top_n"),
                                  ("/v1/rerank", {"query": "x", "documents": ["x"], "rank_fields": ["a"]}, "rank_fields")):
            answer = self.server.post(path, body)
            self.assertEqual((answer.status, answer.json()["error"]["param"]), (400, param), answer)
        self.assertEqual(self.server.post("/v1/rerank", {"query": "x", "documents": ["x"] * 2049}).status, 400)
        self.assertEqual(self.server.post("/v1/score", {"model": "other", "text_1": "x", "text_2": "x"}).status, 404)


class EmbeddingModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--served-model-name", "bert", model=BERT)
        cls.addClassCleanup(cls.server.kill)
        cls.vectors = {row["input"]: row["embedding"] for row in
                       (dict(input=text, **row) for text, row in zip("abc", run("embed", "--model", BERT, "a", "b", "c"), strict=True))}

    def test_scores_are_cosines(self):
        def cosine(x, y):
            return sum(a * b for a, b in zip(x, y)) / math.sqrt(sum(a * a for a in x) * sum(b * b for b in y))
        answer = self.server.post("/v1/score", {"text_1": "a", "text_2": ["a", "b", "c"]}).json()
        for row, text in zip(answer["data"], "abc", strict=True):
            self.assertAlmostEqual(row["score"], cosine(self.vectors["a"], self.vectors[text]), delta=1e-6)
        self.assertEqual(answer["usage"]["prompt_tokens"], 3, "each text is embedded once")
        ranked = self.server.post("/v1/rerank", {"query": "a", "documents": ["b", "a"]}).json()["results"]
        self.assertEqual([row["index"] for row in ranked], [1, 0])

    def test_ollama(self):
        answer = self.server.post("/api/embed", {"model": "bert:latest", "input": ["a", "b"], "options": {"num_ctx": 10}}).json()
        self.assertEqual((answer["model"], answer["prompt_eval_count"], len(answer["embeddings"])), ("bert:latest", 2, 2))
        for text, vector in zip("ab", answer["embeddings"], strict=True):
            length = math.sqrt(sum(x * x for x in self.vectors[text]))
            self.assertLess(max(abs(x * length - y) for x, y in zip(vector, self.vectors[text], strict=True)), 1e-5)
        self.assertEqual(self.server.post("/api/embed", {"input": "a"}).json()["embeddings"], answer["embeddings"][:1])
        older = self.server.post("/api/embeddings", {"model": "bert", "prompt": "a"}).json()["embedding"]
        self.assertLess(max(abs(x - y) for x, y in zip(older, self.vectors["a"], strict=True)), 1e-6)
        self.assertEqual(self.server.post("/api/embeddings", {"prompt": ""}).json(), {"embedding": []})
        self.assertEqual(self.server.post("/api/embed", {"input": "x" * 500}).status, 200)
        refused = self.server.post("/api/embed", {"input": "x" * 500, "truncate": False})
        self.assertEqual(refused.status, 400)
        self.assertIn("maximum context length", refused.json()["error"])
        self.assertIn("input is missing", self.server.post("/api/embed", {"model": "bert"}).json()["error"])
        self.assertEqual(self.server.post("/api/embed", {"model": "x", "input": "a"}).status, 404)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
