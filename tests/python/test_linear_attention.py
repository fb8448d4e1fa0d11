"""Attention without softmax over numpy on the CPU, and over torch on a GPU where there is one, against the fp64 definitions."""

import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIPPED: numpy is not installed")
    sys.exit(77)

import fovea

RNG = np.random.default_rng(11)
CU = np.int32([0, 5, 5, 75, 76])  # sequences of 5, 0, 70 and 1 rows


def normal(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(dtype)


def recurrence(q, k, v, g, beta, cu, scale, state, delta):
    """Row by row in fp64: out [T, H, Dv], states [B, H, Dk, Dv]."""
    q, k, v, g, state = (x.astype(np.float64) for x in (q, k, v, g, state))
    group = v.shape[1] // q.shape[1]
    out, state = np.zeros(v.shape), state.copy()
    for b in range(len(cu) - 1):
        for h in range(v.shape[1]):
            s = state[b, h]
            for t in range(cu[b], cu[b + 1]):
                s *= np.exp(g[t, h])
                e = beta[t, h] * (v[t, h] - s.T @ k[t, h // group]) if delta else v[t, h]
                s += np.outer(k[t, h // group], e)
                out[t, h] = scale * (s.T @ q[t, h // group])
    return out, state


def hstu(q, k, v, cu, cu_q, n_max, targets, contextual, window, rab):
    out = np.zeros(q.shape[:2] + v.shape[2:])
    for b in range(len(cu) - 1):
        n, rows, first = cu[b + 1] - cu[b], cu_q[b + 1] - cu_q[b], cu[b]
        last = n - (contextual - 1 if contextual else 0) - targets[b]
        ids = np.minimum(np.maximum(np.arange(n) - contextual + 1, 0) if contextual else np.arange(n), last)
        away = ids[:, None] - ids[None, :]
        seen = np.eye(n, dtype=bool) | (away > 0)
        if window:
            seen &= away <= window
        if contextual:
            seen |= (ids[:, None] == 0) & (ids[None, :] < last)
        for h in range(q.shape[1]):
            for row in range(rows):
                i = n - rows + row
                z = k[first : first + n, h].astype(np.float64) @ q[cu_q[b] + row, h].astype(np.float64) * q.shape[2] ** -0.5
                z += rab(first, n, i)
                w = seen[i] * z / (1 + np.exp(-z)) / n_max
                out[cu_q[b] + row, h] = w @ v[first : first + n, h].astype(np.float64)
    return out


def close(test, got, wanted, tolerance):
    got = np.asarray(got, np.float64)
    test.assertEqual(got.shape, wanted.shape)
    test.assertFalse(np.isnan(got).any())
    test.assertLess(np.abs(got - wanted).max(), tolerance * max(np.sqrt((wanted**2).mean()), 1e-30))


class Recurrences(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = normal(76, 2, 24), normal(76, 2, 24) / 5, normal(76, 4, 32)
        self.g, self.beta = -np.abs(normal(76, 4)), RNG.random((76, 4), dtype=np.float32)
        self.state = normal(4, 4, 24, 32)

    def test_gated_delta_rule(self):
        wanted, states = recurrence(self.q, self.k, self.v, self.g, self.beta, CU, 24**-0.5, self.state, True)
        out = np.full_like(self.v, np.nan)
        result, after = fovea.gated_delta_rule(
            self.q, self.k, self.v, self.g, self.beta, CU, initial_state=self.state, output_final_state=True, out=out
        )
        self.assertIs(result, out)
        close(self, out, wanted, 1e-4)
        close(self, after, states, 1e-4)
        for cu in (CU.astype("int64"), CU):  # in place, in any slots
            pool = np.full((6, 4, 24, 32), np.nan, "float32")
            slots = np.int32([4, 0, 2, 1])
            pool[slots] = self.state
            again, kept = fovea.gated_delta_rule(
                self.q, self.k, self.v, self.g, self.beta, cu, initial_state=pool, final_state=pool, initial_slots=slots,
                final_slots=slots, form="recurrent",
            )
            self.assertIs(kept, pool)
            np.testing.assert_array_equal(again, out)
            np.testing.assert_array_equal(pool[slots], after)

    def test_continued(self):
        wanted, after = fovea.gated_delta_rule(
            self.q, self.k, self.v, self.g, self.beta, CU, output_final_state=True, use_qk_l2norm=True
        )
        state, parts = None, []
        for first, last in ((5, 6), (6, 40), (40, 75)):
            rows = slice(first, last)
            part, state = fovea.gated_delta_rule(
                self.q[rows], self.k[rows], self.v[rows], self.g[rows], self.beta[rows], np.int32([0, last - first]),
                initial_state=state, output_final_state=True, use_qk_l2norm=True,
            )
            parts.append(part)
        np.testing.assert_array_equal(np.concatenate(parts), wanted[5:75])
        np.testing.assert_array_equal(state[0], after[2])

    def test_lightning_attention(self):
        q, k, v, decay = normal(76, 4, 24), normal(76, 4, 24), normal(76, 4, 32), -np.float32([0.9, 0.2, 0.004, np.inf])
        for dtype, tolerance in (("float32", 1e-4), ("float16", 1e-2)):
            q, k, v = (x.astype(dtype) for x in (q, k, v))
            wanted, states = recurrence(q, k, v, np.tile(decay, (76, 1)), None, CU, 1.0, self.state, False)
            out, after = fovea.lightning_attention(q, k, v, decay, CU, initial_state=self.state, output_final_state=True)
            self.assertEqual(out.dtype, dtype)
            close(self, out, wanted, tolerance)
            close(self, after, states, 1e-4)

    def test_strided(self):
        q, k, v = (np.ascontiguousarray(x.transpose(1, 0, 2)).transpose(1, 0, 2) for x in (self.q, self.k, self.v))
        out, none = fovea.gated_delta_rule(q, k, v, self.g, self.beta, CU)
        self.assertIsNone(none)
        np.testing.assert_array_equal(out, fovea.gated_delta_rule(self.q, self.k, self.v, self.g, self.beta, CU)[0])

    def test_refusals(self):
        q, k, v, g, beta = self.q, self.k, self.v, self.g, self.beta
        for call, words in (
            (lambda: fovea.gated_delta_rule(q[:70], k, v, g, beta, CU), "k has shape"),
            (lambda: fovea.gated_delta_rule(q, k, v[:, :3], g[:, :3], beta[:, :3], CU), "multiple of k_heads"),
            (lambda: fovea.gated_delta_rule(q, k, v, g.astype("float64"), beta, CU), "g has dtype"),
            (lambda: fovea.gated_delta_rule(q, k, v, g, beta, CU[:3]), "ends with 5"),
            (lambda: fovea.gated_delta_rule(q, k, v, g, beta, CU, form="fast"), "chunked"),
            (lambda: fovea.gated_delta_rule(q, k, v, g, beta, CU, scale=0.0), "scale"),
            (lambda: fovea.gated_delta_rule(q, k, v, g, beta, CU, initial_state=self.state[:3]), "3 slots"),
            (lambda: fovea.lightning_attention(q, k, v, np.zeros(4, "float32"), CU), "as many of each"),
            (lambda: fovea.hstu_attention(q, k, k, CU, 60), "max_seq_len is 60"),
            (lambda: fovea.hstu_attention(q, k, k, CU, 80, causal=False), "causal"),
            (lambda: fovea.hstu_attention(q, k, k, CU, 80, num_targets=np.int32([9, 0, 0, 0])), r"num_targets\[0\]"),
            (lambda: fovea.hstu_attention(q, k, k, CU, 80, timestamps=np.zeros(76, "int64")), "time_bias"),
            (lambda: fovea.hstu_attention(q, k, k, CU, 80, position_bias=np.zeros(80, "float32")), "159"),
        ):
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                call()


class Hstu(unittest.TestCase):
    def test_definition(self):
        q, k, v = normal(76, 2, 24), normal(76, 2, 24), normal(76, 2, 32)
        none = np.int32([0, 0, 0, 0])
        for options, targets, contextual, window in (
            ({}, none, 0, 0), ({"num_targets": np.int32([2, 0, 30, 1])}, [2, 0, 30, 1], 0, 0),
            ({"num_targets": np.int64([0, 0, 3, 0]), "contextual_seq_len": 4, "max_attn_len": 9}, [0, 0, 3, 0], 4, 9),
        ):
            with self.subTest(**options):
                if contextual:  # sequences shorter than their contextual tokens have no more than those
                    cu = np.int32([0, 6, 6, 70, 76])
                else:
                    cu = CU
                out = fovea.hstu_attention(q, k, v, cu, 90, out=np.full_like(v, np.nan), **options)
                close(self, out, hstu(q, k, v, cu, cu, 90, targets, contextual, window, lambda *_: 0.0), 1e-4)

    def test_biases_and_last_queries(self):
        q, k, v = normal(76, 2, 24), normal(76, 2, 24), normal(76, 2, 32)
        position, time = normal(179), normal(17)
        bounds = np.array(fovea.hstu_time_bounds(16), "int64")
        times = np.cumsum(RNG.integers(0, 3000, 76)).astype("int64")

        def rab(first, n, i):
            j = np.arange(n)
            away = np.abs(times[first + min(i + 1, n - 1)] - times[first + j])
            bucket = np.minimum((np.log(np.maximum(away, 1)) / 0.301).astype(int), 16)
            return position[89 + j - i].astype(np.float64) + time[bucket]

        options = {"position_bias": position, "time_bias": time, "time_bounds": bounds, "timestamps": times}
        whole = fovea.hstu_attention(q, k, v, CU, 90, **options)
        close(self, whole, hstu(q, k, v, CU, CU, 90, [0] * 4, 0, 0, rab), 1e-4)
        cu_q, rows = np.int32([0, 2, 2, 9, 10]), [3, 4] + list(range(68, 75)) + [75]
        part = fovea.hstu_attention(q[rows], k, v, CU, 90, q_offsets=cu_q, **options)
        np.testing.assert_array_equal(part, whole[rows])


class OnTheGpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            import torch
        except ImportError:
            raise unittest.SkipTest("torch is not installed") from None
        if not (torch.cuda.is_available() and fovea.has_cuda()):
            raise unittest.SkipTest("no GPU")
        cls.torch = torch

    def test_as_on_the_cpu(self):
        torch = self.torch
        torch.manual_seed(3)
        cu = torch.tensor([0, 5, 5, 200, 201])
        q, k, v = (torch.randn(201, h, 128).bfloat16() for h in (2, 2, 4))
        g, beta = -torch.rand(201, 4), torch.rand(201, 4)
        for form in ("chunked", "recurrent"):
            options = {"use_qk_l2norm": True, "output_final_state": True, "form": form}
            wanted, states = fovea.gated_delta_rule(q, k, v, g, beta, cu, **options)
            out, after = fovea.gated_delta_rule(*(x.cuda() for x in (q, k, v, g, beta, cu)), **options)
            close(self, out.float().cpu().numpy(), wanted.double().numpy(), 0.1)
            close(self, after.cpu().numpy(), states.double().numpy(), 0.1)
        wanted = fovea.hstu_attention(v, v, v, cu, 256)
        close(self, fovea.hstu_attention(v.cuda(), v.cuda(), v.cuda(), cu.cuda(), 256).float().cpu().numpy(), wanted.double().numpy(), 0.1)


if __name__ == "__main__":
    unittest.main()
