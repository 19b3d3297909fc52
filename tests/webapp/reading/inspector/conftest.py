"""A run of two steps whose rollouts differ in all that one can look for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from webapp.runs.models import Attempt, Run
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn
from webapp.runs.rollouts.words import numbers_of

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
COMPONENTS = [{"name": "task_success", "weight": 0.6}, {"name": "tool_call", "weight": 0.4}]
LATE = {"code": "environment_timeout", "boundary": "environment", "message": "late", "hint": ""}
# name: step, group, index, what differs
ROWS: dict[str, tuple[int, int, int, dict[str, Any]]] = {
    "right": (1, 0, 0, {"outcome": "solved", "reward": 1.0, "parts": {"task_success": 1.0, "tool_call": 1.0}}),
    "wrong": (1, 0, 1, {"outcome": "failed", "reward": 0.2, "parts": {"task_success": 0.0, "tool_call": 0.5}}),
    "cut": (1, 0, 2, {"outcome": "failed", "reward": 0.0, "status": "truncated", "parts": {"tool_call": 0.0}}),
    "lost": (1, 0, 3, {"outcome": "excluded", "reward": None, "status": "excluded", "error": LATE}),
    "half": (2, 0, 0, {"outcome": "partly", "reward": 0.5, "parts": {"task_success": 0.5, "tool_call": None}}),
    "mute": (2, 0, 1, {"outcome": "no_verdict", "reward": 0.3}),
    "held": (2, 0, 0, {"outcome": "failed", "reward": 0.1, "held_out": True}),
    "open": (2, 1, 0, {"outcome": "in_flight", "status": "running", "reward": None}),
}
TEXTS = {
    "right": "I ask the calculator: 9 * 5 is 45.",
    "wrong": "I think that 9 * 5 is 54.",
    "cut": "今天天气很好，我们需要先查询",
    "half": 'The tool said "no_such_city" and 100% of it',
}


class Played(NamedTuple):
    """The run, and its rollouts by name."""

    run: Run
    rows: dict[str, Rollout]

    def names(self, found: Any) -> list[str]:
        """What these rollouts are called here."""
        known = {row.pk: name for name, row in self.rows.items()}
        return [known[row.pk] for row in found]


@pytest.fixture
def played(make_run: Callable[..., Run]) -> Played:
    """All of ``ROWS``, each with a prompt and one turn."""
    run = make_run(name="night", state="succeeded", attempt=1, step=2)
    run.config["rewards"]["components"] = COMPONENTS
    run.save(update_fields=["config"])
    Attempt.objects.create(run=run, number=1, owner="w", started_at=BEGAN, last_step=2)
    rows = {}
    for number, (name, (step, group, index, values)) in enumerate(ROWS.items()):
        fields: dict[str, Any] = {"status": "completed", "turns": number + 1, "tokens": 10 * number, **values}
        row = Rollout.objects.create(
            run=run, attempt=1, step=step, group=group, index=index, row=number, task=f"task of {name}",
            tools=["calculator"] if name in ("right", "wrong") else ["get_weather", "python"] if name == "cut" else [],
            surprise=float(number) if number < 4 else None, advantage=0.1 * number, seconds=number,
            policy_step=step - 1,
            characters=len(TEXTS.get(name, "")), started_at=BEGAN + timedelta(seconds=number), seq=number + 1, **fields,
        )  # fmt: skip
        talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"the question of {name}"}]
        turns = [talk, [{"role": "assistant", "content": TEXTS.get(name, "Nothing to say.")}]]
        for place, messages in enumerate(turns):
            words = numbers_of(run.pk, messages)
            Turn.objects.create(rollout=row, run=run, number=place, messages=messages, words=words, seq=number + 1)
        rows[name] = row
    RolloutGroup.objects.create(
        run=run, attempt=1, step=1, group=0, reward_mean=0.4, reward_std=0.5, zero_variance=False, seq=9
    )
    return Played(run, rows)
