"""``samebits compile-check``: builds what the cases use with nvcc, without a GPU, and reads what came out.

Every specialisation that a case names is built for sm_90; a few, in which every dtype of every argument occurs, for all architectures,
and by every further toolkit for sm_90. Architectures for which the preprocessor leaves the same text share a PTX: those from sm_90 on
that of sm_90, older ones that of the oldest. The PTX of ``-fmad=true`` and ``=false`` is compared for some in which every value of
every constant occurs, and for every such text. ``--all``: every specialisation for every architecture from a PTX of its own, compared.
One run of nvcc builds several specialisations, each in a namespace of its own; where anything is wrong with them, each alone.

It fails where a build fails, where the PTX holds an instruction that the contract forbids or depends on -fmad, and where registers
spill. Results are cached under a key of sources, flags, compiler and the text of the check itself.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import operator
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernels_cu import build
from pyref.spec import Kernel
from tools import cases, compile_ports, ptx, together, toolkit
from tools.toolkit import Inspection, Toolkit

MAIN = "sm_90"
ARCHES = ("sm_75", "sm_80", "sm_86", "sm_89", MAIN, "sm_100", "sm_120")
#: Up to this head size nothing may spill, unless the kernel's SPEC gives a reason.
SPILL_FREE = 256
#: Specialisations that one run of nvcc builds.
BATCH = 8
#: Seconds of one build above which a line says so; never a failure, since a busy machine is slow too.
SLOW = 5.0
COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
INSTALL = "install a CUDA toolkit (nvcc on the path, or $NVCC), or its wheels: pip install -e '.[cuda]'"


@dataclass(frozen=True)
class Job:
    """Builds of a specialisation (``constants``) of a kernel by one toolkit for ``arches``, from one PTX; ``compare`` it with
    ``-fmad=true``."""

    stem: str
    constants: Mapping[str, str]
    arches: tuple[str, ...]
    toolkit: Toolkit
    compare: bool

    def __str__(self) -> str:
        return f"{describe(self.constants)} {'/'.join(self.arches)}, nvcc {self.toolkit.version}"


# -- what is built -------------------------------------------------------------------------------------------------------------------


def specialisations(stem: str) -> list[dict[str, str]]:
    """The constants of every specialisation that a case of the kernel uses; the most used first."""
    kernel = cases.kernel(stem)
    counts = collections.Counter(tuple(kernel.constants_of(case.dtypes, case.shape).items()) for case in cases.cases(stem))
    return [dict(constants) for constants, _ in counts.most_common()]


def cover(found: Sequence[Mapping[str, str]], macros: Iterable[str]) -> list[Mapping[str, str]]:
    """A few of ``found`` (the one with most new values next) in which every value that one of the ``macros`` has there occurs."""

    def values(constants: Mapping[str, str]) -> set[tuple[str, str]]:
        return {(macro, constants[macro]) for macro in macros}

    macros = list(macros)
    chosen = [found[0]]
    missing = set().union(*map(values, found)) - values(found[0])
    while missing:
        chosen.append(max(found, key=lambda constants: len(missing & values(constants))))
        missing -= values(chosen[-1])
    return chosen


def texts_of(sources: Iterable[str]) -> list[list[str]]:
    """The architectures by the text that the preprocessor leaves of sources: by what they compare ``__CUDA_ARCH__`` with."""
    named = {found for text in sources for found in re.findall(r"__CUDA_ARCH__\s*([=<>!]=?)\s*(\d+)", text)}
    found: dict[tuple[bool, ...], list[str]] = collections.defaultdict(list)
    for arch in ARCHES:
        number = 10 * int(arch.removeprefix("sm_"))
        found[tuple(COMPARISONS[sign](number, int(limit)) for sign, limit in sorted(named))].append(arch)
    return list(found.values())


def plan(stems: Iterable[str], tools: Sequence[Toolkit], everything: bool) -> tuple[list[Job], list[str]]:
    """The builds to do, and the architectures for which no toolkit here compiles."""
    able = {arch: next((tool for tool in tools if arch in tool.arches), None) for arch in ARCHES}
    jobs = []

    def add(stem: str, group: Iterable[str], built: Iterable[Mapping[str, str]], compared: Collection[Mapping[str, str]]) -> None:
        for tool in tools:
            if arches := tuple(arch for arch in group if able[arch] is tool):
                jobs.extend(Job(stem, constants, arches, tool, constants in compared) for constants in built)

    for stem in stems:
        kernel, every = cases.kernel(stem), specialisations(stem)
        few = cover(every, [macro for macro, symbol in kernel.constants.items() if symbol in kernel.dtypes])
        compared = cover(every, kernel.constants)
        if everything:
            for arch in ARCHES:
                add(stem, [arch], every, every)
        else:
            add(stem, [MAIN], [constants for constants in every if constants not in few], compared)
            for text in texts_of(build.texts(build.source(stem)).values()):
                older = [arch for arch in text if ARCHES.index(arch) < ARCHES.index(MAIN)]
                newer = [arch for arch in text if arch not in older]
                add(stem, newer, few, compared if MAIN in text else few)
                add(stem, older, few, [] if MAIN in text else few)
        second = [tool for tool in tools if tool is not able[MAIN] and MAIN in tool.arches]
        jobs += [Job(stem, constants, (MAIN,), tool, compare=False) for tool in second for constants in few]
    return jobs, [arch for arch, tool in able.items() if tool is None]


def batches(jobs: Iterable[Job]) -> list[list[Job]]:
    """Jobs that differ in their constants alone, up to ``BATCH`` together."""
    groups: dict[object, list[Job]] = collections.defaultdict(list)
    for job in jobs:
        groups[job.stem, job.arches, job.toolkit, job.compare].append(job)
    return [group[at : at + BATCH] for group in groups.values() for at in range(0, len(group), BATCH)]


def check(batch: Sequence[Job]) -> list[Inspection]:
    """Builds and inspects a batch; what was inspected before comes from the cache, a build that fails is a finding."""
    first, kernel = batch[0], cases.kernel(batch[0].stem)
    absent = [job for job in batch if not build.place(*_place(job)).exists()]
    made = together.inspect(first.toolkit.nvcc, kernel, [job.constants for job in absent], first.arches, first.compare)
    results = dict(zip(map(str, absent), made, strict=True))
    return [_read(job, results.get(str(job))) for job in batch]


def _place(job: Job) -> tuple[list[str], str]:
    """Key and name under which the cache keeps what was found."""
    sources = [file.name + "\0" + text for file, text in build.texts(build.source(job.stem)).items()]
    own = [Path(module.__file__ or "").read_text() for module in (together, toolkit, ptx)]
    constants = [f"{name}={value}" for name, value in sorted(job.constants.items())]
    asserts = cases.kernel(job.stem).layout_asserts()
    return [job.toolkit.version, *job.arches, str(job.compare), *build.NVCC_FLAGS, *sources, asserts, *constants, *own], f"{job.stem}.json"


def _read(job: Job, made: Inspection | build.BuildError | None) -> Inspection:
    """What the cache has, after ``made`` was put there."""

    def make(out: Path) -> None:
        if isinstance(made, build.BuildError):
            raise made
        out.write_text(json.dumps(asdict(made)))

    try:
        data = json.loads(build.cached(*_place(job), make).read_text())
    except build.BuildError as error:
        return Inspection(0.0, findings=[ptx.Finding(f"{job.stem}.cu", "does not compile", str(error))])
    entries = [ptx.Usage(**entry) for entry in data["entries"]]
    findings = [ptx.Finding(**finding) for finding in data["findings"]]
    kernel = cases.kernel(job.stem)
    findings += [] if kernel.spills else _spills(kernel, job.constants, entries)
    return Inspection(data["seconds"], entries, findings, data["warnings"])


def _spills(kernel: Kernel, constants: Mapping[str, str], entries: Iterable[ptx.Usage]) -> Iterator[ptx.Finding]:
    size = next((int(constants[macro]) for macro, axis in kernel.constants.items() if axis == "d"), 0)
    for entry in entries:
        if size <= SPILL_FREE and (entry.spill_stores or entry.spill_loads):
            detail = f"{entry.spill_stores} bytes stored, {entry.spill_loads} loaded, {entry.registers} registers on {entry.arch}"
            yield ptx.Finding(ptx.short_name(entry.entry), f"registers spill (head sizes up to {SPILL_FREE} must not)", detail)


# -- the command ---------------------------------------------------------------------------------------------------------------------


def describe(constants: Mapping[str, str]) -> str:
    """Constants as people read them: "T=f16 D=128"."""
    return " ".join(f"{name.removeprefix('SB_')}={value.removeprefix('sb::')}" for name, value in constants.items()) or "-"


def table(results: Iterable[tuple[Job, Inspection]]) -> Table:
    """Kernel entry x specialisation: registers for every architecture (and further toolkit); of the rest the most over them."""
    rows: dict[tuple[str, str, str], dict[str, tuple[ptx.Usage, float]]] = collections.defaultdict(dict)
    main = ""
    for job, inspection in results:
        main = main or job.toolkit.version
        for entry in inspection.entries:
            column = entry.arch.removeprefix("sm_") + (f"\n{job.toolkit.version}" if job.toolkit.version != main else "")
            name = (job.stem, ptx.short_name(entry.entry), describe(job.constants))
            rows[name][column] = (entry, inspection.seconds)
    every = {column for found in rows.values() for column in found}
    columns = sorted(every, key=lambda column: (column.partition("\n")[2], int(column.split()[0])))
    view = Table("kernel", "entry", "specialisation", title="registers a thread by architecture; bytes of spills, stack, shared memory")
    for name in (*columns, "spills\nst/ld", "stack", "shared", "seconds"):
        view.add_column(name, justify="right")
    for name, found in sorted(rows.items(), key=lambda row: _by_numbers(" ".join(row[0]))):
        entries = [entry for entry, _ in found.values()]
        most = [str(max(getattr(entry, field) for entry in entries)) for field in ("spill_stores", "spill_loads", "stack", "shared")]
        registers = [str(found[column][0].registers) if column in found else "-" for column in columns]
        view.add_row(*name, *registers, "/".join(most[:2]), *most[2:], f"{max(seconds for _, seconds in found.values()):.1f}")
    return view


def _by_numbers(text: str) -> list[tuple[int, str]]:
    """A key that sorts 32 before 128."""
    return [(int(digits or 0), other) for digits, other in re.findall(r"(\d+)|(\D+)", text)]


def problems(results: Iterable[tuple[Job, Inspection]]) -> list[str]:
    """One line for everything found at one place for one reason, with how many builds have it and the first of them."""
    groups: dict[tuple[str, str, str], list[tuple[Job, str]]] = collections.defaultdict(list)
    for job, inspection in results:
        for finding in inspection.findings:
            groups[job.stem, finding.place, finding.rule].append((job, finding.detail))
    lines = []
    for (stem, place, rule), found in groups.items():
        job, detail = found[0]
        builds = len({str(each) for each, _ in found})
        lines.append(f"{stem}: {place}: {rule}: {detail} ({job}{f' and {builds - 1} more builds' if builds > 1 else ''})")
    return lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("stem", nargs="*", help="kernels (default: all)")
    parser.add_argument("--all", action="store_true", help="every specialisation for every architecture")
    parser.add_argument("--nvcc", action="append", default=[], metavar="PATH", help="an nvcc (repeatable; the first is the main one)")
    parser.add_argument("--json", type=Path, help="write all results as JSON")


def run(args: argparse.Namespace) -> int:
    """The command. Exit code 0 only if everything was built and nothing was found."""
    console = Console(width=None if sys.stdout.isatty() else 170)
    unknown = sorted(set(args.stem) - set(cases.stems()))
    if unknown:
        raise ValueError(f"no kernel {unknown[0]!r}; there are {', '.join(cases.stems())}")
    tools = toolkit.toolkits(args.nvcc)
    if not tools:
        console.print(f"FAILED: not run: no nvcc: {INSTALL}", markup=False, soft_wrap=True)
        return 1
    of_the_cpu = [stem for stem in args.stem or cases.stems() if cases.kernel(stem).cpu]
    if of_the_cpu:
        console.print(f"not for nvcc, kernels of the CPU: {', '.join(of_the_cpu)}", markup=False)
    jobs, absent = plan([stem for stem in args.stem or cases.stems() if stem not in of_the_cpu], tools, args.all)
    results: list[tuple[Job, Inspection]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        bar = progress.add_task("builds", total=len(jobs))
        try:
            for batch, inspections in zip(batches(jobs), pool.map(check, batches(jobs)), strict=True):
                results += zip(batch, inspections, strict=True)
                progress.advance(bar, len(batch))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return _report(console, args, tools, results, absent)


def _report(
    console: Console, args: argparse.Namespace, tools: Sequence[Toolkit], results: list[tuple[Job, Inspection]], absent: Sequence[str]
) -> int:
    console.print(table(results))
    if args.json:
        rows = [
            {"kernel": job.stem, "constants": dict(job.constants), "arches": job.arches, "toolkit": job.toolkit.version}
            | {"compared": job.compare, **asdict(inspection)}
            for job, inspection in results
        ]
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    slow = sorted((inspection.seconds, f"{job.stem} {job}") for job, inspection in results)[::-1]
    late = [name for seconds, name in slow if seconds > SLOW]
    if late:
        console.print(f"slow: {len(late)} builds took more than {SLOW:g} s, the longest {slow[0][0]:.1f} s: {late[0]}", markup=False)
    for warning in sorted({warning for _, inspection in results for warning in inspection.warnings}):
        console.print(warning, markup=False, soft_wrap=True)
    found = problems(results) + [f"{arch}: not built: no toolkit here compiles for it" for arch in absent]
    found += [] if results else ["nothing was built"]
    ports = compile_ports.check(args.stem or cases.stems(), args.all)
    found += ports.problems()
    console.print(ports.summary(), markup=False, soft_wrap=True)
    for line in found:
        console.print(line, markup=False, soft_wrap=True)
    count, nvccs = sum(len(job.arches) for job, _ in results), ", ".join(tool.version for tool in tools)
    second = "" if len(tools) > 1 else f"; second toolkit: not run, {tools[0].version} alone was found"
    console.print(f"{count} cubins by nvcc {nvccs}{second}", markup=False, soft_wrap=True)
    console.print(f"FAILED: {len(found)} problems" if found else "nothing forbidden, no spill without a reason", markup=False)
    return 1 if found else 0
