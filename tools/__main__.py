"""The command line: ``samebits COMMAND`` (or ``python -m tools COMMAND``)."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

#: command -> (its module, what it does). A module offers add_arguments(parser) and run(args) -> exit code.
COMMANDS = {
    "verify": ("tools.verify", "run every kernel on every leg and compare bytes"),
    "compile-check": ("tools.compile_check", "build the tested specialisations with nvcc and audit the PTX, without a GPU"),
    "bench": ("tools.bench", "time kernels after their bytes were checked, against the peers that are installed"),
    "bench-emulator": ("tools.bench_emulator", "time the emulator, plain and with checks, against numba's simulator"),
    "exhaustive": ("tools.exhaustive", "run the contract's functions over all 2^32 inputs"),
    "run": ("tools.run", "compile a CUDA program for the CPU and run it, with checks on request"),
    "new-kernel": ("tools.new_kernel", "write the four files of a new kernel"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; its exit code. Errors of the user's input are printed in one line, exit code 2; an interrupt is 130."""
    parser = argparse.ArgumentParser(prog="samebits", description="CUDA kernels that return the same bytes everywhere, and the proof.")
    subparsers = parser.add_subparsers(dest="command", required=True)
    given = list(sys.argv[1:] if argv is None else argv)
    for name, (module, does) in COMMANDS.items():
        sub = subparsers.add_parser(name, help=does, description=does)
        if given[:1] == [name]:
            importlib.import_module(module).add_arguments(sub)
    args = parser.parse_args(given)
    try:
        return importlib.import_module(COMMANDS[args.command][0]).run(args)
    except (ValueError, TypeError, OSError) as error:
        print(f"samebits {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
