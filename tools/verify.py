"""``samebits verify``: every kernel on every leg over the named cases, compared byte for byte with the definition."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import concurrent.futures.process
import dataclasses
import functools
import json
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernels_cu import build
from tools import cases, compare, device, golden, legs
from tools.arena import Region

KNOWN = "known from the same sources"


@dataclass(frozen=True)
class Result:
    """What one leg made of one case. ``equal`` is None where the leg did not run it; ``reason`` says why not, or where it differs."""

    kernel: str
    case: str
    leg: str
    equal: bool | None
    bytes: int
    seconds: float
    reason: str | None
    entry: dict[str, Any] | None = None  # what --record writes


def reproduce(stem: str, case: cases.Case, leg: str) -> str:
    """The one line that runs this case on this leg again."""
    return f"samebits verify {stem} --leg {shlex.quote(leg)} --case {case.id}"


def run_leg(stem: str, leg: legs.Leg, arguments: Mapping[str, Any]) -> tuple[dict[str, Any] | None, str | None, float]:
    """Runs a leg over a copy of ``arguments``: (the arguments after the run or None, why the leg declined or failed, seconds)."""
    mine = cases.copies(arguments)
    call = cases.kernel(stem).bind(cases.views(mine), checked=True)
    declined = leg.declines(call)
    if declined:
        return None, declined, 0.0
    start = time.perf_counter()
    regions = {name: value for name, value in mine.items() if isinstance(value, Region)}
    leg.run(call, legs.complete(call, regions))
    return mine, None, time.perf_counter() - start


def differences(stem: str, got: Mapping[str, Any], before: Mapping[str, Any], expected: Mapping[str, Any]) -> tuple[list[str], int]:
    """Where a run's arguments are not as they must be, and how many bytes were compared. Outputs are compared with ``expected``,
    inputs and everything around the arrays with ``before``."""
    tensors = cases.kernel(stem).tensors
    found, total = [], 0
    for name, region in got.items():
        if not isinstance(region, Region):
            continue
        total += region.buffer.size
        role = tensors[name].role
        wrong = compare.surroundings_difference(name, region, before[name])
        if role == "in":
            wrong = compare.difference(f"{name}, an input, which no kernel may write", region.view, before[name].view) or wrong
        elif role != "work":
            wrong = compare.difference(name, region.view, expected[name].view) or wrong
        if wrong:
            found.append(wrong.text)
    return found, total


def run_case(stem: str, case: cases.Case, others: Sequence[legs.Leg], again: bool = False, once: bool = False) -> list[Result]:
    """Runs a case on the definition and on ``others``; the definition is compared with what was recorded.

    A case that is slow on the simulator (``once``: every case) runs there only ``again``, or where nothing is known of it from the same
    sources: what it gave then is compared.
    """
    arguments = cases.inputs(stem, case)
    try:
        expected, declined, seconds = run_leg(stem, legs.leg("ref"), arguments)
    except NotImplementedError as error:
        return [Result(stem, case.id, "ref", False, 0, 0.0, str(error))]
    assert expected is not None, declined  # the definition declines nothing
    found, total = differences(stem, expected, arguments, expected)
    inputs, outputs = cases.inputs_digest(arguments), golden.outputs(stem, expected)
    verdict = golden.judge(stem, case.id, inputs, outputs)
    found += [verdict.wrong] if verdict.wrong else []
    results = [Result(stem, case.id, "ref", not found, total, seconds, "; ".join(found) or verdict.note)]
    for leg in others:
        simulated = isinstance(leg, legs.Sim) and leg.order == "forward"
        slow = simulated and leg.slow(cases.kernel(stem).bind(cases.views(arguments)))  # type: ignore[attr-defined]
        known = golden.simulated(stem, case.id, inputs) if (slow or (once and simulated)) and not again else None
        if known is not None:
            wrong = golden.differing(known, outputs)
            entry = golden.entry(stem, inputs, known, leg.name)
            results.append(Result(stem, case.id, leg.name, False if wrong else None, 0, 0.0, wrong or KNOWN, entry))
            continue
        try:
            got, declined, seconds = run_leg(stem, leg, arguments)
        except (legs.LegError, build.BuildError, device.DeviceError, NotImplementedError) as error:
            results.append(Result(stem, case.id, leg.name, False, 0, 0.0, str(error)))
            continue
        if got is None:
            results.append(Result(stem, case.id, leg.name, None, 0, 0.0, declined))
            continue
        found, total = differences(stem, got, arguments, expected)
        entry = None
        if not found and (slow or leg.name in ("gpu", "numba-gpu")):
            entry = golden.entry(stem, inputs, golden.outputs(stem, got), leg.name)
        if not found and simulated:
            golden.keep(golden.entry(stem, inputs, golden.outputs(stem, got), leg.name))
        results.append(Result(stem, case.id, leg.name, not found, total, seconds, "; ".join(found) or None, entry))
    return results


Job = tuple[str, cases.Case]
_BATCH = 32  # cases


def batches(jobs: Sequence[Job]) -> list[list[Job]]:
    """Jobs of one specialisation together, as a process compiles a port for itself, the largest batches first."""
    found: dict[Any, list[Job]] = collections.defaultdict(list)
    for stem, case in jobs:
        found[stem, tuple(sorted(cases.kernel(stem).constants_of(case.dtypes, case.shape).items()))].append((stem, case))
    cut = [group[at : at + _BATCH] for group in found.values() for at in range(0, len(group), _BATCH)]
    return sorted(cut, key=len, reverse=True)


def _batch(batch: tuple[Sequence[Job], Sequence[str], bool]) -> list[list[Result]]:
    """``run_case`` with legs by name for every job: what a worker process is sent."""
    jobs, names, again = batch
    return [run_case(stem, case, [legs.leg(name) for name in names], again) for stem, case in jobs]


def run_cases(jobs: Sequence[Job], others: Sequence[legs.Leg], again: bool) -> Iterator[list[Result]]:
    """The results of every job: in batches over all cores, or in this process alone where the leg ``gpu`` takes part."""
    names = [leg.name for leg in others]
    if "gpu" in names:
        yield from (run_case(stem, case, others, again) for stem, case in jobs)
        return
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        try:
            for found in pool.map(_batch, [(batch, names, again) for batch in batches(jobs)]):
                yield from found
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            raise
        except concurrent.futures.process.BrokenProcessPool:
            text = "a case ended its process, as a kernel's wild write does; --leg host-check alone names kernel, thread and line"
            raise OSError(f"legs {', '.join(names)}: {text}") from None


def prebuild(jobs: Iterable[Job], others: Sequence[legs.Leg], progress: Progress) -> None:
    """Builds what the host and gpu legs will need, over all cores. A build that fails is left to the case that needs it."""
    makers = {
        "host": build.host_library,
        "host-check": functools.partial(build.host_library, check=True),
        "gpu": lambda kernel, constants: build.gpu_library(kernel, constants, device.current().arch),
    }
    wanted = {}
    for stem, case in jobs:
        kernel = cases.kernel(stem)
        constants = kernel.constants_of(case.dtypes, case.shape)
        for name in {leg.name.partition(" ")[0] for leg in others} & set(makers):
            if not (kernel.cpu and name == "gpu"):
                wanted[name, stem, tuple(sorted(constants.items()))] = (makers[name], kernel, constants)
    bar = progress.add_task("building", total=len(wanted))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(make, kernel, constants) for make, kernel, constants in wanted.values()]
        for future in concurrent.futures.as_completed(futures):
            progress.advance(bar)
            if future.exception() and not isinstance(future.exception(), build.BuildError):
                future.result()


def table(results: Iterable[Result], missing: Mapping[str, str]) -> Table:
    """Kernel x leg: cases, bytes compared, verdict, seconds."""
    sums: dict[tuple[str, str], list[Result]] = collections.defaultdict(list)
    for result in results:
        sums[result.kernel, result.leg].append(result)
    view = Table("kernel", "leg", "cases", "not run", "bytes compared", "equal", "seconds")
    for (stem, leg), rows in sums.items():
        ran = [row for row in rows if row.equal is not None]
        wrong = sum(not row.equal for row in ran)
        verdict = f"[red]{wrong} DIFFER" if wrong else "[green]yes" if ran else "not run"
        compared, seconds = f"{sum(row.bytes for row in ran):,}", f"{sum(row.seconds for row in ran):.1f}"
        view.add_row(stem, leg, str(len(ran)), str(len(rows) - len(ran)), compared, verdict, seconds)
    for leg, reason in missing.items():
        view.add_row("(all)", leg, "0", "all", "0", f"not run: {reason}", "")
    return view


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("stem", nargs="*", help="kernels (default: all)")
    which = "a leg to compare with ref (repeatable; default: all that run here); also host-check and, such as 'host shuffle:1', an order"
    parser.add_argument("--leg", action="append", help=which)
    parser.add_argument("--case", help="the id of one case")
    parser.add_argument("--json", type=Path, help="write the results as JSON")
    parser.add_argument("--require", action="append", default=[], metavar="LEG", help="fail where this leg cannot run")
    parser.add_argument("--record", action="store_true", help="write what a GPU returned, and the simulator's slow cases, to tests/golden")


def kernels(stems: Sequence[str]) -> Sequence[str]:
    """The kernels that a command line names, all where it names none. Raises ValueError for one that does not exist."""
    unknown = sorted(set(stems) - set(cases.stems()))
    if unknown:
        raise ValueError(f"no kernel {unknown[0]!r}; there are {', '.join(cases.stems())}")
    return stems or cases.stems()


def select(stems: Sequence[str], case_id: str | None) -> list[Job]:
    """The (stem, case) pairs that a command line names. Raises ValueError for names that do not exist."""
    jobs = [(stem, case) for stem in kernels(stems) for case in cases.cases(stem) if case_id in (None, case.id)]
    if not jobs:
        raise ValueError(f"no case {case_id!r} in {', '.join(kernels(stems))}")
    return jobs


def run(args: argparse.Namespace) -> int:
    """The command. Exit code 0 only if at least two legs ran and nothing differed."""
    console = Console(stderr=False, width=None if sys.stdout.isatty() else 140)
    jobs = select(args.stem, args.case)
    wanted = [legs.leg(name) for name in args.leg] if args.leg else list(legs.all_legs())
    wanted = [leg for leg in wanted if leg.name != "ref"]
    missing = {leg.name: reason for leg in wanted if (reason := leg.missing())}
    others = [leg for leg in wanted if leg.name not in missing]
    results: list[Result] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        prebuild(jobs, others, progress)
        bar = progress.add_task("cases", total=len(jobs))
        for found in run_cases(jobs, others, again=args.case is not None):
            results += found
            progress.advance(bar)
    results.sort(key=lambda result: result.kernel)
    console.print(table(results, missing))
    wrong = [result for result in results if result.equal is False]
    by_id = {(stem, case.id): case for stem, case in jobs}
    for result in wrong[:20]:
        console.print(f"{result.kernel}/{result.case} on {result.leg}: {result.reason}", markup=False, soft_wrap=True)
        console.print(f"    again: {reproduce(result.kernel, by_id[result.kernel, result.case], result.leg)}", markup=False, soft_wrap=True)
    if args.json:
        fields = [field.name for field in dataclasses.fields(Result) if field.name != "entry"]
        rows = [{name: getattr(result, name) for name in fields} for result in results]
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    problems = [f"{len(wrong)} results differ"] if wrong else []
    ran = {result.leg for result in results if result.equal is not None}
    problems += [] if len(ran) > 1 else ["fewer than two legs were compared"]
    problems += [f"leg {name} is required: {missing.get(name, 'it was not asked for')}" for name in args.require if name not in ran]
    for leg in wanted if args.record and not problems else []:
        entries = {f"{result.kernel}/{result.case}": result.entry for result in results if result.leg == leg.name and result.entry}
        if entries:
            console.print(f"recorded {len(entries)} cases in {golden.write(entries, leg.name).relative_to(cases.ROOT)}")
    held = sum(result.reason == KNOWN for result in results)
    if held:
        console.print(f"sim: {held} slow cases are {KNOWN} and were not run again")
    not_run = [f"{leg} ({reason})" for leg, reason in missing.items()]
    console.print(f"compared: {', '.join(sorted(ran))}; not run: {', '.join(not_run) or 'none'}", markup=False, soft_wrap=True)
    console.print("FAILED: " + "; ".join(problems) if problems else f"every byte equal: {len(jobs)} cases", markup=False, soft_wrap=True)
    return 1 if problems else 0
