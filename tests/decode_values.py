"""Values of paged_decode's cases: those of ``tests.paged_values``, and more around tiles and spans."""

from __future__ import annotations

import numpy as np

from tests import paged_values
from tests.paged_values import Special, dots, one_key


def faded_infinities(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """Tiles fade against the last ones: infinite V under w = 2^-101 stays infinite, under w = +0 it gives NaN."""
    dots(q, k, np.float32([0, 930, 1000])[np.minimum(t // 128, 2)])
    v[t == 5, :, 0] = np.inf
    v[t == 130, :, 1] = np.inf
    v[t == 600, :, 2] = -np.inf


def fading_tiles(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """Maxima of neighbouring tiles lie 124 to 128 binary powers apart, up and down: w is at, above and below its least."""
    step = np.float32([0, -86, -172.5, -87, 0, -88, -175, -1, -90])  # natural logits: 126 binary powers are 87.3
    dots(q, k, step[t // 128 % 9])


def uneven_tiles(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """Maxima rise and fall from tile to tile and rise in all, so that every step of a walk has weights of its own."""
    tile = t // 128
    dots(q, k, (tile * 7 % 23 * 1.5 + tile * 0.5 - t % 5).astype(np.float32))


def minus_zero_sums(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """In every tile one token weighs 1 and has V of -0; the others' products are negative and underflow: a is -0 or the least number."""
    dots(q, k, np.where(t % 128 == 0, 0, -85).astype(np.float32))
    v[...] = -np.ldexp(1.0, -30)
    v[t % 128 == 0] = -0.0


def minus_zeros(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """A tile's first products are negative and underflow to -0; V of -0 follows: a stays -0, which it would not where a zero is +0."""
    dots(q, k, np.where(t % 128 == 9, 0, -85).astype(np.float32))
    v[...] = -0.0
    v[t % 128 < 3] = -np.ldexp(1.0, -30)
    k[t % 2 == 0, :, 1] = -0.0


def not_finite(q: np.ndarray, k: np.ndarray, v: np.ndarray, t: np.ndarray, length: np.ndarray) -> None:
    """Infinities and NaN of K and V, each at a place of its own: neighbours that are converted together keep their values."""
    for number, value in enumerate((np.inf, np.nan, -np.inf)):
        k[t == 128 * number + 37 * number + 5, :, 3 + 5 * number] = value
        v[t == 128 * number + 31 * number + 7, :, 2 + 3 * number] = value


SPECIAL: dict[str, Special] = {
    **paged_values.SPECIAL,
    "minus-inf-first-tile": one_key(lambda t: t < 128, -np.inf),
    "minus-inf-second-tile": one_key(lambda t: t // 128 == 1, -np.inf),
    "minus-inf-last-tile": one_key(lambda t: t >= 640, -np.inf),
    "nan-in-second-span": one_key(lambda t: t == 600, np.nan),
    "infinite-v-in-faded-tiles": faded_infinities,
    "fading-tiles": fading_tiles,
    "uneven-tiles": uneven_tiles,
    "minus-zero-sums": minus_zero_sums,
    "minus-zeros": minus_zeros,
    "not-finite": not_finite,
}
