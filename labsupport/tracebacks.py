"""Tracebacks of a reader's code without the lines of the check that called it."""

from pathlib import Path
from types import TracebackType

PACKAGE = Path(__file__).parent


def of_the_reader(frames: TracebackType) -> TracebackType | None:
    """A traceback without this package's frames, whose lines compute the answer; None if there are
    no others."""
    kept, frame = [], frames
    while frame is not None:
        if not Path(frame.tb_frame.f_code.co_filename).is_relative_to(PACKAGE):
            kept.append(frame)
        frame = frame.tb_next
    for frame, inner in zip(kept, [*kept[1:], None], strict=False):
        frame.tb_next = inner
    return kept[0] if kept else None
