"""An evaluation read from its journals, and what came out as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.evaluation.figures import Sheet, Try, sheet_of
from training.journal import JOURNAL_NAME, RolloutFinished, RolloutStarted, TurnAdded, read_events
from training.rewards.facts import ERROR_PREFIXES
from training.rollout.figures import SUCCESS_PART

WHOLE_FILE = 1 << 50


def tries_of(folders: Sequence[Path]) -> list[Try]:
    """Every try of an evaluation, from the folders of its attempts, oldest first.

    Of a step that two attempts played, the later one's count.
    """
    found: dict[tuple[int, int, int], Try] = {}
    for folder in folders:
        playing: dict[str, _Playing] = {}
        for _offset, event in read_events(folder / JOURNAL_NAME, max_bytes=WHOLE_FILE):
            if isinstance(event, RolloutStarted):
                playing[event.rollout] = _Playing(event)
            elif isinstance(event, TurnAdded) and event.rollout in playing:
                playing[event.rollout].heard(event)
            elif isinstance(event, RolloutFinished) and event.rollout in playing:
                played = playing.pop(event.rollout)
                found[played.place] = played.ended(event)
    return [found[place] for place in sorted(found)]


class _Playing:
    """A rollout that has begun, with the tool calls that it has made since."""

    def __init__(self, started: RolloutStarted) -> None:
        self.place = (started.step, started.group, started.index)
        self._task = started.row if started.row is not None else -1
        self._calls = self._failed = 0

    def heard(self, event: TurnAdded) -> None:
        if event.turn == 0:  # the prompt is nobody's turn
            return
        for message in event.messages:
            self._calls += len(message.tool_calls or []) if message.role == "assistant" else 0
            self._failed += message.role == "tool" and message.content.startswith(ERROR_PREFIXES)

    def ended(self, event: RolloutFinished) -> Try:
        return Try(
            task=self._task,
            excluded=event.status == "excluded",
            success=event.env_parts.get(SUCCESS_PART),
            reward=event.reward,
            parts=event.parts,
            turns=event.turns,
            tokens=event.tokens,
            seconds=event.seconds,
            parse_errors=event.parse_errors,
            calls=self._calls,
            failed_calls=min(self._failed, self._calls),
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
