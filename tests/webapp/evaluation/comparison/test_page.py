"""The page of a comparison: what it says of planted evaluations, and what it refuses."""

from __future__ import annotations

import csv
import html
import re
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tests.evaluations import play
from tests.growth import MOST_QUERIES
from tests.markup import dense
from webapp.datasets.models import Dataset
from webapp.evaluation.comparison import figures as figures_module
from webapp.evaluation.comparison.contestants import contestants_of
from webapp.evaluation.comparison.tasks import played_tasks
from webapp.evaluation.comparison.verdicts import _round_up, p_text
from webapp.evaluation.comparison.views import Comparison, compare
from webapp.people.teams.models import Project, User
from webapp.rewards.models import RewardSpec
from webapp.runs.models import Run
from webapp.runs.rollouts.models import Rollout, Turn
from webapp.runs.states import RunState

pytestmark = pytest.mark.django_db
Evaluation = Callable[..., Run]
GATED = [
    {"name": "env_success", "weight": 0.8, "params": {}},
    {"name": "format", "weight": 0.2, "params": {}},
]


def _found(project: Project, *runs: Run, **asked: str) -> Comparison:
    from django.http import QueryDict

    query = QueryDict(mutable=True)
    query.update(asked)
    contestants, notes = contestants_of(project, [str(run.pk) for run in runs])
    return compare(project, contestants, notes, query)


@pytest.fixture
def two(evaluation: Evaluation) -> tuple[Run, Run]:
    """Of four tasks ``b`` solves three that ``a`` fails in one of two tries or in both."""
    a = evaluation("a", {0: [1, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1]})
    b = evaluation("b", {0: [1, 1], 1: [1, 1], 2: [1, 0], 3: [1, 1]})
    return a, b


def test_the_figures_are_means_over_tasks(project: Project, two: tuple[Run, Run]) -> None:
    found = _found(project, *two)
    shown = {
        line.contestant.run.name: {
            column.name: cell.text for column, cell in zip(found.columns, line.cells, strict=True)
        }
        for line in found.lines
    }
    assert shown["a"] == {
        "success": "37.5%", "pass@2": "50%", "pass^2": "25%", "reward": "0.375", "turns": "2.00", "tokens": "10.0",
        "tool_errors": "25%", "parse_errors": "0%", "truncated": "0%", "seconds": "1.5 s",
    }  # fmt: skip
    assert (shown["b"]["success"], shown["b"]["pass@2"], shown["b"]["pass^2"]) == ("87.5%", "100%", "75%")
    assert all(cell.tasks == 4 for line in found.lines for cell in line.cells)
    assert [line.left_out for line in found.lines] == ["", ""]
    assert [(cost.seconds, cost.tokens, cost.money) for cost in found.costs] == [(90.0, 80, None)] * 2


def test_the_verdict_counts_tasks_and_names_the_better_one_first(
    project: Project, evaluation: Evaluation, make_dataset: Any
) -> None:
    data = make_dataset(name="many", lines=[{"messages": [{"role": "user", "content": str(n)}]} for n in range(40)])
    a = evaluation("a", {n: [float(n < 10)] for n in range(40)}, dataset=data)
    b = evaluation("b", {n: [float(n > 7)] for n in range(40)}, dataset=data)
    for order in ((a, b), (b, a)):
        (verdict,) = _found(project, *order).verdicts
        assert verdict.told and verdict.better.run == b
        assert verdict.text.startswith(
            "b solves 30 tasks more often than not that a does not; the reverse holds for 8: "
            "success +55.0 points (95%: "
        )
        # the chance of 8 or fewer of 38 tosses, twice: 2 × 64,869,364 / 2^38 = 0.00047
        assert verdict.text.endswith("), p = 0.00047, n = 40 tasks.")


def test_too_few_tasks_cannot_tell(project: Project, two: tuple[Run, Run]) -> None:
    (verdict,) = _found(project, *two).verdicts
    assert not verdict.told
    assert "b and a cannot be told apart: success +50.0 points" in verdict.text
    assert "p = 0.25, n = 4 tasks × 2. About " in verdict.text and "tasks would be needed." in verdict.text


def test_what_is_missing_is_reported_and_never_zero(project: Project, evaluation: Evaluation) -> None:
    a = evaluation("a", {0: [1], 1: [None], 2: [1]})  # task 3 was never played
    b = evaluation("b", {0: [1], 1: [1], 2: [1], 3: [0]}, state=RunState.RUNNING)
    found = _found(project, a, b)
    success = [line.cells[0] for line in found.lines]
    assert [(cell.text, cell.tasks) for cell in success] == [("100%", 2), ("75%", 4)]
    assert [line.left_out for line in found.lines] == [
        "a: 2 of 4 tasks have no try that counts; tries that failed outside the policy: 1.",
        "b is not done: 4 of 4 tasks so far.",
    ]
    assert found.task_list is not None
    other = _found(project, b, a)
    assert other.task_list is not None
    for tasks in (found.task_list, other.task_list):
        counts = {name: count for name, _title, count in tasks.counts}
        assert counts == {"gained": 0, "lost": 0, "both": 2, "neither": 0, "missing": 2}


def test_figures_follow_an_evaluation_that_continues(project: Project, evaluation: Evaluation) -> None:
    """Figures are kept, but not past the next change of a run."""
    a, b = evaluation("a", {0: [1]}), evaluation("b", {0: [0]}, state=RunState.RUNNING)
    assert _found(project, a, b).lines[1].cells[0].text == "0%"
    play(b, 1, 0, 1.0, lambda success: {"env_success": success})
    Run.objects.filter(pk=b.pk).update(seq=b.seq + 1)
    assert _found(project, a, b).lines[1].cells[0].text == "50%"


def test_rewards_of_different_specs_are_shown_only_by_one_of_them(
    project: Project, evaluation: Evaluation, make_reward_spec: Any
) -> None:
    a = evaluation("a", {n: [1.0, 0.0] for n in range(4)})
    b = evaluation(
        "b", {n: [1.0, 0.0] for n in range(4)}, components=GATED, parts=lambda s: {"env_success": s, "format": 0.5}
    )
    found = _found(project, a, b)
    assert found.rewards.differ and "reward" not in {column.name for column in found.columns}
    by_a = _found(project, a, b, spec=str(a.pk))
    place = [column.name for column in by_a.columns].index("reward")
    assert [line.cells[place].text for line in by_a.lines] == ["0.500", "0.500"] and not by_a.rewards.unknown
    by_b = _found(project, a, b, spec=str(b.pk))
    place = [column.name for column in by_b.columns].index("reward")
    assert [line.cells[place].text for line in by_b.lines] == ["–", "0.500"]  # 0.8 × 0.5 + 0.2 × 0.5
    assert [(item.run.name, names) for item, names in by_b.rewards.unknown] == [("a", ["format"])]
    spec = make_reward_spec(name="double", components=[{"name": "env_success", "weight": 2.0, "params": {}}])
    doubled = _found(project, a, b, spec=spec.reference)
    place = [column.name for column in doubled.columns].index("reward")
    assert [line.cells[place].text for line in doubled.lines] == ["1.00", "1.00"]
    assert not _found(project, a, b, spec="reward:nothing").rewards.comparable


def test_a_component_with_other_parameters_is_not_the_same(project: Project, evaluation: Evaluation) -> None:
    tries = {n: [1.0] for n in range(4)}
    other = [{"name": "env_success", "function": "coherence", "weight": 1.0, "params": {}}]
    a, b = evaluation("a", tries), evaluation("b", tries, components=other)
    found = _found(project, a, b, spec=str(b.pk))
    assert [(item.run.name, names) for item, names in found.rewards.unknown] == [("a", ["env_success"])]


def test_categories_and_the_tasks_of_one(project: Project, two: tuple[Run, Run]) -> None:
    found = _found(project, *two, tasks="gained", category="odd")
    assert [
        (line.name, line.tasks, [interval.value for _name, interval in line.intervals]) for line in found.categories
    ] == [
        ("even", 2, [0.5, 0.75]),
        ("odd", 2, [0.25, 1.0]),
    ]
    assert found.task_list is not None
    assert {name: count for name, _title, count in found.task_list.counts} == {
        "gained": 2, "lost": 0, "both": 1, "neither": 1, "missing": 0,
    }  # fmt: skip
    assert [(line.task, line.text, line.category, line.shares) for line in found.task_list.page] == [
        (1, "task 1", "odd", [("a", 0.0), ("b", 1.0)]),
        (3, "task 3", "odd", [("a", 0.5), ("b", 1.0)]),
    ]


def test_evaluations_of_other_tasks_are_not_paired(
    project: Project, two: tuple[Run, Run], evaluation: Evaluation, make_dataset: Callable[..., Dataset]
) -> None:
    other = evaluation("other", {0: [1], 1: [1]}, dataset=make_dataset(name="else"))
    found = _found(project, two[0], other, two[1])
    assert len(found.verdicts) == 1 and found.categories == []
    assert found.answer.left_out == ["Left out, because they share no task that counts with the others: other."]
    assert found.task_list is not None and [pair[0] for pair in found.task_list.pairs] == ["0-2"]
    assert _found(project, two[0], other).task_list is None


def test_runs_that_train_show_what_they_were_given(project: Project, make_run: Callable[..., Run]) -> None:
    plain = make_run(name="plain")
    changed = make_run(name="changed", config=plain.config | {"run": plain.config["run"] | {"seed": 7}})
    found = _found(project, plain, changed)
    assert not found.lines and not found.verdicts
    (group,) = found.options
    assert [(row.path, row.values) for row in group.rows] == [("run.seed", [("42", False), ("7", True)])]


# --- The addresses -------------------------------------------------------------------------------------------------
def _address(project: Project, *runs: object) -> str:
    return reverse("compare", args=[project.slug]) + "?" + "&".join(f"c={getattr(run, 'pk', run)}" for run in runs)


def test_the_page_says_it_all(client: Client, project: Project, alice: User, two: tuple[Run, Run]) -> None:
    client.force_login(alice)
    page = client.get(_address(project, *two)).content.decode()
    answer = "No difference can be shown: +50 points of success for b (95% interval "
    for text in (answer, "b and a cannot be told apart", "37.5%", "even", "b solves, a fails", "Resources used"):
        assert text in page, text
    task = reverse("compare-task", args=[project.slug, 1])
    assert f"{task}?c={two[0].pk}&amp;c={two[1].pk}" in page


def test_the_rollouts_of_all_contestants_are_found_together(
    client: Client, project: Project, alice: User, two: tuple[Run, Run], make_run: Callable[..., Run]
) -> None:
    client.force_login(alice)
    taught = make_run(kind="sft", name="taught")
    page = html.unescape(client.get(_address(project, *two, taught)).content.decode())
    address = f"{reverse('project-rollouts', args=[project.slug])}?run={two[0].pk}&run={two[1].pk}"
    assert f'href="{address}"' in page
    assert client.get(address).status_code == 200
    page = client.get(_address(project, taught, make_run(kind="sft", name="again"))).content.decode()
    assert f"{reverse('project-rollouts', args=[project.slug])}?" not in page, "nothing was played"


def test_a_p_value_is_never_zero_and_never_an_equation_with_a_bound() -> None:
    assert [p_text(value) for value in (None, 0.25, 0.00047, 1e-9)] == ["p –", "p = 0.25", "p = 0.00047", "p < 0.0001"]
    assert [p_text(value) for value in (1e-4, 9.9e-5)] == ["p = 0.0001", "p < 0.0001"]


@pytest.mark.parametrize(
    ("needed", "shown"),
    [(1, "1"), (99, "99"), (100, "100"), (101, "110"), (9_991, "10,000"), (999_999, "1,000,000"),
     (1_000_000, "1,000,000"), (1_000_001, "more than a million")],
)  # fmt: skip
def test_how_many_tasks_are_needed_has_two_digits(needed: int, shown: str) -> None:
    assert _round_up(needed) == shown


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_the_larger_number_of_tries_is_named(project: Project, evaluation: Evaluation, order: int) -> None:
    once = evaluation("once", {task: [0.0] for task in range(4)})
    often = evaluation("often", {task: [1.0, 1.0, 0.0] for task in range(4)})
    (verdict,) = _found(project, *[once, often][::order]).verdicts
    assert "n = 4 tasks × 3" in verdict.text


@pytest.mark.parametrize("count", [0, 1])
def test_with_fewer_than_two_there_is_the_list(
    client: Client, project: Project, alice: User, two: tuple[Run, Run], count: int
) -> None:
    client.force_login(alice)
    page = client.get(_address(project, *two[:count])).content.decode()
    assert all(f'value="{run.pk}"' in page for run in two) and page.count("checked") == count


def test_fifty_contestants_are_cut_to_eight_with_a_sentence(project: Project, make_run: Callable[..., Run]) -> None:
    runs = [make_run() for _ in range(50)]
    contestants, notes = contestants_of(project, [str(run.pk) for run in runs])
    assert [item.run for item in contestants] == runs[:8] and [item.number for item in contestants] == list(range(8))
    assert notes == ["8 can be compared at once; the first 8 of 50 are shown."]


def test_runs_of_others_and_nonsense_are_named_and_left_out(
    client: Client, project: Project, alice: User, two: tuple[Run, Run], team: Any
) -> None:
    elsewhere = Project.objects.create(team=team, name="Else", slug="else")
    foreign = Run.objects.create(project=elsewhere, name="foreign", config={})
    client.force_login(alice)
    page = client.get(_address(project, *two, foreign, uuid.uuid4(), "nonsense", two[0])).content.decode()
    assert "foreign" not in page and "37.5%" in page
    assert "2 that the address names are not in this project (any more)." in page
    assert "A part of the address names no run." in page


def test_one_task_side_by_side(client: Client, project: Project, alice: User, two: tuple[Run, Run]) -> None:
    client.force_login(alice)
    address = reverse("compare-task", args=[project.slug, 2]) + f"?c={two[0].pk}&c={two[1].pk}"
    page = client.get(address).content.decode()
    assert page.count("given up") == 1 and page.count("solved") >= 2  # the words of b, and its badge
    second = client.get(address + "&try=2").content.decode()
    assert second.count("given up") == 2


@pytest.mark.parametrize(("task", "query"), [(9, ""), (2, "&try=99"), (2**40, "")])
def test_a_task_or_try_that_was_not_played_is_not_found(
    client: Client, project: Project, alice: User, two: tuple[Run, Run], task: int, query: str
) -> None:
    client.force_login(alice)
    address = reverse("compare-task", args=[project.slug, task]) + f"?c={two[0].pk}{query}"
    assert client.get(address).status_code == 404


def test_a_task_without_contestants_leads_to_their_choice(client: Client, project: Project, alice: User) -> None:
    client.force_login(alice)
    answer = client.get(reverse("compare-task", args=[project.slug, 0]))
    assert (answer.status_code, answer["Location"]) == (302, reverse("compare", args=[project.slug]))


def test_eight_are_compared_in_few_queries(
    client: Client, project: Project, alice: User, evaluation: Evaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As few the first time as once their figures are kept, and one task of theirs: no query for each contestant."""
    runs = [evaluation(f"r{number}", {0: [1, 0], 1: [0, 0], 2: [1, 1]}) for number in range(8)]
    client.force_login(alice)
    task = reverse("compare-task", args=[project.slug, 1]) + "?" + _address(project, *runs).partition("?")[2]
    for address in (_address(project, *runs), task):
        client.get(address)
        monkeypatch.setattr(figures_module, "_kept", OrderedDict())
        with CaptureQueriesContext(connection) as caught:
            page = client.get(address).content.decode()
        assert len(caught) <= MOST_QUERIES and all(run.name in page for run in runs), len(caught)
    assert len(figures_module._kept) == 0  # the task reads no figures


def test_of_a_place_that_was_played_twice_the_later_try_is_shown(project: Project, evaluation: Evaluation) -> None:
    run = evaluation("a", {5: [1, 0, 1]})
    other = evaluation("b", {5: [0]})
    lost = Rollout.objects.get(run=run, index=1)
    again = Rollout.objects.create(
        run=run, attempt=2, step=lost.step, group=lost.group, index=1, row=5, status="completed", seq=999,
        started_at=lost.started_at, env_parts=lost.env_parts,
    )  # fmt: skip
    Rollout.objects.create(
        run=run, attempt=2, step=lost.step, group=lost.group, index=2, row=5, status="running",
        started_at=lost.started_at, seq=999,
    )  # fmt: skip
    contestants, _notes = contestants_of(project, [str(run.pk), str(other.pk)])
    found = played_tasks(contestants, 5, 1)
    assert [[(item.index, item.attempt) for item in one.tries] for one in found] == [[(0, 1), (1, 2), (2, 1)], [(0, 1)]]
    assert (found[0].shown, found[0].turns) == (again, []) and (found[1].shown, found[1].turns) == (None, [])
    first = played_tasks(contestants, 5, 0)
    assert [[turn["rollout"] for turn in one.turns] for one in first] == [
        [str(one.tries[0].pk)] * Turn.objects.filter(rollout=one.tries[0]).count() for one in first
    ]
    assert all(one.turns for one in first)


# --- As CSV ---------------------------------------------------------------------------------------------------------
def _table(client: Client, name: str, project: Project, *runs: Run, **more: str) -> list[list[str]]:
    answer = client.get(reverse(name, args=[project.slug]), {"c": [str(run.pk) for run in runs], **more})
    assert answer["Content-Type"] == "text/csv; charset=utf-8" and "attachment" in answer["Content-Disposition"]
    return list(csv.reader(answer.content.decode("utf-8-sig").splitlines()))


def test_figures_as_csv(client: Client, project: Project, rita: User, two: tuple[Run, Run]) -> None:
    client.force_login(rita)
    rows = _table(client, "compare-figures-csv", project, *two)
    assert rows[0] == ["run", "contestant", "figure", "value", "low", "high", "tasks"]
    success = {row[0]: (float(row[3]), int(row[6])) for row in rows[1:] if row[2] == "success"}
    assert success == {"a": (0.375, 4), "b": (0.875, 4)}


def test_tasks_as_csv(client: Client, project: Project, rita: User, evaluation: Evaluation) -> None:
    client.force_login(rita)
    a, b = evaluation("=a", {0: [1, 0], 1: [None]}), evaluation("b", {0: [1, 1], 1: [0, 0]})
    Rollout.objects.filter(row=1).update(task="@cmd")
    rows = _table(client, "compare-tasks-csv", project, a, b)
    assert rows[0] == ["task", "category", "text", "'=a", "b"]
    assert rows[1:3] == [["0", "even", "task 0", "0.5", "1.0"], ["1", "odd", "'@cmd", "", "0.0"]] and len(rows) == 5


def test_rewards_of_different_specs_are_in_no_csv(
    client: Client, project: Project, rita: User, evaluation: Evaluation
) -> None:
    client.force_login(rita)
    a = evaluation("a", {0: [1.0]})
    b = evaluation("b", {0: [1.0]}, components=GATED, parts=lambda s: {"env_success": s, "format": 0.5})
    figures = {row[2] for row in _table(client, "compare-figures-csv", project, a, b)}
    assert "reward" not in figures and "rewards/format" in figures
    assert "reward" in {row[2] for row in _table(client, "compare-figures-csv", project, a, b, spec=str(a.pk))}


def test_nothing_to_export_leads_to_the_choice(client: Client, project: Project, rita: User, make_run: Any) -> None:
    client.force_login(rita)
    for name in ("compare-figures-csv", "compare-tasks-csv"):
        answer = client.get(reverse(name, args=[project.slug]), {"c": str(make_run().pk)})
        assert answer["Location"] == reverse("compare", args=[project.slug])


# --- As a report ----------------------------------------------------------------------------------------------------
def test_the_report_is_one_file_that_needs_nothing_else(
    client: Client, project: Project, rita: User, two: tuple[Run, Run]
) -> None:
    client.force_login(rita)
    answer = client.get(reverse("compare-report", args=[project.slug]), {"c": [str(run.pk) for run in two]})
    assert answer["Content-Disposition"] == 'attachment; filename="comparison.html"'
    page = answer.content.decode()
    answer = "No difference can be shown: +50 points of success for b (95% interval "
    for text in (answer, "cannot be told apart", "37.5%", "even", "What differs", "Resources used", "--curve-0"):
        assert text in page, text
    assert not re.findall(r"<(?:script|link|img|iframe|form|button)\b", page) and "url(" not in page
    assert not re.findall(r'(?:href|src)="(?!#)', page)


def test_a_report_of_less_than_two_leads_to_the_choice(client: Client, project: Project, rita: User) -> None:
    client.force_login(rita)
    answer = client.get(reverse("compare-report", args=[project.slug]))
    assert answer["Location"] == reverse("compare", args=[project.slug])


def test_a_list_of_specs_that_is_cut_says_so(
    client: Client, project: Project, alice: User, two: tuple[Run, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    RewardSpec.objects.create(project=project, name="strict", components=GATED)
    client.force_login(alice)
    address = _address(project, *two) + "&spec=reward:strict@1"
    note = '<option value="" disabled>The newest 1 are listed.</option>'
    assert note not in dense(client.get(address).content.decode())
    monkeypatch.setattr("webapp.evaluation.comparison.rewards.SPECS_OFFERED", 1)
    page = dense(client.get(address).content.decode())
    assert note in page and page.count(" selected>strict@1</option>") == 1
