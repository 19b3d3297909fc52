"""Leaderboards: one for each set of tasks, with the newest evaluation of each contestant."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.datasets.models import Dataset
from webapp.evaluation.comparison.boards import boards
from webapp.evaluation.comparison.figures import left_out_text
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
Evaluation = Callable[..., Run]


def _of(name: str) -> dict[str, Any]:
    return {"model": {"source": name}}


def test_the_newest_of_each_the_best_first(
    project: Project, evaluation: Evaluation, make_dataset: Callable[..., Dataset]
) -> None:
    evaluation("old", {0: [1], 1: [1]}, **_of("model:a"))
    Run.objects.filter(name="old").update(finished_at=timezone.now() - timedelta(days=1))
    evaluation("new", {0: [1], 1: [0], 2: [0], 3: [0]}, **_of("model:a"))
    evaluation("better", {0: [1], 1: [1], 2: [1], 3: [None]}, **_of("model:b"))
    Run.objects.filter(name="better").update(finished_at=timezone.now() - timedelta(days=2))
    evaluation("at-work", {0: [1]}, state="running", **_of("model:c"))
    evaluation("elsewhere", {0: [0, 1]}, dataset=make_dataset(name="else"), **_of("model:a"))
    first, second = boards(project)
    assert (first.data, second.data) == ("else@1", "tasks@1")
    assert [(line.contestant.who, line.contestant.run.name) for line in second.lines] == [
        ("model:b", "better"),
        ("model:a", "new"),
    ]
    place = [column.name for column in second.columns].index("success")
    assert [line.cells[place].text for line in second.lines] == ["100%", "25%"]
    assert [(line.report.tasks, line.report.missing_tasks) for line in second.lines] == [(4, 1), (4, 0)]
    assert "reward" not in {column.name for column in second.columns}  # their specs may differ
    assert "pass@2" in {column.name for column in first.columns}


def test_a_part_of_the_tasks_is_a_board_of_its_own(
    client: Client, project: Project, rita: User, evaluation: Evaluation
) -> None:
    evaluation("all", {0: [1], 1: [0]}, **_of("model:a"))
    evaluation("held-out", {0: [1]}, **_of("model:a"), evaluate={"share": 0.25})
    evaluation("some", {0: [1]}, **_of("model:a"), evaluate={"tasks": 1})
    found = {line.contestant.run.name: board.share for board in boards(project) for line in board.lines}
    assert found == {"all": 0.0, "held-out": 0.25, "some": 0.0} and len(boards(project)) == 3
    client.force_login(rita)
    assert "the 25% held out" in client.get(reverse("compare", args=[project.slug])).content.decode()


def test_a_contestant_without_a_verdict_is_last(project: Project, evaluation: Evaluation) -> None:
    evaluation("none", {0: [None], 1: [None]}, **_of("model:none"))
    evaluation("zero", {0: [0], 1: [0]}, **_of("model:zero"))
    (board,) = boards(project)
    assert [line.contestant.run.name for line in board.lines] == ["zero", "none"]


def test_the_board_is_on_the_page(client: Client, project: Project, rita: User, evaluation: Evaluation) -> None:
    run = evaluation("first", {0: [1], 1: [0]}, **_of("model:a"))
    client.force_login(rita)
    page = client.get(reverse("compare", args=[project.slug])).content.decode()
    assert "tasks@1" in page and "model:a" in page and page.count(f'value="{run.pk}"') == 2


def test_the_runs_own_page_has_its_figures(
    client: Client, project: Project, rita: User, evaluation: Evaluation
) -> None:
    run = evaluation("first", {0: [1], 1: [0], 2: [None]})
    client.force_login(rita)
    page = client.get(reverse("run-detail", args=[project.slug, run.pk])).content.decode()
    assert 'id="evaluation"' in page and "50%" in page
    assert "2 of 4 tasks have no try that counts; tries that failed outside the policy: 1." in page


@pytest.mark.parametrize(
    ("missing", "excluded", "words"),
    [
        (0, 0, ""),
        (0, 2, "a: tries that failed outside the policy and are missing: 2."),
        (3, 0, "a: 3 of 9 tasks have no try that counts; tries that failed outside the policy: 0."),
        (3, 2, "a: 3 of 9 tasks have no try that counts; tries that failed outside the policy: 2."),
    ],
)
def test_what_figures_leave_out_is_said(missing: int, excluded: int, words: str) -> None:
    assert left_out_text("a", 9, missing, excluded) == words
