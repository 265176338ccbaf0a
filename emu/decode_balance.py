"""Balanced parts of paged_decode, for lengths not known before the launch: the rules and names of ``kernels_cu/decode_balance.cuh``."""

from __future__ import annotations

import functools
from types import SimpleNamespace

from numba import cuda

from emu.decode_shape import TILE, Shape, index
from emu.simt import device

CLASSES = 5  # of parts, by length


@device
def class_of(units, most):  # noqa: ANN001, ANN201
    """Rows in parts come before whole ones, and those by their length in four classes."""
    if units > most:
        return 0
    return 1 if 2 * units > most else 2 if 4 * units > most else 3 if 8 * units > most else 4


@functools.cache
def functions(shape: Shape) -> SimpleNamespace:
    """The device functions of one specialisation."""
    UNIT_TOKENS = shape.tiles * TILE

    @device
    def first_unit(p, length):  # noqa: ANN001, ANN202
        """The first unit of a row that has tokens which take part (C12)."""
        return (length - p.window) // UNIT_TOKENS if p.window != 0 and p.window < length else index(0)

    @device
    def units_of_row(p, length):  # noqa: ANN001, ANN202
        """Units of a row; a row of none is work too: somebody writes it out."""
        return (length - 1) // UNIT_TOKENS - first_unit(p, length) + 1 if length > 0 else index(1)

    @device
    def find_part(p, s, rows):  # noqa: ANN001, ANN202
        """What this block takes, in ``s.part``: sequence, row of its ``rows``, first unit and end."""
        if cuda.threadIdx.x == 0:
            s.part[0] = p.seq_lens.shape[0]  # nothing
            total = index(0)
            for n in range(p.seq_lens.shape[0]):
                total += units_of_row(p, index(p.seq_lens[n]))
            most = (total * rows - p.split - 1) // -p.split  # units of a part: at most what a fair share of them all would be
            at = index(cuda.blockIdx.x) // rows  # the part's number among those of a row of every sequence
            for c in range(CLASSES):
                for n in range(p.seq_lens.shape[0]):
                    length = index(p.seq_lens[n])
                    units = units_of_row(p, length)
                    if class_of(units, most) == c:
                        parts = (units + most - 1) // most
                        if 0 <= at < parts:
                            each = (units + parts - 1) // parts
                            first = first_unit(p, length) + at * each
                            s.part[0], s.part[1], s.part[2], s.part[3] = n, cuda.blockIdx.x % rows, first, first + each
                        at -= parts
        cuda.syncthreads()

    return SimpleNamespace(find_part=find_part)
