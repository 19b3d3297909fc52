"""The forms of a suite: how many rows there are, what a row has to name, and what its parts become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.urls import reverse

from webapp.environments.models import Environment
from webapp.evaluation.suites.models import Suite, SuiteVersion
from webapp.evaluation.suites.views import _base_config, part_forms, parts_from, rows_of_version
from webapp.people.teams.models import Project
from webapp.site.tags import play_a_suite

COMMON = {"samples": 2, "temperature": 0.5, "max_turns": 3, "seed": 1}


@pytest.mark.parametrize(
    ("base", "config"),
    [("part:0", {"a": 1}), ("part:1", {"a": 2}), ("part:2", {}), ("part:x", {}), ("part:-1", {}), ("", {})],
)
def test_a_row_keeps_the_options_of_the_part_it_came_from(base: str, config: dict[str, int]) -> None:
    version = SuiteVersion(parts=[{"config": {"a": 1}}, {"config": {"a": 2}}])
    assert _base_config(Project(), base, version) == config
    assert _base_config(Project(), base, None) == {}


@pytest.mark.django_db
def test_there_is_a_row_for_each_that_was_sent_or_filled(project: Project) -> None:
    usual = len(part_forms(project))
    assert usual == len(part_forms(project, {})) == len(part_forms(project, {"part0-weight": "1"}))
    assert len(part_forms(project, {"part8-weight": "1", "part5-weight": "1"})) == 9
    assert len(part_forms(project, rows=[{"weight": 2}] * 7)) == 8, "one is left empty"
    assert len(part_forms(project, rows=[{"weight": 2}] * 12)) == 12
    assert [form.initial["weight"] for form in part_forms(project, rows=[{"weight": 2}] * 2)][:3] == [2, 2, 1]


@pytest.mark.django_db
@pytest.mark.parametrize(("field", "asks"), [("title", True), ("weight", False)])
def test_a_row_with_a_title_alone_asks_for_its_environment(project: Project, field: str, asks: bool) -> None:
    form = part_forms(project, {f"part0-{field}": "1"})[0]
    assert form.is_valid() is not asks and list(form.errors) == (["environment"] if asks else [])
    assert form.empty is not asks


def test_the_forms_of_a_version_have_the_common_options_of_its_first_part() -> None:
    parts = [
        {
            "title": title,
            "weight": weight,
            "config": {
                "kind": "evaluate",
                "data": {"train": f"dataset:{title}@1"},
                "environment": {"name": "environment:arena"},
                "rollout": {"num_generations": number, "temperature": 0.25 * number, "max_turns": 10 * number},
                "run": {"seed": number},
                "evaluate": {"tasks": 100 * number, "share": 0.1 * number},
            },
        }
        for number, (title, weight) in enumerate([("first", 1.0), ("second", 3.0)], start=2)
    ]
    common, rows = rows_of_version(SuiteVersion(suite=Suite(note="why"), parts=parts))
    assert common == {"samples": 2, "temperature": 0.5, "max_turns": 20, "seed": 2, "note": "why"}
    same = {"environment": "environment:arena", "spec": ""}
    assert rows == [
        {"base": "part:0", "title": "first", "weight": 1.0, "dataset": "dataset:first@1", "tasks": 200, "share": 0.2}
        | same,
        {"base": "part:1", "title": "second", "weight": 3.0, "dataset": "dataset:second@1", "tasks": 300}
        | {"share": pytest.approx(0.3)}
        | same,
    ]


@pytest.mark.parametrize(
    ("spec", "rewards"),
    [
        ("reward:a", {"spec": "reward:a", "components": [], "kept": 1}),
        ("", {"spec": "", "components": ["x"], "kept": 1}),
    ],
)
def test_a_spec_replaces_the_components_of_a_row(spec: str, rewards: dict[str, Any]) -> None:
    row = {"base": "part:0", "title": "one", "dataset": "", "environment": "environment:a", "spec": spec}
    row |= {"tasks": None, "share": None, "weight": None}
    form: Any = SimpleNamespace(empty=False, cleaned_data=row)
    version = SuiteVersion(parts=[{"config": {"rewards": {"components": ["x"], "kept": 1}, "run": {"name": "n"}}}])
    empty: Any = SimpleNamespace(empty=True)
    (part,) = parts_from(Project(), COMMON, [empty, form], version)
    assert part == {
        "title": "one",
        "weight": 1.0,
        "config": {
            "kind": "evaluate",
            "data": {"train": ""},
            "environment": {"name": "environment:a"},
            "rewards": rewards,
            "rollout": {"num_generations": 2, "temperature": 0.5, "max_turns": 3},
            "evaluate": {"tasks": 0, "share": 0.0},
            "run": {"name": "n", "seed": 1},
        },
    }
    row["weight"] = 0.0
    assert parts_from(Project(), COMMON, [form], version)[0]["weight"] == 0.0


@pytest.mark.django_db
def test_ten_suites_of_the_project_are_offered_by_name(project: Project) -> None:
    other = Project.objects.create(team=project.team, name="Other", slug="other")
    Suite.objects.create(project=other, name="a")
    Suite.objects.bulk_create(Suite(project=project, name=f"s{number:02}") for number in reversed(range(12)))
    offered = play_a_suite(project, "model:x")["suites"]
    assert [suite.name for suite, _address in offered] == [f"s{number:02}" for number in range(10)]
    assert all(address.endswith(f"/{suite.pk}/?contestant=model%3Ax") for suite, address in offered)


def test_what_was_saved_is_said(
    project: Project, part: Any, tasks: Any, place: Environment, alice: Any, client_for: Any
) -> None:
    client = client_for(alice)
    row = {"title": "one", "dataset": tasks.reference, "environment": place.reference, "weight": "2"}
    sent = {"name": "fresh", "samples": 3, "temperature": 0.7, "max_turns": 5, "seed": 9}
    sent |= {f"part0-{key}": value for key, value in row.items()}
    said = []
    for weight in ("2", "2", "3"):
        made = Suite.objects.first()
        name, keys = ("suite-edit", [made.pk]) if made else ("suite-new", [])
        page = reverse(name, args=[project.slug, *keys])
        answer = client.post(page, sent | {"part0-weight": weight} | ({"part0-base": "part:0"} if made else {}))
        said.append(str(list(get_messages(answer.wsgi_request))[-1]))
    assert said == [
        "fresh is saved. Have a model play it.",
        "Saved; the parts are the same.",
        "Version 2 is saved; it begins without scores.",
    ]
