"""Merging of attention over disjoint sets of keys; logarithms of base 2, and MultiLevelCascadeAttentionWrapper."""

from typing import Any, List, Optional, Tuple

from .. import cache
from .._arrays import framework_of
from .common import check_layout, from_base_2, refuse, to_base_2
from .prefill import GRAPH, BatchPrefillWithPagedKVCacheWrapper


def merge_state(v_a: Any, s_a: Any, v_b: Any, s_b: Any) -> Tuple[Any, Any]:
    """v_a, v_b [n, H, D] and s_a, s_b [n, H] fp32, LSE of base 2: the merged two."""
    v, s = cache.merge_state(v_a, from_base_2(s_a), v_b, from_base_2(s_b))
    return v, to_base_2(s)


def merge_state_in_place(v: Any, s: Any, v_other: Any, s_other: Any, mask: Any = None) -> None:
    """merge_state() into v and s. mask [n]: the rows to merge; None = all."""
    merged, lse = merge_state(v, s, v_other, s_other)
    if mask is not None:
        xp = framework_of(v).xp
        keep = mask != 0
        merged, lse = xp.where(keep[:, None, None], merged, v), xp.where(keep[:, None], lse, s)
    v[...] = merged
    s[...] = lse


def merge_states(v: Any, s: Any) -> Tuple[Any, Any]:
    """v [n, parts, H, D] and s [n, parts, H]: the merged [n, H, D] and [n, H]."""
    framework = framework_of(v)
    parts = framework.contiguous(v.swapaxes(0, 1)), framework.contiguous(from_base_2(s).swapaxes(0, 1))
    merged, lse = cache.merge_states(*parts)
    return merged, to_base_2(lse)


class MultiLevelCascadeAttentionWrapper:
    """Keys in levels of one paged cache, those of a level shared by all rows of one of its sequences: attention to each level, then
    merged. `causal` is about the last level; the others are seen whole."""

    def __init__(
        self,
        num_levels: int,
        float_workspace_buffer: Any,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf_arr: Any = None,
        paged_kv_indptr_buf_arr: Any = None,
        paged_kv_indices_buf_arr: Any = None,
        paged_kv_last_page_len_buf_arr: Any = None,
    ) -> None:
        check_layout(kv_layout)
        refuse({"use_cuda_graph": GRAPH}, use_cuda_graph=use_cuda_graph)
        if num_levels < 1:
            raise ValueError(f"num_levels is {num_levels}; it must be 1 or more")
        self._levels: List[BatchPrefillWithPagedKVCacheWrapper] = [
            BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout) for _ in range(num_levels)
        ]

    @property
    def is_cuda_graph_enabled(self) -> bool:
        return False

    def reset_workspace_buffer(self, float_workspace_buffer: Any, int_workspace_buffers: Any) -> None:
        """No effect: workspaces have the sizes that the steps need."""

    def plan(
        self,
        qo_indptr_arr: Any,
        paged_kv_indptr_arr: Any,
        paged_kv_indices_arr: Any,
        paged_kv_last_page_len: Any,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: Optional[float] = None,
        window_left: int = -1,
        logits_soft_cap: Optional[float] = None,
        rope_scale: Optional[float] = None,
        rope_theta: Optional[float] = None,
        q_data_type: Any = "float16",
        kv_data_type: Any = None,
    ) -> None:
        """Lists of one entry for each level, which are what BatchPrefillWithPagedKVCacheWrapper.plan has."""
        if pos_encoding_mode != "NONE":
            raise ValueError(
                f'pos_encoding_mode is {pos_encoding_mode!r}; a level counts positions from 0 and has no others: pass "NONE" and rotate '
                "with apply_rope"
            )
        if window_left >= 0 and len(self._levels) > 1:
            raise ValueError(
                f"window_left is {window_left}; a level's keys would be cut by the distance within the level, not in the sequence: pass -1"
            )
        lists = qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len
        for name, given in zip(("qo_indptr_arr", "paged_kv_indptr_arr", "paged_kv_indices_arr", "paged_kv_last_page_len"), lists):
            if len(given) != len(self._levels):
                raise ValueError(f"{name} has {len(given)} entries; there are {len(self._levels)} levels")
        for i, (level, *arrays) in enumerate(zip(self._levels, *lists)):
            level.plan(
                *arrays, num_qo_heads, num_kv_heads, head_dim, page_size, causal=causal and i == len(self._levels) - 1,
                sm_scale=sm_scale, window_left=window_left, logits_soft_cap=logits_soft_cap, q_data_type=q_data_type,
                kv_data_type=kv_data_type,
            )

    begin_forward = plan

    def run(self, q: Any, paged_kv_cache: Any) -> Any:
        """q [rows, Hq, D]: out [rows, Hq, D]."""
        states = [level.run(q, paged_kv_cache, return_lse=True) for level in self._levels]
        out, lse = states[-1]
        for other, other_lse in states[:-1]:
            out, lse = merge_state(out, lse, other, other_lse)
        return out

    forward = run


__all__ = ["MultiLevelCascadeAttentionWrapper", "merge_state", "merge_state_in_place", "merge_states"]
