"""A model of transformers generates with torch's SDPA and then with Fovea; prints how many tokens are the same.

    python3 examples/python/transformers_swap.py [MODEL]

MODEL is a name or folder that transformers loads; without it the demo model of the sources."""

import pathlib
import sys

import torch
import transformers

import fovea.integrations.transformers

fovea.integrations.transformers.register()
name = sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"
device = "cuda" if torch.cuda.is_available() and fovea.has_cuda() else "cpu"
tokenizer = transformers.AutoTokenizer.from_pretrained(name)
prompts = ["Once upon a time", "The shortest way through the wood is"]
inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left").to(device)

for dtype in (torch.float32, torch.bfloat16):
    model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=dtype).to(device)
    answers = {}
    for implementation in ("sdpa", "fovea"):
        model.set_attn_implementation(implementation)
        ids = model.generate(**inputs, max_new_tokens=128, do_sample=False, pad_token_id=0)
        answers[implementation] = ids[:, inputs["input_ids"].shape[1] :]
        print(f"{implementation}, {dtype}:")
        for text in tokenizer.batch_decode(answers[implementation], skip_special_tokens=True):
            print(f"  {text!r}")
    theirs, ours = answers["sdpa"], answers["fovea"]
    same = int((theirs == ours).sum()) if theirs.shape == ours.shape else 0
    print(f"{same} of {theirs.numel()} tokens are the same ({dtype}, {device})")
