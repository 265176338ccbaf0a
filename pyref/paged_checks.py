"""Checks that every kernel declares which attends over a paged cache: the longest sequence, window and cap, lengths and page ids."""

from __future__ import annotations

import numpy as np

from pyref.spec import Array, Call


def max_seq_len(call: Call) -> None:
    """``max_seq_len`` fits into the rows of the table. Raises ValueError."""
    longest, pages, page = call["max_seq_len"], call.axes["max_pages"], call.axes["page"]
    if not 0 <= longest <= pages * page:
        text = f"got {longest}, expected 0 to {pages * page}: max_pages {pages} (from block_tables) times page {page} (from k_cache)"
        raise call.error(ValueError, "max_seq_len", text)


def window_and_cap(call: Call) -> None:
    """``window`` and ``cap`` are 0 or positive, and ``cap`` finite. Raises ValueError."""
    if call["window"] < 0:
        raise call.error(ValueError, "window", f"got {call['window']}, expected 0 (none) or more")
    if not 0 <= call["cap"] < np.inf:
        raise call.error(ValueError, "cap", f"got {call['cap']}, expected 0 (none) or a positive finite number")


def lengths(call: Call) -> None:
    """No sequence is longer than ``max_seq_len``. Reads ``seq_lens``; raises ValueError."""
    found, longest = call["seq_lens"], call["max_seq_len"]
    wrong = np.flatnonzero((found < 0) | (found > longest))
    if wrong.size:
        raise call.error(ValueError, "seq_lens", f"[{wrong[0]}]: got {found[wrong[0]]}, expected 0 to {longest} (max_seq_len)")


def page_ids(call: Call, used: Array) -> None:
    """The table's entries ``used`` [n, max_pages] name pages of the cache. Reads ``block_tables``; raises ValueError."""
    tables, pages = call["block_tables"], call.axes["pages"]
    wrong = np.argwhere(used & ((tables < 0) | (tables >= pages)))
    if wrong.size:
        n, i = wrong[0]
        raise call.error(ValueError, "block_tables", f"[{n}, {i}]: got {tables[n, i]}, expected 0 to {pages - 1} (pages from k_cache)")
