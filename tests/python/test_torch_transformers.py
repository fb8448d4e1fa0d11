"""Models of transformers with random weights, generating with Fovea as with torch's SDPA (or eager attention)."""

import itertools
import os
import pathlib
import sys
import unittest

from torch_support import DEVICES, FLOAT32, TorchTest, skip_line, torch

try:
    import transformers
except ImportError:
    print("SKIPPED: transformers is not installed")
    sys.exit(77)

import fovea  # noqa: E402
import fovea.integrations.sdpa  # noqa: E402
import fovea.integrations.transformers  # noqa: E402

fovea.integrations.transformers.register()

# Exactness is asked in float32: on the GPU where its backends have that.
DEVICE = "cuda" if FLOAT32.get("cuda") else "cpu"
TOKENS = 64 if DEVICE == "cuda" else 12
DEMO = pathlib.Path(os.environ.get("FOVEA_DEMO_MODEL", pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"))
COMMON = dict(
    vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
    max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=None, initializer_range=0.05,
)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**COMMON),
    "qwen3": lambda: transformers.Qwen3Config(**COMMON, head_dim=64),
    "mistral with a window of 16": lambda: transformers.MistralConfig(**COMMON, sliding_window=16),
    "gemma2": lambda: transformers.Gemma2Config(
        **COMMON, head_dim=64, sliding_window=16, attn_logit_softcapping=20.0, query_pre_attn_scalar=64
    ),
    "gpt_oss": lambda: transformers.GptOssConfig(
        **COMMON, head_dim=64, sliding_window=16, num_local_experts=4, num_experts_per_tok=2
    ),
}
# What torch's SDPA does not have is compared with eager attention.
OTHERS = {"gemma2": "eager", "gpt_oss": "eager"}


def make(name, dtype, device=DEVICE):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name](), dtype=dtype).to(device).eval()
    for n, p in model.named_parameters():  # sinks begin at 0 or uninitialised
        if "sinks" in n:
            torch.nn.init.normal_(p)
    return model


def prompts(padded, device=DEVICE):
    torch.manual_seed(1)
    ids = torch.randint(2, 1000, (3, 40)).to(device)
    mask = torch.ones_like(ids)
    if padded:
        for b, n in enumerate((0, 7, 31)):
            ids[b, :n], mask[b, :n] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def generate(model, implementation, inputs, **more):
    model.set_attn_implementation(implementation)
    return model.generate(**inputs, max_new_tokens=TOKENS, do_sample=False, **more)


class Generation(TorchTest):
    def same_tokens(self, name, padded, dtype=torch.float32, device=DEVICE, **more):
        model, inputs = make(name, dtype, device), prompts(padded, device)
        wanted = generate(model, OTHERS.get(name, "sdpa"), inputs, **more)
        actual = generate(model, "fovea", inputs, **more)
        new = wanted.shape[1] - inputs["input_ids"].shape[1]
        same = int((wanted == actual).sum()) - inputs["input_ids"].numel()
        how = f"{name}, {dtype}, {device}, {'left-padded' if padded else 'not padded'} {more or ''}"
        print(f"{how}: {same} of {3 * new} tokens are the same, {len(actual[:, 40:].unique())} different ones")
        return wanted, actual

    def test_float32_tokens(self):
        for name in CONFIGS:
            for padded in (False, True):
                with self.subTest(name=name, padded=padded), torch.no_grad():
                    wanted, actual = self.same_tokens(name, padded)
                    self.assertTrue(torch.equal(wanted, actual))

    def test_static_cache(self):
        with torch.no_grad():
            wanted, actual = self.same_tokens("llama", True, cache_implementation="static", disable_compile=True)
            self.assertTrue(torch.equal(wanted, actual))

    def test_a_trained_model(self):
        """The demo model in bfloat16, its own dtype: the same tokens, except where two tie within bfloat16's precision."""
        if not DEMO.is_dir():
            self.skipTest(f"{DEMO} is not there")
        tokenizer = transformers.AutoTokenizer.from_pretrained(DEMO)
        texts = ["The", "Once upon a time", "A step is planned once, and then", "In the middle of the night she heard a sound and"]

        def load(implementation, dtype, device):
            return transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=dtype, attn_implementation=implementation).to(device)

        for device in DEVICES:
            inputs = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left").to(device)
            start = inputs["input_ids"].shape[1]
            answers = {
                implementation: load(implementation, torch.bfloat16, device).generate(
                    **inputs, max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=tokenizer.pad_token_id
                )
                for implementation in ("sdpa", "fovea")
            }
            different = answers["sdpa"] != answers["fovea"]
            print(f"the demo model, bfloat16, {device}, left-padded: {int((~different[:, start:]).sum())} of {4 * 64} tokens are the same")
            print(f"  {tokenizer.decode(answers['fovea'][1, start:])!r}")
            for row in range(len(texts)):
                if bool(different[row].any()):
                    first = int(different[row].nonzero()[0])
                    prefix = answers["sdpa"][row : row + 1, int((inputs["attention_mask"][row] == 0).sum()) : first]
                    chosen = answers["sdpa"][row, first], answers["fovea"][row, first]
                    with torch.no_grad():
                        rounded, exact = (load("sdpa", t, device)(prefix).logits[0, -1].float() for t in (torch.bfloat16, torch.float32))
                    margin = float((exact[chosen[0]] - exact[chosen[1]]).abs())
                    noise = float((rounded - exact).abs().max())
                    print(f"  row {row} parts at token {first - start}: margin {margin:.3g} in float32, bfloat16's own error {noise:.3g}")
                    self.assertLess(margin, 2 * noise, f"row {row}, token {first - start}: not a tie")

    def test_bfloat16(self):
        """Logits of random models are nearly ties, which bfloat16 may order otherwise: how many tokens agree is printed, and the
        errors of a prefill against float32 are held to those of SDPA."""
        for name, device in itertools.product(("llama", "qwen3"), DEVICES[-1:]):
            with torch.no_grad():
                self.same_tokens(name, False, torch.bfloat16, device)
                inputs = prompts(True, device)
                exact = make(name, torch.float32, device)
                exact.load_state_dict(make(name, torch.bfloat16, device).state_dict())
                exact.set_attn_implementation("sdpa")
                real = inputs["attention_mask"].bool()
                wanted = exact(**inputs).logits[real]
                errors = {}
                for implementation in ("sdpa", "fovea"):
                    model = make(name, torch.bfloat16, device)
                    model.set_attn_implementation(implementation)
                    errors[implementation] = (model(**inputs).logits[real].float() - wanted).abs().mean().item()
                print(f"{name}, {device}: mean error of bfloat16 logits {errors}, mean size {wanted.abs().mean().item():.3f}")
                self.assertLess(errors["fovea"], 1.25 * errors["sdpa"])

    def test_sdpa_swap(self):
        from unittest import mock

        model, inputs = make("llama", torch.float32), prompts(True)
        before = torch.nn.functional.scaled_dot_product_attention
        with torch.no_grad():
            wanted = generate(model, "sdpa", inputs)
            calls = []
            real = fovea.integrations.sdpa.scaled_dot_product_attention
            with mock.patch.object(
                fovea.integrations.sdpa, "scaled_dot_product_attention", lambda *a, **k: calls.append(1) or real(*a, **k)
            ):
                with fovea.integrations.sdpa.swap():
                    actual = generate(model, "sdpa", inputs)
        self.assertIs(torch.nn.functional.scaled_dot_product_attention, before)
        self.assertEqual(len(calls), 4 * TOKENS)
        self.assertTrue(torch.equal(wanted, actual))
        print(f"sdpa swap, left-padded: {3 * TOKENS} of {3 * TOKENS} tokens are the same, {len(calls)} calls")

    def test_sdpa_refusals(self):
        q = torch.randn(2, 4, 5, 64, device=DEVICE)
        function = fovea.integrations.sdpa.scaled_dot_product_attention
        for words, call in (
            ("top left", lambda f: f(q, q[:, :, :3], q[:, :, :3], is_causal=True)),
            ("dropout_p is 0.5", lambda f: f(q, q, q, dropout_p=0.5)),
            ("mask has dtype", lambda f: f(q, q, q, attn_mask=torch.zeros(5, 5, device=DEVICE))),
            ("enable_gqa", lambda f: f(q, q[:, :2], q[:, :2])),
        ):
            with self.assertRaisesRegex(ValueError, words):
                call(function)
        with fovea.integrations.sdpa.swap(fallback=True):
            functional = torch.nn.functional
            out = functional.scaled_dot_product_attention(q, q, q, attn_mask=torch.zeros(5, 5, device=DEVICE))
        self.close(out, functional.scaled_dot_product_attention(q, q, q))

    def test_gradients_are_refused(self):
        model, inputs = make("llama", torch.float32), prompts(False)
        model.set_attn_implementation("fovea")
        with self.assertRaisesRegex(ValueError, r"torch\.no_grad"):
            model(**inputs)

    @unittest.skipIf(DEVICE == "cpu", "no GPU for it")
    def test_compiled(self):
        model, inputs = make("llama", torch.float32), prompts(False)
        model.set_attn_implementation("fovea")
        with torch.no_grad():
            wanted = model(inputs["input_ids"]).logits
            torch._dynamo.reset()
            actual = torch.compile(model)(inputs["input_ids"]).logits
        self.close(actual, wanted, torch.float16)


if __name__ == "__main__":
    gpu = torch.cuda.get_device_name() if "cuda" in DEVICES else skip_line()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {gpu}, fovea {fovea.__version__}, float32 on {DEVICE}")
    unittest.main()
