"""python -m emu.simt [--check] [--no-races] [--order O] [--operators O] [--json F] SCRIPT.py [args]: runs any script on the scheduler.

The exit code is the script's; 1 when a check fires, even if the script goes on. --json writes a list of reports, empty when nothing fired.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Runs a script; returns the exit code. Exceptions of the script itself pass through."""
    parser = argparse.ArgumentParser(prog="python -m emu.simt", description="Run a numba.cuda script on the simulator's scheduler.")
    parser.add_argument("--check", action="store_true", help="bounds, uninitialised reads, divergence, lanes, races")
    parser.add_argument("--no-races", action="store_true", help="with --check: without races")
    parser.add_argument("--order", default="forward", help="forward, reverse or shuffle:SEED")
    parser.add_argument("--operators", default="numba", help="numba: numbers as on a GPU; python: faster")
    parser.add_argument("--json", metavar="F", type=Path, help="write the reports there")
    parser.add_argument("script", type=Path)
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)

    from emu.simt import Options, SimtError, install
    from emu.simt.state import S

    try:
        chosen = Options(options.check, options.check and not options.no_races, options.order, options.operators)
    except ValueError as error:
        parser.error(str(error))
    if not options.script.is_file():
        parser.error(f"no such file: {options.script}")
    install(chosen)
    code = 0
    before = sys.argv, sys.path[0]
    sys.argv, sys.path[0] = [str(options.script), *options.args], str(options.script.resolve().parent)
    try:
        runpy.run_path(str(options.script), run_name="__main__")
    except SimtError:
        pass  # it is among S.found
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            sys.stderr.write(stop.code + "\n")
    finally:
        sys.argv, sys.path[0] = before
        for report in S.found:
            sys.stderr.write(f"{report.file}:{report.line}: {report.message}\n")
        if options.json:
            options.json.write_text(json.dumps([report.as_dict() for report in S.found], indent=1) + "\n")
    return 1 if S.found else code


if __name__ == "__main__":
    sys.exit(main())
