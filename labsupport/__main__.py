"""The command line: `python -m labsupport COMMAND`, one command a line of `commands.toml`.

A command's module is imported only when it is called, so that it can set the number of threads
before NumPy is loaded. It offers `add_arguments(parser)` and `main(args) -> exit code`.
"""

import argparse
import importlib
import sys
import tomllib
from pathlib import Path

PURPOSE = "Measure, record and audit the runs of The Price of Remembering."

COMMANDS = tomllib.loads((Path(__file__).parent / "commands.toml").read_text(encoding="utf-8"))


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns 0 for success, 1 for a negative answer, 2 for wrong usage."""
    argv = sys.argv[1:] if argv is None else argv
    if hasattr(sys.stdout, "reconfigure"):  # damaged files may hold any character
        sys.stdout.reconfigure(errors="backslashreplace")

    parser = argparse.ArgumentParser(prog="python -m labsupport", description=PURPOSE)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, told in COMMANDS.items():
        purpose = told["purpose"]
        command = commands.add_parser(name, help=purpose, description=purpose)
        if argv[:1] == [name]:
            chosen = importlib.import_module(told["module"])
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
