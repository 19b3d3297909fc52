"""Runs code on episodes in a sandbox of its own, twice, and reports the results.

1. Each episode is scored; a failure is shown with its line, and the next episode runs in a new process if need be.
2. Where all worked, everything is scored once more in a new process and in the opposite order: a reward that comes out
   differently depends on something else than the episode (time, chance, earlier episodes).
3. The whole test has a time limit, and few tests run at once: pages must stay fast.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from training.rewards.custom import CustomParams, in_range, plain_episode
from training.sandbox.problems import Problem, SandboxProblem
from training.sandbox.process import Answer, Limits, Worker
from webapp.common.text import in_words
from webapp.rewards.custom.sources import Sample

WALL_LIMIT_S = 20.0
WAIT_LIMIT_S = 10.0
_running = threading.BoundedSemaphore(2)


class Line(NamedTuple):
    """The code's result for one episode: a value, or the error and its line."""

    sample: Sample
    value: float | None
    problem: str = ""
    line: int | None = None
    printed: str = ""


class Tested(NamedTuple):
    """The outcome of a test."""

    sha256: str
    lines: list[Line]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether the code may be saved: it ran over at least one episode, and failed on none."""
        return bool(self.lines) and all(line.value is not None for line in self.lines)

    @property
    def failed(self) -> int:
        """On how many episodes it failed."""
        return sum(line.value is None for line in self.lines)

    @property
    def values(self) -> list[float]:
        """The values that the code returned."""
        return [line.value for line in self.lines if line.value is not None]

    @property
    def constant(self) -> bool:
        """Whether it returned the same value for all episodes, which is no learning signal."""
        return len(self.values) > 1 and len(set(self.values)) == 1


def problem_text(problem: Problem) -> str:
    """A problem's sentence in the reader's language."""
    return in_words(problem.sentence)


def code_test(params: CustomParams, samples: list[Sample]) -> Tested:
    """Test code on samples. Raises ``ValidationError`` when too many tests run already."""
    if not _running.acquire(timeout=WAIT_LIMIT_S):
        raise ValidationError(_("Other tests are running. Try again in a moment."))
    began = time.monotonic()
    try:
        lines = _score_all(params, samples, began + WALL_LIMIT_S)
        if all(line.value is not None for line in lines):
            again = _score_all(params, samples[::-1], began + WALL_LIMIT_S)[::-1]
            lines = [_compare_lines(first, second) for first, second in zip(lines, again, strict=True)]
    finally:
        _running.release()
    return Tested(params.sha256, lines, time.monotonic() - began)


def _score_all(params: CustomParams, samples: list[Sample], deadline: float) -> list[Line]:
    with _open_runner(params) as runner:
        return [_score_one(runner, params, sample, deadline) for sample in samples]


def _score_one(runner: _Runner, params: CustomParams, sample: Sample, deadline: float) -> Line:
    if time.monotonic() > deadline:
        return Line(
            sample, None, _("The test took longer than %(s)g seconds, so this was not reached.") % {"s": WALL_LIMIT_S}
        )
    try:
        answer = in_range(runner.call(sample), params)
    except SandboxProblem as exc:
        return Line(sample, None, problem_text(exc.problem), exc.problem.line)
    return Line(sample, answer.value, printed=answer.printed)


def _compare_lines(first: Line, second: Line) -> Line:
    if first.value == second.value or second.value is None:
        return first if second.value is not None else second
    differs = _("It returned %(first)g, then %(second)g for the same episode: it depends on something else.")
    return first._replace(value=None, problem=differs % {"first": first.value, "second": second.value})


class _Runner:
    """One worker after another for one piece of code."""

    def __init__(self, params: CustomParams) -> None:
        self._params = params
        self._worker: Worker | None = None

    def call(self, sample: Sample) -> Answer:
        if self._worker is None or not self._worker.alive:
            self.close()
            self._worker = Worker(self._params.code, Limits(seconds=self._params.limit_s))
        return self._worker.call(plain_episode(sample.episode))

    def close(self) -> None:
        if self._worker is not None:
            self._worker.kill()


@contextmanager
def _open_runner(params: CustomParams) -> Iterator[_Runner]:
    runner = _Runner(params)
    try:
        yield runner
    finally:
        runner.close()
