"""The family of a run: what it continues, what continues it, and how that is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from webapp.people.teams.models import User
from webapp.runs.models import Attempt, Run
from webapp.runs.states import RunState
from webapp.site.run_pages import parts
from webapp.site.run_pages.parts import family_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def tree(make_run: Any) -> dict[str, Run]:
    """root (0 to 80) → a (from 20, to 100) → b (from 60, to 70); root → c (from 40, not begun)."""
    made: dict[str, Run] = {}
    for name, parent, began, step in (("root", "", None, 80), ("a", "root", 20, 100), ("c", "root", 40, 0)):
        made[name] = make_run(name=name, parent=made.get(parent), resume_step=began, step=step, state=RunState.FAILED)
    made["b"] = make_run(name="b", parent=made["a"], resume_step=60, step=70, state=RunState.RUNNING, attempt=1)
    return made


def lines(run: Run) -> list[tuple[Any, ...]]:
    found = family_of(run)
    assert found is not None
    return [(one.run.name, one.depth, one.here, one.x, one.width) for one in found.members]


def test_a_run_that_is_alone_has_none(make_run: Any) -> None:
    assert family_of(make_run(name="alone", attempt=1, health={"stages": [{"name": "a", "began": 0}]})) is None


def test_each_is_drawn_behind_its_parent_on_one_axis(tree: dict[str, Run]) -> None:
    expected = [("root", 0, 0, 80.0), ("a", 1, 20.0, 80.0), ("b", 2, 60.0, 10.0), ("c", 1, 40.0, 0.0)]
    for name, run in tree.items():
        assert lines(run) == [(one, depth, one == name, x, width) for one, depth, x, width in expected]


def test_attempts_and_stages_are_distinguished(make_run: Any) -> None:
    stages = [{"name": "base", "began": 0}, {"name": "all", "began": 30}]
    run = make_run(name="two", attempt=2, step=50, health={"stages": stages})
    for number, first in ((1, 0), (2, 40)):
        Attempt.objects.create(run=run, number=number, owner="w", started_at=timezone.now(), first_step=first)
    found = family_of(run)
    assert found is not None and found.steps == 50
    ticks = [tuple(tick) for tick in found.members[0].ticks]
    assert ticks == [
        (80.0, "attempt", "Attempt 2 begins after step 40"),
        (60.0, "stage", "Stage “all” begins after step 30"),
    ]


def test_a_large_family_is_cut_but_for_the_runs_own_line(
    tree: dict[str, Run], make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST", 2)
    found = family_of(tree["root"])
    assert found is not None and [one.run.name for one in found.members] == ["root", "a"] and found.more
    deep = family_of(tree["b"])
    assert deep is not None and [one.run.name for one in deep.members] == ["root", "a", "b"] and deep.more


def test_the_page_draws_it(tree: dict[str, Run], make_run: Any, client_for: Callable[..., Client], rita: User) -> None:
    client = client_for(rita)
    page = client.get(reverse("run-detail", args=["joust", tree["a"].pk])).content.decode()
    part = page[page.index('id="run-family"') :]
    part = part[: part.index("</section>")]
    assert part.count("<li ") == 4 and part.count('aria-current="page"') == 1 and "<strong>a</strong>" in part
    assert reverse("run-detail", args=["joust", tree["b"].pk]) in part and "steps 60 to 70" in part
    assert "from step 40" in part and "step 80" in part
    alone = make_run(name="alone", attempt=1)
    assert "run-family" not in client.get(reverse("run-detail", args=["joust", alone.pk])).content.decode()
