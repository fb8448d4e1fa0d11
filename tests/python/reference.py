"""The definition of attention in fp64, in plain loops over sequences and heads; what the package's results are held against."""

import numpy as np


def visible(n_q, n_k, causal=False, window=(-1, -1), chunk=0):
    """[n_q, n_k] boolean."""
    p = np.arange(n_q)[:, None] + (n_k - n_q)
    j = np.arange(n_k)[None, :]
    seen = np.ones((n_q, n_k), bool)
    if causal:
        seen &= j <= p
    if window[0] >= 0:
        seen &= j >= p - window[0]
    if window[1] >= 0:
        seen &= j <= p + window[1]
    if chunk:
        seen &= j // chunk == p // chunk
    return seen


def attention(
    q, k, v, seen, scale=None, softcap=0.0, slopes=None, sink=None, sink_in_lse=False, bias=None, qv=None, v_scale=1.0
):
    """One sequence: q [n_q, Hq, D], k [n_k, Hkv, D], v [n_k, Hkv, Dv], seen [n_q, n_k]: out [n_q, Hq, Dv], lse [n_q, Hq].
    bias [Hq, n_q, n_k] is added to the scores; qv [n_q, Hq, Dv] is multiplied with v."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    n_q, heads, dim = q.shape
    n_k, kv_heads, v_dim = v.shape
    group = heads // kv_heads
    scale = (dim if qv is None else dim + v_dim) ** -0.5 if scale is None else scale
    out, lse = np.zeros((n_q, heads, v_dim)), np.full((n_q, heads), -np.inf)
    distance = np.abs(np.arange(n_q)[:, None] + (n_k - n_q) - np.arange(n_k)[None, :])
    for h in range(heads):
        s = q[:, h] @ k[:, h // group].T
        if qv is not None:
            s = s + qv[:, h].astype(np.float64) @ v[:, h // group].T
        s = scale * s
        if softcap:
            s = softcap * np.tanh(s / softcap)
        if slopes is not None:
            s = s - float(slopes[h]) * distance
        if bias is not None:
            s = s + bias[h]
        for i in range(n_q):
            row = s[i][seen[i]]
            if row.size:
                top = row.max()
                weights = np.exp(row - top)
                total = weights.sum()
                lse[i, h] = top + np.log(total)
                if sink is not None:
                    total += np.exp(float(sink[h]) - top)
                out[i, h] = v_scale * (weights @ v[seen[i], h // group]) / total
            if sink is not None and sink_in_lse:
                lse[i, h] = np.logaddexp(lse[i, h], float(sink[h]))
    return out, lse


def e4m3(codes):
    """The values of float8_e4m3fn by their bytes."""
    sign, exponent, mantissa = codes >> 7, codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, mantissa / 8.0 * 2.0**-6, (1 + mantissa / 8.0) * 2.0 ** (exponent.astype(int) - 7))
    return np.where((codes & 127) == 127, np.nan, np.where(sign == 1, -value, value))


def rotate(x, positions, cos, sin, interleaved):
    """x [T, H, D] rotated in its first 2 * cos.shape[1] elements."""
    x = x.astype(np.float64).copy()
    half = cos.shape[1]
    c, s = cos[positions].astype(np.float64)[:, None], sin[positions].astype(np.float64)[:, None]
    if interleaved:
        a, b = x[..., 0 : 2 * half : 2].copy(), x[..., 1 : 2 * half : 2].copy()
        x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2] = a * c - b * s, b * c + a * s
    else:
        a, b = x[..., :half].copy(), x[..., half : 2 * half].copy()
        x[..., :half], x[..., half : 2 * half] = a * c - b * s, b * c + a * s
    return x


def tables(positions, half):
    angles = np.arange(positions)[:, None] * 10000.0 ** (-np.arange(half) / half)[None, :]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def assert_close(testcase, actual, wanted, dtype="float32", what=""):
    """Infinities must agree; else absolute and relative errors that the dtype allows."""
    actual, wanted = np.asarray(actual, np.float64), np.asarray(wanted, np.float64)
    testcase.assertEqual(actual.shape, wanted.shape, what)
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(actual[~finite], wanted[~finite], err_msg=what)
    bound = {"float32": 2e-5, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
    np.testing.assert_allclose(actual[finite], wanted[finite], rtol=bound, atol=bound, err_msg=what)
