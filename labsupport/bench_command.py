"""`python -m labsupport bench WHAT`: the course's own instruments put to the test."""

import importlib

BENCHES = {  # name: (module, what it does)
    "engine": (
        "labsupport.engine_command",
        "time cached steps, ours and well-known ones, beside the floor, and record the run",
    ),
    "instrument": (
        "labsupport.instrument_command",
        "ask timing tools questions with known answers, under noise, and record the run",
    ),
}


def add_arguments(parser):
    """A sub-command for each bench, with the options of its own."""
    benches = parser.add_subparsers(dest="bench", metavar="WHAT", required=True)
    for name, (module, purpose) in BENCHES.items():
        bench = benches.add_parser(name, help=purpose, description=purpose)
        importlib.import_module(module).add_arguments(bench)


def main(args):
    """Run the bench that was chosen; its exit code."""
    module, _ = BENCHES[args.bench]
    return importlib.import_module(module).main(args)
