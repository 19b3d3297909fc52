"""One scoring process as its parent sees it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from training.child_env import bare_env, known
from training.limited import limit_child
from training.piped import Piped
from training.rewards.custom import SWITCH_VARIABLE
from training.rewards.scorer.wire import READY, Said, said_of

START_LIMIT_S = 20.0  # loading takes half a second of processor time; a machine that trains may be slow
MEMORY_BYTES = 1 << 30
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Child(Piped):
    """A process that loads in advance, and then answers one job after another."""

    def __init__(self) -> None:
        """Start it. Raises ``OSError``."""
        env = bare_env(**ONE_THREAD, **known((SWITCH_VARIABLE,)))
        super().__init__([sys.executable, "-P", "-m", "training.rewards.scorer"], env=env)
        limit_child(self.pid, {"RLIMIT_AS": MEMORY_BYTES, "RLIMIT_CORE": 0})
        self._ready = False

    def ready(self) -> bool:
        """Whether it has loaded; waited for, but not longer than ``START_LIMIT_S``."""
        if not self._ready:
            first = next(self.lines(b"", time.monotonic() + START_LIMIT_S), b"")
            self._ready = first == READY
        return self._ready

    def answers(self, job: bytes, deadline: float) -> Iterator[Said]:
        """Its answers, as they come; ends early at the deadline, at the process's end, or at an invalid answer."""
        for line in self.lines(job, deadline):
            try:
                yield said_of(line)
            except ValueError:
                return
