"""Rollouts that are played while the trainer trains: their order, their age, and what ends them."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_sampler_check import by_length
from tests.training.algorithms.test_vllm import GAP, vllm_job
from tests.training.helpers import events, of_type
from training.algorithms.grpo import run_grpo
from training.algorithms.rollouts import Ahead, Rollouts
from training.algorithms.values import CorrectedTrainer
from training.config import JobConfig
from training.errors import SamplerDied, SamplerDisagrees, StopRequested
from training.policy.check import PROBE_TOKENS
from training.policy.vllm_server import WEIGHTS_NAME
from training.rollout.trajectory import Rollout, StepRollouts, Trajectory
from training.words import complaint_of, option_of

pytestmark = pytest.mark.usefixtures("no_health")

NONE = StepRollouts([], [])
MOST = "rollouts/staleness_max"


class Played:
    """Collects nothing, one step after another, until it is let go."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.go, self.abandoned = threading.Event(), threading.Event()

    def collect(self, step: int, _rows: Sequence[int]) -> StepRollouts:
        self.steps.append(step)
        while not self.go.wait(0.005):
            if self.abandoned.is_set():
                raise StopRequested("abandoned")
        return StepRollouts([], [], {"step": float(step)})


@pytest.fixture
def played() -> Played:
    return Played()


def test_steps_are_played_one_after_another_and_taken_as_they_are(played: Played) -> None:
    ahead = Ahead(played.collect, played.abandoned.set)
    for step in (1, 2, 2):
        ahead.begin(step, [step])
    assert ahead.has(1) and ahead.has(2) and not ahead.has(3)
    time.sleep(0.05)
    assert played.steps == [1]  # the second waits for the first
    played.go.set()
    assert ahead.take(1, [1]).figures == {"step": 1.0}
    assert ahead.take(2, [2]).figures == {"step": 2.0} and played.steps == [1, 2]
    assert not ahead.has(1)
    ahead.close()


def test_a_step_that_was_played_with_other_tasks_is_never_learned_from(played: Played) -> None:
    ahead = Ahead(played.collect, played.abandoned.set)
    played.go.set()
    ahead.begin(1, [1, 1])
    with pytest.raises(AssertionError, match="other tasks"):
        ahead.take(1, [1, 2])
    ahead.close()


def test_what_a_step_raises_is_raised_when_it_is_taken() -> None:
    def fails(step: int, _rows: Sequence[int]) -> StepRollouts:
        raise SamplerDied(f"step {step}")

    ahead = Ahead(fails, lambda: None)
    ahead.begin(4, [])
    ahead.settle()  # raises nothing
    with pytest.raises(SamplerDied, match="step 4"):
        ahead.take(4, [])
    ahead.close()


def test_closing_ends_what_is_played_and_drops_what_waits(played: Played) -> None:
    ahead = Ahead(played.collect, played.abandoned.set)
    ahead.begin(1, [])
    ahead.begin(2, [])
    time.sleep(0.02)
    ahead.close()
    ahead.close()
    assert played.steps == [1] and played.abandoned.is_set()


def test_settling_waits_for_all_that_was_begun(played: Played) -> None:
    ahead = Ahead(played.collect, played.abandoned.set)
    ahead.begin(1, [])
    ahead.begin(2, [])
    threading.Timer(0.05, played.go.set).start()
    ahead.settle()
    assert played.steps == [1, 2]
    ahead.close()


class Handed:
    """A sampler that takes new weights, and meanwhile ends a turn that was drawn with them."""

    def __init__(self, rollouts: Rollouts) -> None:
        self.version, self._rollouts = 4, rollouts
        self.seen: dict[int, int] = {}

    def weights_changed(self) -> int:
        self.seen = dict(self._rollouts._trained)
        self.version += 1
        return self.version


def test_a_turn_that_ends_while_weights_are_handed_over_knows_how_old_they_are(make_job: MakeJob) -> None:
    rollouts = Rollouts(make_job(), None, [], None, None, [], None)  # type: ignore[arg-type]
    rollouts._engine = engine = Handed(rollouts)  # type: ignore[assignment]
    rollouts._hand_over(8)
    assert engine.seen == rollouts._trained == {5: 7}


def test_excluded_rollouts_have_no_part_in_the_age_of_a_step(make_job: MakeJob) -> None:
    rollouts = Rollouts(make_job(), None, [], None, None, [], None)  # type: ignore[arg-type]
    rollouts._trained = {1: 5, 2: 7}
    kept, lost = Trajectory(version=2), Trajectory(version=1)
    played = StepRollouts([Rollout("kept", 0, kept, {"a": 1.0}, 1.0), Rollout("lost", 0, lost)], [])
    assert rollouts._staleness(8, played) == {"rollouts/staleness_mean": 0.0, MOST: 0.0}
    assert rollouts._staleness(8, StepRollouts(played.rollouts[1:], [])) == {}


# --- runs ------------------------------------------------------------------------------------------------------------


def trained_for(run_dir: Path) -> dict[int, set[int]]:
    """By step of the run: for how many steps the weights of its turns were trained."""
    found: dict[int, set[int]] = {}
    for event in of_type(run_dir, "turn"):
        if event.policy_step is not None and "-s" in event.rollout:
            found.setdefault(int(event.rollout.split("-s")[1].split("-")[0]), set()).add(event.policy_step)
    return found


def test_one_sampling_ahead_is_one_update_old_and_every_handover_is_proved(
    make_job: MakeJob, starter_folder: Path
) -> None:
    over = {"run": {"max_steps": 4}, "evaluate": {"every": 2, "share": 0.25}, "model": {"lora_rank": 4}}
    over["optim"] = {"learning_rate": 1e-2}
    with vllm_job(make_job, starter_folder, rollout={"max_staleness": 1}, **over) as (job, _stub, behind):
        run_grpo(job, scorer=by_length)
    assert trained_for(job.run_dir) == {1: {0}, 2: {0}, 3: {1}, 4: {2}}
    ends = [event for event in of_type(job.run_dir, "rollout_finished") if "-s3-" in event.rollout]
    assert ends and {end.policy_step for end in ends} == {1}
    steps = [event.values for event in of_type(job.run_dir, "metrics") if "loss" in event.values]
    assert [values[MOST] for values in steps] == [0.0, 1.0, 1.0, 1.0]
    assert [values["rollouts/staleness_mean"] for values in steps] == [0.0, 1.0, 1.0, 1.0]
    # Older weights drew the step's rollouts, and the check is of those that were handed over now.
    assert [values[GAP] <= 1e-4 for values in steps] == [True] * 4
    assert max(abs(values["sampling/importance_sampling_ratio/mean"] - 1) for values in steps[1:]) > 1e-5
    assert all(values["timing/waiting"] >= 0 and values["timing/training"] > 0 for values in steps)
    assert [label.rpartition("-")[2] for label in behind.taken[1:]] == ["0", "1", "2", "3", "4"]
    phases = [(event.phase, event.step) for event in of_type(job.run_dir, "phase")]
    assert [phase for phase in phases if phase[0] in {"generating", "scoring", "training"}] == [
        (phase, step) for step in (1, 2, 3, 4) for phase in ("generating", "training")
    ]
    started = [event.rollout for event in of_type(job.run_dir, "rollout_started")]
    assert len(set(started)) == len(started) and not any("-s5-" in name for name in started)


def test_age_is_counted_in_samplings_where_one_makes_several_updates(make_job: MakeJob, starter_folder: Path) -> None:
    over = {"optim": {"mini_batch_size": 4}, "run": {"max_steps": 6}, "rollout": {"max_staleness": 1}}
    with vllm_job(make_job, starter_folder, **over) as (job, _stub, _behind):
        run_grpo(job, scorer=by_length)
    assert trained_for(job.run_dir) == {1: {0}, 3: {0}, 5: {2}}
    figures = [event.values for event in of_type(job.run_dir, "metrics")]
    assert [values[MOST] for values in figures if MOST in values] == [0.0, 1.0, 1.0]


@pytest.mark.slow
def test_the_same_tasks_and_seeds_are_played_as_without(make_job: MakeJob, starter_folder: Path) -> None:
    rows: dict[int, Any] = {}
    for most in (0, 2):
        over = {"rollout": {"max_staleness": most}, "run": {"max_steps": 3}}
        with vllm_job(make_job, starter_folder, f"run-{most}", **over) as (job, _stub, _behind):
            run_grpo(job, scorer=by_length)
        rows[most] = {event.rollout: (event.row, event.task) for event in of_type(job.run_dir, "rollout_started")}
        if most:
            assert trained_for(job.run_dir)[1] == {0} and max(trained_for(job.run_dir)[3]) <= 2
            ages = [values.values for values in of_type(job.run_dir, "metrics")]
            assert max(values[MOST] for values in ages) <= 2.0
    assert rows[0] == rows[2]


def test_weights_that_stay_old_in_silence_are_found_though_samples_are_older(
    make_job: MakeJob, starter_folder: Path
) -> None:
    over = {"rollout": {"max_staleness": 1}, "optim": {"learning_rate": 1e-2}, "run": {"max_steps": 4}}
    with vllm_job(make_job, starter_folder, **over) as (job, stub, behind):
        take = stub.take

        def once(folder: Path) -> Any:
            stub.stale = len(behind.taken) >= 2
            return take(folder)

        stub.take = once
        with pytest.raises(SamplerDisagrees):
            run_grpo(job, scorer=by_length)
    steps = [event.step for event in of_type(job.run_dir, "metrics")]
    failed = of_type(job.run_dir, "sampler_checked")[-1]
    assert failed.step == len(steps) + 1 and failed.max_gap > 1e-3


@pytest.mark.parametrize("most", [1, 2])
def test_weights_that_stay_old_are_found_before_any_update_however_small_the_last_one(
    make_job: MakeJob, starter_folder: Path, most: int
) -> None:
    """At 1e-8 no gap shows it. The handover of step 4 fails in silence: neither step 4, whose rollouts are older, nor
    any after it is learned from."""
    over = {"rollout": {"max_staleness": most}, "optim": {"learning_rate": 1e-8}, "run": {"max_steps": 6}}
    with vllm_job(make_job, starter_folder, **over) as (job, stub, behind):
        take = stub.take

        def once(folder: Path) -> Any:
            stub.stale = len(behind.taken) >= 3
            return take(folder)

        stub.take = once
        with pytest.raises(SamplerDisagrees, match=r"At step 4 .* to the last bit"):
            run_grpo(job, scorer=by_length)
    steps = [event.values for event in of_type(job.run_dir, "metrics")]
    assert len(steps) == 3 and all(values[GAP] <= 1e-4 for values in steps)
    assert [event.step for event in of_type(job.run_dir, "checkpoint")] == [3]


def test_training_continues_while_the_weights_are_loaded(
    make_job: MakeJob, starter_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server does not take those of step 1 before the trainer has computed the loss of step 2."""
    computed, loss = threading.Event(), CorrectedTrainer._compute_loss

    def noted(trainer: Any, *given: Any, **named: Any) -> Any:
        if trainer.state.global_step == 1:
            computed.set()
        return loss(trainer, *given, **named)

    monkeypatch.setattr(CorrectedTrainer, "_compute_loss", noted)
    over = {"rollout": {"max_staleness": 1}, "run": {"max_steps": 3}}
    with vllm_job(make_job, starter_folder, **over) as (job, stub, _behind):
        take, waited = stub.take, []

        def late(folder: Path) -> Any:
            if folder.name.endswith("-1"):
                waited.append(computed.wait(60))
            return take(folder)

        stub.take = late
        run_grpo(job, scorer=by_length)
    assert waited == [True] and trained_for(job.run_dir) == {1: {0}, 2: {0}, 3: {1}}
    for event in of_type(job.run_dir, "metrics"):
        parts = [event.values[f"timing/{name}"] for name in ("waiting", "handover", "training")]
        assert sum(parts) == pytest.approx(event.values["timing/step"]) and all(part > 0 for part in parts)
        assert (event.values.get("sampling/sync_seconds", 0) > 0) is (event.step < 4)


def test_weights_are_written_while_the_old_ones_still_play(make_job: MakeJob, starter_folder: Path) -> None:
    """No turn of step 2 is answered before those of step 1 lie on the disk."""
    over = {"rollout": {"max_staleness": 1}, "run": {"max_steps": 2}}
    with vllm_job(make_job, starter_folder, **over) as (job, stub, behind):
        sample, seen = behind.sample, []

        def late(body: dict[str, Any], weights: Any) -> tuple[list[int], list[float]]:
            playing = any("-s2-" in event.rollout for event in of_type(job.run_dir, "rollout_started"))
            if playing and not seen:
                for _look in range(6000):
                    if any(path.name.endswith("-1") for path in (job.run_dir / WEIGHTS_NAME).glob("*")):
                        break
                    threading.Event().wait(0.01)
                else:
                    raise AssertionError("nothing was written")
                seen.append(list(behind.taken))
            return sample(body, weights)

        stub.sample = late
        run_grpo(job, scorer=by_length)
    assert [label.rpartition("-")[2] for label in seen[0][1:]] == ["0"], "written, and not taken yet"


@pytest.mark.parametrize("most", [1, 2])
def test_the_first_turns_of_new_weights_are_those_that_prove_them(
    make_job: MakeJob, starter_folder: Path, most: int
) -> None:
    """Alone: the same weights give the same bits only where the same turns are sampled together."""
    over = {"rollout": {"max_staleness": most}, "run": {"max_steps": 5}, "optim": {"learning_rate": 1e-2}}
    with vllm_job(make_job, starter_folder, **over) as (job, stub, _behind):
        stub.delay_s = 0.01
        run_grpo(job, scorer=by_length)
    kinds = {"/update_weight_version": "V"}
    asked = "".join(
        kinds.get(path, "") or ("P" if path == "/v1/completions" and body["max_tokens"] == PROBE_TOKENS else "T")
        for path, body in stub.asked
        if path in {*kinds, "/v1/completions"}
    )
    assert re.fullmatch("VT+P{8}T*(VP{8}T*){4}", asked), asked
    seeds = [body["seed"] for path, body in stub.asked if body.get("max_tokens") == PROBE_TOKENS]
    assert [sorted(seeds[at : at + 8]) for at in range(0, len(seeds), 8)] == [list(range(8))] * 5


def test_a_sampler_that_dies_as_it_takes_weights_costs_the_step_that_is_trained(
    make_job: MakeJob, starter_folder: Path
) -> None:
    """No update is made before it is known that its handover arrived."""
    over = {"rollout": {"max_staleness": 1}, "run": {"max_steps": 4}}
    with vllm_job(make_job, starter_folder, **over) as (job, stub, _behind):
        take = stub.take

        def dies(folder: Path) -> Any:
            stub.dead = folder.name.endswith("-2")
            return take(folder)

        stub.take = dies
        with pytest.raises(SamplerDied):
            run_grpo(job, scorer=by_length)
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2]
    assert [event.step for event in of_type(job.run_dir, "checkpoint")] == [2]
    assert not any("-s4-" in event.rollout for event in of_type(job.run_dir, "rollout_started"))


def test_a_sampler_that_dies_meanwhile_costs_its_step_and_not_the_one_being_trained(
    make_job: MakeJob, starter_folder: Path
) -> None:
    over = {"rollout": {"max_staleness": 1}, "run": {"max_steps": 4}}
    with vllm_job(make_job, starter_folder, **over) as (job, stub, behind):
        sample = behind.sample

        def dies(body: dict[str, Any], weights: Any) -> tuple[list[int], list[float]]:
            stub.dead = stub.dead or any(event.step == 3 for event in of_type(job.run_dir, "rollout_started"))
            return sample(body, weights)

        stub.sample = dies
        with pytest.raises(SamplerDied):
            run_grpo(job, scorer=by_length)
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2]
    assert [event.step for event in of_type(job.run_dir, "checkpoint")] == [2]


def test_a_stop_ends_what_is_played_ahead(make_job: MakeJob, starter_folder: Path) -> None:
    over = {"rollout": {"max_staleness": 1}, "run": {"max_steps": 50}}
    with vllm_job(make_job, starter_folder, **over) as (job, stub, _behind):
        stub.delay_s = 0.05

        def later(episode: Any) -> Any:
            if any(event.step == 3 for event in of_type(job.run_dir, "rollout_started")):
                job.stop.set()
            return by_length(episode)

        with pytest.raises(StopRequested):
            run_grpo(job, scorer=later)
        asked = len(stub.asked)
        time.sleep(0.3)
        assert len(stub.asked) == asked
    kinds = [event.type for event in events(job.run_dir)]
    assert "checkpoint" in kinds and len(of_type(job.run_dir, "metrics")) <= 3


def test_only_a_sampler_with_weights_of_its_own_can_be_ahead() -> None:
    with pytest.raises(ValidationError) as found:
        JobConfig.model_validate({"rollout": {"max_staleness": 1}})
    (error,) = found.value.errors(include_url=False)
    assert option_of(error) == "rollout.max_staleness" and "cannot do both at once" in complaint_of(error)
    JobConfig.model_validate({"rollout": {"max_staleness": 1}, "kind": "evaluate"})  # nothing is trained meanwhile


def test_a_stage_is_never_played_ahead_of_by_the_one_before_it(make_job: MakeJob, starter_folder: Path) -> None:
    """The next stage has a trainer, tasks and limits of its own, and begins with the newest weights."""
    stages = [{"name": "short", "until_step": 2}, {"name": "long", "rollout": {"max_turns": 1}}]
    over = {"curriculum": {"stages": stages}, "run": {"max_steps": 4}, "rollout": {"max_staleness": 1}}
    with vllm_job(make_job, starter_folder, **over) as (job, _stub, _behind):
        run_grpo(job, scorer=by_length)
    assert trained_for(job.run_dir) == {1: {0}, 2: {0}, 3: {2}, 4: {2}}
    started = [event.rollout for event in of_type(job.run_dir, "rollout_started")]
    assert len(started) == len(set(started)) == 4 * 8
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2, 3, 4]
