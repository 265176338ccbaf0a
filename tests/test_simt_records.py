"""Structured arrays under checks: bounds, first reads and races of every field, whether it holds a number, an array or a record."""

# ruff: noqa: ANN001, ANN201, ANN202  kernels carry no annotations

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda, from_dtype

from emu import simt
from tests.simt_help import fires, launch

INNER = np.dtype([("u", np.float32), ("w", np.float32, 2)])
BODY = np.dtype([("x", np.float64), ("n", np.int32), ("v", np.float32, (2, 3)), ("inner", INNER)])
RECORD = from_dtype(BODY)
N = 8


@cuda.jit
def mirror(out, given, fault):
    s = cuda.shared.array(N, RECORD)
    i = cuda.threadIdx.x
    s[i] = given[i]
    if fault == "barrier":
        cuda.syncwarp(1 << i)
    else:
        cuda.syncthreads()
    other = s[N - 1 - i]
    out[i] = other
    out[i].x += out["n"][i]
    out[i].v[1, 2] = s[i]["v"][0, 1]
    out[i]["inner"].w[1] = other.inner.u
    if fault == "negative":
        out[i].v[-1, 0] = 1
    elif fault == "end":
        out[i]["inner"].w[2] = 1
    elif fault == "field":
        out.n[i + N] = 1
    elif fault == "record":
        out[i + N].x = 1
    elif fault == "race":
        out[0].n = i
    elif fault == "records":
        out[0] = given[i]


def bodies():
    given = np.zeros(N, BODY)
    given["x"], given["n"], given["inner"]["u"] = 0.5, np.arange(N), 10 + np.arange(N)
    given["v"][:, 0, 1] = 20 + np.arange(N)
    return given


@pytest.mark.parametrize("order", ["forward", "reverse", "shuffle:3"])
@pytest.mark.parametrize("check", [False, True])
def test_records_as_a_whole_and_by_fields(order: str, check: bool) -> None:
    out = np.zeros(N, BODY)
    launch(mirror, 1, N, out, bodies(), "", check=check, order=order)
    back = np.arange(N)[::-1]
    assert out["n"].tolist() == back.tolist()
    assert out["x"].tolist() == (0.5 + back).tolist()
    assert out["v"][:, 1, 2].tolist() == (20 + np.arange(N)).tolist()
    assert out["inner"]["w"][:, 1].tolist() == (10 + back).tolist()


@pytest.mark.parametrize(
    ("fault", "kind", "texts"),
    [
        ("negative", simt.OutOfBounds, ("negative index [-1, 0] of out.v[...], shape (2, 3)",)),
        ("end", simt.OutOfBounds, ("index [2] of out.inner.w[...], shape (2,)",)),
        ("field", simt.OutOfBounds, ("] of out.n, shape (8,)",)),
        ("record", simt.OutOfBounds, ("] of out, shape (8,)",)),
        ("race", simt.DataRace, ("write of out.n[0], shape (8,)", "nothing orders them")),
        ("records", simt.DataRace, ("write of out.", "nothing orders them")),
        ("barrier", simt.DataRace, ("shared array 's'", "nothing orders them")),
    ],
)
def test_faults_in_records_name_the_field(fault: str, kind: type[simt.SimtError], texts: tuple[str, ...]) -> None:
    for order in ("forward", "reverse"):
        fires(kind, *texts, kernel=mirror, block=N, args=(np.zeros(N, BODY), bodies(), fault), order=order)


def test_a_field_that_nobody_wrote() -> None:
    @cuda.jit
    def kernel(out):
        mine = cuda.local.array(2, RECORD)
        theirs = cuda.shared.array(1, RECORD)
        mine[1].x, theirs[0].n = 1, 2
        out[0] = mine[1].x + theirs[0].n
        out[0] = mine[1].n if out[1] == 0 else theirs[0].v[1, 0]

    fires(simt.UninitialisedRead, "local array 'mine'", ".n[1]", kernel=kernel, block=1, args=(np.array([0.0, 0.0]),))
    fires(simt.UninitialisedRead, "shared array 'theirs'", ".v[...][1, 0]", kernel=kernel, block=1, args=(np.array([0.0, 1.0]),))


def test_a_field_that_does_not_exist() -> None:
    @cuda.jit
    def kernel(out):
        out[0].z = 1

    with pytest.raises(AttributeError, match="out has no field 'z', only x, n, v, inner"):
        launch(kernel, 1, 1, bodies(), check=True)


PAIRS = np.array([(1.5, 2), (3.5, 4)], [("x", np.float64), ("n", np.int16)])


@pytest.mark.parametrize("check", [False, True])
def test_constant_records_have_attributes(check: bool) -> None:
    @cuda.jit
    def kernel(out):
        pairs = cuda.const.array_like(PAIRS)
        i = cuda.threadIdx.x
        out[i] = pairs[i].x + pairs[i]["n"]

    out = np.zeros(2)
    launch(kernel, 1, 2, out, check=check)
    assert out.tolist() == [3.5, 7.5]


@pytest.mark.parametrize("check", [False, True])
def test_stores_to_integer_fields_wrap(check: bool) -> None:
    @cuda.jit
    def kernel(r):
        r[0].n = 300
        r[1]["n"] = -1
        r[2].m = 32767
        r[2].m += 1
        r[2]["n"] -= 1
        r[0].m, r[1].m = 40000, 65537

    r = np.zeros(3, [("n", np.uint8), ("m", np.int16)])
    launch(kernel, 1, 1, r, check=check)
    assert r.tolist() == [(44, 40000 - 65536), (255, 1), (255, -32768)]
