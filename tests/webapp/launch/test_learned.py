"""The runs on the way to a model: which of them are followed, up to which step, and what each of them learned from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.utils import timezone

from tests.webapp.results.conftest import Past, past, saved, trained
from training.config import JobConfig
from webapp.launch.learned import (
    MOST_STAGES,
    Origins,
    Overlap,
    Source,
    _joined_overlap,
    origins_of_checkpoint,
    overlap_of_held_out,
    overlap_of_plan,
    overlaps_of,
    sources_of,
    trainers_of,
)
from webapp.people.teams.models import Project
from webapp.runs.models import Run
from webapp.runs.registry.models import Checkpoint, ModelKind
from webapp.runs.registry.selectors import Weights

__all__ = ["past", "saved", "trained"]
pytestmark = pytest.mark.django_db


def origins(past: Past) -> Origins:
    kept = Checkpoint.objects.select_related("run__parent", "run__resume_checkpoint").get(run=past.grpo)
    return origins_of_checkpoint(kept)


def stages(found: Origins) -> list[tuple[str, int | None]]:
    return [(stage.run.name, stage.step) for stage in found.stages]


def test_the_run_before_is_followed_up_to_the_step_of_its_checkpoint(past: Past) -> None:
    found = origins(past)
    assert stages(found) == [("first-grpo", 60), ("warm-up", 40)]
    assert found.base == Weights(ModelKind.HUB, "Qwen/Qwen3-0.6B")
    assert found.ancestors == [Weights(ModelKind.RUN, str(past.warm.pk), "1/model"), found.base] and not found.cut
    Checkpoint.objects.filter(run=past.warm).delete()  # by retention
    assert stages(origins(past)) == [("first-grpo", 60), ("warm-up", None)]


@pytest.mark.parametrize("how", ["removed", "deleted"])
def test_a_run_that_was_deleted_ends_the_way(past: Past, how: str) -> None:
    if how == "removed":
        Run.objects.filter(pk=past.warm.pk).update(removed_at=timezone.now())
    else:
        past.warm.delete()
    assert stages(origins(past)) == [("first-grpo", 60)] and origins(past).base is None


def test_runs_of_another_project_are_not_followed(past: Past, project: Project, elsewhere: Project) -> None:
    source = str(past.model.folder)
    assert [run.name for run in trainers_of(project, source)] == ["first-grpo", "warm-up"]
    assert trainers_of(elsewhere, source) == [] and trainers_of(project, "starter") == []
    for kept in (True, False):
        Run.objects.filter(pk=past.warm.pk).update(project=elsewhere)
        Checkpoint.objects.filter(run=past.warm).update(project=elsewhere)
        assert [run.name for run in trainers_of(project, source)] == ["first-grpo"], kept
        Checkpoint.objects.filter(run=past.warm).delete()


def test_a_run_that_continued_another_has_what_that_one_learned(
    past: Past, make_run: Callable[..., Run], saved: Callable[..., Checkpoint]
) -> None:
    kept = saved(past.grpo, 30, final=False)
    child = make_run(name="child", parent=past.grpo, resume_step=30, resume_checkpoint=kept)
    left = saved(child, 50)
    found = origins_of_checkpoint(left)
    assert stages(found) == [("child", 50), ("first-grpo", 30), ("warm-up", 40)]
    assert found.ancestors[0] == Weights(ModelKind.RUN, str(past.grpo.pk), "1/checkpoint-30")
    kept.delete()
    left.run = Run.objects.get(pk=child.pk)
    found = origins_of_checkpoint(left)
    assert stages(found) == [("child", 50), ("first-grpo", 30), ("warm-up", 40)]
    assert found.ancestors == [Weights(ModelKind.RUN, str(past.warm.pk), "1/model"), found.base]


@pytest.mark.parametrize(("parents", "cut"), [(MOST_STAGES - 1, False), (MOST_STAGES, True)])
def test_sixteen_stages_are_read(
    make_run: Callable[..., Run], saved: Callable[..., Checkpoint], parents: int, cut: bool
) -> None:
    run = make_run(name="0")
    for number in range(1, parents + 1):
        run = make_run(name=str(number), parent=run, resume_step=1)
    found = origins_of_checkpoint(saved(run, 1))
    assert (len(found.stages), found.cut) == (16, cut)


def test_a_ring_is_read_once(make_run: Callable[..., Run], saved: Callable[..., Checkpoint]) -> None:
    first = make_run(name="first", resume_step=1)
    second = make_run(name="second", resume_step=2, parent=first)
    Run.objects.filter(pk=first.pk).update(parent=second)
    found = origins_of_checkpoint(saved(Run.objects.get(pk=second.pk), 3))
    assert stages(found) == [("second", 3), ("first", 2)] and not found.cut


def test_the_tasks_that_a_run_held_out_of_its_own_data_may_be_those_of_its_warm_up(past: Past) -> None:
    past.warm.resolved["data"]["train"] = str(past.tasks.rows_path)
    past.warm.save(update_fields=["resolved"])
    past.grpo.resolved["evaluate"] |= {"every": 5, "share": 0.4}
    found = overlap_of_held_out(past.grpo)
    assert found.seen == found.tasks and found.tasks in range(1, 12) and found.where == ("arithmetic@3",)
    assert overlap_of_plan(past.grpo.project, JobConfig.model_validate(past.grpo.resolved)) == found


def test_the_overlap_of_a_mix_is_that_of_its_parts() -> None:
    first, second = Overlap(1, 4, ("a@1",), ("x@1",)), Overlap(2, 3, ("b@1", "a@1"), ("x@1", "y@1"))
    assert _joined_overlap([first, second]) == Overlap(3, 7, ("a@1", "b@1"), ("x@1", "y@1"))
    gone = Overlap(None, None, ("c@1",))
    assert _joined_overlap([first, gone]) == Overlap(None, None, ("a@1", "c@1"), ("x@1",))


def test_what_learned_from_no_rows_has_no_overlap(past: Past, make_run: Callable[..., Run]) -> None:
    config = JobConfig.model_validate(
        {"kind": "evaluate", "data": {"train": str(past.tasks.rows_path)}, "model": {"source": str(past.model.folder)}}
    )
    played = make_run(config=config, resolved=config.model_dump(mode="json"))
    other = make_run(config=config, resolved={"version": 99, "data": {"train": "/rows.jsonl"}})
    assert overlaps_of([played, other]) == {played.pk: Overlap(12, 12, ("arithmetic@3",))}
    assert sources_of(played) == [] and sources_of(other) == [Source("/rows.jsonl")]
    for run in (past.warm, past.grpo):  # their environment drew the tasks
        run.resolved["data"]["train"] = ""
        run.save(update_fields=["resolved"])
    assert overlaps_of([played]) == {played.pk: Overlap()}
