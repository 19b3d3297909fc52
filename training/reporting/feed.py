"""The metrics of a run, read from its journals while they grow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from training.events import Metrics, RunFinished, RunStarted
from training.journal import JOURNAL_NAME, parse_event

FOLDER_NAME = "reports"
_WANTED = (b'"type":"metrics"', b'"type":"run_started"', b'"type":"run_finished"')
_HEAD_BYTES = 200  # a line's type stands before this


class Figures(NamedTuple):
    """What one step came out with; ``at`` is in seconds since 1970."""

    step: int
    at: float
    values: dict[str, float]


class Feed:
    """Figures that a tracker has not been told, in the order in which they were written.

    Nothing comes before the attempt's own ``run_started``: only it says from which step on things are trained again.
    ``from_step`` is that step, ``ended`` the outcome once there is one. With ``again`` the tracker can take back what
    earlier attempts told it beyond ``from_step``; without, the first word on a step stands.
    """

    def __init__(self, run_dir: Path, attempt: int, earlier: Sequence[Path], told: int, *, again: bool) -> None:
        self.from_step: int | None = None
        self.ended = ""
        self._path, self._attempt, self._earlier = run_dir / JOURNAL_NAME, attempt, earlier
        self._told, self._again, self._offset = told, again, 0
        self._before: list[Figures] = []

    def new(self) -> Iterator[Figures]:
        """What was written since the last call; call it again and again."""
        for event in self._events():
            if isinstance(event, RunStarted):
                if event.attempt == self._attempt:
                    yield from self._missed_figures(event.from_step)
            elif isinstance(event, RunFinished):
                self.ended = event.status if self.from_step is not None else ""
            elif self.from_step is None:
                self._before.append(_figures(event))
            elif event.step > self._told:
                yield _figures(event)

    def _missed_figures(self, from_step: int) -> Iterator[Figures]:
        """What earlier attempts came out with and could not tell; what they lost is trained again."""
        self.from_step = from_step
        if self._again:
            self._told = min(self._told, from_step)
        lines = (event for folder in self._earlier for event in _read_events(folder / JOURNAL_NAME, 0)[0])
        found = [_figures(event) for event in lines if isinstance(event, Metrics)] + self._before
        newest = {figures.step: figures for figures in found if self._told < figures.step <= from_step}
        self._before = []
        for step in sorted(newest):
            yield newest[step]

    def _events(self) -> list[Metrics | RunStarted | RunFinished]:
        found, self._offset = _read_events(self._path, self._offset)
        return found


def _figures(event: Metrics) -> Figures:
    return Figures(event.step, event.t, event.values)


def _read_events(path: Path, offset: int) -> tuple[list[Metrics | RunStarted | RunFinished], int]:
    """The events of interest in the whole lines after ``offset``, and where the next one begins."""
    found: list[Metrics | RunStarted | RunFinished] = []
    with suppress(FileNotFoundError), open(path, "rb") as file:
        file.seek(offset)
        while (line := file.readline()).endswith(b"\n"):
            offset += len(line)
            if any(mark in line[:_HEAD_BYTES] for mark in _WANTED):
                with suppress(ValueError):
                    event = parse_event(line)
                    if isinstance(event, Metrics | RunStarted | RunFinished):
                        found.append(event)
    return found, offset


def told_before(tracker: str, folders: Sequence[Path]) -> int:
    """The last step that a tracker was told in any of these attempts; 0 where it was told nothing."""
    return max((_mark(folder / FOLDER_NAME / f"{tracker}.json") for folder in folders), default=0)


def _mark(path: Path) -> int:
    try:
        step = json.loads(path.read_text(encoding="utf-8"))["step"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return step if isinstance(step, int) else 0


def keep_mark(tracker: str, run_dir: Path, step: int) -> None:
    """Remember that a tracker was told of ``step``, beside the journal."""
    path = run_dir / FOLDER_NAME / f"{tracker}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"step": step}), encoding="utf-8")
    part.replace(path)
