"""A model of transformers generates with torch's SDPA and then with Fovea: the same tokens.

    python3 examples/python/transformers_swap.py [MODEL]

MODEL is a name or folder that transformers loads; without it a small Qwen3 with random weights is made."""

import sys

import torch
import transformers

import fovea.integrations.transformers

fovea.integrations.transformers.register()
device = "cuda" if torch.cuda.is_available() and fovea.has_cuda() else "cpu"
torch.manual_seed(0)
if len(sys.argv) > 1:
    model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.bfloat16)
else:
    config = transformers.Qwen3Config(
        vocab_size=1000, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2,
        head_dim=64, initializer_range=0.2, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
model = model.to(device).eval()
prompt = torch.randint(2, 1000, (2, 48), device=device)
padding = torch.ones_like(prompt)
padding[1, :20] = 0  # a shorter prompt, padded on its left

answers = {}
for implementation in ("sdpa", "fovea"):
    model.set_attn_implementation(implementation)
    ids = model.generate(input_ids=prompt, attention_mask=padding, max_new_tokens=64, do_sample=False)
    answers[implementation] = ids[:, prompt.shape[1] :]
    print(f"{implementation:5} {answers[implementation][0, :16].tolist()} ...")
same = int((answers["sdpa"] == answers["fovea"]).sum())
print(f"{same} of {answers['sdpa'].numel()} tokens are the same ({model.dtype}, {device})")
