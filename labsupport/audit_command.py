"""`python -m labsupport audit DIR`: the audit's answer in words, and what to do next."""

import sys
from pathlib import Path

from labsupport.audit import FAILED, OTHER_CODE, Audit, audit
from labsupport.books import MANIFEST
from labsupport.columns import RAW
from labsupport.seal import SEAL

OTHER_CODE_ADVICE = f"""\
Every value is as it was recorded. The source files above have changed since, or are gone, so the
same command may now give other figures. {MANIFEST} names the commit that made these (git.commit).
To compare, run its command again into a new directory."""

FAILED_ADVICE = """\
Each line above reads file:line:column, or file:path for JSON. Lines count as an editor shows them:
line 1 of a .csv file is its header.
What to do: do not use these figures until the run is intact again. If it is in git, remove files
that do not belong and bring the recorded ones back:
    git restore --source=HEAD --staged --worktree -- {directory}
If it is not, measure again into a new directory."""


def add_arguments(parser) -> None:
    """Arguments of the command."""
    said = "a directory that holds a recorded run, or a transcription"
    parser.add_argument("directories", nargs="+", metavar="DIR", help=said)


def main(args) -> int:
    """Audit each directory and print the answers: 0 all intact, 1 one failed, 2 no such run."""
    for directory in map(Path, args.directories):
        if not directory.is_dir():
            print(f"{directory} is not a directory.", file=sys.stderr)
            return 2
        inside = {entry.name for entry in directory.iterdir()}
        if not inside & {RAW, MANIFEST, SEAL}:
            runs = sorted(str(found.parent) for found in directory.glob(f"*/{MANIFEST}"))
            said = f"{directory} holds no {MANIFEST}, so it is no recorded run."
            print(said + (f" Did you mean {' or '.join(runs)}?" if runs else ""), file=sys.stderr)
            return 2
    answers = [(directory, audit(directory)) for directory in args.directories]
    print("\n\n".join(report(directory, answer) for directory, answer in answers))
    return int(any(answer.status == FAILED for _, answer in answers))


def report(directory: str, answer: Audit, at_most: int = 20) -> str:
    """The answer in words: the status first, then what is wrong and where, then what to do."""
    lines = [f"{directory}: {answer.status}"]
    if answer.status == OTHER_CODE:
        lines += [f"  {name}" for name in answer.changed_sources] + [OTHER_CODE_ADVICE]
    if answer.status == FAILED:
        lines += [f"  {problem}" for problem in answer.problems[:at_most]]
        if (more := len(answer.problems) - at_most) > 0:
            lines += [f"  and {more} more"]
        if any(problem.file == MANIFEST for problem in answer.problems):
            lines += [
                f"(What relies on {MANIFEST}, such as the sums of the rows, was not checked.)"
            ]
        lines += [FAILED_ADVICE.format(directory=directory)]
    return "\n".join(lines)
