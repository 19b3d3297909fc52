"""What each journal event becomes, field by field. Rows are only made here: no database is asked."""

from __future__ import annotations

import math
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from envs.wire import Message
from training import journal as run_events
from training.errors import ErrorInfo
from webapp.engine.batch import BadEvent, Batch, rollout_id
from webapp.runs.models import Run
from webapp.runs.registry.models import CheckpointState
from webapp.runs.rollouts.models import Rollout

RUN = UUID("00000000-0000-0000-0000-0000000000aa")
PROJECT = UUID("00000000-0000-0000-0000-0000000000bb")
T = 1_700_000_000.5
AT = datetime(2023, 11, 14, 22, 13, 20, 500_000, UTC)
ERROR = ErrorInfo(code="environment_timeout", boundary="environment", message="slow", hint="wait")


def batch_of(*events: run_events.Event, attempt: int = 2, **fields: Any) -> Batch:
    batch = Batch(Run(pk=RUN, project_id=PROJECT, **fields), attempt)
    for event in events:
        event.t = event.t or T
        batch.add(event)
    return batch


def started(name: str = "a", **over: Any) -> run_events.RolloutStarted:
    fields: dict[str, Any] = {"step": 3, "group": 1, "index": 5, "row": 7, "task": "sum", "policy": "beg"}
    return run_events.RolloutStarted(rollout=name, **fields | over)


def test_ids_of_rollouts_are_of_run_attempt_and_name() -> None:
    assert rollout_id(RUN, 2, "a") == uuid.uuid5(RUN, "2/a")
    assert (
        len({rollout_id(RUN, 2, "a"), rollout_id(RUN, 3, "a"), rollout_id(RUN, 2, "b"), rollout_id(PROJECT, 2, "a")})
        == 4
    )


def test_a_start_sets_the_runs_step_and_length() -> None:
    event = run_events.RunStarted(
        kind="grpo", total_steps=20, from_step=4, rows=9, device="cpu", versions={"trl": "1"}, pid=12, save_seconds=1.5
    )
    batch = batch_of(event, step=9, health={"sampler": {"x": 1}})
    assert batch.run_changes == {
        "total_steps": 20,
        "step": 4,
        "step_seconds": None,
        "last_step_at": AT,
        "held": None,
        "health": {"sampler": {"x": 1}, "save_seconds": 1.5},
    }
    assert batch.attempt_changes == {"first_step": 4, "last_step": 4} and not batch.begins
    payload = {
        "number": 2,
        "kind": "grpo",
        "total_steps": 20,
        "from_step": 4,
        "rows": 9,
        "device": "cpu",
        "versions": {"trl": "1"},
        "resolved": {},
    }
    assert batch.events == [("attempt", payload, AT)] and len(batch) == 1


def test_a_start_leaves_what_else_has_changed() -> None:
    start = run_events.RunStarted(kind="grpo", total_steps=9)
    batch = batch_of(
        run_events.PhaseChanged(phase="saving", step=1), run_events.RunFinished(status="stopped", step=1), start
    )
    assert batch.run_changes["phase"] == "saving" and batch.run_changes["total_steps"] == 9
    assert batch.attempt_changes["outcome"]["status"] == "stopped" and batch.attempt_changes["last_step"] == 0


@pytest.mark.parametrize("phase", ["preparing", "generating", "scoring", "training", "saving"])
def test_a_run_begins_with_its_first_work(phase: Any) -> None:
    batch = batch_of(run_events.PhaseChanged(phase=phase, step=3))
    assert batch.events == [("phase", {"phase": phase, "step": 3}, AT)]
    assert batch.run_changes == {"phase": phase}
    assert batch.begins is (phase in {"generating", "scoring", "training"})
    batch.add(run_events.PhaseChanged(phase="saving", step=3, t=T))
    assert batch.begins is (phase in {"generating", "scoring", "training"})


def test_figures_become_points_and_the_newest_reward() -> None:
    batch = batch_of(run_events.Metrics(step=3, values={"reward": 0.5, "x" * 130: 2.0, "nul\x00": 1.0}))
    assert batch.points == {("reward", 3): 0.5, ("x" * 120, 3): 2.0, ("nul\u2400", 3): 1.0}
    assert batch.run_changes == {"last_reward": 0.5, "step": 3, "last_step_at": AT, "step_seconds": None}
    assert batch.attempt_changes == {"last_step": 3} and batch.begins and len(batch) == 3
    assert "last_reward" not in batch_of(run_events.Metrics(step=1, values={"loss": 1.0})).run_changes


def test_step_times_are_smoothed() -> None:
    """Two steps in 20 s are 10 s each; the next one of 20 s moves the figure by 0.3 of the difference."""
    batch = batch_of(run_events.RunStarted(kind="grpo", total_steps=9, from_step=1))
    batch.add(run_events.Metrics(step=3, values={}, t=T + 20))
    assert batch.run_changes["step_seconds"] == 10.0
    batch.add(run_events.Metrics(step=4, values={}, t=T + 40))
    assert batch.run_changes["step_seconds"] == pytest.approx(13.0)
    batch.add(run_events.Metrics(step=4, values={}, t=T + 90))  # the same step again shows nothing new
    assert batch.run_changes["step_seconds"] == pytest.approx(13.0)
    assert batch.run_changes["last_step_at"].timestamp() == T + 40
    batch.add(run_events.Metrics(step=2, values={}, t=T + 95))  # backwards: no duration, but the step is where it is
    assert (batch.run_changes["step"], batch.attempt_changes["last_step"]) == (2, 4)
    assert batch.run_changes["step_seconds"] == pytest.approx(13.0)
    batch.add(run_events.Metrics(step=3, values={}, t=T + 95))  # in no time: a clock that did not move
    assert batch.run_changes["step_seconds"] == pytest.approx(13.0)


def test_step_times_go_on_from_the_runs_row() -> None:
    batch = batch_of(run_events.Metrics(step=5, values={}, t=T + 8), step=4, step_seconds=4.0, last_step_at=AT)
    assert batch.run_changes["step_seconds"] == pytest.approx(5.2)


def test_a_rollout_begins() -> None:
    batch = batch_of(started(policy="p" * 130))
    (row,) = batch.rollouts.values()
    key = uuid.uuid5(RUN, "2/a")
    assert list(batch.rollouts) == [key] and not batch.begun_anew and len(batch) == 1
    assert (row.pk, row.run_id, row.attempt, row.step, row.group, row.index, row.row) == (key, RUN, 2, 3, 1, 5, 7)
    assert (row.task, row.policy, row.started_at, row.status, row.turns) == ("sum", "p" * 120, AT, "running", 0)
    assert next(iter(batch_of(started(row=None)).rollouts.values())).row is None


def test_turns_are_counted_while_a_rollout_is_in_flight() -> None:
    message = Message(role="assistant", content="5")
    batch = batch_of(
        started(),
        run_events.TurnAdded(
            rollout="a", turn=0, messages=[Message(role="user", content="2+3?"), message], seconds=0.5
        ),
        run_events.TurnAdded(rollout="a", turn=1, messages=[message], tokens=4, seconds=1.5),
        run_events.TurnAdded(rollout="a", turn=2, messages=[Message(role="tool", content="ok")], seconds=2.5),
        run_events.TurnAdded(rollout="a", turn=3, messages=[message], tokens=6, parse_error="not\x00 JSON"),
    )
    key = rollout_id(RUN, 2, "a")
    row = batch.rollouts[key]
    assert (row.turns, row.tokens) == (2, 10) and len(batch) == 5
    turn = batch.turns[key, 1]
    assert (turn.rollout_id, turn.run_id, turn.number, turn.tokens, turn.seconds) == (key, RUN, 1, 4, 1.5)
    assert turn.messages == [{"role": "assistant", "content": "5"}]
    assert [number for _key, number in batch.turns] == [0, 1, 2, 3]
    assert [turn.parse_error for turn in batch.turns.values()] == ["", "", "", "not␀ JSON"]
    batch.add(run_events.TurnAdded(rollout="a", turn=4, messages=[], tokens=2**31 - 1, t=T))
    assert row.tokens == 2**31 - 1


def test_a_rollout_that_begins_again_voids_its_own_turns_only() -> None:
    batch = batch_of(started("a"), started("b"))
    for name in ("a", "b"):
        batch.add(run_events.TurnAdded(rollout=name, turn=0, messages=[], t=T))
    again = started("a", again=1)
    again.t = T
    batch.add(again)
    assert batch.begun_anew == {rollout_id(RUN, 2, "a")} and list(batch.turns) == [(rollout_id(RUN, 2, "b"), 0)]


def finished(**over: Any) -> run_events.RolloutFinished:
    fields: dict[str, Any] = {
        "rollout": "a",
        "status": "truncated",
        "reward": 0.5,
        "parts": {"p": None, "q": 1.0},
        "env_reward": 0.25,
        "env_parts": {"e": 2.0},
        "parse_errors": 3,
        "error": ERROR,
        "turns": 4,
        "tokens": 40,
        "seconds": 6.5,
    }
    return run_events.RolloutFinished(**fields | over)


def test_a_rollout_ends_with_all_that_its_last_event_says() -> None:
    row = batch_of(started(), finished()).rollouts[rollout_id(RUN, 2, "a")]
    assert (row.status, row.reward, row.parts) == ("truncated", 0.5, {"p": None, "q": 1.0})
    assert (row.env_reward, row.env_parts, row.parse_errors) == (0.25, {"e": 2.0}, 3)
    assert (row.turns, row.tokens, row.seconds, row.finished_at) == (4, 40, 6.5, AT)
    assert row.error == ERROR.model_dump(mode="json") and row.error["code"] == "environment_timeout"
    assert batch_of(started(), finished(error=None)).rollouts[rollout_id(RUN, 2, "a")].error is None


def test_rollouts_of_earlier_batches_are_gone_on_with() -> None:
    key = rollout_id(RUN, 2, "a")
    known = {key: Rollout(pk=key, turns=1, tokens=2)}
    batch = Batch(Run(pk=RUN), 2, known)
    batch.preload([finished(), started("b")])  # both are known or begin here: nothing is asked of the database
    batch.add(finished(t=T))
    assert batch.rollouts == {key: known[key]} and known[key].tokens == 40
    for other in (batch, batch_of()):
        with pytest.raises(BadEvent, match=r"^rollout 'x{80}' never started$"):
            other.add(finished(rollout="x" * 200, t=T))


def scored(**over: Any) -> run_events.GroupScored:
    fields: dict[str, Any] = {"step": 3, "group": 1, "rollouts": ["a", "b"], "advantages": [1.5, None]}
    return run_events.GroupScored(**fields | {"reward_mean": 0.5, "reward_std": 0.25, "zero_variance": False} | over)


def test_a_group_is_scored() -> None:
    batch = batch_of(started("a"), started("b"), scored())
    assert [row.advantage for row in batch.rollouts.values()] == [1.5, None] and len(batch) == 3
    group = batch.groups[3, 1]
    assert (group.run_id, group.attempt, group.step, group.group) == (RUN, 2, 3, 1)
    assert (group.reward_mean, group.reward_std, group.zero_variance) == (0.5, 0.25, False)
    with pytest.raises(BadEvent, match=r"^rollouts and advantages differ in number$"):
        batch.add(scored(advantages=[1.0], t=T))


def test_a_checkpoint_is_saved() -> None:
    event = run_events.CheckpointSaved(step=3, path="checkpoint-3", bytes=7, final=True, seconds=2.5)
    batch = batch_of(event)
    row = batch.checkpoints["2/checkpoint-3"]
    assert (row.project_id, row.run_id, row.attempt, row.step) == (PROJECT, RUN, 2, 3)
    assert (row.path, row.bytes, row.final, row.created_at) == ("2/checkpoint-3", 7, True, AT)
    assert batch.run_changes == {"health": {"save_seconds": 2.5}} and len(batch) == 1
    assert batch_of(run_events.CheckpointSaved(step=3, path="x", bytes=0)).run_changes == {}
    odd = batch_of(run_events.CheckpointSaved(step=3, path="x", bytes=0, seconds=math.nan))
    assert (odd.run_changes, odd.points) == ({}, {})
    assert batch_of(run_events.CheckpointSaved(step=3, path="x", bytes=0, seconds=2.5)).points == {
        ("timing/saving", 3): 2.5
    }


@pytest.mark.parametrize(
    ("path", "size", "fits"),
    [("x" * 198, 0, True), ("x" * 199, 0, False), ("a\x01b", 2**63 - 1, True), ("a", 2**63, False), ("a", -1, False)],
)
def test_what_of_a_checkpoint_can_be_stored(path: str, size: int, fits: bool) -> None:
    event = run_events.CheckpointSaved(step=3, path=path, bytes=size)
    if fits:
        assert list(batch_of(event).checkpoints) == [f"2/{path}"]
        return
    with pytest.raises(BadEvent, match=r"^the checkpoint's path or size cannot be stored$"):
        batch_of(event)
    with pytest.raises(BadEvent, match=r"^the checkpoint lies outside the attempt's folder$"):
        batch_of(run_events.CheckpointSaved(step=3, path="../x", bytes=1))


@pytest.mark.django_db
@pytest.mark.parametrize(("why", "state"), [("torn", "torn"), ("old", "removed")])
def test_checkpoints_are_marked_as_gone(why: Any, state: str) -> None:
    batch = batch_of(
        run_events.CheckpointSaved(step=1, path="checkpoint-1", bytes=1),
        run_events.CheckpointSaved(step=2, path="checkpoint-2", bytes=1),
        run_events.CheckpointsRemoved(paths=["checkpoint-1", "1/checkpoint-9"], why=why),
    )
    gone, whole = batch.checkpoints["2/checkpoint-1"], batch.checkpoints["2/checkpoint-2"]
    assert (gone.state, whole.state) == (state, CheckpointState.WHOLE)
    assert (gone.torn_at, gone.removed_at) == ((AT, None) if why == "torn" else (None, AT))
    paths = ["2/checkpoint-1", "1/checkpoint-9"]
    assert batch.events == [("checkpoints_removed", {"why": why, "paths": paths}, AT)]
    assert list(batch.checkpoints) == ["2/checkpoint-1", "2/checkpoint-2"]


def test_log_lines_are_cut_and_cleaned() -> None:
    batch = batch_of(run_events.LogLine(level="warning", message="nul \x00 " + "x" * 20_000))
    assert batch.events == [("log", {"level": "warning", "message": "nul \u2400 " + "x" * 9_994}, AT)]


def test_a_held_step_says_what_it_waits_for_and_how_long() -> None:
    event = run_events.Held(step=3, error=ERROR, tries=2, next_try_s=1.5, patience_left_s=60)
    batch = batch_of(event)
    assert batch.run_changes == {
        "held": {
            "step": 3,
            "tries": 2,
            "next_try_at": "2023-11-14T22:13:22+00:00",
            "until": "2023-11-14T22:14:20.500000+00:00",
            "error": ERROR.model_dump(mode="json"),
            "since": "2023-11-14T22:13:20.500000+00:00",
        },
        "health": {"held_step": 3},
    }
    ((kind, payload, at),) = batch.events
    assert (kind, payload["step"], payload["tries"], at) == ("held", 3, 2, AT)
    assert set(payload) == {"step", "error", "tries", "next_try_s", "patience_left_s", "part"} and payload["part"] == ""
    batch.add(run_events.Held(step=3, next_try_s=-5, t=T))
    assert batch.run_changes == {"held": None, "health": {"held_step": 3}}, "which step it was stays known"
    past = batch_of(run_events.Held(step=3, error=ERROR, next_try_s=-5)).run_changes["held"]
    assert past["next_try_at"] == "2023-11-14T22:13:20.500000+00:00"
    with pytest.raises(BadEvent, match=r"^a wait of 1e\+300 s is out of range$"):
        batch_of(run_events.Held(step=3, error=ERROR, next_try_s=1e300))


def test_the_runs_health_is_what_was_reported_last() -> None:
    batch = batch_of(
        run_events.Resumed(source="1/checkpoint-3", step=3, lost_steps=2),
        run_events.SamplerChecked(step=1, tokens=9, max_gap=0.5, mean_gap=0.1, tolerance=1.0),
        run_events.UpdateSkipped(step=4, what="loss", in_a_row=1),
        run_events.UpdateSkipped(step=5, what="gradient", in_a_row=2),
        health={"skipped": {"count": 2}, "save_seconds": 1.0},
    )
    health = batch.run_changes["health"]
    assert set(health) == {"skipped", "save_seconds", "resumed", "sampler"} and health["save_seconds"] == 1.0
    assert health["skipped"] == {"count": 4, "step": 5, "what": "gradient"}
    assert health["resumed"] == {
        "source": "1/checkpoint-3",
        "step": 3,
        "lost_steps": 2,
        "set_aside": [],
        "verified": [],
        "attempt": 2,
    }
    assert health["sampler"] == {"step": 1, "tokens": 9, "max_gap": 0.5, "mean_gap": 0.1, "tolerance": 1.0}
    assert [kind for kind, _payload, _at in batch.events] == [
        "resumed",
        "sampler_checked",
        "update_skipped",
        "update_skipped",
    ]
    assert (
        batch_of(run_events.UpdateSkipped(step=4, what="loss", in_a_row=1)).run_changes["health"]["skipped"]["count"]
        == 1
    )


def test_the_last_word_is_the_attempts_outcome() -> None:
    batch = batch_of(
        run_events.Metrics(step=3, values={}), run_events.RunFinished(status="failed", step=5, error=ERROR, n=8)
    )
    assert batch.attempt_changes == {
        "last_step": 5,
        "outcome": {
            "v": 1,
            "n": 8,
            "t": T,
            "type": "run_finished",
            "status": "failed",
            "step": 5,
            "error": ERROR.model_dump(mode="json"),
        },
    }
    batch.add(run_events.RunFinished(status="succeeded", step=4, t=T))
    assert batch.attempt_changes["last_step"] == 5


def test_a_line_that_could_not_be_used_is_a_warning() -> None:
    batch = batch_of()
    assert batch.begins is False and len(batch) == 0
    batch.warn(12, "nul \x00", AT)
    message = "Journal line 12 was left out: nul \u2400"
    assert batch.events == [("warning", {"code": "journal_line", "line": 12, "message": message}, AT)]


TOO_LARGE = 2**31
OUT_OF_RANGE: dict[str, list[run_events.Event]] = {
    "step": [
        run_events.RunStarted(kind="grpo", total_steps=1, from_step=TOO_LARGE),
        run_events.PhaseChanged(phase="saving", step=-1),
        run_events.Metrics(step=TOO_LARGE, values={}),
        started(step=-1),
        scored(step=TOO_LARGE),
        run_events.CheckpointSaved(step=-1, path="x", bytes=1),
        run_events.Held(step=TOO_LARGE),
        run_events.UpdateSkipped(step=-1, what="loss", in_a_row=1),
        run_events.RunFinished(status="succeeded", step=TOO_LARGE),
    ],
    "total_steps": [run_events.RunStarted(kind="grpo", total_steps=-1)],
    "group": [started(group=TOO_LARGE), scored(group=-1)],
    "index": [started(index=-1)],
    "row": [started(row=TOO_LARGE)],
    "turn": [run_events.TurnAdded(rollout="known", turn=-1, messages=[])],
    "tokens": [
        run_events.TurnAdded(rollout="known", turn=1, messages=[], tokens=-1),
        finished(rollout="known", tokens=TOO_LARGE),
    ],
    "turns": [finished(rollout="known", turns=-1)],
    "parse_errors": [finished(rollout="known", parse_errors=TOO_LARGE)],
    "tries": [run_events.Held(step=1, tries=-1)],
}


@pytest.mark.parametrize(("what", "event"), [(what, one) for what, some in OUT_OF_RANGE.items() for one in some])
def test_a_number_out_of_range_is_named(what: str, event: run_events.Event) -> None:
    event.t = T
    with pytest.raises(BadEvent, match=f"^{what} -?\\d+ is out of range$"):
        batch_of(started("known"), event)


def test_the_largest_number_that_fits_is_taken() -> None:
    assert batch_of(run_events.Metrics(step=2**31 - 1, values={})).run_changes["step"] == 2**31 - 1
    assert batch_of(run_events.Metrics(step=0, values={}), step=1).run_changes["step"] == 0
    for event in (run_events.Metrics(step=0, values={}), run_events.RunFinished(status="stopped", step=0)):
        assert batch_of(event).attempt_changes["last_step"] == 0
    with pytest.raises(BadEvent, match=r"^time 1e\+300 is out of range$"):
        batch_of(run_events.LogLine(message="x", t=1e300))


def test_a_wait_says_nothing_about_the_pace() -> None:
    """A step that had waited 40 s for its environment made a run of 2 s a step look like one of 18, and 57 minutes."""
    began = AT - timedelta(seconds=3)
    batch = batch_of(run_events.Held(step=3, error=ERROR, next_try_s=5), last_step_at=began, step_seconds=2.0, step=2)
    batch.add(run_events.Held(step=3, error=ERROR, next_try_s=9, t=T + 5))
    batch.add(run_events.Held(step=3, t=T + 40))
    assert batch.run_changes["last_step_at"] == AT + timedelta(seconds=37)
    batch.add(run_events.Metrics(step=3, values={}, t=T + 41))
    assert 2.0 <= batch.run_changes["step_seconds"] <= 4.0
