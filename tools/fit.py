"""Fits the polynomials of C4 and prints their coefficients as hex floats.

Method: minimax fit on a dense grid whose values come from mpmath, of the weighted error of ``h(x) - sum c_k x^k``; the weight makes it an
error relative to the function that is returned. Lawson's iteration rather than Remez's exchange: the weights vanish at 0, and once a
coefficient is rounded the error no longer alternates. Coefficients become binary32 one at a time, lowest power first; after each rounding
the others are fitted again, so that they absorb what it changed.

Nothing at run time depends on this file; a test fits again and compares with the tables of ``pyref/contract_math.py``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import mpmath as mp
import numpy as np

DIGITS = 50
GRID = 800
LAWSON_STEPS = 200


@dataclass(frozen=True)
class Fit:
    """One polynomial: ``target(x)`` on [low, high], its error times ``weight(x)``, ``terms`` coefficients in powers of ``variable(x)``."""

    low: str
    high: str
    target: Callable[[mp.mpf], mp.mpf]
    weight: Callable[[mp.mpf], mp.mpf]
    terms: int
    variable: Callable[[mp.mpf], mp.mpf] = lambda x: x


FITS: dict[str, Fit] = {
    # 2^f = 1 + f * sum c_k f^k
    "EXP2": Fit("-0.5", "0.5", lambda f: mp.expm1(f * mp.ln2) / f, lambda f: f / mp.power(2, f), 6),
    # e^r = 1 + (r + r^2 * sum c_k r^k); the interval allows for the rounding of r's own reduction
    "EXP": Fit("-0.3466", "0.3466", lambda r: (mp.expm1(r) - r) / r**2, lambda r: r**2 / mp.exp(r), 5),
    # ln(1 + f) = f - f^2 / 2 + f^3 * sum c_k f^k
    "LOG": Fit("-0.2929", "0.4143", lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, lambda f: f**3 / mp.log1p(f), 9),
    # tanh x = x + x^3 * sum c_k x^(2k)
    "TANH": Fit("0", "1.0", lambda x: (mp.tanh(x) - x) / x**3, lambda x: x**3 / mp.tanh(x), 8, lambda x: x * x),
}


def _grid(fit: Fit) -> list[mp.mpf]:
    """Chebyshev points of the interval without 0, where every weight vanishes."""
    low, high = mp.mpf(fit.low), mp.mpf(fit.high)
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * i / (GRID - 1)) for i in range(GRID)]
    return [x for x in points if abs(x) > mp.mpf("1e-4")]


def minimax(basis: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Coefficients that make ``max |target - basis @ c|`` least, by Lawson's iteration: least squares whose weights grow with the error."""
    importance = np.full(len(target), 1 / len(target))
    best, best_error = np.zeros(basis.shape[1]), np.inf
    for _ in range(LAWSON_STEPS):
        root = np.sqrt(importance)
        coefficients = np.linalg.lstsq(basis * root[:, None], target * root, rcond=None)[0]
        error = np.abs(target - basis @ coefficients)
        if error.max() < best_error:
            best, best_error = coefficients, error.max()
        importance = importance * error
        importance /= importance.sum()
    return best


def fit_polynomial(fit: Fit) -> tuple[list[np.float32], float]:
    """Coefficients in binary32, lowest power first, and the greatest weighted error of the rounded polynomial (mpmath)."""
    with mp.workdps(DIGITS):
        grid = _grid(fit)
        weights = [abs(fit.weight(x)) for x in grid]
        left = [fit.target(x) * w for x, w in zip(grid, weights, strict=True)]
        powers = [[fit.variable(x) ** k * w for x, w in zip(grid, weights, strict=True)] for k in range(fit.terms)]
        columns = np.array(powers, dtype=np.float64).T
        rounded: list[np.float32] = []
        for k in range(fit.terms):
            rounded.append(np.float32(minimax(columns[:, k:], np.array(left, dtype=np.float64))[0]))
            value = mp.mpf(float(rounded[-1]))
            left = [t - value * b for t, b in zip(left, powers[k], strict=True)]
        return rounded, float(max(abs(e) for e in left))


def relative_error(fit: Fit, coefficients: list[np.float32]) -> float:
    """Greatest weighted error of given coefficients over the grid (mpmath)."""
    with mp.workdps(DIGITS):

        def error(x: mp.mpf) -> mp.mpf:
            return abs(fit.weight(x) * (fit.target(x) - mp.polyval([mp.mpf(float(c)) for c in reversed(coefficients)], fit.variable(x))))

        return float(max(error(x) for x in _grid(fit)))


def main() -> int:
    """Prints what is fitted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(FITS), help=f"polynomials to fit: {', '.join(FITS)}")
    for name in parser.parse_args().names:
        coefficients, error = fit_polynomial(FITS[name])
        print(f"{name}: greatest relative error {error:.3e} = 2^{float(mp.log(error, 2)):.2f}")
        for k, c in enumerate(coefficients):
            print(f"  c{k} = {float(c).hex()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
