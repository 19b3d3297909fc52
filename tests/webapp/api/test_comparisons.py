"""Comparisons over the API say what the page says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
NO_ANSWER = (
    "No answer: none of these runs is an evaluation or has played held-out tasks. Evaluate their models on the same "
    "tasks, then compare those."
)
NOTHING = {
    "answer": {"kind": "nothing", "text": NO_ANSWER, "leaders": [], "left_out": []},
    "notes": [], "specs_differ": False, "items": [], "verdicts": [], "lacking": [], "to_score": None,
}  # fmt: skip


def _ask(client: Client, project: Project, *runs: Run, **more: str) -> Any:
    return client.get(f"/api/v1/projects/{project.slug}/compare", {"c": [str(run.pk) for run in runs], **more}).json()


def test_figures_and_verdicts(
    client_for: Callable[..., Client], rita: User, project: Project, evaluation: Callable[..., Run]
) -> None:
    client = client_for(rita)
    a = evaluation("a", {0: [1, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1]})
    b = evaluation("b", {0: [1, 1], 1: [1, 1], 2: [1, None], 3: [1, 1]})
    found = _ask(client, project, a, b)
    assert [(item["name"], item["tasks"], item["missing_tasks"], item["excluded"]) for item in found["items"]] == [
        ("a", 4, 0, 0),
        ("b", 4, 0, 1),
    ]
    success = [item["figures"]["success"] for item in found["items"]]
    assert [(item["value"], item["tasks"]) for item in success] == [(0.375, 4), (1.0, 4)]
    (verdict,) = found["verdicts"]
    assert (verdict["better"], verdict["worse"], verdict["told_apart"]) == (str(b.pk), str(a.pk), False)
    answer = found["answer"]
    assert (answer["kind"], answer["leaders"], answer["left_out"]) == ("equal", [str(b.pk), str(a.pk)], [])
    assert answer["text"].startswith("No difference can be shown: +62 points of success for b (95% interval ")
    assert "cannot be told apart" in verdict["text"] and found["notes"] == [] and found["specs_differ"] is False


def test_rewards_of_different_specs_need_one(
    client_for: Callable[..., Client], rita: User, project: Project, evaluation: Callable[..., Run]
) -> None:
    client, half = client_for(rita), [{"name": "env_success", "weight": 0.5, "params": {}}]
    a, b = evaluation("a", {0: [1], 1: [0]}), evaluation("b", {0: [1], 1: [0]}, components=half)
    found = _ask(client, project, a, b)
    assert found["specs_differ"] and all("reward" not in item["figures"] for item in found["items"])
    by_b = _ask(client, project, a, b, spec=str(b.pk))
    assert [item["figures"]["reward"]["value"] for item in by_b["items"]] == [0.25, 0.25]


def test_nothing_to_compare(client_for: Callable[..., Client], rita: User, project: Project, make_run: Any) -> None:
    assert _ask(client_for(rita), project) == NOTHING
    assert _ask(client_for(rita), project, make_run())["items"] == []
    bad = client_for(rita).get(f"/api/v1/projects/{project.slug}/compare?c=x").json()
    assert bad["notes"] == ["A part of the address names no run."]
