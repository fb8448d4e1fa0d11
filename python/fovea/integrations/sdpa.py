"""torch.nn.functional.scaled_dot_product_attention by Fovea, inside a with block:

    with fovea.integrations.sdpa.swap():
        model(...)

Code that took the function itself (`from torch.nn.functional import scaled_dot_product_attention`) keeps what it took."""

import contextlib
from typing import Any, Iterator, Optional

from ..flash_attn import flash_attn_func
from .masks import masked_attention
from .transformers import rows_of_heads


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Any:
    """query [B, Hq, Sq, D], key [B, Hkv, Sk, D], value [B, Hkv, Sk, Dv]; or all [N, S, D]. A boolean attn_mask that is the same
    for all heads. ValueError for what torch's function takes and this one does not: other masks, dropout, gradients, is_causal with Sq
    != Sk (torch aligns it to the top left), other numbers of dimensions, batches that broadcast."""
    if dropout_p:
        raise ValueError(f"dropout_p is {dropout_p}; there is no dropout at inference: pass 0.0")
    if query.dim() == 3 and key.dim() == 3 and value.dim() == 3:
        mask = attn_mask
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        out = scaled_dot_product_attention(
            query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1), mask, dropout_p, is_causal, scale, enable_gqa
        )
        return out.squeeze(1)
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError(f"query has {query.dim()} dimensions, key {key.dim()} and value {value.dim()}; allowed are 4 or 3, in all")
    if query.shape[1] != key.shape[1] and not enable_gqa:
        raise ValueError(f"query has {query.shape[1]} heads and key {key.shape[1]}; pass enable_gqa=True")
    rows, keys = query.shape[2], key.shape[2]
    if is_causal and attn_mask is not None:
        raise ValueError("is_causal and attn_mask are both given; pass one")
    if is_causal and rows != keys:
        raise ValueError(
            f"is_causal with {rows} query rows and {keys} keys; torch aligns that to the top left, which is not supported: pass a "
            "boolean attn_mask"
        )
    q, k, v = rows_of_heads(query), key.transpose(1, 2), value.transpose(1, 2)
    if attn_mask is not None:
        while attn_mask.dim() < 4:
            attn_mask = attn_mask.unsqueeze(0)
        out = masked_attention(q, k, v, attn_mask, softmax_scale=scale)
    else:
        out = flash_attn_func(q, k, v, softmax_scale=scale, causal=is_causal)
    return out.transpose(1, 2)


@contextlib.contextmanager
def swap(fallback: bool = False) -> Iterator[None]:
    """Replaces torch.nn.functional.scaled_dot_product_attention until the block ends. What Fovea refuses is an error, or with
    `fallback` served by the function that was there before."""
    import torch.nn.functional as functional

    from .. import torch_ops

    torch_ops.register()
    before = functional.scaled_dot_product_attention

    def with_fallback(*args: Any, **named: Any) -> Any:
        try:
            return scaled_dot_product_attention(*args, **named)
        except ValueError:
            return before(*args, **named)

    functional.scaled_dot_product_attention = with_fallback if fallback else scaled_dot_product_attention
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before
