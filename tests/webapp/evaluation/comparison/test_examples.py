"""Where two contestants differ: which tasks are opened, in which order, and which try of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.markup import dense
from webapp.datasets.models import Dataset
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.views import Comparison, compare
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn

pytestmark = pytest.mark.django_db
Evaluation = Callable[..., Run]


@pytest.fixture
def data(make_dataset: Callable[..., Dataset]) -> Dataset:
    """Eight tasks, the first of which has no expected answer."""
    lines = [{"messages": [{"role": "user", "content": f"task {n}"}], "answer": f"answer {n}"} for n in range(8)]
    return make_dataset([{"messages": lines[0]["messages"]}, *lines[1:]], name="eight")


def found(project: Project, *runs: Run) -> Comparison:
    contestants, notes = contestants_of(project, [str(run.pk) for run in runs])
    return compare(project, contestants, notes, QueryDict())


def shown(project: Project, *runs: Run) -> list[tuple[str, int, list[int]]]:
    return [(side.title, side.tasks, [item.task for item in side.examples]) for side in found(project, *runs).examples]


def test_the_largest_differences_come_first_then_the_earlier_row(
    project: Project, evaluation: Evaluation, data: Dataset
) -> None:
    a = evaluation("a", {0: [0, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1], 4: [0, 0], 5: [1, 1], 6: [1, 1]}, dataset=data)
    b = evaluation("b", {0: [1, 1], 1: [1, 1], 2: [1, 1], 3: [1, 1], 4: [1, 1], 5: [0, 1], 6: [1, 1]}, dataset=data)
    expected = [("b solves, a fails", 5, [1, 2, 4]), ("a solves, b fails", 1, [5])]
    assert shown(project, a, b) == shown(project, b, a) == expected, "in either order of the address"


def test_a_try_is_shown_that_one_solves_and_the_other_fails(
    project: Project, evaluation: Evaluation, data: Dataset
) -> None:
    a = evaluation("a", {0: [1, 0, 0], 1: [None, 0, 0]}, dataset=data)
    b = evaluation("b", {0: [1, 0, 1], 1: [1, 1, 1]}, dataset=data)
    (gained, lost) = found(project, a, b).examples
    assert (lost.title, lost.tasks, lost.examples) == ("a solves, b fails", 0, [])
    one, zero = gained.examples
    assert (one.task, one.number, one.text, one.expected) == (1, 2, "task 1", "answer 1"), "the first try was excluded"
    assert (zero.task, zero.number, zero.expected) == (0, 3, "")
    for item in (one, zero):
        assert [(each.contestant.run.name, each.words) for each in item.endings] == [("b", "solved"), ("a", "given up")]
        assert all(each.rollout is not None and each.rollout.index == item.number - 1 for each in item.endings)
    assert [round(each.share, 2) for each in zero.endings] == [0.67, 0.33]


def test_a_try_that_is_half_solved_solves_nothing(project: Project, evaluation: Evaluation, data: Dataset) -> None:
    a = evaluation("a", {0: [0.5, 0.0], 1: [0.0, 0.5]}, dataset=data)
    b = evaluation("b", {0: [0.5, 1.0], 1: [0.51, 1.0]}, dataset=data)
    (gained, _lost) = found(project, a, b).examples
    assert [(item.task, item.number) for item in gained.examples] == [(1, 1), (0, 2)]


def test_where_no_try_of_both_differs_the_first_that_was_solved_is_shown(
    project: Project, evaluation: Evaluation, data: Dataset
) -> None:
    a = evaluation("a", {1: [None, None, 0]}, dataset=data)
    b = evaluation("b", {1: [1, 1, None]}, dataset=data)
    (item,) = found(project, a, b).examples[0].examples
    assert item.number == 1 and [each.rollout.status for each in item.endings if each.rollout] == [
        "completed",
        "excluded",
    ]


def test_what_no_pair_differs_in_or_no_pair_played_is_not_opened(
    project: Project, evaluation: Evaluation, data: Dataset, make_run: Any, make_dataset: Any
) -> None:
    a = evaluation("a", {1: [1], 2: [0]}, dataset=data)
    same = evaluation("same", {1: [1], 2: [0]}, dataset=data)
    other = evaluation("other", {1: [0]}, dataset=make_dataset(name="else"))
    assert [(side.tasks, side.examples) for side in found(project, a, same).examples] == [(0, []), (0, [])]
    assert found(project, a, other).examples == [] and found(project, make_run(), make_run()).examples == []


def test_of_three_the_pair_of_the_answer_is_opened(project: Project, evaluation: Evaluation, make_dataset: Any) -> None:
    data = make_dataset(name="many", lines=[{"messages": [{"role": "user", "content": str(n)}]} for n in range(40)])
    a = evaluation("a", {n: [0.0] for n in range(40)}, dataset=data)
    b = evaluation("b", {n: [float(n < 20)] for n in range(40)}, dataset=data)
    c = evaluation("c", {n: [1.0] for n in range(40)}, dataset=data)
    made = found(project, a, b, c)
    assert made.answer.text.startswith("c is the best of 3: +50 points of success over b, the closest")
    assert [(side.title, side.tasks) for side in made.examples] == [("c solves, b fails", 20), ("b solves, c fails", 0)]
    assert [item.task for item in made.examples[0].examples] == [20, 21, 22]


def test_the_page_has_prompts_words_and_answers_and_leads_to_the_try(
    client: Client, project: Project, rita: User, evaluation: Evaluation, data: Dataset
) -> None:
    a = evaluation("a", {1: [1, 0], 2: [0, 0]}, dataset=data)
    b = evaluation("b", {1: [1, 1, 1], 2: [0, 0]}, dataset=data)
    Turn.objects.filter(run=a, number=1).update(messages=[{"role": "assistant", "content": "لا أعرف <b>"}])
    Rollout.objects.filter(run=b).update(tools=["search"])
    Turn.objects.filter(run=b, number=1).update(messages=[{"role": "assistant", "content": "", "tool_calls": []}])
    client.force_login(rita)
    query = f"c={a.pk}&c={b.pk}"
    page = client.get(reverse("compare", args=[project.slug]) + f"?{query}").content.decode()
    card = dense(page[page.index('id="examples"') : page.index('id="verdicts"')])
    address = f"{reverse('compare-task', args=[project.slug, 1])}?c={a.pk}&amp;c={b.pk}&amp;try=2"
    for text in (
        f'href="{address}"',
        "expected: answer 1",
        "لا أعرف &lt;b&gt;",
        "solves 50% of its tries",
        "it called search",
    ):
        assert text in card, text
    assert card.count("No task is of this kind.") == 1
    task = client.get(address.replace("&amp;", "&"))
    assert (task.status_code, task.context["number"], task.context["numbers"]) == (200, 2, range(1, 4))


def test_examples_cost_two_queries(project: Project, evaluation: Evaluation, data: Dataset) -> None:
    a = evaluation("a", {n: [0] for n in range(8)}, dataset=data)
    b = evaluation("b", {n: [1] for n in range(8)}, dataset=data)
    made = found(project, a, b)
    with CaptureQueriesContext(connection) as caught:
        assert len(made.examples[0].examples) == 3
    assert len(caught) == 2, "tries and words"
