"""torch.ops.fovea.*: the functions of this package as custom ops with fake kernels, for torch.compile and torch.export.

They are registered when the first tensor of torch arrives, or with the import of this package where torch was imported before
it; register() does it at once. Inside torch.compile the functions of this package call them by themselves.

- flash_attn(q, k, v, softmax_scale, causal, window_size, softcap, alibi_slopes, learnable_sink, k_descale, v_descale,
  attention_chunk, tune_for) -> (out, lse)
- flash_attn_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal, window_size, softcap,
  alibi_slopes, block_table, seqused_k, learnable_sink, k_descale, v_descale, attention_chunk, tune_for) -> (out, lse)
- flash_attn_with_kvcache(q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_len, cache_batch_idx, page_table,
  softmax_scale, causal, window_size, softcap, rotary_interleaved, alibi_slopes, learnable_sink, k_descale, v_descale,
  attention_chunk, tune_for) -> (out, lse), which writes k_cache and v_cache
- masked_attention(q, k, v, mask, softmax_scale, softcap, learnable_sink) -> out
"""

import sys
from typing import Any, List, Optional

from . import _hooks

_SCHEMAS = {
    "flash_attn": """(Tensor q, Tensor k, Tensor v, float? softmax_scale=None, bool causal=False, int[] window_size=[-1, -1],
        float softcap=0.0, Tensor? alibi_slopes=None, Tensor? learnable_sink=None, Tensor? k_descale=None,
        Tensor? v_descale=None, int attention_chunk=0, str tune_for="many") -> (Tensor, Tensor)""",
    "flash_attn_varlen": """(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor? cu_seqlens_k, SymInt max_seqlen_q,
        SymInt max_seqlen_k, float? softmax_scale=None, bool causal=False, int[] window_size=[-1, -1], float softcap=0.0,
        Tensor? alibi_slopes=None, Tensor? block_table=None, Tensor? seqused_k=None, Tensor? learnable_sink=None,
        Tensor? k_descale=None, Tensor? v_descale=None, int attention_chunk=0, str tune_for="many")
        -> (Tensor, Tensor)""",
    "flash_attn_with_kvcache": """(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor? k=None, Tensor? v=None,
        Tensor? rotary_cos=None, Tensor? rotary_sin=None, Tensor? cache_seqlens=None, SymInt? cache_len=None,
        Tensor? cache_batch_idx=None, Tensor? page_table=None, float? softmax_scale=None, bool causal=False,
        int[] window_size=[-1, -1], float softcap=0.0, bool rotary_interleaved=True, Tensor? alibi_slopes=None,
        Tensor? learnable_sink=None, Tensor? k_descale=None, Tensor? v_descale=None, int attention_chunk=0,
        str tune_for="many") -> (Tensor, Tensor)""",
    "masked_attention": """(Tensor q, Tensor k, Tensor v, Tensor mask, float? softmax_scale=None, float softcap=0.0,
        Tensor? learnable_sink=None) -> Tensor""",
}


def _flash_attn(
    q: Any, k: Any, v: Any, softmax_scale: Optional[float] = None, causal: bool = False, window_size: List[int] = [-1, -1],
    softcap: float = 0.0, alibi_slopes: Any = None, learnable_sink: Any = None, k_descale: Any = None, v_descale: Any = None,
    attention_chunk: int = 0, tune_for: str = "many",
) -> Any:
    from .flash_attn import flash_attn_func

    return flash_attn_func(
        q, k, v, 0.0, softmax_scale, causal, window_size, softcap, alibi_slopes, return_softmax_lse=True,
        learnable_sink=learnable_sink, k_descale=k_descale, v_descale=v_descale, attention_chunk=attention_chunk, tune_for=tune_for,
    )


def _flash_attn_varlen(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    softmax_scale: Optional[float] = None, causal: bool = False, window_size: List[int] = [-1, -1], softcap: float = 0.0,
    alibi_slopes: Any = None, block_table: Any = None, seqused_k: Any = None, learnable_sink: Any = None, k_descale: Any = None,
    v_descale: Any = None, attention_chunk: int = 0, tune_for: str = "many",
) -> Any:
    from .flash_attn import flash_attn_varlen_func

    return flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale, causal, window_size, softcap,
        alibi_slopes, block_table=block_table, return_softmax_lse=True, seqused_k=seqused_k, learnable_sink=learnable_sink,
        k_descale=k_descale, v_descale=v_descale, attention_chunk=attention_chunk, tune_for=tune_for,
    )


def _flash_attn_with_kvcache(
    q: Any, k_cache: Any, v_cache: Any, k: Any = None, v: Any = None, rotary_cos: Any = None, rotary_sin: Any = None,
    cache_seqlens: Any = None, cache_len: Optional[int] = None, cache_batch_idx: Any = None, page_table: Any = None,
    softmax_scale: Optional[float] = None, causal: bool = False, window_size: List[int] = [-1, -1], softcap: float = 0.0,
    rotary_interleaved: bool = True, alibi_slopes: Any = None, learnable_sink: Any = None, k_descale: Any = None,
    v_descale: Any = None, attention_chunk: int = 0, tune_for: str = "many",
) -> Any:
    from .flash_attn import flash_attn_with_kvcache

    return flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens if cache_len is None else cache_len, cache_batch_idx,
        None, None, softmax_scale, causal, window_size, softcap, rotary_interleaved, alibi_slopes, 0, True,
        page_table=page_table, learnable_sink=learnable_sink, k_descale=k_descale, v_descale=v_descale,
        attention_chunk=attention_chunk, tune_for=tune_for,
    )


def _masked_attention(
    q: Any, k: Any, v: Any, mask: Any, softmax_scale: Optional[float] = None, softcap: float = 0.0, learnable_sink: Any = None
) -> Any:
    from .integrations.masks import masked_attention

    return masked_attention(q, k, v, mask, softmax_scale=softmax_scale, softcap=softcap, learnable_sink=learnable_sink)


def _fake_padded(torch: Any, q: Any, v_dim: Any) -> Any:
    batch, rows, heads = q.shape[:3]
    lse = q.new_empty((batch, rows, heads), dtype=torch.float32)
    return q.new_empty((batch, rows, heads, v_dim)), lse.permute(0, 2, 1)


def _fake_ragged(torch: Any, q: Any, v_dim: Any) -> Any:
    return q.new_empty((q.shape[0], q.shape[1], v_dim)), q.new_empty((q.shape[0], q.shape[1]), dtype=torch.float32).t()


_IMPLEMENTATIONS = {
    "flash_attn": _flash_attn,
    "flash_attn_varlen": _flash_attn_varlen,
    "flash_attn_with_kvcache": _flash_attn_with_kvcache,
    "masked_attention": _masked_attention,
}

_library: Any = None  # registrations live as long as this


def register() -> bool:
    """Registers the ops, once; False where torch is too old for that (before 2.4). torch must be imported."""
    global _library
    if _library is not None:
        return True
    torch = sys.modules.get("torch")
    if torch is None:
        raise ValueError("torch is not imported; import it before register_torch_ops()")
    if not hasattr(torch.library, "register_fake"):
        return False
    library = torch.library.Library("fovea", "DEF")
    for name, schema in _SCHEMAS.items():
        library.define(name + " ".join(schema.split()), tags=(torch.Tag.pt2_compliant_tag,))
        for key in ("CPU", "CUDA"):
            library.impl(name, _IMPLEMENTATIONS[name], key)
    fakes = {
        "flash_attn": lambda q, k, v, *a, **kw: _fake_padded(torch, q, v.shape[-1]),
        "flash_attn_varlen": lambda q, k, v, *a, **kw: _fake_ragged(torch, q, v.shape[-1]),
        "flash_attn_with_kvcache": lambda q, k_cache, v_cache, *a, **kw: _fake_padded(torch, q, v_cache.shape[-1]),
        "masked_attention": lambda q, k, v, *a, **kw: _fake_padded(torch, q, v.shape[-1])[0],
    }
    for name, fake in fakes.items():
        torch.library.register_fake(f"fovea::{name}", fake, lib=library)
    _library = library
    _hooks.ops = torch.ops.fovea
    _hooks.compiling = torch.compiler.is_compiling
    return True


if "torch" in sys.modules and hasattr(sys.modules["torch"], "library"):
    register()
