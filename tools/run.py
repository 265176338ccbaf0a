"""``samebits run FILE.cu [options] [-- arguments]``: compiles a whole CUDA program for the CPU and runs it as it would run on a GPU.

With ``--check`` every access of the program is watched; what is found is printed, and written as JSON on request. The exit code is the
program's; where that is 0 and something was reported, it is 1. A source that cannot be built gives 2.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from emu.host import build as host
from emu.host.checks import describe
from kernels_cu.build import cached
from tools import limits, orders


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What stands before FILE; the same options are understood behind it, up to ``--``."""
    _options(parser)
    parser.add_argument("file", type=Path, metavar="FILE.cu")
    behind = "options as above; what is none, and all behind --, is the program's"
    parser.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help=behind)


def positive(text: str) -> float:
    """A number above 0, as an argument."""
    if not (value := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="watch every access: bounds, initialisation, races, alignment, overflow")
    parser.add_argument("--leaks", action="store_true", help="with --check: report memory that was not freed")
    parser.add_argument("--order", "--orders", default=None, metavar="O", help="forward, reverse, shuffle:SEED, or N: the first N seeds")
    parser.add_argument("--arch", default=None, help="whose limits and properties the device has: sm_75 ... sm_120 (sm_90)")
    parser.add_argument("--json", type=Path, default=None, metavar="F", help="write the reports to F")
    parser.add_argument("--trace", type=Path, default=None, metavar="F", help="sectors and bank conflicts of each line, as JSON")
    parser.add_argument("--timeout", type=positive, default=None, metavar="S", help="wall time, in seconds (600)")
    parser.add_argument("--memory", type=positive, default=None, metavar="MIB", help="most memory that it may use (7/8 of the machine's)")
    parser.add_argument("--output", type=positive, default=None, metavar="MIB", help="most that it may print")
    parser.add_argument("--gdb", action="store_true", help="run the program in gdb, not optimised; threadIdx and the like are known")
    parser.add_argument("-I", action="append", default=[], type=Path, dest="include", metavar="DIR")
    parser.add_argument("-D", action="append", default=[], dest="define", metavar="NAME[=VALUE]")


@dataclass(frozen=True)
class Outcome:
    """One run: the program's exit code (124: a limit), what was reported, the first failed call's text, and its output if kept;
    in shuffled order how often another thread than the usual one was taken, and which at the window's end; what is not bit-accurate."""

    code: int
    reports: list[dict[str, object]]
    failure: str
    output: bytes = b""
    decisions: int = 0
    last: str = ""
    notes: Sequence[str] = ()

    @property
    def exit(self) -> int:
        """What the command returns."""
        if self.code:
            return self.code if self.code > 0 else 128 - self.code
        return int(bool(self.reports))


def program(
    source: Path, *, check: bool, include: Sequence[Path] = (), define: Sequence[str] = (), arch: str = "sm_90", debug: bool = False
) -> Path:
    """The executable of a source, from the cache if it is there; with `debug` for a debugger, which sees every variable.

    Raises BuildError, TranslationError; ValueError where no file is.
    """
    if not source.is_file():
        raise ValueError(f"no file {source}")
    defines = {text.partition("=")[0]: text.partition("=")[2] or "1" for text in define}
    compiler = host.need_compiler(None)
    options = {"defines": defines, "include_dirs": include, "arch": arch, "check": check, "compiler": compiler}
    text = host.to_cpp(source.resolve(), **options)

    extra = ["-g", "-O0"] if debug else ["-g1"]

    def make(out: Path) -> None:
        host.build_text(text, out=out, compiler=compiler, extra=extra, check=check, program=True)

    return cached([host.fingerprint(compiler), "check" if check else "plain", *extra, text], source.stem, make)


def debugger(binary: Path, arguments: Sequence[str] = (), commands: Sequence[str] = ()) -> list[str]:
    """A command line of gdb for an executable that program(debug=True) made: it knows threadIdx, blockIdx, blockDim and gridDim."""
    base = "((unsigned long)$sp & ~0x3ffffUL)"  # as thread_of() in include/samebits/thread.h: gdb's calls of functions disturb the fibers
    thread = f"(*(samebits::Thread*)({base} + 0x3f000 + (({base} >> 12) & 0xFC0)))"
    fields = {"threadIdx": "index", "blockIdx": "block->block_idx", "blockDim": "block->block_dim", "gridDim": "block->grid_dim"}
    macros = [f"macro define {name} ({thread}.{field})" for name, field in fields.items()]
    alone = [f"set environment SAMEBITS_{name} 1" for name in ("WORKERS", "NO_CLOCK")]  # one core, and nothing interrupts a step
    quiet = ["set debuginfod enabled off", *alone, "handle SIGALRM nostop noprint", *macros, *commands]
    return ["gdb", "-q", *(part for command in quiet for part in ("-ex", command)), "--args", str(binary), *arguments]


def execute(
    binary: Path,
    arguments: Sequence[str] = (),
    *,
    check: bool = False,
    order: str = "forward",
    arch: str = "sm_90",
    seconds: float = 600,
    leaks: bool = False,
    capture: bool = False,
    trace: Path | None = None,
    memory: int | None = None,
    output: int | None = None,
) -> Outcome:
    """Runs an executable that program() made, within `seconds` and bytes of `memory` and `output`."""
    with tempfile.TemporaryDirectory(prefix="samebits-run-") as folder:
        found = Path(folder) / "reports"
        environment = os.environ | {"SAMEBITS_RUN_REPORTS": str(found), "SAMEBITS_RUN_ORDER": order, "SAMEBITS_RUN_ARCH": arch}
        environment |= {"SAMEBITS_RUN_SECONDS": str(seconds)}
        environment |= {f"SAMEBITS_RUN_{name}": "1" for name, on in (("CHECK", check), ("LEAKS", leaks)) if on}
        environment |= {"SAMEBITS_RUN_TRACE": str(trace.resolve())} if trace else {}
        sys.stdout.flush()
        # It has caught the signal of its own clock if that time is not enough.
        done = limits.run([str(binary), *arguments], environment, limits.Limits(seconds + 10, memory, output), keep=capture)
        said = json.loads(found.read_text()) if found.exists() else {"reports": [], "failure": ""}
    if done.limit:
        return Outcome(124, [], done.limit, done.output)
    return Outcome(done.code, output=done.output, **said)


def print_trace(lines: list[dict[str, object]]) -> None:
    """A table of what ``--trace`` wrote, on the standard error output."""
    heads = ("line", "space", "access", "requests", "bytes", "sectors/request", "efficiency", "conflicts", "arrays")
    table = [heads]
    for row in lines:
        moved = (f"{row['sectors_per_request']:.1f}", f"{100 * float(str(row['efficiency'])):.0f} %", "") if "sectors" in row else None
        place = f"{Path(str(row['file'])).name}:{row['line']}"
        counts = (str(row["requests"]), str(row["bytes"]), *(moved or ("", "", str(row["conflicts"]))))
        table.append((place, str(row["space"]), str(row["access"]), *counts, ", ".join(row["arrays"])))  # type: ignore[arg-type]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip(), file=sys.stderr)


class _Compared:
    """Runs of a program in orders, one of which fails too if its output differs from that in forward order, again and again."""

    def __init__(self, one: Callable[..., Outcome]) -> None:
        self.one = one
        self.usual = [outcome.output for outcome in (one(order="forward"), one(order="forward")) if not outcome.exit]

    def __call__(self, order: str) -> Outcome:
        outcome = self.one(order=order)
        if outcome.exit or len(self.usual) < 2 or not orders.differing(self.usual, [outcome.output]):
            return outcome
        difference = orders.differing(self.usual, [outcome.output, self.one(order=order).output])
        if not difference:
            return outcome
        report = {"kind": "order", "kernel": "", "block": None, "thread": None, "file": "", "line": 0, "other": None}
        return replace(outcome, reports=[report | {"message": f"{difference}, unlike in forward order"}])


def _try(tried: Sequence[str], one: Callable[[str], Outcome]) -> Outcome:
    """Runs orders until one fails, which is then made small. Prints the last one's output."""
    for order in tried:
        outcome = one(order)
        if outcome.exit:
            break
    sys.stdout.flush()
    sys.stdout.buffer.write(outcome.output)
    sys.stdout.flush()
    if outcome.exit:
        print(f"{order} fails; {orders.shrink(order, one)}", file=sys.stderr)
    else:
        print(f"{len(tried)} orders: all end well", file=sys.stderr)
    return outcome


def run(args: argparse.Namespace) -> int:
    """The command."""
    rest = args.rest
    own, arguments = (rest[: rest.index("--")], rest[rest.index("--") + 1 :]) if "--" in rest else (rest, [])
    again = argparse.ArgumentParser(prog="samebits run", add_help=False, allow_abbrev=False)
    _options(again)
    again.set_defaults(**{name: value for name, value in vars(args).items() if name not in ("file", "rest", "command")})
    args, unknown = again.parse_known_args(own, argparse.Namespace(file=args.file))
    arguments = [*unknown, *arguments]
    arch, check = args.arch or "sm_90", args.check or args.trace is not None
    tried = orders.parse(args.order or "forward")
    for path in (args.json, args.trace):
        if path is not None and not path.parent.is_dir():
            raise ValueError(f"no folder {path.parent}")
    if args.trace:
        args.trace.unlink(missing_ok=True)
    if args.leaks and not args.check:
        raise ValueError("--leaks is for --check alone")
    try:
        binary = program(args.file, check=check, include=args.include, define=args.define, arch=arch, debug=args.gdb)
    except (host.BuildError, host.TranslationError) as error:
        print(error, file=sys.stderr)
        return 2
    if args.gdb:
        if shutil.which("gdb") is None:
            raise ValueError("--gdb: there is no gdb on this machine")
        return subprocess.run(debugger(binary, arguments)).returncode
    options = {"check": check, "arch": arch, "seconds": args.timeout or 600, "leaks": args.leaks, "trace": args.trace}
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 7 // 8
    options["memory"] = int(args.memory * 2**20) if args.memory else most
    options["output"] = int(args.output * 2**20) if args.output else None
    one = functools.partial(execute, binary, arguments, **options)
    outcome = one(order=tried[0]) if len(tried) == 1 else _try(tried, _Compared(functools.partial(one, capture=True)))
    if args.trace and args.trace.exists():
        print_trace(json.loads(args.trace.read_text()))
        outcome = outcome if args.check else replace(outcome, reports=[])
    for report in outcome.reports:
        print(describe(report), file=sys.stderr)
    if outcome.failure and not outcome.reports:
        print(f"samebits: {outcome.failure}", file=sys.stderr)
    for note in outcome.notes:
        print(f"samebits: {note}", file=sys.stderr)
    if args.check:
        print(f"samebits: {len(outcome.reports)} reports", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps(outcome.reports, indent=1) + "\n")
    return outcome.exit
