"""The common part of the stateless functions: converts arrays of any layout, plans and runs."""

import threading
from collections import OrderedDict
from typing import Any, Dict, NamedTuple, Optional, Tuple

from ._arrays import DTYPE_NAMES, Framework, device_name, framework_of
from ._lib import CPU, CUDA_HOST, DECODE, PREFILL, UINT, Arg, CLayer, Fields
from .attention import Attention, debugs_pages
from .spec import AttentionSpec, Limits

_KV_DTYPES = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}
_MAX_OBJECTS = 64
_MAX_CONSTANTS = 512
_MAX_PREPARED, _MAX_PREPARED_BYTES = 4, 16 << 20  # on a GPU; bytes of each workspace
_INT32_MAX = 2**31 - 1
_UINT8 = (UINT, 8)


class Masking(NamedTuple):
    """The arguments of FlashAttention that determine the visible keys and the scores."""

    scale: Optional[float] = None
    causal: bool = False
    left: int = -1
    right: int = -1
    softcap: float = 0.0
    chunk: int = 0
    alibi: Any = None  # [Hq] or [B, Hq] of one row
    sink: Any = None  # [Hq]
    k_descale: Any = None
    v_descale: Any = None

    def has_arrays(self) -> bool:
        """Conservative: descales may also be numbers."""
        return not (self.alibi is None and self.sink is None and self.k_descale is None and self.v_descale is None)


class Keys(NamedTuple):
    """The location of a step's keys."""

    k: Arg
    v: Arg
    page_size: int
    max_len: int  # of one sequence
    max_total: int
    lens: Arg  # [B]
    page_table: Optional[Arg] = None
    indptr: Optional[Arg] = None


class Packed(NamedTuple):
    mask: Any  # uint8
    offsets: Any  # [B + 1] int64


class RowScales(NamedTuple):
    """A descale of each row of a ragged tensor and KV head."""

    scales: Any  # [rows, Hkv] fp32


def index(framework: Framework, x: Any) -> Any:
    """An index array that the library can read in place: dense, and int32 on a GPU. Other arrays are copied here, on the device:
    the library would copy them into memory of the object, which calls on other streams and captured graphs share."""
    if x is None or isinstance(x, int):
        return x
    x = framework.narrow(x)
    if framework.is_contiguous(x):
        return x
    shape, strides = framework.describe(x)[1:3]
    if len(shape) == 2 and (shape[1] <= 1 or strides[1] == 1) and (shape[0] <= 1 or strides[0] >= shape[1]):
        return x  # rows of a page table may lie apart
    return framework.contiguous(x)


def shape_of(arg: Optional[Arg], name: str, dims: int, layout: str) -> Tuple[int, ...]:
    if arg is None:
        raise ValueError(f"{name} is None; it must be {layout}")
    if len(arg[1]) != dims:
        raise ValueError(f"{name} has shape {tuple(arg[1])}; it must be {layout}")
    return tuple(arg[1])


def flat_rows(arg: Arg) -> Arg:
    """[B, S, H, D] as [B * S, H, D] where all rows lie at one distance, else as it is."""
    batch, rows, heads, dim = arg[1]
    of_batch, of_row, of_head, of_dim = arg[2]
    if rows == 1:
        of_row = of_batch
    elif batch > 1 and of_batch != rows * of_row:
        return arg
    return arg[0], (batch * rows, heads, dim), (of_row, of_head, of_dim), arg[3], arg[4]


def rows_of_batch(arg: Arg, name: str) -> Arg:
    """[B, S, H, D] as [B * S, H, D]."""
    flat = flat_rows(arg)
    if len(flat[1]) == 4:
        raise ValueError(
            f"{name} of shape {tuple(arg[1])} has strides {tuple(arg[2])}; the rows of all sequences must lie at one distance, "
            f"and nothing is copied here: pass {name}.contiguous()"
        )
    return flat


def rows_of_sequences(arg: Arg) -> Optional[Tuple[Arg, int]]:
    """[B, S, H, D] as rows of one ragged tensor, sequence b's from row b * m on, and m; None where the distance of
    sequences is no multiple of that of rows, or 0."""
    batch, rows, heads, dim = arg[1]
    of_batch, of_row, of_head, of_dim = arg[2]
    if batch <= 1:
        step = rows
    elif rows <= 1:
        of_row, step = of_batch, 1
    elif of_row > 0 and of_batch > 0 and of_batch % of_row == 0:
        step = of_batch // of_row
    else:
        return None
    total = (batch - 1) * step + rows if batch and rows else 0
    if step < rows or batch * step > _INT32_MAX:
        return None
    return (arg[0], (total, heads, dim), (of_row, of_head, of_dim), arg[3], arg[4]), step


class Constants:
    """Small index arrays that depend on sizes only, made once for each device and stream. Not kept while a graph is
    captured: they would live in its memory and be written by its replays."""

    def __init__(self) -> None:
        self._kept: Dict[Any, Any] = {}

    def _get(self, framework: Framework, stream: Any, key: Any, make: Any) -> Any:
        if stream is not None and framework.capturing():  # the default stream can't be captured
            return make()
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _MAX_CONSTANTS:
                self._kept.clear()
            found = self._kept[key] = make()
        return found

    def offsets(self, framework: Framework, device: Any, stream: Any, count: int, step: int, like: Any) -> Any:
        """[0, step, ..., count * step]."""

        def make() -> Any:
            if step == 0:
                return framework.full((count + 1,), 0, "int32", like)
            return framework.arange(0, count * step + 1, step, like)

        return self._get(framework, stream, (framework.name, device, stream, count, step), make)

    def filled(self, framework: Framework, device: Any, stream: Any, count: int, value: int, like: Any) -> Any:
        return self._get(
            framework,
            stream,
            (framework.name, device, stream, "filled", count, value),
            lambda: framework.full((count,), value, "int32", like),
        )


constants = Constants()


class _Objects(threading.local):
    """Attention objects by what is fixed about them; of one thread, as an object is used by one at a time."""

    def __init__(self) -> None:
        self.kept: "OrderedDict[Any, Attention]" = OrderedDict()


_objects = _Objects()


class Prepared:
    """A call whose arrays have the shapes of an earlier one and whose index arrays are constants: of the new arrays only the
    addresses are set. The step is planned again only where another call has used the object since: layers of a model that
    call one after another share a plan."""

    def __init__(
        self, attention: Attention, phase: int, tokens: int, step: Dict[str, Optional[Arg]], layer: Dict[str, Optional[Arg]],
        workspace: Any, workspace_arg: Optional[Arg], kept: Any,
    ) -> None:
        self._attention, self._phase, self._tokens, self._step = attention, phase, tokens, step
        self._workspace_arg, self._kept = workspace_arg, (workspace, kept)
        self._layer = layer_fields = Fields(CLayer)
        layer_fields.c.k_scale = layer_fields.c.v_scale = 1.0
        slots = {name: layer_fields.put(name, arg) for name, arg in layer.items() if arg is not None}
        self._q, self._k, self._v, self._out = (slots[name].c for name in ("q", "k", "v", "out"))
        self._lse = slots["lse"].c if "lse" in slots else None
        self._mark = attention._planned_for = object()  # not self: an object must not keep a workspace alive

    def run(self, q: int, k: int, v: int, out: int, lse: Optional[int], stream: Optional[int]) -> None:
        """Addresses of arrays like the first ones."""
        attention = self._attention
        if attention._planned_for is not self._mark:
            attention._plan_args(self._phase, self._tokens, self._step, self._workspace_arg, stream)
            attention._planned_for = self._mark
        self._q.data, self._k.data, self._v.data, self._out.data = q, k, v, out
        if self._lse is not None:
            self._lse.data = lse
        attention._run_layer(self._layer, stream)


class _PreparedCalls(threading.local):
    """A thread's last ones. Each holds a workspace, so they are few."""

    def __init__(self) -> None:
        self.kept: "OrderedDict[Any, Prepared]" = OrderedDict()

    def keep(self, key: Any, call: Prepared) -> None:
        while len(self.kept) >= _MAX_PREPARED:
            self.kept.popitem(last=False)
        self.kept[key] = call


prepared_calls = _PreparedCalls()


def capacity(n: int) -> int:
    """A bound that repeated calls of growing sizes rarely exceed: a power of two."""
    return 1 << max(n - 1, 15).bit_length()


def _object(
    framework: Framework, key: Any, device: Tuple[int, int], spec: Any, limits: Tuple[int, int, int, int], tune_for: str
) -> Attention:
    """The object of this key, made now if there is none."""
    kept = _objects.kept
    found = kept.get(key)
    if found is not None:
        kept.move_to_end(key)
        return found
    if framework.capturing():
        raise ValueError(
            "a CUDA graph is being captured and no call with these shapes, dtypes and options came before it; call the "
            "function once before the capture (a warm-up), which makes what it needs"
        )
    seqs, tokens, kv_tokens, kv_len = limits
    made = Attention(spec(), Limits(seqs, tokens, kv_tokens, kv_len, tune_for), device=device, check_pages=False)
    while len(kept) >= _MAX_OBJECTS:
        kept.popitem(last=False)
    kept[key] = made
    return made


def mla_object(framework: Framework, device: Tuple[int, int], spec: AttentionSpec, *limits: int) -> Attention:
    """The object of latent attention with this spec and these limits."""
    bounds = (limits[0], limits[1], limits[2], limits[3])
    return _object(framework, (device, spec, bounds), device, lambda: spec, bounds, "many")


def heads_vector(framework: Framework, x: Any, heads: int, name: str) -> Any:
    """[heads] fp32, contiguous, of [heads], or of [B, heads] whose rows are the same memory."""
    if framework_of(x) is not framework:
        raise ValueError(f"{name} is a {type(x).__name__}; it must be an array of {framework.name}, as q is")
    arg = framework.describe(x)
    shape, strides = tuple(arg[1]), arg[2]
    if len(shape) == 2 and (shape[0] == 1 or strides[0] == 0):
        x, shape = x[0], shape[1:]
    if shape != (heads,):
        raise ValueError(f"{name} has shape {shape}; allowed is [{heads}], one for each head and the same in all sequences")
    return framework.contiguous(framework.cast(x, "float32"))


def _descale(framework: Framework, x: Any, heads: int, name: str) -> Tuple[float, Any]:
    """(scale, None), or (1, scales of the kv heads)."""
    if x is None:
        return 1.0, None
    if isinstance(x, (int, float)):
        return float(x), None
    if isinstance(x, RowScales):
        return 1.0, x.scales
    if framework_of(x) is not framework:
        raise ValueError(f"{name} is a {type(x).__name__}; it must be a number, or an array of {framework.name}, as q is")
    arg = framework.describe(x)
    if heads > 1 and all(n == 1 for n in arg[1]):
        x = framework.full((heads,), 1.0, "float32", x) * framework.cast(x.reshape(1), "float32")
    return 1.0, heads_vector(framework, x, heads, name)


def is_cpu(device: Tuple[int, int]) -> bool:
    return device[0] in (CPU, CUDA_HOST)


def serve(
    framework: Framework,
    like: Any,
    q: Arg,
    keys: Keys,
    q_offsets: Arg,
    seqs: int,
    max_q: int,
    m: Masking,
    out: Arg,
    lse: Optional[Arg],
    stream: Optional[int],
    packed: Optional[Packed] = None,
    kept: Any = None,
    tune_for: str = "many",
    check_pages: Optional[bool] = None,
) -> Optional[Prepared]:
    """Plans and runs one layer. q [Tq, Hq, D] or [B, S, Hq, D], out likewise with Dv, lse [Tq, Hq] or None. `like`: any array of
    q's device. `kept`: the owners of index arrays that are constants; then calls alike may go by what is returned, where that
    is not None."""
    if tune_for not in ("many", "few"):
        raise ValueError(f'tune_for is {tune_for!r}; allowed are "many" and "few"')
    heads, dim = q[1][-2:]
    tokens = q[1][0] if len(q[1]) == 3 else q[1][0] * q[1][1]
    if keys.max_total == 0 or not keys.k[0]:
        # Nothing is read, but an address must be there, which frameworks don't give to empty arrays.
        keys = keys._replace(k=(q[0],) + keys.k[1:], v=(q[0],) + keys.v[1:])
    kv_heads, v_dim = keys.k[1][-2], keys.v[1][-1]
    dtype = DTYPE_NAMES.get(q[3], "")
    if dtype not in ("float32", "float16", "bfloat16"):
        raise ValueError(f"q has dtype {dtype}; allowed are float32, float16 and bfloat16")
    if keys.k[3] != keys.v[3]:
        raise ValueError(f"k has dtype {DTYPE_NAMES.get(keys.k[3])} and v {DTYPE_NAMES.get(keys.v[3])}; they must be the same")
    if keys.k[1][-1] != dim:
        raise ValueError(f"q has a head size of {dim} and k of {keys.k[1][-1]}; they must be the same")
    kv_dtype = "auto"
    if keys.k[3] != q[3]:
        name = DTYPE_NAMES.get(keys.k[3], "")
        kv_dtype = _KV_DTYPES.get(name, name)
        if kv_dtype not in ("fp8_e4m3", "fp8_e5m2", "float32", "float16", "bfloat16"):
            raise ValueError(f"k and v have dtype {name}; allowed are that of q ({dtype}), float8_e4m3fn and float8_e5m2")
    causal, right = m.causal, m.right
    if max_q == 1 and packed is None:
        causal, right = True, -1  # the one row is the last: no key comes after it
    elif causal or (right == 0 and packed is None):
        causal, right = True, -1
    k_scale, k_scales = _descale(framework, m.k_descale, kv_heads, "k_descale")
    v_scale, v_scales = _descale(framework, m.v_descale, kv_heads, "v_descale")
    if k_scales is not None or v_scales is not None:
        shapes = [tuple(x.shape) for x in (k_scales, v_scales) if x is not None]
        ones = framework.full(max(shapes, key=len), 1.0, "float32", like)  # the finer of the two
        if k_scales is None or k_scales.shape != ones.shape:
            k_scales, k_scale = ones * (k_scale if k_scales is None else k_scales), 1.0
        if v_scales is None or v_scales.shape != ones.shape:
            v_scales, v_scale = ones * (v_scale if v_scales is None else v_scales), 1.0
    alibi = None if m.alibi is None else heads_vector(framework, m.alibi, heads, "alibi_slopes")
    sink = None if m.sink is None else heads_vector(framework, m.sink, heads, "learnable_sink")

    device = q[4]
    limits = (capacity(seqs), capacity(tokens), capacity(keys.max_total), capacity(keys.max_len))
    fixed = (
        heads, kv_heads, dim, dtype, v_dim, m.scale, m.softcap, kv_dtype, keys.page_size, causal, m.left, right, m.chunk, 0,
        False, packed is not None, False, sink is not None, sink is not None and lse is not None, alibi is not None, False, False,
        k_scales is not None,
    )
    attention = _object(framework, (device, fixed, limits, tune_for), device, lambda: AttentionSpec(*fixed), limits, tune_for)
    workspace = None
    if not is_cpu(device) and attention.workspace_bytes:
        # The framework's allocator is stream-ordered: calls on other streams, and graphs, get their own workspace.
        workspace = framework.empty((attention.workspace_bytes,), "uint8", like)
    args = {"q_offsets": q_offsets, "kv_lens": keys.lens, "page_table": keys.page_table, "kv_indptr": keys.indptr}
    if packed is not None:
        args["packed_mask"] = framework.describe(packed.mask)
        args["packed_offsets"] = framework.describe(packed.offsets)
    describe = framework.describe
    described: Optional[Arg] = None
    if workspace is not None:
        described = (framework.address(workspace), (attention.workspace_bytes,), (1,), _UINT8, device)
    phase = DECODE if max_q == 1 else PREFILL
    look = debugs_pages() if check_pages is None else bool(check_pages)
    pages = keys.k[1][0] if look and not is_cpu(device) else 0
    attention._plan_args(phase, tokens, args, described, stream, pages)
    attention._run_args(
        q, keys.k, keys.v, out, lse, None if sink is None else describe(sink), None if alibi is None else describe(alibi),
        k_scale, v_scale, None if k_scales is None else describe(k_scales), None if v_scales is None else describe(v_scales),
        stream,
    )
    if look and not (stream is not None and framework.capturing()):
        attention._check(keys.k[1][0], stream)
    if kept is None or attention.workspace_bytes > _MAX_PREPARED_BYTES or (stream is not None and framework.capturing()):
        return None
    if m.has_arrays() or packed is not None or not keys.max_total:
        return None
    layer = {"q": q, "k": keys.k, "v": keys.v, "out": out, "lse": lse}
    return Prepared(attention, phase, tokens, args, layer, workspace, described, kept)


def same_device(q: Arg, **others: Optional[Arg]) -> None:
    for name, arg in others.items():
        if arg is not None and arg[4] != q[4]:
            raise ValueError(f"{name} lies on {device_name(arg[4])} and q on {device_name(q[4])}; they must be on one device")
