"""Watching a run: what the client asks, and what it makes of a site that is away or has no place for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tiltyard_client.api import Json, Refused, Tiltyard, Unreachable

from webapp.engine.history import event_add
from webapp.people.teams.models import User
from webapp.people.teams.tokens import token_create
from webapp.runs.models import Run

BUSY = Refused(429, "rate_limited", "too many")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Tiltyard, list[Json]]]:
    """``asked(answer, …)``: a client whose questions are answered so, or by an error, and what it asked."""

    def start(*answers: Any) -> tuple[Tiltyard, list[Json]]:
        site, left, heard = Tiltyard("http://127.0.0.1:1", "t"), list(answers), []

        def call(method: str, path: str, *, params: Json) -> Json:
            assert (method, path) == ("GET", "/runs/r/events")
            heard.append(dict(params))
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return {"run": answer}

        monkeypatch.setattr(site, "call", call)
        return site, heard

    return start


def _run(seq: int, step: int, state: str = "running") -> Json:
    return {"seq": seq, "step": step, "state": state}


def test_it_continues_from_what_it_has_seen(asked: Any) -> None:
    runs = [_run(5, 1), _run(5, 1), _run(9, 2), _run(12, 2, "succeeded")]
    site, heard = asked(*runs)
    assert list(site.watch("r", every_s=0)) == [runs[0], runs[2], runs[3]], "what has not changed is not reported again"
    assert heard == [
        {"limit": 1},
        {"limit": 1, "after": 5, "step": 1, "wait": 25},
        {"limit": 1, "after": 5, "step": 1, "wait": 25},
        {"limit": 1, "after": 9, "step": 2, "wait": 25},
    ]


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "paused"])
def test_it_ends_with_the_run(asked: Any, state: str) -> None:
    site, heard = asked(_run(5, 1, state))
    assert len(list(site.watch("r", every_s=0))) == len(heard) == 1


@pytest.mark.parametrize("away", [Unreachable("away"), BUSY, Refused(503, "unavailable", "away")])
def test_it_outlives_a_site_that_is_away_or_full(asked: Any, away: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    site, heard = asked(away, _run(5, 1), away, away, _run(9, 2, "succeeded"))
    assert [run["seq"] for run in site.watch("r", every_s=0)] == [5, 9]
    assert heard[2] == heard[3] == heard[4], "it resumes where it was"
    monkeypatch.setattr("tiltyard_client.api.PATIENCE_S", -1.0)
    site, _heard = asked(away)
    with pytest.raises(type(away)):
        list(site.watch("r", every_s=0))


def test_it_comes_back_when_it_is_asked_to(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tiltyard_client.api.time.sleep", slept.append)
    site, _heard = asked(Refused(429, "rate_limited", "too many", wait_s=5.0), _run(5, 1), _run(9, 2, "failed"))
    assert len(list(site.watch("r", every_s=0.1))) == 2 and slept == [5.0, 0.1]


def test_another_refusal_ends_it(asked: Any) -> None:
    site, _heard = asked(_run(5, 1), Refused(404, "not_found", "gone"))
    with pytest.raises(Refused, match="gone"):
        list(site.watch("r", every_s=0))


@pytest.mark.django_db(transaction=True)
def test_at_a_real_site_it_is_reported_as_soon_as_it_happens(site: str, bob: User, make_run: Any) -> None:
    run = make_run(state="running", attempt=1, step=1)
    _token, text = token_create(user=bob, name="laptop", role="viewer")
    reports: list[tuple[float, Json]] = []

    def watch() -> None:
        for seen in Tiltyard(site, text).watch(str(run.pk), every_s=0):
            reports.append((time.monotonic(), seen))

    watcher = threading.Thread(target=watch)
    watcher.start()
    _until(lambda: len(reports) == 1)
    Run.objects.filter(pk=run.pk).update(step=2)
    event_add(run.pk, "phase", {"phase": "generating", "step": 2}, attempt=1)
    _until(lambda: reports[-1][1]["step"] == 2)
    Run.objects.filter(pk=run.pk).update(state="succeeded")
    event_add(run.pk, "state", {"from": "running", "to": "succeeded", "reason": None, "error": None}, attempt=1)
    watcher.join(20)
    assert not watcher.is_alive() and reports[-1][1]["state"] == "succeeded"


def _until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not check():
        assert time.monotonic() < end
        time.sleep(0.02)
