"""``tiltyard compare … --spec S --rescore``: what was not recorded is computed, and the comparison has its rewards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from tests.client.conftest import Tool, answered, refused
from tests.webapp.evaluation.rescoring.conftest import OWN, SOLVED, spec, two
from tests.working import done
from webapp.evaluation.rescoring.models import Rescoring, RescoringState
from webapp.evaluation.rescoring.services import rescoring_cancel
from webapp.runs.models import Run

__all__ = ["spec", "two"]
pytestmark = pytest.mark.django_db(transaction=True)
Maker = Callable[..., Any]


@contextmanager
def meanwhile(act: Callable[[Rescoring], object]) -> Iterator[None]:
    """A thread next to the site that does this with all that is asked for."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.1):
            for item in Rescoring.objects.filter(state=RescoringState.WAITING):
                act(item)
        connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_it_waits_and_then_compares(tool: Tool, two: list[Run], spec: Maker) -> None:
    reference = spec(OWN, SOLVED)
    before = tool("compare", "a", "b", "--spec", reference).stdout
    assert "a: 8 rollouts have no value of regex_match." in before and "--rescore has them scored" in before
    with meanwhile(done):
        after = answered(tool("compare", "a", "b", "--spec", reference, "--rescore", "--json"))
    assert after["items"][0]["figures"]["reward"]["value"] == pytest.approx(0.5625) and after["to_score"] is None
    assert tool("compare", "a", "b", "--spec", reference, "--rescore").exit_code == 0
    assert Rescoring.objects.count() == 1  # the second time nothing lacks


def test_what_it_cannot_do_is_reported(tool: Tool, two: list[Run], spec: Maker) -> None:
    refused(tool("compare", "a", "b", "--rescore"), "--rescore needs --spec", 2)
    judge = {"name": "judge", "weight": 1.0, "params": {"url": "http://127.0.0.1:9/v1", "model": "gpt-oss"}}
    refused(tool("compare", "a", "b", "--spec", spec(judge), "--rescore"), "--yes confirms it", 2)
    assert not Rescoring.objects.exists()

    with meanwhile(lambda item: rescoring_cancel(rescoring=item, user=None)):
        ended = tool("compare", "a", "b", "--spec", spec(judge), "--rescore", "--yes")
    refused(ended, "The scoring was cancelled; what was scored is kept.", 5)
    assert Rescoring.objects.count() == 1
