"""Fovea as an attention implementation of transformers (5 or later):

    import fovea.integrations.transformers
    fovea.integrations.transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fovea")

Causal, sliding-window and bidirectional attention without padding, and left-padded batches, need no mask in memory; what else
transformers can express (right padding, packed sequences, static caches, spans of images) is served by a mask of bits.
Inference only: dropout, output_attentions and gradients are refused.
"""

from typing import Any, Optional

from ..flash_attn import flash_attn_func
from .masks import left_padded_attention, masked_attention


def register(name: str = "fovea") -> None:
    """Makes `attn_implementation=name` known to transformers."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    from .. import torch_ops

    torch_ops.register()
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, attention_mask)


def rows_of_heads(x: Any) -> Any:
    """[B, H, S, D] as [B, S, H, D]: a view, or a copy of what kernels can't read in place (they load 16 bytes at once)."""
    x = x.transpose(1, 2)
    whole = all(stride * x.element_size() % 16 == 0 for stride in x.stride()[:3])
    return x if x.stride(3) == 1 and whole else x.contiguous()


def attention_forward(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    scaling: Optional[float] = None,
    dropout: float = 0.0,
    is_causal: Optional[bool] = None,
    sliding_window: Optional[int] = None,
    softcap: Optional[float] = None,
    s_aux: Any = None,
    **more: Any,
) -> Any:
    """query [B, Hq, Sq, D], key [B, Hkv, Sk, D], value [B, Hkv, Sk, Dv]; attention_mask as attention_mask() below made it, or a
    boolean one [B, 1, Sq, Sk]. Returns (out [B, Sq, Hq, Dv], None)."""
    if dropout:
        raise ValueError(f"dropout is {dropout}; there is none at inference: call model.eval()")
    if more.get("output_attentions"):
        raise ValueError("output_attentions is set; probabilities are never formed: use attn_implementation=\"eager\" for them")
    if more.get("position_bias") is not None:
        raise ValueError("position_bias is given; additive biases are not supported: use another attn_implementation")
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    q, k, v = rows_of_heads(query), key.transpose(1, 2), value.transpose(1, 2)
    softcap = softcap or 0.0
    if attention_mask is not None and attention_mask.dim() == 4:
        attention_mask = attention_mask[..., : k.shape[1]]
        out = masked_attention(q, k, v, attention_mask, softmax_scale=scaling, softcap=softcap, learnable_sink=s_aux)
        return out, None
    if not causal and sliding_window is not None:
        raise ValueError(
            "sliding_window is given to bidirectional attention without a mask; pass the mask that create_bidirectional_mask makes"
        )
    left = -1 if sliding_window is None else sliding_window - 1
    if attention_mask is not None:
        if not causal:
            raise ValueError(
                f"a padding mask of shape {tuple(attention_mask.shape)} came to bidirectional attention; it must have 4 dimensions"
            )
        out = left_padded_attention(
            q, k, v, attention_mask, softmax_scale=scaling, window_left=left, softcap=softcap, learnable_sink=s_aux
        )
        return out, None
    out = flash_attn_func(
        q, k, v, softmax_scale=scaling, causal=causal, window_size=(left, -1), softcap=softcap, learnable_sink=s_aux
    )
    return out, None


def _kind(function: Any) -> str:
    """"causal" for transformers' causal mask with or without a sliding window, "full" for its bidirectional one, else "" ."""
    from transformers import masking_utils as known

    if function is known.causal_mask_function:
        return "causal"
    if function is known.bidirectional_mask_function:
        return "full"
    parts = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    if getattr(function, "__qualname__", "").startswith("and_masks.") and len(parts) == 1 and isinstance(parts[0], tuple):
        names = [getattr(part, "__qualname__", "") for part in parts[0]]
        if names == ["sliding_window_overlay.<locals>.inner_mask", "causal_mask_function"]:
            return "causal"
    return ""


def attention_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: int = 0,
    mask_function: Any = None,
    attention_mask: Any = None,
    **more: Any,
) -> Any:
    """What attention_forward() needs to know of a step: None, the padding [B, Sk] of a left-padded batch, or a boolean mask [B, 1, Sq,
    Sk]."""
    import torch
    from transformers.masking_utils import causal_mask_function, prepare_padding_mask, sdpa_mask

    if mask_function is None:
        mask_function = causal_mask_function
    kind = _kind(mask_function)
    # The last query row stands at the last key: not so in a static cache, whose end is empty.
    aligned = kind == "full" or (isinstance(q_offset, int) and q_offset + q_length == kv_offset + kv_length)
    if kind and aligned:
        if attention_mask is None:
            return None
        if not torch.compiler.is_compiling():
            seen = prepare_padding_mask(attention_mask, kv_length, kv_offset)[:, kv_offset : kv_offset + kv_length].bool()
            if seen.all():
                return None
            if kind == "causal" and (seen[:, 1:] >= seen[:, :-1]).all():
                return seen
    for skip in ("allow_is_causal_skip", "allow_is_bidirectional_skip"):
        more[skip] = False
    return sdpa_mask(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=attention_mask, **more,
    )
