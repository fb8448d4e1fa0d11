#!/usr/bin/env python3
"""/openapi.json against the server: its answers match the schemas (checked with jsonschema).

Usage: openapi_test.py PROGRAM ROOT
"""
import json
import sys
import unittest

from server import Server, skip

PROGRAM, ROOT = sys.argv[1:3]
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3, "temperature": 0}
TEXT = {"prompt": "hi", "max_tokens": 3, "temperature": 0}
MORE = {"return_token_ids": True, "prompt_logprobs": 1, "stop": "zz", "seed": 1, "logit_bias": {"5": -100}}
REQUESTS = {  # for the endpoints that the demo model supports
    "/v1/chat/completions": [CHAT, {**CHAT, **MORE, "logprobs": True, "top_logprobs": 2, "n": 1, "response_format": {"type": "text"}}],
    "/v1/completions": [TEXT, {**TEXT, **MORE, "logprobs": 2}, {"prompt": [[1, 2], [3]], "max_tokens": 1, "echo": True}],
    "/v1/messages": [CHAT, {**CHAT, "system": "x", "stop_sequences": ["zz"], "top_k": 3, "seed": 1}],
    "/v1/messages/count_tokens": [{"messages": CHAT["messages"]}],
    "/v1/responses": [{"input": "hi", "max_output_tokens": 3}, {"input": [{"role": "user", "content": "hi"}], "instructions": "x", "seed": 1}],
    "/api/chat": [{"messages": CHAT["messages"], "stream": False, "options": {"num_predict": 3, "temperature": 0}}],
    "/api/generate": [{"prompt": "hi", "stream": False, "options": {"num_predict": 3}}, {"prompt": "hi", "raw": True, "stream": False, "options": {"num_predict": 1}}],
    "/api/show": [{"model": "demo"}],
    "/tokenize": [{"prompt": "hi", "return_token_strs": True}, {"messages": CHAT["messages"]}],
    "/detokenize": [{"tokens": [300, 301]}],
}
OTHER_MODELS = {"encoders", "/v1/embeddings", "/api/embed", "/api/embeddings", "/v1/audio/transcriptions", "/v1/audio/translations",
                "/v1/load_lora_adapter", "/v1/unload_lora_adapter"}
BAD = {"/v1/chat/completions": {"messages": []}, "/v1/completions": {"prompt": 1}, "/tokenize": {}, "/detokenize": {"tokens": "x"}}


class OpenApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--served-model-name", "demo")
        cls.addClassCleanup(cls.server.kill)
        cls.document = cls.server.get("/openapi.json").json()

    def check(self, value, name):
        whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": f"#/components/schemas/{name}", "components": self.document["components"]}
        validator = jsonschema.Draft202012Validator(whole)
        self.assertEqual([f"{name} {list(error.absolute_path)}: {error.message}"[:300] for error in validator.iter_errors(value)], [])

    def schema_of(self, content):
        return content["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]

    def test_schemas_are_schemas(self):
        for schema in self.document["components"]["schemas"].values():
            jsonschema.Draft202012Validator.check_schema(schema)

    def test_answers(self):
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                path = path.replace("{model}", "demo")
                for body in REQUESTS.get(path, [None]):
                    with self.subTest(path=path, body=body):
                        if method == "post" and body is None:
                            self.assertIn(operation["tags"][0] if path not in OTHER_MODELS else path, OTHER_MODELS)
                            continue
                        if body is not None:
                            self.check(body, self.schema_of(operation["requestBody"]))
                        answer = self.server.request(method.upper(), path, body)
                        self.assertEqual(answer.status, 200, answer)
                        content = operation["responses"]["200"].get("content", {})
                        if "$ref" in content.get("application/json", {}).get("schema", {}):
                            self.check(answer.json(), self.schema_of(operation["responses"]["200"]))
        with Server(PROGRAM, "--model", f"{ROOT}/tests/goldens/bert_d8_fp32") as encoder:
            for form in ("float", "base64"):
                body = {"input": ["a", "b"], "encoding_format": form}
                self.check(body, "EmbeddingRequest")
                self.check(encoder.post("/v1/embeddings", body).json(), "EmbeddingList")
            for path, body in (("/v1/score", {"text_1": "a", "text_2": ["b", "c"]}), ("/score", {"queries": ["a"], "documents": ["b"]}),
                               ("/v1/rerank", {"query": "a", "documents": ["b", {"text": "c"}], "top_n": 1}), ("/v2/rerank", {"query": "a", "documents": ["b"]}),
                               ("/rerank", {"query": "a", "documents": ["b"], "return_documents": True}),
                               ("/api/embed", {"input": ["a"], "truncate": True}), ("/api/embeddings", {"prompt": "a"})):
                operation = self.document["paths"][path]["post"]
                self.check(body, self.schema_of(operation["requestBody"]))
                self.check(encoder.post(path, body).json(), self.schema_of(operation["responses"]["200"]))
            self.check(encoder.get("/server_info").json(), "ServerInfo")

    def test_streams(self):
        for path, body, name in (("/v1/chat/completions", CHAT, "ChatCompletionChunk"), ("/v1/completions", {**TEXT, "logprobs": 1}, "CompletionChunk")):
            events = self.server.post(path, {**body, "stream": True, "return_token_ids": True, "stream_options": {"include_usage": True}}).events()
            self.assertGreater(len(events), 3)
            for event in events[:-1]:
                self.check(event, name)

    def test_errors(self):
        for path, body in BAD.items():
            answer = self.server.post(path, body)
            self.assertEqual(answer.status, 400)
            self.assertIn("400", self.document["paths"][path]["post"]["responses"])
            self.check(answer.json(), "Error")
            with self.assertRaises(AssertionError, msg=f"the schema takes {body} of {path}, which the server refuses"):
                self.check(body, self.schema_of(self.document["paths"][path]["post"]["requestBody"]))
        with self.assertRaises(AssertionError):
            self.check({"data": 1}, "ModelList")


if __name__ == "__main__":
    try:
        import jsonschema
    except ImportError:
        skip("jsonschema is not installed (python3-jsonschema)")
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
