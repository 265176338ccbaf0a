"""Values that once broke a draft of the contract, or that would show a fault of their own kind.

Each function changes q [n, h, d], k and v [tokens, g, d] (binary32) in place. ``t`` [tokens]: a token's number in its sequence;
``length`` [tokens]: that sequence's length.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Special = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]


def dots(q: np.ndarray, k: np.ndarray, values: np.ndarray) -> None:
    """Makes q . k of every token the given value [tokens], whatever the order of the sum."""
    q[...], k[...] = 0, 0
    q[..., 0] = 1
    k[..., 0] = values[:, None]


def tiers(which: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Special:
    """Logits of 200, 100 and 0 with negative V: most weights are +0 beside their own maximum, and each tier meets the others."""

    def change(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
        dots(q, k, np.float32([0, 100, 200])[which(t, length)])
        np.negative(np.abs(v), out=v)

    return change


def one_key(where: Callable[[np.ndarray], np.ndarray], value: float) -> Special:
    """One element of the keys of some tokens is not finite: their logits are not either."""

    def change(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
        q[..., 5] = 1
        k[where(t), :, 5] = value

    return change


def scaled_v(factor: float) -> Special:
    """V times a power of two."""

    def change(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
        v *= np.float32(factor)

    return change


def infinite_v(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """Infinite V under a tiny weight (infinite) and under the weight +0 (NaN: the token is still multiplied, C10)."""
    dots(q, k, np.float32([0, -80, -1000, -0.25])[t % 4])
    v[t == 1, :, 0] = np.inf
    v[t == 2, :, 1] = np.inf
    v[t == 5, :, 2] = -np.inf
    v[t == 6, :, 3] = -np.inf


def nan_v(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """One NaN in V: one head dimension of the output."""
    v[t == 2, :, 3] = np.nan


def minus_zero_v(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """V of -0: chains begin with +0, so the output is +0."""
    v[...] = -0.0


def huge(sign: int) -> Special:
    """Logits near 3e9, where neighbouring numbers are hundreds apart."""

    def change(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
        q[..., 0] = sign * 60_000
        k[..., 0] = (50_000 + 256 * (t % 7))[:, None]

    return change


def least_weights(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """Weights around the least that is not +0, times negative V so small that products underflow; only token 0 weighs 1, and its V is 0."""
    dots(q, k, np.where(t == 0, 0, -86 - (t % 32) / 16).astype(np.float32))  # s2 from -124 to -127
    v[...] = (-np.ldexp(1.0, -24 - t % 8))[:, None, None]
    v[t == 0] = 0


def below_one(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """Logits in (-1, 0]: the maximum's ceiling is +0, also where the least integer not below it would be -0."""
    dots(q, k, -np.abs(np.sin(t + 1.0)).astype(np.float32) * np.float32(0.5))


def peak_at_the_end(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """The last token's logit is far above all others: a maximum that misses it is too small, and weights are too large."""
    dots(q, k, np.where(t == length - 1, 100, 0).astype(np.float32))


def zero_k(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """Keys of -0: every logit is a zero, every weight 1."""
    k[...] = -0.0


def finite_patterns(least_infinite: int) -> Callable[[np.ndarray], None]:
    """Every finite pattern of fp8 in V, in turn over tokens and head dimensions."""

    def change(v: np.ndarray) -> None:
        magnitudes = np.arange(least_infinite, dtype=np.uint8)
        v[...] = np.resize(np.concatenate([magnitudes, magnitudes | 0x80]), v.shape)

    return change


def all_patterns(v: np.ndarray) -> None:
    """Each head dimension has one pattern of fp8, infinities and NaN among them: they stay in theirs."""
    v[...] = np.resize(np.arange(0x70, 0x80, dtype=np.uint8), v.shape[-1])


EVERY_PATTERN: dict[str, Callable[[np.ndarray], None]] = {
    "finite-e4m3": finite_patterns(0x7F),
    "finite-e5m2": finite_patterns(0x7C),
    "all": all_patterns,
}
SPECIAL: dict[str, Special] = {
    "tiers-up": tiers(lambda t, length: 3 * t // length),
    "tiers-down": tiers(lambda t, length: 2 - 3 * t // length),
    "tiers-mixed": tiers(lambda t, length: t % 3),
    "nan-logit": one_key(lambda t: t == 3, np.nan),
    "plus-inf-logit": one_key(lambda t: t == 3, np.inf),
    "minus-inf-logit": one_key(lambda t: t == 3, -np.inf),
    "minus-inf-first-partition": one_key(lambda t: t < 512, -np.inf),
    "minus-inf-second-partition": one_key(lambda t: (t >= 512) & (t < 1024), -np.inf),
    "minus-inf-row": one_key(lambda t: t >= 0, -np.inf),
    "tiny-v": scaled_v(2.0**-120),
    "subnormal-v": scaled_v(2.0**-16),
    "infinite-v": infinite_v,
    "nan-v": nan_v,
    "minus-zero-v": minus_zero_v,
    "huge": huge(1),
    "huge-negative": huge(-1),
    "least-weights": least_weights,
    "below-one": below_one,
    "peak-at-the-end": peak_at_the_end,
    "zero-k": zero_k,
}
