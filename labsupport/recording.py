"""What every command that records a run does: its options, a place, the run, and what comes next.

A command's module has the three parts that differ, and gives them to `run`.
"""

import sys

from labsupport import evidence


def add_out(parser):
    """The option --out, which every such command has."""
    parser.add_argument("--out", required=True, help="a directory that does not exist yet")


def run(args, command, options, record, show):
    """The exit code of `python -m labsupport command`: 0, 1 or 2.

    options(args)         -> what they mean; OSError, TypeError or ValueError if they do not fit: 2,
                          as when nothing can be written at --out. Nothing was measured then
    record(begun, meant)  measures and writes the run -> what there is to show; ArithmeticError,
                          RuntimeError or ValueError if it cannot be trusted: 1. Nothing is written
    show(found)           prints it
    """
    try:
        meant = options(args)
    except (OSError, TypeError, ValueError) as error:
        print(
            f"{str(error).removesuffix('.')}. See: python -m labsupport {command} --help",
            file=sys.stderr,
        )
        return 2
    try:
        begun = evidence.begin(args.out)
    except OSError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        found = record(begun, meant)
    except (ArithmeticError, RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    show(found)
    print(f"\nWritten to {begun.out}. Next: python -m labsupport audit {begun.out}")
    return 0
