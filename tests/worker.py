"""``python -m tests.worker``: a worker of pytest-xdist, started as execnet starts one with ``python -c``.

It is a program so that it can be forked from a process that has imported torch and the like (tests/forks.py).
"""

from __future__ import annotations

import sys

from tests.forks import OWN, Loader

if __name__ == "__main__":
    if "torch" in sys.modules:  # it was forked
        OWN["heavy"] = Loader.like_us("heavy")  # now: before pytest imports anything, or starts a thread
    exec(eval(sys.stdin.readline()))  # noqa: S102, S307 - what execnet sends to each of its workers
