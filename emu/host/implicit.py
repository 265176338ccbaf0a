"""Names that CUDA declares without an include: the headers behind them are read only where a source uses one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from emu.host.tokens import Token

# <math.h>, <stdlib.h>, <string.h>, <stdio.h> and <time.h> cost a build 100 ms. What device code needs most is declared by hand in
# include/samebits/math.h and does not stand here.
_NAMES = frozenset(
    word
    for line in (
        "abs labs llabs fabs sqrt cbrt exp exp2 exp10 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh tanh",
        "asinh acosh atanh erf erfc tgamma lgamma floor ceil trunc round rint nearbyint lround lrint llrint fmod remainder fma fmin",
        "fmax fdim hypot ldexp frexp modf copysign isnan isinf isfinite signbit cbrtf expm1f log10f log1pf tanf asinf acosf atanf",
        "atan2f sinhf coshf asinhf acoshf atanhf erff erfcf tgammaf lgammaf lroundf lrintf remainderf fdimf hypotf frexpf modff",
        "copysignf INFINITY NAN M_PI HUGE_VAL HUGE_VALF malloc calloc realloc free exit abort atoi atof strtol strtoul strtod rand",
        "srand qsort getenv RAND_MAX EXIT_SUCCESS EXIT_FAILURE memmove memcmp strcmp strncmp strlen strcpy strcat strstr fprintf",
        "sprintf snprintf puts putchar fflush fopen fclose stdout stderr stdin scanf sscanf clock time CLOCKS_PER_SEC",
        "sinpi cospi sincospi sincospif rcbrt rhypot rhypotf erfinv erfinvf erfcinv erfcinvf normcdf normcdff normcdfinv normcdfinvf erfcx",
        "erfcxf cyl_bessel_i0 cyl_bessel_i0f cyl_bessel_i1 cyl_bessel_i1f norm normf norm3d rnorm3d norm4d",
    )
    for word in line.split()
)
_ANY = re.compile(rf"\b(?:{'|'.join(sorted(_NAMES))})\b")
_NOT_TYPES = frozenset({"return", "else", "case", "throw", "do"})


def may_use(text: str, start: int, end: int) -> bool:
    """Whether one of the names stands in that part of a text, be it in a comment."""
    return _ANY.search(text, start, end) is not None


def used(tokens: Sequence[Token]) -> set[str]:
    """Names of those headers that a source uses and does not declare itself."""
    declared: set[str] = set()
    named: set[str] = set()
    for i, token in enumerate(tokens):
        if token.kind != "name" or token.text not in _NAMES:
            continue
        before = tokens[i - 1] if i else None
        if before is not None and before.text in (".", "->", "::"):
            continue
        if before is not None and before.kind == "name" and before.text not in _NOT_TYPES:
            declared.add(token.text)  # float exp(...)
        else:
            named.add(token.text)
    return named - declared
