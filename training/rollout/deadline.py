"""An end for code that others wrote and that runs in our own process: chat templates."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class OutOfTime(BaseException):
    """The block took longer than it may. No ``Exception``: nothing inside may take it for an error and go on."""


@contextmanager
def deadline(seconds: float, *, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Raise ``OutOfTime`` inside the block once it has taken so many seconds.

    It is looked at before each line of Python that the block runs, in this thread alone, so no exception can come
    later than the block's end. A template is compiled to Python, so its loops are lines too. A signal would need the
    main thread, and a child process the tokenizer's libraries again.
    """
    end = clock() + seconds

    def look(frame: FrameType, event: str, arg: object) -> Any:
        if clock() > end:
            raise OutOfTime
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield
    finally:
        sys.settrace(before)
