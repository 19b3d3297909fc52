"""Forest plots: where points, intervals and labels lie, at the ends of axes, for many rows and for long names."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tests.markup import dense
from training.evaluation import Interval, Paired
from webapp.evaluation.comparison.contestants import Contestant
from webapp.evaluation.comparison.figures import Numbers
from webapp.evaluation.comparison.forest import leads, levels
from webapp.people.teams.models import Project, User
from webapp.runs.models import Run


def named(*names: str) -> list[Contestant]:
    return [Contestant(number, Run(name=name), None) for number, name in enumerate(names)]


def numbers(*success: Interval | None, pairs: dict[tuple[int, int], Interval] | None = None) -> Numbers:
    found = {places: Paired(each.tasks, 0, 0, each, 0.5, None) for places, each in (pairs or {}).items()}
    return Numbers([], [], [{"success": each} if each else {} for each in success], found, {}, [], [])


def test_levels_are_drawn_from_0_to_100_percent_the_best_first() -> None:
    found = levels(
        named("half", "all", "none", "unknown"),
        numbers(Interval(0.5, 0.4, 0.6, 20), Interval(1.0, 0.84, 1.0, 20), Interval(0.0, 0.0, 0.16, 20), None),
    )
    assert [(row.contestant.run.name, row.value, row.ends, row.tasks) for row in found.rows] == [
        ("all", "100%", "84% – 100%", 20), ("half", "50%", "40% – 60%", 20), ("none", "0%", "0% – 16%", 20),
        ("unknown", "–", "", 0),
    ]  # fmt: skip
    assert [row.mark and tuple(row.mark) for row in found.rows] == [
        ("95.00%", "80.60%", "95.00%"), ("50.00%", "41.00%", "59.00%"), ("5.00%", "5.00%", "19.40%"), None,
    ]  # fmt: skip
    assert [tuple(tick) for tick in found.ticks] == [
        ("5.00%", "0%"), ("27.50%", "25%"), ("50.00%", "50%"), ("72.50%", "75%"), ("95.00%", "100%"),
    ]  # fmt: skip
    assert found.zero == "" and found.of is None


def test_one_task_has_a_point_without_an_interval_and_equal_ones_stay_in_order() -> None:
    one = Interval(1.0, None, None, 1)
    found = levels(named("b", "a"), numbers(one, one))
    assert [row.contestant.run.name for row in found.rows] == ["b", "a"]
    assert [(row.ends, row.tasks, set(row.mark or ())) for row in found.rows] == [("", 1, {"95.00%"})] * 2


@pytest.mark.parametrize("first", [0, 1])
def test_a_lead_is_over_the_others_and_its_axis_has_0(first: int) -> None:
    pairs = {(0, 1): Interval(0.1, -0.02, 0.22, 40), (0, 2): Interval(0.3, 0.2, 0.4, 40)}
    found = leads(named("a", "b", "c"), numbers(None, None, None, pairs=pairs), first)
    assert found is not None and found.of is not None and found.of.number == first
    rows = [(row.contestant.run.name, row.value, row.ends) for row in found.rows]
    if first:
        assert rows == [("a", "+10.0", "−2.0 to 22.0")]
        assert [tick.text for tick in found.ticks] == ["−5", "0", "+5", "+10", "+15", "+20", "+25"]
    else:
        assert rows == [("c", "−30.0", "−40.0 to −20.0"), ("b", "−10.0", "−22.0 to 2.0")]
        assert [tick.text for tick in found.ticks] == ["−40", "−30", "−20", "−10", "0", "+10"]
    (zero,) = [tick.at for tick in found.ticks if tick.text == "0"]
    assert found.zero == zero


def test_equal_leads_are_in_the_order_of_the_page() -> None:
    pairs = {(0, 1): Interval(0.1, 0.0, 0.2, 40), (1, 2): Interval(-0.1, -0.2, 0.0, 40)}
    found = leads(named("a", "b", "c"), numbers(None, None, None, pairs=pairs), 1)
    assert found is not None
    assert [(row.contestant.run.name, row.value) for row in found.rows] == [("a", "+10.0"), ("c", "+10.0")]


def test_no_difference_and_the_largest_one_have_an_axis() -> None:
    none = leads(named("a", "b"), numbers(None, None, pairs={(0, 1): Interval(0.0, 0.0, 0.0, 9)}), 1)
    assert none is not None and [tick.text for tick in none.ticks] == ["0", "+1"]
    all_of_it = leads(named("a", "b"), numbers(None, None, pairs={(0, 1): Interval(1.0, -1.0, 1.0, 1)}), 1)
    assert all_of_it is not None and [tick.text for tick in all_of_it.ticks] == ["−100", "−50", "0", "+50", "+100"]
    assert leads(named("a", "b"), numbers(None, None), 0) is None


def test_twelve_contestants_have_a_row_each() -> None:
    names = [f"{letter * 80}" for letter in "abcdefghijkl"]
    found = levels(named(*names), numbers(*[Interval(n / 12, n / 13, 1.0, 9) for n in range(12)]))
    assert [row.contestant.run.name for row in found.rows] == names[::-1]


@pytest.mark.django_db
def test_a_plot_is_a_table_of_figures_without_styles(
    client: Client, project: Project, alice: User, evaluation: Callable[..., Run]
) -> None:
    long, chinese = "n" * 80, "中文名字的评估"
    a = evaluation(long, {0: [1, 1], 1: [0, 0], 2: [0, 0], 3: [0, 1]})
    b = evaluation(chinese, {0: [1, 1], 1: [1, 1], 2: [1, 0], 3: [1, 1]})
    client.force_login(alice)
    page = client.get(reverse("compare", args=[project.slug]), {"c": [str(a.pk), str(b.pk)]}).content.decode()
    card: Any = re.search(r'<section class="card" id="forest">.*?</section>', page, re.DOTALL)
    plot = dense(card[0])
    assert plot.count("<table") == 2 and "style=" not in plot and plot.count('<th scope="row">') == 3
    assert plot.index(chinese) < plot.index(long), "the better one first"
    for text in ("<strong>87.5%</strong>", "<strong>37.5%</strong>", "<strong>+50.0</strong>", f"ahead is {chinese}?"):
        assert text in plot, text
    assert plot.count('class="forest-zero"') == 1
