"""Reward components have one name and one colour on every page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation

from tests.markup import dense
from training.config import JobConfig
from webapp.people.teams.models import Project, User
from webapp.reading.parts import parts_of
from webapp.rewards.lab import views
from webapp.rewards.models import RewardSpec
from webapp.runs.config import component_curves, config_of, scored_components, stack_weights
from webapp.runs.rollouts.models import Rollout
from webapp.site.run_pages import page

Clients = Callable[..., Client]
Make = Callable[..., Any]
pytestmark = pytest.mark.django_db


def test_a_component_has_one_name_and_one_colour_on_every_page(
    project: Project, bob: User, client_for: Callable[..., Client], make_run: Any
) -> None:
    """The lab had titles in the order of the spec, the run page names by alphabet, in English."""
    parts = [{"name": "task_success", "weight": 1.0}, {"name": "exact", "function": "numeric_match", "weight": 0.5}]
    run = make_run(config=JobConfig.model_validate({"rewards": {"components": parts}}))
    lab = views.functions()
    titles = page.component_titles(page._components_of(run, page.config_of(run)))
    assert list(titles) == ["task_success", "exact"]
    assert titles == {"task_success": lab["task_success"]["title"], "exact": f"{lab['numeric_match']['title']} (exact)"}
    with translation.override("zh-hans"):
        assert (
            page.component_titles(page._components_of(run, page.config_of(run)))["task_success"]
            != titles["task_success"]
        )


def test_a_stage_of_its_own_order_gives_no_component_another_colour(make_run: Any) -> None:
    """The page of a rollout took places of its stage's spec, the curves those of the run."""
    first = [{"name": "task_success", "weight": 1.0}, {"name": "coherence", "weight": 0.5}]
    second = [{"name": "final_answer", "weight": 0.5}, {"name": "coherence", "weight": 1.0}]
    stages = [
        {"name": "one", "until_step": 5, "rewards": {"components": first}},
        {"name": "two", "rewards": {"components": second}},
    ]
    run = make_run(config={"kind": "grpo", "run": {"max_steps": 20}, "curriculum": {"stages": stages}})
    assert page.config_of(run) is not None
    whole = list(page.component_titles(page._components_of(run, page.config_of(run))))
    assert whole == ["task_success", "coherence", "final_answer"]
    assert component_curves(run) == {name: place for place, name in enumerate(whole)}
    place = {"attempt": 1, "step": 9, "group": 0, "index": 0, "status": "completed", "seq": 1}
    rollout = Rollout.objects.create(run=run, parts={"final_answer": 1.0}, started_at=timezone.now(), **place)
    assert [part.curve for part in parts_of(rollout, scored_components(run)[1:])] == [2]


def test_a_draft_knows_the_components_of_the_spec_it_names(project: Project, bob: User, make_run: Any) -> None:
    """A page opened at the launch named its curves task_success and exact until it was loaded again."""
    parts = [{"name": "exact", "function": "numeric_match", "weight": 0.5}]
    RewardSpec.objects.create(project=project, name="mine", version=2, components=parts, created_by=bob)
    run = make_run(config=JobConfig.model_validate({"rewards": {"spec": "reward:mine@2"}}))
    data = page.page_data(run, {}, "curves")
    assert list(data["components"]) == ["exact"]
    gone = make_run(config=JobConfig.model_validate({"rewards": {"spec": "reward:other@1"}}))
    assert page.page_data(gone, {}, "curves")["components"] == {}


def test_the_page_of_a_rollout_names_components_as_the_run_does(
    project: Project, rita: User, client_for: Clients, make_run: Make
) -> None:
    """It had their raw names by alphabet, without colours, in English."""
    parts = [{"name": "tool_necessity", "weight": 1.0}, {"name": "final_answer", "weight": 0.5}]
    run = make_run(config=JobConfig.model_validate({"rewards": {"components": parts}}))
    values = {"final_answer": 1.0, "gone": 0.25, "tool_necessity": 0.5}
    place = {"attempt": 1, "step": 1, "group": 0, "index": 0, "status": "completed", "seq": 1}
    rollout = Rollout.objects.create(run=run, parts=values, started_at=timezone.now(), **place)
    url = reverse("rollout-detail", args=[project.slug, rollout.pk])
    text = dense(client_for(rita).get(url, headers={"accept-language": "zh-CN"}).content.decode())
    with translation.override("zh-hans"):
        titles = list(page.component_titles(page._components_of(run, page.config_of(run))).values())
    table = text.split('class="table table-dense parts"')[1]
    cells = r"<tr(?: data-curve=\"(\d)\")? data-part=\"\w+\">\s*<td title=\"\w+\"><span[^>]*></span>([^<]+)</td>"
    found = re.findall(cells, table)
    assert found == [("0", titles[0]), ("1", titles[1]), ("", "gone")]
    assert not {"tool_necessity", "final_answer"} & {title for _curve, title in found}


@pytest.mark.parametrize(
    ("parts", "stages", "weights"),
    [
        ([{"name": "a", "weight": 0.5}, {"name": "b", "weight": -2}], [], {"a": 0.5, "b": -2.0}),
        ([{"name": "a", "weight": 0.5, "scale": [0, 2]}], [], None),
        ([{"name": "a", "weight": 0.5, "schedule": {"end": 9, "last": 0}}], [], None),
        ([{"name": "a", "weight": 0.5}], [{"name": "b", "weight": 1}], {"a": 0.5, "b": 1.0}),
        ([{"name": "a", "weight": 0.5}], [{"name": "a", "weight": 1}], None),
    ],
    ids=["weights", "scale", "schedule", "a stage with others", "a stage that weighs otherwise"],
)
def test_components_are_stacked_by_the_one_weight_that_each_has(
    make_run: Any, parts: list[Any], stages: list[Any], weights: dict[str, float] | None
) -> None:
    config: dict[str, Any] = {"rewards": {"components": parts}}
    if stages:
        later = {"name": "two", "rewards": {"components": stages}}
        config["curriculum"] = {"stages": [{"name": "one", "until_step": 2}, later]}
    run = make_run(config=JobConfig.model_validate(config | {"run": {"max_steps": 9}}))
    assert stack_weights(config_of(run)) == weights
