"""What the journals of a run say, worked out without any code of the product, next to what the database has."""

from __future__ import annotations

import json
import math
from typing import Any
from uuid import uuid5

from webapp.common.storage import attempt_dir, run_dir
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Attempt, Run, RunEvent
from webapp.runs.registry.models import Checkpoint
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn


def _value(value: float | str) -> str:
    return repr(float(value))


def journal_says(run: Run) -> dict[str, Any]:
    """Points, rollouts, turns, groups, checkpoints and event counts by their keys."""
    points, rollouts, turns, groups, saved, phases = {}, {}, {}, set(), set(), 0
    for folder in sorted(run_dir(run.pk).iterdir(), key=lambda path: int(path.name)):
        number, path = int(folder.name), folder / "journal.jsonl"
        data = path.read_bytes() if path.exists() else b""
        for line in data[: data.rfind(b"\n") + 1].splitlines():
            event = json.loads(line)
            kind, name = event["type"], str(uuid5(run.pk, f"{number}/{event.get('rollout')}"))
            if kind == "metrics":
                points |= {(number, event["step"], key): _value(value) for key, value in event["values"].items()}
            elif kind == "rollout_started":
                rollouts[name] = "excluded"
                turns = {key: turn for key, turn in turns.items() if key[0] != name or not event.get("again")}
            elif kind == "rollout_finished":
                rollouts[name] = event["status"]
            elif kind == "turn":
                turns[name, event["turn"]] = event["messages"][0]["content"].replace("\x00", "\u2400")
            elif kind == "group_scored":
                groups.add((number, event["step"], event["group"]))
            elif kind == "checkpoint":
                saved.add((number, f"{number}/{event['path']}"))
                if event.get("seconds") is not None and not event.get("final"):
                    points[number, event["step"], "timing/saving"] = _value(event["seconds"])
            phases += kind == "phase"
    return {"points": points, "rollouts": rollouts, "turns": turns, "groups": groups, "saved": saved, "phases": phases}


def database_says(run: Run) -> dict[str, Any]:
    """The same, from the tables. A row that is there twice breaks its table's unique constraint, so sets are enough."""
    points = MetricPoint.objects.filter(run=run).values_list("attempt", "step", "name", "value")
    turns = Turn.objects.filter(run=run).values_list("rollout_id", "number", "messages")
    return {
        "points": {(attempt, step, name): _value(value) for attempt, step, name, value in points},
        "rollouts": {str(pk): status for pk, status in Rollout.objects.filter(run=run).values_list("pk", "status")},
        "turns": {(str(rollout), number): messages[0]["content"] for rollout, number, messages in turns},
        "groups": set(RolloutGroup.objects.filter(run=run).values_list("attempt", "step", "group")),
        "saved": set(Checkpoint.objects.filter(run=run).values_list("attempt", "path")),
        "phases": RunEvent.objects.filter(run=run, kind="phase").count(),
    }


def assert_exact(run: Run) -> None:
    """The database is the journal, every line of it, once; and every ``seq`` is one row's."""
    journalled, kept = journal_says(run), database_says(run)
    for key, value in journalled.items():
        assert kept[key] == value, f"{key} differ"
    run.refresh_from_db()
    numbers = [
        seq
        for model in (MetricPoint, Rollout, Turn, RolloutGroup, Checkpoint, RunEvent)
        for seq in model.objects.filter(run=run).values_list("seq", flat=True)
    ]
    assert len(numbers) == len(set(numbers)) and max(numbers) <= run.seq
    for attempt in Attempt.objects.filter(run=run):
        path = attempt_dir(run.pk, attempt.number) / "journal.jsonl"
        whole = path.read_bytes().rfind(b"\n") + 1 if path.exists() else 0
        assert attempt.journal_offset == whole
    assert not any(math.isnan(0 if value is None else value) for value in [run.last_reward])
