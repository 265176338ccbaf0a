"""Case data: integers alone, and the same for ever (recorded digests depend on it)."""

from __future__ import annotations

import hashlib

import numpy as np

from tools.data import Stream


def test_words_are_splitmix64_of_a_counter() -> None:
    def mix(x: int) -> int:
        mask = (1 << 64) - 1
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask
        return x ^ (x >> 31)

    state = (7 * 0xD1342543DE82EF95 + 1) & ((1 << 64) - 1)
    expected = [mix((state + i * 0x9E3779B97F4A7C15) & ((1 << 64) - 1)) for i in range(1, 6)]
    stream = Stream(7)
    assert [int(word) for word in stream.words(2)] + [int(word) for word in stream.words(3)] == expected, "calls continue one stream"


def test_normals_have_mean_zero_variance_one_and_stay_as_they_are() -> None:
    values = Stream(1).normal((1 << 16,), "f32")
    assert abs(float(values.mean(dtype=np.float64))) < 0.02
    assert abs(float(values.astype(np.float64).var()) - 1) < 0.02
    assert float(np.abs(values).max()) <= 3.5
    digest = hashlib.sha256(values.tobytes()).hexdigest()
    assert digest == "97fd5302b8497f4cc230d174a0e43a5914ef0c1a3976741638b8b81a50050e2e"
    assert len(np.unique(values)) > 20_000, "a generator stuck on few values would make every comparison weaker"


def test_integers_and_permutations_cover_their_range() -> None:
    stream = Stream(3)
    assert set(stream.integers(-1, 4, 500).tolist()) == {-1, 0, 1, 2, 3}
    assert sorted(stream.permutation(100).tolist()) == list(range(100))
