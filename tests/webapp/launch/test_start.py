"""What a new form begins with: changes that a page proposes, the size of a preset, a clone and a child; by value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.http import Http404
from django.test import RequestFactory
from django.utils import timezone

from training.config import JobConfig
from training.presets import DatasetNeed, EnvironmentNeed, RewardNeed, presets
from webapp.datasets.models import Dataset
from webapp.environments.models import DatasetOrder, Environment, Kind
from webapp.launch import start as start_module
from webapp.launch.needs import (
    FAILED,
    FOUND,
    MAKING,
    MISSING,
    Need,
    Situation,
    _before_start,
    _environment_need,
    _need_of_dataset,
    environment_find,
    filled,
    order_find,
    problems_find,
    run_find,
    spec_find,
)
from webapp.launch.plan import _scaled
from webapp.launch.start import Start, _first_size, change, chosen_of, gallery, size_words, start_of
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_broker")]
Builder = Callable[..., Any]


def begun(project: Project, user: User, **query: str) -> Start:
    request = RequestFactory().get("/", query)
    request.user = user
    return start_of(request, project)


def test_a_proposed_change_is_of_one_option(project: Project) -> None:
    before = JobConfig.model_validate(
        {
            "optim": {"learning_rate": 0.004},
            "run": {"max_steps": 30},
            "rollout": {"max_turn_tokens": 100, "max_completion_tokens": 300},
        }
    )
    changed = {
        "slower": ("optim", {"learning_rate": 0.002}),
        "longer": ("run", {"max_steps": 60}),
        "refill": ("rollout", {"refill_rounds": 2}),
        "outcome": ("rewards", {"signal": "outcome"}),
        "room": ("rollout", {"max_turn_tokens": 200, "max_completion_tokens": 600}),
        "nonsense": ("run", {}),
        "": ("run", {}),
    }
    for name, (group, values) in changed.items():
        config = before.model_copy(deep=True)
        change(project, config, name)
        wanted = before.model_dump()
        wanted[group] |= values
        assert config.model_dump() == wanted, name
    more = JobConfig.model_validate({"rollout": {"refill_rounds": 5}})
    change(project, more, "refill")
    assert more.rollout.refill_rounds == 5


@pytest.mark.parametrize(
    ("sizes", "gpu", "size"),
    [
        (("demo", "test", "full"), True, "full"),
        (("demo", "test", "full"), False, "demo"),
        (("demo", "test", "full"), None, "demo"),
        (("test", "full"), False, "test"),
        (("test", "full"), None, "full"),
        (("full",), False, "full"),
        (("full",), None, "full"),
    ],
)
def test_the_size_to_begin_with_is_one_that_can_be_trained_here(
    sizes: tuple[str, ...], gpu: bool | None, size: str
) -> None:
    class Sized:
        def __init__(self) -> None:
            self.sizes = sizes

    assert _first_size(Sized(), gpu) == size  # type: ignore[arg-type]


def test_a_query_names_a_preset_and_a_size(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = next(item for item in presets().values() if len(item.sizes) > 1 and "full" in item.sizes)
    small = next(size for size in preset.sizes if size != "full")
    for gpu, asked, size, no_gpu in (
        (True, "", "full", False),
        (False, "", small, True),
        (False, "full", "full", False),
        (True, small, small, False),
    ):
        monkeypatch.setattr(start_module, "gpu_known", lambda gpu=gpu: gpu)
        found = chosen_of({"preset": preset.id, "size": asked}, project)
        assert found is not None and (found.size, found.no_gpu, found.asked) == (size, no_gpu, bool(asked))
        assert ("no worker here has a GPU" in found.size_help) is no_gpu
        assert found.size_help.startswith(size_words(preset, size)[1])  # type: ignore[arg-type]
    assert chosen_of({"preset": "nonsense"}, project) is None and chosen_of({}, project) is None


def test_the_gallery_has_each_main_preset_once_and_the_chosen_one(project: Project) -> None:
    offered = [offer.id for system in gallery(None) for offer in system.offers]
    assert sorted(offered) == sorted(item.id for item in presets().values() if item.role == "main")
    warm = next(item for item in presets().values() if item.role != "main")
    chosen = chosen_of({"preset": warm.id}, project)
    assert warm.id in [offer.id for system in gallery(chosen) for offer in system.offers]


def test_a_form_takes_the_references_of_its_address(project: Project, bob: User) -> None:
    found = begun(
        project,
        bob,
        dataset="dataset:d@1",
        model="model:m",
        environment="environment:e",
        reward="reward:r@2",
        kind="sft",
    )
    config = found.config
    assert (config.kind, config.data.train, config.model.source) == ("sft", "dataset:d@1", "model:m")
    assert (config.environment.name, config.rewards.spec, config.rewards.components) == (
        "environment:e",
        "reward:r@2",
        [],
    )
    assert found.hold_out and found.origin is None
    for length, taken in ((200, True), (201, False)):
        assert (begun(project, bob, dataset="d" * length).config.data.train == "d" * length) is taken
    assert begun(project, bob, kind="nonsense").config.kind == "grpo"
    assert begun(project, bob, dataset="").config.data.train == JobConfig().data.train


def test_a_clone_begins_with_the_options_of_a_run_of_the_project(
    project: Project, elsewhere: Project, bob: User, make_run: Builder
) -> None:
    config = {
        "run": {"max_steps": 7},
        "evaluate": {"data": "dataset:held@1", "every": 2},
        "data": {"train": "dataset:d@1"},
    }
    run = make_run(name="night", config=JobConfig.model_validate(config))
    for key in ("from", "clone"):
        found = begun(project, bob, **{key: str(run.pk)})
        assert (found.origin, found.config.run.max_steps, found.name) == (run, 7, "night-1")
        assert not found.hold_out and found.config.evaluate.data == "dataset:held@1"
    played = begun(project, bob, **{"from": str(run.pk), "kind": "evaluate"})
    assert (played.config.data.train, played.config.evaluate.data) == ("dataset:held@1", "")
    assert played.name.startswith("night-evaluate")
    assert begun(project, bob, **{"from": str(run.pk), "change": "longer"}).config.run.max_steps == 14
    theirs = make_run(project=elsewhere)
    for key in ("from", "clone", "resume", "edit"):
        with pytest.raises(Http404):
            begun(project, bob, **{key: str(theirs.pk)})


def saved(run: Run, step: int) -> Checkpoint:
    made = Checkpoint.objects.create(
        project=run.project,
        run=run,
        attempt=1,
        step=step,
        path=f"1/checkpoint-{step}",
        bytes=1,
        seq=1,
        created_at=timezone.now(),
    )
    made.folder.mkdir(parents=True)
    (made.folder / "model.safetensors").write_bytes(b"x")
    return made


@pytest.mark.parametrize(
    ("state", "step", "chosen", "steps"),
    [
        ("paused", 4, False, 10),
        ("failed", 9, False, 10),
        ("failed", 10, False, 20),
        ("succeeded", 4, False, 20),
        ("succeeded", 4, True, 10),
        ("succeeded", 10, True, 20),
        ("failed", 12, False, 24),
    ],
)
def test_a_child_has_steps_to_make(
    state: str, step: int, chosen: bool, steps: int, project: Project, bob: User, make_run: Builder
) -> None:
    run = make_run(
        name="night", state=state, attempt=1, step=step, config=JobConfig.model_validate({"run": {"max_steps": 10}})
    )
    checkpoint = saved(run, step)
    found = begun(project, bob, resume=str(run.pk), **({"checkpoint": str(checkpoint.pk)} if chosen else {}))
    assert (found.checkpoint, found.origin, found.config.run.max_steps) == (checkpoint, run, steps)


def test_a_draft_is_changed_under_its_own_name(project: Project, bob: User, make_run: Builder) -> None:
    parent = make_run(name="parent", state="failed")
    draft = make_run(name="draft", parent=parent, resume_checkpoint=saved(parent, 3))
    found = begun(project, bob, edit=str(draft.pk))
    assert (found.name, found.draft, found.origin, found.checkpoint) == (
        "draft",
        draft,
        parent,
        draft.resume_checkpoint,
    )
    Run.objects.filter(pk=draft.pk).update(state="queued")
    with pytest.raises(Http404):
        begun(project, bob, edit=str(draft.pk))


# --- What a preset needs ----------------------------------------------------------------------------------------------
def need(state: str, reference: str = "x", path: str = "data.train") -> Need:
    return Need(path, "Dataset", "rows", state, reference)


@pytest.mark.parametrize(
    ("states", "ready", "busy", "settled", "failed"),
    [
        ((), True, False, True, False),
        ((FOUND, FOUND), True, False, True, False),
        ((FOUND, MAKING), True, True, False, False),
        ((FOUND, MISSING), True, False, False, False),
        ((FOUND, FAILED), True, False, False, True),
    ],
)
def test_a_situation_sums_its_needs_up(
    states: tuple[str, ...], ready: bool, busy: bool, settled: bool, failed: bool
) -> None:
    found = Situation([need(state) for state in states])
    assert (found.ready, found.busy, found.settled, found.failed) == (ready, busy, settled, failed)
    assert not Situation([need(FOUND), need(FOUND, "")]).ready


def test_what_was_found_is_put_into_the_config_of_its_method() -> None:
    preset = next(item for item in presets().values() if item.role == "main")
    config = filled(preset, preset.sizes[0], Situation([need(FOUND, "dataset:d@1"), need(MISSING, "", "model.source")]))
    assert config.data.train == "dataset:d@1"
    assert config.model.source == preset.config_for(preset.sizes[0]).model.source
    plain = presets()["reasoning-sft"]
    config = filled(plain, "test", Situation([need(FOUND, "environment:e@1", "environment.name")]))
    assert config.environment.name == plain.config_for("test").environment.name != "environment:e@1"


def server(project: Project, name: str, **over: Any) -> Environment:
    return Environment.objects.create(project=project, name=name, **({"kind": Kind.PROCESS, "program": "tools"} | over))


def test_a_server_that_answers_comes_before_one_that_is_wanted_and_the_oldest_first(
    project: Project, elsewhere: Project
) -> None:
    wanted = EnvironmentNeed(program="tools")
    assert environment_find(project, None) is None and environment_find(project, wanted) is None
    server(elsewhere, "theirs", healthy=True)
    server(project, "other", program="webshop", healthy=True)
    stopped = server(project, "a", wanted=0)
    assert environment_find(project, wanted) == stopped
    first, second = server(project, "z"), server(project, "b")
    assert environment_find(project, wanted) == first
    second.healthy = True
    second.save()
    assert environment_find(project, wanted) == second


def test_a_server_that_does_not_answer_for_minutes_has_failed(project: Project) -> None:
    wanted = EnvironmentNeed(program="tools")
    environment = server(project, "a", wanted=1)
    missing, none = _environment_need(project, wanted, None), _environment_need(project, None, None)
    assert missing is not None and (missing.state, missing.reference) == (MISSING, "") and none is None
    for minutes, state in ((2, MAKING), (4, FAILED)):
        replica, _made = environment.replicas.update_or_create(
            number=1, defaults={"state": "starting", "started_at": timezone.now() - timedelta(minutes=minutes)}
        )
        found = _environment_need(project, wanted, Environment.objects.get())
        assert found is not None and (found.state, found.reference) == (state, "environment:a")
    replica.state = "healthy"
    replica.save()
    found = _environment_need(project, wanted, Environment.objects.get())
    assert found is not None and found.state == FOUND
    Environment.objects.update(wanted=0)
    replica.delete()
    found = _environment_need(project, wanted, Environment.objects.get())
    assert found is not None and found.note == "It is not running; start it on its page."


def test_rows_that_are_there_come_before_rows_that_come_and_failures(
    project: Project, elsewhere: Project, make_dataset: Builder
) -> None:
    wanted = DatasetNeed(command="tasks", arguments={"count": 12})
    environment = server(project, "a")

    def order(**over: Any) -> DatasetOrder:
        fields = {"environment": environment, "name": "n", "command": "tasks", "arguments": {"count": 12}}
        return DatasetOrder.objects.create(**(fields | over))

    order(environment=server(elsewhere, "theirs"))
    order(command="demonstrations")
    order(arguments={"count": 13})
    order(state="done")
    assert order_find(environment, wanted) is None
    ready = order(state="done", dataset=make_dataset())
    order(state="done", dataset=make_dataset())
    writing = order(state="writing")
    failed = order(state="failed")
    assert order_find(environment, wanted) == DatasetOrder.objects.exclude(pk=ready.pk).get(
        state="done", dataset__isnull=False
    ), "the newest of those that are there"
    Dataset.objects.update(state="checking")
    assert order_find(environment, wanted) == writing
    DatasetOrder.objects.exclude(pk=failed.pk).delete()
    assert order_find(environment, wanted) == failed


@pytest.mark.parametrize(
    ("state", "need_state", "reference", "note", "percent"),
    [
        ("checking", MAKING, "", "being checked", 50),
        ("ready", FOUND, "dataset:d@1", "3 rows", None),
        ("rejected", FAILED, "", "rejected", None),
        ("needs_choice", FAILED, "", "has bad rows", None),
    ],
)
def test_a_dataset_is_needed_until_it_is_ready(
    state: str, need_state: str, reference: str, note: str, percent: int | None, project: Project, make_dataset: Builder
) -> None:
    made = make_dataset(name="d", state=state, progress={"bytes": 1, "total": 2})
    found = _need_of_dataset(project, need(MISSING, ""), made)
    assert (found.state, found.reference, found.note, found.percent) == (need_state, reference, note, percent)


def test_word_problems_and_specs_are_found_in_the_project(
    project: Project, elsewhere: Project, make_dataset: Builder
) -> None:
    wanted = DatasetNeed(program="problems", command="rl", arguments={"count": 5})
    lineage = {"operation": "problems", "options": {"count": 5, "shape": "rl"}}
    make_dataset(lineage=lineage, project=elsewhere)
    make_dataset(lineage=lineage | {"operation": "mix"})
    make_dataset(lineage=lineage | {"options": {"count": 6, "shape": "rl"}})
    make_dataset(lineage=lineage, state="rejected")
    assert problems_find(project, wanted) is None
    made = make_dataset(lineage=lineage)
    assert problems_find(project, wanted) == made
    spec = RewardNeed.model_validate({"name": "mine", "components": [{"name": "coherence", "weight": 1}]})
    parts = [{"name": "coherence", "weight": 1.0, "params": {}}]
    RewardSpec.objects.create(project=elsewhere, name="mine", components=parts)
    assert spec_find(project, spec) is None
    own = RewardSpec.objects.create(project=project, name="mine", components=parts)
    RewardSpec.objects.create(project=project, name="mine", version=2, components=[])
    assert spec_find(project, spec) == own
    RewardSpec.objects.create(project=project, name="other", components=parts)
    assert spec_find(project, spec) == own, "its own name comes first"
    own.delete()
    assert (found := spec_find(project, spec)) is not None and found.name == "other"


def test_the_newest_run_of_a_preset_that_may_succeed_is_found(
    project: Project, elsewhere: Project, make_run: Builder
) -> None:
    preset = next(item for item in presets().values() if item.role == "main")
    size = preset.sizes[0]
    stem = preset.run_name(size)
    make_run(name=f"{stem}-1", state="running", project=elsewhere)
    make_run(name=f"{stem}-x", state="running")
    make_run(name=f"{stem}-1234567", state="running")
    for number, state in enumerate(("failed", "cancelled", "draft"), start=1):
        make_run(name=f"{stem}-{number}", state=state)
    empty = make_run(name=f"{stem}-4", state="succeeded")
    assert run_find(project, preset, size) is None
    model = Checkpoint.objects.create(
        project=project,
        run=empty,
        attempt=1,
        step=1,
        path="1/model",
        bytes=1,
        final=True,
        seq=1,
        created_at=timezone.now(),
    )
    assert run_find(project, preset, size) is None
    model.folder.mkdir(parents=True)
    assert run_find(project, preset, size) == empty
    waiting = make_run(name=f"{stem}-5", state="queued")
    assert run_find(project, preset, size) == waiting
    missing = _before_start(project, need(MISSING, "", "model.source"), preset, size)
    assert (missing.state, missing.name) == (MISSING, f"{stem}-1")
    assert missing.note == "The last one failed; you can create a new one."


def test_a_pace_is_scaled_with_its_range(make_run: Builder) -> None:
    found = _scaled(make_run(), [1.0, 2.0, 3.0], 2.0)
    assert (found.seconds, found.low, found.high, found.steps) == (4.0, pytest.approx(2.4), pytest.approx(5.6), 3)
