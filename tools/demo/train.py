"""Trains the demo model on generated rows, saves it in Hugging Face format and tests what it saved.

Data come fresh from worker processes; no row is stored and hardly any is seen twice.
"""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import LlamaConfig, LlamaForCausalLM

import encode
from score import score_folder
from tokenizer import BOS, CONTEXT, END, EOS, PAD, VOCAB_SIZE

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB_SIZE, "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 32, "hidden_act": "silu", "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False, "attention_dropout": 0.0,
    "mlp_bias": False, "tie_word_embeddings": True, "initializer_range": 0.02, "use_cache": True,
    "bos_token_id": BOS, "eos_token_id": [END, EOS], "pad_token_id": PAD, "torch_dtype": "bfloat16",
}


class Rows(IterableDataset):
    def __init__(self, folder, counts, seed):
        self.folder, self.counts, self.seed = folder, counts, seed

    def __iter__(self):
        worker = get_worker_info()
        for step in encode.batches(self.folder, self.counts, self.seed * 1000 + worker.id):
            yield [torch.from_numpy(array) for array in step]


def new_model():
    shape = {k: v for k, v in CONFIG.items() if k not in ("architectures", "model_type", "torch_dtype", "rope_theta",
                                                          "rope_scaling")}
    # The version 5 spelling of rope_theta; the saved config.json keeps the older one, which every reader knows.
    config = LlamaConfig(**shape, rope_parameters={"rope_type": "default", "rope_theta": CONFIG["rope_theta"]})
    config._attn_implementation = "sdpa"
    return LlamaForCausalLM(config)


def save(model, folder):
    state = {k: v.detach().to("cpu", torch.bfloat16).contiguous() for k, v in model.state_dict().items()
             if k != "lm_head.weight"}  # tied to the embeddings
    save_file(state, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    generation = {"bos_token_id": BOS, "eos_token_id": [END, EOS], "pad_token_id": PAD, "do_sample": False,
                  "max_new_tokens": 256}
    for name, values in (("config.json", CONFIG), ("generation_config.json", generation)):
        with open(os.path.join(folder, name), "w") as f:
            json.dump(values, f, indent=2)
            f.write("\n")


def train(args, log):
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    shares = encode.bucket_shares(encode.Encoder(args.out))
    counts = [max(1, round(args.rows * share)) for share in shares]
    log(f"rows per step and bucket: {dict(zip(encode.LENGTHS, counts))}")
    loader = iter(DataLoader(Rows(args.out, counts, args.seed), batch_size=None, num_workers=args.workers,
                             prefetch_factor=4, pin_memory=True))
    model = new_model()
    if args.init:
        model.load_state_dict(load_file(os.path.join(args.init, "model.safetensors")), strict=False)
        model.tie_weights()
    model = model.cuda()
    log(f"parameters: {sum(p.numel() for p in model.parameters())}")
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0}],
                                  lr=args.lr, betas=(0.9, 0.98), fused=True)

    def loss_sum(ids, weights):
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        losses = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none")
        return (losses * weights[:, 1:].flatten()).sum()

    if not args.eager:
        loss_sum = torch.compile(loss_sum, dynamic=False)

    def gradients():
        waited = time.time()
        arrays = [array.cuda(non_blocking=True) for array in next(loader)]
        waited = time.time() - waited
        weight = sum(w.sum() for w in arrays[1::2]).float()
        total = torch.zeros((), device="cuda")
        for ids, weights in zip(arrays[::2], arrays[1::2]):
            loss = loss_sum(ids.long(), weights.float()) / weight
            loss.backward()
            total += loss.detach()
        return total, waited

    start = time.time()
    gradients()  # compiles every shape; outside the time that the rate is spread over
    torch.cuda.synchronize()
    optimizer.zero_grad(set_to_none=True)
    log(f"first step in {time.time() - start:.1f} s")

    start, step, total, waited = time.time(), 0, 0, 0
    while True:
        # By steps, or by time where that runs out first: either way the rate has fallen to nothing at the end.
        done = max(step / args.steps, (time.time() - start) / args.seconds)
        if done >= 1:
            break
        rate = args.lr * min(1, (step + 1) / args.warmup) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))
        for group in optimizer.param_groups:
            group["lr"] = rate
        step_loss, step_waited = gradients()
        total, waited = total + step_loss, waited + step_waited
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % 250 == 0:
            log(f"step {step} loss {total.item() / 250:.4f} rate {rate:.2e} seconds {time.time() - start:.1f} "
                f"waited for data {waited:.1f}")
            total, waited = 0, 0
    log(f"trained {step} steps of {sum(counts)} rows in {time.time() - start:.1f} s")
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, metavar="DIR", help="holds tokenizer.json; gets the model")
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=500, help="end earlier than --steps after this time")
    parser.add_argument("--rows", type=int, default=1536, help="rows per step")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=300, help="steps over which the rate rises")
    parser.add_argument("--init", metavar="DIR", help="go on from this model")
    parser.add_argument("--eager", action="store_true", help="do not compile: pays off below about 500 steps")
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log", default="train_log.txt")
    args = parser.parse_args()
    with open(args.log, "w") as log_file:
        def log(text):
            print(text, flush=True)
            print(text, file=log_file, flush=True)

        log(" ".join(sys.argv[1:]) + f" on {torch.cuda.get_device_name()}, torch {torch.__version__}")
        save(train(args, log), args.out)
        score_folder(args.out, log)
    sys.stdout.flush()
    os._exit(0)  # the workers never end by themselves


if __name__ == "__main__":
    main()
