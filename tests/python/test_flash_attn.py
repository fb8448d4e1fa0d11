"""fovea.flash_attn and fovea.flash_attn_interface over numpy on the CPU: every function and parameter of FlashAttention 2 and 3
against fp64 definitions, or refused. (test_numpy.py has more of layouts, caches and promises.)"""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIPPED: numpy is not installed")
    sys.exit(77)
import api_table
from flash_table import TABLE
from reference import assert_close, attention, e4m3, rotate, tables, visible

from fovea import flash_attn as fa2
from fovea import flash_attn_interface as fa3

RNG = np.random.default_rng(5)
MODULES = {"flash_attn": fa2, "flash_attn_interface": fa3}
RECORDER = api_table.Recorder()


class _Recorded:
    """A module's functions, recorded; the modules call each other unrecorded."""

    def __init__(self, prefix):
        for name in TABLE:
            module, function = name.split(".")
            if module == prefix:
                setattr(self, function, RECORDER.function(name, getattr(MODULES[module], function)))


FA2, FA3 = _Recorded("flash_attn"), _Recorded("flash_attn_interface")


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def poisoned(shape, dtype="float32"):
    return np.full(shape, np.nan, dtype)


def offsets(counts):
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


class _E4m3Type:
    """What ml_dtypes' float8_e4m3fn is for the package, without ml_dtypes."""

    name, isnative, itemsize = "float8_e4m3fn", True, 1


class E4m3(np.ndarray):
    """Bytes that say that they are of e4m3."""

    dtype = property(lambda self: _E4m3Type)

    def astype(self, dtype, copy=True):
        return e4m3(self.view(np.ndarray)).astype(dtype)


def fp8(*shape):
    """Random e4m3, none above 32 and no NaN, and its values."""
    codes = RNG.integers(0, 256, shape).astype(np.uint8)
    codes = np.where((codes & 127) >= 0x70, codes ^ 0x40, codes).astype(np.uint8)
    return codes.view(E4m3), e4m3(codes)


SLOPES = np.float32([0.5, 0.25, 0.1, 0.02])
SCORES = (
    {}, {"causal": True}, {"softmax_scale": 0.3}, {"window_size": (3, 2)}, {"window_size": (4, -1), "causal": True}, {"softcap": 2.0},
)


def reference_options(options):
    return dict(scale=options.get("softmax_scale"), softcap=options.get("softcap", 0.0), slopes=options.get("alibi_slopes"))


def seen_of(n_q, n_k, options):
    return visible(
        n_q, n_k, options.get("causal", False), options.get("window_size", (-1, -1)), options.get("attention_chunk", 0)
    )


def padded(q, k, v, options, qv=None, **more):
    """out [B, S, Hq, Dv] and lse [B, Hq, S] of padded sequences."""
    results = [
        attention(
            q[b], k[b], v[b], seen_of(q.shape[1], k.shape[1], options), qv=None if qv is None else qv[b],
            **{**reference_options(options), **more},
        )
        for b in range(q.shape[0])
    ]
    return np.stack([o for o, _ in results]), np.stack([x.T for _, x in results])


class Padded(unittest.TestCase):
    def test_func(self):
        q, k, v = normal(2, 9, 4, 16), normal(2, 21, 2, 16), normal(2, 21, 2, 32)
        for options in SCORES + ({"alibi_slopes": SLOPES}, {"alibi_slopes": SLOPES, "causal": True}):
            with self.subTest(**options):
                wanted, _ = padded(q, k, v, options)
                out = FA2.flash_attn_func(q, k, v, deterministic=True, **options)
                assert_close(self, out, wanted)
        for options in SCORES + ({"attention_chunk": 8, "causal": True},):
            with self.subTest("FlashAttention 3", **options):
                wanted, wanted_lse = padded(q, k, v, options)
                out, lse = FA3.flash_attn_func(
                    q, k, v, num_splits=5, pack_gqa=True, deterministic=True, return_attn_probs=True, **options
                )
                assert_close(self, out, wanted)
                assert_close(self, lse, wanted_lse)
                np.testing.assert_array_equal(FA3.flash_attn_func(q, k, v, **options), out)

    def test_packed(self):
        for options in SCORES + ({"alibi_slopes": SLOPES},):
            qkv, q, kv = normal(2, 11, 3, 4, 16), normal(2, 5, 4, 16), normal(2, 11, 2, 2, 16)
            with self.subTest(**options):
                wanted, _ = padded(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], options)
                assert_close(self, FA2.flash_attn_qkvpacked_func(qkv, deterministic=True, **options), wanted)
                wanted, _ = padded(q, kv[:, :, 0], kv[:, :, 1], options)
                assert_close(self, FA2.flash_attn_kvpacked_func(q, kv, deterministic=True, **options), wanted)
        for options in SCORES + ({"attention_chunk": 4, "causal": True},):
            with self.subTest("FlashAttention 3", **options):
                qkv, grouped = normal(2, 11, 3, 4, 16), normal(2, 11, 8, 16)
                wanted, wanted_lse = padded(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], options)
                out, lse = FA3.flash_attn_qkvpacked_func(qkv, return_attn_probs=True, deterministic=True, **options)
                assert_close(self, out, wanted)
                assert_close(self, lse, wanted_lse)
                wanted, _ = padded(grouped[:, :, :4], grouped[:, :, 4:6], grouped[:, :, 6:], options)
                assert_close(self, FA3.flash_attn_qkvpacked_func(grouped, num_heads_q=4, **options), wanted)
        with self.assertRaisesRegex(ValueError, "num_heads_q is 3"):
            FA3.flash_attn_qkvpacked_func(grouped, num_heads_q=3)

    def test_descales(self):
        q, k, v = normal(2, 9, 4, 16), normal(2, 21, 2, 16), normal(2, 21, 2, 16)
        wanted, wanted_lse = padded(q, k, v, {}, scale=16**-0.5 * 0.5, v_scale=3.0)
        out, lse = FA3.flash_attn_func(q, k, v, k_descale=0.5, v_descale=3.0, return_attn_probs=True)
        assert_close(self, out, wanted)
        assert_close(self, lse, wanted_lse)
        qkv = np.stack((q[:, :, :2], k[:, :9], v[:, :9]), 2)
        wanted, _ = padded(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], {}, scale=16**-0.5 * 0.5, v_scale=3.0)
        assert_close(self, FA3.flash_attn_qkvpacked_func(qkv, k_descale=0.5, v_descale=3.0), wanted)
        cu_q, cu_k = offsets([9, 9]), offsets([21, 21])
        ragged = [x.reshape(-1, *x.shape[2:]) for x in (q, k, v)]
        again = FA3.flash_attn_varlen_func(*ragged, cu_q, cu_k, 9, 21, k_descale=0.5, v_descale=3.0)
        np.testing.assert_array_equal(again.reshape(out.shape), out)
        again = FA3.flash_attn_with_kvcache(q, k, v, k_descale=0.5, v_descale=3.0)
        np.testing.assert_array_equal(again, out)


class Fp8(unittest.TestCase):
    """q, k and v of e4m3 or 16 bits with descales of the tensor, of KV heads, of sequences and heads, and of blocks of 128 keys."""

    def scales(self, *shape):
        return (2.0 ** RNG.uniform(-2, 2, shape)).astype(np.float32)

    def forms(self, batch):
        """A descale as it is given, and as [B, Hkv]."""
        whole = lambda x: np.broadcast_to(x, (batch, 2)).astype(np.float64)
        head, pair = self.scales(2), self.scales(batch, 2)
        yield None, whole(1.0)
        yield 0.25, whole(0.25)
        yield np.float32([3.0]), whole(3.0)
        yield head, whole(head)
        yield np.broadcast_to(head, (batch, 2)), whole(head)
        yield pair, whole(pair)

    def close(self, actual, wanted):
        size = max(np.abs(wanted).max(), 1e-30) if wanted.size else 1.0
        assert_close(self, actual / size, wanted / size)

    def wanted(self, q, k, v, of_q, of_k, of_v, seen, **options):
        """One sequence in fp64; descales [Hkv]."""
        q = q * np.repeat(of_q, q.shape[1] // 2)[None, :, None]
        return attention(q, k * of_k[None, :, None], v * of_v[None, :, None], seen, **options)

    def test_granularities(self):
        """Every granularity for q, K and V in each function; softcap and window as sharp tests of the scores."""
        (q8, q), (k8, k), (v8, v) = fp8(3, 5, 4, 32), fp8(3, 20, 2, 32), fp8(3, 20, 2, 16)
        forms = list(self.forms(3))
        cu_q, cu_k, lens = np.int32([0, 2, 2, 15]), offsets([20, 20, 20]), np.int32([20, 7, 0])
        for i in range(len(forms)):
            for options in ({}, {"causal": True, "softcap": 30.0, "softmax_scale": 0.02}, {"window_size": (3, 2), "softmax_scale": 0.01}):
                (of_q, q_s), (of_k, k_s), (of_v, v_s) = (forms[(i + shift) % len(forms)] for shift in (0, 2, 4))
                given = dict(q_descale=of_q, k_descale=of_k, v_descale=of_v)
                more = reference_options(options)
                del more["slopes"]
                with self.subTest(i=i, **options):
                    out = poisoned((3, 5, 4, 16))
                    result, lse = fa2.flash_attn_func(q8, k8, v8, out=out, return_softmax_lse=True, **given, **options)
                    self.assertIs(result, out)
                    seen = seen_of(5, 20, options)
                    for b in range(3):
                        wanted, wanted_lse = self.wanted(q[b], k[b], v[b], q_s[b], k_s[b], v_s[b], seen, **more)
                        self.close(out[b], wanted)
                        self.close(lse[b], wanted_lse.T)
                    again, lse_again = FA3.flash_attn_func(q8, k8, v8, return_attn_probs=True, **given, **options)
                    np.testing.assert_array_equal(again, out)
                    np.testing.assert_array_equal(lse_again, lse)
                    ragged, ragged_lse = FA3.flash_attn_varlen_func(
                        q8.reshape(15, 4, 32), k8.reshape(60, 2, 32), v8.reshape(60, 2, 16), cu_q, cu_k, 13, 20, return_attn_probs=True,
                        **given, **options,
                    )
                    cached, cached_lse = FA3.flash_attn_with_kvcache(
                        q8, k8, v8, cache_seqlens=lens, return_softmax_lse=True, **given, **options
                    )
                    for b in range(3):
                        rows = slice(cu_q[b], cu_q[b + 1])
                        n = cu_q[b + 1] - cu_q[b]
                        wanted, wanted_lse = self.wanted(
                            q.reshape(15, 4, 32)[rows], k[b], v[b], q_s[b], k_s[b], v_s[b], seen_of(n, 20, options), **more
                        )
                        self.close(ragged[rows], wanted)
                        assert_close(self, ragged_lse[:, rows] / 100, wanted_lse.T / 100)
                        n = lens[b]
                        wanted, wanted_lse = self.wanted(
                            q[b], k[b, :n], v[b, :n], q_s[b], k_s[b], v_s[b], seen_of(5, n, options), **more
                        )
                        self.close(cached[b], wanted)
                        assert_close(self, cached_lse[b] / 100, wanted_lse.T / 100)

    def test_queries_of_16_and_32_bits(self):
        """Over fp8 keys with scales of heads (the library's) and of sequences; over keys of 16 bits with either."""
        for dtype in ("float32", "float16"):
            q = normal(2, 5, 4, 32, dtype=dtype)
            for k_given, k in (fp8(2, 20, 2, 32), (normal(2, 20, 2, 32, dtype=dtype),) * 2):
                v_given, v = fp8(2, 20, 2, 16) if isinstance(k_given, E4m3) else (normal(2, 20, 2, 16, dtype=dtype),) * 2
                for of_k, k_s in self.forms(2):
                    for of_v, v_s in self.forms(2):
                        out = fa2.flash_attn_func(q, k_given, v_given, k_descale=of_k, v_descale=of_v)
                        self.assertEqual(out.dtype, dtype)
                        for b in range(2):
                            wanted, _ = self.wanted(q[b], k[b], v[b], np.ones(2), k_s[b], v_s[b], visible(5, 20))
                            size = np.abs(wanted).max()
                            assert_close(self, out[b] / size, wanted / size, dtype)

    def test_packed(self):
        qkv8, qkv = fp8(2, 7, 3, 2, 32)
        given = dict(q_descale=self.scales(2, 2), k_descale=self.scales(2, 2), v_descale=self.scales(2, 2))
        out = FA3.flash_attn_qkvpacked_func(qkv8, **given)
        for b in range(2):
            wanted, _ = self.wanted(*(qkv[b, :, i] for i in range(3)), *(x[b] for x in given.values()), visible(7, 7))
            self.close(out[b], wanted)

    def test_blocks_of_keys(self):
        """[B, Hkv, blocks] of 128 keys; of K and V, of one of them, and beside a descale of heads."""
        lens = (300, 129)
        q = normal(2, 5, 4, 32)
        (k8, k), (v8, v) = fp8(2, 300, 2, 32), fp8(2, 300, 2, 16)
        apart8, apart = fp8(2, 310, 2, 32)
        cu_q, cu_k = offsets([5, 5]), offsets(lens)
        ragged = [np.concatenate([x[b, :n] for b, n in enumerate(lens)]) for x in (k8.view(np.ndarray), v8.view(np.ndarray))]
        k_ragged, v_ragged = (x.view(E4m3) for x in ragged)
        blocks = lambda: self.scales(2, 2, 3)
        head = self.scales(2)
        whole = lambda x: np.ones((2, 300, 2)) if x is None else np.broadcast_to(x, (2, 300, 2)) if np.ndim(x) < 2 else np.repeat(
            x, 128, 2
        )[:, :, :300].transpose(0, 2, 1)
        for of_k, of_v in ((blocks(), blocks()), (blocks(), None), (None, blocks()), (head, blocks()), (blocks(), 0.5)):
            k_s, v_s = whole(of_k).astype(float), whole(of_v).astype(float)
            out = fa2.flash_attn_func(q, k8, v8, causal=True, k_descale=of_k, v_descale=of_v)
            varlen = fa2.flash_attn_varlen_func(
                q.reshape(10, 4, 32), k_ragged, v_ragged, cu_q, cu_k, 5, 300, causal=True, k_descale=of_k, v_descale=of_v
            ).reshape(2, 5, 4, 16)
            for b, n in enumerate(lens):
                k_b, v_b = k[b] * k_s[b][..., None], v[b] * v_s[b][..., None]
                self.close(out[b], attention(q[b], k_b, v_b, visible(5, 300, True))[0])
                self.close(varlen[b], attention(q[b], k_b[:n], v_b[:n], visible(5, n, True))[0])
        both = np.stack((apart8.view(np.ndarray),) * 2, 3)[:, :300]  # K and V of one array, whose sequences lie 310 rows apart
        given = both[:, :, :, 0].view(E4m3), both[:, :, :, 1].view(E4m3)
        of_k, of_v = blocks(), blocks()
        out = fa2.flash_attn_func(q, *given, k_descale=of_k, v_descale=of_v)
        for b in range(2):
            k_b, v_b = (apart[b, :300] * whole(x)[b][..., None] for x in (of_k, of_v))
            self.close(out[b], attention(q[b], k_b, v_b, visible(5, 300))[0])

    def test_refusals(self):
        (q8, _), (k8, _), q = fp8(2, 5, 4, 32), fp8(2, 20, 2, 32), normal(2, 5, 4, 32)
        call = fa3.flash_attn_func
        for f, words in (
            (lambda: call(q, k8, k8, q_descale=2.0), "q_descale is given and q is float32; only fp8 has one"),
            (lambda: call(q8, k8, k8, q_descale=self.scales(4)), r"q_descale has shape \(4,\); allowed are a number, \[2\]"),
            (lambda: call(q8, k8, k8, k_descale=self.scales(2, 2, 1)), "k_descale has three dimensions with fp8 queries"),
            (lambda: call(q, q[:, :, :2], q[:, :, :2], k_descale=self.scales(2, 2, 1)), "k_descale has three dimensions; .* fp8 keys"),
            (lambda: call(q, k8, k8, v_descale=self.scales(2, 3, 1)), r"v_descale has shape \(2, 3, 1\); .* \[2, 2, 1\]"),
            (lambda: call(q, k8, k8, k_descale=[1.0, 2.0]), "an array is a list"),
            (lambda: call(q, k8, k8, qv=q, k_descale=self.scales(2, 2)), "qv is given and k and v are not both"),
            (
                lambda: fa3.flash_attn_with_kvcache(q8, k8, k8, q8[:, :1, :2], q8[:, :1, :2], cache_seqlens=3, q_descale=2.0),
                "new rows are quantised with one number",
            ),
            (
                lambda: fa3.flash_attn_with_kvcache(
                    q, k8, k8, cache_seqlens=np.int32([3, 20]), page_table=np.int32([[0], [1]]), k_descale=self.scales(2, 2, 1)
                ),
                "k_descale",
            ),
        ):
            with self.assertRaisesRegex(ValueError, words):
                f()


class SecondQuery(unittest.TestCase):
    """qv: keys apart from values (joined in a copy), and neighbours in one cache, in both orders (read in place)."""

    def forms(self, *shape):
        """k [..., 16] and v [..., 32]."""
        k, v = normal(*shape, 16), normal(*shape, 32)
        joined, turned = np.concatenate((k, v), -1), np.concatenate((v, k), -1)
        return (k, v), (joined[..., :16], joined[..., 16:]), (turned[..., 32:], turned[..., :32])

    def test_padded(self):
        q, qv = normal(2, 5, 4, 16), normal(2, 5, 4, 32)
        for options in ({}, {"causal": True}, {"softmax_scale": 0.2, "window_size": (3, 1)}, {"softcap": 2.0}):
            forms = self.forms(2, 13, 2)
            for i, (k, v) in enumerate(forms):
                with self.subTest(form=i, **options):
                    wanted, wanted_lse = padded(q, k, v, options, qv)
                    out, lse = FA3.flash_attn_func(q, k, v, qv=qv, return_attn_probs=True, **options)
                    assert_close(self, out, wanted)
                    assert_close(self, lse, wanted_lse)

    def test_half_and_strided(self):
        q, qv = normal(2, 4, 5, 16, dtype="float16").transpose(0, 2, 1, 3), normal(2, 5, 4, 64, dtype="float16")[..., ::2]
        for k, v in [[x.astype("float16") for x in self.forms(2, 13, 2)[0]], [x[:, ::2] for x in self.forms(2, 26, 2)[1]]]:
            if k.dtype != q.dtype:
                joined = np.concatenate((k, v), -1).astype("float16")
                k, v = joined[..., :16], joined[..., 16:]
            wanted, _ = padded(q, k, v, {"causal": True}, qv)
            assert_close(self, FA3.flash_attn_func(q, k, v, qv=qv, causal=True), wanted, "float16")

    def test_ragged_and_cache(self):
        lens_q, lens_k = (3, 0, 2), (9, 4, 13)
        cu_q, cu_k = offsets(lens_q), offsets(lens_k)
        q, qv = normal(5, 4, 16), normal(5, 4, 32)
        for i, (k, v) in enumerate(self.forms(26, 2)):
            with self.subTest(form=i):
                out = FA3.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 3, 13, qv=qv, causal=True)
                for b in range(3):
                    rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
                    wanted, _ = attention(
                        q[rows], k[keys], v[keys], visible(lens_q[b], lens_k[b], True), qv=qv[rows]
                    )
                    assert_close(self, out[rows], wanted)
        cos, sin = tables(64, 8)
        table, lens = np.int32([[3, 1], [0, 4]]), np.int32([5, 2])
        for i, (k_pages, v_pages) in enumerate(self.forms(5, 8, 2)):
            for n_new in (0, 2):
                with self.subTest(form=i, new=n_new):
                    q, qv, k, v = normal(2, 2, 4, 16), normal(2, 2, 4, 32), normal(2, n_new, 2, 16), normal(2, n_new, 2, 32)
                    old = [[x[table[b]].reshape(16, 2, -1)[: lens[b]].copy() for x in (k_pages, v_pages)] for b in range(2)]
                    more = dict(k=k, v=v, rotary_cos=cos, rotary_sin=sin) if n_new else {}
                    out = FA3.flash_attn_with_kvcache(
                        q, k_pages, v_pages, qv=qv, cache_seqlens=lens, page_table=table, causal=True, **more
                    )
                    for b in range(2):
                        at = lens[b] + np.arange(2)
                        q_b = rotate(q[b], at, cos, sin, True) if n_new else q[b]
                        k_b = np.concatenate((old[b][0], rotate(k[b], at, cos, sin, True))) if n_new else old[b][0]
                        v_b = np.concatenate((old[b][1], v[b]))
                        wanted, _ = attention(q_b, k_b, v_b, visible(2, len(k_b), True), qv=qv[b])
                        assert_close(self, out[b], wanted)

    def test_refusals(self):
        q, k, v = normal(2, 5, 4, 16), normal(2, 7, 2, 16), normal(2, 7, 2, 32)
        for qv, more, words in (
            (normal(2, 5, 4, 16), {}, r"qv has shape \(2, 5, 4, 16\); it must be \(2, 5, 4, 32\)"),
            (normal(2, 4, 4, 32), {}, "qv is float32 with 8 rows"),
            (normal(2, 5, 4, 32, dtype="float16"), {}, "qv is float16"),
            (normal(2, 5, 4, 32), {"k_descale": 2.0}, "qv is given with a descale"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                fa3.flash_attn_func(q, k, v, qv=qv, **more)


class Varlen(unittest.TestCase):
    lens_q, lens_k = (3, 0, 7, 1, 4), (9, 4, 7, 33, 0)

    def data(self):
        return normal(15, 4, 16), normal(53, 2, 16), normal(53, 2, 16), offsets(self.lens_q), offsets(self.lens_k)

    def check(self, out, lse, q, k, v, cu_q, cu_k, options, used_q=None, used_k=None):
        for b in range(len(self.lens_q)):
            n_q = self.lens_q[b] if used_q is None else int(used_q[b])
            n_k = self.lens_k[b] if used_k is None else int(used_k[b])
            rows, keys = slice(cu_q[b], cu_q[b] + n_q), slice(cu_k[b], cu_k[b] + n_k)
            wanted, wanted_lse = attention(
                q[rows], k[keys], v[keys], seen_of(n_q, n_k, options), **reference_options(options)
            )
            assert_close(self, out[rows], wanted)
            rest = slice(cu_q[b] + n_q, cu_q[b + 1])
            np.testing.assert_array_equal(out[rest], np.zeros_like(out[rest]))
            if lse is not None:
                assert_close(self, lse[:, rows], wanted_lse.T)
                np.testing.assert_array_equal(lse[:, rest], np.full_like(lse[:, rest], -np.inf))

    def test_func(self):
        for options in SCORES + ({"alibi_slopes": SLOPES},):
            q, k, v, cu_q, cu_k = self.data()
            with self.subTest(**options):
                out = FA2.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 7, 33, deterministic=True, **options)
                self.check(out, None, q, k, v, cu_q, cu_k, options)
                kv = np.stack((k, v), 1)
                again = FA2.flash_attn_varlen_kvpacked_func(q, kv, cu_q, cu_k, 7, 33, deterministic=True, **options)
                np.testing.assert_array_equal(again, out)
                qkv, cu = normal(15, 3, 4, 16), offsets(self.lens_q)
                out = FA2.flash_attn_varlen_qkvpacked_func(qkv, cu, 7, deterministic=True, **options)
                for b in range(5):
                    rows = slice(cu[b], cu[b + 1])
                    n = cu[b + 1] - cu[b]
                    wanted, _ = attention(
                        qkv[rows, 0], qkv[rows, 1], qkv[rows, 2], seen_of(n, n, options), **reference_options(options)
                    )
                    assert_close(self, out[rows], wanted)

    def test_seqused(self):
        used_q, used_k = np.int32([2, 0, 7, 0, 3]), np.int32([5, 4, 6, 20, 0])
        for options in SCORES + ({"attention_chunk": 8, "causal": True},):
            for given_q, given_k in ((used_q, None), (None, used_k), (used_q, used_k), (used_q.astype(np.int64), used_k)):
                with self.subTest(q=given_q, k=given_k, **options):
                    q, k, v, cu_q, cu_k = self.data()
                    for b in range(5):  # nothing may read what is not in use
                        if given_q is not None:
                            q[cu_q[b] + given_q[b] : cu_q[b + 1]] = np.nan
                        if given_k is not None:
                            k[cu_k[b] + given_k[b] : cu_k[b + 1]] = v[cu_k[b] + given_k[b] : cu_k[b + 1]] = np.nan
                    out, lse = FA3.flash_attn_varlen_func(
                        q, k, v, cu_q, cu_k, 7, 33, seqused_q=given_q, seqused_k=given_k, num_splits=3, pack_gqa=False,
                        deterministic=True, return_attn_probs=True, **options,
                    )
                    self.check(out, lse, q, k, v, cu_q, cu_k, options, given_q, given_k)

    def test_pages_with_unused_rows(self):
        q, k, v, cu_q, cu_k = self.data()
        page, used = 4, np.int32([2, 0, 7, 0, 3])
        counts = [-(-n // page) for n in self.lens_k]
        ids = RNG.permutation(sum(counts)).astype(np.int32)
        k_pages, v_pages = poisoned((sum(counts), page, 2, 16)), poisoned((sum(counts), page, 2, 16))
        table, at = np.full((5, max(counts)), -7, np.int32), 0
        for b, n in enumerate(self.lens_k):
            for i in range(counts[b]):
                table[b, i] = ids[at]
                rows = slice(cu_k[b] + i * page, min(cu_k[b] + (i + 1) * page, cu_k[b + 1]))
                k_pages[ids[at], : rows.stop - rows.start] = k[rows]
                v_pages[ids[at], : rows.stop - rows.start] = v[rows]
                at += 1
        out, lse = fa2.flash_attn_varlen_func(
            q, k_pages, v_pages, cu_q, None, 7, 33, causal=True, block_table=table, seqused_k=np.int32(self.lens_k), seqused_q=used,
            return_softmax_lse=True,
        )
        self.check(out, lse, q, k, v, cu_q, cu_k, {"causal": True}, used)
        whole = FA2.flash_attn_varlen_func(q, k_pages, v_pages, cu_q, cu_k, 7, 33, causal=True, block_table=table)
        self.check(whole, None, q, k, v, cu_q, cu_k, {"causal": True})


class Cache(unittest.TestCase):
    lens = np.int32([5, 3, 17])

    def caches(self, rows, room=24):
        return poisoned((rows, room, 2, 16)), poisoned((rows, room, 2, 16))

    def filled(self, where, leftpad, page=None):
        """Caches with keys between leftpad and lens, NaN elsewhere, and a table where `page` is given."""
        old, (k_cache, v_cache) = [], self.caches(5)
        for b, n in enumerate(self.lens):
            k, v = normal(n - leftpad[b], 2, 16), normal(n - leftpad[b], 2, 16)
            k_cache[where[b], leftpad[b] : n], v_cache[where[b], leftpad[b] : n] = k, v
            old.append((k, v))
        if page is None:
            return k_cache, v_cache, None, old
        per = 24 // page
        ids = RNG.permutation(5 * per).astype(np.int32).reshape(5, per)
        pages = [poisoned((5 * per, page, 2, 16)) for _ in "kv"]
        for cache, x in zip(pages, (k_cache, v_cache)):
            cache[ids] = x.reshape(5, per, page, 2, 16)
        return pages[0], pages[1], ids[np.asarray(where)], old

    def test_left_padding(self):
        """With rows of the cache, with cache_batch_idx and with pages; new keys with rotation or without."""
        cos, sin = tables(64, 8)
        leftpad = np.int32([2, 0, 11])
        for form in ("rows", "index", "pages 1", "pages 4", "pages 24"):
            for n_new in (0, 2):
                for turn in ({}, {"rotary_interleaved": False}) if n_new else ({},):
                    for dtype in (np.int32, np.int64):
                        with self.subTest(form=form, new=n_new, dtype=dtype, **turn):
                            where = [4, 0, 2] if form == "index" else [0, 1, 2]
                            page = int(form.split()[1]) if form.startswith("pages") else None
                            k_cache, v_cache, table, old = self.filled(where, leftpad, page)
                            if form == "rows":
                                k_cache, v_cache = k_cache[:3], v_cache[:3]
                            places = {"cache_batch_idx": np.asarray(where, dtype)} if form == "index" else {}
                            if page:
                                places = {"page_table": table.astype(dtype)}
                            q, k, v = normal(3, 2, 4, 16), normal(3, n_new, 2, 16), normal(3, n_new, 2, 16)
                            rope = dict(rotary_cos=cos, rotary_sin=sin, **turn) if turn else {}
                            if n_new:
                                rope.update(k=k, v=v)
                            out, lse = FA3.flash_attn_with_kvcache(
                                q, k_cache, v_cache, cache_seqlens=self.lens.astype(dtype), cache_leftpad=leftpad.astype(dtype),
                                causal=True, window_size=(6, 0), return_softmax_lse=True, num_splits=7, pack_gqa=True, **places, **rope,
                            )
                            for b, n in enumerate(self.lens):
                                at = n + np.arange(2)
                                q_b = rotate(q[b], at, cos, sin, False) if turn else q[b]
                                new = rotate(k[b], at, cos, sin, False) if turn else k[b]
                                k_b, v_b = np.concatenate((old[b][0], new)), np.concatenate((old[b][1], v[b]))
                                wanted, wanted_lse = attention(q_b, k_b, v_b, visible(2, len(k_b), True, (6, 0)))
                                assert_close(self, out[b], wanted)
                                assert_close(self, lse[b], wanted_lse.T)

    def test_left_padding_of_a_number(self):
        k_cache, v_cache, q = normal(2, 24, 2, 16), normal(2, 24, 2, 16), normal(2, 1, 4, 16)
        pad = np.int32([3, 9])
        for length in (None, 20):
            out = fa2.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=length, cache_leftpad=pad)
            for b in range(2):
                keys = slice(pad[b], length or 24)
                wanted, _ = attention(q[b], k_cache[b, keys], v_cache[b, keys], visible(1, keys.stop - keys.start))
                assert_close(self, out[b], wanted)
        none_left = fa2.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=np.int32([3, 9]), cache_leftpad=pad)
        np.testing.assert_array_equal(none_left, np.zeros_like(q))
        with self.assertRaisesRegex(ValueError, r"kv_lens\[0\] is -1"):
            fa2.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=np.int32([2, 9]), cache_leftpad=pad)
        with self.assertRaisesRegex(ValueError, r"cache_leftpad has shape \(3,\); it must be \[2\]"):
            fa2.flash_attn_with_kvcache(q, k_cache, v_cache, cache_leftpad=np.int32([1, 1, 1]))

    def test_rotary_seqlens(self):
        cos, sin = tables(64, 8)
        first = np.int32([40, 0, 21])
        for n_q, n_new in ((2, 2), (3, 2), (1, 1)):
            for causal in (True, False):
                for interleaved in (True, False):
                    with self.subTest(n_q=n_q, new=n_new, causal=causal, interleaved=interleaved):
                        k_cache, v_cache, _, old = self.filled([0, 1, 2], [0, 0, 0])
                        q, k, v = normal(3, n_q, 4, 16), normal(3, n_new, 2, 16), normal(3, n_new, 2, 16)
                        out = FA3.flash_attn_with_kvcache(
                            q, k_cache[:3], v_cache[:3], k, v, rotary_cos=cos, rotary_sin=sin, cache_seqlens=self.lens, causal=causal,
                            rotary_seqlens=first, rotary_interleaved=interleaved,
                        )
                        for b, n in enumerate(self.lens):
                            at = first[b] + np.arange(max(n_q, n_new))
                            k_b = np.concatenate((old[b][0], rotate(k[b], at[:n_new], cos, sin, interleaved)))
                            q_at = at[:n_q] if causal else at[:n_q] * 0 + first[b]
                            wanted, _ = attention(
                                rotate(q[b], q_at, cos, sin, interleaved), k_b, np.concatenate((old[b][1], v[b])),
                                visible(n_q, len(k_b), causal),
                            )
                            assert_close(self, out[b], wanted)
        k = normal(3, 1, 2, 16)
        with self.assertRaisesRegex(ValueError, "rotary_seqlens is given without rotary_cos"):
            fa3.flash_attn_with_kvcache(k, k_cache[:3, :, :, :16], v_cache[:3], k, k, cache_seqlens=self.lens, rotary_seqlens=first)

    def test_ragged_queries(self):
        cos, sin = tables(64, 8)
        k_cache, v_cache, _, old = self.filled([0, 1, 2], [0, 0, 0])
        counts, cu, first = (2, 0, 3), np.int32([0, 2, 2, 5]), np.int32([9, 8, 30])
        q, k, v = normal(5, 4, 16), normal(5, 2, 16), normal(5, 2, 16)
        out, lse = FA3.flash_attn_with_kvcache(
            q, k_cache[:3], v_cache[:3], k, v, rotary_cos=cos, rotary_sin=sin, cache_seqlens=self.lens, causal=True, cu_seqlens_q=cu,
            cu_seqlens_k_new=cu, max_seqlen_q=3, rotary_seqlens=first, return_softmax_lse=True, softmax_scale=0.2,
        )
        for b in range(3):
            rows, at = slice(cu[b], cu[b + 1]), first[b] + np.arange(counts[b])
            k_b = np.concatenate((old[b][0], rotate(k[rows], at, cos, sin, True)))
            wanted, wanted_lse = attention(
                rotate(q[rows], at, cos, sin, True), k_b, np.concatenate((old[b][1], v[rows])), visible(counts[b], len(k_b), True), 0.2
            )
            assert_close(self, out[rows], wanted)
            assert_close(self, lse[:, rows], wanted_lse.T)

    def test_scores(self):
        k_cache, v_cache, _, old = self.filled([0, 1, 2], [0, 0, 0])
        q = normal(3, 3, 4, 16)
        for options in SCORES:
            with self.subTest(**options):
                for call in (FA2.flash_attn_with_kvcache, FA3.flash_attn_with_kvcache):
                    out, lse = call(q, k_cache[:3], v_cache[:3], cache_seqlens=self.lens, return_softmax_lse=True, num_splits=2, **options)
                    for b, n in enumerate(self.lens):
                        wanted, wanted_lse = attention(
                            q[b], *old[b], seen_of(3, n, options), **reference_options(options)
                        )
                        assert_close(self, out[b], wanted)
                        assert_close(self, lse[b], wanted_lse.T)
        out = FA3.flash_attn_with_kvcache(q, k_cache[:3], v_cache[:3], cache_seqlens=self.lens, causal=True, attention_chunk=8)
        for b, n in enumerate(self.lens):
            assert_close(self, out[b], attention(q[b], *old[b], visible(3, n, True, chunk=8))[0])

    def test_all_of_flash_attention_2(self):
        """One call with each argument: rows by index, padding, new keys with rotation, slopes."""
        cos, sin = tables(64, 8)
        leftpad, where = np.int32([1, 0, 3]), np.int32([4, 0, 2])
        k_cache, v_cache, _, old = self.filled(where, leftpad)
        q, k, v = normal(3, 2, 4, 16), normal(3, 2, 2, 16), normal(3, 2, 2, 16)
        out = FA2.flash_attn_with_kvcache(
            q, k_cache, v_cache, k, v, cos, sin, self.lens, where, leftpad, None, 0.3, True, (9, 0), 0.0, False, SLOPES, 3
        )
        for b, n in enumerate(self.lens):
            at = n + np.arange(2)
            k_b = np.concatenate((old[b][0], rotate(k[b], at, cos, sin, False)))
            v_b = np.concatenate((old[b][1], v[b]))
            wanted, _ = attention(
                rotate(q[b], at, cos, sin, False), k_b, v_b, visible(2, len(k_b), True, (9, 0)), 0.3, slopes=SLOPES
            )
            assert_close(self, out[b], wanted)
        pages = normal(6, 8, 2, 16)
        table = np.int32([[3, 1], [0, 4], [5, 2]])
        out = FA2.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=np.int32([9, 3, 16]), block_table=table)
        for b, n in enumerate((9, 3, 16)):
            keys = pages[table[b]].reshape(16, 2, 16)[:n]
            assert_close(self, out[b], attention(q[b], keys, keys, visible(2, n))[0])


class SlopesOfSequences(unittest.TestCase):
    """alibi_slopes [B, Hq]: the bits of a call for each sequence."""

    def test_functions(self):
        slopes = np.abs(normal(3, 4))
        q, k, v = normal(3, 5, 4, 16), normal(3, 20, 2, 16), normal(3, 20, 2, 32)
        for options in ({}, {"causal": True, "window_size": (9, -1)}):
            out = poisoned((3, 5, 4, 32))
            result, lse = fa2.flash_attn_func(q, k, v, alibi_slopes=slopes, out=out, return_softmax_lse=True, **options)
            self.assertIs(result, out)
            cu_q, lens, used = np.int32([0, 2, 2, 15]), (20, 7, 13), np.int32([2, 0, 9])
            cu_k = offsets(lens)
            k_ragged, v_ragged = (np.concatenate([x[b, :n] for b, n in enumerate(lens)]) for x in (k, v))
            ragged, ragged_lse = fa2.flash_attn_varlen_func(
                q.reshape(15, 4, 16), k_ragged, v_ragged, cu_q, cu_k, 13, 20, alibi_slopes=slopes, return_softmax_lse=True, **options
            )
            partly = fa2.flash_attn_varlen_func(
                q.reshape(15, 4, 16), k_ragged, v_ragged, cu_q, cu_k, 13, 20, alibi_slopes=slopes, seqused_q=used, **options
            )
            pages = np.concatenate((k[:, :16], v[:, :16, :, :16]), 0).reshape(-1, 8, 2, 16)
            table, n_pages = np.int32([[3, 1], [0, 4], [5, 2]]), np.int32([9, 16, 3])
            paged = fa2.flash_attn_varlen_func(
                q.reshape(15, 4, 16), pages, pages, cu_q, None, 13, 16, alibi_slopes=slopes, block_table=table, seqused_k=n_pages, **options
            )
            for b, n in enumerate(lens):
                wanted, wanted_lse = attention(q[b], k[b], v[b], seen_of(5, 20, options), slopes=slopes[b])
                assert_close(self, out[b], wanted)
                assert_close(self, lse[b], wanted_lse.T)
                rows = slice(cu_q[b], cu_q[b + 1])
                n_q = cu_q[b + 1] - cu_q[b]
                q_b = q.reshape(15, 4, 16)[rows]
                wanted, wanted_lse = attention(q_b, k[b, :n], v[b, :n], seen_of(n_q, n, options), slopes=slopes[b])
                assert_close(self, ragged[rows], wanted)
                assert_close(self, ragged_lse[:, rows], wanted_lse.T)
                wanted, _ = attention(q_b[: used[b]], k[b, :n], v[b, :n], seen_of(used[b], n, options), slopes=slopes[b])
                assert_close(self, partly[rows][: used[b]], wanted)
                self.assertFalse(partly[rows][used[b] :].any())
                keys = pages[table[b]].reshape(16, 2, 16)[: n_pages[b]]
                wanted, _ = attention(q_b, keys, keys, seen_of(n_q, n_pages[b], options), slopes=slopes[b])
                assert_close(self, paged[rows], wanted)
        for descale in (np.float32([0.5, 2.0]), np.float32([[0.5, 2.0], [3.0, 0.25]])):  # as many heads as sequences
            out = fa2.flash_attn_func(q[:2], k[:2], v[:2], alibi_slopes=slopes[:2], k_descale=descale)
            for b in range(2):
                of_b = (descale if descale.ndim == 1 else descale[b])[None, :, None]
                assert_close(self, out[b], attention(q[b], k[b] * of_b, v[b], visible(5, 20), slopes=slopes[b])[0])
        with self.assertRaisesRegex(ValueError, r"alibi_slopes has shape \(2, 4\); the batch has 3 sequences"):
            fa2.flash_attn_func(q, k, v, alibi_slopes=slopes[:2])
        with self.assertRaisesRegex(ValueError, r"alibi_slopes has shape \(3,\); allowed is \[4\]"):
            fa2.flash_attn_func(q, k, v, alibi_slopes=slopes[:, :3])

    def test_caches(self):
        slopes, lens, cos_sin = np.abs(normal(3, 4)), np.int32([5, 3, 17]), tables(64, 8)
        for form in ("rows", "index", "ragged"):
            k_cache, v_cache = normal(5, 24, 2, 16), normal(5, 24, 2, 16)
            where = [4, 0, 2] if form == "index" else [0, 1, 2]
            old = [(k_cache[w, :n].copy(), v_cache[w, :n].copy()) for w, n in zip(where, lens)]
            if form != "index":
                k_cache, v_cache = k_cache[:3], v_cache[:3]
            q, k, v = normal(3, 2, 4, 16), normal(3, 2, 2, 16), normal(3, 2, 2, 16)
            cu = offsets([2, 2, 2])
            more = {"cache_batch_idx": np.int32(where)} if form == "index" else {}
            arrays = (q, k, v)
            if form == "ragged":
                arrays = tuple(x.reshape(6, *x.shape[2:]) for x in arrays)
                more = dict(cu_seqlens_q=cu, cu_seqlens_k_new=cu, max_seqlen_q=2)
            out, lse = fa2.flash_attn_with_kvcache(
                arrays[0], k_cache, v_cache, *arrays[1:], *cos_sin, lens, causal=True, alibi_slopes=slopes, return_softmax_lse=True, **more
            )
            self.assertEqual(lse.shape, (4, 6) if form == "ragged" else (3, 4, 2))
            for b, n in enumerate(lens):
                at = n + np.arange(2)
                k_b = np.concatenate((old[b][0], rotate(k[b], at, *cos_sin, True)))
                v_b = np.concatenate((old[b][1], v[b]))
                wanted, wanted_lse = attention(
                    rotate(q[b], at, *cos_sin, True), k_b, v_b, visible(2, len(k_b), True), slopes=slopes[b]
                )
                rows = slice(2 * b, 2 * b + 2)
                assert_close(self, out[rows] if form == "ragged" else out[b], wanted)
                assert_close(self, lse[:, rows] if form == "ragged" else lse[b], wanted_lse.T)


class LatentHeads(unittest.TestCase):
    """Latent attention without absorption: K and V of other sizes, side by side in one array, and each head with its own."""

    def test_chunks_of_a_context(self):
        new, context = (5, 0, 1, 18), (30, 9, 0, 4)
        cu_q = offsets(new)
        for dtype in ("float32", "float16"):
            for dim, v_dim in ((192, 128), (256, 256), (96, 64)):
                q = normal(sum(new), 3, dim, dtype=dtype)
                parts, keys, values = [], [[] for _ in new], [[] for _ in new]
                for lens in (context, new):
                    cu_k = offsets(lens)
                    both = np.concatenate((normal(sum(lens), 3, dim + v_dim, dtype=dtype), poisoned((1, 3, dim + v_dim), dtype)))
                    k, v = both[..., :dim], both[..., dim:]
                    out = poisoned((sum(new), 3, v_dim), dtype)
                    result, lse = FA2.flash_attn_varlen_func(
                        q, k, v, cu_q, cu_k, max(new), max(lens), causal=lens is new, return_softmax_lse=True, out=out
                    )
                    self.assertIs(result, out)
                    parts.append((out, lse.T))
                    for b, n in enumerate(lens):
                        keys[b].append(k[cu_k[b] : cu_k[b] + n])
                        values[b].append(v[cu_k[b] : cu_k[b] + n])
                outs, lses = (np.ascontiguousarray(np.stack(x)) for x in zip(*parts))
                out, lse = fa3.flash_attn_combine(outs, lses)
                for b, n in enumerate(new):
                    rows = slice(cu_q[b], cu_q[b + 1])
                    k, v = np.concatenate(keys[b]), np.concatenate(values[b])
                    wanted, wanted_lse = attention(q[rows], k, v, visible(n, len(k), True))
                    assert_close(self, out[rows], wanted, dtype)
                    assert_close(self, lse[rows], wanted_lse, dtype)


class Combine(unittest.TestCase):
    def test_parts(self):
        q, k, v = normal(2, 3, 4, 16), normal(2, 20, 4, 16), normal(2, 20, 4, 16)
        wanted, wanted_lse = padded(q, k, v, {})
        parts = [fa3.flash_attn_func(q, k[:, a:b], v[:, a:b], return_attn_probs=True) for a, b in ((0, 9), (9, 10), (10, 20))]
        outs, lses = np.stack([o for o, _ in parts]), np.stack([x.swapaxes(1, 2) for _, x in parts])
        out, lse = FA3.flash_attn_combine(outs, lses)
        assert_close(self, out, wanted)
        assert_close(self, lse, wanted_lse.swapaxes(1, 2))
        given = poisoned(out.shape)
        again, _ = FA3.flash_attn_combine(outs, lses, given, "float32")
        self.assertIs(again, given)
        np.testing.assert_array_equal(given, out)
        ragged, lse = FA3.flash_attn_combine(outs[:, 0], lses[:, 0])
        np.testing.assert_array_equal(ragged, out[0])
        with self.assertRaisesRegex(ValueError, "lse_partial"):
            fa3.flash_attn_combine(outs, lses[:2])
        with self.assertRaisesRegex(ValueError, r"out has shape \(3, 4, 16\)"):
            fa3.flash_attn_combine(outs, lses, given[0])

    def test_there_is_no_scheduler_metadata(self):
        self.assertIsNone(FA3.get_scheduler_metadata(2, 1, 8, 4, 2, 16, np.int32([3, 8])))


def call(name, parameter, value):
    module, function = name.split(".")
    f = getattr(MODULES[module], function)
    q, k, cu = normal(2, 3, 4, 16), normal(2, 3, 2, 16), np.int32([0, 3, 6])
    ragged = q.reshape(6, 4, 16), k.reshape(6, 2, 16), k.reshape(6, 2, 16)
    given = {parameter: value}
    if function == "flash_attn_combine":
        return f(np.stack((q, q)), normal(2, 2, 3, 4), **given)
    if "varlen" in function:
        if "qkvpacked" in function:
            return f(np.stack((ragged[1],) * 3, 1), cu, 3, **given)
        keys = (np.stack(ragged[1:], 1),) if "kvpacked" in function else ragged[1:]
        return f(ragged[0], *keys, cu, cu, 3, 3, **given)
    if "qkvpacked" in function:
        return f(np.stack((k,) * 3, 2), **given)
    if "kvpacked" in function:
        return f(q, np.stack((k, k), 2), **given)
    return f(q, k, k, **given)


class Table(unittest.TestCase):
    def test_signatures(self):
        api_table.check_signatures(self, MODULES, TABLE)

    def test_refusals(self):
        api_table.check_refusals(self, TABLE, call)

    def test_hints(self):
        q, k = normal(2, 3, 4, 16), normal(2, 3, 2, 16)
        for bad in (-1, 2.5, "many"):
            with self.assertRaisesRegex(ValueError, "num_splits is .*a hint"):
                fa3.flash_attn_func(q, k, k, num_splits=bad)


class ZAllServed(unittest.TestCase):
    """Sorted behind the others, whose calls it looks at."""

    def test_every_served_parameter_was_given(self):
        api_table.check_all_served(self, TABLE, RECORDER)


if __name__ == "__main__":
    unittest.main()
