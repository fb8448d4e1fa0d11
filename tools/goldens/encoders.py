"""The fixtures that are not plain decoders: BERT and RoBERTa (hidden states), BART and Whisper (logits given an encoded
input), and the log-mel features of a short sound."""

import json
import math
import random
import struct

import torch
import transformers

SEED = 20261121
VOCAB = 258
GREEDY_TOKENS = 12
HIDDEN_ROWS = 17  # prompts up to this length record every row


@torch.no_grad()
def perturb(model, generator, logit_std):
    """As make.py's: every parameter matters."""
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=generator)
        if name.endswith("bias"):
            p.copy_(0.3 * noise)
        elif "norm" in name.lower():
            p.copy_(1.0 + 0.3 * noise)
        elif "position" in name or "token_type" in name:
            p.copy_(0.7 * noise)
        elif "shared" in name or "embed_tokens" in name:
            p.copy_(logit_std * noise)
        elif "word_embeddings" in name:
            p.copy_(noise)
        else:
            query_or_key = any(part in name for part in ("query", "key", "q_proj", "k_proj"))
            p.copy_((2.0 if query_or_key else 1.3) / math.sqrt(p[0].numel()) * noise)
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.copy_(0.5 * torch.randn(model.final_logits_bias.shape, generator=generator))


def reload(model_class, model, dtype, out):
    model.to(dtype).save_pretrained(out)
    model = model_class.from_pretrained(out, dtype=torch.float32, attn_implementation="eager").eval()
    assert all(p.dtype == torch.float32 for p in model.parameters())
    return model


def write_golden(out, head, prompts):
    lines = ",\n".join(json.dumps(p, separators=(",", ":")) for p in prompts)
    (out / "golden.json").write_text(json.dumps(head)[:-1] + ', "prompts": [\n' + lines + "\n]}\n")


def rounded(tensor):
    return [round(x, 6) for x in tensor.flatten().tolist()]


@torch.no_grad()
def make_encoder(out, name, family, dtype, index, write_tokenizer, **config):
    model_class = dict(bert=transformers.BertModel, roberta=transformers.RobertaModel,
                       xlm_roberta=transformers.XLMRobertaModel)[family]
    model = model_class(model_class.config_class(vocab_size=VOCAB, **config), add_pooling_layer=False)
    perturb(model, torch.Generator().manual_seed(SEED + index), 1.0)
    model = reload(model_class, model, dtype, out)
    write_tokenizer(out)
    numbers = random.Random(SEED + index)
    low = 2 if family != "bert" else 0  # RoBERTa skips positions of padding tokens (id 1)
    prompts = []
    for length in (1, 2, 15, 16, 17, 33, 100):
        ids = [numbers.randrange(low, VOCAB) for _ in range(length)]
        first = numbers.randrange(length + 1)
        types = [0 if family != "bert" or i < first else 1 for i in range(length)]
        hidden = model(torch.tensor([ids]), token_type_ids=torch.tensor([types])).last_hidden_state[0]
        prompts.append(dict(ids=ids, token_types=types, hidden=rounded(hidden) if length <= HIDDEN_ROWS else [],
                            mean=rounded(hidden.mean(0)), cls=rounded(hidden[0]), last=rounded(hidden[-1])))
    write_golden(out, dict(name=name, family=family, checkpoint_dtype=str(dtype).removeprefix("torch.")), prompts)
    print(f"{name:36} hidden std {torch.tensor(prompts[-1]['mean']).std():.2f}", flush=True)


@torch.no_grad()
def greedy_record(model, ids, **encoder_input):
    """One decoder prompt's record, as make.py's golden_of()."""
    def rows(tokens):
        return model(decoder_input_ids=torch.tensor([tokens]), use_cache=False, **encoder_input).logits[0]
    logits = rows(ids)
    logprobs = torch.log_softmax(logits, dim=-1)
    record = dict(ids=ids, last_logits=rounded(logits[-1]),
                  logprobs=[round(logprobs[i, t].item(), 6) for i, t in enumerate(ids[1:])], greedy=[], gaps=[])
    sequence = list(ids)
    for _ in range(GREEDY_TOKENS):
        top = torch.topk(rows(sequence)[-1], 2)
        record["greedy"].append(top.indices[0].item())
        record["gaps"].append(round((top.values[0] - top.values[1]).item(), 6))
        sequence.append(record["greedy"][-1])
    return record


def make_bart(out, name, dtype, index, write_tokenizer, **config):
    model_class = transformers.BartForConditionalGeneration
    model = model_class(transformers.BartConfig(vocab_size=VOCAB, pad_token_id=1, bos_token_id=256, eos_token_id=257,
                                                decoder_start_token_id=257, **config))
    scale = math.sqrt(config["d_model"])
    perturb(model, torch.Generator().manual_seed(SEED + index), 3.0 / scale)
    model = reload(model_class, model, dtype, out)
    write_tokenizer(out)
    numbers = random.Random(SEED + index)
    prompts = []
    for source, target in ((1, 1), (15, 1), (16, 3), (17, 16), (33, 17), (60, 2)):
        encoder_ids = [numbers.randrange(2, VOCAB) for _ in range(source)]
        ids = [257] + [numbers.randrange(2, VOCAB) for _ in range(target - 1)]
        prompts.append(dict(encoder_ids=encoder_ids, **greedy_record(model, ids, input_ids=torch.tensor([encoder_ids]))))
    write_golden(out, dict(name=name, family="bart", checkpoint_dtype=str(dtype).removeprefix("torch."), vocab_size=VOCAB),
                 prompts)
    gaps = torch.tensor([p["gaps"] for p in prompts])
    print(f"{name:36} logit std {torch.tensor(prompts[-1]['last_logits']).std():.2f}  small gaps {(gaps <= 2e-3).sum()}",
          flush=True)


def make_whisper(out, name, dtype, index, write_tokenizer, **config):
    model_class = transformers.WhisperForConditionalGeneration
    mels, frames = config["num_mel_bins"], 2 * config["max_source_positions"]
    model = model_class(transformers.WhisperConfig(
        vocab_size=VOCAB, pad_token_id=257, bos_token_id=257, eos_token_id=257, decoder_start_token_id=256,
        suppress_tokens=None, begin_suppress_tokens=None, **config))
    generator = torch.Generator().manual_seed(SEED + index)
    perturb(model, generator, 3.0 / math.sqrt(config["d_model"]))
    model = reload(model_class, model, dtype, out)
    write_tokenizer(out)
    numbers = random.Random(SEED + index)
    inputs = torch.randn((2, frames, mels), generator=generator)  # two sounds, [frames, mels]
    (out / "features.f32").write_bytes(struct.pack(f"<{inputs.numel()}f", *inputs.flatten().tolist()))
    prompts = []
    for sound, target in ((0, 1), (1, 1), (0, 4), (1, 17)):
        ids = [256] + [numbers.randrange(VOCAB - 2) for _ in range(target - 1)]
        features = inputs[sound].transpose(0, 1)[None]  # the model takes [batch, mels, frames]
        prompts.append(dict(sound=sound, **greedy_record(model, ids, input_features=features)))
    write_golden(out, dict(name=name, family="whisper", checkpoint_dtype=str(dtype).removeprefix("torch."),
                           vocab_size=VOCAB, frames=frames, mels=mels), prompts)
    gaps = torch.tensor([p["gaps"] for p in prompts])
    print(f"{name:36} logit std {torch.tensor(prompts[-1]['last_logits']).std():.2f}  small gaps {(gaps <= 2e-3).sum()}",
          flush=True)


def make_log_mel(out, name):
    """audio.wav (16 kHz mono PCM16, a rising tone with noise) and the first frames of its features."""
    numbers = random.Random(SEED)
    count = 19_000
    sound = [int(12000 * math.sin(2 * math.pi * (200 + 0.08 * i) * i / 16000) * (0.3 + 0.7 * (i % 4000) / 4000)
                 + numbers.uniform(-600, 600)) for i in range(count)]
    data = struct.pack(f"<{count}h", *sound)
    (out / "audio.wav").write_bytes(
        b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 16000, 32000, 2, 16)
        + b"data" + struct.pack("<I", len(data)) + data)
    import numpy
    samples = numpy.array(sound, dtype=numpy.float32) / 32768.0
    for mels in (80, 128):
        features = transformers.WhisperFeatureExtractor(feature_size=mels)(
            samples, sampling_rate=16000, return_tensors="pt").input_features[0].transpose(0, 1)  # [3000, mels]
        kept = torch.cat([features[:125], features[-3:]])
        (out / f"log_mel_{mels}.f32").write_bytes(struct.pack(f"<{kept.numel()}f", *kept.flatten().tolist()))
    print(f"{name:36} frames {features.shape[0]}, {count} samples", flush=True)


def jobs(write_tokenizer):
    bf16, f32 = torch.bfloat16, torch.float32
    bert = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128)
    bart = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                encoder_ffn_dim=48, decoder_ffn_dim=40, max_position_embeddings=96)
    whisper = dict(d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                   encoder_ffn_dim=48, decoder_ffn_dim=40, num_mel_bins=20, max_source_positions=40,
                   max_target_positions=64)

    def job(function, name, *fixed, **more):
        return name, lambda out: function(out, name, *fixed, **more)
    return [
        job(make_encoder, "bert_d8_fp32", "bert", f32, 0, write_tokenizer, **bert),
        job(make_encoder, "bert_tanh_d16_bf16", "bert", bf16, 1, write_tokenizer,
            **dict(bert, num_attention_heads=2, hidden_act="gelu_new", layer_norm_eps=1e-3)),
        job(make_encoder, "roberta_d8_bf16", "roberta", bf16, 2, write_tokenizer, pad_token_id=1, type_vocab_size=1, **bert),
        job(make_encoder, "xlm_roberta_d8_fp32", "xlm_roberta", f32, 3, write_tokenizer, pad_token_id=1, type_vocab_size=1,
            **bert),
        job(make_bart, "bart_d8_fp32", f32, 4, write_tokenizer, **bart),
        job(make_bart, "bart_scaled_d16_bf16", bf16, 5, write_tokenizer,
            **dict(bart, scale_embedding=True, encoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)),
        job(make_whisper, "whisper_d8_fp32", f32, 6, write_tokenizer, **whisper),
        job(make_whisper, "whisper_d16_bf16", bf16, 7, write_tokenizer,
            **dict(whisper, encoder_attention_heads=2, decoder_attention_heads=2, num_mel_bins=12)),
        job(make_log_mel, "log_mel"),
    ]
