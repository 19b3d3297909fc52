"""An evaluation read from its journals, and what came out as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.evaluation.figures import Sheet, Try, sheet_of
from training.journal import JOURNAL_NAME, RolloutFinished, RolloutStarted, read_events
from training.rollout.figures import SUCCESS_PART

WHOLE_FILE = 1 << 50


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


def report_of(sheet: Sheet) -> dict[str, Any]:
    """The figures of a contestant: ``{name: {value, low, high, tasks}}``, and what they leave out."""
    figures = {name: found._asdict() for name, found in sheet.intervals().items()}
    return {
        "figures": figures,
        "tasks": len(sheet.tasks),
        "missing_tasks": sheet.missing,
        "tries": int(sheet.tries.sum()),
        "excluded": int(sheet.excluded.sum()),
    }


def evaluation_of(folders: Sequence[Path], tasks: Sequence[int]) -> dict[str, Any]:
    """The report of an evaluation whose ``tasks`` were set."""
    return report_of(sheet_of(tries_of(folders), tasks))
