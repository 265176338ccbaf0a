"""What paged_decode's declaration needs: tiles and spans, the share of a block, the caches' layouts, and the checks of a call."""

from __future__ import annotations

import numpy as np

from pyref import cache_types, checks, paged_checks
from pyref.spec import Array, Call

TILE = 128  # tokens, C13
SPAN = 4  # tiles, C13
PAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # tokens of a page
MAX_D = 256
SEARCHED = 4096  # sequences: as balanced parts every block goes through their lengths
MAX_SEQ_LEN = 2**31 - TILE * SPAN  # the kernel counts the tokens of a row in 32 bits


def tiles(tokens: int) -> int:
    """Tiles that ``tokens`` tokens lie in."""
    return -(-tokens // TILE)


def spans(tokens: int) -> int:
    """Spans that ``tokens`` tokens lie in."""
    return -(-tokens // (TILE * SPAN))


def choose_split(sequences: int, kv_heads: int, max_seq_len: int, group: int, multiprocessors: int = 132) -> int:
    """How the kernel shares out the work: 0 for a tile a block; k for k spans; -k where no block takes more spans than k blocks with equal
    shares would (they are counted on the device). It changes speed and never a byte (C13). ``group``: query heads of a kv head.

    Few sequences want many small blocks: a tile each, while every tile can have a multiprocessor. But a row that one block takes whole
    needs no second kernel. For rows of one span that pays as soon as blocks of a tile and four heads would be more than multiprocessors;
    for two tiles, blocks of two heads, or where there are no more heads than that. For rows of two spans, where spans would be more, and
    rows would not. Where all blocks fit the device at once, four a multiprocessor, they take one or two spans. With more to do, rows of
    up to eight spans are not divided. Longer ones may be of any length: parts are balanced, unless so many sequences fill the device for
    long anyway that a block would search their lengths as long as it computes.
    """
    rows, pieces, longest, resident = sequences * kv_heads, tiles(max_seq_len), max(1, spans(max_seq_len)), 4 * multiprocessors
    if rows * pieces <= multiprocessors:
        alone = rows * pieces * -(-group // (2 if pieces == 2 else 4)) <= multiprocessors and (pieces > 2 or group > 2)
        return 0 if pieces == 1 or longest > 1 or alone else 1
    if longest == 2 and rows <= multiprocessors < 2 * rows:
        return 2
    for split in (1, 2):
        if rows * -(-longest // split) <= resident:
            return split
    return longest if longest <= 8 or sequences > SEARCHED else -resident


def default_split(call: Call) -> int:
    """What a call without a split takes."""
    n, h, g = (call.axes[axis] for axis in ("n", "h", "g"))
    return choose_split(n, g, call["max_seq_len"], h // max(g, 1))


def shares(call: Call) -> int:
    """Blocks along y: those that a row of ``max_seq_len`` tokens is divided among, by tiles or spans."""
    split, longest = call["split"], call["max_seq_len"]
    return max(1, tiles(longest) if split == 0 else -(-spans(longest) // split) if split > 0 else 1)


def states(call: Call) -> int:
    """States that are stored for a row: none where one block is sure to take all its spans."""
    split, longest = call["split"], call["max_seq_len"]
    return tiles(longest) if split == 0 else spans(longest) if spans(longest) > max(split, 1) else 0


def first_token(call: Call, length: int) -> int:
    """The first token of a sequence that takes part: a window of w admits t >= length - w (C12)."""
    return max(0, length - call["window"]) if call["window"] else 0


def token_major(call: Call) -> bool:
    """Whether V lies in memory with a token's head dimensions side by side, as in [pages, page, g, d]; else a dimension's tokens are."""
    v = call["v_cache"]
    return v.strides[3] != v.itemsize and v.strides[2] == v.itemsize


def whole_pages(call: Call) -> bool:
    """Whether a page's K of a kv head lies in one piece as [d/x, page, x], and its V as [d, page]: a copy engine can bring them."""
    k, v, page = call["k_cache"], call["v_cache"], call.axes["page"]
    return k.strides[2:4] == (page * 16, 16) and v.strides[2:4] == (page * v.itemsize, v.itemsize)


def cache_views(layout: str, k_cache: Array, v_cache: Array) -> dict[str, Array]:
    """The arguments k_cache and v_cache over caches in another layout, by argument name; nothing is copied.

    ``layout``: "NHD" for K and V [pages, page, g, d], "HND" for K and V [pages, g, page, d], with d dense. (K [pages, g, d/x, page, x] and
    V [pages, g, d, page] are the arguments themselves.) Raises ValueError for an unknown layout or arrays that do not fit it.
    """
    if layout not in ("NHD", "HND"):
        raise ValueError(f"paged_decode: layout: got {layout!r}, expected 'NHD' or 'HND'")
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if cache.ndim != 4 or cache.shape != k_cache.shape:
            raise ValueError(f"paged_decode: {name}: got {cache.shape}, expected four axes as of k_cache {k_cache.shape}")
        if cache.shape[3] > 1 and cache.strides[3] != cache.itemsize:
            raise ValueError(f"paged_decode: {name}: axis d: got a stride of {cache.strides[3]} bytes, expected {cache.itemsize} (dense)")
    x, d = 16 // k_cache.itemsize, k_cache.shape[3]
    if d % x:
        raise ValueError(f"paged_decode: k_cache: axis d: got {d}, expected a multiple of {x} (16 bytes)")
    k, v = (cache.swapaxes(1, 2) if layout == "NHD" else cache for cache in (k_cache, v_cache))  # [pages, g, page, d]
    return {"k_cache": k.reshape(*k.shape[:3], d // x, x).transpose(0, 1, 3, 2, 4), "v_cache": v.swapaxes(2, 3)}


# -- checks: shapes, strides and limits --


def _check_heads(call: Call) -> None:
    h, g, d = call.axes["h"], call.axes["g"], call.axes["d"]
    if d % 8 or not 8 <= d <= MAX_D:
        raise call.error(ValueError, "q", f"axis d: got {d}, expected a multiple of 8 from 8 to {MAX_D}")
    if g < 1 or h < 1 or h % g:
        raise call.error(ValueError, "q", f"axis h: got {h}, expected a multiple of g = {g} (from k_cache), and both at least 1")


def _check_page(call: Call) -> None:
    page = call.axes["page"]
    if page not in PAGES:
        raise call.error(ValueError, "k_cache", f"axis page: got {page}, expected a power of two from 1 to {PAGES[-1]}")


def _check_v_memory(call: Call) -> None:
    v, page = call["v_cache"], call.axes["page"]
    dense, axis = (2, "d") if call.axes["rows"] else (3, "page")
    if v.shape[dense] > 1 and v.strides[dense] != v.itemsize:
        text = f"got strides of {v.strides[3]} bytes for axis page and {v.strides[2]} for axis d, expected {v.itemsize} for one of them"
        raise call.error(ValueError, "v_cache", text)
    unit = 16 if call.axes["rows"] else min(16, page * v.itemsize)  # bytes of the kernel's vectors
    if v.ctypes.data % unit:
        text = f"got an address {v.ctypes.data % unit} bytes past a multiple of {unit}, expected a multiple of it ({axis} is dense)"
        raise call.error(ValueError, "v_cache", text)
    for position, name in enumerate(("pages", "g", "d", "page")):
        if position != dense and v.shape[position] > 1 and v.strides[position] % unit:
            text = f"axis {name}: got a stride of {v.strides[position]} bytes, expected a multiple of {unit} ({axis} is dense)"
            raise call.error(ValueError, "v_cache", text)


def _check_strides(call: Call) -> None:
    """The kernel multiplies strides in bytes as numbers of 32 bits without a sign, to 64."""
    for name, axes in (("k_cache", "pages g d/x page x"), ("v_cache", "pages g d page")):
        for axis, size, stride in zip(axes.split(), call[name].shape, call[name].strides, strict=True):
            if size > 1 and axis != "g" and not 0 <= stride < 2**32:
                raise call.error(ValueError, name, f"axis {axis}: got a stride of {stride} bytes, expected 0 to {2**32 - 1}")


def _check_numbers(call: Call) -> None:
    if call["max_seq_len"] > MAX_SEQ_LEN:
        raise call.error(ValueError, "max_seq_len", f"got {call['max_seq_len']}, expected at most {MAX_SEQ_LEN}")
    if not -checks.GRID_Y <= call["split"] <= checks.GRID_X:
        meaning = f"0 (a tile a block), up to {checks.GRID_X} (spans a block) or down to -{checks.GRID_Y} (balanced parts)"
        raise call.error(ValueError, "split", f"got {call['split']}, expected {meaning}")
    if not 0 <= call["warps"] <= 2:
        raise call.error(ValueError, "warps", f"got {call['warps']}, expected 1 or 2 warps a tile, or 0 (as the device has room)")


def _check_grid(call: Call) -> None:
    if shares(call) > checks.GRID_Y:
        row = f"{shares(call)} blocks would share a row of {call['max_seq_len']} tokens, at most {checks.GRID_Y} can"
        raise call.error(ValueError, "split", f"got {call['split']}, expected more: {row}")
    rows, blocks = call.axes["n"] * call.axes["h"], -call["split"]
    if blocks > 0 and (rows + blocks > checks.GRID_X or rows * spans(call["max_seq_len"]) > checks.GRID_X * blocks):
        text = f"{rows} rows of up to {call['max_seq_len']} tokens are more than balanced parts are counted for"
        raise call.error(ValueError, "split", f"got {call['split']}, expected 0 or more: {text}")
    if call.axes["h"] > checks.GRID_Y:
        raise call.error(ValueError, "q", f"axis h: got {call.axes['h']}, expected at most {checks.GRID_Y}")


def _check_workspace(call: Call) -> None:
    got, needed = call.axes["states"], states(call)
    if got < needed:
        given = next(name for name in ("part_a", "part_l", "part_m") if call[name] is not None)
        text = f"axis states: got {got}, expected at least {needed} (max_seq_len {call['max_seq_len']}, split {call['split']})"
        raise call.error(ValueError, given, text)


def _check_memory(call: Call) -> None:
    written = [name for name, tensor in call.kernel.tensors.items() if tensor.role != "in" and call[name] is not None]
    for i, name in enumerate(written):
        checks.separate(call, name, [other for other in call.kernel.tensors if other not in written[: i + 1]])


CHECKS = (
    cache_types.check("q"),
    _check_heads,
    _check_page,
    _check_v_memory,
    _check_strides,
    paged_checks.max_seq_len,
    _check_numbers,
    paged_checks.window_and_cap,
    _check_grid,
    _check_workspace,
    _check_memory,
)


# -- checks that read arrays (checked=True) --


def _check_page_ids(call: Call) -> None:
    lengths, page = call["seq_lens"].astype(np.int64)[:, None], call.axes["page"]
    begins = np.maximum(lengths - call["window"], 0) if call["window"] else 0
    number = np.arange(call.axes["max_pages"])
    paged_checks.page_ids(call, (number * page < lengths) & ((number + 1) * page > begins))


VALUES = (paged_checks.lengths, _check_page_ids)
