"""An evaluation read from its journals, and what came out as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from training.evaluation.figures import Sheet, Try, sheet_of
from training.events import RolloutFinished, RolloutStarted
from training.journal import JOURNAL_NAME, read_events
from training.rollout.figures import SUCCESS_PART

WHOLE_FILE = 1 << 50
REPORT_NAME = "evaluation.json"


def tries_of(folders: Sequence[Path]) -> list[Try]:
    """Every try of an evaluation, from the folders of its attempts, oldest first.

    Of a step that two attempts played, the later one's count.
    """
    found: dict[tuple[int, int, int], Try] = {}
    for folder in folders:
        playing: dict[str, RolloutStarted] = {}
        for _offset, event in read_events(folder / JOURNAL_NAME, max_bytes=WHOLE_FILE):
            if isinstance(event, RolloutStarted):
                playing[event.rollout] = event
            elif isinstance(event, RolloutFinished) and event.rollout in playing:
                started = playing.pop(event.rollout)
                found[started.step, started.group, started.index] = _try(started, event)
    return [found[place] for place in sorted(found)]


def _try(started: RolloutStarted, event: RolloutFinished) -> Try:
    return Try(
        task=started.row if started.row is not None else -1,
        excluded=event.status == "excluded",
        success=event.env_parts.get(SUCCESS_PART),
        reward=event.reward,
        parts=event.parts,
        turns=event.turns,
        tokens=event.tokens,
        seconds=event.seconds,
        parse_errors=event.parse_errors,
        calls=event.calls or 0,
        failed_calls=event.failed_calls or 0,
        truncated=event.status == "truncated",
        cost=event.cost,
    )


class Figure(BaseModel):
    """A mean over ``tasks`` tasks with its 95% interval."""

    model_config = ConfigDict(allow_inf_nan=False)

    value: float | None
    low: float | None
    high: float | None
    tasks: int = Field(ge=0)


class Report(BaseModel):
    """What an evaluation came out with, and what its figures leave out. ``most`` is the most tries that a task has."""

    figures: dict[str, Figure]
    tasks: int = Field(ge=0)
    missing_tasks: int = Field(ge=0)
    tries: int = Field(ge=0)
    excluded: int = Field(ge=0)
    most: int = Field(default=0, ge=0)


def report_of(sheet: Sheet) -> Report:
    """The figures of a contestant, and what they leave out."""
    return Report(
        figures={name: Figure(**found._asdict()) for name, found in sheet.intervals().items()},
        tasks=len(sheet.tasks),
        missing_tasks=sheet.missing,
        tries=int(sheet.tries.sum()),
        excluded=int(sheet.excluded.sum()),
        most=sheet.most,
    )


def evaluation_of(folders: Sequence[Path], tasks: Sequence[int]) -> Report:
    """The report of an evaluation whose ``tasks`` were set."""
    return report_of(sheet_of(tries_of(folders), tasks))
