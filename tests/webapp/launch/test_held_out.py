"""Tasks that a new run holds out unless its person says otherwise, and what the check says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from django.test import Client
from django.urls import reverse

from tests.webapp.launch.test_launch import _data
from training.config import JobConfig
from training.data.identity import held_out, place_bits, split_rows
from training.data.reader import load_rows
from webapp.datasets.rows import identities_of
from webapp.launch.findings import Check
from webapp.launch.forms import RunForm
from webapp.launch.held_out import hold_out, part_check, share_for
from webapp.launch.preflight import preflight
from webapp.people.teams.models import Project, User

pytestmark = pytest.mark.django_db


def rows_of(count: int, *, same: int = 1) -> list[dict[str, Any]]:
    """Rows of ``count`` different tasks, each ``same`` times."""
    return [
        {"messages": [{"role": "user", "content": f"What is {number} + 1?"}], "answer": str(number + 1)}
        for number in range(count)
        for _again in range(same)
    ]


def places(count: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The identities of as many tasks, with places that are evenly apart."""
    found = np.zeros((count, 4), dtype=np.uint64)
    found[:, 3] = [int((number + 0.5) / count * 2**64) for number in range(count)]
    return found


@pytest.mark.parametrize(
    ("tasks", "share", "held"),
    [
        (1000, 0.1, 100),
        (320, 0.1, 32),
        (319, 0.1, 32),  # the 32nd lies at 0.0987
        (300, 0.11, 33),
        (200, 0.16, 32),
        (64, 0.5, 32),
        (40, 0.49, 20),  # not more than half
        (3, 0.17, 1),
        (2, 0.26, 1),
    ],
)
def test_the_share_holds_out_a_tenth_and_32_tasks_and_at_most_half(tasks: int, share: float, held: int) -> None:
    rows = places(tasks)
    assert share_for(rows) == share
    assert np.count_nonzero(held_out(rows, share)) == held


def test_equal_tasks_count_once() -> None:
    assert share_for(np.repeat(places(200), 8, axis=0)) == share_for(places(200)) == 0.16


@pytest.fixture
def config(make_dataset: Any, make_environment: Any) -> JobConfig:
    data = make_dataset(rows_of(200, same=2))
    return JobConfig.model_validate(
        {
            "data": {"train": data.reference},
            "environment": {"name": make_environment().reference},
            "run": {"max_steps": 60},
        }
    )


def posted(project: Project, config: JobConfig, **over: Any) -> JobConfig:
    form = RunForm(_data(project, config, **over), project=project)
    assert form.is_valid(), form.errors
    assert form.config is not None
    return form.config


def test_the_trainer_holds_out_what_the_form_says(project: Project, config: JobConfig) -> None:
    chosen = posted(project, config, hold_out="on").evaluate
    assert chosen.every == 12 and 0.1 < chosen.share < 0.3
    from webapp.datasets.models import Dataset

    rows = load_rows(Dataset.objects.get().rows_path)
    split = split_rows(rows, chosen.share)
    assert split.groups >= 32 > split_rows(rows, chosen.share - 0.02).groups
    assert len(split.held_out) == 2 * split.groups


def test_without_the_tick_nothing_is_held_out(project: Project, config: JobConfig) -> None:
    assert posted(project, config).evaluate == JobConfig().evaluate


@pytest.mark.parametrize("over", [{"evaluate.share": "0.3", "evaluate.every": "7"}, {"evaluate.share": "0.3"}])
def test_what_the_person_says_takes_the_place_of_the_tick(
    project: Project, config: JobConfig, over: dict[str, str]
) -> None:
    chosen = posted(project, config, hold_out="on", **over).evaluate
    assert chosen.share == 0.3 and chosen.every == int(over.get("evaluate.every", 0))


def test_a_chosen_pace_is_kept(project: Project, config: JobConfig) -> None:
    assert posted(project, config, hold_out="on", **{"evaluate.every": "7"}).evaluate.every == 7


@pytest.mark.parametrize("kind", ["sft", "evaluate", "dpo"])
def test_jobs_that_do_not_learn_from_rollouts_ignore_the_tick(project: Project, config: JobConfig, kind: str) -> None:
    """For an evaluation the same option means: play only the held-out part."""
    config.kind = kind  # type: ignore[assignment]
    hold_out(project, config)
    assert config.evaluate.share == 0 and config.evaluate.every == 0


def test_an_evaluation_keeps_the_options_that_it_says(project: Project, config: JobConfig) -> None:
    config.kind, config.evaluate.share, config.evaluate.every = "evaluate", 0.25, 7
    assert posted(project, config, hold_out="on").evaluate == config.evaluate


def test_a_pace_without_tasks_to_hold_out_is_an_error(project: Project, config: JobConfig, make_dataset: Any) -> None:
    config.data.train = make_dataset(rows_of(1)).reference
    form = RunForm(_data(project, config, hold_out="on", **{"evaluate.every": "7"}), project=project)
    assert not form.is_valid() and list(form.errors) == ["evaluate.share"]


@pytest.mark.parametrize(("steps", "every"), [(1, 1), (4, 1), (9, 1), (10, 2), (100_000, 20_000)])
def test_a_run_is_evaluated_five_times_and_one_of_few_steps_at_each(
    project: Project, config: JobConfig, steps: int, every: int
) -> None:
    config.run.max_steps = steps
    hold_out(project, config)
    assert config.evaluate.every == every


def test_a_job_that_is_evaluated_on_data_of_its_own_trains_on_all_tasks(
    project: Project, config: JobConfig, make_dataset: Any
) -> None:
    config.evaluate.data = make_dataset(rows_of(48)).reference
    before = config.evaluate.model_copy()
    hold_out(project, config)
    assert config.evaluate == before


def test_of_rows_that_are_not_used_no_task_is_counted(project: Project, config: JobConfig) -> None:
    """The first 40 of the rows are 20 tasks, of which about half is held out; of all 200 a sixth would do."""
    from webapp.datasets.models import Dataset

    config.data.max_rows = 40
    hold_out(project, config)
    split = split_rows(load_rows(Dataset.objects.get().rows_path)[:40], config.evaluate.share)
    assert config.evaluate.share == 0.5 and split.groups == 8 and len(split.held_out) == 16
    assert finding(project, config).message.startswith("8 of 20 tasks are not trained on")


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_data_of_one_task_is_not_held_out_whole(
    project: Project, config: JobConfig, make_dataset: Any, tasks: int
) -> None:
    config.data.train = make_dataset(rows_of(tasks, same=9)).reference
    hold_out(project, config)
    assert bool(config.evaluate.share) is bool(config.evaluate.every) is (tasks > 1)


def test_unknown_data_gets_the_plain_share(project: Project, config: JobConfig) -> None:
    config.data.train = "dataset:gone@1"
    hold_out(project, config)
    assert config.evaluate.share == 0.1


def test_the_largest_share_that_a_part_needs_counts(project: Project, config: JobConfig, make_dataset: Any) -> None:
    large, small = make_dataset(rows_of(900)), make_dataset(rows_of(80))
    config.mix.parts = [
        {"name": name, "weight": 1, "data": {"train": data.reference}} for name, data in (("a", large), ("b", small))
    ]  # type: ignore[misc]
    config = JobConfig.model_validate(config.model_dump())
    hold_out(project, config)
    assert config.evaluate.share > 0.3


def test_a_part_of_one_task_keeps_the_whole_mix(project: Project, config: JobConfig, make_dataset: Any) -> None:
    large, one = make_dataset(rows_of(900)), make_dataset(rows_of(1))
    config.mix.parts = [
        {"name": name, "weight": 1, "data": {"train": data.reference}} for name, data in (("a", large), ("b", one))
    ]  # type: ignore[misc]
    config = JobConfig.model_validate(config.model_dump())
    hold_out(project, config)
    assert config.evaluate.share == 0 and config.evaluate.every == 0


def test_a_new_form_ticks_it_and_a_clone_does_not(
    project: Project, bob: User, make_run: Any, config: JobConfig, client_for: Callable[..., Client]
) -> None:
    address, client = reverse("run-new", args=[project.slug]), client_for(bob)
    assert client.get(address).context["form"]["hold_out"].value() is True
    run = make_run(config=config)
    assert client.get(f"{address}?from={run.pk}").context["form"]["hold_out"].value() is False
    assert client.get(f"{address}?preset=webshop").context["form"]["hold_out"].value() is False
    changed = client.get(f"{address}?from={run.pk}&change=held-out").context["form"]
    assert changed["evaluate.every"].value() == 12 and changed["evaluate.share"].value() > 0.1
    page = client.get(address).content.decode()
    assert 'name="hold_out"' in page and "Remove the tick to train on all tasks" in page


def finding(project: Project, config: JobConfig, title: str = "Held-out tasks") -> Check:
    (found,) = [check for check in preflight(project, config, full=False).checks if check.title == title]
    return found


def test_the_check_says_how_much_the_held_out_tasks_can_tell(project: Project, config: JobConfig) -> None:
    config.evaluate.share, config.evaluate.every = 0.16, 12
    tasks = sum(place_bits(f"what is {number} + 1?") / 2**64 < 0.16 for number in range(200))
    found = finding(project, config)
    assert found.ok and found.message.startswith(f"{tasks} of 200 tasks are not trained on, and are played every 12 ")
    assert "±" in found.message and "set the held-out share" in found.hint
    config.evaluate.tasks = 10
    few = finding(project, config)
    assert not few.ok and few.remark and "±26 points" in few.message
    assert few.message.startswith(f"{tasks} of 200 tasks are not trained on; 10 are played every 12 steps.")


@pytest.mark.parametrize(("tasks", "ok"), [(24, False), (25, True)])
def test_few_tasks_are_remarked(project: Project, config: JobConfig, tasks: int, ok: bool) -> None:
    config.evaluate.share, config.evaluate.every, config.evaluate.tasks = 0.5, 12, tasks
    assert finding(project, config).ok is ok


def test_a_run_that_holds_nothing_out_is_remarked(project: Project, config: JobConfig) -> None:
    found = finding(project, config)
    assert not found.ok and found.remark and found.message.startswith("None: success will be measured on tasks that")
    assert found.path == "evaluate.share"


def test_another_dataset_is_counted_whole(project: Project, config: JobConfig, make_dataset: Any) -> None:
    config.evaluate.data, config.evaluate.every = make_dataset(rows_of(48)).reference, 5
    assert finding(project, config).message.startswith("48 tasks of another dataset are played every 5 steps.")


def test_rows_that_are_gone_are_not_counted(project: Project, config: JobConfig) -> None:
    from webapp.datasets.models import Dataset

    config.evaluate.share, config.evaluate.every = 0.16, 12
    Dataset.objects.get().rows_path.unlink()
    assert finding(project, config).message == "How many tasks are held out is counted when the run begins."


def test_an_evaluation_says_which_part_it_plays(project: Project, config: JobConfig) -> None:
    config.kind, config.evaluate.share = "evaluate", 0.16
    from webapp.engine.resolve import resolve

    assert part_check(resolve(project, config).config).message.endswith(
        "of 200 tasks are played, of those that a held-out share of 0.16 holds out."
    )
    assert finding(project, config, "Tasks").ok


def test_identities_of_equal_rows_share_a_place(make_dataset: Any) -> None:
    rows = identities_of(make_dataset(rows_of(5, same=3)).rows_path)
    assert rows is not None and len(rows) == 15 and len(np.unique(rows[:, 3])) == 5
