"""Several runs of the queue at once: which are changed, which are not, and what cannot be asked of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from webapp.people.teams.models import User
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
ADDRESS = "/p/joust/runs/queue/"


@pytest.fixture
def runs(make_run: Callable[..., Run]) -> list[Run]:
    """Two that wait, and one that is played."""
    return [make_run(name=name, state=state) for name, state in (("a", "queued"), ("b", "queued"), ("c", "running"))]


def test_the_page_names_those_that_do_not_wait(alice: User, runs: list[Run], client_for: Callable[..., Client]) -> None:
    answer = client_for(alice).get(ADDRESS, {"c": [run.pk for run in runs]})
    assert [run.name for run in answer.context["others"]] == ["c"]


def test_those_that_wait_are_held_and_the_others_named(
    alice: User, runs: list[Run], client_for: Callable[..., Client]
) -> None:
    answer: Any = client_for(alice).post(ADDRESS, {"c": [run.pk for run in runs], "act": "hold"}, follow=True)
    said = [str(message) for message in answer.context["messages"]]
    assert said[0] == "2 runs are in the queue as you chose." and len(said) == 2 and said[1].startswith("c: ")
    assert [Run.objects.get(pk=run.pk).on_hold_at is not None for run in runs] == [True, True, False]


@pytest.mark.parametrize("act", ["first", "odd", ""])
def test_several_cannot_be_first(act: str, alice: User, runs: list[Run], client_for: Callable[..., Client]) -> None:
    assert client_for(alice).post(ADDRESS, {"c": [run.pk for run in runs], "act": act}).status_code == 400


def test_without_a_choice_nothing_is_changed(alice: User, runs: list[Run], client_for: Callable[..., Client]) -> None:
    assert client_for(alice).post(ADDRESS, {"act": "hold"}).status_code == 302
    assert not Run.objects.filter(on_hold_at__isnull=False).exists()
