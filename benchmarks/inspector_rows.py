"""A run with as many turns as wanted, written by COPY: what ``benchmarks/inspector.py`` searches."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from django.db import connection

from training import journal as run_events
from training.config import JobConfig
from webapp.common.words import outcome_of
from webapp.engine.batch import Batch, statements_of, write_rows
from webapp.people.teams.models import Membership, Project, Team, User
from webapp.runs.metrics.models import MetricPoint
from webapp.runs.models import Run
from webapp.runs.rollouts.figures import Played, surprises
from webapp.runs.rollouts.models import Rollout, RolloutGroup, Turn
from webapp.runs.rollouts.words import numbers_of

GROUP, GROUPS, TURNS = 8, 16, 4
TOOLS = ("calculator", "get_weather", "search_flights", "convertCurrency", "python", "send_message")
CITIES = ("北京", "上海", "广州", "成都", "Hamburg", "Osaka", "São Paulo", "Nairobi")
WORDS = [
    "answer",
    "question",
    "number",
    "total",
    "because",
    "therefore",
    "first",
    "second",
    "result",
    "value",
    "tool",
    "call",
    "check",
    "again",
    "think",
    "about",
    "sum",
    "product",
    "price",
    "weather",
    "tomorrow",
    "today",
    "city",
    "flight",
    "message",
    "wrong",
    "right",
    "maybe",
    "certain",
    "compare",
    "larger",
    "smaller",
    "before",
    "after",
    "between",
    "minutes",
    "hours",
    "days",
    "table",
    "list",
    "name",
    "file",
    "line",
    "code",
    "function",
    "return",
    "error",
    "missing",
    "argument",
    "string",
]
CHINESE = (
    "今天天气很好我们需要先查询再计算结果是多少请稍等根据工具返回的数据可以得出答案明天可能下雨温度大约度建议带伞出门"
)
SYSTEM = "You are a careful assistant. Use the tools when a number or a fact is asked for, and answer in one sentence."
LATE = {"code": "environment_timeout", "boundary": "environment", "message": "late", "hint": ""}
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
COMPONENTS = [
    {"name": "task_success", "weight": 0.6},
    {"name": "tool_call", "weight": 0.2},
    {"name": "length_penalty", "weight": 0.2},
]


class Made(NamedTuple):
    """The rows that were written."""

    run: Run
    user: User
    rollouts: int
    turns: int


def fill(turns: int, seed: int = 7) -> Made:
    """A finished run of about so many turns, ``TURNS`` to a rollout, and a curve point for every fourth of them."""
    team = Team.objects.create(name="Bench")
    user = User.objects.create(username="reader")
    Membership.objects.create(team=team, user=user, role="owner")
    project = Project.objects.create(team=team, name="Bench", slug="bench")
    config = JobConfig().model_dump(mode="json")
    config["rewards"]["components"] = COMPONENTS
    steps = max(1, turns // (GROUP * GROUPS * TURNS))
    run = Run.objects.create(
        project=project, name="large", kind="grpo", config=config, state="succeeded", attempt=1, step=steps,
        total_steps=steps, started_at=BEGAN, finished_at=BEGAN + timedelta(days=2),
    )  # fmt: skip
    rng = random.Random(seed)
    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
    for begin in range(0, steps, 50):
        write(rng, run, range(begin, min(begin + 50, steps)))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE" if connection.in_atomic_block else "VACUUM ANALYZE")
    return Made(run, user, steps * GROUP * GROUPS, steps * GROUP * GROUPS * TURNS)


def write(rng: random.Random, run: Run, steps: range) -> None:
    """The rollouts of a run's steps with their turns, groups and curves."""
    rollouts: list[Rollout] = []
    turns: list[Turn] = []
    groups: list[RolloutGroup] = []
    for step in steps:
        for group in range(GROUPS):
            made = [_rollout(rng, run, step, group, index) for index in range(GROUP)]
            played = [Played(item.outcome, item.reward) if item.reward is not None else None for item in made]
            for item, rare in zip(made, surprises(played), strict=True):
                item.surprise = rare
                turns += _turns(rng, item)
            rollouts += made
            groups.append(
                RolloutGroup(run=run, attempt=1, step=step, group=group, reward_mean=0.5, zero_variance=False, seq=0)
            )
    _copy(Rollout, rollouts)
    _copy(Turn, turns)
    RolloutGroup.objects.bulk_create(groups)
    MetricPoint.objects.bulk_create(
        MetricPoint(run=run, attempt=1, step=step, name=f"metric/{number}", value=rng.random(), seq=0)
        for step in steps
        for number in range(GROUP * GROUPS * TURNS // 32)
    )


def _rollout(rng: random.Random, run: Run, step: int, group: int, index: int) -> Rollout:
    excluded = rng.random() < 0.01
    success = None if excluded else float(rng.random() < 0.4 + 0.4 * (group % 2))
    parts = {} if success is None else {"task_success": success, "tool_call": rng.choice((0.0, 0.5, 1.0))}
    if success is not None:
        parts["length_penalty"] = -round(rng.random() * 0.3, 4)
    reward = None if success is None else sum(COMPONENTS[n]["weight"] * v for n, v in enumerate(parts.values()))  # type: ignore[operator,misc]
    began = BEGAN + timedelta(seconds=step * 20)
    return Rollout(
        id=uuid.uuid5(run.pk, f"{step}/{group}/{index}"), run=run, attempt=1, step=step, group=group, index=index,
        row=(step * GROUPS + group) % 2000, task=_sentence(rng, 12),
        status="excluded" if excluded else "truncated" if rng.random() < 0.05 else "completed",
        outcome="excluded" if excluded else outcome_of(success), reward=reward, parts=parts,
        env_parts={} if success is None else {"task_success": success}, advantage=rng.gauss(0, 1),
        error=LATE if excluded else None,
        turns=2, tokens=rng.randrange(20, 400), characters=rng.randrange(80, 1600),
        tools=rng.sample(TOOLS, rng.randrange(3)), calls=2, failed_calls=0, seconds=rng.random() * 9,
        policy_step=step, started_at=began, finished_at=began + timedelta(seconds=9), seq=step,
    )  # fmt: skip


def _turns(rng: random.Random, rollout: Rollout) -> Iterator[Turn]:
    a, b = rng.randrange(1, 99), rng.randrange(1, 99)
    tool = rng.choice(TOOLS)
    call = {"id": "c", "name": tool, "arguments": {"expression": f"{a} * {b}", "city": rng.choice(CITIES)}}
    turns = [
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"What is {a} * {b}? {rollout.task}"}],
        [{"role": "assistant", "content": _sentence(rng, 40), "tool_calls": [call]}],
        [{"role": "tool", "name": tool, "content": f"{tool} returned {a * b}. {_sentence(rng, 20)}"}],
        [{"role": "assistant", "content": f"{_sentence(rng, 25)} It is {a * b}."}],
    ]
    for number, messages in enumerate(turns):
        yield Turn(
            rollout=rollout, run_id=rollout.run_id, number=number, messages=messages, tokens=30,
            seconds=1.5, policy_step=rollout.step, words=numbers_of(rollout.run_id, messages), seq=rollout.step,
        )  # fmt: skip


def _sentence(rng: random.Random, length: int) -> str:
    if rng.random() < 0.3:
        start = rng.randrange(len(CHINESE))
        return (CHINESE * 4)[start : start + 2 * length]
    return " ".join(f"{rng.choice(WORDS)}{rng.randrange(900) if rng.random() < 0.1 else ''}" for _ in range(length))


def _copy(model: Any, rows: list[Any]) -> None:
    """COPY as text; the model's own columns, all of them."""
    fields = model._meta.concrete_fields
    names = ", ".join(f'"{field.column}"' for field in fields)
    with connection.cursor() as cursor, cursor.copy(f'COPY "{model._meta.db_table}" ({names}) FROM STDIN') as copy:
        for row in rows:
            copy.write_row([_plain(getattr(row, field.attname)) for field in fields])


def _plain(value: Any) -> Any:
    if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
        return json.dumps(value, ensure_ascii=False)
    return value


def turns_projected(number: int = 1000) -> float:
    """Milliseconds of projecting so many turns of a run, from events to rows."""
    run = Run.objects.create(
        project=Project.objects.get(slug="bench"), name=f"projected-{uuid.uuid4()}", kind="grpo", state="running",
        attempt=1, config=JobConfig().model_dump(mode="json"), seq=0,
    )  # fmt: skip
    rng, events = random.Random(1), []
    for place in range(number // TURNS):
        name, row = f"r{place}", _rollout(rng, run, 1, place // GROUP, place % GROUP)
        events.append(run_events.RolloutStarted(rollout=name, step=1, group=row.group, index=row.index, t=1.0))
        events += [
            run_events.TurnAdded(rollout=name, turn=turn.number, messages=turn.messages, t=1.0)
            for turn in _turns(rng, row)
        ]
        events.append(run_events.RolloutFinished(rollout=name, status="completed", reward=0.5, t=2.0))
    began = time.perf_counter()
    batch = Batch(run, 1)
    batch.preload(events)
    for event in events:
        batch.add(event)
    write_rows(statements_of(batch), 1)
    return (time.perf_counter() - began) * 1000
