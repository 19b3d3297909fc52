"""One batch of journal events as rows: what the events say, before anything is written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection, models
from django.utils.timezone import localdate
from pydantic import ValidationError

from training import journal as run_events
from training.evaluation import Report
from training.journal import Event, RunFinished
from training.lanes import LaneStep
from training.plain import whole
from training.redaction import redact
from webapp.common.storage import attempt_dir, inside
from webapp.common.text import clean_json, clean_text
from webapp.runs.metrics.models import DeviceStep
from webapp.runs.models import Run, RunEvent
from webapp.runs.registry.models import Checkpoint, CheckpointState
from webapp.runs.rollouts.figures import Played, decide, judge_functions, note, surprises
from webapp.runs.rollouts.models import NumbersField, Rollout, RolloutGroup, RolloutStatus, Turn, rollout_id
from webapp.runs.rollouts.words import numbers_of

# --- Time budget ----------------------------------------------------------------------------------------------------
# The time budget in a run's health: ``time: {hours, of, over}``, for its page, the API and the client.

USED = "timing/hours"


def time_used(values: Mapping[str, float], config: Mapping[str, Any], health: Mapping[str, Any]) -> dict[str, Any]:
    """The run's health after a step with these metrics, as a change of its row; nothing where they do not say. ``of``:
    hours that the run may take, as its config says."""
    hours = values.get(USED)
    if hours is None or not math.isfinite(hours):
        return {}
    most = (config.get("run") or {}).get("max_hours")
    used = {"hours": round(hours, 4), "of": float(most) if isinstance(most, int | float) and most else None}
    return {"health": {**health, "time": used}}


def time_over(event: RunFinished, health: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a run that ended because its time was over: the hours that its last step reported, and its step."""
    if event.hours is None:
        return {}
    used = (health.get("time") or {}).get("hours", event.hours)
    return {"health": {**health, "time": {"hours": used, "of": event.hours, "over": event.step}}}


# --- Checked --------------------------------------------------------------------------------------------------------
# Checks numbers of events before they go into a column: a journal may have any value.

INT_MAX = 2**31 - 1


class BadEvent(Exception):
    """An event that is well-formed JSON but cannot be true; its message says why."""


def checked_int(value: int | None, what: str) -> int:
    """A count that a column can hold. Raises ``BadEvent``."""
    if value is None or not 0 <= value <= INT_MAX:
        raise BadEvent(f"{what} {value} is out of range")
    return value


def checked_time(t: float) -> datetime:
    """A time from seconds since 1970. Raises ``BadEvent``."""
    try:
        return datetime.fromtimestamp(t, UTC)
    except (OverflowError, ValueError, OSError) as exc:
        raise BadEvent(f"time {t} is out of range") from exc


def time_later(at: datetime, seconds: float) -> str:
    """The time ``seconds`` after ``at``, as ISO 8601. Raises ``BadEvent``."""
    try:
        return (at + timedelta(seconds=max(0.0, seconds))).isoformat()
    except (OverflowError, ValueError) as exc:
        raise BadEvent(f"a wait of {seconds} s is out of range") from exc


NAME_MAX, PART_MAX = 120, 40
LOG_MAX = 10_000
STEP_SMOOTHING = 0.3
MAX_TOKENS, MAX_COST = 10**15, 1e12
"""The largest plausible use of an endpoint by one run; larger figures are ignored."""
NEWEST = {"reward": "last_reward", "rollouts/task_success": "success", "heldout/success": "heldout_success"}
"""Metrics whose newest figure is copied into the run's own row, so that lists need not look for it."""


class Batch:
    """Rows gathered from events, one a key: within a batch the last event wins, as it does between batches."""

    def __init__(
        self,
        run: Run,
        attempt: int,
        known: dict[UUID, Rollout] | None = None,
        functions: Mapping[str, str] | None = None,
    ) -> None:
        """``known`` are rollouts as the database has them; the batch changes them as events continue them.

        ``functions`` are those of the run's reward components, where the caller keeps them.
        """
        self.run, self.attempt = run, attempt
        self.points: dict[tuple[str, int], float] = {}
        self.rollouts: dict[UUID, Rollout] = {}
        self.turns: dict[tuple[UUID, int], Turn] = {}
        self.begun_anew: set[UUID] = set()
        self.groups: dict[tuple[int, int], RolloutGroup] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.devices: dict[tuple[int, str, str], DeviceStep] = {}
        self.events: list[tuple[str, dict[str, Any], datetime]] = []
        self.run_changes: dict[str, Any] = {}
        self.attempt_changes: dict[str, Any] = {}
        self.used: dict[date, tuple[int, float | None, datetime]] = {}
        self.begins = False
        self._known = {} if known is None else known
        self._functions = judge_functions(run) if functions is None else functions

    def __len__(self) -> int:
        """How many rows, and so how many ``seq`` numbers, the batch needs; the rows of devices have none."""
        parts = (self.points, self.rollouts, self.turns, self.groups, self.checkpoints, self.events)
        return sum(len(part) for part in parts)

    def preload(self, events: list[Event]) -> None:
        """Read the rollouts that the events continue and that are not known yet, in one query."""
        names: set[str] = set()
        begun: set[str] = set()
        for event in events:
            if isinstance(event, run_events.RolloutStarted):
                begun.add(event.rollout)
            else:
                names.update([event.rollout] if hasattr(event, "rollout") else getattr(event, "rollouts", []))
        ids = {rollout_id(self.run.pk, self.attempt, name) for name in names - begun}.difference(self._known)
        if ids:
            self._known |= Rollout.objects.in_bulk(ids)

    def add(self, event: Event) -> None:
        """Take in one event. ``BadEvent`` leaves the batch as it was."""
        _HANDLERS[type(event)](self, event)

    def warn(self, line: int, why: str, at: datetime) -> None:
        """Note a journal line that could not be used."""
        message = f"Journal line {line} was left out: {why}"
        self.events.append(("warning", {"code": "journal_line", "line": line, "message": clean_text(message)}, at))

    def _run_started(self, event: run_events.RunStarted) -> None:
        step, at = checked_int(event.from_step, "step"), checked_time(event.t)
        total = checked_int(event.total_steps, "total_steps")
        self.run_changes |= {"total_steps": total, "step": step, "step_seconds": None, "last_step_at": at, "held": None}
        self._keep_seconds("save_seconds", event.save_seconds)
        self.attempt_changes |= {"first_step": step, "last_step": step}
        shown = {"kind", "total_steps", "from_step", "rows", "device", "versions", "resolved"}
        payload = event.model_dump(mode="json", include=shown)
        self.events.append(("attempt", {"number": self.attempt, **clean_json(payload)}, at))

    def _stage_started(self, event: run_events.StageStarted) -> None:
        """Record the stage: one that is entered again replaces its earlier entry and those after it."""
        number, of, began = (
            checked_int(event.stage, "stage"),
            checked_int(event.of, "of"),
            checked_int(event.began, "step"),
        )
        before = [each for each in self._present_value("health").get("stages", []) if each["stage"] < number]
        now = {"stage": number, "of": of, "name": self._add_event(event)["name"], "began": began}
        self._report("stages", [*before, now])

    def _phase(self, event: run_events.PhaseChanged) -> None:
        step = checked_int(event.step, "step")
        self.events.append(("phase", {"phase": event.phase, "step": step}, checked_time(event.t)))
        self.run_changes["phase"] = event.phase
        self.begins = self.begins or event.phase not in {"preparing", "saving"}

    def _metrics(self, event: run_events.Metrics) -> None:
        step, at = checked_int(event.step, "step"), checked_time(event.t)
        for name, value in event.values.items():
            self.points[clean_text(name)[:NAME_MAX], step] = value
        for name, column in NEWEST.items():
            if name in event.values:
                self.run_changes[column] = event.values[name]
        if (tokens := whole(event.values.get("endpoint/tokens"), MAX_TOKENS)) is not None:
            cost = event.values.get("endpoint/cost")
            self.used[localdate(at)] = (tokens, cost if cost is not None and 0 <= cost <= MAX_COST else None, at)
        self.run_changes |= time_used(event.values, self.run.config, self._present_value("health"))
        self._keep_seconds("update_seconds", event.values.get("timing/training"))
        self._step_done(step, at)
        self.begins = True

    def _device_step(self, event: run_events.DeviceStep) -> None:
        step, at = checked_int(event.step, "step"), checked_time(event.t)
        host, device = clean_text(event.host)[:NAME_MAX], clean_text(event.device)[:NAME_MAX]
        lane = clean_json(event.model_dump(mode="json", include=set(LaneStep.model_fields)))
        held = self._present_value("health").get("held_step") == step
        place = {"step": step, "host": host, "device": device}
        self.devices[step, host, device] = DeviceStep(
            run_id=self.run.pk, attempt=self.attempt, at=at, held=held, lane=lane, **place
        )
        self.devices = {key: row for key, row in self.devices.items() if key[0] > step - DeviceStep.KEPT}

    def _step_done(self, step: int, at: datetime) -> None:
        before = self._present_value("step")
        since, smoothed = self._present_value("last_step_at"), self._present_value("step_seconds")
        if step > before and since is not None and at > since:
            took = (at - since).total_seconds() / (step - before)
            smoothed = took if smoothed is None else smoothed + STEP_SMOOTHING * (took - smoothed)
        if step != before:
            self.run_changes |= {"step": step, "last_step_at": at, "step_seconds": smoothed}
        self.attempt_changes["last_step"] = max(step, self.attempt_changes.get("last_step", 0))

    def _present_value(self, field: str) -> Any:
        return self.run_changes.get(field, getattr(self.run, field))

    def _rollout_started(self, event: run_events.RolloutStarted) -> None:
        key = rollout_id(self.run.pk, self.attempt, event.rollout)
        if event.again:  # its environment was lost: the turns so far are void
            self.begun_anew.add(key)
            self.turns = {place: turn for place, turn in self.turns.items() if place[0] != key}
        self.rollouts[key] = Rollout(
            id=key,
            run_id=self.run.pk,
            attempt=self.attempt,
            step=checked_int(event.step, "step"),
            group=checked_int(event.group, "group"),
            index=checked_int(event.index, "index"),
            row=None if event.row is None else checked_int(event.row, "row"),
            task=clean_text(event.task),
            policy=clean_text(event.policy)[:NAME_MAX],
            part=clean_text(event.part)[:PART_MAX],
            held_out=event.held_out,
            expected=clean_text(event.expected),
            started_at=checked_time(event.t),
        )

    def _rollout(self, name: str) -> Rollout:
        key = rollout_id(self.run.pk, self.attempt, name)
        found = self.rollouts.get(key) or self._known.get(key)
        if found is None:
            raise BadEvent(f"rollout {name[:80]!r} never started")
        return found

    def _turn(self, event: run_events.TurnAdded) -> None:
        rollout, number = self._rollout(event.rollout), checked_int(event.turn, "turn")
        tokens = checked_int(event.tokens, "tokens")
        messages = clean_json([message.model_dump(mode="json", exclude_none=True) for message in event.messages])
        self.turns[rollout.pk, number] = Turn(
            rollout_id=rollout.pk,
            run_id=self.run.pk,
            number=number,
            messages=messages,
            tokens=tokens,
            seconds=event.seconds,
            policy_step=None if event.policy_step is None else checked_int(event.policy_step, "policy_step"),
            parse_error=clean_text(event.parse_error or ""),
            wrote=(wrote := clean_text(event.wrote or "")),
            words=numbers_of(self.run.pk, messages, wrote),
        )
        note(rollout, messages, number)
        # While it is in flight the turns are counted here; its last event has the final figures.
        rollout.turns += any(message.role == "assistant" for message in event.messages) and number > 0
        rollout.tokens = min(rollout.tokens + tokens, INT_MAX)
        self.rollouts[rollout.pk] = rollout

    def _rollout_finished(self, event: run_events.RolloutFinished) -> None:
        rollout, at = self._rollout(event.rollout), checked_time(event.t)
        turns, tokens = checked_int(event.turns, "turns"), checked_int(event.tokens, "tokens")
        rollout.turns, rollout.tokens = turns, tokens
        rollout.status = RolloutStatus(event.status)
        rollout.reward, rollout.parts = event.reward, clean_json(event.parts)
        rollout.env_reward, rollout.env_parts = event.env_reward, clean_json(event.env_parts)
        rollout.turn_rewards = clean_json(event.turn_rewards)
        rollout.parse_errors = checked_int(event.parse_errors, "parse_errors")
        rollout.error = clean_json(event.error.model_dump(mode="json")) if event.error else None
        rollout.calls = None if event.calls is None else checked_int(event.calls, "calls")
        rollout.failed_calls = None if event.failed_calls is None else checked_int(event.failed_calls, "failed_calls")
        rollout.cost = event.cost
        rollout.policy_step = None if event.policy_step is None else checked_int(event.policy_step, "policy_step")
        rollout.seconds, rollout.finished_at = event.seconds, at
        decide(rollout, self._functions)
        self.rollouts[rollout.pk] = rollout

    def _group_scored(self, event: run_events.GroupScored) -> None:
        step, group = checked_int(event.step, "step"), checked_int(event.group, "group")
        if len(event.rollouts) != len(event.advantages):
            raise BadEvent("rollouts and advantages differ in number")
        scored = [self._rollout(name) for name in event.rollouts]
        rare = surprises([None if item.reward is None else Played(item.outcome, item.reward) for item in scored])
        if len(of_turns := event.turn_advantages or [None] * len(scored)) != len(scored):
            raise BadEvent("rollouts and advantages of their turns differ in number")
        for rollout, advantage, surprise, turns in zip(scored, event.advantages, rare, of_turns, strict=True):
            rollout.advantage, rollout.surprise = advantage, surprise
            rollout.turn_advantages = clean_json(turns)
            self.rollouts[rollout.pk] = rollout
        self.groups[step, group] = RolloutGroup(
            run_id=self.run.pk,
            attempt=self.attempt,
            step=step,
            group=group,
            reward_mean=event.reward_mean,
            reward_std=event.reward_std,
            zero_variance=event.zero_variance,
        )

    def _tasks_held_out(self, event: run_events.TasksHeldOut) -> None:
        counts = {name: checked_int(getattr(event, name), name) for name in ("groups", "leaked", "alike", "looked_at")}
        chosen: dict[str, Any] = {"source": event.source, "tasks": len(event.rows), **counts}
        part = clean_text(event.part)[:PART_MAX]
        self.events.append(("tasks_held_out", chosen | ({"part": part} if part else {}), checked_time(event.t)))
        known = self._present_value("health").get("held_out", {})
        if part:  # each part reports its own, and the run keeps them all
            parts = known.get("parts", {}) | {part: {"tasks": chosen["tasks"], **counts}}
            chosen |= {
                "parts": parts,
                **{name: sum(each[name] for each in parts.values()) for name in ("tasks", *counts)},
            }
        self._report("held_out", {**known, **chosen})

    def _held_out_evaluated(self, event: run_events.HeldOutEvaluated) -> None:
        step = checked_int(event.step, "step")
        try:
            report = Report.model_validate(event.report)
        except ValidationError as exc:
            raise BadEvent("the report of the held-out tasks cannot be read") from exc
        payload = {"step": step, "best": event.best, "report": clean_json(report.model_dump(mode="json"))}
        self.events.append(("held_out_evaluated", payload, checked_time(event.t)))
        success = report.figures.get("success")
        if success is None or success.value is None:
            return
        found = {"step": step, "success": success.value, "low": success.low, "high": success.high}
        known = self._present_value("health").get("held_out", {})
        self._report("held_out", {**known, "newest": found, **({"best": found} if event.best else {})})

    def _checkpoint(self, event: run_events.CheckpointSaved) -> None:
        folder = attempt_dir(self.run.pk, self.attempt)
        try:
            inside(folder, event.path)
        except ValueError as exc:
            raise BadEvent("the checkpoint lies outside the attempt's folder") from exc
        path = f"{self.attempt}/{event.path}"
        if len(path) > 200 or clean_text(path) != path or not 0 <= event.bytes < 2**63:
            raise BadEvent("the checkpoint's path or size cannot be stored")
        self._keep_seconds("save_seconds", event.seconds)
        if event.seconds is not None and math.isfinite(event.seconds) and not event.final:
            self.points["timing/saving", checked_int(event.step, "step")] = event.seconds
        self.checkpoints[path] = Checkpoint(
            project_id=self.run.project_id,
            run_id=self.run.pk,
            attempt=self.attempt,
            step=checked_int(event.step, "step"),
            path=path,
            bytes=event.bytes,
            final=event.final,
            created_at=checked_time(event.t),
            held_out=event.held_out,
        )

    def _keep_seconds(self, name: str, seconds: float | None) -> None:
        """Keep how many seconds a save or an update takes: the supervisor's grace before SIGKILL covers one more."""
        if seconds is not None and math.isfinite(seconds):
            self._report(name, seconds)

    def _checkpoints_removed(self, event: run_events.CheckpointsRemoved) -> None:
        """Mark them as removed, of every attempt: nothing may start from them any more."""
        at, torn = checked_time(event.t), event.why == "torn"
        paths = [self._run_path(path) for path in event.paths]
        found = {row.path: row for row in Checkpoint.objects.filter(run_id=self.run.pk, path__in=paths)}
        for path in paths:
            row = self.checkpoints.get(path) or found.get(path)
            if row is not None:
                row.state = CheckpointState.TORN if torn else CheckpointState.REMOVED
                row.torn_at, row.removed_at = (at, row.removed_at) if torn else (row.torn_at, at)
                self.checkpoints[path] = row
        self.events.append(("checkpoints_removed", {"why": event.why, "paths": clean_json(paths)}, at))

    def _run_path(self, path: str) -> str:
        """A path below the run's folder; one that names no attempt belongs to this one."""
        head, _slash, rest = path.partition("/")
        return path if head.isdigit() and rest else f"{self.attempt}/{path}"

    def _log(self, event: run_events.LogLine) -> None:
        message = clean_text(redact(event.message[:LOG_MAX]))
        self.events.append(("log", {"level": event.level, "message": message}, checked_time(event.t)))

    def _add_event(self, event: Event) -> dict[str, Any]:
        """Add the event unchanged to the run's events; return its payload without the type."""
        payload: dict[str, Any] = clean_json(event.model_dump(mode="json", exclude={"v", "n", "t"}))
        self.events.append((payload.pop("type"), payload, checked_time(event.t)))
        return payload

    def _held(self, event: run_events.Held) -> None:
        at = checked_time(event.t)
        held = {
            "step": checked_int(event.step, "step"),
            "tries": checked_int(event.tries, "tries"),
            "next_try_at": time_later(at, event.next_try_s),
            "until": time_later(at, event.patience_left_s),
            **({"part": clean_text(event.part)[:PART_MAX]} if event.part else {}),
        }
        error, before = self._add_event(event)["error"], self._present_value("held") or {}
        if error:
            self._report("held_step", held["step"])
            self.run_changes["held"] = {**held, "error": error, "since": before.get("since") or at.isoformat()}
            return
        if before.get("part", "") != held.get("part", ""):
            return  # another part of the mix still waits
        self.run_changes["held"] = None
        if before.get("since") and self._present_value(
            "last_step_at"
        ):  # waiting says nothing about the pace of the steps
            self.run_changes["last_step_at"] = self._present_value("last_step_at") + (
                at - datetime.fromisoformat(before["since"])
            )

    def _resumed(self, event: run_events.Resumed) -> None:
        self._report("resumed", self._add_event(event) | {"attempt": self.attempt})

    def _sampler_checked(self, event: run_events.SamplerChecked) -> None:
        self._report("sampler", self._add_event(event))

    def _update_skipped(self, event: run_events.UpdateSkipped) -> None:
        before, step = self._present_value("health").get("skipped", {}), checked_int(event.step, "step")
        self._add_event(event)
        self._report("skipped", {"count": int(before.get("count", 0)) + 1, "step": step, "what": event.what})

    def _report(self, name: str, value: Any) -> None:
        self.run_changes["health"] = {**self._present_value("health"), name: value}

    def _run_finished(self, event: run_events.RunFinished) -> None:
        self.attempt_changes["outcome"] = clean_json(event.model_dump(mode="json"))
        self.attempt_changes["last_step"] = max(
            checked_int(event.step, "step"), self.attempt_changes.get("last_step", 0)
        )
        self.run_changes |= time_over(event, self._present_value("health"))


_HANDLERS: dict[type[Event], Callable[[Batch, Any], None]] = {
    run_events.RunStarted: Batch._run_started,
    run_events.StageStarted: Batch._stage_started,
    run_events.PhaseChanged: Batch._phase,
    run_events.Metrics: Batch._metrics,
    run_events.DeviceStep: Batch._device_step,
    run_events.RolloutStarted: Batch._rollout_started,
    run_events.TurnAdded: Batch._turn,
    run_events.RolloutFinished: Batch._rollout_finished,
    run_events.GroupScored: Batch._group_scored,
    run_events.TasksHeldOut: Batch._tasks_held_out,
    run_events.HeldOutEvaluated: Batch._held_out_evaluated,
    run_events.CheckpointSaved: Batch._checkpoint,
    run_events.CheckpointsRemoved: Batch._checkpoints_removed,
    run_events.Resumed: Batch._resumed,
    run_events.Held: Batch._held,
    run_events.UpdateSkipped: Batch._update_skipped,
    run_events.SamplerChecked: Batch._sampler_checked,
    run_events.LogLine: Batch._log,
    run_events.RunFinished: Batch._run_finished,
}


# --- Rows -----------------------------------------------------------------------------------------------------------
# The rows of a batch as statements that are made before a transaction begins, and only run in it.
#
# A transaction that takes a run's ``seq`` locks the run's row: others wait while it computes, and PostgreSQL ends one
# that is silent for too long. So all rows of a table are one document of JSON, which PostgreSQL reads by the table's
# own columns; the numbers in it count from 0, and the statement adds the first one that the transaction was given.

POINTS = (
    "INSERT INTO metrics_metricpoint (run_id, attempt, step, name, value, seq)"
    " SELECT %(run)s, %(attempt)s, step, name, value, %(first)s + %(place)s + number - 1"
    " FROM unnest(%(steps)s::int[], %(names)s::text[], %(values)s::float8[]) WITH ORDINALITY"
    " AS new (step, name, value, number)"
    " ON CONFLICT (run_id, name, step, attempt) DO UPDATE SET value = excluded.value, seq = excluded.seq"
)
FORGET_TURNS = "DELETE FROM rollouts_turn WHERE rollout_id = ANY(%(rollouts)s)"
FORGET_DEVICES = (
    "DELETE FROM metrics_devicestep WHERE run_id = %(run)s"
    " AND (step <= %(outdated)s OR attempt < %(attempt)s AND step >= %(again)s)"
)


@dataclass(frozen=True)
class Statement:
    """SQL with its values, but for ``first``: the number that the transaction is given."""

    sql: str
    values: dict[str, Any]


def statements_of(batch: Batch) -> list[Statement]:
    """Everything in the batch, in the order of its numbers: rollouts first, so that their turns follow them."""
    return list(_statements(batch))


def write_rows(statements: Iterable[Statement], first: int) -> None:
    """Upsert what the statements say, numbering rows from ``first``."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.sql, {**statement.values, "first": first})


def _statements(batch: Batch) -> Iterator[Statement]:
    place = 0
    events = [
        RunEvent(run_id=batch.run.pk, attempt=batch.attempt, kind=kind, payload=payload, at=at)
        for kind, payload, at in batch.events
    ]
    tables: tuple[tuple[type[models.Model], Iterable[models.Model], tuple[str, ...]], ...] = (
        (Rollout, batch.rollouts.values(), ("id",)),
        (Turn, batch.turns.values(), ("rollout_id", "number")),
        (RolloutGroup, batch.groups.values(), ("run_id", "attempt", "step", "group")),
        (Checkpoint, batch.checkpoints.values(), ("run_id", "attempt", "path")),
        (RunEvent, events, ()),
        (DeviceStep, batch.devices.values(), ("run_id", "step", "host", "device")),
    )
    for model, rows, unique in tables:
        if model is Turn and batch.begun_anew:
            yield Statement(FORGET_TURNS, {"rollouts": list(batch.begun_anew)})
        if model is DeviceStep and batch.devices:
            steps = [step for step, _host, _device in batch.devices]
            ends = {"outdated": max(steps) - DeviceStep.KEPT, "again": min(steps)}
            yield Statement(FORGET_DEVICES, {"run": batch.run.pk, "attempt": batch.attempt, **ends})
        if model is RunEvent and batch.points:
            yield Statement(POINTS, {"place": place, **_point_arrays(batch)})
            place += len(batch.points)
        if document := _rows_document(model, rows, place):
            yield Statement(_upsert_sql(model, unique), {"rows": json.dumps(document, **JSON)})
        place += len(document)


def _point_arrays(batch: Batch) -> dict[str, Any]:
    """Curves are the bulk of a run: one array for each column, however many points."""
    names, steps = [key[0] for key in batch.points], [key[1] for key in batch.points]
    columns = {"names": names, "steps": steps, "values": list(batch.points.values())}
    return {"run": batch.run.pk, "attempt": batch.attempt, **columns}


def _json_default(value: object) -> str:
    """A value that JSON has no type for, as text that PostgreSQL reads. Raises ``TypeError`` for others."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no value of a column")


JSON: dict[str, Any] = {"ensure_ascii": False, "allow_nan": False, "default": _json_default, "separators": (",", ":")}


def _rows_document(model: type[models.Model], rows: Iterable[models.Model], place: int) -> list[dict[str, Any]]:
    fields = _written_fields(model)
    columns = [(field.attname, field.column) for field in fields]
    document = [{column: getattr(row, attribute) for attribute, column in columns} for row in rows]
    numbers = [field for field in fields if isinstance(field, NumbersField)]
    floats = [field.column for field in fields if isinstance(field, models.FloatField)]
    for number, row in enumerate(document, start=place):
        row["seq"] = number
        row |= {name: str(row[name]) for name in floats if row[name] is not None and not math.isfinite(row[name])}
        for field in numbers:  # as one text: PostgreSQL takes long over each number of a document
            row[field.column] = field.get_db_prep_value(row[field.column], connection)
    return document


def _written_fields(model: type[models.Model]) -> list[Any]:
    """All columns but a number that PostgreSQL counts itself."""
    return [field for field in model._meta.concrete_fields if not isinstance(field, models.AutoField)]


@lru_cache
def _upsert_sql(model: type[models.Model], unique: tuple[str, ...]) -> str:
    """All rows of the document into the table; one that is there by ``unique`` gets their other columns."""
    types = {field.column: str(field.db_type(connection)) for field in _written_fields(model)}
    read = {field.column: "text" for field in _written_fields(model) if isinstance(field, NumbersField)}
    values = [f'new."{name}"::{type_}' if name in read else f'new."{name}"' for name, type_ in types.items()]
    shape = ", ".join(f'"{name}" {read.get(name, type_)}' for name, type_ in types.items())
    changed = [f'"{name}" = excluded."{name}"' for name in types if name not in {"id", *unique}]
    conflict = f" ON CONFLICT ({_quoted_columns(unique)}) DO UPDATE SET {', '.join(changed)}" if unique else ""
    return (
        f"INSERT INTO {model._meta.db_table} ({_quoted_columns(types)})"  # noqa: S608 - names of our own tables
        f" SELECT {', '.join(values)} FROM json_to_recordset(%(rows)s::json) AS new ({shape}){conflict}"
    ).replace('new."seq"', 'new."seq" + %(first)s')


def _quoted_columns(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)
