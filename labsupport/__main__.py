"""The command line: `python -m labsupport COMMAND`, one command a line of the table below.

A command's module is imported only when it is called, so that it can set the number of threads
before NumPy is loaded. It offers `add_arguments(parser)` and `main(args) -> exit code`.
"""

import argparse
import importlib
import sys

PURPOSE = "Measure, record and audit the runs of The Price of Remembering."

COMMANDS = {  # name: (module, what it does)
    "audit": ("labsupport.audit_command", "check that recorded evidence is what was recorded"),
    "bench": ("labsupport.bench_command", "put instruments to the test and record the run"),
    "breakeven": ("labsupport.breakeven_command", "map where reuse wins and record the run"),
    "profile": ("labsupport.profile_command", "time a query with and without reuse, in parts"),
    "sweep": ("labsupport.sweep_command", "time generation with and without a cache, by size"),
    "train": ("labsupport.train_command", "train the character model and record its weights"),
    "warmcold": ("labsupport.warmcold", "time growing caches, cold and warm, and record the run"),
}


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns 0 for success, 1 for a negative answer, 2 for wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    if hasattr(sys.stdout, "reconfigure"):  # damaged files may hold any character
        sys.stdout.reconfigure(errors="backslashreplace")

    parser = argparse.ArgumentParser(prog="python -m labsupport", description=PURPOSE)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, purpose) in COMMANDS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        if argv[:1] == [name]:
            chosen = importlib.import_module(module)
            chosen.add_arguments(command)

    args = parser.parse_args(argv)
    try:
        return chosen.main(args)
    except FileExistsError as error:  # an output directory that is there already
        print(error, file=sys.stderr)
        return 2
    except MemoryError as error:
        said = f"There is too little memory for these sizes: {error}. Choose smaller ones."
        print(said, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted.")
        return 130


if __name__ == "__main__":
    sys.exit(main())
