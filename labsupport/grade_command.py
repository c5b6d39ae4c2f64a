"""`python -m labsupport grade SUBMISSIONS --out MARKS`: marks and feedback for a class."""

import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import TimeoutError, as_completed
from importlib import metadata
from pathlib import Path

from pebble import ProcessExpired, ProcessPool
from tqdm import tqdm

from labsupport import grading, markbook, masters, sandbox, submissions
from labsupport.grading import Result, Settings
from labsupport.machine import ROOT, THREAD_VARIABLES
from labsupport.masters import Master
from labsupport.submissions import Submission

SOURCE = ROOT / "exercises" / "source"
OVERHEAD_S = 180  # that a submission may take beyond the time limit of its notebook


def add_arguments(parser) -> None:
    """The options of the command."""
    limits = sandbox.Limits()
    parser.add_argument(
        "submissions", type=Path, metavar="SUBMISSIONS", help="a folder for each student"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="MARKS", help="folder to write")
    said = "chapters to grade (all that somebody handed in)"
    parser.add_argument(
        "--chapter", nargs="+", default=[], dest="chapters", metavar="NAME", help=said
    )
    said = "submissions at a time (one a core)"
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help=said)
    said = "go on with an interrupted run; what has not changed since is not graded again"
    parser.add_argument("--resume", action="store_true", help=said)
    said = "run without a sandbox: only notebooks that you wrote or read"
    parser.add_argument("--unsafe", action="store_true", help=said)
    said = "folder of the master notebooks (exercises/source)"
    parser.add_argument("--masters", type=Path, default=SOURCE, metavar="DIR", help=said)
    for name, default, what in (
        ("cell", limits.cell_s, "a cell"),
        ("total", limits.total_s, "a notebook"),
    ):
        said = f"time limit of {what} ({default:g})"
        parser.add_argument(
            f"--{name}-seconds", type=float, default=default, metavar="S", help=said
        )


def main(args) -> int:
    """Grade the class; 0 when that came to its end, whatever the marks, 2 for wrong usage."""
    for name in {"SIGTERM", "SIGHUP"} & set(dir(signal)):  # as Ctrl-C: masters lie in the folder
        if signal.getsignal(getattr(signal, name)) != signal.SIG_IGN:  # as nohup has it
            signal.signal(getattr(signal, name), signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="grade-", ignore_cleanup_errors=True) as folder:
        work = Path(folder)
        try:
            chapters = check(args)
            made = {name: masters.prepare(args.masters, name, work) for name in chapters}
            found, ignored = submissions.find(args.submissions, chapters)
            if not found:
                raise ValueError(f"{args.submissions} holds no folder of a student.")
            found = found if args.chapters else handed_in(found)
            args.out.mkdir(parents=True, exist_ok=args.resume)
        except (ValueError, OSError) as error:
            print(error, file=sys.stderr)
            return 2
        except SyntaxError as error:
            print(f"{args.masters.parent / masters.SETTINGS}: {error}", file=sys.stderr)
            return 2
        limits = sandbox.Limits(cell_s=args.cell_seconds, total_s=args.total_seconds)
        try:
            results = batch(found, made, Settings(limits, not args.unsafe, work), args)
            markbook.write(args.out, results, ignored, about(args))
        except KeyboardInterrupt:
            print("\nInterrupted. The same command with --resume goes on.", file=sys.stderr)
            return 130
        except OSError as error:  # a full disk
            print(f"\n{error}. The same command with --resume goes on.", file=sys.stderr)
            return 2
    statuses = [result.status for result in results]
    told = ", ".join(f"{statuses.count(status)} {status}" for status in grading.STATUSES)
    print(f"{told}. Read {args.out / 'summary.md'} first.")
    return 0


def check(args) -> dict[str, list[str]]:
    """The chapters to grade, with their `grade_id`s; ValueError, with a remedy, for wrong usage."""
    if not args.submissions.is_dir():
        raise ValueError(
            f"{args.submissions} is no folder. Name the one that holds a folder a student."
        )
    if args.out.resolve().is_relative_to(args.submissions.resolve()):
        raise ValueError(
            f"{args.out} lies in {args.submissions}, which is left as it is. Choose another."
        )
    if os.path.lexists(args.out) and not args.resume:
        raise ValueError(
            f"{args.out} exists already. Choose another folder, or go on with --resume."
        )
    if args.workers < 1:
        raise ValueError("--workers must be 1 or more.")
    if not all(0 < s < float("inf") for s in (args.cell_seconds, args.total_seconds)):
        raise ValueError("--cell-seconds and --total-seconds must be numbers above 0.")
    if not args.unsafe and (why := sandbox.refusal()):
        raise ValueError(f"{why} Or, for notebooks that you wrote or read: --unsafe.")
    seen = [] if args.unsafe else [args.masters, args.submissions, args.out, tempfile.gettempdir()]
    if readable := [str(path) for path in seen if sandbox.shows(Path(path))]:
        raise ValueError(
            f"A submission could read {readable[0]}, which lies with Python or the system."
        )
    return masters.grade_ids(args.masters, args.chapters)


def handed_in(found: list[Submission]) -> list[Submission]:
    """Those of chapters of which somebody handed in a notebook; all, if nobody did."""
    chapters = {submission.chapter for submission in found if submission.path}
    return [submission for submission in found if submission.chapter in chapters] or found


def batch(
    found: list[Submission], made: dict[str, Master], settings: Settings, args
) -> list[Result]:
    """A result for each submission, in order; each is kept in MARKS as soon as it is there."""
    results = [_known(submission, made, settings, args) for submission in found]
    todo = [at for at, result in enumerate(results) if result is None]
    jobs = [(found[at], made[found[at].chapter], settings) for at in todo]
    done = len(found) - len(todo)
    with tqdm(total=len(found), initial=done, desc="grading", disable=None) as bar:
        for job, result in _run(jobs, min(args.workers, len(jobs))):
            results[todo[job]] = result
            markbook.keep(args.out, result)
            bar.update()
    return results


def _known(submission: Submission, made: dict[str, Master], settings, args) -> Result | None:
    """The result of a submission that need not run: there is no notebook, or it has run before."""
    if submission.path is None:
        return grading.failed(submission, submission.why)
    if not args.resume:
        return None
    try:
        sha256 = grading.key(submission, made[submission.chapter], settings)
    except submissions.Unreadable:
        return None
    return markbook.kept(args.out, submission.student, submission.chapter, sha256)


def _run(jobs: list, workers: int) -> Iterator[tuple[int, Result]]:
    """Grade in processes of their own; one that dies or hangs fails its own submission only."""
    if not jobs:
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPool(workers, context=context, initializer=_one_thread) as pool:
        try:
            futures = {}
            for number, job in enumerate(jobs):
                most = job[2].limits.total_s + OVERHEAD_S
                futures[pool.schedule(grading.grade, args=job, timeout=most)] = number
            for future in as_completed(futures):
                number = futures[future]
                yield number, _result(future, jobs[number][0])
        except BaseException:
            pool.stop()
            raise


def _result(future, submission: Submission) -> Result:
    try:
        return future.result()
    except TimeoutError:
        why = "grading it took too long and was ended"
    except ProcessExpired as error:
        why = f"the process that graded it ended (exit code {error.exitcode})"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"[:500]
    return grading.failed(submission, why)


def _one_thread() -> None:
    os.environ |= dict.fromkeys(THREAD_VARIABLES, "1")  # kernels without a sandbox inherit them


def about(args) -> list[str]:
    """How the class was graded, for the summary."""
    versions = ", ".join(f"{name} {_version(name)}" for name in ("nbgrader", "labsupport"))
    how = "without a sandbox" if args.unsafe else "in a sandbox"
    return [f"Graded {how}, with {versions}, by the masters in `{args.masters.name}`."]


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "(not installed)"
