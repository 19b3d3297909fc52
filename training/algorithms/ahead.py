"""Rollouts of the next samplings, played in a thread while the trainer trains on the last one.

1. Samplings are played one after another, never two at once. That of step k begins when the trainer asks for the
   rollouts of the sampling ``most`` before it, so its weights miss at most ``most`` samplings' updates: nothing that
   is too old is ever played, and nothing has to be thrown away.
2. What a sampling raises is raised when the trainer asks for it.
3. ``settle`` waits until nothing is being played: an evaluation has the sampler for itself.

See docs/adr/0006-overlap.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait

from training.rollout.finished import StepRollouts

Rows = Sequence[int]
Collect = Callable[[int, Rows], StepRollouts]


class Ahead:
    """``collect`` plays the rows of a step; it is only called from one thread. ``abandon`` has it end soon."""

    def __init__(self, collect: Collect, abandon: Callable[[], None]) -> None:
        self._collect, self._abandon = collect, abandon
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollouts")
        self._begun: dict[int, tuple[Rows, Future[StepRollouts]]] = {}

    def begin(self, step: int, rows: Rows) -> None:
        """Play the rollouts of a step once those before it are played. One that has begun is not begun again."""
        if step not in self._begun:
            self._begun[step] = rows, self._thread.submit(self._collect, step, rows)

    def has(self, step: int) -> bool:
        """Whether the rollouts of a step were begun, and not taken yet."""
        return step in self._begun

    def take(self, step: int, rows: Rows) -> StepRollouts:
        """The rollouts of a step that was begun, once they are played. Raises as ``collect`` does."""
        began, played = self._begun.pop(step)
        if list(began) != list(rows):
            raise AssertionError(f"step {step} was played with other tasks than it trains on")
        return played.result()

    def settle(self) -> None:
        """Wait until everything that was begun is played. What it raised is raised when it is taken."""
        wait([played for _rows, played in self._begun.values()])

    def close(self) -> None:
        """Give up what is being played. Calling it twice does nothing."""
        self._abandon()
        self._thread.shutdown(wait=True, cancel_futures=True)
