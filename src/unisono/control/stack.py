"""Where this process stands, for others that wait for it."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from unisono.control.wire import clip

_CALLS = 8


def main_thread() -> str:
    """Returns file, line and function of the innermost calls of the main thread, outermost first.

    No file is read for it: one on a file system that hangs may be what the process is waiting for.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    innermost = itertools.islice(_outwards(frame), _CALLS)
    calls = [f'  File "{f.f_code.co_filename}", line {f.f_lineno}, in {f.f_code.co_name}' for f in innermost]
    return clip("\n".join(reversed(calls)))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
