"""When a run saves, what it keeps, and what it still saves when it is asked to end."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.training.algorithms.conftest import MakeJob
from tests.training.algorithms.test_grpo import COMPONENTS, by_length, parameters_of
from tests.training.helpers import events, of_type, scripted_server
from training.algorithms.base import JournalCallback
from training.algorithms.checkpoints import verify
from training.algorithms.grpo import run_grpo
from training.algorithms.job import Job
from training.algorithms.sft import run_sft
from training.errors import StopRequested, StorageFull

pytestmark = pytest.mark.usefixtures("no_health")

SFT = {"kind": "sft", "sft": {"batch_size": 8, "max_length": 256}, "optim": {"learning_rate": 3e-3}}


def at(job: Job, monkeypatch: pytest.MonkeyPatch, kind: str, step: int, act: Any) -> None:
    """Do something right after the journal takes an event of a step."""
    write = job.journal.write

    def watch(event: Any) -> None:
        write(event)
        name = f"phase {event.phase}" if event.type == "phase" else event.type
        if name == kind and event.step == step:
            act()

    monkeypatch.setattr(job.journal, "write", watch)


def saved(job: Job) -> list[int]:
    return [event.step for event in of_type(job.run_dir, "checkpoint") if not event.final]


def whole(job: Job) -> list[str]:
    found = sorted(path.name for path in job.run_dir.glob("checkpoint-*"))
    assert all(verify(job.run_dir / name) is not None for name in found)
    return found


def grpo(make_job: MakeJob, name: str, url: str, **groups: Any) -> Job:
    return make_job(name, environment={"url": url}, rewards={"components": COMPONENTS}, **groups)


def test_by_default_a_stop_loses_nothing_that_was_trained(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing at all was saved by default."""
    job = make_job(**SFT, run={"max_steps": 50})
    at(job, monkeypatch, "metrics", 3, job.stop.set)
    with pytest.raises(StopRequested):
        run_sft(job)
    assert saved(job) == [3] and whole(job) == ["checkpoint-3"]
    event = of_type(job.run_dir, "checkpoint")[0]
    assert event.seconds > 0 and job.save_seconds == event.seconds


def test_a_stop_while_rollouts_are_sampled_saves_the_step_before(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_server() as url:
        job = grpo(make_job, "run", url, run={"max_steps": 9})
        at(job, monkeypatch, "phase generating", 3, job.stop.set)
        with pytest.raises(StopRequested):
            run_grpo(job, scorer=by_length)
    assert saved(job) == [2] and whole(job) == ["checkpoint-2"]


@pytest.mark.parametrize(("update_s", "expected"), [(0.01, 3), (1e4, 2)])
def test_a_stop_within_an_update_leaves_before_the_weights_move_where_the_grace_is_too_short(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, update_s: float, expected: int
) -> None:
    """Its update took longer than the grace, and all steps since the last checkpoint were lost."""
    job = make_job(**SFT, run={"max_steps": 9, "save_every_minutes": 0})
    keep_room = Job.keep_room

    def stop_in_the_third(self: Job) -> None:
        keep_room(self)
        if self.step == 2:
            self.update_seconds = update_s
            self.stop.set()

    monkeypatch.setattr(Job, "keep_room", stop_in_the_third)
    monkeypatch.setattr(Job, "stop_grace", lambda self: 100.0)
    with pytest.raises(StopRequested):
        run_sft(job)
    assert saved(job) == [expected] and [event.step for event in of_type(job.run_dir, "metrics")][-1] == expected


def test_a_run_that_pauses_by_itself_saves_too(make_job: MakeJob) -> None:
    def gone(episode: Any) -> Any:
        if of_type(job.run_dir, "metrics"):
            raise OSError("the server is away")
        return by_length(episode)

    with scripted_server() as url:
        job = grpo(make_job, "run", url, run={"max_steps": 9}, rollout={"failure_pause_steps": 1})
        with pytest.raises(Exception) as caught:
            run_grpo(job, scorer=gone)
    assert getattr(caught.value, "pauses", False) and saved(job) == [1]


def test_an_error_that_fails_the_run_saves_nothing(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode() -> None:
        raise ValueError("by hand")

    job = make_job(**SFT, run={"max_steps": 9})
    at(job, monkeypatch, "metrics", 2, explode)
    with pytest.raises(ValueError, match="by hand"):
        run_sft(job)
    assert saved(job) == []


def test_a_checkpoint_is_due_by_time_as_well(make_job: MakeJob) -> None:
    job = make_job(**SFT, run={"max_steps": 4, "save_every_minutes": 1e-6})
    run_sft(job)
    assert saved(job) == [1, 2, 3, 4]
    phases = [(event.phase, event.step) for event in of_type(job.run_dir, "phase")]
    assert phases[1:5] == [("training", 1), ("saving", 1), ("training", 2), ("saving", 2)]


def test_with_both_off_only_a_stop_saves(make_job: MakeJob) -> None:
    job = make_job(**SFT, run={"max_steps": 3, "save_every_minutes": 0})
    run_sft(job)
    assert saved(job) == [] and [event.path for event in of_type(job.run_dir, "checkpoint")] == ["model"]


def test_the_last_step_can_be_gone_on_from(make_job: MakeJob) -> None:
    """It was no checkpoint, so that a finished run could not be extended. Cut off before the model, it ends."""
    job = make_job(**SFT, run={"max_steps": 3})
    run_sft(job)
    longer = make_job("longer", **SFT, run={"max_steps": 5}, resume_from=job.run_dir)
    run_sft(longer)
    assert [event.step for event in of_type(longer.run_dir, "metrics")] == [4, 5]
    shutil.rmtree(job.run_dir / "model")
    again = make_job("again", **SFT, run={"max_steps": 3}, resume_from=job.run_dir)
    run_sft(again)
    assert of_type(again.run_dir, "metrics") == [] and (again.run_dir / "model" / "model.safetensors").is_file()
    before, after = parameters_of(job.run_dir / "checkpoint-3"), parameters_of(again.run_dir / "model")
    assert all((before[name] == after[name]).all() for name in before)


def test_checkpoints_are_only_where_all_updates_of_a_sampling_are_done(make_job: MakeJob) -> None:
    """Two mini batches, twice: four updates a sampling; the step asked for is rounded up."""
    with scripted_server() as url:
        job = grpo(
            make_job,
            "run",
            url,
            grpo={"num_iterations": 2},
            optim={"mini_batch_size": 4},
            run={"max_steps": 10, "save_every": 3, "keep_last": 0},
        )
        run_grpo(job, scorer=by_length)
    assert saved(job) == [4, 8]  # step 10 lies inside the third sampling


@pytest.mark.parametrize(("update_s", "expected"), [(0.01, [4]), (1e4, [])])
def test_a_stop_between_updates_finishes_them_where_the_grace_allows(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, update_s: float, expected: list[int]
) -> None:
    with scripted_server() as url:
        job = grpo(make_job, "run", url, optim={"mini_batch_size": 2}, run={"max_steps": 12})
        monkeypatch.setattr(Job, "stop_grace", lambda self: 100.0)
        monkeypatch.setattr(
            "training.algorithms.base.JournalCallback._figures",
            lambda self: setattr(self.job, "update_seconds", update_s) or {},
        )
        at(job, monkeypatch, "metrics", 2, job.stop.set)
        with pytest.raises(StopRequested):
            run_grpo(job, scorer=by_length)
    assert saved(job) == expected
    words = [event.message for event in of_type(job.run_dir, "log")]
    assert any("steps 1 to 2 are trained again" in text for text in words) == (expected == [])


def test_the_newest_and_the_best_are_kept(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    rewards = {1: 0.1, 2: 0.8, 3: 0.2, 4: 0.4, 5: 0.3, 6: 0.1}
    job = make_job(**SFT, run={"max_steps": 6, "save_every": 1, "keep_last": 2})
    monkeypatch.setattr(JournalCallback, "_figures", lambda self: {"reward": rewards[self.job.step]})
    run_sft(job)
    assert whole(job) == ["checkpoint-2", "checkpoint-5", "checkpoint-6"]
    removed = of_type(job.run_dir, "checkpoints_removed")
    assert [(event.paths, event.why, event.best) for event in removed] == [
        (["checkpoint-1"], "old", "checkpoint-2"),
        (["checkpoint-3"], "old", "checkpoint-2"),
        (["checkpoint-4"], "old", "checkpoint-2"),
    ]
    best = next(event for event in of_type(job.run_dir, "checkpoint") if event.step == 2)
    assert best.reward == pytest.approx(0.8) and (job.run_dir / "model").is_dir()


def test_a_later_attempt_removes_what_earlier_ones_left(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention never looked into the folders of earlier attempts: what they left stayed for good."""
    rewards = {1: 0.1, 2: 0.8, 3: 0.2, 4: 0.4}
    monkeypatch.setattr(JournalCallback, "_figures", lambda self: {"reward": rewards[self.job.step]})
    first = make_job("1", **SFT, run={"max_steps": 3, "save_every": 1, "keep_last": 0})
    run_sft(first)
    (first.run_dir / "checkpoint-9.staging").mkdir()
    second = make_job("2", **SFT, run={"max_steps": 4, "save_every": 1, "keep_last": 1})
    second.resume_from = second.earlier = (first.run_dir,)
    run_sft(second)
    assert whole(first) == ["checkpoint-2"] and whole(second) == ["checkpoint-4"]  # the best, and the newest
    assert (first.run_dir / "model").is_dir() and not list(first.run_dir.glob("*.staging"))
    removed = of_type(second.run_dir, "checkpoints_removed")
    assert [(set(event.paths), event.best) for event in removed] == [
        ({"1/checkpoint-1", "1/checkpoint-3"}, "1/checkpoint-2")
    ]


def test_a_full_disk_pauses_before_it_is_full_and_keeps_what_is_saved(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The save of step 2 does not fit with the reserve; the checkpoint of step 1 stays whole."""
    job = make_job(**SFT, run={"max_steps": 4, "save_every": 1})
    usage = shutil.disk_usage(job.run_dir)
    small = type(usage)(usage.total, usage.total, 3 << 20)
    monkeypatch.setenv("TILTYARD_DISK_RESERVE_MB", "1")
    at(job, monkeypatch, "metrics", 2, lambda: monkeypatch.setattr(shutil, "disk_usage", lambda path: small))
    with pytest.raises(StorageFull, match="a checkpoint needs"):
        run_sft(job)
    assert saved(job) == [1] and whole(job) == ["checkpoint-1"]
    assert not list(job.run_dir.glob("*.staging"))


def test_each_step_looks_for_room_first(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(**SFT, run={"max_steps": 9})
    usage = shutil.disk_usage(job.run_dir)
    none = type(usage)(usage.total, usage.total, 0)
    at(job, monkeypatch, "metrics", 3, lambda: monkeypatch.setattr(shutil, "disk_usage", lambda path: none))
    with pytest.raises(StorageFull, match="the run needs"):
        run_sft(job)
    assert [event.step for event in of_type(job.run_dir, "metrics")] == [1, 2, 3]


@pytest.mark.parametrize(("free_mb", "saves"), [(40, True), (26, False)])
def test_the_last_save_may_take_half_of_the_reserve(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, free_mb: int, saves: bool
) -> None:
    """A pause before the disk was full lost every step since the last save, with a reserve of 50 MB left unused."""
    job = make_job(**SFT, run={"max_steps": 9})
    monkeypatch.setenv("TILTYARD_DISK_RESERVE_MB", "50")
    usage = shutil.disk_usage(job.run_dir)
    low = type(usage)(usage.total, usage.total, free_mb << 20)
    at(job, monkeypatch, "metrics", 3, lambda: monkeypatch.setattr(shutil, "disk_usage", lambda path: low))
    with pytest.raises(StorageFull, match="the run needs"):
        run_sft(job)
    assert saved(job) == ([3] if saves else []) and whole(job) == (["checkpoint-3"] if saves else [])


def test_a_disk_that_fills_up_does_not_stop_a_stop(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(**SFT, run={"max_steps": 9})
    usage = shutil.disk_usage(job.run_dir)
    none = type(usage)(usage.total, usage.total, 0)

    def full() -> None:
        job.stop.set()
        monkeypatch.setattr(shutil, "disk_usage", lambda path: none)

    at(job, monkeypatch, "metrics", 3, full)
    with pytest.raises(StopRequested):
        run_sft(job)
    assert any("could not be saved" in event.message for event in of_type(job.run_dir, "log"))


def test_the_grace_follows_the_last_save_and_begins_with_an_estimate(make_job: MakeJob) -> None:
    """A model whose save takes 20 s was killed after 7.5 s."""
    job = make_job(**SFT, run={"max_steps": 1})
    assert job.stop_grace() == 6.5
    job.save_seconds, job.update_seconds = 20.0, 4.0
    assert job.stop_grace() == 64.0
    run_sft(job)
    started = of_type(job.run_dir, "run_started")[0]
    size = next(event.bytes for event in of_type(job.run_dir, "checkpoint"))
    # Weights and two moments of AdamW are nearly all of a checkpoint; the tokenizer is next to them.
    assert started.save_seconds * 100e6 == pytest.approx(size, rel=0.2)


def test_lora_leaves_its_adapter_next_to_the_merged_model(make_job: MakeJob, starter_folder: Path) -> None:
    """Only the merged model was left."""
    job = make_job(**SFT, model={"source": str(starter_folder), "lora_rank": 4}, run={"max_steps": 2})
    run_sft(job)
    final = of_type(job.run_dir, "checkpoint")[-1]
    assert (final.final, final.path, final.adapter) == (True, "model", "adapter")
    for name in ("model", "adapter", "checkpoint-2"):
        assert verify(job.run_dir / name) is not None
    assert json.loads((job.run_dir / "adapter" / "adapter_config.json").read_text())["r"] == 4
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(starter_folder)
    merged = PeftModel.from_pretrained(base, job.run_dir / "adapter").merge_and_unload().state_dict()
    kept = parameters_of(job.run_dir / "model")
    assert all(abs(merged[name] - value).max() < 1e-6 for name, value in kept.items())
    longer = {"source": str(starter_folder), "lora_rank": 4}
    again = make_job("again", **SFT, model=longer, run={"max_steps": 3}, resume_from=job.run_dir)
    run_sft(again)
    assert [event.step for event in of_type(again.run_dir, "metrics")] == [3]


def test_what_a_default_became_is_recorded(make_job: MakeJob, starter_folder: Path) -> None:
    """1e-6 was the default of SFT and LoRA too; the revision of a model was not recorded."""
    job = make_job(kind="sft", sft=SFT["sft"], optim={"learning_rate": 0}, run={"max_steps": 1})
    run_sft(job)
    assert of_type(job.run_dir, "run_started")[0].resolved == {"optim.learning_rate": "2e-05"}
    assert of_type(job.run_dir, "metrics")[0].values["learning_rate"] == pytest.approx(2e-5)
    snapshot = starter_folder.parent / "models--a--b" / "snapshots" / "0123abc"
    if not snapshot.is_dir():
        shutil.copytree(starter_folder, snapshot)
    named = make_job("named", **SFT, model={"source": str(snapshot)}, run={"max_steps": 1})
    run_sft(named)
    assert of_type(named.run_dir, "run_started")[0].resolved == {"model.revision": "0123abc"}


def test_a_resumed_run_reports_its_checkpoint_what_was_lost_and_what_was_checked(
    make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A torn checkpoint is really set aside, the one before it is taken, and both are reported."""
    first = make_job("runs/1", **SFT, run={"max_steps": 9, "save_every": 2})
    at(first, monkeypatch, "metrics", 7, lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        run_sft(first)
    weights = first.run_dir / "checkpoint-6" / "model.safetensors"
    os.truncate(weights, weights.stat().st_size // 2)
    second = make_job("runs/2", **SFT, run={"max_steps": 9, "save_every": 2}, resume_from=first.run_dir.parent)
    run_sft(second)
    resumed = of_type(second.run_dir, "resumed")[0]
    assert (resumed.source, resumed.step, resumed.lost_steps) == ("1/checkpoint-4", 4, 3)
    assert resumed.set_aside == ["1/checkpoint-6"] and (first.run_dir / "checkpoint-6.torn").is_dir()
    removed = of_type(second.run_dir, "checkpoints_removed")[0]
    assert (removed.paths, removed.why) == (["1/checkpoint-6"], "torn")
    assert [words.split()[0] for words in resumed.verified] == ["manifest", "optimiser,", "position"]
    assert [event.step for event in of_type(second.run_dir, "metrics")] == [5, 6, 7, 8, 9]
    kinds = [event.type for event in events(second.run_dir)]
    assert kinds.index("resumed") < kinds.index("run_started")
